"""Where CUPTI is, and GPU activity of one recording: when it starts, when it gives way."""

from __future__ import annotations

import glob
import os
import sys
import weakref
from typing import Any

from memprof import _core
from memprof._notices import last_line, notify

NOT_USED = "CUDA was not used"
_OVERRIDE = "MEMPROF_CUPTI"  # a path: this library and no other

_said: set[str] = set()  # reasons that were told in this process


def candidates() -> tuple[list[str], bool]:
    """Paths of CUPTI to try where torch has loaded none, best first; and whether nothing
    else may be looked at."""
    override = os.environ.get(_OVERRIDE)
    if override:
        return [override], True
    folders = [
        os.path.join(entry, *parts)
        for entry in sys.path
        if entry
        for parts in (("nvidia", "cu*", "lib"), ("nvidia", "cuda_cupti", "lib"))
    ]
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := os.environ.get(variable):
            folders.append(os.path.join(home, "extras", "CUPTI", "lib64"))
            folders.append(os.path.join(home, "lib64"))
    folders += ["/usr/local/cuda/extras/CUPTI/lib64", "/usr/local/cuda/lib64"]
    found: list[str] = []
    for folder in folders:
        for path in sorted(glob.glob(os.path.join(folder, "libcupti.so*")), reverse=True):
            if path not in found and _is_versioned(path):
                found.append(path)
    return found, False


def _is_versioned(path: str) -> bool:
    """libcupti.so.13 and the like; a bare .so is a link to one of them."""
    return os.path.basename(path).startswith("libcupti.so.") and os.sep + "stubs" not in path


def library() -> dict[str, Any]:
    """Which CUPTI would be used here: path, version, cuda; or reason. Loads it."""
    paths, only = candidates()
    return _core.cupti_load(paths, only=only)


class GpuActivity:
    """GPU activity of one recording. It begins with the first use of CUDA, so that no
    context, and no driver, comes to life for it; and it gives way to torch.profiler, since
    CUPTI serves one at a time."""

    def __init__(self, torch: Any, session: Any, asked: bool) -> None:
        self._torch = torch
        self._session = session
        self._original_prepare: Any = None
        self.started = False
        self.reason = "not asked for"
        if not asked:
            return
        if not torch.cuda.is_available():
            self.reason = "no CUDA device"
        elif torch.cuda.is_initialized():
            self._start()
        else:
            self.reason = NOT_USED
            me = weakref.ref(self)

            def start_later() -> None:
                activity = me()
                if activity is None or activity._session is None:
                    return
                try:
                    activity._start()
                except Exception as error:  # noqa: BLE001 - never into torch's own start
                    activity.reason = last_line(error)

            torch.cuda._lazy_call(start_later)

    def before_stop(self) -> None:
        """What was launched shall be in the recording with its end."""
        if self.started and not self.reason:
            try:
                for index in range(self._torch.cuda.device_count()):
                    if self._has_context(index):
                        self._torch.cuda.synchronize(index)
            except RuntimeError:  # a failed kernel: the user's own call will say so
                pass

    def undo(self) -> None:
        self._session = None
        self._unwatch()

    # ---- inside

    def _has_context(self, index: int) -> bool:
        has = getattr(self._torch._C, "_cuda_hasPrimaryContext", None)
        return has is None or bool(has(index))

    def _start(self) -> None:
        if self._torch.autograd._profiler_enabled():
            self._refuse("torch.profiler is active, and CUPTI serves one profiler at a time")
            return
        paths, only = candidates()
        dump = os.environ.get("MEMPROF_CUPTI_DUMP")
        reason = self._session.start_activities(paths, only=only, dump=dump)
        if reason:
            self._refuse(reason)
            return
        self.started, self.reason = True, ""
        self._watch()

    def _refuse(self, reason: str) -> None:
        self.reason = reason
        if reason not in _said:
            _said.add(reason)
            notify(
                f"GPU activity is not recorded: {reason}. Memory and operators are recorded"
                " all the same"
            )

    def _watch(self) -> None:
        """torch.profiler would take CUPTI's buffers over: memprof ends before it begins."""
        profiler = self._torch.autograd.profiler
        original = getattr(profiler, "_prepare_profiler", None)
        if original is None:
            return
        me = weakref.ref(self)

        def prepare(config: Any, activities: Any, *args: Any, **kwargs: Any) -> Any:
            activity = me()
            if activity is not None and any(item.name == "CUDA" for item in activities):
                activity._give_way()
            return original(config, activities, *args, **kwargs)

        self._original_prepare, self._prepare = original, prepare
        profiler._prepare_profiler = prepare

    def _unwatch(self) -> None:
        profiler = self._torch.autograd.profiler
        if self._original_prepare is not None and profiler._prepare_profiler is self._prepare:
            profiler._prepare_profiler = self._original_prepare
        self._original_prepare = None

    def _give_way(self) -> None:
        if self._session is None or self.reason:
            return
        self._session.stop_activities()
        self._refuse("torch.profiler began with CUDA meanwhile; what came before is kept")


def losses(counts: dict[str, Any]) -> dict[str, int]:
    """What GPU activity lost, by cause, for `coverage["losses"]`."""
    if not counts["on"] and not counts["buffers"]:
        return {}
    return {
        "activities_at_limit": counts["lost"],
        "activities_overwritten": counts["overwritten"],
        "activities_dropped": counts["dropped"],
        "activities_without_time": counts["without_time"],
        "activity_buffers_refused": counts["buffers_refused"],
        "activity_buffers_foreign": counts["buffers_foreign"],
        "activity_buffers_broken": counts["broken"],
        "activities_of_unknown_kind": counts["unknown"],
    }
