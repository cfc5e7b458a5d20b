"""Stacks as the walk of frames takes them, without the GIL, against sys._getframe(); and the
texts of code objects that died meanwhile. Needs no torch."""

# ruff: noqa: C400, PIE804, PLC3002, S102  (odd ways to call are what is tested here)

import asyncio
import contextlib
import contextvars
import ctypes
import functools
import gc
import itertools
import json
import os
import queue
import re
import signal
import sys
import sysconfig
import threading
import time
import types
import weakref

import pytest

from memprof import _core

INNER, OUTER = 192, 64  # csrc/python/frames.h
HAS_QUALIFIED_NAMES = sys.version_info >= (3, 11)

KNOWN = (3, 10) <= sys.version_info[:2] <= (3, 14)
pytestmark = pytest.mark.skipif(
    not KNOWN or bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    reason="stacks are off in free-threaded builds and in versions to come",
)

seen = []
"""(captured, truncated, expected) of every check() so far."""


@pytest.fixture
def recording():
    """One session around many captures, and nothing seen before."""
    seen.clear()
    with session():
        yield
    seen.clear()


def name_of(code):
    return code.co_qualname if HAS_QUALIFIED_NAMES else code.co_name


def stack_of(frame):
    stack = []
    while frame is not None:
        stack.append((frame.f_code.co_filename, name_of(frame.f_code), frame.f_lineno))
        frame = frame.f_back
    return stack


def check(*ignored, **also):
    """Captures, and remembers what should have come out."""
    captured, expected = _core._capture_stack(), stack_of(sys._getframe())
    seen.append((*captured, expected))
    return 0


def all_agree(at_least):
    assert len(seen) >= at_least
    for captured, truncated, expected in seen:
        if len(expected) > INNER + OUTER:
            assert truncated
            expected = expected[:INNER] + expected[-OUTER:]
        else:
            assert not truncated
        assert captured == expected
    return True


def drive(coroutine):
    """Runs a coroutine that never waits for anything."""
    with contextlib.suppress(StopIteration):
        while True:
            coroutine.send(None)


# ---- shapes of stacks: each calls check() some times ----


def plain():
    check()
    check(
        1,
        *(2, 3),
        **{"four": 4},
    )


def recursion():
    def down(n):
        return down(n - 1) if n else check()

    for depth in (0, 1, 5, 50, 150, 500):
        down(depth)


def generators():
    def numbers(n):
        for i in range(n):
            check()
            yield i
        check()

    assert sum(numbers(3)) == 3
    assert list(zip(numbers(2), numbers(2))) == [(0, 0), (1, 1)]
    list(x for x in numbers(2) if check() == 0)
    stopped = numbers(5)
    next(stopped)
    stopped.close()


def delegation():
    def inner():
        try:
            check()
            yield 1
        except ValueError:
            check()
            yield 2
        finally:
            check()

    def middle():
        yield from inner()

    def outer():
        check()
        yield from middle()

    for _ in outer():
        pass
    thrown = outer()
    next(thrown)
    thrown.throw(ValueError("x"))
    thrown.close()


def coroutines():
    @types.coroutine
    def pause():
        check()
        yield
        check()

    async def leaf():
        await pause()
        check()

    async def root():
        await leaf()
        check()

    drive(root())


def event_loop():
    async def numbers():
        for i in range(3):
            check()
            yield i
            await asyncio.sleep(0)

    class Guard:
        async def __aenter__(self):
            check()

        async def __aexit__(self, *_):
            check()

    async def work():
        async for _ in numbers():
            check()
        async with Guard():
            check()
        return [x async for x in numbers() if check() == 0]

    async def both():
        await asyncio.gather(work(), work())
        asyncio.get_running_loop().call_soon(check)
        await asyncio.sleep(0)

    asyncio.run(both())


def comprehensions():
    [check() for _ in range(2)]
    {check() for _ in range(2)}
    {check(): check() for _ in range(2)}
    [[check() for _ in range(2)] for _ in range(2)]
    any(check() for _ in range(2))
    (lambda: [check() for _ in range(2)])()


def compiled_text():
    exec("check()\n\n\ncheck()\ndef f():\n    return check()\nf()", {"check": check})
    eval("[check() for _ in range(2)]", {"check": check})
    eval(compile("check(\n)", "no such file \u00e9.py", "eval"), {"check": check})


