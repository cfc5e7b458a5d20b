"""record_function: a name for a part of the program.

Where torch is there it is torch's own class, whose ranges the operator observer sees;
elsewhere a small one that marks the range in the collection that is active.
"""

import contextlib
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memprof import _active
from memprof.activities import torch_profiler

if TYPE_CHECKING:
    from torch.profiler import record_function
    from typing_extensions import Self


__all__ = ["record_function"]


class _RecordFunction(contextlib.ContextDecorator):
    """`with record_function("name"):` or `@record_function("name")`."""

    def __init__(self, name: str, args: str | None = None) -> None:
        if not isinstance(name, str):
            raise TypeError(
                f"record_function: name={name!r} is of type {type(name).__name__}, not str"
            )
        self.name = name
        self.args = args
        # (collection or None, its clock at entry) for each range that is open
        self._entered: list[tuple[Any, int]] = []

    def _recreate_cm(self) -> "Self":
        return type(self)(self.name, self.args)  # decorated functions may recurse

    def __enter__(self) -> "Self":
        collection = _active.collection
        start = collection.clock() if collection is not None else 0
        self._entered.append((collection, start))
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        if not self._entered:
            raise RuntimeError(
                f"record_function({self.name!r}) is left without having been entered; use it in"
                " a with statement or as a decorator"
            )
        collection, start = self._entered.pop()
        if collection is not None and collection.active:
            collection.add_span(self.name, start)


_RecordFunction.__name__ = _RecordFunction.__qualname__ = "record_function"


def __getattr__(name: str) -> Any:
    if name != "record_function":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(torch_profiler(), name, _RecordFunction)
