"""The state machine of profile(): what it asks of the collection, and what it says. The
collection is a stand-in here; test_profile_real.py records."""

import functools
import inspect
import json
import os
import random
import signal
import sys
import threading
import warnings

import pytest
import torch.profiler
from fake_collection import fake_module

import memprof
from memprof import ProfilerAction as Action
from memprof import ProfilerActivity, _active

pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(autouse=True)
def fake(monkeypatch):
    module = fake_module()
    monkeypatch.setitem(sys.modules, "memprof._collection", module)
    monkeypatch.setattr(memprof, "_collection", module, raising=False)
    yield module
    if _active._current is not None:  # a failing test must not fail the others
        _active._current.owner._forget_parent()
        _active._current = None
    assert not any(made.active for made in module.made) or sys.exc_info()[0]


def phases(*names):
    """A schedule of these actions; the last one goes on."""
    return lambda step: Action[names[min(step, len(names) - 1)]]


def run_steps(prof, count):
    with prof:
        for _ in range(count):
            prof.step()


# ---- transitions


@pytest.mark.parametrize(
    ("names", "calls"),
    [
        ("NONE WARMUP RECORD RECORD_AND_SAVE NONE",
         "start|mark 1|end|begin|mark 2|mark 3|end|stop|ready 4"),
        ("WARMUP WARMUP WARMUP RECORD_AND_SAVE NONE",
         "start|mark 0|mark 1|mark 2|end|begin|mark 3|end|stop|ready 4"),
        ("WARMUP RECORD_AND_SAVE NONE", "start|mark 0|end|begin|mark 1|end|stop|ready 2"),
        ("NONE RECORD RECORD_AND_SAVE NONE", "start|begin|mark 1|mark 2|end|stop|ready 3"),
        ("NONE RECORD_AND_SAVE NONE", "start|begin|mark 1|end|stop|ready 2"),
        ("RECORD_AND_SAVE RECORD RECORD_AND_SAVE NONE",
         "start|begin|mark 0|end|stop|ready 1|start|begin|mark 1|mark 2|end|stop|ready 3"),
        ("RECORD_AND_SAVE RECORD_AND_SAVE NONE",
         "start|begin|mark 0|end|stop|ready 1|start|begin|mark 1|end|stop|ready 2"),
        ("RECORD_AND_SAVE WARMUP RECORD_AND_SAVE NONE",
         "start|begin|mark 0|end|stop|ready 1|start|mark 1|end|begin|mark 2|end|stop|ready 3"),
        # torch loses these two with W2 and W3
        ("RECORD NONE", "start|begin|mark 0|end|stop|ready 1"),
        ("RECORD WARMUP RECORD_AND_SAVE NONE",
         "start|begin|mark 0|end|stop|ready 1|start|mark 1|end|begin|mark 2|end|stop|ready 3"),
        # left while active
        ("WARMUP RECORD RECORD", "start|mark 0|end|begin|mark 1|mark 2|end|stop|ready 2"),
        ("RECORD RECORD_AND_SAVE", "start|begin|mark 0|mark 1|end|stop|ready 1"),
        # a second warm-up that is left is not data
        ("RECORD_AND_SAVE WARMUP", "start|begin|mark 0|end|stop|ready 1|start|mark 1|abandon"),
    ],
)  # fmt: skip
def test_transition(fake, names, calls):
    names = names.split()

    def ready(prof):
        fake.calls.append(f"ready {prof.step_num}")

    run_steps(memprof.profile(schedule=phases(*names), on_trace_ready=ready), len(names) - 1)
    assert fake.calls == calls.split("|")


@pytest.mark.parametrize("active", [1, 2, 3])
@pytest.mark.parametrize("warmup", [1, 3])
@pytest.mark.parametrize("wait", [0, 1, 2])
@pytest.mark.parametrize("repeat", [0, 2])
def test_handler_is_called_when_torch_calls_it(active, warmup, wait, repeat):
    arguments = {"wait": wait, "warmup": warmup, "active": active, "repeat": repeat}
    seen = {}
    for module in (memprof, torch.profiler):
        steps = seen[module.__name__] = []

        def ready(prof, steps=steps):
            steps.append((prof.step_num, prof.current_action))

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch's, on events of earlier cycles
            run_steps(
                module.profile(
                    activities=[ProfilerActivity.CPU],
                    schedule=module.schedule(**arguments),
                    on_trace_ready=ready,
                ),
                11,
            )
    assert seen["memprof"] == seen["torch.profiler"]


