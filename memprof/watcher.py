"""watch(): the light mode in a ring, for as long as the program runs.

(The file is not named watch.py because `memprof.watch` is the class.)
"""

import threading
import uuid
from types import TracebackType
from typing import TYPE_CHECKING, Any

from memprof import _active
from memprof._metadata import distributed_info
from memprof._options import checked_memory
from memprof._window import Window
from memprof.schedules import step_count

if TYPE_CHECKING:
    from typing_extensions import Self

    from memprof.recording import Recording

__all__ = ["watch"]


class watch:
    """Keeps the memory events of the last `steps` steps, as many of them as fit into
    `max_memory`, from now until stop().

        watching = memprof.watch(steps=100)
        ...
        print(watching.snapshot().summary())

    Steps are those of the first optimizer that steps, until step() is called by hand.
    """

    def __init__(self, steps: int = 100, max_memory: int | str = "256 MiB") -> None:
        self.steps = step_count("watch", "steps", steps, least=1)
        self.max_memory = max_memory
        self._max_bytes = checked_memory(max_memory)
        self._marked: int | None = None  # the last step marked by hand
        self._lock = threading.RLock()  # guards what is below
        self._window: Window | None = None
        self._claim = _active.Claim(self, "memprof.watch")
        self._claim.take()
        self._open()

    def __enter__(self) -> "Self":
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        self.stop()

    @property
    def active(self) -> bool:
        return self._window is not None

    def step(self) -> None:
        """The next step begins; from now on optimizers do not count."""
        with self._lock:
            if self._window is not None:
                self._marked = 1 if self._marked is None else self._marked + 1
                self._window.mark_step(self._marked)

    def snapshot(self) -> "Recording":
        """What happened in the last steps; watching goes on."""
        with self._lock:
            window = self._window
            if window is None:
                raise RuntimeError(
                    "snapshot(): this watch is stopped; call memprof.watch(...) for a new one"
                )
            try:
                recording = window.finish(self._header())
            finally:
                window.close()
                self._open()
            if recording is None:
                raise RuntimeError("snapshot() was called while another one is being taken")
            return recording

    def stop(self) -> None:
        """Ends watching; twice or from another thread is fine. What was not asked for with
        snapshot() is thrown away."""
        with self._lock:
            try:
                if self._window is not None:
                    self._window.close()
                    self._window = None
            finally:
                self._claim.release()

    def _open(self) -> None:
        """A window of its own; watching is over where that fails."""
        self._window = window = Window(
            {
                "stacks": True,
                "operators": False,
                "shapes": False,
                "memory": True,
                "cuda": True,  # where there is one; the recording says
                "max_bytes": self._max_bytes,
                "ring": True,
                "auto_steps": self._marked is None,
            },
            None,
        )
        try:
            window.open()
            window.begin()
            if self._marked is not None:
                window.mark_step(self._marked)
        except BaseException:
            self.stop()
            raise

    def _header(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {"profile_memory": 1, "with_stack": 1}
        if info := distributed_info():
            metadata["distributedInfo"] = info
        return {
            "options": {
                "max_memory": self._max_bytes,
                "at_limit": "ring",
                "operators": False,
            },
            "metadata": metadata,
            "keep_steps": self.steps,
            "trace_id": uuid.uuid4().hex.upper(),
        }

    def _stop_at_exit(self, where: str) -> None:
        self.stop()

    def _forget_parent(self) -> None:
        """In the child of a fork nothing is watched."""
        self._lock = threading.RLock()
        self._window = None
