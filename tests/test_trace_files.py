"""Where a trace goes: paths, file objects of all kinds, directories of TensorBoard."""

import errno
import gzip
import io
import json
import os
import re
import resource
import stat
import threading
import time
import warnings
import zlib

import pytest
import synthetic
from trace_rules import written

import memprof
from memprof import trace


@pytest.fixture(scope="module")
def recording():
    return synthetic.training()[0]


@pytest.fixture(scope="module")
def long_recording():
    """Several chunks."""
    return synthetic.long_recording(10_000)


def same_but_name(text, other):
    return re.sub(rb'"traceName".*', b"", text) == re.sub(rb'"traceName".*', b"", other)


# ---- file objects


class Short:
    """Takes a few bytes at a time, as sockets and pipes may."""

    def __init__(self, most):
        self.most, self.chunks = most, []

    def write(self, chunk):
        assert type(chunk) is bytes  # it may be kept
        self.chunks.append(chunk[: self.most])
        return len(self.chunks[-1])


@pytest.mark.parametrize("most", [1, 1000, 300_000, 1 << 30])
def test_short_writes_lose_nothing(recording, long_recording, most):
    source = recording if most == 1 else long_recording
    file = Short(most)
    source.export_chrome_trace(file)
    assert b"".join(file.chunks) == written(source)


def test_chunks_are_of_a_mebibyte(long_recording):
    file = Short(1 << 30)
    long_recording.export_chrome_trace(file)
    assert len(file.chunks) > 3
    assert all(900_000 < len(chunk) <= 1 << 20 for chunk in file.chunks[:-1])


def test_none_from_write_means_all(recording):
    class Silent:
        text = b""

        def write(self, chunk):
            self.text += chunk

    file = Silent()
    recording.export_chrome_trace(file)
    assert file.text == written(recording)


@pytest.mark.parametrize("nth", [1, 2, 4])
def test_a_failing_file_is_asked_no_more(long_recording, nth):
    class Failing:
        calls = 0

        def write(self, chunk):
            self.calls += 1
            if self.calls == nth:
                raise ConnectionResetError("the other side is gone")
            return len(chunk)

    file = Failing()
    with pytest.raises(ConnectionResetError, match="the other side is gone"):
        long_recording.export_chrome_trace(file)
    assert file.calls == nth


@pytest.mark.parametrize("answer", [0, -1])
def test_a_file_that_takes_nothing_is_an_error(recording, answer):
    class Full:
        def write(self, chunk):
            return answer

    with pytest.raises(OSError, match=f"took {answer} of"):
        recording.export_chrome_trace(Full())


def test_a_write_that_answers_nonsense_is_an_error(recording):
    class Odd:
        def write(self, chunk):
            return "all of it"

    with pytest.raises(TypeError):
        recording.export_chrome_trace(Odd())


def test_a_raw_file_that_would_wait_is_an_error(long_recording):
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    with open(reader, "rb"), open(writer, "wb", buffering=0) as file:
        with pytest.raises(BlockingIOError):
            long_recording.export_chrome_trace(file)
        assert not file.closed


def test_a_slow_reader_gets_it_all_and_python_goes_on(long_recording):
    """The pipe holds 64 KiB: the writer waits, other threads run meanwhile."""
    reader, writer = os.pipe()
    got = []

    def read():
        with open(reader, "rb", buffering=0) as file:
            while chunk := file.read(65536):
                got.append(chunk)
                time.sleep(0.0005)

    thread = threading.Thread(target=read)
    thread.start()
    with open(writer, "wb", buffering=0) as file:
        long_recording.export_chrome_trace(file)
        assert not file.closed
    thread.join()
    assert b"".join(got) == written(long_recording)


def test_a_text_file_is_refused(recording):
    with pytest.raises(TypeError):
        recording.export_chrome_trace(io.StringIO())


def test_two_threads_may_write_one_recording(long_recording):
    files = [io.BytesIO() for _ in range(4)]
    threads = [
        threading.Thread(target=long_recording.export_chrome_trace, args=(file,))
        for file in files
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {file.getvalue() for file in files} == {written(long_recording)}


# ---- paths


def test_gzip_is_one_member(long_recording, tmp_path):
    path = tmp_path / "trace.json.gz"
    long_recording.export_chrome_trace(path)
    inflate = zlib.decompressobj(31)
    text = inflate.decompress(path.read_bytes())
    assert inflate.eof and inflate.unused_data == b""
    assert same_but_name(text, written(long_recording))
    assert json.loads(text)["traceName"] == str(path)


def test_zlib_will_do(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "_deflate", zlib)
    recording.export_chrome_trace(tmp_path / "t.gz")
    text = gzip.decompress((tmp_path / "t.gz").read_bytes())
    assert same_but_name(text, written(recording))


def test_paths_of_all_kinds(recording, tmp_path):
    recording.export_chrome_trace(tmp_path / "a.json")
    recording.export_chrome_trace(str(tmp_path / "b.json"))
    recording.export_chrome_trace(os.fsencode(tmp_path / "c.json"))
    for name in "abc":
        assert json.loads((tmp_path / f"{name}.json").read_bytes())["traceEvents"]
    with pytest.raises(TypeError):
        recording.export_chrome_trace(7)


def test_what_was_there_is_replaced_whole(recording, tmp_path):
    path = tmp_path / "trace.json"
    path.write_text("old")
    link = tmp_path / "latest.json"
    link.symlink_to(path)
    recording.export_chrome_trace(link)
    assert link.is_symlink() and json.loads(path.read_bytes())["traceEvents"]
    assert sorted(os.listdir(tmp_path)) == ["latest.json", "trace.json"]


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_no_room_leaves_nothing_behind(long_recording, tmp_path, name):
    (tmp_path / "trace.json").write_text("old")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError) as caught:
            long_recording.export_chrome_trace(tmp_path / name)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert caught.value.errno == errno.EFBIG
    assert os.listdir(tmp_path) == ["trace.json"]
    assert (tmp_path / "trace.json").read_text() == "old"
    long_recording.export_chrome_trace(tmp_path / name)  # nothing is lost


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_a_full_device(recording):
    before = os.stat("/dev/full")
    with pytest.raises(OSError) as caught:
        recording.export_chrome_trace("/dev/full")
    assert caught.value.errno == errno.ENOSPC
    with open("/dev/full", "wb", buffering=0) as file, pytest.raises(OSError):
        recording.export_chrome_trace(file)
    after = os.stat("/dev/full")
    assert stat.S_ISCHR(after.st_mode) and after.st_ino == before.st_ino


