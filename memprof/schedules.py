"""When to record: the schedule of profile(), as a function of the step number.

(The file is not named schedule.py because `memprof.schedule` is the function.)
"""

import functools
import operator
from collections.abc import Callable, Collection, Iterable
from typing import TYPE_CHECKING, Any

from memprof.activities import action, as_action

if TYPE_CHECKING:
    from memprof.activities import ProfilerAction

ScheduleFunction = Callable[[int], "ProfilerAction"]


def schedule(
    *,
    wait: int,
    warmup: int,
    active: int,
    repeat: int = 0,
    skip_first: int = 0,
    skip_first_wait: int = 0,
) -> "Cycles":
    """Cycles of `wait` idle, `warmup` and `active` recorded steps, `repeat` times (0: without
    end), after `skip_first` steps; with `skip_first_wait` the first cycle has no wait."""
    return Cycles(
        wait=step_count("schedule", "wait", wait),
        warmup=step_count("schedule", "warmup", warmup),
        active=step_count("schedule", "active", active, least=1),
        repeat=step_count("schedule", "repeat", repeat),
        skip_first=step_count("schedule", "skip_first", skip_first),
        # torch documents it as a flag and takes any number
        skip_first_wait=int(skip_first_wait)
        if isinstance(skip_first_wait, bool)
        else step_count("schedule", "skip_first_wait", skip_first_wait),
    )


def step_count(where: str, name: str, value: object, least: int = 0) -> int:
    """`value` as an int; TypeError or ValueError that names the argument."""
    cure = f"give a whole number of steps, {least} or more"
    if isinstance(value, bool):
        raise TypeError(f"{where}: {name}={value!r} is a bool; {cure}")
    try:
        number = operator.index(value)  # type: ignore[arg-type]
    except TypeError:
        raise TypeError(
            f"{where}: {name}={value!r} is of type {type(value).__name__}; {cure}"
        ) from None
    if number < least:
        raise ValueError(f"{where}: {name}={number} is too small; {cure}")
    return number


def _step_number(step: object) -> int:
    number = operator.index(step)  # type: ignore[arg-type]
    if number < 0:
        raise ValueError(f"the step number is {number}; steps count from 0")
    return number


class Cycles:
    """What schedule() returns."""

    def __init__(
        self,
        *,
        wait: int,
        warmup: int,
        active: int,
        repeat: int,
        skip_first: int,
        skip_first_wait: int,
    ) -> None:
        self.wait = wait
        self.warmup = warmup
        self.active = active
        self.repeat = repeat
        self.skip_first = skip_first
        self.skip_first_wait = skip_first_wait

    def __call__(self, step: int) -> "ProfilerAction":
        return action(self._phase(_step_number(step)))

    def _phase(self, step: int) -> str:
        if step < self.skip_first:
            return "NONE"
        step -= self.skip_first
        if self.skip_first_wait:
            step += self.wait  # the skipped wait counts as passed, also for repeat
        length = self.wait + self.warmup + self.active
        if self.repeat and step >= self.repeat * length:
            return "NONE"
        place = step % length
        if place < self.wait:
            return "NONE"
        if place < self.wait + self.warmup:
            return "WARMUP"
        return "RECORD" if place < length - 1 else "RECORD_AND_SAVE"

    @property
    def first_active(self) -> int:
        return self.skip_first + (0 if self.skip_first_wait else self.wait) + self.warmup

    def __repr__(self) -> str:
        arguments = ", ".join(f"{name}={value}" for name, value in vars(self).items())
        return f"memprof.schedule({arguments})"


class Steps:
    """A list or set of step numbers as a schedule: each step is a cycle of its own."""

    def __init__(self, numbers: Iterable[Any]) -> None:
        if not isinstance(numbers, range):
            numbers = frozenset(
                step_count("schedule", "a step number", number) for number in numbers
            )
        elif len(numbers) and min(numbers[0], numbers[-1]) < 0:
            raise ValueError(f"schedule={numbers} has negative steps; steps count from 0")
        if not numbers:
            raise ValueError(
                "schedule names no step, so nothing would ever be recorded; name at least"
                " one, or leave schedule out to record everything"
            )
        self.numbers: Collection[int] = numbers
        self.first_active = min(numbers)

    def __call__(self, step: int) -> "ProfilerAction":
        return action("RECORD_AND_SAVE" if _step_number(step) in self.numbers else "NONE")

    def __repr__(self) -> str:
        if isinstance(self.numbers, range):
            return repr(self.numbers)
        return repr(sorted(self.numbers))


def always_record(_step: int) -> "ProfilerAction":
    """The schedule of a profile that was given none."""
    return action("RECORD")


def as_schedule(value: object) -> ScheduleFunction:
    """The argument `schedule` of profile() as a function of the step number."""
    if value is None:
        return always_record
    if callable(value):
        return value
    if isinstance(value, (str, bytes, dict)) or not isinstance(value, Iterable):
        raise TypeError(
            f"schedule={value!r} is of type {type(value).__name__}; give"
            " memprof.schedule(wait=..., warmup=..., active=...), a function from step number"
            " to memprof.ProfilerAction, or a list of step numbers"
        )
    return Steps(value)


def ask(function: ScheduleFunction, step: int) -> "ProfilerAction":
    """What to do at `step`; TypeError or ValueError for an answer that is no action."""
    answer = function(step)
    found = as_action(answer)
    if found is None:
        raise TypeError(
            f"schedule returned {answer!r} of type {type(answer).__name__} for step {step};"
            " it must return a member of memprof.ProfilerAction (NONE, WARMUP, RECORD or"
            " RECORD_AND_SAVE) for every step"
        )
    if found.name == "DEVICE_STOPPED":
        raise ValueError(
            f"schedule returned ProfilerAction.DEVICE_STOPPED for step {step}; that is the"
            " profiler's own, return NONE, WARMUP, RECORD or RECORD_AND_SAVE"
        )
    return found


_PROBED_STEPS = 10_000  # a few ms; later than that a schedule's start is left unnamed


def first_active_step(function: ScheduleFunction) -> int | None:
    """The first step that the schedule records, where it can be told without calling a
    function of the user's, which may count its calls."""
    first = getattr(function, "first_active", None)
    if first is not None:
        return int(first)
    plain = function.func if isinstance(function, functools.partial) else function
    if getattr(plain, "__module__", None) != "torch.profiler.profiler":
        return None
    steps = range(_PROBED_STEPS)
    return next((k for k in steps if function(k).name.startswith("RECORD")), None)
