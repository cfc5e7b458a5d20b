"""Recording: columns over the C memory, answers, and the file that comes back the same."""

import gc
import io
import json
import os
import threading
import types
import zipfile

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from recording_builder import CUDA, DTYPES, OPTIMIZER_SPAN, Builder

import memprof
from memprof import _core
from memprof._texts import is_user_file
from memprof.recording import Frame, Moment, Recording, load

TIMES = {"start_ns": 0, "window_start_ns": 0, "stop_ns": 100}


def small():
    """Two devices, two steps, two modules, a span."""
    builder = Builder(stop_ns=1000)
    thread = builder.thread(1, "main")
    builder.thread(2, "worker")
    net = builder.module("net")
    layer = builder.module("net.0", parent_id=net)
    call = ("/v/lib/python3.11/site-packages/torch/nn/modules/module.py", 7, "__call__", 1)
    torch_frame = ("/v/lib/python3.11/site-packages/torch/nn/functional.py", 9, "linear")
    forward = builder.stack(torch_frame, call, ("net.py", 3, "forward"), module_id=layer)
    main = builder.stack(("train.py", 5, "main"))
    builder.step(10, 100, 200, thread)
    builder.step(11, 200, 300, thread)
    builder.add("spans", start_ns=250, end_ns=260, thread=thread, kind=OPTIMIZER_SPAN)
    linear = builder.operator("aten::linear", 110, 150, thread=thread, stack_id=forward)
    empty = builder.operator("aten::empty", 120, 130, thread=thread, parent_id=linear, depth=1)
    builder.alloc(50, 1, 1000, thread=2, stack_id=main)
    builder.alloc(125, 2, 300, thread=1, stack_id=forward, operator_id=empty)
    builder.alloc(
        126, 2, 512, CUDA, thread=1, stack_id=forward, allocated_bytes=512, reserved_bytes=2048
    )
    builder.free(190, 2)
    builder.alloc(255, 3, 40, thread=1, stack_id=main)
    builder.alloc(256, 4, 60)
    return builder


@pytest.fixture
def recording():
    return small().build(
        {"options": {"stacks": True}, "coverage": {"losses": {}}, "metadata": {}}
    )


# ---- columns


def test_columns_are_read_only_views_that_keep_the_recording(recording):
    blocks = recording.blocks
    core = recording._core
    assert core.table("blocks").ctypes.data == core.table("blocks").ctypes.data
    assert blocks.base is core
    with pytest.raises(ValueError, match="read-only"):
        blocks["bytes"] = 0
    with pytest.raises(ValueError, match="WRITEABLE"):
        blocks.setflags(write=True)
    expected = blocks.tolist()
    del recording, core
    gc.collect()
    assert blocks.tolist() == expected


def test_every_table_has_the_fields_of_its_struct(recording):
    sizes = {"allocations": 64, "operators": 64, "blocks": 72, "devices": 96, "stack_frames": 4}
    for name, size in sizes.items():
        assert recording._core.table(name).dtype.itemsize == size
    with pytest.raises(KeyError):
        recording._core.table("nothing")
    with pytest.raises(TypeError):
        recording._core.table(1)
    assert len(recording.activities) == 0
    assert not recording.activities.flags.writeable


def test_core_recording_is_made_by_from_tables_only():
    with pytest.raises(TypeError):
        _core.Recording()
    with pytest.raises(TypeError):
        _core.growth(object())


def test_from_tables_copies():
    rows = np.zeros(2, DTYPES["steps"])
    rows["start_ns"], rows["end_ns"] = [0, 5], [5, 9]
    core = _core.Recording.from_tables({"steps": rows}, **TIMES)
    rows["start_ns"] = 77
    assert core.table("steps")["start_ns"].tolist() == [0, 5]
    strided = _core.Recording.from_tables({"steps": core.table("steps")[::-1][::-1]}, **TIMES)
    assert strided.table("steps").tolist() == core.table("steps").tolist()


def one(table, **values):
    rows = np.zeros(1, DTYPES[table])
    for name, value in values.items():
        rows[name] = value
    return {table: rows}


def two(table, field, values, **others):
    rows = np.zeros(2, DTYPES[table])
    for name, value in others.items():
        rows[name] = value
    rows[field] = values
    return {table: rows}


