"""The C passes against a plain-Python reference, and what they say of made-up trainings."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_builder import (
    ALLOC,
    BACKWARD,
    BACKWARD_CALL,
    CPU,
    CUDA,
    DATA,
    FREE,
    MODULE_CALL,
    OOM,
    OPTIMIZER_SPAN,
    OPTIMIZER_STEP,
    USER_SPAN,
    Builder,
)

from memprof import _core

NO_BASELINE, BASELINE_DIFFERS, TOTALS_DRIFT, MISSED_FREES = 1, 2, 4, 8
MISSED_FREE = 8
FORWARD_LINE, NEAR = 1, 2
STOP = 10**6


# ---- blocks, totals, steps against the reference


@st.composite
def histories(draw, ties=True):
    """A true history of two devices, of which the recording sees a part."""
    builder = Builder(0, draw(st.integers(0, 40)), STOP)
    for torch_id in (1, 2):
        builder.thread(torch_id)
    builder.missed = set()
    time, steps = builder.times["window_start_ns"], draw(st.integers(0, 4))
    for number in range(steps):
        time += draw(st.integers(0, 3))
        end = time + draw(st.integers(1, 20))
        builder.step(7 + number, time, end)
        time = end
    live = {CPU: {}, CUDA: {}}
    sizes = st.integers(1, 50)
    for address in draw(st.sets(st.integers(1, 5))):
        live[CUDA][address] = draw(sizes)
    if draw(st.booleans()):
        live[CPU][3] = draw(sizes)
    snapshot_ns = draw(st.integers(0, 10)) if draw(st.booleans()) else None
    snapshot = dict(live[CUDA]) if snapshot_ns is not None else {}
    now = 0
    for _ in range(draw(st.integers(0, 40))):
        now += draw(st.integers(0 if ties else 1, 3))
        device = draw(st.sampled_from([CPU, CUDA]))
        address = draw(st.integers(1, 6))
        known = live[device]
        if address in known:
            size = known.pop(address)
            kind, size = FREE, -size if device == CUDA else 0
        else:
            kind, size = ALLOC, draw(sizes)
            known[address] = size
        if snapshot_ns is not None and now <= snapshot_ns:
            snapshot = dict(live[CUDA])
        if kind == FREE and draw(st.integers(0, 9)) == 0:
            builder.missed.add(device)
            continue
        total = sum(known.values()) if device == CUDA else -1
        builder.event(kind, now, address, size, device, allocated_bytes=total, thread=1)
        if draw(st.integers(0, 9)) == 0:
            builder.event(OOM, now, 0, 999, device, allocated_bytes=total, thread=2)
    for address, size in snapshot.items():
        builder.add(
            "baseline",
            time_ns=snapshot_ns,
            address=address,
            bytes=size,
            requested_bytes=size,
            device_type=1,
            device_index=0,
        )
    return builder


def step_of(builder, time):
    for row in builder.rows["steps"]:
        if row["start_ns"] <= time < row["end_ns"]:
            return row["number"]
    return -1


def reference_blocks(builder):
    """Blocks as dicts in order, and the change of each event on its device's known sum."""
    events = builder.rows["allocations"]
    older, ordinary, alive, changes = [], [], {}, []

    def new(blocks, key, size, birth):
        block = {"key": key, "bytes": size, "birth": birth, "death": -1, "missed": False}
        blocks.append(block)
        return block

    for row in builder.rows["baseline"]:
        key = (1, 0, row["address"])
        early = [
            event
            for event in events
            if (event["device_type"], event["device_index"], event["address"]) == key
            and event["time_ns"] <= row["time_ns"]
            and event["kind"] != OOM
        ]
        if not early:
            alive[key] = new(older, key, row["bytes"], -1)
    for event in events:
        key = (event["device_type"], event["device_index"], event["address"])
        time, change = event["time_ns"], 0
        if event["kind"] == ALLOC:
            if key in alive:
                alive[key].update(death=time, missed=True)
                change -= alive[key]["bytes"]
            alive[key] = new(ordinary, key, event["bytes"], time)
            change += event["bytes"]
        elif event["kind"] == FREE and key in alive:
            block = alive.pop(key)
            block["death"] = time
            change -= block["bytes"]
        elif event["kind"] == FREE and event["bytes"]:
            new(older, key, -event["bytes"], -1)["death"] = time
            change += event["bytes"]
        changes.append(change)
    return older + ordinary, changes