def test_without_schedule_steps_are_marked_from_the_first_step_call(fake):
    run_steps(memprof.profile(), 0)
    assert fake.calls == ["start", "begin", "stop"]
    fake.calls.clear()
    run_steps(memprof.profile(), 2)
    assert fake.calls == ["start", "begin", "mark 1", "mark 2", "end", "stop"]


def test_step_numbers_as_schedule(fake):
    prof = memprof.profile(schedule=[1, 3, 4], acc_events=True)
    run_steps(prof, 6)
    assert [call for call in fake.calls if call.startswith("mark")] == [
        "mark 1",
        "mark 3",
        "mark 4",
    ]
    assert len(prof.recordings) == 3


def test_warmup_that_leads_nowhere_is_said():
    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE", "WARMUP", "NONE"))
    with pytest.warns(UserWarning, match="WARMUP to NONE at step 2"):
        run_steps(prof, 2)


def test_torchs_schedule_partial_and_object(fake):
    def function(step, last):
        return Action.RECORD_AND_SAVE if step == last else Action.NONE

    class Callable:
        def __call__(self, step):
            return function(step, 1)

    theirs = torch.profiler.schedule(wait=1, warmup=1, active=1, repeat=1)
    for schedule in (theirs, functools.partial(function, last=2), Callable()):
        prof = memprof.profile(schedule=schedule)
        run_steps(prof, 5)
        assert prof.recording.summary() and prof.schedule is schedule


# ---- what the collection is made with


def options_of(fake, **keywords):
    run_steps(memprof.profile(**keywords), 0)
    return fake.made[-1].options


def test_defaults(fake):
    assert options_of(fake) == {
        "stacks": True,
        "operators": True,
        "shapes": False,
        "memory": True,
        "cuda": torch.cuda.is_available(),
        "gpu": torch.cuda.is_available(),
        "max_bytes": 1 << 30,
        "ring": False,
    }


@pytest.mark.parametrize(
    ("keywords", "name", "value"),
    [
        ({"record_shapes": True}, "shapes", True),
        ({"with_flops": True}, "shapes", True),
        ({"with_stack": False}, "stacks", False),
        ({"profile_memory": False}, "memory", False),
        ({"operators": False}, "operators", False),
        ({"activities": [{ProfilerActivity.CPU: []}]}, "operators", False),
        ({"activities": [{ProfilerActivity.CPU: ["CPU_OP"]}]}, "operators", True),
        ({"max_memory": "64 MiB"}, "max_bytes", 64 << 20),
        ({"max_memory": 5_000_000}, "max_bytes", 5_000_000),
        ({"at_limit": "ring"}, "ring", True),
    ],
)
def test_options(fake, keywords, name, value):
    assert options_of(fake, **keywords)[name] == value


def test_attributes_set_before_the_start_count(fake):
    prof = memprof.profile()
    prof.record_shapes, prof.with_stack = True, False
    run_steps(prof, 0)
    assert fake.made[-1].options["shapes"] and not fake.made[-1].options["stacks"]


@pytest.mark.parametrize(
    ("text", "size"),
    [("4 MiB", 4 << 20), ("256MiB", 256 << 20), ("1 GiB", 1 << 30), ("2GB", 2 * 10**9),
     ("1.5 gib", 3 << 29), ("5000000", 5_000_000), ("5000000 bytes", 5_000_000), ("8M", 8 * 10**6)],
)  # fmt: skip
def test_max_memory(fake, text, size):
    assert options_of(fake, max_memory=text)["max_bytes"] == size