BROKEN = {
    "allocations: kind": one("allocations", kind=4),
    "allocations: bytes": one("allocations", kind=1, bytes=-1),
    "allocations: thread": one("allocations", kind=1, thread=1),
    "allocations: stack_id": one("allocations", kind=1, stack_id=1),
    "allocations: operator_id": one("allocations", kind=1, operator_id=1),
    "allocations: time_ns": two("allocations", "time_ns", [2, 1], kind=1),
    "operators: end_ns": one("operators", start_ns=2, end_ns=1),
    "operators: start_ns": two("operators", "start_ns", [2, 1], end_ns=9),
    "operators: scope": one("operators", scope=10),
    "operators: name_id": one("operators", name_id=1),
    "operators: overload_id": one("operators", overload_id=1),
    "operators: parent_id": one("operators", parent_id=1),
    "operators: thread": one("operators", thread=1),
    "operators: stack_id": one("operators", stack_id=1),
    "operators: shapes_id": one("operators", shapes_id=1),
    "operators: forward_id": one("operators", forward_id=2),
    "steps: end_ns": one("steps", start_ns=2),
    "steps: must not overlap": two("steps", "start_ns", [0, 1], end_ns=5),
    "steps: thread": one("steps", thread=1),
    "spans: kind": one("spans"),
    "spans: end_ns": one("spans", kind=1, start_ns=1),
    "spans: start_ns": two("spans", "start_ns", [2, 1], kind=1, end_ns=5),
    "spans: name_id": one("spans", kind=1, name_id=9),
    "spans: thread": one("spans", kind=1, thread=1),
    "threads: name_id": one("threads", name_id=1),
    "stacks: stack 0": one("stacks", depth=1),
    "stacks: offset": two("stacks", "depth", [0, 1]),
    "stacks: module_id": one("stacks", module_id=1),
    "stack_frames: entry": {"stack_frames": np.zeros(1, "u4")},
    "frames: file_id": one("frames", file_id=1),
    "frames: function_id": one("frames", function_id=1),
    "modules: path_id": one("modules", path_id=1),
    "modules: class_id": one("modules", class_id=1),
    "modules: parent_id is": one("modules", parent_id=2),
    "modules: parent_id leads": two("modules", "parent_id", [2, 1]),
    "baseline: bytes": one("baseline", bytes=-1),
    "baseline: stack_id": one("baseline", stack_id=1),
    "blocks: birth_ns": two("blocks", "birth_ns", [2, 1], death_ns=-1),
    "blocks: death_ns": one("blocks", birth_ns=2, death_ns=1),
    "blocks: bytes": one("blocks", bytes=-1),
    "blocks: thread": one("blocks", thread=1),
    "blocks: operator_id": one("blocks", operator_id=1),
    "blocks: stack_id": one("blocks", stack_id=1),
    "blocks: module_id": one("blocks", module_id=1),
    "blocks: category": one("blocks", category=99),
    "blocks: phase": one("blocks", phase=99),
    "string_offsets: the first": {"string_offsets": np.array([1], "u8")},
    "string_offsets: string 0": {"string_offsets": np.array([0, 1], "u8")},
    "string_offsets: must not fall": {"string_offsets": np.array([0, 0, 5, 2], "u8")},
    "string_offsets: the last": {"string_offsets": np.array([0, 0, 5], "u8")},
    "shape_offsets: must not fall": {"shape_offsets": np.array([2, 1], "u4")},
    "shape_offsets: the last": {"shape_offsets": np.array([0, 1], "u4")},
}


@pytest.mark.parametrize("rule", BROKEN)
def test_from_tables_names_table_and_rule(rule):
    with pytest.raises(ValueError, match=f"not a valid recording: {rule}"):
        _core.Recording.from_tables(BROKEN[rule], **TIMES, analyse=True)


@pytest.mark.parametrize(
    ("tables", "error", "text"),
    [
        ({"x": np.zeros(1)}, ValueError, "unknown table 'x'"),
        ({1: np.zeros(1)}, ValueError, "unknown table 1"),
        ({"steps": [1]}, TypeError, "'steps' must be a NumPy array, not list"),
        ({"steps": np.zeros(1)}, ValueError, "'steps' must have dtype .* not float64"),
        ({"steps": np.zeros((1, 1), DTYPES["steps"])}, ValueError, "one dimension, not 2"),
        ({"string_bytes": np.array([None])}, ValueError, "not object"),
        (5, TypeError, "mapping"),
    ],
)
def test_from_tables_refuses(tables, error, text):
    with pytest.raises(error, match=text):
        _core.Recording.from_tables(tables, **TIMES)


def test_from_tables_refuses_times_that_fall():
    with pytest.raises(ValueError, match="window_start_ns"):
        _core.Recording.from_tables({}, start_ns=5, window_start_ns=4, stop_ns=9)


