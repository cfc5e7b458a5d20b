"""Who records in this process: one owner at a time, a profile or a watch."""

import atexit
import os
import threading
from typing import TYPE_CHECKING, Protocol

from memprof._notices import user_line

if TYPE_CHECKING:
    from memprof._collection import Collection


class Owner(Protocol):
    def _stop_at_exit(self, where: str) -> None: ...
    def _forget_parent(self) -> None: ...


class Claim:
    """The right to record, from start to stop. `where` is the line that began it. Its owner
    keeps it from before take() on, so that an interrupt loses no claim."""

    def __init__(self, owner: Owner, kind: str) -> None:
        self.owner = owner
        self.kind = kind
        self.where = user_line()

    def take(self) -> None:
        global _current
        with _lock:
            other = _current
            if other is None:
                _current = self
                return
        raise RuntimeError(
            f"cannot start {self.kind} at {self.where}: the {other.kind} started at"
            f" {other.where} is still recording in this process, and goes on untouched; end"
            " it first (leave its with block or call its stop()), or start only one of the two"
        )

    def release(self) -> None:
        """Once or more often, from any thread."""
        global _current
        with _lock:
            if _current is self:
                _current = None


_lock = threading.Lock()  # protects _current; nothing is called while it is held
_current: Claim | None = None
collection: "Collection | None" = None  # the one that is started, if any


@atexit.register
def _stop_at_exit() -> None:
    if _current is not None:
        _current.owner._stop_at_exit(_current.where)


def _after_fork_in_child() -> None:
    """The child records nothing: the parent's recording stays the parent's."""
    global _current, _lock, collection
    _lock = threading.Lock()
    collection = None
    if _current is not None:
        _current.owner._forget_parent()
        _current = None


os.register_at_fork(after_in_child=_after_fork_in_child)
