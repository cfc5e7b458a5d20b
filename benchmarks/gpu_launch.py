"""What does GPU activity add to a kernel launch? A tiny add from Python, launched in runs:
each round has a run of every setting in turn, and what counts is the median over rounds of
the difference to the bare run beside it.

    python -m benchmarks.gpu_launch [--rounds 40] [--launches 2000]
"""

import argparse
import statistics
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def time_of(context: Callable[[], AbstractContextManager[Any]], launches: int) -> float:
    """ns a launch, inside the profiler's window only."""
    x = torch.ones(16, device="cuda")
    with context():
        for _ in range(200):
            x.add_(1)
        torch.cuda.synchronize()
        start = time.perf_counter_ns()
        for _ in range(launches):
            x.add_(1)
        elapsed = time.perf_counter_ns() - start
        torch.cuda.synchronize()
    return elapsed / launches


class Session:
    """The C session alone: CUPTI, without hooks on memory and operators."""

    def __enter__(self) -> None:
        from memprof import _core, _cupti

        self._session = _core.Session(
            memory=False, stacks=False, operators=False, activities=True
        )
        self._session.start()
        paths, only = _cupti.candidates()
        if reason := self._session.start_activities(paths, only=only):
            raise SystemExit(reason)

    def __exit__(self, *error: object) -> None:
        torch.cuda.synchronize()
        self._session.abandon()


def settings() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    from torch.profiler import ProfilerActivity, profile

    import memprof

    cpu, cuda = ProfilerActivity.CPU, ProfilerActivity.CUDA
    return {
        "nothing again": nullcontext,
        "memprof, GPU activity alone": Session,
        "memprof.profile, memory and operators": lambda: memprof.profile(activities=[cpu]),
        "memprof.profile, all": lambda: memprof.profile(activities=[cpu, cuda]),
        "torch.profiler, CUDA": lambda: profile(activities=[cuda]),
        "torch.profiler, CPU + CUDA": lambda: profile(activities=[cpu, cuda]),
        "nothing after all of them": nullcontext,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--launches", type=int, default=2000)
    arguments = parser.parse_args()
    contexts = settings()
    differences: dict[str, list[float]] = {name: [] for name in contexts}
    bare: list[float] = []
    for _ in range(arguments.rounds):
        for name, context in contexts.items():
            base = time_of(nullcontext, arguments.launches)
            bare.append(base)
            differences[name].append(time_of(context, arguments.launches) - base)
    print(f"bare launch: {statistics.median(bare):,.0f} ns (median of {len(bare)} runs)")
    for name, values in differences.items():
        low, middle, high = statistics.quantiles(values, n=4)
        print(f"{name:<40} {middle:+8,.0f} ns   quartiles {low:+,.0f} .. {high:+,.0f}")


if __name__ == "__main__":
    main()