@settings(deadline=None, max_examples=200)
@given(st.data())
def test_any_bytes_in_the_tables_are_checked_or_analysed_without_harm(data):
    tables = small().tables()
    for name in data.draw(st.sets(st.sampled_from(sorted(tables)), max_size=3)):
        raw = bytearray(tables[name].tobytes())
        for _ in range(data.draw(st.integers(1, 4))):
            raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
        tables[name] = np.frombuffer(bytes(raw), tables[name].dtype)
    try:
        core = _core.Recording.from_tables(tables, **TIMES | {"stop_ns": 10**9}, analyse=True)
    except ValueError:
        return
    recording = Recording(core)
    _core.growth(core)
    recording.step_table()
    if recording.devices():
        recording.by(("line", "module", "operator", "phase", "thread", "stack", "category"))


# ---- texts


def test_strings_and_stacks(recording):
    assert recording.strings[0] == ""
    assert "aten::linear" in list(recording.strings)
    assert recording.strings[:1] == ("",)
    assert recording.stacks[0] == ()
    inner = recording.stacks[1][0]
    assert inner == Frame(inner.file, 9, "linear")
    assert recording.stacks[1][-1] == ("net.py", 3, "forward")
    assert recording.stacks[-1] == recording.stacks[len(recording.stacks) - 1]
    for bad in (len(recording.stacks), -len(recording.stacks) - 1):
        with pytest.raises(IndexError, match="stack id"):
            recording.stacks[bad]
    with pytest.raises(IndexError, match="string id"):
        recording.strings[10**6]
    with pytest.raises(IndexError):
        recording._core.string(10**6)
    assert Builder().build().stacks[0] == ()


def test_bytes_that_are_no_utf8_are_shown():
    tables = {
        "string_offsets": np.array([0, 0, 2], "u8"),
        "string_bytes": np.frombuffer(b"a\xff", "u1"),
    }
    assert (
        _core.Recording.from_tables(tables, **TIMES).string(1) == "a\N{REPLACEMENT CHARACTER}"
    )


@pytest.mark.parametrize(
    ("file", "expected"),
    [
        ("/home/me/torch/train.py", True),
        ("train.py", True),
        ("<stdin>", True),
        ("/v/lib/python3.11/site-packages/transformers/modeling.py", True),
        ("/v/lib/python3.11/site-packages/torch/nn/functional.py", False),
        ("/v/lib/python3.11/site-packages/memprof/profiler.py", False),
        ("/src/pytorch/torch/optim/adam.py", False),
        ("/src/pytorch/torch/_ops.py", False),
        ("/usr/lib/python3.11/contextlib.py", False),
        ("<frozen runpy>", False),
        (memprof.__file__, False),
    ],
)
def test_user_files(file, expected):
    assert is_user_file(file) is expected


# ---- answers


def test_peak(recording):
    assert recording.devices() == ["cpu", "cuda:0"]
    assert recording.peak() == Moment(126, "cuda:0", 512, 2048, 10)
    cpu = recording.peak("cpu")
    assert cpu == Moment(125, "cpu", 1300, 0, 10)
    for same in ("CPU", " cpu ", types.SimpleNamespace(type="cpu", index=None)):
        assert recording.peak(same) == cpu
    for same in (0, "cuda", "cuda:0", types.SimpleNamespace(type="cuda", index=0)):
        assert recording.peak(same).device == "cuda:0"


def test_live(recording):
    assert recording.live(device="cpu")["bytes"].tolist() == [1000, 300]
    assert recording.live(150)["bytes"].tolist() == [1000, 300, 512]
    assert recording.live(150, "cuda:0")["bytes"].tolist() == [512]
    assert recording.live(np.int64(190), "cpu")["bytes"].tolist() == [1000]
    assert recording.live()["bytes"].tolist() == [512]
    assert recording.live(0)["bytes"].tolist() == []
    assert not recording.live().flags.writeable


def test_by(recording):
    def groups(key):
        return [tuple(group) for group in recording.by(key, device="cpu")]

    assert groups("module") == [("(no module)", 1000, 1), ("net.0", 300, 1)]
    assert groups("line") == [("train.py:5 main", 1000, 1), ("net.py:3 forward", 300, 1)]
    assert groups("operator") == [("(no operator)", 1000, 1), ("aten::linear", 300, 1)]
    assert groups("phase") == [("other", 1000, 1), ("forward", 300, 1)]
    assert groups("thread") == [("worker 102", 1000, 1), ("main 101", 300, 1)]
    assert groups("category") == [("unknown", 1300, 2)]
    assert groups("stack")[1][0].startswith("net.py:3 forward;/v/lib")
    assert groups(("phase", "module")) == [
        (("other", "(no module)"), 1000, 1),
        (("forward", "net.0"), 300, 1),
    ]
    assert recording.by("line", at=0) == []
    assert [group.bytes for group in recording.by("thread", at=999, device="cpu")] == [
        1000,
        60,
        40,
    ]