def test_devices_are_written_to_and_not_replaced(recording, tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    got = []
    thread = threading.Thread(target=lambda: got.append(pipe.read_bytes()))
    thread.start()
    recording.export_chrome_trace(pipe)
    thread.join()
    assert same_but_name(got[0], written(recording))
    assert stat.S_ISFIFO(os.stat(pipe).st_mode) and os.listdir(tmp_path) == ["pipe"]


@pytest.mark.parametrize("place", ["no/such/trace.json", "file/trace.json", "folder"])
def test_a_path_that_cannot_be_written(recording, tmp_path, place):
    (tmp_path / "file").write_text("")
    (tmp_path / "folder").mkdir()
    with pytest.raises(OSError):
        recording.export_chrome_trace(tmp_path / place)
    assert sorted(os.listdir(tmp_path)) == ["file", "folder"]


def test_a_large_trace_is_told(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(trace, "_LARGE_BYTES", 1 << 10)
    with pytest.warns(UserWarning, match="of JSON; browsers open about") as caught:
        recording.export_chrome_trace(tmp_path / "t.json.gz")
    assert caught[0].filename == __file__
    monkeypatch.undo()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        recording.export_chrome_trace(tmp_path / "t.json.gz")


# ---- directories


class Profiler:
    def __init__(self, recording):
        self.recording = recording


@pytest.mark.parametrize("use_gzip", [False, True])
def test_the_handler_writes_a_file_a_window(recording, tmp_path, use_gzip):
    handler = memprof.tensorboard_trace_handler(tmp_path / "a" / "b", use_gzip=use_gzip)
    for _ in range(50):
        handler(Profiler(recording))
    names = sorted(os.listdir(tmp_path / "a" / "b"))
    assert len(names) == 50
    suffix = r"\.gz" if use_gzip else ""
    for name in names:
        assert re.fullmatch(rf".+_{os.getpid()}\.\d{{19}}\.pt\.trace\.json{suffix}", name)
    data = (tmp_path / "a" / "b" / names[0]).read_bytes()
    assert json.loads(gzip.decompress(data) if use_gzip else data)["traceEvents"]


def test_a_taken_name_is_never_written_over(recording, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time_ns", lambda: 1234567890123456789)
    recording.export_tensorboard(tmp_path, "w")
    (name,) = os.listdir(tmp_path)
    (tmp_path / name).write_text("first")
    with pytest.raises(FileExistsError):
        recording.export_tensorboard(tmp_path, "w")
    assert os.listdir(tmp_path) == [name] and (tmp_path / name).read_text() == "first"


def test_without_hard_links_a_rename_will_do(recording, tmp_path, monkeypatch):
    def refuse(*names):
        raise PermissionError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    path = recording.export_tensorboard(tmp_path, "w")
    assert os.listdir(tmp_path) == [os.path.basename(path)]


def test_a_failure_leaves_no_file_that_tensorboard_sees(long_recording, tmp_path):
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4096, hard))
    try:
        with pytest.raises(OSError):
            long_recording.export_tensorboard(tmp_path, "w")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert os.listdir(tmp_path) == []


def test_a_directory_that_cannot_be_made(recording, tmp_path):
    (tmp_path / "file").write_text("")
    folder = str(tmp_path / "file" / "log")
    with pytest.raises(RuntimeError, match="Can't create directory: ") as caught:
        memprof.tensorboard_trace_handler(folder)(Profiler(recording))
    assert str(caught.value) == f"Can't create directory: {folder}"
    assert isinstance(caught.value.__cause__, OSError)


@pytest.mark.parametrize("name", ["a/b", "a\0b", "worker.123"])
def test_a_worker_name_that_readers_misread(recording, tmp_path, name):
    with pytest.raises(ValueError, match="worker_name="):
        recording.export_tensorboard(tmp_path, name)


def test_the_default_worker_is_host_and_process():
    assert re.fullmatch(rf".+_{os.getpid()}", trace.default_worker_name())
