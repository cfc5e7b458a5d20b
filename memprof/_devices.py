"""Devices as people name them: "cpu", "cuda:0", a torch.device, or a CUDA index."""

import operator
from collections.abc import Sequence
from typing import Any

# c10::DeviceType, as torch.device prints it.
_TYPE_NAMES = {
    0: "cpu",
    1: "cuda",
    6: "hip",
    9: "xla",
    12: "xpu",
    13: "mps",
    14: "meta",
    15: "hpu",
    19: "mtia",
    20: "privateuseone",
}


def device_name(device_type: int, device_index: int) -> str:
    name = _TYPE_NAMES.get(device_type, f"device{device_type}")
    return name if device_index < 0 or device_type == 0 else f"{name}:{device_index}"


def find_device(device: Any, names: Sequence[str]) -> int:
    """The place in `names` that `device` means; TypeError or ValueError otherwise."""
    wanted = _wanted_name(device)
    if wanted in names:
        return names.index(wanted)
    same_type = [name for name in names if name.split(":")[0] == wanted]
    if len(same_type) == 1:  # "cuda" where there is one
        return names.index(same_type[0])
    there = ", ".join(map(repr, names)) if names else "none: it holds no allocator events"
    raise ValueError(
        f"device={device!r} is not in this recording; its devices: {there}"
        + ("; give the index too" if same_type else "")
    )


def _wanted_name(device: Any) -> str:
    if isinstance(device, str):
        return device.strip().lower()
    kind, index = getattr(device, "type", None), getattr(device, "index", None)
    if isinstance(kind, str):
        return kind if index is None else f"{kind}:{index}"
    if not isinstance(device, bool):
        try:
            return f"cuda:{operator.index(device)}"
        except TypeError:
            pass
    raise TypeError(
        f"device={device!r} is of type {type(device).__name__}; give a name such as"
        ' "cpu" or "cuda:0", a torch.device, or the index of a CUDA device'
    )