@settings(deadline=None, max_examples=300)
@given(histories())
def test_blocks_equal_the_reference(builder):
    recording = builder.build()
    expected, _ = reference_blocks(builder)
    window = builder.times["window_start_ns"]
    rows = [
        (
            (int(row["device_type"]), int(row["device_index"]), int(row["address"])),
            *(int(row[name]) for name in ("bytes", "birth_ns", "death_ns")),
            *(int(row[name]) for name in ("birth_step", "death_step", "preexisting")),
            bool(row["flags"] & MISSED_FREE),
        )
        for row in recording.blocks
    ]
    assert rows == [
        (
            block["key"],
            block["bytes"],
            block["birth"],
            block["death"],
            step_of(builder, block["birth"]) if block["birth"] >= 0 else -1,
            step_of(builder, block["death"]) if block["death"] >= 0 else -1,
            int(block["birth"] < window),
            block["missed"],
        )
        for block in expected
    ]


def device_totals(builder, device):
    """(time, total after, change) of each event of a device, after an entry for the start."""
    blocks, changes = reference_blocks(builder)
    total = sum(b["bytes"] for b in blocks if b["key"][:2] == device and b["birth"] == -1)
    events = [
        (event, change)
        for event, change in zip(builder.rows["allocations"], changes, strict=True)
        if (event["device_type"], event["device_index"]) == device
    ]
    if device == CUDA and events:
        first = events[0][0]
        total = first["allocated_bytes"] - (0 if first["kind"] == OOM else first["bytes"])
    history = [(-1, total, 0)]
    for event, change in events:
        if device == CUDA:
            total, change = (
                event["allocated_bytes"],
                0 if event["kind"] == OOM else event["bytes"],
            )
        else:
            total += change
        history.append((event["time_ns"], total, change))
    return history


def span_of(history, start, end):
    """(start, peak, end) of the total in [start, end)."""
    before = [total for time, total, _ in history if time < start]
    inside = [total for time, total, _ in history if start <= time < end]
    return before[-1], max([before[-1], *inside]), [*before, *inside][-1]


@settings(deadline=None, max_examples=300)
@given(histories())
def test_totals_devices_and_steps_equal_the_reference(builder):
    recording = builder.build()
    window = builder.times["window_start_ns"]
    for row in recording._core.table("devices"):
        device = int(row["device_type"]), int(row["device_index"])
        history = device_totals(builder, device)
        start, peak, end = span_of(history, window, STOP)
        assert (row["start_bytes"], row["peak_bytes"], row["end_bytes"]) == (start, peak, end)
        events = recording.allocations[(recording.allocations["device_type"] == device[0])]
        assert events["allocated_bytes"].tolist() == [total for _, total, _ in history[1:]]
        if device == CPU:
            assert row["balanced"] == 1
            assert start + row["allocated_bytes"] - row["freed_bytes"] == end
            assert (events["reserved_bytes"] == 0).all()
        elif CUDA not in builder.missed:
            assert row["balanced"] == 1
            assert row["flags"] == 0 or not builder.rows["baseline"]
        for step in builder.rows["steps"]:
            memory = recording.step_table()
            memory = memory[
                (memory["step"] == step["number"]) & (memory["device_type"] == device[0])
            ][0]
            assert (
                memory["start_bytes"],
                memory["peak_bytes"],
                memory["end_bytes"],
            ) == span_of(history, step["start_ns"], step["end_ns"])
            assert step["start_ns"] <= memory["peak_ns"] < step["end_ns"]


@settings(deadline=None, max_examples=200)
@given(histories())
def test_what_lives_at_the_peak_sums_to_it(builder):
    recording = builder.build()
    for balance in recording.balance():
        moment = recording.peak(balance.device)
        if balance.balanced and not balance.notes:
            live = recording.live(moment)
            assert live["bytes"].sum() == moment.allocated_bytes
            groups = recording.by(("phase", "thread"), moment)
            assert sum(group.bytes for group in groups) == moment.allocated_bytes


@settings(deadline=None, max_examples=200)
@given(histories(), st.integers(0, 120))
def test_live_at_a_time_equals_the_reference(builder, time):
    expected = sum(
        block["bytes"]
        for block in reference_blocks(builder)[0]
        if block["birth"] <= time and (block["death"] == -1 or block["death"] > time)
    )
    assert builder.build().live(time)["bytes"].sum() == expected