@pytest.mark.parametrize(
    ("keywords", "error", "says"),
    [
        ({"max_memory": "lots"}, ValueError, "max_memory='lots' is not a size"),
        ({"max_memory": "1 MiB"}, ValueError, "at least 4194304"),
        ({"max_memory": -1}, ValueError, "max_memory=-1"),
        ({"max_memory": 1.5}, TypeError, "max_memory=1.5"),
        ({"max_memory": True}, TypeError, "max_memory=True"),
        ({"max_memory": None}, TypeError, "max_memory=None"),
        ({"at_limit": "explode"}, ValueError, 'at_limit=.*"ring"'),
        ({"on_trace_ready": "file"}, TypeError, "on_trace_ready"),
        ({"custom_trace_id_callback": "id"}, TypeError, "custom_trace_id_callback"),
        ({"post_processing_timeout_s": -1}, ValueError, "post_processing_timeout_s=-1"),
        ({"schedule": 3}, TypeError, "schedule=3"),
        ({"schedule": []}, ValueError, "names no step"),
        ({"schedule": lambda step: None}, TypeError, "returned None.*step 0"),
        ({"schedule": lambda step: "RECORD"}, TypeError, "returned 'RECORD'"),
        ({"schedule": lambda step: Action.DEVICE_STOPPED}, ValueError, "DEVICE_STOPPED"),
        ({"activities": []}, ValueError, "activities is empty"),
        ({"activities": [None]}, ValueError, "activities is empty"),
        ({"activities": [ProfilerActivity.CPU] * 2}, ValueError, "more than once"),
        ({"activities": ["cpu"]}, TypeError, "'cpu' of type str"),
        ({"activities": ProfilerActivity.CPU}, TypeError, r"write.*activities=\["),
        ({"activities": "cpu"}, TypeError, "activities='cpu'"),
        ({"activities": [{ProfilerActivity.CPU: "CPU_OP"}]}, TypeError, "filter"),
        ({"no_such": 1}, TypeError, "no_such"),
    ],
)  # fmt: skip
def test_wrong_arguments(keywords, error, says):
    with pytest.raises(error, match=says):
        memprof.profile(**keywords)


def test_activities():
    prof = memprof.profile(activities=[ProfilerActivity.CPU, None])
    assert prof.activities == {ProfilerActivity.CPU} and prof.use_device is None
    filtered = memprof.profile(activities=[{ProfilerActivity.CUDA: ["KERNEL"]}])
    assert filtered.activity_filters == {ProfilerActivity.CUDA: {"KERNEL"}}
    assert filtered.use_device == "cuda"
    assert memprof.profile().activities == torch.profiler.supported_activities()


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_cuda_asked_for_but_absent(fake):
    both = memprof.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])
    with pytest.warns(UserWarning, match="CUDA is not available, so only CPU") as said:
        both.start()
    both.stop()
    assert len(said) == 1 and said[0].filename == __file__
    assert not fake.made[-1].options["cuda"]
    alone = memprof.profile(activities=[ProfilerActivity.CUDA])
    with pytest.raises(RuntimeError, match="CUDA only.*add memprof.ProfilerActivity.CPU"):
        alone.start()
    assert _active._current is None


def test_use_cuda():
    with pytest.warns(FutureWarning, match="use_cuda is deprecated") as said:
        prof = memprof.profile(use_cuda=True, activities=[ProfilerActivity.CPU])
    assert prof.activities == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    assert said[0].filename == __file__
    with pytest.warns(FutureWarning), pytest.raises(ValueError, match="use_cuda=False"):
        memprof.profile(use_cuda=False, activities=[ProfilerActivity.CUDA])


def test_signature_holds_torchs():
    ours = inspect.signature(memprof.profile.__init__).parameters
    theirs = inspect.signature(torch.profiler.profile.__init__).parameters
    assert set(theirs) <= set(ours)
    differ = {name for name in theirs if ours[name].default != theirs[name].default}
    assert differ == {"profile_memory", "with_stack"}
    assert all(p.kind is p.KEYWORD_ONLY for n, p in ours.items() if n != "self")


@pytest.mark.parametrize("name", sorted(vars(torch.profiler.profile.__mro__[1])) + ["step"])
def test_public_names_of_torchs_profile(name):
    # its monitor backend is not memprof's
    if name.startswith("_") or name in ("take_pending_cupti_export", "wait_for_exports"):
        return
    ours, theirs = getattr(memprof.profile, name), getattr(torch.profiler.profile, name)
    assert set(inspect.signature(theirs).parameters) <= set(inspect.signature(ours).parameters)


def test_attributes_of_torchs_profile():
    prof = torch.profiler.profile(activities=[ProfilerActivity.CPU])
    public = {name for name in vars(prof) if not name.startswith("_")} - {"action_map"}
    assert {name for name in public if not hasattr(memprof.profile(), name)} == set()


# ---- lifecycle (D1, D2, D8, D9)


