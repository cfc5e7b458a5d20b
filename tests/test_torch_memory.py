"""CPU blocks against what the program itself knows: every size, address and byte."""

import gc
import os
import subprocess
import sys
import threading

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from memprof._collection import Collection


def record(function, **options):
    """Runs function() under a collection; its Recording and the function's result."""
    collection = Collection(**{"operators": False, **options})
    gc.collect()
    collection.start()
    try:
        result = function()
    except BaseException:
        collection.abandon()
        raise
    return collection.stop(), result


def storages(*tensors):
    """{address: bytes} of the storages behind tensors."""
    found = {}
    for tensor in tensors:
        storage = tensor.untyped_storage()
        if storage.nbytes():
            found[storage.data_ptr()] = storage.nbytes()
    return found


def alive(recording):
    blocks = recording.blocks
    blocks = blocks[(blocks["death_ns"] == -1) & (blocks["device_type"] == 0)]
    return {int(a): int(b) for a, b in zip(blocks["address"], blocks["bytes"], strict=True)}


def assert_balanced(recording):
    for device in recording._core.table("devices"):
        assert device["balanced"] == 1
        assert (
            device["start_bytes"] + device["allocated_bytes"] - device["freed_bytes"]
            == device["end_bytes"]
        )


def test_fifty_known_sizes_in_order():
    sizes = [1 + 7919 * i % 100_000 for i in range(50)]

    def program():
        return [torch.empty(n, dtype=torch.uint8) for n in sizes]

    recording, tensors = record(program)
    born = recording.allocations
    assert born["bytes"].tolist() == sizes
    assert born["address"].tolist() == [t.data_ptr() for t in tensors]
    assert (born["kind"] == 1).all() and (born["device_index"] == -1).all()
    assert born["allocated_bytes"].tolist() == np.cumsum(sizes).tolist()
    assert alive(recording) == storages(*tensors)
    assert_balanced(recording)
    assert recording.peak("cpu").allocated_bytes == sum(sizes)


def test_views_resizes_and_deaths():
    def program():
        tensors = [torch.empty(1000 + i, dtype=torch.uint8) for i in range(30)]
        views = [t[:10] for t in tensors]
        for t in tensors:
            t.add_(1).zero_()
        del tensors[10:20], views
        tensors[0].resize_(3 << 20)
        tensors[1].resize_(5)
        tensors[2].untyped_storage().resize_(0)
        array = tensors[3].numpy()
        del tensors[3]
        outside = torch.from_numpy(np.zeros(1000))
        return tensors, array, outside

    recording, (tensors, array, _) = record(program)
    expected = storages(*tensors)
    expected[array.ctypes.data] = array.nbytes
    assert alive(recording) == expected
    assert_balanced(recording)


def test_training_leaves_what_model_and_optimizer_hold():
    def program():
        net = torch.nn.Sequential(
            torch.nn.Linear(64, 128), torch.nn.GELU(), torch.nn.Linear(128, 10)
        )
        optimizer = torch.optim.Adam(net.parameters())
        for _ in range(3):
            loss = torch.nn.functional.cross_entropy(
                net(torch.randn(32, 64)), torch.randint(0, 10, (32,))
            )
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        return net, optimizer, loss

    recording, (net, optimizer, loss) = record(program)
    state = [v for s in optimizer.state.values() for v in s.values() if torch.is_tensor(v)]
    grads = [p.grad for p in net.parameters()]
    assert alive(recording) == storages(*net.parameters(), *grads, *state, loss)
    assert_balanced(recording)


def test_older_blocks_that_die_are_counted_and_change_nothing():
    old = [torch.empty(1000 + i) for i in range(20)]

    def program():
        del old[:15]
        return torch.empty(77)

    recording, kept = record(program)
    assert alive(recording) == storages(kept)
    device = recording._core.table("devices")[0]
    assert device["unknown_frees"] == 15
    assert_balanced(recording)


def test_threads_allocate_and_free_for_each_other():
    lists = [[] for _ in range(4)]

    def fill(i):
        for n in range(200):
            lists[i].append(torch.empty(100 + i + n, dtype=torch.uint8))

    def run(function, arguments):
        threads = [threading.Thread(target=function, args=(a,)) for a in arguments]
        for t in threads:
            t.start()
        for t in threads:
            t.join()

    def program():
        run(fill, range(4))
        run(lambda i: lists[i].clear(), range(3))

    recording, _ = record(program)
    assert alive(recording) == storages(*lists[3])
    # The four that allocate live at once; the three that free may take over ended ones' logs.
    births = recording.allocations[recording.allocations["kind"] == 1]
    by_thread = np.unique(births["thread"], return_counts=True)[1]
    assert by_thread.sum() == 800
    assert_balanced(recording)


def test_backward_in_another_thread_and_interop_threads():
    net = torch.nn.Linear(64, 64)

    @torch.jit.script
    def forked(x: torch.Tensor) -> torch.Tensor:
        future = torch.jit.fork(torch.sin, x)
        return torch.jit.wait(future) + x

    def program():
        loss = net(torch.randn(8, 64)).sum()
        thread = threading.Thread(target=loss.backward)
        thread.start()
        thread.join()
        del loss
        return forked(torch.randn(100, 100))

    recording, result = record(program)
    assert alive(recording) == storages(result, *[p.grad for p in net.parameters()])
    assert_balanced(recording)