def test_peak_between_events_of_one_time():
    builder = Builder()
    builder.alloc(5, 1, 100)
    builder.alloc(5, 2, 10)
    builder.free(5, 1)
    builder.alloc(5, 3, 20)
    recording = builder.build()
    moment = recording.peak()
    assert moment.allocated_bytes == 110
    assert sorted(recording.live(moment)["address"]) == [1, 2]
    assert sorted(recording.live(5)["address"]) == [2, 3]


def test_peak_carried_into_the_window_is_found_at_its_start():
    builder = Builder(0, 10)
    builder.alloc(1, 1, 100)
    builder.free(10, 1)
    builder.alloc(11, 2, 30)
    recording = builder.build()
    moment = recording.peak()
    assert (moment.time_ns, moment.allocated_bytes) == (10, 100)
    assert recording.live(moment)["address"].tolist() == [1]
    assert recording.blocks["preexisting"].tolist() == [1, 0]


# ---- devices


def cuda_baseline(builder, address, size, time=0):
    builder.add(
        "baseline",
        time_ns=time,
        address=address,
        bytes=size,
        requested_bytes=size - 1,
        device_type=1,
    )


def test_cuda_with_baseline_balances():
    builder = Builder()
    cuda_baseline(builder, 1, 512)
    builder.alloc(5, 2, 1024, CUDA, allocated_bytes=1536, reserved_bytes=4096)
    builder.free(6, 1, 512, CUDA, allocated_bytes=1024, reserved_bytes=4096)
    recording = builder.build()
    (balance,) = recording.balance()
    assert balance[1:6] == (512, 1024, 512, 1024, True)
    assert balance.notes == ()
    assert recording.peak().reserved_bytes == 4096
    old, new = recording.blocks
    assert (old["birth_ns"], old["requested_bytes"], old["preexisting"]) == (-1, 511, 1)
    assert (new["requested_bytes"], new["preexisting"]) == (-1, 0)


@pytest.mark.parametrize(
    ("baseline", "totals", "note"),
    [
        ([], (1536, 1024), NO_BASELINE),
        ([(1, 400)], (1536, 1024), BASELINE_DIFFERS),
        ([(1, 512)], (1536, 1000), TOTALS_DRIFT),
    ],
)
def test_cuda_totals_that_do_not_fit_are_said(baseline, totals, note):
    builder = Builder()
    for address, size in baseline:
        cuda_baseline(builder, address, size)
    builder.alloc(5, 2, 1024, CUDA, allocated_bytes=totals[0])
    builder.free(6, 7, 512, CUDA, allocated_bytes=totals[1])
    if not baseline:
        builder.rows["allocations"].pop()
    recording = builder.build()
    row = recording._core.table("devices")[0]
    assert row["flags"] & note
    assert row["balanced"] == (note == NO_BASELINE)
    assert recording.balance()[0].notes


def test_cpu_free_of_unknown_size_is_counted_and_harmless():
    builder = Builder()
    builder.free(1, 9)
    builder.alloc(2, 1, 10)
    (balance,) = builder.build().balance()
    assert balance.unknown_frees == 1
    assert balance.balanced
    assert balance.end_bytes == 10


def test_missed_free_closes_the_block():
    builder = Builder()
    builder.alloc(1, 1, 10)
    builder.alloc(2, 1, 30)
    recording = builder.build()
    assert recording.blocks["death_ns"].tolist() == [2, -1]
    (balance,) = recording.balance()
    assert balance.balanced
    assert (balance.end_bytes, balance.freed_bytes) == (30, 10)
    assert "missed" in balance.notes[0]


# ---- owners

ENGINE = ("/lib/torch/autograd/graph.py", 800, "_engine_run_backward")
BACKWARD_FRAME = ("/lib/torch/autograd/__init__.py", 300, "backward", BACKWARD_CALL)


def training(full):
    """linear -> view -> relu in forward; three backward nodes and AccumulateGrad. Forward on
    thread 1, backward on thread 2 (no Python) as with CUDA."""
    builder = Builder()
    builder.thread(1), builder.thread(2, "pt_autograd_0")
    builder.linear = builder.module("net.0")
    builder.relu = builder.module("net.1")
    call = ("torch/nn/modules/module.py", 1, "__call__", MODULE_CALL)
    builder.lines = {
        "linear": builder.stack(("net.py", 10, "forward"), call, module_id=builder.linear),
        "relu": builder.stack(("net.py", 12, "forward"), call, module_id=builder.relu),
        "backward": builder.stack(ENGINE, BACKWARD_FRAME, ("train.py", 5, "step")),
    }
    forward = [("linear", 1, True), ("view", 2, False), ("relu", 3, True)]
    for place, (name, sequence, allocates) in enumerate(forward):
        time = 10 * (place + 1)
        line = builder.lines.get(name, builder.lines["linear"])
        op = 0
        if full:
            op = builder.operator(
                f"aten::{name}", time, time + 5, sequence=sequence, thread=1, stack_id=line
            )
        if allocates:
            builder.alloc(
                time + 1,
                100 + place,
                64,
                thread=1,
                stack_id=line,
                operator_id=op,
                sequence=sequence + 1,
            )
    for place, (name, sequence, _) in enumerate(reversed(forward)):
        node(builder, f"{name}Backward", 100 + 10 * place, sequence, 200 + place)
    return builder


