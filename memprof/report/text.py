"""The answer in words: what held the memory at the peak, what grows, what is not known.
80 columns, the most important first."""

import os
import re
import sys
from collections.abc import Iterable, Iterator
from typing import IO, TYPE_CHECKING, Any, NamedTuple

from memprof.report import coverage
from memprof.report.units import (
    count,
    device_label,
    fit,
    fit_end,
    percent,
    seconds,
    short_path,
    size,
)

if TYPE_CHECKING:
    from memprof._grouping import Group
    from memprof.recording import Moment, Recording

_WIDTH = 80
_NAME_WIDTH = 50  # of a table's first column
_LINES, _MODULES, _SITES, _LAST_STEPS = 8, 6, 5, 3
_NO_MODULE = "(no module)"

# A line of output: pieces of text, each with a rich style or "".
_Line = list[tuple[str, str]]


class _Site(NamedTuple):
    """Growth of all allocation sites that share a line of the user."""

    bytes_per_step: float
    bytes_at_end: int
    survivors: int
    first_step: int
    where: str
    device: str


def summary(recording: "Recording", color: bool | None = None) -> str:
    """color: whether to use a terminal's colours; None means where stdout is one."""
    lines = list(_title(recording))
    for device in _devices_by_weight(recording):
        lines += _device(recording, device)
    lines += _growth(recording)
    lines += _unknown(recording)
    return (
        _paint(lines)
        if (wants_color(sys.stdout) if color is None else color)
        else _plain(lines)
    )


def wants_color(stream: IO[str]) -> bool:
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return bool(stream is not None and stream.isatty())


# ---- parts


def _title(recording: "Recording") -> Iterator[_Line]:
    program = recording.header.get("program", {})
    steps = len(recording.steps)
    facts = [count(steps, "step") if steps else "no steps"]
    facts.append(seconds(recording.stop_ns - recording.window_start_ns))
    if program.get("exit_status"):
        facts.append(f"exit status {program['exit_status']}")
    name = program.get("name") or _script(recording)
    yield _heading(f"Memory of {name}" if name else "Memory", ", ".join(facts))
    if not recording.devices():
        yield [("", "")]
        yield [("No allocation was seen.", "bold")]


def _script(recording: "Recording") -> str:
    argv = recording.header.get("environment", {}).get("argv") or [""]
    return os.path.basename(str(argv[0]))


def _devices_by_weight(recording: "Recording") -> list[str]:
    """Accelerators first, then by peak; without those that never held anything."""
    peaks = {name: recording.peak(name).allocated_bytes for name in recording.devices()}
    named = [name for name, peak in peaks.items() if peak > 0]
    return sorted(named, key=lambda name: (name == "cpu", -peaks[name]))


def _device(recording: "Recording", device: str) -> Iterator[_Line]:
    peak = recording.peak(device)
    yield [("", "")]
    yield [
        (f"{device_label(device)} peak ", "bold"),
        (size(peak.allocated_bytes), "bold yellow"),
        (f"  {_when(recording, peak)}", ""),
    ]
    if peak.reserved_bytes is not None and device != "cpu":
        unused = size(peak.reserved_bytes - peak.allocated_bytes)
        yield [(f"  the allocator held {size(peak.reserved_bytes)}, {unused} of it unused", "")]
    total = peak.allocated_bytes
    lines = [
        group._replace(name=fit_end(_line_name(group.name), _NAME_WIDTH - 1))
        for group in recording.by("line", peak)
    ]
    yield from _table("lines that allocated it", lines, _LINES, total)
    modules = recording.by("module", peak)
    if any(group.name != _NO_MODULE for group in modules):
        yield from _table("modules that allocated it", modules, _MODULES, total)
    yield from _phases(recording.by("phase", peak), total)
    yield from _steps(recording, device)


def _when(recording: "Recording", peak: "Moment") -> str:
    after = seconds(peak.time_ns - recording.window_start_ns)
    step = "" if peak.step is None else f"in step {peak.step}, "
    return f"{step}{after} after the start"


def _table(title: str, groups: "list[Group]", most: int, total: int) -> Iterator[_Line]:
    yield [("", "")]
    yield [(f"  {title:<{_NAME_WIDTH}}{'size':>11}{'blocks':>8}{'of peak':>9}", "dim")]
    shown = groups if len(groups) <= most + 1 else groups[:most]
    for group in shown:
        yield _row(str(group.name), group.bytes, group.blocks, total)
    if rest := groups[len(shown) :]:
        name = f"{len(rest)} more"
        yield _row(name, sum(g.bytes for g in rest), sum(g.blocks for g in rest), total, "dim")


def _row(name: str, held: int, blocks: int, total: int, style: str = "") -> _Line:
    return [
        (f"  {fit(name, _NAME_WIDTH - 1):<{_NAME_WIDTH}}", style or "cyan"),
        (f"{size(held):>11}", style or "bold"),
        (f"{blocks:>8,}{percent(held, total):>9}", style),
    ]


def _phases(groups: "list[Group]", total: int) -> Iterator[_Line]:
    parts = [f"{group.name} {percent(group.bytes, total)}" for group in groups]
    yield [("", "")]
    yield [("  allocated in  ", "dim"), (fit(", ".join(parts), _WIDTH - 16), "")]