def class_bodies():
    class Outer:
        check()

        class Inner:
            check()

        def __init_subclass__(cls, **also):
            check()

        def __class_getitem__(cls, item):
            return check()

        @property
        def value(self):
            return check()

        def __getattr__(self, name):
            return check()

        def __eq__(self, other):
            check()
            return True

        def __hash__(self):
            return check()

        def __iter__(self):
            check()
            return iter(())

        def __del__(self):
            check()

    class Named:
        def __set_name__(self, owner, name):
            check()

    class Derived(Outer, metaclass=type("Meta", (type,), {"__call__": metaclass_call})):
        attribute = Named()

    thing = Derived()
    assert thing.value == thing.missing == Outer[1] == 0
    assert [thing].index(object()) == 0
    assert {thing: 1}[thing] == 1
    list(thing)
    del thing
    gc.collect()


def metaclass_call(cls, *arguments):
    check()
    return type.__call__(cls, *arguments)


def specialised_calls():
    class Made:
        def __init__(self, value):
            self.value = value
            check()

        def method(self):
            return check()

        def __getitem__(self, index):
            return check()

    for i in range(60):
        made = Made(i)
        made.method()
        made[i]


def callbacks_from_c():
    sorted([3, 1, 2], key=check)
    sorted([3, 1, 2], key=functools.cmp_to_key(check))
    list(map(check, range(3)))
    list(filter(lambda _: check(), range(3)))
    functools.reduce(check, range(4))
    re.sub("a", lambda match: str(check()), "banana")
    json.loads('{"a": {"b": 1}}', object_hook=check)
    next(iter(check, 0), None)
    max([1, 2, 3], key=lambda v: check() or v)
    contextvars.copy_context().run(check)
    ctypes.CFUNCTYPE(ctypes.c_int)(check)()
    list(itertools.starmap(check, [(1, 2), (3, 4)]))
    with contextlib.suppress(KeyError):
        {}.__class__.fromkeys(check() for _ in range(2))


def decorators():
    def traced(function):
        check()

        @functools.wraps(function)
        def wrapper(*args, **kwargs):
            check()
            return function(*args, **kwargs)

        return wrapper

    @traced
    @traced
    def decorated():
        return check()

    @functools.lru_cache
    def cached(n):
        return check()

    @functools.singledispatch
    def dispatched(value):
        return check()

    @contextlib.contextmanager
    def managed():
        check()
        yield
        check()

    decorated()
    cached(1)
    dispatched(1)
    functools.partial(check, 1)(2)
    with managed():
        check()


def deaths():
    class Dying:
        def __del__(self):
            check()

    dying = Dying()
    del dying
    [Dying()]
    cycle = Dying()
    cycle.itself = cycle
    del cycle
    gc.collect()
    watched = Dying()
    note = weakref.ref(watched, check)
    del watched
    assert note() is None


def closures_and_cells():
    """Frames that make cells before they begin."""
    total = 0

    def adder(first, second=None):
        def inner():
            nonlocal total
            total += check() + first
            return second

        return inner

    for i in range(30):
        adder(i)()


def exceptions():
    try:
        raise ValueError("x")
    except ValueError:
        check()
    finally:
        check()
    with pytest.raises(ZeroDivisionError):
        try:
            1 / check()
        finally:
            check()


def signals():
    previous = signal.signal(signal.SIGUSR1, check)
    try:
        signal.raise_signal(signal.SIGUSR1)
    finally:
        signal.signal(signal.SIGUSR1, previous)


def imports():
    import importlib.abc
    import importlib.util

    class Loader(importlib.abc.Loader):
        def create_module(self, spec):
            check()

        def exec_module(self, module):
            check()

    spec = importlib.util.spec_from_loader("made_up", Loader())
    spec.loader.exec_module(importlib.util.module_from_spec(spec))


SHAPES = [
    plain,
    recursion,
    generators,
    delegation,
    coroutines,
    event_loop,
    comprehensions,
    compiled_text,
    class_bodies,
    specialised_calls,
    callbacks_from_c,
    decorators,
    deaths,
    closures_and_cells,
    exceptions,
    signals,
    imports,
]
each_shape = pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.__name__)
in_session = pytest.mark.usefixtures("recording")