def node(builder, name, time, sequence, address, thread=2, stack=0, **values):
    op = builder.operator(
        name,
        time,
        time + 5,
        BACKWARD,
        sequence,
        forward_thread=1 if sequence >= 0 else 0,
        thread=thread,
    )
    builder.alloc(
        time + 1,
        address,
        32,
        thread=thread,
        operator_id=op,
        stack_id=stack,
        sequence=4,
        **values,
    )
    return op


def block_at(recording, address):
    return recording.blocks[recording.blocks["address"] == address][0]


@pytest.mark.parametrize("full", [True, False])
def test_backward_memory_gets_its_forward_line(full):
    builder = training(full)
    recording = builder.build()
    for address, line, module in (
        (200, "relu", builder.relu),
        (202, "linear", builder.linear),
    ):
        block = block_at(recording, address)
        assert block["stack_id"] == builder.lines[line]
        assert block["module_id"] == module
        assert block["flags"] == FORWARD_LINE
        assert _core.phases[block["phase"]] == "backward"
    view = block_at(recording, 201)
    assert view["stack_id"] == builder.lines["linear"]
    assert view["flags"] == (FORWARD_LINE if full else FORWARD_LINE | NEAR)
    forward_ids = recording.operators["forward_id"].tolist()
    assert forward_ids == ([0, 0, 0, 3, 2, 1] if full else [0, 0, 0])
    assert _core.phases[block_at(recording, 100)["phase"]] == "forward"
    groups = {group.name: group.bytes for group in recording.by("module", at=300)}
    assert groups == {"net.0": 64 + 32 + 32, "net.1": 64 + 32}


@pytest.mark.parametrize("full", [True, False])
def test_line_that_only_calls_backward_gives_way_to_the_forward_line(full):
    builder = training(full)
    node(builder, "reluBackward", 200, 3, 300, thread=1, stack=builder.lines["backward"])
    block = block_at(builder.build(), 300)
    assert block["stack_id"] == builder.lines["relu"]
    assert block["flags"] == FORWARD_LINE


def test_python_inside_backward_keeps_its_own_line():
    builder = training(True)
    own = builder.stack(
        ("mine.py", 3, "backward"),
        ("/lib/torch/autograd/function.py", 307, "apply"),
        ENGINE,
        BACKWARD_FRAME,
    )
    node(builder, "MineBackward", 200, 3, 300, thread=1, stack=own)
    block = block_at(builder.build(), 300)
    assert block["stack_id"] == own
    assert block["flags"] == 0
    assert _core.phases[block["phase"]] == "backward"


def test_node_without_number_keeps_what_it_has():
    builder = training(False)
    line = builder.lines["backward"]
    node(builder, "torch::autograd::AccumulateGrad", 200, -1, 300, thread=1, stack=line)
    block = block_at(builder.build(), 300)
    assert block["stack_id"] == line
    assert block["flags"] == 0


def test_innermost_backward_node_counts_through_its_operators():
    builder = training(True)
    op = builder.operator("reluBackward", 200, 250, BACKWARD, 3, forward_thread=1, thread=2)
    inner = builder.operator("aten::mul", 201, 220, thread=2, parent_id=op, depth=1)
    innermost = builder.operator("aten::empty", 202, 210, thread=2, parent_id=inner, depth=2)
    builder.alloc(203, 300, 8, thread=2, operator_id=innermost)
    recording = builder.build()
    assert block_at(recording, 300)["stack_id"] == builder.lines["relu"]
    groups = {group.name: group.bytes for group in recording.by("operator", at=203)}
    assert groups["reluBackward"] == 32 + 8


