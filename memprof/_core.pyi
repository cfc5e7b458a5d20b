"""The C core. Private: use the names of the package `memprof`."""

from collections.abc import Callable, Mapping, Sequence
from types import CodeType
from typing import Any

import numpy as np

clock_source: str
phases: tuple[str, ...]
"""Names of blocks["phase"], by value; categories likewise."""
categories: tuple[str, ...]
activity_kinds: tuple[str, ...]
"""Names of activities["kind"], by value."""

class Recording:
    """Tables of one recording (csrc/record/tables.h), immutable once made."""

    start_ns: int
    window_start_ns: int
    stop_ns: int
    table_names: tuple[str, ...]
    def table(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only array over the table's own memory; KeyError for another name."""
    def string(self, id: int) -> str: ...
    @staticmethod
    def from_tables(
        tables: Mapping[str, np.ndarray[Any, Any]],
        *,
        start_ns: int,
        window_start_ns: int,
        stop_ns: int,
        analyse: bool = False,
    ) -> Recording:
        """Copies the given tables (absent ones are empty), checks every id and offset
        (ValueError that names table and rule) and, on request, runs the passes."""

def growth(recording: Recording) -> np.ndarray[Any, Any]:
    """Allocation sites of which more is alive at each step's end (analysis/growth.h):
    bytes_per_step, low, high, bytes_at_end, first_step, stack_id, survivors, steps_used,
    device_type, device_index; steepest first."""

growth_steps_needed: int

class Session:
    """Collection in this process; at most one is started at a time."""

    def __init__(
        self,
        *,
        memory: bool = True,
        stacks: bool = True,
        operators: bool = True,
        shapes: bool = False,
        max_bytes: int = 1 << 30,
        ring: bool = False,
        activities: bool = False,
    ) -> None:
        """activities: GPU activity may be started; half of max_bytes is kept for it."""
    @property
    def active(self) -> bool: ...
    def start(self) -> None:
        """Hooks in place from here on. RuntimeError when another session is active."""
    def attach_torch(self) -> bool:
        """Hooks torch if it has come since the start; whether it is there."""
    def start_activities(
        self, paths: Sequence[str], *, only: bool = False, dump: str | None = None
    ) -> str:
        """GPU activity from here on; returns "" or why there is none. paths and only: as
        for cupti_load(). dump: raw buffers are copied to this file."""
    def stop_activities(self) -> None:
        """Ends GPU activity ahead of stop(); what was seen is kept."""
    def begin_window(self) -> None:
        """The window begins: steps and operators before now are not shown; blocks that
        were born since start() keep their size and line."""
    def mark_step(self, number: int) -> None:
        """Step `number` begins on the calling thread (and the one before it ends)."""
    def end_step(self) -> None: ...
    def drop_open_step(self) -> None:
        """The step that is open at stop() is not shown."""
    def clock(self) -> int:
        """The recorder's clock in ticks, for add_span()."""
    def add_span(self, name: str, kind: int, object_id: int, start_ticks: int) -> None:
        """A range of the calling thread that ends now. kind: 1 user, 2 optimizer step."""
    def set_baseline(self, blocks: np.ndarray[Any, Any]) -> None:
        """Blocks live at start: rows of the table baseline."""
    def object_count(self) -> int: ...
    def unnamed_modules(self, after_id: int) -> tuple[list[tuple[int, int, str]], int]:
        """([(object id, address, class name)], the last id) of modules seen since."""
    def name_module(self, id: int, parent: int, path: str, class_name: str) -> None: ...
    def mark_code(self, code: CodeType, frame_flags: int) -> None:
        """A role for frames of this code object: 1 module call, 2 data, 4 backward."""
    def strike(self, address: int) -> None:
        """The object at this address has died."""
    def stop(self) -> Recording:
        """Hooks out, logs into tables, passes run; the GIL is released meanwhile."""
    def abandon(self) -> None: ...
    def after_fork(self) -> None: ...
    def coverage(self) -> dict[str, Any]: ...

def leave_parents_session() -> None:
    """For the child of a fork: no session is open from here on."""

def cupti_load(paths: Sequence[str], *, only: bool = False) -> dict[str, Any]:
    """Finds CUPTI and starts nothing: the one that is loaded, else the first of `paths`
    (only: nothing else). path, version, cuda; or reason."""

def cupti_decode(
    buffers: list[bytes], version: int, names: dict[int, str], *, library: bool = False
) -> dict[str, Any]:
    """Raw buffers of a dump to rows. names: by pointer. library: stepped by the loaded
    CUPTI instead of by the sizes of its version."""

def torch_find() -> dict[str, Any]: ...
def torch_probe(
    operator: str, impl: int, inputs_offset: int, call: Callable[[], Any]
) -> dict[str, Any]: ...
def torch_read_impl(
    impl: int, sizes_offset: int, dtype_offset: int
) -> tuple[tuple[int, ...] | None, int]: ...
def torch_read_word(base: int, offset: int) -> int: ...
def torch_set_layout(
    *,
    operators: bool,
    sequences: bool,
    schema_names: bool,
    shapes: bool,
    inputs: int,
    name_index: int,
    impl_sizes: int,
    impl_dtype: int,
    list_tag: int,
) -> None: ...
def torch_hide(member: str | None) -> None: ...

# python/trace_writer.c
def write_chrome_trace(
    recording: Recording,
    write: Callable[[bytes], int | None],
    *,
    tensorboard: bool = ...,
    header: str = ...,
    process_id: int = ...,
    process_name: str = ...,
    trace_name: str = ...,
    shapes: bool = ...,
    call_stacks: bool = ...,
    python_functions: bool = ...,
    memory: bool = ...,
    counter_points: int = ...,
    gpus: tuple[tuple[int, int, int, int], ...] = (),
) -> dict[str, int]: ...