def _steps(recording: "Recording", device: str) -> Iterator[_Line]:
    names = recording.devices()
    if len(recording.steps) < 2:
        return
    table = recording.step_table()[names.index(device) :: len(names)]
    highest = int(table["peak_bytes"].argmax())
    last = len(table) - 1
    chosen = sorted({0, highest, *range(max(last - _LAST_STEPS + 1, 0), last + 1)})
    yield [("", "")]
    yield [(f"  {'step':<14}{'peak':>12}{'at end':>12}{'allocated':>12}{'freed':>12}", "dim")]
    before = -1
    for place in chosen:
        if place > before + 1:
            yield [("  ...", "dim")]
        before = place
        row = table[place]
        mark = " highest" if place == highest else ""
        yield [
            (f"  {int(row['step']):<5}{mark:<9}", ""),
            (f"{size(row['peak_bytes']):>12}", "bold"),
            (f"{size(row['end_bytes']):>12}", ""),
            (f"{size(row['allocated_bytes']):>12}{size(row['freed_bytes']):>12}", "dim"),
        ]


def _growth(recording: "Recording") -> Iterator[_Line]:
    if not recording.devices() or len(recording.steps) == 0:
        return
    sites = _growing_sites(recording)
    yield [("", "")]
    if not sites:
        missing = recording.growth_steps_missing
        steps = count(len(recording.steps), "step")
        text = (
            f"cannot be told from {steps}: {count(missing, 'more is', 'more are')} needed"
            if missing
            else f"nothing, over {steps}"
        )
        yield [("grows  ", "bold"), (text, "")]
        return
    yield [("grows", "bold")]
    for site in sites[:_SITES]:
        yield [
            (f"  {size(site.bytes_per_step)} a step", "bold red"),
            (f" since step {site.first_step}: ", ""),
            (fit_end(site.where, _NAME_WIDTH), "cyan"),
        ]
        where = "" if site.device == "cpu" else f" on {site.device}"
        blocks = count(site.survivors, "block")
        yield [(f"    {blocks} alive at the end, {size(site.bytes_at_end)}{where}", "")]
    if len(sites) > _SITES:
        rest = sum(site.bytes_per_step for site in sites[_SITES:])
        yield [(f"  {count(len(sites) - _SITES, 'more line')}: {size(rest)} a step", "dim")]


def _growing_sites(recording: "Recording") -> list[_Site]:
    """Steepest first; sites of one line are one."""
    from memprof._devices import device_name

    merged: dict[tuple[str, str], _Site] = {}
    for row in recording.growth():
        frame = recording.user_frame(int(row["stack_id"]))
        where = _line_name(str(frame)) if frame is not None else "(no Python stack)"
        device = device_name(int(row["device_type"]), int(row["device_index"]))
        site = _Site(
            float(row["bytes_per_step"]),
            int(row["bytes_at_end"]),
            int(row["survivors"]),
            int(row["first_step"]),
            where,
            device,
        )
        known = merged.get((where, device))
        merged[where, device] = site if known is None else _joined(known, site)
    return sorted(merged.values(), key=lambda site: -site.bytes_per_step)


def _joined(one: _Site, other: _Site) -> _Site:
    return one._replace(
        bytes_per_step=one.bytes_per_step + other.bytes_per_step,
        bytes_at_end=one.bytes_at_end + other.bytes_at_end,
        survivors=one.survivors + other.survivors,
        first_step=min(one.first_step, other.first_step),
    )


def _unknown(recording: "Recording") -> Iterator[_Line]:
    sentences = coverage.gaps(recording)
    if not sentences:
        return
    yield [("", "")]
    yield [("not known", "bold")]
    for sentence in sentences:
        yield from _wrapped(sentence)


# ---- form


def _heading(left: str, right: str) -> _Line:
    left = fit(left, _WIDTH - len(right) - 2)
    return [(left, "bold"), (" " * (_WIDTH - len(left) - len(right)) + right, "dim")]


def _line_name(name: Any) -> str:
    """Of "file:line function", with the file as short as can be."""
    match = re.fullmatch(r"(.*):(\d+) (.*)", str(name), re.DOTALL)
    if match is None:
        return str(name)
    file, line, function = match.groups()
    return f"{short_path(file)}:{line} {function}"


def _wrapped(sentence: str) -> Iterator[_Line]:
    import textwrap

    lines = textwrap.wrap(sentence, _WIDTH - 4, break_long_words=False)
    for place, line in enumerate(lines):
        yield [("  - " if place == 0 else "    ", "dim"), (line, "")]


def _plain(lines: Iterable[_Line]) -> str:
    return "\n".join("".join(text for text, _ in line).rstrip() for line in lines) + "\n"


def _paint(lines: Iterable[_Line]) -> str:
    import io

    from rich.console import Console
    from rich.text import Text

    out = io.StringIO()
    console = Console(file=out, force_terminal=True, width=_WIDTH, highlight=False)
    for line in lines:
        pieces = [(text, style) if style else text for text, style in line]
        console.print(Text.assemble(*pieces), soft_wrap=True)
    return out.getvalue()
