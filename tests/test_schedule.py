"""schedule() against torch.profiler.schedule, step lists, and their errors."""

import functools
import pickle

import numpy as np
import pytest
import torch.profiler
from hypothesis import given
from hypothesis import strategies as st

import memprof
from memprof import schedules

COUNT = st.integers(0, 5)


@given(COUNT, COUNT, st.integers(1, 5), COUNT, COUNT, COUNT)
def test_same_phases_as_torch(wait, warmup, active, repeat, skip_first, skip_first_wait):
    arguments = {
        "wait": wait,
        "warmup": warmup or 1,  # torch warns without
        "active": active,
        "repeat": repeat,
        "skip_first": skip_first,
        "skip_first_wait": skip_first_wait,
    }
    ours, theirs = memprof.schedule(**arguments), torch.profiler.schedule(**arguments)
    assert [ours(step) for step in range(70)] == [theirs(step) for step in range(70)]
    first = schedules.first_active_step(ours)
    if theirs(first).name.startswith("RECORD"):  # else repeat ends before
        assert first == schedules.first_active_step(theirs)
        assert all(not ours(step).name.startswith("RECORD") for step in range(first))


def test_no_warmup_gives_no_warning_and_the_same_phases(recwarn):
    ours = memprof.schedule(wait=1, warmup=0, active=2)
    assert not recwarn.list
    with pytest.warns(UserWarning, match="warmup"):
        theirs = torch.profiler.schedule(wait=1, warmup=0, active=2)
    assert [ours(step) for step in range(9)] == [theirs(step) for step in range(9)]


def test_members_are_torchs_own():
    for step in range(4):
        assert isinstance(
            memprof.schedule(wait=1, warmup=1, active=2)(step), torch.profiler.ProfilerAction
        )


GOOD = {"wait": 1, "warmup": 1, "active": 1}


@pytest.mark.parametrize("name", ["wait", "warmup", "active", "repeat", "skip_first"])
@pytest.mark.parametrize("value", [0.5, 1.0, True, "1", None, [1]])
def test_wrong_type_is_named(name, value):
    with pytest.raises(TypeError, match=f"{name}=.*whole number of steps"):
        memprof.schedule(**{**GOOD, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [("wait", -1), ("warmup", -2), ("active", 0), ("repeat", -1), ("skip_first", -1)]
    + [("skip_first_wait", -3)],
)
def test_wrong_value_is_named(name, value):
    with pytest.raises(ValueError, match=f"{name}={value} .*or more"):
        memprof.schedule(**{**GOOD, name: value})


def test_flag_and_numpy_numbers():
    assert memprof.schedule(**GOOD, skip_first_wait=True)(0).name == "WARMUP"
    assert (
        memprof.schedule(wait=np.int64(1), warmup=np.int32(1), active=1)(2).name[:6] == "RECORD"
    )


def test_negative_step():
    with pytest.raises(ValueError, match="-1"):
        memprof.schedule(**GOOD)(-1)


def test_schedules_can_be_pickled_and_printed():
    ours = memprof.schedule(wait=2, warmup=1, active=3)
    copy = pickle.loads(pickle.dumps(ours))
    assert [copy(k) for k in range(9)] == [ours(k) for k in range(9)]
    assert "wait=2" in repr(ours) and repr(schedules.as_schedule({3, 1})) == "[1, 3]"


@pytest.mark.parametrize(
    "steps",
    [[2, 5], (5, 2), {2, 5}, range(2, 6, 3), np.array([2, 5]), iter([2, 5]), frozenset([2, 5])],
)
def test_step_numbers(steps):
    function = schedules.as_schedule(steps)
    names = [function(step).name for step in range(7)]
    assert names == [
        "NONE",
        "NONE",
        "RECORD_AND_SAVE",
        "NONE",
        "NONE",
        "RECORD_AND_SAVE",
        "NONE",
    ]
    assert schedules.first_active_step(function) == 2


@pytest.mark.parametrize("steps", [[], set(), range(0), range(3, 3)])
def test_no_steps(steps):
    with pytest.raises(ValueError, match="names no step"):
        schedules.as_schedule(steps)


@pytest.mark.parametrize("steps", [[-1], range(-2, 3), range(3, -5, -1)])
def test_negative_steps(steps):
    with pytest.raises(ValueError, match="negative|too small"):
        schedules.as_schedule(steps)


@pytest.mark.parametrize("value", [5, "10", {"wait": 1}, 1.5])
def test_not_a_schedule(value):
    with pytest.raises(TypeError, match=r"memprof\.schedule\("):
        schedules.as_schedule(value)


@pytest.mark.parametrize("steps", [[1.5], ["a"], [True]])
def test_wrong_items(steps):
    with pytest.raises(TypeError, match="a step number"):
        schedules.as_schedule(steps)


@pytest.mark.parametrize("answer", [None, "RECORD", 2, True])
def test_wrong_answer(answer):
    with pytest.raises(TypeError, match="step 7"):
        schedules.ask(lambda step: answer, 7)


def test_device_stopped_is_refused():
    with pytest.raises(ValueError, match="DEVICE_STOPPED"):
        schedules.ask(lambda step: memprof.ProfilerAction.DEVICE_STOPPED, 0)


def test_first_step_of_the_users_own_function_is_not_probed():
    calls = []
    assert schedules.first_active_step(lambda step: calls.append(step)) is None
    assert not calls
    partial = functools.partial(torch.profiler.schedule(wait=3, warmup=1, active=1))
    assert schedules.first_active_step(partial) == 4
