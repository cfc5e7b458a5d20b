"""Log directories inside a real TensorBoard with torch-tb-profiler: started on loopback, asked
what its pages ask, compared with what the recordings hold."""

import gzip
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections import Counter

import numpy as np
import pytest
import synthetic
from recording_builder import CUDA, Builder
from synthetic import LOADER, MAIN, USER

import memprof

if not all(map(importlib.util.find_spec, ("tensorboard", "torch_tb_profiler"))):
    pytest.skip("tensorboard or torch-tb-profiler is not installed", allow_module_level=True)

SECONDS_TO_LOAD = 120
VIEWS = ["Overview", "Operator", "Trace", "Memory", "Module"]
GPU = {"id": 0, "name": "GPU", "totalGlobalMem": 1 << 33, "computeMajor": 9, "computeMinor": 0}


class TensorBoard:
    def __init__(self, port):
        self.base = f"http://127.0.0.1:{port}/data/plugin/pytorch_profiler/"

    def get(self, route, **query):
        url = self.base + route + "?" + urllib.parse.urlencode(query)
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with opener.open(url, timeout=60) as answer:
            body = answer.read()
        if body[:2] == b"\x1f\x8b":
            body = gzip.decompress(body)
        return json.loads(body, parse_constant=lambda name: pytest.fail(f"{name}: {url}"))

    def of(self, run, worker="w_1", span="1"):
        return lambda route, **query: self.get(
            route, run=run, worker=worker, span=span, **query
        )


# ---- the runs


def light():
    """Memory and steps, no operators: what `memprof run` records by default."""
    builder = Builder(stop_ns=10**7)
    builder.add("threads", os_id=MAIN, name_id=builder.string("python"))
    for number in range(3):
        start = 10**6 * (1 + 2 * number)
        builder.step(number, start, start + 10**6, thread=1)
        builder.alloc(start + 1000, 64 * (number + 1), 512, thread=1)
    return builder.build(synthetic.HEADER)


def without_steps():
    builder = Builder(stop_ns=10**7)
    builder.add("threads", os_id=MAIN, name_id=builder.string("python"))
    builder.operator("aten::empty", 1000, 900_000, thread=1)
    builder.alloc(2000, 64, 512, thread=1, operator_id=1)
    return builder.build(synthetic.HEADER)


def memory_only():
    builder = Builder(stop_ns=10**7)
    builder.add("threads", os_id=MAIN, name_id=builder.string("python"))
    builder.alloc(2000, 64, 512, thread=1)
    return builder.build(synthetic.HEADER)


def confusing():
    """Names that mean something to the plugin, in places where they should not."""
    builder = Builder(stop_ns=10**7)
    builder.add("threads", os_id=MAIN, name_id=builder.string('py\n"thon'))
    builder.operator("ProfilerStep#x", 1000, 500_000, scope=USER, thread=1)
    builder.operator('a "quoted\\" nam\u00e9\x01', 2000, 400_000, thread=1)
    builder.step(7, 500, 600_000, thread=1)
    return builder.build(synthetic.HEADER)


