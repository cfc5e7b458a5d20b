"""What was recorded: columns, and the first answers on them."""

import copy
import json
import os
from collections.abc import Sequence
from functools import cached_property
from typing import IO, Any, NamedTuple

import numpy as np

from memprof import _core, _files
from memprof._devices import device_name, find_device
from memprof._grouping import Group, group_blocks
from memprof._texts import Frame, Stacks, Strings, user_frame

__all__ = ["Balance", "Frame", "Group", "Moment", "Recording", "load"]

_Array = np.ndarray[Any, Any]
_ALLOC, _FREE = 1, 2  # kind of an allocation
_MISSED_FREE = 8  # flag of a block

_STEP_MEMORY_COLUMNS = (
    "start_bytes",
    "peak_bytes",
    "peak_ns",
    "end_bytes",
    "allocated_bytes",
    "freed_bytes",
    "device_type",
    "device_index",
)
_STEP_TABLE = np.dtype(
    [("step", "i8"), ("start_ns", "i8"), ("end_ns", "i8")]
    + [(name, "i1" if name.startswith("device") else "i8") for name in _STEP_MEMORY_COLUMNS]
)


class Moment(NamedTuple):
    """An instant of one device. step is None outside all steps, reserved_bytes None where
    the allocator does not say."""

    time_ns: int
    device: str
    allocated_bytes: int
    reserved_bytes: int | None
    step: int | None


class Balance(NamedTuple):
    """start + allocated - freed == end on one device; notes say what is not known."""

    device: str
    start_bytes: int
    allocated_bytes: int
    freed_bytes: int
    end_bytes: int
    balanced: bool
    unknown_frees: int
    notes: tuple[str, ...]


_DEVICE_NOTES = {
    1: "blocks from before the recording are not all known",
    2: "the blocks known at the start do not sum to the allocator's total",
    4: "the allocator's total moved without an event: events are missing",
    8: "frees were missed: addresses were given out again while still taken",
}