def test_step_table_and_balance(recording):
    table = recording.step_table()
    cpu = table[table["device_type"] == 0]
    assert cpu["step"].tolist() == [10, 11]
    assert cpu["start_bytes"].tolist() == [1000, 1000]
    assert cpu["peak_bytes"].tolist() == [1300, 1100]
    assert cpu["end_bytes"].tolist() == [1000, 1100]
    assert cpu["allocated_bytes"].tolist() == [300, 100]
    assert cpu["freed_bytes"].tolist() == [300, 0]
    assert all(row.balanced and row.notes == () for row in recording.balance())


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda r: r.peak("cuda:3"), ValueError, "device='cuda:3' .*'cpu', 'cuda:0'"),
        (lambda r: r.peak(7), ValueError, "device=7 "),
        (lambda r: r.peak(True), TypeError, "device=True is of type bool"),
        (lambda r: r.peak(1.5), TypeError, "torch.device"),
        (lambda r: r.live("now"), TypeError, "at='now' .*Moment"),
        (lambda r: r.live(1.0), TypeError, "ns"),
        (lambda r: r.live(True), TypeError, "at=True"),
        (lambda r: r.by("lines"), ValueError, "key='lines' is unknown; .*\"line\""),
        (lambda r: r.by(()), ValueError, "empty"),
        (lambda r: r.by((1,)), TypeError, "key=1"),
        (lambda r: r.save(5), TypeError, "path=5"),
        (lambda r: r.save(b"x"), TypeError, "path=b'x'"),
        (lambda r: load(None), TypeError, "path=None"),
    ],
)
def test_errors_name_argument_value_and_cure(recording, call, error, text):
    with pytest.raises(error, match=text):
        call(recording)


def test_no_events_is_said():
    empty = Builder().build()
    assert empty.devices() == []
    with pytest.raises(ValueError, match="no allocator events.*coverage"):
        empty.peak()
    with pytest.raises(ValueError, match="no allocator events"):
        empty.peak("cpu")
    assert empty.live(5).tolist() == []
    assert "0 steps" in repr(empty)


def test_header_and_metadata_are_copies(recording):
    recording.coverage["losses"]["x"] = 1
    recording.header["options"].clear()
    more = recording.with_metadata({"run": 5})
    assert recording.header == {
        "options": {"stacks": True},
        "coverage": {"losses": {}},
        "metadata": {},
    }
    assert more.header["metadata"] == {"run": 5}
    assert more.blocks.base is recording.blocks.base


def test_reading_from_many_threads(recording):
    expected = [recording.by(key) for key in ("line", "stack", "module")]
    failures = []

    def work():
        for _ in range(30):
            fresh = Recording(recording._core)
            if [fresh.by(key) for key in ("line", "stack", "module")] != expected:
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


# ---- files


def same(first, second):
    for name in first._core.table_names:
        assert first._core.table(name).tobytes() == second._core.table(name).tobytes()
    assert first.header == second.header
    assert (first.start_ns, first.window_start_ns, first.stop_ns) == (
        second.start_ns,
        second.window_start_ns,
        second.stop_ns,
    )


@pytest.mark.parametrize("compress", [True, False])
def test_save_and_load(recording, tmp_path, compress):
    path = tmp_path / "a.memprof"
    recording.save(path, compress=compress)
    same(recording, memprof.load(path))
    same(recording, load(str(path)))
    again = tmp_path / "b.memprof"
    memprof.load(path).save(again, compress=compress)
    assert path.read_bytes() == again.read_bytes()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.memprof", "b.memprof"]
    assert path.stat().st_mode & 0o777 == 0o666 & ~current_umask()


def current_umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_numpy_reads_the_file_without_memprof(recording, tmp_path):
    path = tmp_path / "a.memprof"
    recording.save(path)
    with open(path, "rb") as file, np.load(file) as columns:
        assert columns["blocks"].tolist() == recording.blocks.tolist()
        assert set(columns.files) == {*recording._core.table_names, "memprof.json"}


def test_empty_recording_comes_back(tmp_path):
    empty = Builder().build()
    empty.save(tmp_path / "e")
    same(empty, load(tmp_path / "e"))