def real():
    """A few steps of a real model; None without torch."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.Linear(128, 8))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    data = torch.utils.data.DataLoader(torch.randn(64, 64), batch_size=16)
    with memprof.profile(
        schedule=memprof.schedule(wait=0, warmup=1, active=3),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    ) as prof:
        for batch in data:
            optimizer.zero_grad()
            model(batch).square().mean().backward()
            optimizer.step()
            prof.step()
    return prof.recording


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("log")
    cuda_header = {**synthetic.HEADER, "environment": {"pid": MAIN, "devices": [GPU]}}
    recordings = {
        "cpu": synthetic.training()[0],
        "cuda": synthetic.training(device=CUDA, header=cuda_header)[0],
        "light": light(),
        "no_steps": without_steps(),
        "memory_only": memory_only(),
        "confusing": confusing(),
    }
    if importlib.util.find_spec("torch") is not None:
        recordings["real"] = real()
    for name, recording in recordings.items():
        recording.export_tensorboard(folder / name, "w_1", use_gzip=name == "cuda")
    recordings["cpu"].export_tensorboard(folder / "cpu", "w_1")  # a second span
    return folder, recordings


@pytest.fixture(scope="module")
def board(runs, tmp_path_factory):
    folder, recordings = runs
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    log = tmp_path_factory.mktemp("server") / "log"
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(folder)]
    command += ["--host", "127.0.0.1", "--port", str(port), "--load_fast=false"]
    with open(log, "wb") as output:
        server = subprocess.Popen(
            command, stdout=output, stderr=output, env={**os.environ, "PYTHONPATH": ""}
        )
    try:
        board = TensorBoard(port)
        wait_until_loaded(board, server, len(recordings), log)
        yield board
    finally:
        server.terminate()
        server.wait(20)


def wait_until_loaded(board, server, count, log):
    limit = time.monotonic() + SECONDS_TO_LOAD
    while time.monotonic() < limit and server.poll() is None:
        try:
            answer = board.get("runs")
        except (urllib.error.URLError, ConnectionError):
            answer = {"runs": [], "loading": True}
        if len(answer["runs"]) == count and not answer["loading"]:
            return
        time.sleep(0.3)
    pytest.fail(f"TensorBoard did not load {count} runs:\n{log.read_text()[-4000:]}")


# ---- Overview


@pytest.mark.parametrize("run", ["cpu", "cuda"])
def test_views(board, run):
    assert board.get("views", run=run) == VIEWS
    assert board.get("workers", run=run, view="Overview") == ["w_1"]


def test_each_file_is_a_span(board):
    assert board.get("spans", run="cpu", worker="w_1") == ["1", "2"]
    assert board.of("cpu", span="2")("overview") == board.of("cpu")("overview")


@pytest.mark.parametrize("run", ["cpu", "cuda"])
def test_overview(board, run):
    _, wanted = synthetic.training()
    answer = board.of(run)("overview")
    columns = [column.get("name") for column in answer["steps"]["columns"]]
    rows = answer["steps"]["rows"]
    assert [row[0] for row in rows] == [str(number) for number in wanted.steps]
    loader = columns.index("DataLoader")
    assert [row[loader] for row in rows] == pytest.approx(
        [length / 1000 for length in wanted.loader_ns]
    )
    parts = [place for place, name in enumerate(columns) if place and name]
    totals = [sum(row[place] for place in parts) for row in rows]
    assert totals == pytest.approx([length / 1000 for length in wanted.step_ns], abs=0.003)
    (average,) = answer["performance"]
    assert average["value"] == int(np.mean(wanted.step_ns) / 1000)


# ---- Operator


def test_operators(board):
    _, wanted = synthetic.training()
    get = board.of("cpu")
    rows = {row["name"]: row for row in get("operation/table", group_by="Operation")["data"]}
    shown = {
        name: calls
        for name, calls in wanted.calls.items()
        if not name.startswith(("enumerate(", "Optimizer."))
    }
    assert {name: row["calls"] for name, row in rows.items()} == shown
    assert rows["aten::addmm"]["has_call_stack"] and rows["aten::add_"]["has_call_stack"]
    assert rows["aten::add_"]["host_total_duration"] == 3 * 32
    by_shape = get("operation/table", group_by="OperationAndInputShape")["data"]
    (multiply,) = (row for row in by_shape if row["name"] == "aten::addmm")
    assert multiply["input_shape"] == "[[64], [256, 64], [64, 64]]"


def test_call_stacks(board):
    rows = board.of("cpu")("operation/stack", group_by="Operation", op_name="aten::addmm")
    stacks = [row["call_stack"].split(";") for row in rows["data"]]
    assert {stack[0] for stack in stacks} == {
        "Net.fc1.py(12): forward",
        "Net.fc2.py(12): forward",
    }
    assert {stack[-1] for stack in stacks} == {"train.py(30): main"}
    assert sum(row["calls"] for row in rows["data"]) == 6


# ---- Memory


@pytest.mark.parametrize(("run", "device"), [("cpu", "CPU"), ("cuda", "GPU0")])
def test_memory(board, run, device):
    _, wanted = synthetic.training()
    get = board.of(run)
    stats = get("memory", memory_metric="B")["rows"][device]
    assert sum(row[7] for row in stats) == wanted.allocated
    assert sum(row[5] for row in stats) == wanted.memory_events // 2
    own = {row[0]: row[7] for row in stats}
    assert own["aten::addmm"] == 6 * 64 * 1024
    assert own["aten::mm"] == 6 * 32 * 1024
    curve = get("memory_curve", memory_metric="B", time_metric="us")
    assert max(point[1] for point in curve["rows"][device]) == wanted.peak
    assert curve["rows"][device][-1][1] == 0
    assert curve["metadata"]["peaks"][device] == f"Peak Memory Usage: {wanted.peak:.1f}B"
    events = get("memory_events", memory_metric="B", time_metric="us")["rows"][device]
    assert len(events) == wanted.memory_events // 2
    assert all(row[0] and row[2] is not None and row[3] is not None for row in events)
    assert sum(row[1] for row in events) == wanted.allocated


def test_memory_on_a_gpu_shows_what_is_reserved(board):
    curve = board.of("cuda")("memory_curve", memory_metric="B", time_metric="us")
    assert {point[2] for point in curve["rows"]["GPU0"]} == {float(2 << 20)}


# ---- Trace, Module


def test_trace(board, runs):
    folder, _ = runs
    for run in ("cpu", "cuda"):
        document = board.of(run)("trace")
        names = Counter(event["name"] for event in document["traceEvents"])
        assert names[LOADER] == 3 and names["[memory]"] == 30
        assert names["ProfilerStep#2"] == 1
    assert len(list((folder / "cpu").iterdir())) == 2


def test_modules(board):
    (net,) = board.of("cpu")("module")["data"]
    assert (net["name"], net["occurences"]) == ("Net_0", 3)
    assert [(c["name"], c["occurences"], c["operators"]) for c in net["children"]] == [
        ("Linear_0", 3, 3),
        ("Linear_1", 3, 3),
    ]


# ---- the unusual


@pytest.mark.parametrize("run", ["light", "no_steps", "memory_only", "confusing"])
def test_every_page_of_an_unusual_run_answers(board, run):
    get = board.of(run)
    assert get("overview")["performance"][0]["value"] > 0
    get("operation/table", group_by="Operation")
    get("tree")
    assert get("trace")["traceEvents"]
    if run != "confusing":
        curve = get("memory_curve", memory_metric="B", time_metric="us")
        assert max(point[1] for point in curve["rows"]["CPU"]) >= 512
        events = get("memory_events", memory_metric="B", time_metric="us")["rows"]["CPU"]
        assert len(events) == (3 if run == "light" else 1)


def test_steps_of_the_light_mode(board):
    rows = board.of("light")("overview")["steps"]["rows"]
    assert [row[0] for row in rows] == ["0", "1", "2"]


def test_confusing_names(board):
    get = board.of("confusing")
    assert [row[0] for row in get("overview")["steps"]["rows"]] == ["7"]
    names = {row["name"] for row in get("operation/table", group_by="Operation")["data"]}
    assert names == {"range ProfilerStep#x", 'a "quoted\\" nam\u00e9\x01'}


# ---- a real training


@pytest.fixture
def trained(board, runs):
    _, recordings = runs
    if "real" not in recordings:
        pytest.skip("torch is not installed")
    return board.of("real"), recordings["real"]


def test_real_operators(trained):
    get, recording = trained
    operators = recording.operators
    first = recording.steps["start_ns"].min()
    names = Counter()
    for row in operators[operators["start_ns"] >= first]:
        parent = operators[row["parent_id"] - 1] if row["parent_id"] else None
        if parent is None or parent["name_id"] != row["name_id"]:  # the plugin merges these
            names[recording.strings[row["name_id"]]] += 1
    for row in get("operation/table", group_by="Operation")["data"]:
        assert row["calls"] == names[row["name"]], row["name"]
        assert row["has_call_stack"], row["name"]
    assert sum(name.startswith("aten::") for name in names) > 10


def test_real_overview(trained):
    get, recording = trained
    answer = get("overview")
    columns = [column.get("name") for column in answer["steps"]["columns"]]
    rows = answer["steps"]["rows"]
    assert len(rows) == len(recording.steps) == 3
    lengths = (recording.steps["end_ns"] - recording.steps["start_ns"]) / 1000
    parts = [place for place, name in enumerate(columns) if place and name]
    assert [sum(row[p] for p in parts) for row in rows] == pytest.approx(lengths, abs=0.01)
    assert all(row[columns.index("DataLoader")] > 0 for row in rows)


def test_real_memory(trained):
    get, recording = trained
    events = recording.allocations
    window = events["time_ns"] >= recording.steps["start_ns"].min()
    births = events[window & (events["kind"] == 1)]
    rows = get("memory_events", memory_metric="B", time_metric="us")["rows"]["CPU"]
    assert sum(row[1] for row in rows if row[2] is not None) == births["bytes"].sum()
    curve = get("memory_curve", memory_metric="B", time_metric="us")["rows"]["CPU"]
    assert max(point[1] for point in curve) == events[window]["allocated_bytes"].max()


def test_real_modules(trained):
    get, _ = trained
    (root,) = get("module")["data"]
    assert (root["name"], root["occurences"]) == ("Sequential_0", 3)
    assert [child["name"] for child in root["children"]] == ["Linear_0", "Linear_1"]
    assert all(child["occurences"] == 3 for child in root["children"])