def test_stop_twice_without_start_and_from_another_thread(fake):
    prof = memprof.profile()
    prof.stop()
    prof.start()
    thread = threading.Thread(target=prof.stop)
    thread.start()
    thread.join()
    prof.stop()
    assert fake.calls == ["start", "begin", "stop"] and prof.recording


def test_many_threads_stop_once(fake):
    seen = []
    prof = memprof.profile(on_trace_ready=lambda prof: seen.append(threading.get_ident()))
    prof.start()
    threads = [threading.Thread(target=prof.stop) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(seen) == 1 and fake.calls.count("stop") == 1


def test_handler_may_wait_for_a_thread_that_stops(fake):
    def ready(prof):
        thread = threading.Thread(target=prof.stop)
        thread.start()
        thread.join(20)
        assert not thread.is_alive()

    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE"), on_trace_ready=ready)
    prof.start()
    prof.step()
    assert fake.calls == ["start", "begin", "mark 0", "end", "stop"]
    assert _active._current is None


def test_second_start_begins_afresh(fake):
    prof = memprof.profile(schedule=memprof.schedule(wait=1, warmup=0, active=1, repeat=1))
    seen = []
    prof.on_trace_ready = lambda prof: seen.append((prof.step_num, prof.recording.number))
    for _ in range(2):
        run_steps(prof, 3)
        assert prof.step_num == 3
    assert seen == [(2, 1), (2, 2)]


def test_start_twice_leaves_the_first(fake):
    prof = memprof.profile()
    prof.start()
    line = inspect.currentframe().f_lineno - 1
    with pytest.raises(
        RuntimeError, match=f"already started at .*test_profile.py:{line}.*stop"
    ):
        prof.start()
    prof.stop()
    assert fake.calls == ["start", "begin", "stop"]


@pytest.mark.parametrize("schedule", [None, memprof.schedule(wait=5, warmup=1, active=1)])
def test_nested(fake, schedule):
    with memprof.profile() as outer:
        line = inspect.currentframe().f_lineno - 1
        inner = memprof.profile(schedule=schedule)
        with pytest.raises(RuntimeError, match=f"test_profile.py:{line} is still recording"):
            inner.__enter__()
        inner.stop()
    assert outer.recording and fake.calls == ["start", "begin", "stop"]
    run_steps(memprof.profile(), 0)  # the way is free again


def test_nested_in_a_waiting_schedule():
    outer = memprof.profile(schedule=phases("NONE", "RECORD"))
    with outer:
        with pytest.raises(RuntimeError, match="still recording"):
            memprof.profile().start()
        outer.step()
    assert outer.recording


def test_failing_start_leaves_nothing(fake):
    fake.failing["begin"] = RuntimeError("no hooks")
    prof = memprof.profile()
    with pytest.raises(RuntimeError, match="no hooks"):
        prof.start()
    assert fake.calls == ["start", "begin", "abandon"] and _active._current is None
    fake.failing.clear()
    run_steps(prof, 1)
    assert prof.recording


def test_failing_start_in_the_middle_of_training(fake):
    fake.failing["begin"] = RuntimeError("no hooks")
    prof = memprof.profile(schedule=phases("NONE", "RECORD_AND_SAVE"))
    with pytest.warns(UserWarning, match="could not begin at step 1.*no hooks") as said:
        run_steps(prof, 3)
    assert len(said) == 1
    with pytest.raises(RuntimeError, match="no hooks"):
        prof.recording  # noqa: B018


def test_failing_end_is_said_and_training_goes_on(fake):
    fake.failing["stop"] = MemoryError("no room")
    called = []
    prof = memprof.profile(on_trace_ready=called.append)
    with pytest.warns(UserWarning, match="is lost: MemoryError: no room"):
        run_steps(prof, 0)
    assert not called and _active._current is None
    with pytest.raises(RuntimeError, match="no room"):
        prof.recording  # noqa: B018


def test_never_stepped():
    prof = memprof.profile(schedule=memprof.schedule(wait=1, warmup=1, active=1))
    with pytest.warns(UserWarning, match=r"step\(\) was never called.*from step 2 on") as said:
        run_steps(prof, 0)
    assert said[0].filename == __file__
    with pytest.raises(RuntimeError, match="never became active"):
        prof.recording  # noqa: B018


def test_too_few_steps_and_stop_in_warmup(fake):
    prof = memprof.profile(schedule=memprof.schedule(wait=2, warmup=3, active=1))
    with pytest.warns(UserWarning, match=r"called 3 times, so the schedule saw steps 0 to 3"):
        run_steps(prof, 3)
    assert fake.calls[-1] == "abandon"


def test_step_without_start():
    prof = memprof.profile()
    with pytest.warns(UserWarning, match=r"not started.*call start\(\)"):
        prof.step()
    prof.step()  # said once
    assert prof.step_num == 0


def test_step_without_start_but_with_a_schedule_records(fake):
    prof = memprof.profile(schedule=phases("NONE", "RECORD_AND_SAVE", "NONE"))
    prof.step()
    prof.step()
    prof.stop()
    assert fake.calls == ["start", "begin", "mark 1", "end", "stop"] and prof.recording


def test_step_after_stop_is_said(fake):
    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE"))
    run_steps(prof, 0)
    with pytest.warns(UserWarning, match="after stop"):
        prof.step()
    assert fake.calls.count("start") == 1


def test_wrong_answer_in_the_middle_changes_nothing(fake):
    prof = memprof.profile(schedule=lambda step: Action.RECORD if step != 1 else None)
    prof.start()
    with pytest.raises(TypeError, match="returned None"):
        prof.step()
    assert prof.step_num == 0 and prof.current_action is Action.RECORD
    prof.stop()
    assert prof.recording


def test_settable_while_running(fake):
    seen = []
    prof = memprof.profile(schedule=phases("NONE"))
    prof.start()
    prof.step_num = 41
    prof.on_trace_ready = lambda prof: seen.append(prof.step_num)
    prof.schedule = [42]
    prof.step()
    assert prof.current_action is Action.RECORD_AND_SAVE
    prof.schedule = torch.profiler.profiler._default_schedule_fn
    prof.step()
    prof.stop()
    assert seen == [43, 43]
    with pytest.raises(TypeError):
        prof.on_trace_ready = 3
    prof.schedule = None
    assert prof.schedule(0) is Action.RECORD


# ---- handlers and exceptions (D7)


def failing_handler(prof):
    raise OSError("disk full")


def test_failing_handler_warns_once(fake):
    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE"), on_trace_ready=failing_handler)
    with pytest.warns(UserWarning, match="on_trace_ready failed: OSError: disk full") as said:
        run_steps(prof, 3)
    assert len(said) == 1 and "in failing_handler" in str(said[0].message)
    assert prof.recording.number == 4 and said[0].filename == __file__


def test_body_error_comes_through_whatever_the_handler_does():
    def interrupted(prof):
        raise KeyboardInterrupt

    def leaving(prof):
        sys.exit(3)

    for handler in (failing_handler, interrupted, leaving):
        prof = memprof.profile(on_trace_ready=handler)
        with pytest.warns(UserWarning), pytest.raises(ZeroDivisionError) as caught, prof:
            1 / 0  # noqa: B018
        assert caught.value.__context__ is None and prof.recording


def test_body_error_comes_through_where_warnings_are_errors():
    with pytest.raises(ZeroDivisionError), memprof.profile(on_trace_ready=failing_handler):
        1 / 0  # noqa: B018


def test_interrupt_in_the_handler_leaves_things_clean(fake):
    def interrupted(prof):
        raise KeyboardInterrupt

    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE"), on_trace_ready=interrupted)
    with pytest.raises(KeyboardInterrupt):
        run_steps(prof, 1)
    assert _active._current is None and prof.recording


@pytest.mark.parametrize("call", ["start", "begin", "mark", "end", "stop"])
def test_interrupt_inside_the_collection(fake, call):
    fake.failing[call] = KeyboardInterrupt()
    prof = memprof.profile(schedule=phases("RECORD", "RECORD", "RECORD_AND_SAVE", "NONE"))
    with pytest.raises(KeyboardInterrupt):
        run_steps(prof, 3)
    prof.stop()
    fake.failing.clear()
    assert not fake.made[-1].active and _active._current is None
    run_steps(prof, 3)
    assert prof.recording


def test_interrupts_at_random_moments(fake):
    """However unlucky Ctrl-C falls, a last stop() leaves nothing behind."""

    def interrupt(*_):
        raise KeyboardInterrupt

    warnings.simplefilter("ignore")  # until this test ends: nothing was recorded
    moments, interrupts = random.Random(3), 0
    old = signal.signal(signal.SIGALRM, interrupt)
    prof = memprof.profile(schedule=memprof.schedule(wait=1, warmup=1, active=2))
    try:
        for _ in range(2000):
            try:
                signal.setitimer(signal.ITIMER_REAL, moments.uniform(1e-6, 3e-4))
                run_steps(prof, 9)
                signal.setitimer(signal.ITIMER_REAL, 0)
            except KeyboardInterrupt:
                interrupts += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            prof.stop()
            assert _active._current is None and not any(made.active for made in fake.made)
            fake.made.clear()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, old)
    assert interrupts > 100


