"""Chrome traces of a recording: for Perfetto, HTA, and TensorBoard's profiler page."""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import re
import secrets
import socket
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any, cast

from memprof import _core, _files

try:
    from isal import isal_zlib as _deflate
except ImportError:  # the same interface, several times slower
    _deflate = zlib  # type: ignore[misc]

_GZIP_WINDOW = 31
_LARGE_BYTES = 400 << 20  # browsers fail to open more JSON than this
_STACK_OF_CALLER = 4  # write_trace, export_..., the method, its caller

# Keys of the file that the writer makes itself, and one that a reader would cut at.
_RESERVED = frozenset(
    {"schemaVersion", "displayTimeUnit", "baseTimeNanoseconds", "traceEvents", "traceName"}
)


class _Gzip:
    """One gzip member into a binary file object; write() takes all it is given."""

    def __init__(self, write: Callable[[Any], Any]) -> None:
        self._write = write
        self._compressor = _deflate.compressobj(1, zlib.DEFLATED, _GZIP_WINDOW)

    def write(self, chunk: bytes) -> None:
        _write_all(self._write, self._compressor.compress(chunk))

    def finish(self) -> None:
        _write_all(self._write, self._compressor.flush())


def _write_all(write: Callable[[Any], Any], chunk: bytes) -> None:
    while chunk:
        taken = write(chunk)
        if taken is None or taken >= len(chunk):
            return
        if taken <= 0:
            raise OSError(f"write() took {taken} of {len(chunk)} bytes")
        chunk = chunk[taken:]


def _write_of(file: IO[bytes]) -> Callable[[bytes], Any]:
    """The file's write(); None from it means all was taken, but of a raw file that it would
    have to wait."""
    if not isinstance(file, io.RawIOBase):
        return file.write
    raw = file

    def write(chunk: bytes) -> int:
        taken = raw.write(chunk)
        if taken is None:
            raise BlockingIOError(errno.EAGAIN, "the file does not wait for its reader")
        return taken

    return write


class _Counted:
    """Passes chunks on and counts their bytes."""

    def __init__(self, write: Callable[[bytes], Any]) -> None:
        self._write = write
        self.bytes = 0

    def write(self, chunk: bytes) -> Any:
        taken = self._write(chunk)
        self.bytes += len(chunk) if taken is None else taken
        return taken


def write_trace(
    core: _core.Recording,
    file: IO[bytes],
    *,
    header: dict[str, Any] | None = None,
    name: str = "",
    gzip: bool = False,
    tensorboard: bool = False,
    call_stacks: bool | None = None,
    python_functions: bool = True,
    counter_points: int = 20_000,
) -> dict[str, int]:
    """Writes the trace into an open binary file object, which stays open.

    header: of the Recording. tensorboard: in the dialect that torch-tb-profiler 0.4.3
    reads. call_stacks: the text of the Python stack on each operator; by default only for
    TensorBoard, which shows it (elsewhere the bars of the functions do). counter_points:
    most points of each device's curve, peaks kept exactly. Returns counts of what was
    written, `dropped_slices` among them: bars nested more than 512 deep.
    """
    header = header or {}
    environment = header.get("environment", {})
    write = _write_of(file)
    packed = _Gzip(write) if gzip else None
    sink = _Counted(packed.write if packed is not None else write)
    counts: dict[str, int] = _core.write_chrome_trace(
        core,
        sink.write,
        tensorboard=tensorboard,
        header=_header_text(core, header, python_functions),
        process_id=int(environment.get("pid", os.getpid())),
        process_name=_inner_json(_program_name(environment)),
        # A reader takes the last ] of the file for the end of the events.
        trace_name=_inner_json(name).replace("]", "\\u005d"),
        call_stacks=tensorboard if call_stacks is None else call_stacks,
        python_functions=python_functions,
        counter_points=counter_points,
        gpus=_gpu_limits(environment.get("devices", [])),
    )
    if packed is not None:
        packed.finish()
    if sink.bytes > _LARGE_BYTES:
        warnings.warn(
            f"the trace has {sink.bytes >> 20} MiB of JSON; browsers open about"
            f" {_LARGE_BYTES >> 20}. Record fewer steps, or pass python_functions=False",
            stacklevel=_STACK_OF_CALLER,
        )
    return counts


def _gpu_limits(devices: list[dict[str, Any]]) -> tuple[tuple[int, int, int, int], ...]:
    """Of each device by index: multiprocessors, and the threads, registers and shared memory
    of one."""
    limits: dict[int, tuple[int, int, int, int]] = {}
    for device in devices:
        limits[int(device["id"])] = (
            int(device.get("numSms", 0)),
            int(device.get("maxThreadsPerMultiprocessor", 0)),
            int(device.get("regsPerMultiprocessor", 0)),
            int(device.get("sharedMemPerMultiprocessor", 0)),
        )
    return tuple(
        limits.get(index, (0, 0, 0, 0)) for index in range(max(limits, default=-1) + 1)
    )


def export_chrome_trace(
    core: _core.Recording,
    path: str | os.PathLike[str] | IO[bytes],
    *,
    header: dict[str, Any] | None = None,
    **options: Any,
) -> None:
    """To a file, gzipped if its name ends in .gz, or into a binary file object. OSError when
    it cannot be written; then nothing is left behind."""
    if hasattr(path, "write"):
        write_trace(core, cast(IO[bytes], path), header=header, **options)
        return
    name = os.fsdecode(path)
    with _files.replaced(name) as file:
        write_trace(core, file, header=header, name=name, gzip=name.endswith(".gz"), **options)