def test_layout_is_proved():
    assert _core._frames_check() == ""


@each_shape
@in_session
def test_shape(shape):
    shape()
    assert all_agree(at_least=1)


@each_shape
@in_session
def test_shape_while_tracing(shape):
    """Traced code runs other instructions, and the tracer sees frames that only begin."""

    def trace(frame, event, argument):
        if frame.f_code.co_filename == __file__ and frame.f_code is not check.__code__:
            sys.settrace(None)
            check()
            sys.settrace(trace)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        shape()
    finally:
        sys.settrace(before)
    assert all_agree(at_least=5)


@each_shape
@in_session
def test_shape_while_profiling(shape):
    def profile(frame, event, argument):
        if frame.f_code.co_filename == __file__ and frame.f_code is not check.__code__:
            sys.setprofile(None)
            check()
            sys.setprofile(profile)

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        shape()
    finally:
        sys.setprofile(before)
    assert all_agree(at_least=5)


@pytest.mark.skipif(not hasattr(sys, "monitoring"), reason="sys.monitoring is new in 3.12")
@each_shape
@in_session
def test_shape_while_monitoring(shape):
    events = sys.monitoring.events
    tool = 4
    sys.monitoring.use_tool_id(tool, "test_frames")
    sys.monitoring.set_events(tool, events.PY_START | events.LINE | events.INSTRUCTION)
    try:
        shape()
    finally:
        sys.monitoring.set_events(tool, 0)
        sys.monitoring.free_tool_id(tool)
    assert all_agree(at_least=1)


@pytest.mark.parametrize("depth", [150, 191, 192, 193, 254, 255, 256, 257, 300, 900])
@in_session
def test_depth(depth):
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + depth)

    def down(n):
        return down(n - 1) if n else check()

    try:
        down(max(0, depth - len(stack_of(sys._getframe())) - 2))
    finally:
        sys.setrecursionlimit(limit)
    assert len(seen[0][2]) == max(depth, len(stack_of(sys._getframe())) + 2)
    assert all_agree(at_least=1)


def test_called_by_c():
    """The innermost frame is that of the Python code that called the C code."""
    calls = [
        lambda take: (next(iter(take, None)), stack_of(sys._getframe())),
        lambda take: (contextvars.copy_context().run(take), stack_of(sys._getframe())),
        lambda take: (functools.partial(take)(), stack_of(sys._getframe())),
    ]
    for call in calls:
        captured, expected = call(_core._capture_stack)
        assert captured == (expected, False)


def test_threads():
    """Frames change in other threads while each walks its own without the GIL."""
    failures = queue.Queue()

    def work(number):
        def down(n):
            if n:
                return down(n - 1)
            captured, expected = _core._capture_stack(), stack_of(sys._getframe())
            return captured == (expected, False)

        for i in range(200):
            if not down((i * 7 + number) % 40):
                failures.put(number)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=work, args=(n,)) for n in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert failures.empty()


def test_thread_that_runs_no_python():
    """With a thread state or without."""
    assert _core._capture_foreign(False) == (0, False)
    assert _core._capture_foreign(True)[0] == 0


def test_equal_stacks_are_one_and_others_are_not():
    with session():
        ids = [_core._capture_id() for _ in range(50)]
        assert len(set(ids)) == 1
        assert len({_core._capture_id(), _core._capture_id(), ids[0]}) == 3


def test_exchanged_frames_differ():
    """Two lines of one function, the same number of times, in another order: also where the
    frames lie as many apart as the walk has multipliers."""

    def down(way, n=0):
        if n == len(way):
            return _core._capture_id()
        if way[n]:
            return down(way, n + 1)
        return down(way, n + 1)

    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 700)
    try:
        with session():
            ways = []
            for at in (0, 3, 40, 299):
                for apart in (1, 2, 64, 128, 255, 256, 257):
                    way = [True] * 600
                    way[at] = False
                    ways.append(way)
                    other = [True] * 600
                    other[at + apart] = False
                    ways.append(other)
            distinct = {tuple(way) for way in ways}
            assert len({down(list(way)) for way in distinct}) == len(distinct)
    finally:
        sys.setrecursionlimit(limit)


