"""Stop and write: memprof beside torch.profiler on the same steps, interleaved.

    python -m benchmarks.export [--steps 400] [--rounds 3]
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
import warnings
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from benchmarks.workloads import launch_bound
from memprof._collection import Collection


def ours(step: Any, steps: int, folder: str) -> dict[str, float]:
    collection = Collection(operators=True, shapes=True)
    collection.start()
    for _ in range(steps):
        step()
    start = time.perf_counter()
    recording = collection.stop()
    stopped = time.perf_counter()
    path = os.path.join(folder, "memprof.json.gz")
    recording.export_chrome_trace(path)
    written = time.perf_counter()
    recording.summary(color=False)
    summed = time.perf_counter()
    saved = os.path.join(folder, "x.memprof")
    recording.save(saved)
    events = len(recording.allocations) + len(recording.operators)
    return {
        "events": events,
        "stop_s": stopped - start,
        "write_s": written - stopped,
        "summary_s": summed - written,
        "save_s": time.perf_counter() - summed,
        "gz_bytes_per_event": os.path.getsize(path) / events,
        "saved_bytes_per_event": os.path.getsize(saved) / events,
    }


def theirs(step: Any, steps: int, folder: str) -> dict[str, float]:
    profiler = torch.profiler.profile(
        activities=[ProfilerActivity.CPU],
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
    )
    profiler.start()
    for _ in range(steps):
        step()
    start = time.perf_counter()
    profiler.stop()
    stopped = time.perf_counter()
    path = os.path.join(folder, "torch.json.gz")
    profiler.export_chrome_trace(path)
    return {"stop_s": stopped - start, "write_s": time.perf_counter() - stopped,
            "gz_bytes": os.path.getsize(path)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")
    torch.set_num_threads(1)
    step = launch_bound("cpu")
    for _ in range(5):
        step()
    rows: list[tuple[dict[str, float], dict[str, float]]] = []
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(arguments.rounds):
            rows.append(
                (ours(step, arguments.steps, folder), theirs(step, arguments.steps, folder))
            )
    for name in rows[0][0]:
        print(f"memprof         {name:24s} {statistics.median(r[0][name] for r in rows):.4g}")
    for name in rows[0][1]:
        print(f"torch.profiler  {name:24s} {statistics.median(r[1][name] for r in rows):.4g}")
    ratios = [
        (b["stop_s"] + b["write_s"]) / (a["stop_s"] + a["write_s"]) for a, b in rows
    ]
    print(f"stop + write: {statistics.median(ratios):.1f} times faster "
          f"({min(ratios):.1f} to {max(ratios):.1f})")


if __name__ == "__main__":
    main()
