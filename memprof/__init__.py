"""memprof: where the memory of a PyTorch training run went."""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memprof.activities import (
        DeviceType,
        ProfilerAction,
        ProfilerActivity,
        kineto_available,
        supported_activities,
    )
    from memprof.profiler import profile
    from memprof.recording import Recording, load
    from memprof.schedules import schedule
    from memprof.spans import record_function
    from memprof.trace import tensorboard_trace_handler
    from memprof.watcher import watch

__all__ = [
    "DeviceType",
    "ProfilerAction",
    "ProfilerActivity",
    "Recording",
    "kineto_available",
    "load",
    "profile",
    "record_function",
    "schedule",
    "supported_activities",
    "tensorboard_trace_handler",
    "watch",
]

# Loaded at first use, so that `import memprof` costs next to nothing. No module of the
# package may have a name from the left side: importing it would hide the object.
_HOMES = {
    "DeviceType": "activities",
    "ProfilerAction": "activities",
    "ProfilerActivity": "activities",
    "Recording": "recording",
    "kineto_available": "activities",
    "load": "recording",
    "profile": "profiler",
    "record_function": "spans",
    "schedule": "schedules",
    "supported_activities": "activities",
    "tensorboard_trace_handler": "trace",
    "watch": "watcher",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'memprof' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"memprof.{home}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