def test_cost():
    def down(n):
        return down(n - 1) if n else _core._capture_cost(2000)

    for depth in (1, 100):
        ns, frames = down(depth)
        assert frames > depth
        assert 0 < ns < 200 * frames  # far off: for a machine that does other things too
    for wrong in (0, -1):
        with pytest.raises(ValueError, match="rounds="):
            _core._capture_cost(wrong)


# ---- modules ----


class Module:
    def __init__(self, *children):
        self.children = children

    def __call__(self, *arguments):
        return self.forward(*arguments)

    def forward(self):
        if self.children:
            return self.children[0]()
        modules, expected = _core._capture_modules(), modules_of(sys._getframe())
        return modules, expected


class Other(Module):
    pass


def modules_of(frame):
    found, index = [], 0
    while frame is not None:
        if frame.f_code is Module.__call__.__code__:
            module = frame.f_locals["self"]
            found.append((index, id(module), type(module).__name__))
        frame = frame.f_back
        index += 1
    return found


@pytest.fixture
def module_call():
    _core._set_module_call(Module.__call__.__code__)
    yield
    _core._set_module_call(None)


def test_modules(module_call):
    leaf = Other()
    root = Module(Module(leaf))
    for _ in range(20):
        modules, expected = root()
        assert modules == expected and len(modules) == 3
        assert modules[0][1:] == (id(leaf), "Other")


def test_instances_are_told_apart(module_call):
    first, second = Module(), Module()

    def capture(module):
        return _core._capture_id()

    Module.forward, forward = capture, Module.forward
    try:
        with session():
            ids = [module() for module in (first, second, first, second, Other(), first)]
    finally:
        Module.forward = forward
    assert ids[0] == ids[2] == ids[5] and ids[1] == ids[3]
    assert len({ids[0], ids[1], ids[4]}) == 3


