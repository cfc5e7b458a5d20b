"""Whole-step cost: ratio to the bare step, each configuration interleaved with it.

    python -m benchmarks.steps [--device cuda] [--rounds 15] [--workload launch-bound]
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from benchmarks.workloads import WORKLOADS
from memprof._collection import Collection


@contextlib.contextmanager
def bare() -> Iterator[None]:
    yield


def memprof_with(**options: Any) -> Callable[[], Any]:
    @contextlib.contextmanager
    def record() -> Iterator[None]:
        collection = Collection(**options)
        collection.start()
        try:
            yield
        finally:
            collection.abandon()

    return record


def torch_profiler_with(device: str, **options: Any) -> Callable[[], Any]:
    activities = [ProfilerActivity.CPU]
    if device != "cpu":
        activities.append(ProfilerActivity.CUDA)

    @contextlib.contextmanager
    def record() -> Iterator[None]:
        with torch.profiler.profile(activities=activities, **options):
            yield

    return record


def after_stop() -> Callable[[], Any]:
    @contextlib.contextmanager
    def record() -> Iterator[None]:
        collection = Collection()
        collection.start()
        collection.stop()
        yield

    return record


def configurations(device: str) -> dict[str, Callable[[], Any]]:
    every = {"record_shapes": True, "profile_memory": True, "with_stack": True}
    return {
        "bare": bare,
        "bare again": bare,
        "memory, no stacks": memprof_with(stacks=False, operators=False),
        "light": memprof_with(operators=False),
        "operators": memprof_with(operators=True, stacks=False, memory=False),
        "full": memprof_with(operators=True),
        "full + shapes": memprof_with(operators=True, shapes=True),
        "after stop": after_stop(),
        "torch.profiler": torch_profiler_with(device),
        "torch.profiler, all options": torch_profiler_with(device, **every),
    }


def time_steps(step: Callable[[], Any], count: int, device: str) -> float:
    """Seconds a step."""
    if device != "cpu":
        torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(count):
        step()
    if device != "cpu":
        torch.cuda.synchronize()
    return (time.perf_counter() - start) / count


def measure(workload: str, device: str, rounds: int) -> dict[str, Any]:
    step = WORKLOADS[workload](device)
    time_steps(step, 20, device)
    once = time_steps(step, 10, device)
    count = max(5, min(200, int(0.12 / once)))
    table: dict[str, list[float]] = {}
    kinds = configurations(device)
    for _ in range(rounds):
        for name, record in kinds.items():
            base = time_steps(step, count, device)
            with record():
                time_steps(step, 2, device)
                inside = time_steps(step, count, device)
            table.setdefault(name, []).append(inside / base)
    rows = {}
    for name, ratios in table.items():
        quartiles = statistics.quantiles(ratios, n=4)
        rows[name] = {
            "ratio": statistics.median(ratios),
            "low": quartiles[0],
            "high": quartiles[2],
        }
    return {"workload": workload, "device": device, "step_us": once * 1e6, "rows": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--workload", choices=list(WORKLOADS), action="append")
    parser.add_argument("--json", help="file for the figures")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    results = []
    for workload in arguments.workload or list(WORKLOADS):
        result = measure(workload, arguments.device, arguments.rounds)
        results.append(result)
        print(f"\n{workload} on {arguments.device}: {result['step_us']:.0f} us a step")
        for name, row in result["rows"].items():
            print(f"  {name:30s} x{row['ratio']:.3f}  ({row['low']:.3f} to {row['high']:.3f})")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