def test_failed_save_leaves_what_was_there(recording, tmp_path, monkeypatch):
    path = tmp_path / "a.memprof"
    path.write_bytes(b"before")

    def fail(*_args, **_kwargs):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np.lib.format, "write_array", fail)
    with pytest.raises(OSError, match="No space"):
        recording.save(path)
    assert path.read_bytes() == b"before"
    assert [p.name for p in tmp_path.iterdir()] == ["a.memprof"]
    with pytest.raises(FileNotFoundError):
        recording.save(tmp_path / "missing" / "a.memprof")


def test_missing_file_is_an_os_error(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "nothing")
    with pytest.raises(IsADirectoryError):
        load(tmp_path)


@pytest.fixture
def parts(recording, tmp_path):
    """Members of a saved file, and a function that saves them changed and loads them."""
    path = tmp_path / "whole"
    recording.save(path)
    with zipfile.ZipFile(path) as archive:
        content = {name: archive.read(name) for name in archive.namelist()}

    def reload(changed):
        with zipfile.ZipFile(tmp_path / "changed", "w") as archive:
            for name, data in changed.items():
                archive.writestr(name, data)
        return load(tmp_path / "changed")

    return content, reload


def with_header(content, **values):
    document = {**json.loads(content["memprof.json"]), **values}
    return {**content, "memprof.json": json.dumps(document)}


def npy(array, **options):
    buffer = io.BytesIO()
    np.save(buffer, array, **options)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda c: {n: d for n, d in c.items() if n != "memprof.json"}, "memprof.json"),
        (lambda c: {n: d for n, d in c.items() if n != "blocks.npy"}, "blocks.npy"),
        (lambda c: {**c, "memprof.json": "{"}, "not a whole memprof recording"),
        (lambda c: {**c, "memprof.json": "[" * 100000}, "not a whole"),
        (lambda c: {**c, "memprof.json": "[]"}, "is not of a recording"),
        (lambda c: with_header(c, format=2), "format is 2 .* update memprof"),
        (lambda c: with_header(c, format="x"), "format is 'x'"),
        (lambda c: with_header(c, header=5), "lacks"),
        (lambda c: with_header(c, tables={"x": 1}), "x.npy"),
        (lambda c: with_header(c, start_ns="x"), "not a whole"),
        (lambda c: with_header(c, start_ns=10**30), "not a whole"),
        (lambda c: with_header(c, start_ns=10**15), "must not fall"),
        (lambda c: {**c, "blocks.npy": c["blocks.npy"][:-9]}, "blocks.npy"),
        (lambda c: {**c, "blocks.npy": c["blocks.npy"] + b"x"}, "bytes where"),
        (lambda c: {**c, "blocks.npy": b""}, "not a whole"),
        (lambda c: {**c, "blocks.npy": c["steps.npy"]}, "'blocks'"),
        (lambda c: {**c, "blocks.npy": npy(np.zeros(5))}, "dtype|rows"),
        (lambda c: {**c, "blocks.npy": npy(np.array([{}] * 5), allow_pickle=True)}, "plain"),
        (lambda c: {**c, "blocks.npy": npy(np.zeros((5, 0)))}, "plain"),
        (
            lambda c: {
                **c,
                "blocks.npy": c["blocks.npy"].replace(b"(5,), }         ", b"(9999999999,), }"),
            },
            "shorter than it says",
        ),
    ],
)
def test_damaged_files_are_value_errors(parts, change, text):
    content, reload = parts
    with pytest.raises(ValueError, match=text):
        reload(change(content))


def test_ids_in_a_file_are_checked(parts):
    content, reload = parts
    reload(content)
    blocks = np.load(io.BytesIO(content["blocks.npy"]))
    blocks["stack_id"] = 10**6
    with pytest.raises(ValueError, match="blocks: stack_id is no stack"):
        reload({**content, "blocks.npy": npy(blocks)})


def test_file_cut_anywhere_or_with_a_flipped_byte_never_crashes(recording, tmp_path):
    whole = tmp_path / "whole"
    recording.save(whole)
    data = whole.read_bytes()
    damaged = tmp_path / "damaged"
    for cut in range(0, len(data), max(len(data) // 60, 1)):
        damaged.write_bytes(data[:cut])
        with pytest.raises(ValueError, match="damaged"):
            load(damaged)
    rng = np.random.default_rng(1)
    for place in rng.integers(0, len(data), 300):
        changed = bytearray(data)
        changed[place] ^= 1 << int(rng.integers(8))
        damaged.write_bytes(changed)
        try:
            loaded = load(damaged)
        except ValueError:
            continue
        loaded.by("line")
        _core.growth(loaded._core)
