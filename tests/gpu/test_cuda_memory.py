"""CUDA blocks on a real device against torch.cuda.memory_stats(), to the byte. Each case
runs in a process of its own, since allocator settings are fixed at first use."""

import json
import os
import subprocess
import sys

import pytest

torch = pytest.importorskip("torch")

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device here"),
]

PROLOGUE = """
import gc, json, threading, torch, memprof
from memprof._collection import Collection

def stats():
    s = torch.cuda.memory_stats()
    return {k: s[f"{k}.all.current"] for k in ("allocated_bytes", "reserved_bytes")}

def finish(collection, **facts):
    end = stats()
    recording = collection.stop()
    rows = recording.allocations
    rows = rows[(rows["device_type"] == 1) & (rows["kind"] < 3)]
    blocks = recording.blocks
    live = blocks[(blocks["device_type"] == 1) & (blocks["death_ns"] == -1)]
    device = recording._core.table("devices")
    device = device[device["device_type"] == 1]
    print(json.dumps({
        "sum": int(rows["bytes"].sum()), "rows": len(rows), "live": int(live["bytes"].sum()),
        "last_total": int(rows["allocated_bytes"][-1]) if len(rows) else None,
        "last_reserved": int(rows["reserved_bytes"][-1]) if len(rows) else None,
        "end": end["allocated_bytes"], "reserved": end["reserved_bytes"],
        "balanced": bool(device["balanced"].all()), "flags": device["flags"].tolist(),
        "start_bytes": int(device["start_bytes"][0]) if len(device) else 0,
        "peak": int(device["peak_bytes"][0]) if len(device) else 0,
        "cuda": recording.coverage["sources"]["cuda memory"],
        "preexisting": int(live["preexisting"].sum()),
        "oom": [int(r["bytes"]) for r in recording.allocations if r["kind"] == 3],
        "threads": len(set(rows["thread"].tolist())),
        "no_stack": int(((rows["kind"] == 1) & (rows["stack_id"] == 0)).sum()),
        "blocks_without_line": int((blocks[blocks["device_type"] == 1]["stack_id"] == 0).sum()),
        "forward_lines": int((blocks["flags"] & 1 != 0).sum()),
        **facts}))
"""

TRAIN = """
torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(512, 1024), torch.nn.GELU(), torch.nn.Linear(1024, 512)).cuda()
optimizer = torch.optim.AdamW(net.parameters())
x = torch.randn(256, 512, device="cuda")
def step():
    loss = net(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
step(); torch.cuda.synchronize()
"""


def run(body, **environment):
    done = subprocess.run(
        [sys.executable, "-c", PROLOGUE + body],
        capture_output=True,
        check=False,
        text=True,
        timeout=300,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.strip().splitlines()[-1])


def assert_equal_to_stats(facts):
    assert facts["cuda"]["on"], facts["cuda"]
    assert facts["rows"] > 0
    assert facts["start_bytes"] + facts["sum"] == facts["end"]
    assert facts["last_total"] == facts["end"]
    assert facts["live"] == facts["end"]
    assert facts["balanced"] and facts["flags"] == [0]


@pytest.mark.parametrize("operators", [False, True])
@pytest.mark.parametrize("settings", ["", "expandable_segments:True"])
def test_training_equals_the_allocators_statistics(settings, operators):
    facts = run(
        TRAIN
        + f"""
start = stats()
torch.cuda.reset_peak_memory_stats()
collection = Collection(operators={operators}, shapes={operators})
collection.start()
for _ in range(20):
    step()
torch.cuda.synchronize()
finish(collection, expected_start=start["allocated_bytes"],
       expected_peak=torch.cuda.max_memory_allocated())
""",
        PYTORCH_CUDA_ALLOC_CONF=settings,
    )
    assert_equal_to_stats(facts)
    assert facts["start_bytes"] == facts["expected_start"]
    assert facts["peak"] == facts["expected_peak"]
    assert facts["last_reserved"] == facts["reserved"]
    assert facts["preexisting"] > 0
    assert facts["forward_lines"] > 0


def test_started_before_the_first_use_of_cuda():
    facts = run(
        """
collection = Collection(operators=False)
collection.start()
"""
        + TRAIN
        + """
for _ in range(5):
    step()
torch.cuda.synchronize()
finish(collection)
"""
    )
    assert_equal_to_stats(facts)
    assert facts["start_bytes"] == 0 and facts["no_stack"] < facts["rows"]


def test_graph_capture_and_replay():
    facts = run(
        TRAIN
        + """
static = torch.randn(256, 512, device="cuda")
with torch.no_grad():
    for _ in range(3):
        net(static)
torch.cuda.synchronize()
collection = Collection(operators=False)
collection.start()
graph = torch.cuda.CUDAGraph()
with torch.no_grad(), torch.cuda.graph(graph):
    out = net(static)
events = None
for _ in range(10):
    graph.replay()
torch.cuda.synchronize()
finish(collection)
"""
    )
    assert_equal_to_stats(facts)


def test_threads_allocate_and_free_on_the_device():
    facts = run(
        """
torch.zeros(1, device="cuda")
collection = Collection(operators=True)
collection.start()
kept = [[] for _ in range(4)]
def work(i):
    for n in range(300):
        kept[i].append(torch.empty(1000 + n, device="cuda"))
        if n % 3 == 0:
            kept[i].pop()
threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
for t in threads: t.start()
for t in threads: t.join()
finish(collection)
"""
    )
    assert_equal_to_stats(facts)
    assert facts["threads"] == 4


def test_out_of_memory_is_reported():
    facts = run(
        """
torch.zeros(1, device="cuda")
collection = Collection(operators=False)
collection.start()
try:
    torch.empty(1 << 50, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    pass
finish(collection)
"""
    )
    assert facts["oom"] == [1 << 50]
    assert facts["balanced"]


def test_async_allocator_says_that_it_reports_nothing():
    facts = run(
        """
torch.zeros(1, device="cuda")
collection = Collection(operators=False)
collection.start()
kept = torch.empty(1000, device="cuda")
finish(collection)
""",
        PYTORCH_CUDA_ALLOC_CONF="backend:cudaMallocAsync",
    )
    assert not facts["cuda"]["on"] and "cudaMallocAsync" in facts["cuda"]["reason"]


def test_profile_does_not_make_a_context():
    done = run(
        """
with memprof.profile() as prof:
    kept = torch.ones(10)
print(json.dumps({"initialized": torch.cuda.is_initialized()}))
"""
    )
    assert done == {"initialized": False}