def test_modules_of_a_deep_stack(module_call):
    """Of 300 frames the innermost and the outermost stay, each module with its own."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + 1000)
    try:
        module = Module()
        for _ in range(150):
            module = Module(module)
        modules, expected = module()
    finally:
        sys.setrecursionlimit(limit)
    depth = expected[-1][0] + 1 + len(stack_of(sys._getframe()))
    left_out = depth - INNER - OUTER
    kept = [
        (index if index < INNER else index - left_out, address, name)
        for index, address, name in expected
        if index < INNER or index >= depth - OUTER
    ]
    assert modules == kept


def test_module_that_is_deleted_or_in_a_cell():
    def deleting(self):
        del self
        return _core._capture_modules()

    def in_a_cell(self):
        return _core._capture_modules() if (lambda: self)() else None

    def in_a_list(*self):
        return _core._capture_modules()

    try:
        for function in (deleting, in_a_cell, in_a_list):
            _core._set_module_call(function.__code__)
            assert function(Module()) == []
    finally:
        _core._set_module_call(None)
    with pytest.raises(TypeError):
        _core._set_module_call(Module)


# ---- code that dies while a session records ----


@contextlib.contextmanager
def session(**options):
    options = {"memory": False, "operators": False, "max_bytes": 256 << 20, **options}
    recording = _core.Session(**options)
    recording.start()
    try:
        yield recording
    finally:
        recording.abandon()


def line_of(stack_id):
    return _core._describe_id(stack_id)[0][0][2]


def template():
    number = _core._capture_id()
    return [
        number,
        _core._capture_id(),
    ]


def make(name, first_line, filename="made.py"):
    """A new code object of template() under another name, as a function."""
    changes = {"co_name": name, "co_firstlineno": first_line, "co_filename": filename}
    if HAS_QUALIFIED_NAMES:
        changes["co_qualname"] = name
    code = template.__code__.replace(**changes)
    return types.FunctionType(code, {"_core": _core})


def in_thread(function):
    """In a thread of its own: a short stack."""
    answers = []
    thread = threading.Thread(target=lambda: answers.append(function()))
    thread.start()
    thread.join()
    assert answers, "the thread failed"
    return answers[0]


def frames_described(ids):
    return [_core._describe_id(number)[0][0] for number in ids]


def agrees(ids, name, first_line):
    """The two captures in template(), on the lines where they stand."""
    lines = first_line + 1, first_line + 4
    return frames_described(ids) == [("made.py", name, line) for line in lines]


def test_hundred_thousand_dead_codes_keep_their_names():
    count = 100_000
    freed = []

    def record():
        captured = []
        for i in range(count):
            function = make(f"made_{i}", 1 + i % 1000)
            if i % 1000 == 0:
                captured_code = function.__code__
                weakref.finalize(captured_code, freed.append, i)
                del captured_code
            captured.append(function())
        del function
        return sum(not agrees(ids, f"made_{i}", 1 + i % 1000) for i, ids in enumerate(captured))

    with session() as recorded:
        assert in_thread(record) == 0
        assert freed == []  # the dead are kept
        start = time.process_time()
        recording = recorded.stop()
        took = time.process_time() - start
    assert len(freed) == count // 1000  # and then given back
    assert took < 3  # 0.3 on a quiet machine
    frames = recording.table("frames")
    names = {recording.string(number) for number in set(frames["function_id"].tolist())}
    assert names >= {f"made_{i}" for i in range(count)}
    assert recorded.coverage()["losses"]["stacks_at_limit"] == 0


@pytest.mark.parametrize("limit", [0, 1, 100])
def test_dead_codes_beyond_the_limit(limit):
    """Their addresses are given out again, to codes with the same instructions."""
    addresses = set()

    def record():
        captured = []
        for i in range(2000):
            function = make(f"made_{i}", 1 + i)
            addresses.add(id(function.__code__))
            captured.append(function())
            del function
        return sum(not agrees(ids, f"made_{i}", 1 + i) for i, ids in enumerate(captured))

    _core._set_parked_limit(limit)
    try:
        with session():
            assert in_thread(record) == 0
    finally:
        _core._set_parked_limit(None)
    if "PYTHONMALLOC" not in os.environ:  # a debugging allocator may give none out again
        assert len(addresses) < 2000


def test_every_line_of_a_dead_code_is_known():
    """A function whose lines go up, down and far, beyond the limit of kept ones."""
    lines = ["def far():", "    taken = []"]
    for i in range(300):
        lines.append("\n" * (i * 7 % 260) + "    taken.append((capture(),")
        lines += ["        line()", "    ))"]
    text = "\n".join([*lines, "    return taken"])

    def record():
        names = {"capture": _core._capture_id, "line": lambda: sys._getframe(1).f_lineno}
        exec(compile(text, "far.py", "exec"), names)
        alive = [(number, line_of(number)) for number, _ in names["far"]()]
        names.clear()
        gc.collect()
        return [(number, line, line_of(number)) for number, line in alive]

    _core._set_parked_limit(0)
    try:
        with session():
            taken = in_thread(record)
    finally:
        _core._set_parked_limit(None)
    assert len({line for _, line, _ in taken}) == 300
    assert all(before == after for _, before, after in taken)


def test_names_that_are_no_utf8():
    def record():
        function = make("\udcff\u00e9", 1, filename="\udc80.py")
        other = make("\udcfe", 5, filename="\udc80.py")
        captured = function(), other()
        del function, other
        first, second = (frames_described(ids) for ids in captured)
        return first[0], second[0]

    with session():
        first, second = in_thread(record)
    assert first == ("\\udc80.py", "\\udcff\u00e9", 2)
    assert second == ("\\udc80.py", "\\udcfe", 6)


def test_codes_die_in_peace_without_a_session():
    for _ in range(3):
        with session():
            make("kept", 1)()
        codes = [make("free", 1).__code__ for _ in range(10)]
        gone = []
        for code in codes:
            weakref.finalize(code, gone.append, 1)
        del codes, code
        assert len(gone) == 10


def test_no_room_is_counted():
    """At the memory limit stacks are missing and the coverage says how many."""

    def record():
        for i in range(100_000):
            try:
                make(f"made_{i}", 1)()
            except RuntimeError as error:
                assert "no stack" in str(error)
                return i
        return None

    with session(max_bytes=4 << 20) as recorded:
        assert in_thread(record)
        recorded.stop()
        assert recorded.coverage()["losses"]["stacks_at_limit"] > 0
