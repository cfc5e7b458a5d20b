"""What a recording does not know, one sentence each, with the cure where there is one."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from memprof.report.units import count, device_label, percent, size

if TYPE_CHECKING:
    from memprof.recording import Recording

# Reasons for a source to be off that are no news to the user.
_EXPECTED = ("not asked for", "no CUDA device", "CUDA was not used", "")
_NO_STACK = "(no Python stack)"
_UNNAMED_SHARE = 0.02  # of the peak; less without a line is not worth a sentence

_LOSSES = {
    "events_at_limit": "events after the memory limit are missing: raise max_memory"
    ' (--max-memory), or keep the last steps with at_limit="ring" (--at-limit ring)',
    "events_overwritten": "older events made room for newer ones, as asked for; a larger"
    " max_memory keeps more steps",
    "events_reentrant": "events were raised inside a hook of the same thread and left out",
    "stacks_at_limit": "events have no line: there was no room for a new stack; raise"
    " max_memory",
    "names_at_limit": "operators have no name: there was no room for a new one; raise"
    " max_memory",
    "shapes_at_limit": "operators have no shapes: too many, or no room; raise max_memory",
    "operators_too_deep": "operators were nested more than 512 deep and left out",
    "objects_at_limit": "code objects or modules were more than can be told apart",
    "threads_without_log": "threads were not recorded: no memory for their logs",
    "activities_at_limit": "rows of GPU activity are missing: raise max_memory",
    "activities_overwritten": "older rows of GPU activity made room for newer ones",
    "activities_dropped": "records of GPU activity were dropped by CUPTI",
    "activities_without_time": "records of GPU activity came without times and were left out",
    "activity_buffers_refused": "times there was no buffer for CUPTI, so records are missing:"
    " raise max_memory",
    "activity_buffers_foreign": "buffers of another CUPTI client came in and were left alone:"
    " two profilers ran at once",
    "activity_buffers_broken": "buffers of CUPTI could not be read to their end",
    "activities_of_unknown_kind": "records of GPU activity were of a kind not known here",
}


def gaps(recording: "Recording") -> list[str]:
    found = recording.coverage
    return [*_sources(found), *_limits(found), *_devices(recording), *_lines(recording)]


def _sources(found: dict[str, Any]) -> Iterator[str]:
    off = {
        name: source.get("reason", "")
        for name, source in found.get("sources", {}).items()
        if not source.get("on") and source.get("reason", "") not in _EXPECTED
    }
    reasons: dict[str, list[str]] = {}
    for name, reason in off.items():
        reasons.setdefault(reason, []).append(name)
    for reason, names in reasons.items():
        yield f"{', '.join(names)}: off, because {reason}"


def _limits(found: dict[str, Any]) -> Iterator[str]:
    for key, number in found.get("losses", {}).items():
        if number:
            yield f"{number:,} {_LOSSES.get(key, key.replace('_', ' '))}"
    if found.get("other_tool_in_slots"):
        yield "another tool had hooked torch's allocator; it saw nothing meanwhile"
    if left := found.get("slots_left_in_place"):
        hooks = count(left, "hook")
        yield f"{hooks} could not be taken out again, since another tool chained onto them"


def _devices(recording: "Recording") -> Iterator[str]:
    for balance in recording.balance():
        device = device_label(balance.device)
        if not balance.balanced:
            yield (
                f"{device}: the numbers do not add up: {size(balance.start_bytes)} at"
                f" the start + {size(balance.allocated_bytes)} allocated -"
                f" {size(balance.freed_bytes)} freed is not {size(balance.end_bytes)}"
            )
        older = recording.coverage.get("older_cpu_blocks") and balance.device == "cpu"
        if balance.unknown_frees or older:
            died = f" ({balance.unknown_frees} of those blocks died in it)"
            yield (
                f"{device}: what was live before the recording began is in no figure"
                f"{died if balance.unknown_frees else ''}; start it before the model is"
                " made, or use memprof run"
            )
        elif balance.notes:
            yield from (f"{device}: {note}" for note in balance.notes)


def _lines(recording: "Recording") -> Iterator[str]:
    for device in recording.devices():
        peak = recording.peak(device)
        if peak.allocated_bytes <= 0:
            continue
        for group in recording.by("line", peak):
            if group.name == _NO_STACK and group.bytes > _UNNAMED_SHARE * peak.allocated_bytes:
                share = percent(group.bytes, peak.allocated_bytes)
                yield (
                    f"{device_label(device)}: {size(group.bytes)} of the peak ({share}) have no line: torch"
                    " allocated them on threads without Python"
                )
