"""profile() and watch() with the real collection and torch."""

import os
import subprocess
import sys
import textwrap
import threading

import numpy as np
import pytest
import torch
import torch.profiler

import memprof
from memprof import ProfilerActivity

pytestmark = pytest.mark.filterwarnings("error")


def work():
    return torch.ones(64, 64) @ torch.ones(64, 64)


def operator_names(recording):
    names = {int(i) for i in recording.operators["name_id"]}
    return {recording.strings[i] for i in names}


def test_only_active_steps_are_in_the_recording():
    seen = []
    with memprof.profile(
        schedule=memprof.schedule(wait=1, warmup=1, active=2, repeat=2),
        on_trace_ready=lambda prof: seen.append(list(prof.recording.steps["number"])),
    ) as prof:
        for _ in range(10):
            work()
            prof.step()
    assert seen == [[2, 3], [6, 7]]


def test_each_listed_step_has_its_recording():
    prof = memprof.profile(schedule=[1, 4], acc_events=True)
    with prof:
        for _ in range(6):
            work()
            prof.step()
    assert [list(r.steps["number"]) for r in prof.recordings] == [[1], [4]]
    counts = [len(r.operators) for r in prof.recordings]
    assert counts[0] == counts[1] > 0


def test_threads_that_were_there_before():
    """D11: torch.profiler sees the starting thread only."""
    begin, ended = threading.Event(), threading.Event()

    def other():
        begin.wait(60)
        work()
        ended.set()

    thread = threading.Thread(target=other)
    thread.start()
    with memprof.profile() as prof:
        work()
        begin.set()
        assert ended.wait(60)
    thread.join()
    assert len(np.unique(prof.recording.operators["thread"])) == 2


def test_stop_from_another_thread_while_operators_run():
    prof = memprof.profile()
    prof.start()
    work()
    thread = threading.Thread(target=prof.stop)
    thread.start()
    while thread.is_alive():
        work()
    work()
    thread.join()
    assert len(prof.recording.operators)


def test_marks_for_compilers_are_put_back():
    assert not torch.autograd.profiler._is_profiler_enabled
    with memprof.profile(schedule=memprof.schedule(wait=1, warmup=0, active=1)) as prof:
        assert not torch.autograd.profiler._is_profiler_enabled
        prof.step()
        assert torch.autograd.profiler._is_profiler_enabled
    assert not torch.autograd.profiler._is_profiler_enabled


def test_nested_leaves_the_outer_untouched():
    with memprof.profile() as outer:
        work()
        with pytest.raises(RuntimeError, match="still recording"):
            memprof.profile().start()
        torch.ones(3).neg()
    assert {"aten::mm", "aten::neg"} <= operator_names(outer.recording)


def test_beside_torch_profiler():
    with torch.profiler.profile(activities=[ProfilerActivity.CPU]) as theirs:
        with memprof.profile() as ours:
            work()
        work()
    assert sum(event.name == "aten::mm" for event in theirs.events()) == 2
    assert "aten::mm" in operator_names(ours.recording)


def test_body_error_keeps_the_recording():
    prof = memprof.profile()
    with pytest.raises(ZeroDivisionError), prof:
        work()
        1 / 0  # noqa: B018
    assert "aten::mm" in operator_names(prof.recording)


def test_object_used_again():
    prof = memprof.profile(schedule=memprof.schedule(wait=0, warmup=1, active=1, repeat=1))
    for _ in range(2):
        with prof:
            for _ in range(3):
                work()
                prof.step()
        assert list(prof.recording.steps["number"]) == [1]


def test_own_frames_are_not_in_the_stacks():
    """D18"""
    with memprof.profile(schedule=[1]) as prof:
        for _ in range(3):
            work()
            prof.step()
    package = os.path.dirname(memprof.__file__)
    stacks = {int(i) for i in prof.recording.allocations["stack_id"]}
    files = {frame.file for i in stacks for frame in prof.recording.stacks[i]}
    assert __file__ in files
    assert not any(file.startswith(package) for file in files)


def test_options_and_metadata_are_in_the_header():
    prof = memprof.profile(record_shapes=True)
    prof.add_metadata("note", 'q"z')
    with prof:
        work()
    prof.add_metadata("late", "too")
    metadata = prof.recording.header["metadata"]
    assert metadata["note"] == 'q"z' and metadata["late"] == "too"
    assert prof.recording.header["trace_id"] == prof.get_trace_id()


def test_watch_finds_steps_by_the_optimizer():
    weight = torch.nn.Parameter(torch.ones(8))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    with memprof.watch(steps=100, max_memory="8 MiB") as watching:
        for _ in range(4):
            weight.sum().backward()
            optimizer.step()
            optimizer.zero_grad()
        first = watching.snapshot()
        work()
        second = watching.snapshot()
    assert list(first.steps["number"])[:4] == [0, 1, 2, 3]
    assert len(second.allocations) and not watching.active


def test_forked_child_goes_on_without_recording(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(FORKING)],
        capture_output=True,
        text=True,
        cwd=tmp_path,  # not this folder, whose memprof has no extension
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["child", "ready"]


FORKING = """
    import os, torch, memprof
    with memprof.profile(on_trace_ready=lambda prof: print("ready", flush=True)) as prof:
        torch.ones(3).neg()
        child = os.fork()
        if child == 0:
            torch.ones(3).neg()
            prof.stop()
            with memprof.profile() as mine:
                torch.ones(3).neg()
            print("child", flush=True)
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
"""


def test_torch_that_is_imported_while_recording(tmp_path):
    program = """
        import sys, memprof
        watching = memprof.watch()
        assert "torch" not in sys.modules
        import torch
        torch.ones(100).neg()
        print(len(watching.snapshot().allocations) > 0)
        watching.stop()
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        cwd=tmp_path,  # not this folder, whose memprof has no extension
        timeout=120,
        check=False,
    )
    assert done.stdout == "True\n", done.stderr
