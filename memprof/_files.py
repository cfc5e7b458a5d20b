"""The file of a recording: a zip with one .npy member a table and one JSON header, so that
numpy.load reads the columns without memprof. The same recording gives the same bytes."""

import contextlib
import json
import os
import secrets
import stat
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import IO, Any, NoReturn

import numpy as np
from isal import isal_zlib

from memprof import _core

FORMAT = 1
_HEADER = "memprof.json"
_HEADER_LIMIT = 1 << 28
_READ_ERRORS = (
    EOFError,
    KeyError,
    MemoryError,
    NotImplementedError,  # a zip feature
    OverflowError,
    RecursionError,
    RuntimeError,  # an encrypted member
    TypeError,
    ValueError,
    struct.error,
    zipfile.BadZipFile,
    zlib.error,
)


# ---- writing


def save(
    path: str | os.PathLike[str], core: _core.Recording, header: dict[str, Any], compress: bool
) -> None:
    """OSError leaves what was at `path` before, and nothing else."""
    tables = {name: core.table(name) for name in core.table_names}
    document = {
        "kind": "memprof recording",
        "format": FORMAT,
        "start_ns": core.start_ns,
        "window_start_ns": core.window_start_ns,
        "stop_ns": core.stop_ns,
        "tables": {name: len(rows) for name, rows in tables.items()},
        "header": header,
    }
    text = json.dumps(document, default=str, indent=1).encode()
    method = zipfile.ZIP_DEFLATED if compress else zipfile.ZIP_STORED
    with (
        replaced(path) as file,
        zipfile.ZipFile(file, "w", method, compresslevel=1) as archive,
    ):
        archive.writestr(_member(_HEADER, method), text)
        for name, rows in tables.items():
            with archive.open(_member(f"{name}.npy", method), "w", force_zip64=True) as member:
                if compress:
                    _use_fast_deflate(member)
                np.lib.format.write_array(member, rows, allow_pickle=False)


def _member(name: str, method: int) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)  # dated 1980, as every time
    info.compress_type = method
    info.external_attr = 0o644 << 16
    return info


def _use_fast_deflate(member: IO[bytes]) -> None:
    """zipfile knows zlib only, which takes ten times as long as ISA-L for the same format.
    Its compressor is a private attribute: where that is no more, zlib it is."""
    if hasattr(member, "_compressor"):
        member._compressor = isal_zlib.compressobj(1, isal_zlib.DEFLATED, -15)


@contextlib.contextmanager
def replaced(path: str | os.PathLike[str]) -> Iterator[IO[bytes]]:
    """A file beside `path` that takes its place at the end, or goes without a trace. A
    link stays a link; what is no file but a device or a pipe is written to."""
    target = os.path.realpath(os.fspath(path))
    if _is_special(target):
        with open(target, "wb") as file:
            yield file
        return
    folder, name = os.path.split(target)
    temporary = os.path.join(folder, f".{name[:100]}.{secrets.token_hex(6)}.tmp")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
    try:
        with os.fdopen(descriptor, "wb") as file:
            yield file
        os.replace(temporary, target)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(temporary)
        raise


def _is_special(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return not (stat.S_ISREG(mode) or stat.S_ISDIR(mode))


# ---- reading


def load(path: str | os.PathLike[str]) -> tuple[_core.Recording, dict[str, Any]]:
    """OSError when it cannot be read, ValueError when it is no whole recording."""
    with open(path, "rb") as file:
        try:
            with zipfile.ZipFile(file) as archive:
                return _read(archive)
        except _READ_ERRORS as error:
            reason = str(error).strip("'\"") or type(error).__name__
            raise ValueError(
                f"path={os.fspath(path)!r} is not a whole memprof recording: {reason}"
            ) from error


def _read(archive: zipfile.ZipFile) -> tuple[_core.Recording, dict[str, Any]]:
    document = _read_header(archive)
    counts = document.get("tables")
    header = document.get("header")
    if not (isinstance(counts, dict) and isinstance(header, dict)):
        _refuse(f"{_HEADER} lacks its tables or its header")
    tables = {}
    for name, count in counts.items():
        rows = tables[name] = _read_table(archive, f"{name}.npy")
        if len(rows) != count:
            _refuse(f"table {name!r} has {len(rows)} rows, not {count}")
    core = _core.Recording.from_tables(
        tables,
        start_ns=document.get("start_ns"),  # type: ignore[arg-type]  # checked there
        window_start_ns=document.get("window_start_ns"),  # type: ignore[arg-type]
        stop_ns=document.get("stop_ns"),  # type: ignore[arg-type]
    )
    return core, header


def _refuse(reason: str) -> NoReturn:
    raise ValueError(reason)


def _read_header(archive: zipfile.ZipFile) -> dict[str, Any]:
    if archive.getinfo(_HEADER).file_size > _HEADER_LIMIT:
        raise ValueError(f"{_HEADER} is larger than {_HEADER_LIMIT} bytes")
    document = json.loads(archive.read(_HEADER))
    if not isinstance(document, dict) or document.get("kind") != "memprof recording":
        _refuse(f"{_HEADER} is not of a recording")
    version = document.get("format")
    if not isinstance(version, int) or not 1 <= version <= FORMAT:
        _refuse(
            f"its format is {version!r} and this memprof reads up to {FORMAT}; update memprof"
        )
    return document


def _read_table(archive: zipfile.ZipFile, name: str) -> np.ndarray[Any, Any]:
    """Believes the declared shape only as far as the member has the bytes."""
    info = archive.getinfo(name)
    with archive.open(info) as member:
        version = np.lib.format.read_magic(member)
        if version == (1, 0):
            shape, _, dtype = np.lib.format.read_array_header_1_0(member)
        elif version == (2, 0):
            shape, _, dtype = np.lib.format.read_array_header_2_0(member)
        else:
            raise ValueError(f"{name}: unknown .npy version {version}")
        if dtype.hasobject or dtype.itemsize == 0 or len(shape) != 1:
            raise ValueError(f"{name}: not a plain column")
        size = shape[0] * dtype.itemsize
        if size < 0 or size > info.file_size:
            raise ValueError(f"{name}: shorter than it says")
        data = member.read()
    if len(data) != size:
        raise ValueError(f"{name}: {len(data)} bytes where {size} are declared")
    return np.frombuffer(data, dtype)