def test_stop_in_a_signal_handler(fake):
    prof = memprof.profile(schedule=phases("RECORD"))
    old = signal.signal(signal.SIGUSR1, lambda *_: prof.stop())
    try:
        prof.start()
        os.kill(os.getpid(), signal.SIGUSR1)
        prof.stop()
    finally:
        signal.signal(signal.SIGUSR1, old)
    assert fake.calls == ["start", "begin", "mark 0", "end", "stop"]


# ---- results (D3, D4) and low level (E9)


def test_results_say_what_to_do():
    prof = memprof.profile()
    with pytest.raises(RuntimeError, match="not started"):
        prof.export_chrome_trace("x.json")
    with prof:
        with pytest.raises(RuntimeError, match="still being recorded"):
            prof.export_chrome_trace("x.json")
        with pytest.raises(RuntimeError, match="still being recorded"):
            prof.summary()
    waiting = memprof.profile(schedule=memprof.schedule(wait=3, warmup=1, active=1))
    waiting.start()
    with pytest.raises(RuntimeError, match="has not finished a cycle.*from step 4"):
        waiting.save("x")
    with pytest.warns(UserWarning, match="never became active"):
        waiting.stop()


def test_results_inside_the_block_are_those_of_the_last_window(tmp_path):
    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE"))
    with prof:
        prof.step()
        assert prof.recording.number == 1
        prof.export_chrome_trace(tmp_path / "trace.json", use_python_export=True)
    assert prof.summary() == "recording 2" and len(prof.recordings) == 1


