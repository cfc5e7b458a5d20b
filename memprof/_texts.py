"""Strings and stacks of a recording as sequences that read what is asked for."""

import operator
import re
from collections.abc import Sequence
from typing import Any, NamedTuple, overload

from memprof import _core


class Frame(NamedTuple):
    file: str
    line: int
    function: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line} {self.function}"


class Strings(Sequence[str]):
    """strings[i] is the text of string id i."""

    def __init__(self, core: _core.Recording) -> None:
        self._core = core
        self._count = max(len(core.table("string_offsets")) - 1, 1)
        self._known: dict[int, str] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> str: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[str, ...]: ...
    def __getitem__(self, index: int | slice) -> str | tuple[str, ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        place = _place(index, self._count, "string id")
        text = self._known.get(place)
        if text is None:
            text = self._known[place] = self._core.string(place)
        return text


class Stacks(Sequence[tuple[Frame, ...]]):
    """stacks[i] is the Python stack of stack id i, innermost frame first."""

    def __init__(self, core: _core.Recording, strings: Strings) -> None:
        self._strings = strings
        self._rows = core.table("stacks")
        self._entries = core.table("stack_frames")
        self._frames = core.table("frames")
        self._count = max(len(self._rows), 1)
        self._known: dict[int, Frame] = {}

    def __len__(self) -> int:
        return self._count

    @overload
    def __getitem__(self, index: int) -> tuple[Frame, ...]: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[tuple[Frame, ...], ...]: ...
    def __getitem__(
        self, index: int | slice
    ) -> tuple[Frame, ...] | tuple[tuple[Frame, ...], ...]:
        if isinstance(index, slice):
            return tuple(self[i] for i in range(*index.indices(self._count)))
        place = _place(index, self._count, "stack id")
        if place >= len(self._rows):
            return ()
        row = self._rows[place]
        begin = int(row["offset"])
        return tuple(
            self._frame(int(entry))
            for entry in self._entries[begin : begin + int(row["depth"])]
        )

    def _frame(self, place: int) -> Frame:
        frame = self._known.get(place)
        if frame is None:
            row = self._frames[place]
            frame = self._known[place] = Frame(
                self._strings[int(row["file_id"])],
                int(row["line"]),
                self._strings[int(row["function_id"])],
            )
        return frame


def _place(index: Any, count: int, what: str) -> int:
    place = operator.index(index)
    place += count if place < 0 else 0
    if not 0 <= place < count:
        raise IndexError(f"{what} {index} is not in 0..{count - 1}")
    return place


# What is not the user's: torch (installed, or from a source tree), memprof itself, Python's
# standard library and frozen modules. Other packages count as the user's: they are chosen.
_NOT_THE_USERS = re.compile(
    r"^<frozen "
    r"|[/\\](?:site|dist)-packages[/\\](?:torch|torchgen|functorch|memprof)[/\\]"
    r"|[/\\]torch[/\\](?:_[a-z]\w*|autograd|cuda|distributed|func|fx|jit|nn|optim|profiler|utils)[/\\]"
    r"|[/\\]torch[/\\]_\w+\.py$"
    r"|[/\\]python3\.\d+[/\\](?!(?:site|dist)-packages[/\\])"
)


def is_user_file(file: str) -> bool:
    return not file.startswith(_OWN_FOLDER) and _NOT_THE_USERS.search(file) is None


def user_frame(stack: Sequence[Frame]) -> Frame | None:
    """The innermost frame outside torch, memprof and the standard library; if all are
    inside, the innermost; None for an empty stack."""
    for frame in stack:
        if is_user_file(frame.file):
            return frame
    return stack[0] if stack else None


_OWN_FOLDER = re.sub(r"_texts\.py\w?$", "", __file__)