def test_engine_work_on_a_nodes_results_is_the_nodes():
    builder = training(True)
    wrapper = builder.operator(
        "autograd::engine::evaluate_function: reluBackward", 200, 250, thread=2
    )
    builder.operator(
        "reluBackward", 201, 210, BACKWARD, 3, forward_thread=1, thread=2, parent_id=wrapper
    )
    after = builder.operator("aten::sum", 220, 230, thread=2, parent_id=wrapper)
    builder.alloc(221, 300, 8, thread=2, operator_id=after)
    builder.alloc(240, 301, 8, thread=2, operator_id=wrapper)
    recording = builder.build()
    for address in (300, 301):
        block = block_at(recording, address)
        assert block["stack_id"] == builder.lines["relu"]
        assert block["flags"] == FORWARD_LINE


def test_light_mode_takes_the_node_before_on_the_thread():
    builder = training(False)
    grads = ("/lib/torch/autograd/__init__.py", 233, "_make_grads")
    before = builder.stack(grads, BACKWARD_FRAME, ("train.py", 5, "step"))
    node(builder, "reluBackward", 200, 3, 300, thread=1, stack=builder.lines["backward"])
    builder.alloc(210, 301, 8, thread=1, stack_id=builder.lines["backward"])
    builder.alloc(211, 302, 8, thread=2)
    builder.alloc(212, 303, 8, thread=1, stack_id=before)
    recording = builder.build()
    after = block_at(recording, 301)
    assert after["stack_id"] == builder.lines["relu"]
    assert after["flags"] == FORWARD_LINE | NEAR
    elsewhere = block_at(recording, 302)
    assert elsewhere["stack_id"] == builder.lines["linear"]
    assert _core.phases[elsewhere["phase"]] == "backward"
    assert block_at(recording, 303)["stack_id"] == before


def test_forward_of_another_thread_is_not_taken():
    builder = training(True)
    builder.thread(3)
    op = builder.operator("xBackward", 200, 205, BACKWARD, 3, forward_thread=3, thread=2)
    builder.alloc(201, 300, 8, thread=2, operator_id=op)
    block = block_at(builder.build(), 300)
    assert (block["stack_id"], block["flags"]) == (0, 0)


def test_light_mode_takes_no_line_from_after_the_node_ran():
    builder = training(False)
    late = builder.stack(("adam.py", 1, "step", OPTIMIZER_STEP))
    node(builder, "lastBackward", 200, 4, 300)
    builder.alloc(400, 301, 8, thread=1, stack_id=late, sequence=5)
    block = block_at(builder.build(), 300)
    assert block["stack_id"] == builder.lines["relu"]
    assert block["flags"] == FORWARD_LINE | NEAR


def test_phases():
    builder = Builder()
    builder.thread(1), builder.thread(2)
    module = builder.module("net")
    call = ("torch/nn/modules/module.py", 1, "__call__", MODULE_CALL)
    step = ("torch/optim/adam.py", 9, "step", OPTIMIZER_STEP)
    plain = builder.stack(("train.py", 1, "main"))
    forward = builder.stack(("net.py", 1, "forward"), call, module_id=module)
    backward = builder.stack(ENGINE, BACKWARD_FRAME, ("train.py", 2, "main"))
    data = builder.stack(("loader.py", 1, "__next__", DATA))
    closure_forward = builder.stack(("net.py", 1, "forward"), call, step, module_id=module)
    closure_backward = builder.stack(ENGINE, BACKWARD_FRAME, step)
    optimizer_hook = builder.stack(step, ("hook.py", 1, "hook"), ENGINE, BACKWARD_FRAME)
    builder.add("spans", start_ns=100, end_ns=200, thread=1, kind=OPTIMIZER_SPAN)
    builder.add("spans", start_ns=110, end_ns=120, thread=1, kind=USER_SPAN)
    builder.add("spans", start_ns=300, end_ns=400, thread=2, kind=USER_SPAN)
    expected = [
        (10, 1, plain, "other"),
        (20, 1, forward, "forward"),
        (30, 1, backward, "backward"),
        (40, 1, data, "data"),
        (99, 1, plain, "other"),
        (100, 1, plain, "optimizer"),
        (130, 2, plain, "other"),
        (150, 1, plain, "optimizer"),
        (160, 1, closure_forward, "forward"),
        (170, 1, closure_backward, "backward"),
        (200, 1, plain, "other"),
        (210, 1, optimizer_hook, "optimizer"),
        (350, 2, plain, "other"),
    ]
    for time, thread, stack, _ in expected:
        builder.alloc(time, time, 1, thread=thread, stack_id=stack)
    names = [_core.phases[phase] for phase in builder.build().blocks["phase"]]
    assert names == [phase for *_, phase in expected]