class Recording:
    """Immutable. Arrays are read-only views of the recording's own memory; times are ns on
    one clock, sizes bytes; an id points one past its row (0 = none), except that string and
    stack ids index `.strings` and `.stacks` directly."""

    def __init__(self, core: _core.Recording, header: dict[str, Any] | None = None) -> None:
        self._core = core
        self._header = copy.deepcopy(header or {})

    def __repr__(self) -> str:
        peaks = ", ".join(
            f"{moment.allocated_bytes:,} bytes on {moment.device}"
            for moment in map(self.peak, self.devices())
        )
        return (
            f"<memprof.Recording: {len(self.steps)} steps, {len(self.allocations)} allocator"
            f" events, {len(self.operators)} operators, peak {peaks or 'unknown'}>"
        )

    # ---- columns

    @cached_property
    def allocations(self) -> _Array:
        """One row an allocator event, warm-up included."""
        return self._core.table("allocations")

    @cached_property
    def operators(self) -> _Array:
        return self._core.table("operators")

    @cached_property
    def steps(self) -> _Array:
        return self._core.table("steps")

    @cached_property
    def spans(self) -> _Array:
        return self._core.table("spans")

    @cached_property
    def blocks(self) -> _Array:
        """One row a block, in order of birth; birth_ns is -1 for those from before the
        recording, death_ns -1 for those alive at its end."""
        return self._core.table("blocks")

    @cached_property
    def modules(self) -> _Array:
        return self._core.table("modules")

    @cached_property
    def threads(self) -> _Array:
        return self._core.table("threads")

    @cached_property
    def activities(self) -> _Array:
        """GPU activity, in order of start: device work, the API calls that gave it, and the
        driver's own memory; empty where none was recorded. `kind` indexes
        `memprof._core.activity_kinds`; launch_id names the row of the call."""
        return self._core.table("activities")

    @cached_property
    def strings(self) -> Sequence[str]:
        return Strings(self._core)

    @cached_property
    def stacks(self) -> Sequence[tuple[Frame, ...]]:
        strings = self.strings
        assert isinstance(strings, Strings)
        return Stacks(self._core, strings)

    def user_frame(self, stack_id: int) -> Frame | None:
        """The line to blame: the stack's innermost frame outside torch, memprof and the
        standard library; if there is none, its innermost; None for an empty stack."""
        return user_frame(self.stacks[stack_id])

    @property
    def start_ns(self) -> int:
        """Collection began; blocks born from here on are known."""
        return self._core.start_ns

    @property
    def window_start_ns(self) -> int:
        """What was asked for begins: after warm-up."""
        return self._core.window_start_ns

    @property
    def stop_ns(self) -> int:
        return self._core.stop_ns

    # ---- what was asked and seen

    @property
    def header(self) -> dict[str, Any]:
        """A copy of what the recording says of itself: options, coverage, environment,
        metadata."""
        return copy.deepcopy(self._header)

    @property
    def coverage(self) -> dict[str, Any]:
        """What was asked, seen and lost, and why."""
        coverage: dict[str, Any] = copy.deepcopy(self._header.get("coverage", {}))
        return coverage

    def with_metadata(self, values: dict[str, Any]) -> "Recording":
        """The same recording with more metadata; the columns are shared."""
        metadata = {**self._header.get("metadata", {}), **values}
        return Recording(self._core, {**self._header, "metadata": metadata})

    # ---- devices

    def devices(self) -> list[str]:
        """Names of the devices with allocator events or blocks: "cpu", "cuda:0", ..."""
        return list(self._device_names)

    def balance(self) -> list[Balance]:
        """For each device the identity that every sum here rests on, and whether it holds."""
        return [
            Balance(
                name,
                int(row["start_bytes"]),
                int(row["allocated_bytes"]),
                int(row["freed_bytes"]),
                int(row["end_bytes"]),
                bool(row["balanced"]),
                int(row["unknown_frees"]),
                tuple(text for bit, text in _DEVICE_NOTES.items() if row["flags"] & bit),
            )
            for name, row in zip(self._device_names, self._device_rows, strict=True)
        ]

    @cached_property
    def _device_rows(self) -> _Array:
        return self._core.table("devices")

    @cached_property
    def _device_names(self) -> tuple[str, ...]:
        return tuple(
            device_name(int(row["device_type"]), int(row["device_index"]))
            for row in self._device_rows
        )

    def _device_row(self, device: Any) -> tuple[int, Any]:
        """By default the device with the highest peak, accelerators before the CPU."""
        rows = self._device_rows
        if device is not None:
            place = find_device(device, self._device_names)
        elif len(rows) == 0:
            raise ValueError(
                "this recording holds no allocator events, so it has no peak; .coverage says"
                " which sources were on"
            )
        else:
            place = max(
                range(len(rows)),
                key=lambda i: (rows[i]["device_type"] != 0, rows[i]["peak_bytes"]),
            )
        return place, rows[place]

    # ---- answers

    def peak(self, device: Any = None) -> Moment:
        """The instant of the highest total in the window. Without `device`: of the
        accelerator with the highest peak, or of the CPU where there is none."""
        place, row = self._device_row(device)
        reserved, step = int(row["reserved_at_peak_bytes"]), int(row["peak_step"])
        return Moment(
            int(row["peak_ns"]),
            self._device_names[place],
            int(row["peak_bytes"]),
            reserved if reserved >= 0 else None,
            step if step >= 0 else None,
        )

    def live(self, at: Any = None, device: Any = None) -> _Array:
        """The rows of .blocks that are alive at a time in ns (events at that very time
        count), at a Moment, or by default at the peak. Without `device`: of the Moment's
        device, or of all devices for a time."""
        rows = self.blocks[self._alive(at, device)]
        rows.flags.writeable = False
        return rows

    def by(self, key: str | Sequence[str], at: Any = None, device: Any = None) -> list[Group]:
        """The blocks of live(at, device) added up by "category", "module", "line",
        "operator", "stack", "phase" or "thread", or by a tuple of these (then a group's
        name is a tuple), largest first."""
        return group_blocks(self, self.live(at, device), key)

    def _alive(self, at: Any, device: Any) -> _Array:
        blocks = self.blocks
        if at is None:
            at = self.peak(device)
        moment = at if isinstance(at, Moment) else None
        time_ns = _checked_time(at.time_ns if moment is not None else at)
        if device is None and moment is not None:
            device = moment.device
        alive: _Array = (blocks["birth_ns"] <= time_ns) & (
            (blocks["death_ns"] == -1) | (blocks["death_ns"] > time_ns)
        )
        if device is not None:
            place, row = self._device_row(device)
            if moment is not None and moment.device == self._device_names[place]:
                self._undo_later(alive, moment, row)
            alive &= (blocks["device_type"] == row["device_type"]) & (
                blocks["device_index"] == row["device_index"]
            )
        return alive

    def _undo_later(self, alive: _Array, moment: Moment, row: Any) -> None:
        """A Moment lies after the event that made its total: takes back the events after
        it that have the same time."""
        times = self.allocations["time_ns"]
        begin, end = np.searchsorted(times, [moment.time_ns, moment.time_ns + 1])
        tied = self.allocations[begin:end]
        tied = tied[
            (tied["device_type"] == row["device_type"])
            & (tied["device_index"] == row["device_index"])
        ]
        reached = np.flatnonzero(tied["allocated_bytes"] == moment.allocated_bytes)
        later = tied[reached[0] + 1 :] if len(reached) else tied
        if len(later) == 0:
            return
        blocks = self.blocks
        same_time = (blocks["birth_ns"] == moment.time_ns) | (
            blocks["death_ns"] == moment.time_ns
        )
        tied_rows = np.flatnonzero(
            same_time
            & (blocks["device_type"] == row["device_type"])
            & (blocks["device_index"] == row["device_index"])
        ).tolist()
        for event in later[::-1]:
            places = [i for i in tied_rows if blocks[i]["address"] == event["address"]]
            if event["kind"] == _ALLOC and places:
                alive[places[-1]] = False
                tied_rows.remove(places.pop())
                if places and blocks[places[-1]]["flags"] & _MISSED_FREE:
                    alive[places[-1]] = True
            elif event["kind"] == _FREE and places:
                alive[places[-1]] = True

    def step_table(self) -> _Array:
        """One row a step and device: its peak, bytes at its start and end, what was
        allocated and freed in it."""
        memory, steps = self._core.table("step_memory"), self.steps
        devices = len(self._device_rows)
        table = np.zeros(len(steps) * devices, _STEP_TABLE)
        if len(memory) != len(table):
            raise ValueError("the tables steps, devices and step_memory do not fit together")
        for name in ("start_ns", "end_ns"):
            table[name] = np.repeat(steps[name], devices)
        table["step"] = np.repeat(steps["number"], devices)
        for name in _STEP_MEMORY_COLUMNS:
            table[name] = memory[name]
        table.flags.writeable = False
        return table

    def growth(self) -> _Array:
        """Allocation sites of which more is alive at each step's end, steepest first:
        bytes_per_step with its interval low..high, survivors, bytes_at_end, first_step,
        steps_used, stack_id, device_type, device_index. See growth_steps_missing."""
        rows = self._growth.view()
        rows.flags.writeable = False
        return rows

    @property
    def growth_steps_missing(self) -> int:
        """How many more steps growth() needs before it can say anything; 0 when it can."""
        return max(_core.growth_steps_needed - len(self.steps), 0)

    @cached_property
    def _growth(self) -> _Array:
        return _core.growth(self._core)

    def summary(self, color: bool | None = None) -> str:
        """Where the memory went, in words."""
        from memprof.report.text import summary

        text: str = summary(self, color=color)
        return text

    def to_dict(self) -> dict[str, Any]:
        """The same for machines: plain values, with a version."""
        from memprof.report.data import to_dict

        return to_dict(self)

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), indent=2)

    # ---- files

    def save(self, path: str | os.PathLike[str], *, compress: bool = True) -> None:
        """To a file that memprof.load() reads, and numpy.load() too: a zip of .npy columns
        and one JSON header. It appears whole or not at all; OSError when it cannot."""
        _files.save(_checked_path(path), self._core, self._header, compress)

    def export_chrome_trace(
        self, path: str | os.PathLike[str] | IO[bytes], **options: Any
    ) -> None:
        """For Perfetto and chrome://tracing, gzipped if the name ends in .gz; a binary file
        object will do too. OSError when it cannot be written, and nothing is left behind.

        options: call_stacks=False (the text of the Python stack on each operator),
        python_functions=True (bars rebuilt from the stacks), counter_points=20000 (most
        points of a device's curve; its peaks are kept).
        """
        from memprof import trace

        trace.export_chrome_trace(self._core, path, header=self._header, **options)

    def export_tensorboard(
        self,
        dir: str | os.PathLike[str],
        worker_name: str | None = None,
        use_gzip: bool = False,
    ) -> str:
        """A trace in the layout that TensorBoard's profiler page reads; its path."""
        from memprof import trace

        return trace.export_tensorboard(
            self._core, dir, worker_name, use_gzip, header=self._header
        )


def load(path: str | os.PathLike[str]) -> Recording:
    """The recording that save() wrote. OSError when the file cannot be read, ValueError when
    it is no recording, is cut short or contradicts itself."""
    return Recording(*_files.load(_checked_path(path)))


def _checked_path(path: Any) -> str:
    if not isinstance(path, (str, os.PathLike)):
        raise TypeError(
            f"path={path!r} is of type {type(path).__name__}; give a str or a pathlib.Path"
        )
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"path={path!r} is not text; give a str or a pathlib.Path")
    return text


def _checked_time(at: Any) -> int:
    try:
        if isinstance(at, bool):
            raise TypeError
        return int(at.__index__())
    except (AttributeError, TypeError):
        raise TypeError(
            f"at={at!r} is of type {type(at).__name__}; give a time in ns (an int, as in"
            " .allocations['time_ns']), a Moment such as .peak(), or nothing for the peak"
        ) from None
