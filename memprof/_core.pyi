"""The C core. Private: use the names of the package `memprof`."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

clock_source: str

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

class Session:
    """Collection in this process; at most one is started at a time."""

    def __init__(
        self,
        *,
        stacks: bool = True,
        operators: bool = True,
        shapes: bool = False,
        max_bytes: int = 1 << 30,
        ring: bool = False,
    ) -> None: ...
    active: bool
    def start(self) -> None:
        """Hooks in place from here on. RuntimeError when another session is active."""
    def restart(self) -> None:
        """The window begins: steps and operators before now are not shown; blocks that
        were born since start() keep their size and line."""
    def mark_step(self, number: int) -> None:
        """Step `number` begins on the calling thread (and the one before it ends)."""
    def end_step(self) -> None: ...
    def begin_span(self, name: str, kind: int = 1, object_id: int = 0) -> None: ...
    def end_span(self) -> None: ...
    def set_baseline(self, blocks: np.ndarray[Any, Any]) -> None: ...
    def stop(self) -> Recording:
        """Hooks out, logs into tables, passes run; the GIL is released meanwhile."""
    def coverage(self) -> dict[str, Any]:
        """sources: {name: {"on": bool, "reason": str}}, losses: {key: count}, ..."""