def test_unwritable_path_and_again(tmp_path):
    prof = memprof.profile()
    run_steps(prof, 0)
    for _ in range(2):
        with pytest.raises(OSError, match="absent"):
            prof.export_chrome_trace(tmp_path / "absent" / "trace.json")
        prof.export_chrome_trace(tmp_path / "trace.json")


def test_low_level(fake):
    prof = memprof.profile()
    with pytest.raises(RuntimeError, match=r"start_trace\(\): .*prepare_trace"):
        prof.start_trace()
    with pytest.raises(RuntimeError, match="nothing was recorded"):
        prof.stop_trace()
    prof.prepare_trace()
    with pytest.raises(RuntimeError, match="prepared already"):
        prof.prepare_trace()
    prof.start_trace()
    prof.stop_trace()
    prof.stop_trace()
    assert fake.calls == ["start", "begin", "stop"] and prof.recording
    assert _active._current is None
    prof.prepare_trace()
    prof.stop_trace()
    assert fake.calls[-1] == "abandon" and _active._current is None


def test_profiler_attribute_and_later_methods(tmp_path):
    prof = memprof.profile()
    assert prof.profiler is None and prof.get_trace_id() is None
    run_steps(prof, 0)
    prof.profiler.export_chrome_trace(tmp_path / "trace.json")
    for look in (
        lambda: prof.events(),
        lambda: prof.key_averages(group_by_stack_n=5),
        lambda: prof.export_stacks("x", metric="self_cpu_time_total"),
        lambda: prof.export_memory_timeline("x.html", device="cpu"),
        lambda: prof.profiler.kineto_results,
        lambda: prof.profiler.function_events,
        lambda: prof.profiler.self_cpu_time_total,
        lambda: prof.profiler.total_average(),
        lambda: prof.profiler.table(),
        lambda: prof.profiler.key_averages(),
    ):
        with pytest.raises(
            NotImplementedError, match=r"memprof has no .*; use prof\.recording|print"
        ):
            look()


# ---- metadata, trace id, observer


def header(prof):
    return prof.recording.header


