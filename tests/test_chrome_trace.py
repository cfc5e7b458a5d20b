"""What a trace holds: parsed back by Python's json and checked against what readers need."""

import itertools
import json

import numpy as np
import pytest
import synthetic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from recording_builder import (
    BACKWARD,
    CPU,
    CUDA,
    FUNCTION,
    MODULE_CALL,
    OPTIMIZER_SPAN,
    USER_SPAN,
    Builder,
)
from synthetic import LOADER, MAIN, OPTIMIZER, USER
from trace_rules import bars, memory_events, ns, trace_of, written

from memprof import _core
from memprof.recording import Recording

DIALECTS = pytest.mark.parametrize("tensorboard", [False, True], ids=["kineto", "tensorboard"])
KNOWN = settings(
    deadline=None, max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def named(document, name):
    return [event for event in bars(document) if event["name"] == name]


# ---- a training run


@DIALECTS
@pytest.mark.parametrize("device", [CPU, CUDA], ids=["cpu", "cuda"])
def test_training_is_there_in_full(device, tensorboard):
    recording, wanted = synthetic.training(device=device)
    document = trace_of(recording, tensorboard=tensorboard)
    for name, calls in wanted.calls.items():
        assert len(named(document, name)) == calls
    steps = [event for event in bars(document) if event["name"].startswith("ProfilerStep#")]
    assert [event["name"] for event in steps] == [f"ProfilerStep#{n}" for n in wanted.steps]
    assert {event["tid"] for event in steps} == {MAIN}
    for event, length in zip(steps, wanted.step_ns, strict=True):
        assert length - 2 <= ns(event["dur"]) <= length
    events = memory_events(document)
    assert len(events) == wanted.memory_events
    assert sum(max(e["args"]["Bytes"], 0) for e in events) == wanted.allocated
    assert sum(min(e["args"]["Bytes"], 0) for e in events) == -wanted.freed
    assert max(e["args"]["Total Allocated"] for e in events) == wanted.peak


@DIALECTS
def test_ranges_of_the_user_are_what_the_reader_keeps(tensorboard):
    recording, wanted = synthetic.training()
    document = trace_of(recording, tensorboard=tensorboard)
    for name in (LOADER, OPTIMIZER):
        cats = {event["cat"] for event in named(document, name)}
        assert cats == {"cpu_op" if tensorboard else "user_annotation"}
    loader = named(document, LOADER)
    assert [ns(event["dur"]) for event in loader] == wanted.loader_ns


def test_operators_keep_their_measured_length():
    """Also within many Python functions, which are only rebuilt."""
    builder = Builder(stop_ns=10**6)
    thread = builder.thread()
    stack = builder.stack(*[(f"f{i}.py", i, "f") for i in range(60)])
    for i in range(3):
        start = 1000 + 1000 * i
        builder.operator(f"op{i}", start, start + 500, thread=thread, stack_id=stack)
    document = trace_of(builder.build())
    assert [ns(event["dur"]) for event in bars(document, "cpu_op")] == [500] * 3
    assert len(bars(document, "python_function")) == 60


def test_shapes_and_call_stacks():
    recording, _ = synthetic.training()
    document = trace_of(recording, call_stacks=True)
    (multiply, *_) = named(document, "aten::addmm")
    assert multiply["args"]["Input Dims"] == [[64], [256, 64], [64, 64]]
    assert multiply["args"]["Input type"] == ["float"] * 3
    assert multiply["args"]["Call stack"].split(";")[0] == "Net.fc1.py(12): forward"
    assert multiply["args"]["Call stack"].split(";")[-1] == "train.py(30): main"
    plain = trace_of(recording)
    assert "Call stack" not in named(plain, "aten::addmm")[0]["args"]


def test_flows_join_forward_and_backward():
    recording, wanted = synthetic.training()
    document = trace_of(recording)
    events = document["traceEvents"]
    ends = {"s": [], "f": []}
    for before, event in itertools.pairwise(events):
        if event["ph"] in ends:
            ends[event["ph"]].append(before["name"])
    assert ends["s"] == ["aten::addmm"] * 6
    assert ends["f"] == ["AddmmBackward0"] * 6
    assert len(ends["s"]) == wanted.calls["AddmmBackward0"]


def test_modules_are_a_tree():
    recording, _ = synthetic.training()
    document = trace_of(recording)
    functions = {e["args"]["Python id"]: e for e in bars(document, "python_function")}
    modules = [e for e in functions.values() if "Python module id" in e["args"]]
    assert {e["name"] for e in modules} == {
        "nn.Module: Net_0",
        "nn.Module: Linear_0",
        "nn.Module: Linear_1",
    }
    for event in modules:
        above = functions.get(event["args"]["Python parent id"])
        while above is not None and above not in modules:
            above = functions.get(above["args"]["Python parent id"])
        inner = event["name"] != "nn.Module: Net_0"
        assert (above["name"] if above else None) == ("nn.Module: Net_0" if inner else None)


@pytest.mark.parametrize(
    ("file", "shown"),
    [
        ("/v/lib/python3.11/site-packages/torch/nn/linear.py", "torch/nn/linear.py"),
        ("/usr/lib/python3/dist-packages/numpy/core.py", "numpy/core.py"),
        ("/usr/lib/python3.12/threading.py", "threading.py"),
        ("/home/me/train.py", "/home/me/train.py"),
        ("/lib/python3.", "/lib/python3."),
    ],
)
def test_files_of_libraries_are_named_from_their_library(file, shown):
    builder = Builder()
    thread = builder.thread()
    stack = builder.stack((file, 7, "f"))
    builder.operator("op", 10, 20, thread=thread, stack_id=stack)
    document = trace_of(builder.build(), call_stacks=True)
    (function,) = bars(document, "python_function")
    assert function["name"] == f"{shown}(7): f"
    assert named(document, "op")[0]["args"]["Call stack"] == f"{file}(7): f"


def test_functions_can_be_left_out():
    recording, _ = synthetic.training()
    document = trace_of(recording, python_functions=False)
    assert not bars(document, "python_function")
    assert document["memprof"]["python_functions"] == "off"


def test_the_same_recording_gives_the_same_bytes():
    recording, _ = synthetic.training()
    assert written(recording) == written(recording)


# ---- odd recordings


@DIALECTS
def test_an_empty_recording_is_a_trace(tensorboard):
    (bar,) = bars(trace_of(Builder().build(), tensorboard=tensorboard))
    assert bar["cat"] == "cpu_op" and bar["dur"] > 0
    trace_of(Builder(5, 5, 5).build(), tensorboard=tensorboard)


@DIALECTS
def test_memory_alone_is_a_trace(tensorboard):
    builder = Builder()
    thread = builder.thread()
    builder.alloc(10, 1, 100, thread=thread)
    builder.free(20, 1, 100, thread=thread)
    document = trace_of(builder.build(), tensorboard=tensorboard)
    assert len(memory_events(document)) == 2
    (bar,) = bars(document)
    assert bar["tid"] == memory_events(document)[0]["tid"]


def test_only_the_window_is_written():
    builder = Builder(0, 1000, 2000)
    thread = builder.thread()
    for start, end in ((100, 200), (900, 1500), (1100, 1200), (1900, 2500), (2100, 2200)):
        builder.operator(f"op{start}", start, end, thread=thread)
    for number, start in enumerate((0, 500, 1600, 2100)):
        builder.step(number, start, start + 400 if number else 400, thread=thread)
    builder.rows["steps"][1]["end_ns"] = 1600
    for time in (500, 1500, 2500):
        builder.alloc(time, time, 100, thread=thread)
    document = trace_of(builder.build())
    assert [event["name"] for event in bars(document, "cpu_op")] == ["op1100", "op1900"]
    assert [event["name"] for event in bars(document, "user_annotation")] == [
        "ProfilerStep#1",
        "ProfilerStep#2",
    ]
    assert len(memory_events(document)) == 1
    low = min(event["ts"] for event in bars(document))
    high = max(event["ts"] + event["dur"] for event in bars(document))
    assert 1.0 <= low and high <= 2.0


def test_frees_of_unknown_size_are_left_out():
    builder = Builder()
    builder.free(10, 77, 0, thread=builder.thread())
    assert not memory_events(trace_of(builder.build()))


def test_other_devices_are_left_out_for_tensorboard():
    builder = Builder()
    builder.alloc(10, 77, 100, device=(13, 0), thread=builder.thread())
    recording = builder.build()
    assert not memory_events(trace_of(recording, tensorboard=True))
    assert len(memory_events(trace_of(recording))) == 1
    counters = [e for e in trace_of(recording)["traceEvents"] if e["ph"] == "C"]
    assert {event["name"] for event in counters} == {"Memory mps:0"}


@DIALECTS
@pytest.mark.parametrize("name", ["ProfilerStep#3", "ProfilerStep#x", "ProfilerStep"])
def test_ranges_of_the_user_are_no_steps(name, tensorboard):
    builder = Builder()
    thread = builder.thread()
    builder.operator(name, 10, 20, scope=USER, thread=thread)
    builder.add(
        "spans",
        name_id=builder.string(name),
        start_ns=30,
        end_ns=40,
        thread=thread,
        kind=USER_SPAN,
    )
    found = [
        event["name"] for event in bars(trace_of(builder.build(), tensorboard=tensorboard))
    ]
    assert found == ["memprof: recording", *[f"range {name}"] * 2]


def test_an_optimizers_span_shows_where_operators_do_not():
    for scope in (None, USER):
        builder = Builder()
        thread = builder.thread()
        name = builder.string(OPTIMIZER)
        builder.add(
            "spans", name_id=name, start_ns=30, end_ns=40, thread=thread, kind=OPTIMIZER_SPAN
        )
        if scope is not None:
            builder.operator(OPTIMIZER, 31, 39, scope=scope, thread=thread)
        assert len(named(trace_of(builder.build(), tensorboard=True), OPTIMIZER)) == 1


def test_shapes_of_communication_are_never_nested():
    builder = Builder()
    thread = builder.thread()
    header = synthetic.TENSOR | synthetic.FLOAT << 8 | 1 << 16
    builder.rows["shape_offsets"] += [0, 0, 3]
    builder.rows["shape_values"] += [synthetic.TENSOR_LIST | 1 << 16, header, 5]
    for name in ("nccl:all_reduce", "aten::cat"):
        builder.operator(name, 10, 20, thread=thread, shapes_id=1)
    reduce, cat = bars(trace_of(builder.build()), "cpu_op")
    assert "Input Dims" not in reduce["args"] and "Input type" not in reduce["args"]
    assert cat["args"]["Input Dims"] == [[[5]]]
    assert cat["args"]["Input type"] == ["TensorList"]


def test_threads_with_one_kernel_id_share_a_track():
    builder = Builder()
    first, second = builder.thread(name="a"), builder.thread(name="b")
    builder.operator("outer", 0, 1000, thread=first)
    builder.operator("overlaps", 500, 1500, thread=second)
    builder.operator("later", 2000, 2500, thread=second)
    trace_of(builder.build())


def test_too_deep_bars_are_counted():
    builder = Builder()
    thread = builder.thread()
    for depth in range(600):
        builder.operator("op", depth, 2000 - depth, thread=thread)
    recording = builder.build()
    assert len(bars(trace_of(recording), "cpu_op")) == 512
    counts = _core.write_chrome_trace(recording._core, lambda chunk: None)
    assert counts["dropped_slices"] == 88


# ---- counters


def counters_of(document, name):
    return [e for e in document["traceEvents"] if e["ph"] == "C" and e["name"] == name]


@pytest.mark.parametrize("most", [1, 5, 50, 400, 10**6])
def test_counters_are_thinned_and_keep_the_peaks(most):
    builder = Builder(stop_ns=10**6)
    thread = builder.thread()
    generator = np.random.default_rng(most)
    live, peaks, reserved = 0, [0], []
    for address in range(1, 1001):
        size = int(generator.integers(1, 10**6))
        live += size
        peaks.append(live)
        reserved.append(int(generator.integers(10**6, 10**9)))
        builder.alloc(
            address * 100,
            address,
            size,
            device=CUDA,
            thread=thread,
            allocated_bytes=live,
            reserved_bytes=reserved[-1],
        )
        if address % 3:
            live -= size
            builder.free(
                address * 100 + 50,
                address,
                size,
                device=CUDA,
                thread=thread,
                allocated_bytes=live,
                reserved_bytes=reserved[-1],
            )
    found = counters_of(trace_of(builder.build(), counter_points=most), "Memory cuda:0")
    assert len(found) <= max(most, 5)
    assert max(event["args"]["allocated"] for event in found) == max(peaks)
    assert max(event["args"].get("reserved", 0) for event in found) == max(reserved)
    assert found[0]["ts"] == 0.0 and found[-1]["ts"] == 1000.0
    assert found[-1]["args"]["allocated"] == live
    assert [event["ts"] for event in found] == sorted(event["ts"] for event in found)


def test_counters_can_be_left_out():
    recording, _ = synthetic.training()
    document = trace_of(recording, counter_points=0)
    assert not [event for event in document["traceEvents"] if event["ph"] == "C"]


# ---- texts

HOSTILE = st.text(
    st.one_of(
        st.characters(exclude_categories=["Cs"]),
        st.sampled_from('\0\x01\x1f\x7f"\\/\n\r\t]}\u2028\ufeff\U0001f600'),
    ),
    max_size=40,
)


@KNOWN
@given(name=HOSTILE, file=HOSTILE, function=HOSTILE, thread=HOSTILE, cls=HOSTILE)
def test_texts_come_back_as_they_were(name, file, function, thread, cls):
    builder = Builder()
    builder.add("threads", os_id=7, name_id=builder.string(thread))
    module = builder.add(
        "modules", path_id=builder.string(cls + "x"), class_id=builder.string(cls)
    )
    stack = builder.stack(
        (file, 12, function), ("m.py", 1, "__call__", MODULE_CALL), module_id=module
    )
    builder.operator(name, 100, 200, thread=1, stack_id=stack)
    document = trace_of(builder.build(), call_stacks=True)
    (operator,) = bars(document, "cpu_op")
    expected = f"range {name}" if name.startswith("ProfilerStep") else name
    assert operator["name"] == expected
    assert operator["args"]["Call stack"] == f"{file}(12): {function};m.py(1): __call__"
    outer, inner = bars(document, "python_function")
    assert outer["name"] == f"nn.Module: {cls}_0"
    assert outer["args"]["Module path"] == cls + "x"
    assert inner["name"] == f"{file}(12): {function}"
    (meta,) = [e for e in document["traceEvents"] if e["name"] == "thread_name"]
    assert meta["args"]["name"] == f"thread 7 ({thread})"


@KNOWN
@given(st.binary(max_size=60))
def test_bytes_that_are_no_text_are_replaced(name):
    builder = Builder()
    thread = builder.thread(name="")
    builder.operator("x", 100, 200, thread=thread)
    tables = builder.tables()
    tables["string_offsets"] = np.array([0, 0, len(name)], "u8")
    tables["string_bytes"] = np.frombuffer(name, "u1")
    core = _core.Recording.from_tables(tables, **builder.times, analyse=True)
    (operator,) = bars(trace_of(Recording(core)), "cpu_op")
    if not name.startswith(b"ProfilerStep"):
        assert operator["name"].encode().replace("\ufffd".encode(), b"") in (
            name.decode(errors="ignore").encode().replace("\ufffd".encode(), b""),
        )


def test_metadata_goes_through():
    values = {
        "a key": {"deep": [1, None, 'é\n"\\']},
        "traceEvents": "dropped",
        "nested": {"traceEvents": [1]},
        "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 4},
        "lone": "\ud800",
    }
    recording, _ = synthetic.training(header={**synthetic.HEADER, "metadata": values})
    text = written(recording)
    document = trace_of(recording)
    for key, value in values.items():
        if key != "traceEvents":
            assert document[key] == value
    assert b'"rank": 3' in text[: text.index(b"a key")]


def test_device_properties_cover_every_device():
    header = {"environment": {"devices": [{"id": 0, "name": "A", "totalGlobalMem": 1}]}}
    builder = Builder()
    builder.alloc(10, 1, 100, device=(1, 2), thread=builder.thread())
    document = trace_of(builder.build(header))
    assert [device["id"] for device in document["deviceProperties"]] == [0, 1, 2]


def test_a_bracket_in_the_path_is_no_end_of_the_events(tmp_path):
    recording, _ = synthetic.training()
    path = tmp_path / 'run[1] é".json'
    recording.export_chrome_trace(path)
    text = path.read_text()
    assert json.loads(text)["traceName"] == str(path)
    assert "]" not in text[text.rindex('"traceName"') :]


# ---- any recording

TIMES = st.integers(0, 3000)


@st.composite
def recordings(draw):
    builder = Builder(0, 500, 2500)
    threads = [
        builder.add("threads", os_id=draw(st.integers(0, 2)), name_id=builder.string("t"))
        for _ in range(draw(st.integers(1, 3)))
    ]
    modules = [builder.module("root")]
    modules += [builder.module(f"root.{i}", draw(st.sampled_from(modules))) for i in range(2)]
    frames = [
        (f"{file}.py", 1, f"f{file}", draw(st.sampled_from([0, MODULE_CALL])))
        for file in range(4)
    ]
    stacks = [
        builder.stack(
            *draw(st.lists(st.sampled_from(frames), max_size=5)),
            module_id=draw(st.sampled_from([0, *modules])),
        )
        for _ in range(4)
    ]
    intervals = st.tuples(TIMES, TIMES).map(sorted)
    for start, end in sorted(draw(st.lists(intervals, max_size=25))):
        builder.operator(
            draw(st.sampled_from(["a", "b", "ProfilerStep#1"])),
            start,
            end,
            scope=draw(st.sampled_from([FUNCTION, BACKWARD, USER])),
            sequence=draw(st.integers(-1, 3)),
            thread=draw(st.sampled_from([0, *threads])),
            stack_id=draw(st.sampled_from([0, *stacks])),
        )
    borders = sorted(draw(st.lists(TIMES, max_size=8)))
    for number, (start, end) in enumerate(zip(borders[::2], borders[1::2], strict=False)):
        builder.step(number, start, end, thread=threads[0])
    for start, end in sorted(draw(st.lists(intervals, max_size=5))):
        builder.add(
            "spans",
            name_id=builder.string("span"),
            start_ns=start,
            end_ns=end,
            thread=draw(st.sampled_from(threads)),
            kind=draw(st.sampled_from([USER_SPAN, OPTIMIZER_SPAN])),
        )
    for time in sorted(draw(st.lists(TIMES, max_size=20))):
        add = draw(st.sampled_from([builder.alloc, builder.free]))
        add(
            time,
            draw(st.integers(1, 4)),
            draw(st.integers(0, 100)),
            device=draw(st.sampled_from([CPU, CUDA])),
            thread=draw(st.sampled_from([0, *threads])),
            stack_id=draw(st.sampled_from([0, *stacks])),
        )
    return builder.build()


@DIALECTS
@settings(deadline=None, max_examples=150)
@given(recording=recordings())
def test_every_recording_is_a_good_trace(recording, tensorboard):
    document = trace_of(recording, tensorboard=tensorboard, call_stacks=tensorboard)
    operators = recording.operators
    shown = (operators["start_ns"] >= 500) & (operators["start_ns"] <= 2500)
    ours = [event for event in bars(document) if "Fwd thread id" in event["args"]]
    assert len(ours) == int((shown & (operators["sequence"] >= 0)).sum())
