"""Numbers and paths as people read them."""

import os
import sysconfig

_UNITS = ("KiB", "MiB", "GiB", "TiB")


def size(count: float) -> str:
    """1536 -> "1.5 KiB": three digits are enough to compare by eye."""
    value, unit = float(count), "B"
    for larger in _UNITS:
        if abs(value) < 999.5:  # else three digits would not hold it
            break
        value, unit = value / 1024, larger
    if unit == "B":
        return f"{value:.0f} B"
    digits = 0 if abs(value) >= 99.95 else 1 if abs(value) >= 9.995 else 2
    return f"{value:.{digits}f} {unit}"


def percent(part: float, whole: float) -> str:
    if whole <= 0:
        return ""
    share = 100 * part / whole
    return "<1%" if 0 < share < 0.95 else f"{share:.0f}%"


def seconds(ns: float) -> str:
    value = ns / 1e9
    if value >= 120:
        return f"{int(value // 60)} min {int(value % 60)} s"
    return f"{value:.1f} s" if value >= 1 else f"{value * 1000:.0f} ms"


def device_label(name: str) -> str:
    return "CPU" if name == "cpu" else name


def count(number: int, one: str, many: str | None = None) -> str:
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def short_path(path: str) -> str:
    """Relative to the current folder where it lies below it, else from its package on."""
    if not os.path.isabs(path):
        return path
    for parts in ("/site-packages/", "/dist-packages/"):
        if parts in path:
            return path.rpartition(parts)[2]
    below = _below(path, os.getcwd())
    if below is not None:
        return below
    library = _below(path, sysconfig.get_path("stdlib"))
    return library if library is not None else path


def _below(path: str, folder: str) -> str | None:
    start = folder.rstrip(os.sep) + os.sep
    return path[len(start) :] if path.startswith(start) else None


def fit(text: str, width: int) -> str:
    """Cut in the middle."""
    if len(text) <= width:
        return text
    kept = width - 3
    head = kept // 2
    return text[:head] + "..." + text[len(text) - (kept - head) :]


def fit_end(text: str, width: int) -> str:
    """Cut at the front: the end of a path and its line number say most."""
    return text if len(text) <= width else "..." + text[3 - width :]