HOSTILE = 'q"z\\ \n\x00 \u2028 \ud800 <b>'


def test_metadata():
    prof = memprof.profile()
    prof.preset_metadata_json("preset", "[1, 2]")
    prof.add_metadata("before", HOSTILE)
    with prof:
        prof.add_metadata_json("preset_too", '{"a": 1.5}')
        for step in range(3):
            prof.add_metadata_json("step", json.dumps(step))
    assert header(prof)["metadata"] == {
        "profile_memory": 1,
        "with_stack": 1,
        "preset": [1, 2],
        "before": HOSTILE,
        "preset_too": {"a": 1.5},
        "step": 2,
    }
    json.dumps(header(prof))


def test_metadata_added_after_the_window():
    prof = memprof.profile(schedule=phases("RECORD_AND_SAVE", "NONE"))
    prof.on_trace_ready = lambda prof: prof.add_metadata("in handler", "yes")
    with prof:
        prof.add_metadata_json("n", "1")
        prof.step()
        first = prof.recording
        assert header(prof)["metadata"]["in handler"] == "yes"
    prof.add_metadata_json("n", "2")
    assert header(prof)["metadata"]["n"] == 2
    assert first.header["metadata"]["n"] == 1 and prof.recording is prof.recordings[0]
    assert prof.recording is prof.recording


@pytest.mark.parametrize("text", ["", "{", "NaN", "[Infinity]", "word"])
def test_metadata_that_is_not_json(text):
    for method in (memprof.profile().add_metadata_json, memprof.profile().preset_metadata_json):
        with pytest.raises(ValueError, match="metadata 'k': .* is not JSON"):
            method("k", text)


def test_metadata_of_wrong_type():
    prof = memprof.profile()
    with pytest.raises(TypeError, match=r"str\(value\)"):
        prof.add_metadata("k", 3)
    with pytest.raises(TypeError, match=r"json\.dumps"):
        prof.add_metadata_json("k", {"a": 1})
    with pytest.raises(TypeError, match="key 3"):
        prof.add_metadata(3, "v")


def test_header_has_the_options():
    prof = memprof.profile(schedule=[0], record_shapes=True, max_memory="8 MiB")
    run_steps(prof, 1)
    options = header(prof)["options"]
    assert options["schedule"] == "[0]" and options["max_memory"] == 8 << 20
    assert options["record_shapes"] and options["activities"] == ["CPU"]
    assert header(prof)["metadata"]["record_shapes"] == 1


def test_trace_ids():
    prof, ids = memprof.profile(schedule=phases("RECORD_AND_SAVE")), []
    prof.on_trace_ready = lambda prof: ids.append(prof.get_trace_id())
    run_steps(prof, 1)
    assert len(set(ids)) == 2
    assert all(len(i) == 32 and i == i.upper() and int(i, 16) for i in ids)
    prof.set_custom_trace_id_callback(lambda: "mine")
    run_steps(prof, 0)
    assert prof.get_trace_id() == "mine" == header(prof)["trace_id"]


@pytest.mark.parametrize("callback", [lambda: 1 / 0, lambda: 3])
def test_failing_trace_id_callback(callback):
    prof = memprof.profile(custom_trace_id_callback=callback)
    with pytest.warns(UserWarning, match="custom_trace_id_callback failed"):
        run_steps(prof, 0)
    assert len(prof.get_trace_id()) == 32


def test_execution_trace_observer(fake):
    class Observer:
        start = staticmethod(lambda: fake.calls.append("observe"))
        stop = staticmethod(lambda: fake.calls.append("unobserve"))
        cleanup = staticmethod(lambda: fake.calls.append("cleanup"))

    run_steps(memprof.profile(execution_trace_observer=Observer()), 0)
    assert fake.calls == ["start", "observe", "begin", "unobserve", "stop", "cleanup"]


def test_failing_observer(fake):
    class Observer:
        start = staticmethod(lambda: 1 / 0)
        stop = staticmethod(lambda: 1 / 0)
        cleanup = staticmethod(lambda: None)

    prof = memprof.profile(execution_trace_observer=Observer())
    with (
        pytest.warns(UserWarning, match="stop.* failed"),
        pytest.raises(ZeroDivisionError),
    ):
        prof.start()
    assert fake.calls == ["start", "abandon"] and _active._current is None
    Observer.start = staticmethod(lambda: None)
    with pytest.warns(UserWarning, match="stop.* failed: ZeroDivisionError"):
        run_steps(prof, 0)
    assert prof.recording


