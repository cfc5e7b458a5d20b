"""What a profile has seen between start() and stop(), and the sentences that say it."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memprof import schedules

if TYPE_CHECKING:
    from memprof.activities import ProfilerAction

NOT_STARTED = (
    "there is no recording yet: the profiler was not started; use"
    " `with memprof.profile(...) as prof:` or call prof.start() and prof.stop()"
)
STILL_RECORDING = (
    "there is no recording yet: the first window is still being recorded; leave the with"
    " block or call stop() first, or export in on_trace_ready, which is called when a window"
    " ends"
)
IN_CHILD = (
    "there is no recording: this process was forked from the one that records; start a"
    " profile of its own here, or read the recording in the parent"
)


@dataclass
class Run:
    steps: int = 0  # calls of step()
    windows: int = 0  # windows that began
    said_lost: bool = False  # the user was told that a window was lost
    in_parent: bool = False  # it goes on in the process that this one was forked from


def ends_cycle(previous: "ProfilerAction", current: "ProfilerAction", recording: bool) -> bool:
    """Whether the window that there is under `previous`, recording or in warm-up, is over
    when `current` begins. A schedule that falls from RECORD to NONE or WARMUP ends its cycle
    too, and its data is kept."""
    if previous.name == "RECORD_AND_SAVE" or current.name == "NONE":
        return True
    return recording and current.name == "WARMUP"


def warmup_dropped_text(step: int) -> str:
    return (
        f"the schedule went from WARMUP to NONE at step {step}, so nothing of that cycle is"
        " recorded; after WARMUP it must return RECORD or RECORD_AND_SAVE"
    )


def never_active_text(run: Run, schedule: schedules.ScheduleFunction) -> str:
    """Why a run that is over left nothing, and what to do."""
    if run.steps == 0:
        seen = "step() was never called, so the schedule saw only step 0"
        cure = "call step() on the profiler after each training step"
    else:
        seen = (
            f"step() was called {_times(run.steps)}, so the schedule saw steps 0 to {run.steps}"
        )
        cure = "run more steps, or give a schedule that is active earlier"
    first = schedules.first_active_step(schedule)
    if first is not None:
        seen += f"; it records from step {first} on"
    return (
        f"nothing was recorded: the schedule never became active ({seen}). To fix it, {cure}."
    )


def waiting_text(run: Run, schedule: schedules.ScheduleFunction) -> str:
    first = schedules.first_active_step(schedule)
    hint = f" and records from step {first} on" if first is not None else ""
    return (
        "there is no recording yet: the schedule has not finished a cycle; step() was called"
        f" {_times(run.steps)}{hint}. Read the result in on_trace_ready or after the block."
    )


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count} times"
