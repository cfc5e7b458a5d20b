"""One cycle of a profile: from warm-up to the finished recording."""

from typing import TYPE_CHECKING, Any, Protocol

from memprof import _active
from memprof._notices import last_line, notify

if TYPE_CHECKING:
    from memprof.recording import Recording


class Observer(Protocol):
    """torch's execution trace observer, or anything with these three."""

    def start(self) -> None: ...
    def stop(self) -> None: ...
    def cleanup(self) -> None: ...


class Window:
    """A collection and what goes with it. Its owner keeps it from before open() until
    close() has returned, so that an interrupt at any moment can be made good by close()."""

    def __init__(self, options: dict[str, Any], observer: Observer | None) -> None:
        from memprof._collection import Collection

        self._collection = Collection(**options)
        self._observer = observer
        self._observing = False
        self._in_step = False
        self._ending = False
        self.recording = False

    @staticmethod
    def check_present() -> None:
        """ImportError now, rather than at the first active step, where the extension does
        not load."""
        import memprof._collection  # noqa: F401

    def open(self) -> None:
        """Warm-up: hooks are in, what they see is not yet part of the window."""
        self._collection.start()
        _active.collection = self._collection

    def begin(self) -> None:
        if self._in_step:  # of the warm-up
            self._collection.end_step()
            self._in_step = False
        if self._observer is not None:
            self._observing = True
            self._observer.start()
        self._collection.begin_window()
        self.recording = True

    def mark_step(self, number: int) -> None:
        self._in_step = True
        self._collection.mark_step(number)

    def finish(self, header: dict[str, Any]) -> "Recording | None":
        """The recording; None for a second call, from a signal handler inside the first."""
        if self._ending:
            return None
        self._ending = True
        if self._in_step:
            self._collection.end_step()
        self._stop_observer()
        return self._collection.stop(header)

    def close(self) -> None:
        """Leaves nothing in the process, after whatever came before. May be repeated."""
        try:
            self._stop_observer()
        finally:
            self.recording = False
            if _active.collection is self._collection:
                _active.collection = None
            if self._collection.active:
                self._collection.abandon()

    def _stop_observer(self) -> None:
        if self._observing and self._observer is not None:
            self._observing = False
            try:
                self._observer.stop()
            except Exception as error:  # noqa: BLE001 - it must not cost the recording
                notify(f"execution_trace_observer.stop() failed: {last_line(error)}")
