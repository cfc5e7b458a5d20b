"""The arguments of profile(): checks at the door, and what follows from them."""

import os
import uuid
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from memprof import activities as _activities
from memprof._notices import last_line, notify
from memprof._window import Observer
from memprof.sizes import parse_size

if TYPE_CHECKING:
    from memprof.activities import ProfilerActivity
    from memprof.profiler import profile

Say = Callable[[str], None]

LEAST_MEMORY = 4 << 20  # below that the recorder's own tables do not fit
_RECORDED_DEVICES = ("CPU", "CUDA")
# (activity, torch's name of the device), in torch's order of preference
_DEVICE_NAMES = (("CUDA", "cuda"), ("XPU", "xpu"), ("MTIA", "mtia"), ("HPU", "hpu"))
_FLAGS = ("profile_memory", "with_stack", "record_shapes", "with_modules", "with_flops")


def check_callable(name: str, value: object) -> None:
    if value is not None and not callable(value):
        raise TypeError(
            f"{name}={value!r} is of type {type(value).__name__}; give a function, or None"
        )


def checked_timeout(seconds: float | None) -> float | None:
    if seconds is not None and not seconds >= 0:
        raise ValueError(
            f"post_processing_timeout_s={seconds!r} is negative; give seconds, or None for no"
            " limit"
        )
    return seconds


def checked_limit(value: str) -> str:
    if value not in ("stop", "ring"):
        raise ValueError(
            f'at_limit={value!r} is unknown; give "stop" (the window ends when max_memory is'
            ' used up) or "ring" (the last whole steps are kept)'
        )
    return value


def checked_memory(value: int | str) -> int:
    return parse_size(value, "max_memory", LEAST_MEMORY)


def asked_activities(
    items: Iterable[Any] | None, use_cuda: bool | None
) -> "tuple[set[ProfilerActivity], dict[ProfilerActivity, set[str]]]":
    filters: dict[ProfilerActivity, set[str]] = {}
    if items is None:
        asked = _activities.supported_activities()
    else:
        asked, filters = _activities.parse_activities(items)
    if use_cuda is None:
        return asked, filters
    notify(
        "use_cuda is deprecated; name the devices in activities=[...] instead", FutureWarning
    )
    cuda = _activities.activity("CUDA")
    if use_cuda:
        asked.add(cuda)
    elif asked == {cuda}:
        raise ValueError(
            "use_cuda=False takes away the only activity; add memprof.ProfilerActivity.CPU to"
            " activities"
        )
    else:
        asked.discard(cuda)
        filters.pop(cuda, None)
    return asked, filters


def device_name(asked: "set[ProfilerActivity]") -> str | None:
    """The accelerator asked for, by torch's name; None for the CPU alone."""
    names = {item.name for item in asked}
    for activity, device in _DEVICE_NAMES:
        if activity in names:
            return device
    if "PrivateUse1" in names:
        import torch

        return str(torch._C._get_privateuse1_backend_name())
    return None


def observer_from_env() -> Observer | None:
    """torch's execution trace observer where its environment variable asks for one."""
    if os.environ.get("ENABLE_PYTORCH_EXECUTION_TRACE", "0") != "1":
        return None
    torch = _activities.torch_profiler()
    build = getattr(
        getattr(torch, "ExecutionTraceObserver", None),
        "build_execution_trace_obs_from_env",
        None,
    )
    return build() if build else None


def collection_options(prof: "profile", say: Say) -> dict[str, Any]:
    """Keywords for Collection, from the attributes as they are now. RuntimeError where
    nothing that was asked for exists here."""
    recorded = _present_devices(prof.activities, say)
    return {
        "stacks": bool(prof.with_stack),
        "operators": bool(prof.operators) and _wants(prof, recorded, "CPU"),
        "shapes": bool(prof.record_shapes or prof.with_flops),
        "memory": bool(prof.profile_memory),
        "cuda": _wants(prof, recorded, "CUDA"),
        "gpu": bool(prof.operators) and _wants(prof, recorded, "CUDA"),
        "max_bytes": checked_memory(prof.max_memory),
        "ring": prof.at_limit == "ring",
    }


def _wants(prof: "profile", recorded: set[str], name: str) -> bool:
    if name not in recorded:
        return False
    chosen = prof.activity_filters.get(_activities.activity(name))
    return chosen is None or bool(chosen)  # an empty filter means nothing of that group


def _present_devices(asked: "set[ProfilerActivity]", say: Say) -> set[str]:
    names = {item.name for item in asked}
    missing = names.difference(_RECORDED_DEVICES)
    if "CUDA" in names and not cuda_available():
        missing.add("CUDA")
    present = names - missing
    if not present:
        raise RuntimeError(
            f"activities asks for {_listed(missing)} only, and there is none here that memprof"
            " can record; add memprof.ProfilerActivity.CPU, or leave activities out to record"
            " what this machine has"
        )
    if "CUDA" in missing:
        say(
            "CUDA is not available, so only CPU memory is recorded; leave activities out to"
            " record what the machine has, or check torch.cuda.is_available()"
        )
    if others := missing - {"CUDA"}:
        say(f"memprof records CPU and CUDA memory; {_listed(others)} is left out")
    return present


def cuda_available() -> bool:
    if _activities.torch_profiler() is None:
        return False
    import torch

    return torch.cuda.is_available()


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names))


def new_trace_id(callback: Callable[[], str] | None, say: Say) -> str:
    """The user's id, or 32 upper-case hexadecimal digits."""
    if callback is not None:
        try:
            mine = callback()
            if isinstance(mine, str):
                return mine
            problem = f"it returned {mine!r}, not a str"
        except Exception as error:  # noqa: BLE001
            problem = last_line(error)
        say(f"custom_trace_id_callback failed: {problem}; a random trace id is used")
    return uuid.uuid4().hex.upper()


def option_flags(prof: "profile") -> dict[str, Any]:
    """The marks that torch sets at the head of a trace for each option in use."""
    return {name: 1 for name in _FLAGS if getattr(prof, name)}


def options_asked(prof: "profile") -> dict[str, Any]:
    """For the recording's header: every option, as plain values."""
    return {
        "activities": sorted(item.name for item in prof.activities),
        "activity_filters": {
            key.name: sorted(names) for key, names in prof.activity_filters.items()
        },
        "schedule": repr(prof.schedule) if prof.record_steps else None,
        **{name: bool(getattr(prof, name)) for name in _FLAGS},
        "operators": bool(prof.operators),
        "max_memory": checked_memory(prof.max_memory),
        "at_limit": prof.at_limit,
    }
