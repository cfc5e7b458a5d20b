"""Operators against torch.profiler, autograd and the shapes that Python knows."""

import collections
import threading

import pytest

torch = pytest.importorskip("torch")

from memprof import _core, _torch_setup
from memprof._collection import Collection


def record(function, **options):
    collection = Collection(**{"operators": True, "shapes": True, **options})
    collection.start()
    try:
        function()
    finally:
        recording = collection.stop()
    return recording


def names(recording, rows=None):
    rows = recording.operators if rows is None else rows
    return [recording.strings[int(i)] for i in rows["name_id"]]


def shapes(recording, row):
    """Inputs of an operator: a tuple of sizes a tensor, None for anything else."""
    offsets = recording._core.table("shape_offsets")
    values = recording._core.table("shape_values")
    run = values[offsets[row["shapes_id"]] : offsets[row["shapes_id"] + 1]].tolist()
    found, at = [], 0
    while at < len(run):
        kind, count = run[at] & 0xFF, run[at] >> 16 & 0xFFFF
        at += 1
        if kind == 1:
            found.append((tuple(run[at : at + count]), run[at - 1] >> 8 & 0xFF))
            at += count
        else:
            found.append(None if kind == 4 else ("undefined", "list")[kind - 2])
    return found


def step_function():
    net = torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3),
        torch.nn.BatchNorm2d(8),
        torch.nn.ReLU(),
        torch.nn.Flatten(),
        torch.nn.Linear(8 * 14 * 14, 10),
    )
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step():
        loss = torch.nn.functional.cross_entropy(
            net(torch.ones(2, 3, 16, 16)), torch.zeros(2, dtype=torch.int64)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step()
    return step


def test_same_operators_as_torch_profiler():
    from torch.profiler import ProfilerActivity, profile

    step = step_function()
    recording = record(lambda: [step() for _ in range(3)])
    with profile(activities=[ProfilerActivity.CPU]) as prof:
        for _ in range(3):
            step()
    theirs = collections.Counter(
        e.name() for e in prof.profiler.kineto_results.events() if e.name() != "[memory]"
    )
    ours = collections.Counter(names(recording))
    assert ours == theirs


def test_nesting_is_that_of_time():
    step = step_function()
    recording = record(step)
    operators = recording.operators
    assert (operators["flags"] & 1 == 0).all()
    for row in operators:
        assert row["end_ns"] >= row["start_ns"]
        if row["parent_id"]:
            parent = operators[row["parent_id"] - 1]
            assert parent["start_ns"] <= row["start_ns"] <= row["end_ns"] <= parent["end_ns"]
            assert row["depth"] == parent["depth"] + 1 and row["thread"] == parent["thread"]
        else:
            assert row["depth"] == 0


def test_shapes_and_dtypes():
    def program():
        torch.mm(torch.ones(3, 5), torch.ones(5, 2))
        torch.cat([torch.ones(2), torch.ones(3)])
        torch.add(torch.ones(1, 2, 3, 1, 2, 1, 2, dtype=torch.bfloat16), 1)
        torch.nn.functional.batch_norm(torch.ones(2, 3), None, None, training=True)

    recording = record(program)
    by_name = dict(zip(names(recording), recording.operators, strict=True))
    assert shapes(recording, by_name["aten::mm"]) == [((3, 5), 6), ((5, 2), 6)]
    assert shapes(recording, by_name["aten::cat"])[:1] == ["list"]
    assert shapes(recording, by_name["aten::cat"])[1:3] == [((2,), 6), ((3,), 6)]
    assert shapes(recording, by_name["aten::add"])[0] == ((1, 2, 3, 1, 2, 1, 2), 15)
    assert shapes(recording, by_name["aten::batch_norm"])[:3] == [((2, 3), 6), None, None]
    inner = shapes(recording, by_name["aten::native_batch_norm"])
    assert inner[:3] == [((2, 3), 6), "undefined", "undefined"]


def test_boxed_calls_show_their_own_arguments_only():
    def program():
        torch.ops.aten.mm(torch.ones(3, 4), torch.ones(4, 6))

    recording = record(program)
    by_name = dict(zip(names(recording), recording.operators, strict=True))
    assert shapes(recording, by_name["aten::mm"]) == [((3, 4), 6), ((4, 6), 6)]


def test_sequence_numbers_are_autograds():
    expected = []

    def program():
        for _ in range(20):
            leaf = torch.ones(2, requires_grad=True)
            expected.append(torch._C._autograd._get_sequence_nr())
            torch.mul(leaf, leaf)

    recording = record(program)
    rows = recording.operators
    got = [int(r["sequence"]) for r, n in zip(rows, names(recording), strict=True) if n == "aten::mul"]
    assert got == expected


def test_backward_names_its_forward_operator_across_threads():
    net = torch.nn.Linear(8, 8)

    def program():
        loss = net(torch.ones(4, 8)).relu().sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()

    recording = record(program)
    rows = recording.operators
    name = names(recording)
    backward = {n: r for n, r in zip(name, rows, strict=True) if r["scope"] == 1}
    for node, forward in (
        ("AddmmBackward0", "aten::addmm"),
        ("ReluBackward0", "aten::relu"),
        ("SumBackward0", "aten::sum"),
    ):
        row = backward[node]
        assert name[row["forward_id"] - 1] == forward
        assert row["thread"] != rows[row["forward_id"] - 1]["thread"]


def test_operators_of_all_threads_and_after_exceptions():
    ready, go = threading.Event(), threading.Event()

    def older():
        ready.set()
        go.wait()
        torch.ones(5).sin()

    thread = threading.Thread(target=older)
    thread.start()
    ready.wait()

    def program():
        go.set()
        thread.join()
        with pytest.raises(RuntimeError):
            torch.ones(2) + torch.ones(3)
        torch.ones(2).cos()

    recording = record(program)
    name = names(recording)
    rows = recording.operators
    assert "aten::sin" in name and "aten::cos" in name
    assert rows[name.index("aten::sin")]["thread"] != rows[name.index("aten::cos")]["thread"]
    assert rows[name.index("aten::cos")]["depth"] == 0


def test_lines_inside_a_users_range_are_their_own():
    sizes = {}

    def program():
        with torch.profiler.record_function("range"):
            a = torch.empty(1001, dtype=torch.uint8)
            b = torch.empty(1002, dtype=torch.uint8)
            with torch.profiler.record_function("inner"):
                c = torch.empty(1003, dtype=torch.uint8)
        return a, b, c

    first = program.__code__.co_firstlineno
    for operators in (True, False):
        recording = record(program, operators=operators)
        for row in recording.allocations[recording.allocations["kind"] == 1]:
            sizes[int(row["bytes"])] = recording.stacks[int(row["stack_id"])][0].line
        assert (sizes[1001], sizes[1002], sizes[1003]) == (first + 2, first + 3, first + 5)
    recording = record(program)
    lines = {
        name: recording.stacks[int(row["stack_id"])]
        for name, row in zip(names(recording), recording.operators, strict=True)
    }
    users = [frame for frame in lines["inner"] if frame.function.endswith("program")]
    assert users[0].line == first + 4


def test_light_mode_sees_backward_nodes_and_user_ranges_only():
    step = step_function()

    def program():
        with torch.profiler.record_function("my range"):
            step()

    recording = record(program, operators=False)
    assert set(recording.operators["scope"].tolist()) <= {1, 7}
    assert {"my range", "AddmmBackward0"} <= set(names(recording))
    assert not recording.coverage["sources"]["operators"]["on"]
    assert recording.coverage["sources"]["backward links"]["on"]


def test_profiler_flag_is_set_only_while_recording():
    flag = []
    record(lambda: flag.append(torch.autograd.profiler._is_profiler_enabled))
    assert flag == [True]
    assert torch.autograd.profiler._is_profiler_enabled is False


# ---- each self-check, sabotaged ----


@pytest.fixture
def unproved():
    _torch_setup.forget()
    yield
    _core.torch_hide(None)
    _torch_setup.forget()
    _torch_setup.prove(torch)


def sources():
    recording = record(step_function())
    return recording.coverage["sources"], recording


@pytest.mark.usefixtures("unproved")
@pytest.mark.parametrize(
    ("fact", "value", "failed", "off"),
    [
        ("inputs_offset", 200, "inputs", {"operators", "shapes", "backward links"}),
        ("matches", 2, "inputs", {"operators", "shapes", "backward links"}),
        ("scope_valid", False, "inputs", {"operators", "shapes", "backward links"}),
        ("thread_id_agrees", False, "inputs", {"operators", "shapes", "backward links"}),
        ("async_agrees", False, "inputs", {"operators", "shapes", "backward links"}),
        ("sequence", -77, "sequences", {"backward links"}),
        ("tags", (1, 1) + (0,) * 10, "list_tag", {"shapes"}),
    ],
)
def test_wrong_layout_switches_its_sources_off(monkeypatch, fact, value, failed, off):
    real = _core.torch_probe

    def lying(operator, impl, offset, call):
        return {**real(operator, impl, offset, call), fact: value}

    monkeypatch.setattr(_core, "torch_probe", lying)
    found, recording = sources()
    assert f"self-check '{failed}' failed" in str(recording.coverage["self_checks"][failed])
    assert {name for name in ("operators", "shapes", "backward links") if not found[name]["on"]} == off
    for name in off:
        assert failed in found[name]["reason"]
    assert found["cpu memory"]["on"] and len(recording.allocations) > 0


@pytest.mark.usefixtures("unproved")
def test_wrong_tensor_layout_switches_shapes_off(monkeypatch):
    monkeypatch.setattr(_torch_setup, "_IMPL_LAYOUTS", ((72, 160, 168),))
    found, recording = sources()
    assert not found["shapes"]["on"] and "tensor_layout" in found["shapes"]["reason"]
    assert found["operators"]["on"] and (recording.operators["shapes_id"] == 0).all()


@pytest.mark.usefixtures("unproved")
@pytest.mark.parametrize(
    "member", ["add_callback", "op_name", "op_input_count", "thread_id", "next_sequence", "alloc_cpu"]
)
def test_missing_function_switches_its_sources_off(member):
    _core.torch_hide(member)
    found, recording = sources()
    assert member in str(recording.coverage["self_checks"]["symbols"])
    assert not found["operators"]["on"]
    assert member in found["operators"]["reason"]


@pytest.mark.usefixtures("unproved")
def test_blocks_that_do_not_show_switch_memory_off(monkeypatch):
    monkeypatch.setattr(_core, "Session", SilentSession)
    setup = _torch_setup.prove(torch)
    assert not setup.cpu_memory and "cpu_blocks" in setup.reason("cpu_blocks")


class SilentSession:
    def __init__(self, **options):
        pass

    def start(self):
        pass

    def stop(self):
        return _core.Recording.from_tables({}, start_ns=0, window_start_ns=0, stop_ns=0)