def export_tensorboard(
    core: _core.Recording,
    directory: str | os.PathLike[str],
    worker_name: str | None = None,
    use_gzip: bool = False,
    *,
    header: dict[str, Any] | None = None,
) -> str:
    """One more trace in a TensorBoard log directory; returns its path."""
    folder = os.fspath(directory)
    try:
        os.makedirs(folder, exist_ok=True)
    except OSError as error:
        raise RuntimeError(f"Can't create directory: {folder}") from error
    worker = _checked_worker(worker_name) if worker_name else default_worker_name()
    suffix = ".pt.trace.json.gz" if use_gzip else ".pt.trace.json"
    with _exclusive(folder, worker, suffix) as (file, path):
        write_trace(core, file, header=header, name=path, gzip=use_gzip, tensorboard=True)
    return path


def tensorboard_trace_handler(
    dir_name: str, worker_name: str | None = None, use_gzip: bool = False
) -> Callable[[Any], None]:
    """A value for `on_trace_ready` that writes each finished window into `dir_name`, where
    `tensorboard --logdir dir_name` finds it (with the package torch-tb-profiler).

    The name of the worker is by default host and process, with the rank where
    torch.distributed runs; it is fixed at the first call. RuntimeError if the directory
    cannot be made, OSError if the file cannot be written.
    """
    fixed = worker_name

    def handler(prof: Any) -> None:
        nonlocal fixed
        fixed = fixed or default_worker_name()
        prof.recording.export_tensorboard(dir_name, fixed, use_gzip)

    return handler


def default_worker_name() -> str:
    """host_pid, with the rank between them where there are several."""
    rank = ""
    if "torch.distributed" in sys.modules:
        dist = sys.modules["torch.distributed"]
        if dist.is_available() and dist.is_initialized():
            rank = f"_rank{dist.get_rank()}"
    return f"{socket.gethostname()}{rank}_{os.getpid()}"


def _checked_worker(name: str) -> str:
    if not isinstance(name, str):
        raise TypeError(f"worker_name={name!r} is of type {type(name).__name__}, not str")
    if "/" in name or "\0" in name or re.search(r"\.\d+$", name):
        raise ValueError(
            f"worker_name={name!r}: give a file name without '/', not ending in a dot and"
            " digits (TensorBoard takes these for the time of the trace)"
        )
    return name


@contextlib.contextmanager
def _exclusive(folder: str, worker: str, suffix: str) -> Iterator[tuple[IO[bytes], str]]:
    """A new file under a name that nobody has, complete before the name appears."""
    temporary = os.path.join(folder, f".{worker[:100]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        path = os.path.join(folder, f"{worker}.{time.time_ns()}{suffix}")
        with os.fdopen(descriptor, "wb", buffering=0) as file:
            yield file, path
        _take_name(temporary, path)
    finally:
        with contextlib.suppress(OSError):
            os.unlink(temporary)


def _take_name(temporary: str, path: str) -> None:
    """Two writers get the same nanosecond only where clocks are coarse; then the second
    one's file is not lost but refused, and what stands there stays."""
    try:
        os.link(temporary, path)  # fails where the name is taken, unlike a rename
    except FileExistsError:
        raise
    except OSError:  # a file system without hard links
        if os.path.exists(path):
            raise
        os.replace(temporary, path)


def _program_name(environment: dict[str, Any]) -> str:
    name = os.path.basename((environment.get("argv") or [""])[0])
    return "python" if name in ("", "-", "-c", "-m") else name


def _inner_json(text: str) -> str:
    """The inside of a JSON string."""
    safe = text.encode("utf-8", "backslashreplace").decode()
    return json.dumps(safe, ensure_ascii=False)[1:-1]


def _header_text(core: _core.Recording, header: dict[str, Any], python_functions: bool) -> str:
    environment = header.get("environment", {})
    coverage = header.get("coverage", {})
    metadata = header.get("metadata", {})
    members: dict[str, Any] = {
        "deviceProperties": _device_properties(core, environment.get("devices", [])),
        "host_name": socket.gethostname(),
    }
    if "distributedInfo" in metadata:  # readers take the rank from the first one in the file
        members["distributedInfo"] = metadata["distributedInfo"]
    if header.get("trace_id"):
        members["trace_id"] = header["trace_id"]
    members["profile_memory"] = 1
    members["with_stack"] = 1
    if coverage.get("sources", {}).get("shapes", {}).get("on"):
        members["record_shapes"] = 1
    losses = {key: count for key, count in coverage.get("losses", {}).items() if count}
    members["memprof"] = {
        "python_functions": "rebuilt from the stacks at events" if python_functions else "off",
        "losses": losses,
        "sources": {
            name: source["reason"] or "on"
            for name, source in coverage.get("sources", {}).items()
        },
    }
    for key, value in metadata.items():
        if key not in _RESERVED:
            members[key] = value
    text = json.dumps(members, ensure_ascii=False, allow_nan=False, default=str, indent=None)
    # Readers search the text for this key; the same key, written otherwise.
    text = text.replace('"traceEvents": ', '"trace\\u0045vents": ')
    text = text.encode("utf-8", "backslashreplace").decode()
    return text[1:-1] + ",\n"


def _device_properties(
    core: _core.Recording, known: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """One entry a device index, as readers index the list if there is one at all."""
    devices = core.table("devices")
    used = devices["device_index"][devices["device_type"] == 1]
    count = int(used.max()) + 1 if len(used) else 0
    if not known or len(known) >= count:
        return known
    return [*known, *({"id": index, "name": "?"} for index in range(len(known), count))]
