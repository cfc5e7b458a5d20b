"""The answer for machines: what summary() says, as plain values. Keys are only added within
a version; sizes are bytes, times ns."""

from typing import TYPE_CHECKING, Any

from memprof._devices import device_name
from memprof.report import coverage

if TYPE_CHECKING:
    from memprof.recording import Recording

VERSION = 1
_KEYS = ("line", "module", "phase")


def to_dict(recording: "Recording") -> dict[str, Any]:
    return {
        "version": VERSION,
        "start_ns": recording.start_ns,
        "window_start_ns": recording.window_start_ns,
        "stop_ns": recording.stop_ns,
        "devices": {name: _device(recording, name) for name in recording.devices()},
        "growth": [_site(recording, row) for row in recording.growth()],
        "growth_steps_missing": recording.growth_steps_missing,
        "not_known": coverage.gaps(recording),
        "coverage": recording.coverage,
        "header": {key: value for key, value in recording.header.items() if key != "coverage"},
    }


def _device(recording: "Recording", name: str) -> dict[str, Any]:
    peak = recording.peak(name)
    balance = recording.balance()[recording.devices().index(name)]
    return {
        "peak": {
            "time_ns": peak.time_ns,
            "step": peak.step,
            "allocated_bytes": peak.allocated_bytes,
            "reserved_bytes": peak.reserved_bytes,
            "by": {key: _groups(recording, key, name) for key in _KEYS},
        },
        "start_bytes": balance.start_bytes,
        "allocated_bytes": balance.allocated_bytes,
        "freed_bytes": balance.freed_bytes,
        "end_bytes": balance.end_bytes,
        "balanced": balance.balanced,
        "unknown_frees": balance.unknown_frees,
        "steps": _steps(recording, name),
    }


def _groups(recording: "Recording", key: str, device: str) -> list[dict[str, Any]]:
    groups = recording.by(key, recording.peak(device))
    return [{"name": g.name, "bytes": g.bytes, "blocks": g.blocks} for g in groups]


def _steps(recording: "Recording", device: str) -> list[dict[str, int]]:
    names = recording.devices()
    rows = recording.step_table()[names.index(device) :: len(names)]
    fields = [name for name in rows.dtype.names or () if not name.startswith("device_")]
    return [{name: int(row[name]) for name in fields} for row in rows]


def _site(recording: "Recording", row: Any) -> dict[str, Any]:
    frame = recording.user_frame(int(row["stack_id"]))
    return {
        "device": device_name(int(row["device_type"]), int(row["device_index"])),
        "file": frame.file if frame else None,
        "line": frame.line if frame else None,
        "function": frame.function if frame else None,
        "bytes_per_step": float(row["bytes_per_step"]),
        "low": float(row["low"]),
        "high": float(row["high"]),
        "bytes_at_end": int(row["bytes_at_end"]),
        "survivors": int(row["survivors"]),
        "first_step": int(row["first_step"]),
        "stack": [str(frame) for frame in recording.stacks[int(row["stack_id"])]],
    }
