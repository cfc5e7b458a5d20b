"""The parts of torch.profiler's results that memprof does not compute yet, each with a
sentence on what answers the question today."""

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from memprof.profiler import profile

_TODAY = {
    "events": "prof.recording.operators (NumPy columns: start, end, name, memory)",
    "key_averages": 'prof.recording.by("operator") or print(prof.summary())',
    "export_stacks": 'prof.recording.by("stack")',
    "export_memory_timeline": "prof.recording.allocations and .steps, or"
    " prof.export_chrome_trace(path), which draws the memory of each device over time",
    "table": "print(prof.summary())",
    "total_average": "prof.recording.operators",
    "self_cpu_time_total": "prof.recording.operators",
    "function_events": "prof.recording.operators",
    "kineto_results": "prof.recording; memprof does not record through Kineto",
}


def not_yet(name: str) -> NoReturn:
    raise NotImplementedError(f"memprof has no {name} yet; use {_TODAY[name]}")


class TorchResults:
    """The result methods of torch.profiler.profile."""

    def events(self) -> Any:
        not_yet("events")

    def key_averages(
        self,
        group_by_input_shape: bool = False,
        group_by_stack_n: int = 0,
        group_by_overload_name: bool = False,
        include_python_functions: bool = False,
    ) -> Any:
        not_yet("key_averages")

    def export_stacks(self, path: str, metric: str = "self_cpu_time_total") -> None:
        not_yet("export_stacks")

    def export_memory_timeline(self, path: str, device: str | None = None) -> None:
        not_yet("export_memory_timeline")


class PreparedProfiler:
    """What `prof.profiler` is once a window was prepared. torch keeps its autograd profiler
    there, and scripts test it for None and read results from it."""

    def __init__(self, owner: "profile", trace_id: str) -> None:
        self._owner = owner
        self.trace_id = trace_id

    @property
    def kineto_results(self) -> Any:
        not_yet("kineto_results")

    @property
    def function_events(self) -> Any:
        not_yet("function_events")

    @property
    def self_cpu_time_total(self) -> Any:
        not_yet("self_cpu_time_total")

    def total_average(self) -> Any:
        not_yet("total_average")

    def table(self, *args: Any, **kwargs: Any) -> Any:
        not_yet("table")

    def key_averages(self, *args: Any, **kwargs: Any) -> Any:
        return self._owner.key_averages(*args, **kwargs)

    def export_chrome_trace(self, path: str) -> None:
        self._owner.export_chrome_trace(path)
