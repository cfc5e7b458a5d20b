"""memprof where torch is absent, in processes of their own, and what importing it costs."""

import subprocess
import sys
import textwrap

import pytest

BLOCK = "import sys; sys.modules['torch'] = None\n"


def run(program, *, block=True):
    done = subprocess.run(
        [sys.executable, "-c", (BLOCK if block else "") + textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_import_does_not_import_torch():
    run(
        """
        import sys, memprof
        assert "torch" not in sys.modules and "numpy" not in sys.modules
        assert set(memprof.__all__) <= set(dir(memprof))
        memprof.schedule, memprof.profile, memprof.watch
        assert "torch" not in sys.modules
        """,
        block=False,
    )


def test_homes_are_complete():
    run(
        """
        import memprof
        assert sorted(memprof._HOMES) == sorted(memprof.__all__)
        for name in memprof.__all__:
            if memprof._HOMES[name] not in ("recording", "trace"):
                getattr(memprof, name)
        try:
            memprof.no_such
        except AttributeError as error:
            assert "no_such" in str(error)
        else:
            raise SystemExit("no error")
        """
    )


def test_import_time():
    text = run(
        """
        import numpy, time
        start = time.perf_counter()
        import memprof
        memprof.profile, memprof.schedule
        print(time.perf_counter() - start)
        """
    )
    assert float(text) < 0.1  # 30 ms on a quiet machine


def test_enums_are_equal_to_torchs():
    text = run(
        """
        import memprof
        for which in (memprof.ProfilerAction, memprof.ProfilerActivity, memprof.DeviceType):
            print(which.__name__, *(f"{member.name}={member.value}" for member in which))
        assert memprof.profile and memprof.ProfilerAction is memprof.activities._Action
        """
    )
    theirs = pytest.importorskip("torch.profiler")
    for line in text.splitlines():
        name, *members = line.split()
        ours = dict(member.split("=") for member in members)
        known = getattr(theirs, name).__members__
        assert known.keys() <= ours.keys()  # DEVICE_STOPPED came with 2.13
        if known.keys() == ours.keys():  # a new member may move the values of others
            values = {key: str(member.value) for key, member in known.items()}
            assert {key: text.rpartition(".")[2] for key, text in values.items()} == ours


def test_with_torch_they_are_torchs():
    pytest.importorskip("torch.profiler")
    run(
        """
        import memprof, torch.profiler as theirs
        for name in ("ProfilerAction", "ProfilerActivity", "DeviceType", "record_function"):
            assert getattr(memprof, name) is getattr(theirs, name)
        assert memprof.supported_activities() == theirs.supported_activities()
        assert memprof.kineto_available() is theirs.kineto_available()
        """,
        block=False,
    )


def test_schedule_and_profile_arguments():
    run(
        """
        import memprof
        assert memprof.schedule(wait=1, warmup=1, active=1)(2).name == "RECORD_AND_SAVE"
        assert memprof.supported_activities() == {memprof.ProfilerActivity.CPU}
        assert memprof.kineto_available() is False
        prof = memprof.profile(schedule=[3], activities=[memprof.ProfilerActivity.CPU])
        assert prof.current_action is memprof.ProfilerAction.NONE
        for wrong, error in (({"activities": []}, ValueError), ({"activities": [1]}, TypeError)):
            try:
                memprof.profile(**wrong)
            except error:
                continue
            raise SystemExit(wrong)
        """
    )


def test_broken_torch_is_said(tmp_path):
    (tmp_path / "torch").mkdir()
    (tmp_path / "torch" / "__init__.py").write_text(
        "raise OSError('libtorch.so: no such file')"
    )
    text = run(
        f"""
        import sys, warnings
        sys.path.insert(0, {str(tmp_path)!r})
        import memprof
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            memprof.supported_activities(), memprof.schedule(wait=0, warmup=0, active=1)(0)
        print(len(said), said[0].message)
        """,
        block=False,
    )
    assert text.startswith("1 torch is installed but does not import (OSError: libtorch.so")


RECORD_FUNCTION = """
    import sys, types, memprof
    from memprof import _active
    spans = []
    collection = types.SimpleNamespace(
        active=True, clock=lambda: 7, add_span=lambda name, start: spans.append((name, start))
    )
    _active.collection = collection
    with memprof.record_function("a"):
        with memprof.record_function("b", "arguments"):
            pass

    @memprof.record_function("fib")
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    assert fib(4) == 3 and fib.__name__ == "fib"
    assert spans == [("b", 7), ("a", 7)] + [("fib", 7)] * 9, spans
    again = memprof.record_function("again")
    with again:
        with again:
            collection.active = False
    assert len(spans) == 11
    _active.collection = None
    with again:
        pass
    for wrong, error in ((lambda: again.__exit__(None, None, None), RuntimeError),
                         (lambda: memprof.record_function(3), TypeError)):
        try:
            wrong()
        except error:
            continue
        raise SystemExit("no error")
"""


def test_record_function():
    run(RECORD_FUNCTION)


def test_never_stopped_is_stopped_at_exit():
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(NEVER_STOPPED)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0
    assert "ready\n" in done.stdout
    assert "was never stopped; it is stopped now, at exit" in done.stderr


NEVER_STOPPED = """
    import sys
    sys.path.insert(0, "TESTS")
    from fake_collection import fake_module
    sys.modules["memprof._collection"] = fake = fake_module()
    import memprof
    memprof._collection = fake
    memprof.profile(on_trace_ready=lambda prof: print("ready")).start()
""".replace("TESTS", __file__.rpartition("/")[0])
