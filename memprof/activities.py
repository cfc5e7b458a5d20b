"""ProfilerActivity, ProfilerAction and DeviceType, and what this machine can record.

Where torch can be imported these names are torch's own classes, because frameworks test
identity; elsewhere they are enums with the same names and values. They are resolved at
first use, so that importing memprof does not import torch.
"""

import enum
import functools
import warnings
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.profiler import DeviceType, ProfilerAction, ProfilerActivity

__all__ = [
    "DeviceType",
    "ProfilerAction",
    "ProfilerActivity",
    "kineto_available",
    "supported_activities",
]


class _Action(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3
    DEVICE_STOPPED = 4


class _Activity(enum.Enum):
    CPU = 0
    XPU = 1
    CUDA = 2
    HPU = 3
    MTIA = 4
    PrivateUse1 = 5


_DEVICE_TYPES = (
    "CPU CUDA MKLDNN OPENGL OPENCL IDEEP HIP FPGA MAIA XLA Vulkan Metal XPU MPS Meta HPU VE"
    " Lazy IPU MTIA PrivateUse1"
)
_Device = enum.Enum("DeviceType", _DEVICE_TYPES, module=__name__, start=0)  # type: ignore[misc]
_OWN = {
    "ProfilerAction": _Action,
    "ProfilerActivity": _Activity,
    "DeviceType": _Device,
}
for _name, _class in _OWN.items():
    _class.__name__ = _class.__qualname__ = _name


@functools.cache
def torch_profiler() -> Any:
    """The module torch.profiler, or None where torch is absent or does not import."""
    try:
        import torch.profiler
    except ModuleNotFoundError as error:
        if error.name and error.name.partition(".")[0] == "torch":
            return None
        _say_broken(error)
        return None
    except (ImportError, OSError) as error:
        _say_broken(error)
        return None
    return torch.profiler


def _say_broken(error: Exception) -> None:
    warnings.warn(
        f"torch is installed but does not import ({type(error).__name__}: {error}); memprof"
        " goes on without it, so no tensor memory is recorded",
        RuntimeWarning,
        stacklevel=4,
    )


def __getattr__(name: str) -> Any:
    if name not in _OWN:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(torch_profiler(), name, _OWN[name])
    globals()[name] = value
    return value


def kineto_available() -> bool:
    """Whether torch was built with its own profiler; memprof does not need it."""
    torch = torch_profiler()
    return bool(torch.kineto_available()) if torch else False


def supported_activities() -> "set[ProfilerActivity]":
    """What this machine can record: the default of profile(activities=...)."""
    torch = torch_profiler()
    return set(torch.supported_activities()) if torch else {activity("CPU")}


def activity(name: str) -> "ProfilerActivity":
    """The member of that name; AttributeError where this torch has none."""
    member: ProfilerActivity = getattr(_resolved("ProfilerActivity"), name)
    return member


def action(name: str) -> "ProfilerAction":
    member: ProfilerAction = getattr(_resolved("ProfilerAction"), name)
    return member


def _resolved(name: str) -> Any:
    return globals().get(name) or __getattr__(name)


def as_action(value: object) -> "ProfilerAction | None":
    """`value` as a member of ProfilerAction; None if it is something else."""
    member: Any = value
    if isinstance(value, _resolved("ProfilerAction")):
        return member  # type: ignore[no-any-return]
    if isinstance(value, _Action):  # kept by the caller from before torch was there
        return action(value.name)
    return None


def parse_activities(
    items: "Iterable[ProfilerActivity | dict[ProfilerActivity, list[str]] | None]",
) -> "tuple[set[ProfilerActivity], dict[ProfilerActivity, set[str]]]":
    """The activities asked for and the filter of each that has one. None items are left
    out: scripts write [CPU, CUDA if available else None]."""
    if isinstance(items, (str, bytes, dict)) or not isinstance(items, Iterable):
        raise TypeError(
            f"activities={items!r} is not a list of activities; write"
            " activities=[memprof.ProfilerActivity.CPU]"
        )
    asked: set[ProfilerActivity] = set()
    filters: dict[ProfilerActivity, set[str]] = {}
    for item in items:
        if item is None:
            continue
        for key, names in _entries(item):
            if key in asked:
                raise ValueError(f"activities names {key} more than once; name it once")
            asked.add(key)
            if names is not None:
                filters[key] = names
    if not asked:
        raise ValueError(
            "activities is empty, so there is nothing to record; leave it out for all that"
            " this machine has, or name at least memprof.ProfilerActivity.CPU"
        )
    return asked, filters


def _entries(item: object) -> "list[tuple[ProfilerActivity, set[str] | None]]":
    if isinstance(item, dict):
        return [(_as_activity(key), _filter(key, names)) for key, names in item.items()]
    return [(_as_activity(item), None)]


def _filter(key: object, names: object) -> set[str]:
    if isinstance(names, str) or not isinstance(names, Iterable):
        raise TypeError(
            f"activities: the filter of {key} is {names!r}, not a list of names; write"
            ' {ProfilerActivity.CUDA: ["GPU_MEMCPY"]}'
        )
    return {str(name) for name in names}


def _as_activity(value: object) -> "ProfilerActivity":
    member: Any = value
    if isinstance(value, _resolved("ProfilerActivity")):
        return member  # type: ignore[no-any-return]
    if isinstance(value, _Activity):
        return activity(value.name)
    raise TypeError(
        f"activities holds {value!r} of type {type(value).__name__}; each item must be a"
        " memprof.ProfilerActivity (or a dict of them with lists of names)"
    )