# ---- growth

SITE = ("train.py", 31, "train")


def growth_of(per_step, steps, size=1000):
    """Growth of one site, where per_step(step) lists the changes (+1, -1) of the blocks it
    keeps in that step, oldest first out."""
    builder = Builder(stop_ns=steps * 100)
    site, noise = builder.stack(SITE), builder.stack(("net.py", 2, "forward"))
    kept, address = [], 1000
    for step in range(steps):
        time = step * 100
        builder.step(step, time, time + 100)
        builder.alloc(time + 1, 1, 5000, stack_id=noise)
        for change in per_step(step):
            time += 1
            if change > 0:
                address += 1
                kept.append(address)
                builder.alloc(time + 1, address, size, stack_id=site)
            elif kept:
                builder.free(time + 1, kept.pop(0))
        builder.free(time + 50, 1)
    rows = builder.build().growth()
    assert set(rows["stack_id"]) <= {site}
    return rows


@pytest.mark.parametrize(
    ("per_step", "steps", "slope", "first"),
    [
        (lambda s: [1], 7, 1000, 2),
        (lambda s: [1], 40, 1000, 2),
        (lambda s: [1, 1, 1, -1], 20, 2000, 2),
        (lambda s: [1] if s % 3 == 0 else [], 30, 1000 / 3, 2),
        (lambda s: [1] if s >= 40 else [], 60, 1000, 39),
        (lambda s: [1] * 50 if s == 0 else [1] if s > 5 else [], 30, 1000, 5),
        (lambda s: [1], 500, 1000, 2),
    ],
    ids=["short", "each", "net of frees", "every third", "late", "over a base", "long"],
)
def test_leaks_are_found(per_step, steps, slope, first):
    (row,) = growth_of(per_step, steps)
    assert row["low"] <= row["bytes_per_step"] <= row["high"]
    assert row["low"] > 0
    assert row["bytes_per_step"] == pytest.approx(slope, rel=0.1)
    assert abs(row["first_step"] - first) <= 2
    assert row["survivors"] * 1000 == row["bytes_at_end"]


@pytest.mark.parametrize(
    ("per_step", "steps"),
    [
        (lambda s: [1, -1], 30),
        (lambda s: [1] * 20 if s == 0 else [], 30),
        (lambda s: [1] if s < 2 else [], 30),
        (lambda s: [1] if s < 10 else [1, -1], 30),
        (lambda s: [1] if s < 25 else [], 30),
        (lambda s: [1] if s % 10 else [-1] * 9, 30),
        (lambda s: [1] if s % 10 else [-1] * 9, 38),
        (lambda s: [1] if s >= 57 else [], 60),
        (lambda s: [1], 6),
        (lambda s: [-1] if s else [1] * 40, 30),
        (lambda s: [1, 1, -1] if s % 2 else [-1], 30),
        (lambda s: [1] if (s & (s - 1)) == 0 else [], 120),
    ],
    ids=[
        "replaced",
        "optimizer state at the first step",
        "warm-up",
        "cache with a cap",
        "cache that filled late",
        "sawtooth",
        "sawtooth, last tooth rising",
        "too late to tell",
        "too few steps",
        "shrinks",
        "swings",
        "slows down",
    ],
)
def test_what_does_not_grow_is_silent(per_step, steps):
    assert len(growth_of(per_step, steps)) == 0


def test_one_block_that_gets_larger_is_growth():
    builder = Builder(stop_ns=2000)
    site = builder.stack(SITE)
    for step in range(20):
        builder.step(step, step * 100, step * 100 + 100)
        builder.alloc(step * 100 + 1, 10 + step, 100 * (step + 1), stack_id=site)
        if step:
            builder.free(step * 100 + 2, 9 + step)
    (row,) = builder.build().growth()
    assert row["bytes_per_step"] == 100
    assert row["survivors"] == 1


def test_noise_rarely_looks_like_growth():
    rng = np.random.default_rng(0)
    alarms = 0
    for _ in range(60):
        counts = rng.integers(1, 20, 40)
        alarms += len(growth_of(lambda s, n=counts: [-1] * 20 + [1] * int(n[s]), 40))
    assert alarms == 0


def test_growth_steps_missing():
    builder = Builder()
    for step in range(3):
        builder.step(step, step, step + 1)
    assert builder.build().growth_steps_missing == 4