def test_handler_that_starts_again(fake):
    def again(prof):
        prof.on_trace_ready = None
        prof.start()

    prof = memprof.profile(on_trace_ready=again)
    run_steps(prof, 0)
    assert fake.calls == ["start", "begin", "stop", "start", "begin"]
    prof.stop()
    assert prof.recording.number == 2


def test_toggle_collection_dynamic():
    prof = memprof.profile()
    prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
    with prof:
        with pytest.warns(UserWarning, match="records a window as a whole"):
            prof.toggle_collection_dynamic(False, [ProfilerActivity.CPU])
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])  # said once


# ---- what frameworks do (torch_profiler_api.md, 16)


def test_lightning_pattern(fake):
    keywords = {"schedule": None, "record_shapes": True, "with_stack": True, "emit": 1}
    known = inspect.signature(memprof.profile.__init__).parameters
    prof = memprof.profile(**{key: keywords[key] for key in keywords if key in known})
    prof.__enter__()
    prof.schedule = torch.profiler.schedule(wait=0, warmup=1, active=1, repeat=1)
    assert isinstance(prof.schedule(0), torch.profiler.ProfilerAction)
    for number in range(1, 4):
        prof.on_trace_ready = lambda prof: fake.calls.append("ready")
        prof.step_num = number - 1
        prof.step()
        prof.add_metadata("Framework", "pytorch-lightning")
    prof.__exit__(None, None, None)
    assert fake.calls.count("ready") == prof.recording.number


def test_subclass_that_overrides_enter_and_stop(fake):
    class Mine(memprof.profile):
        def __enter__(self):
            fake.calls.append("mine")
            return super().__enter__()

        def stop(self):
            fake.calls.append("my stop")
            super().stop()

    with Mine() as prof:
        prof.step()
    assert fake.calls == ["mine", "start", "begin", "mark 1", "my stop", "end", "stop"]


def test_vllm_and_torchtitan_patterns():
    prof = memprof.profile(
        activities=[ProfilerActivity.CPU, None],
        schedule=phases("NONE", "RECORD"),
        with_stack=True,
    )
    assert prof.profiler is None and prof.with_stack and not prof.record_shapes
    with prof:
        prof.step_num = 10
        prof.step()
        assert prof.current_action.name == "RECORD" and prof.step_num == 11
    assert prof.profiler is not None


def test_watch(fake):
    watching = memprof.watch(steps=7, max_memory="8 MiB")
    options = fake.made[-1].options
    assert options["ring"] and options["auto_steps"] and not options["operators"]
    with pytest.raises(RuntimeError, match="memprof.watch started at .*test_profile.py"):
        memprof.profile().start()
    first = watching.snapshot()
    watching.step()
    second = watching.snapshot()
    assert (first.number, second.number) == (1, 2) and first.header["keep_steps"] == 7
    assert not fake.made[-1].options["auto_steps"]
    watching.stop()
    watching.stop()
    assert not watching.active and _active._current is None
    with pytest.raises(RuntimeError, match="is stopped"):
        watching.snapshot()
    watching.step()
    assert fake.calls == [
        "start", "begin", "stop", "start", "begin", "mark 1", "end", "stop",
        "start", "begin", "mark 1", "abandon",
    ]  # fmt: skip


def test_watch_arguments(fake):
    with pytest.raises(ValueError, match="watch: steps=0"):
        memprof.watch(steps=0)
    with pytest.raises(ValueError, match="max_memory"):
        memprof.watch(max_memory="1 MiB")
    fake.failing["start"] = RuntimeError("no hooks")
    with pytest.raises(RuntimeError, match="no hooks"):
        memprof.watch()
    assert _active._current is None


def test_forked_child_records_nothing(fake):
    prof = memprof.profile(
        schedule=phases("RECORD_AND_SAVE"), on_trace_ready=lambda p: os._exit(9)
    )
    prof.start()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            prof.step()
            prof.stop()
            try:
                prof.recording  # noqa: B018
            except RuntimeError as error:
                status = 0 if "forked" in str(error) else 2
        finally:
            os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    prof.on_trace_ready = None
    prof.stop()
    assert prof.recording