def test_mapped_files_and_shared_memory(tmp_path):
    path = tmp_path / "x.pt"
    torch.save(torch.arange(10_000), path)

    def program():
        loaded = torch.load(path, mmap=True)
        shared = torch.ones(5000)
        shared.share_memory_()
        return loaded, shared

    recording, (loaded, shared) = record(program)
    blocks = recording.blocks
    mapped = blocks[(blocks["flags"] & 4) != 0]
    assert len(mapped) == 2 and (mapped["death_ns"] == -1).all()
    for tensor in (loaded, shared):
        start = tensor.untyped_storage().data_ptr()
        inside = (mapped["address"] <= start) & (start < mapped["address"] + mapped["bytes"])
        assert inside.sum() == 1
    assert_balanced(recording)


def test_failed_allocation_is_reported():
    def program():
        with pytest.raises(RuntimeError):
            torch.empty(1 << 56, dtype=torch.uint8)

    recording, _ = record(program)
    failures = recording.allocations[recording.allocations["kind"] == 3]
    assert failures["bytes"].tolist() == [1 << 56]
    assert alive(recording) == {}


def line_of(recording, row):
    frame = recording.stacks[int(row["stack_id"])][0]
    return os.path.basename(frame.file), frame.line, frame.function


def test_each_allocation_names_its_line():
    def helper():
        return torch.empty(222, dtype=torch.uint8)  # helper's line

    def program():
        a = torch.empty(111, dtype=torch.uint8)  # first line
        b = helper()
        c = [torch.empty(333, dtype=torch.uint8) for _ in range(2)]
        return a, b, c

    recording, _ = record(program)
    start = program.__code__.co_firstlineno
    lines = {int(r["bytes"]): line_of(recording, r) for r in recording.allocations}
    here = os.path.basename(__file__)
    assert lines[111][:2] == (here, start + 1)
    assert lines[222][:2] == (here, helper.__code__.co_firstlineno + 1)
    assert lines[222][2].endswith("helper")
    assert lines[333][:2] == (here, start + 3)


def test_allocators_are_left_as_they_were():
    def program():
        return torch.empty(10)

    for _ in range(3):
        record(program)
    recording, _ = record(lambda: None)
    assert len(recording.allocations) == 0
    assert recording.coverage["slots_left_in_place"] == 0


def test_150_cycles_under_allocating_threads():
    stop = threading.Event()

    def churn():
        while not stop.is_set():
            kept = [torch.empty(64) for _ in range(10)]
            del kept

    threads = [threading.Thread(target=churn) for _ in range(3)]
    for t in threads:
        t.start()
    try:
        for _ in range(150):
            collection = Collection(operators=True, max_bytes=8 << 20)
            collection.start()
            collection.stop()
    finally:
        stop.set()
        for t in threads:
            t.join()


def test_second_collection_is_refused_and_the_first_goes_on():
    first = Collection(operators=False)
    first.start()
    try:
        with pytest.raises(RuntimeError, match="another memprof session"):
            Collection(operators=False).start()
        kept = torch.empty(99, dtype=torch.uint8)
    finally:
        recording = first.stop()
    assert alive(recording) == storages(kept)


def test_beside_torch_profiler():
    from torch.profiler import ProfilerActivity, profile

    def program():
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as prof:
            kept = torch.randn(64, 64) @ torch.randn(64, 64)
        return kept, prof

    recording, (kept, prof) = record(program, operators=True)
    assert alive(recording).items() >= storages(kept).items()
    names = {event.name for event in prof.events()}
    assert {"aten::matmul", "aten::mm"} <= names


FORK = """
import os, sys, torch
from memprof._collection import Collection
collection = Collection()
collection.start()
kept = torch.empty(50)
child = os.fork()
if child == 0:
    x = torch.randn(100, 100) @ torch.randn(100, 100)
    assert not collection.active
    own = Collection(operators=False)
    own.start()
    mine = torch.empty(123, dtype=torch.uint8)
    recording = own.stop()
    os._exit(0 if 123 in recording.allocations["bytes"] else 3)
_, status = os.waitpid(child, 0)
recording = collection.stop()
assert 200 in recording.allocations["bytes"]
sys.exit(os.waitstatus_to_exitcode(status))
"""


def test_fork_switches_the_child_off_and_lets_it_record_anew(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", FORK], capture_output=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()


LEFT_ON = """
import torch
from memprof._collection import Collection
collection = Collection()
collection.start()
x = [torch.empty(1000) for _ in range(1000)]
"""


def test_hooks_left_on_at_exit(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", LEFT_ON], capture_output=True, cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""


def test_limit_stops_at_one_instant_and_says_so():
    def program():
        for _ in range(200_000):
            torch.empty(1)

    recording, _ = record(program, max_bytes=4 << 20)
    coverage = recording.coverage
    assert coverage["stopped_at_limit"]
    assert coverage["losses"]["events_at_limit"] > 0
    assert_balanced(recording)
    assert recording._core.stop_ns >= recording.allocations["time_ns"].max()


def test_ring_keeps_the_last_whole_steps():
    collection = Collection(operators=False, max_bytes=4 << 20, ring=True)
    collection.start()
    for step in range(100):
        collection.mark_step(step)
        for _ in range(2000):
            torch.empty(1)
    recording = collection.stop()
    numbers = recording.steps["number"].tolist()
    assert numbers[-1] == 99 and numbers == list(range(numbers[0], 100))
    assert 2 < len(numbers) < 100
    born = recording.allocations[recording.allocations["kind"] == 1]
    for step in recording.steps[:-1]:
        inside = (born["time_ns"] >= step["start_ns"]) & (born["time_ns"] < step["end_ns"])
        assert inside.sum() == 2000
    assert recording.coverage["losses"]["events_overwritten"] > 0
