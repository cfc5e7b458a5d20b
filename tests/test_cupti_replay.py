"""Raw CUPTI buffers of five training steps on an H200 (CUPTI 13.0.1, torch 2.11), decoded
again: the rows that the same decoder and torch.profiler agreed on there."""

import collections
import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from memprof import _core

DUMP = Path(__file__).parent / "data" / "cupti_h200_training.bin"
VERSION, BUFFER, NAME = 1, 2, 3


def read_dump(path):
    """(library version, buffers, names by pointer); layout in csrc/collect/cupti_dump.h."""
    data = path.read_bytes()
    assert data[:8] == b"MPCUPTI1"
    version, buffers, names = 0, [], {}
    at = 8
    while at < len(data):
        kind, _, key, count = struct.unpack_from("<IIQQ", data, at)
        at += 24
        content = data[at : at + count]
        at += count
        if kind == VERSION:
            version = key
        elif kind == BUFFER:
            buffers.append(content)
        elif kind == NAME:
            names[key] = content.decode()
    return version, buffers, names


def test_training_steps():
    version, buffers, names = read_dump(DUMP)
    assert version == 130001
    decoded = _core.cupti_decode(buffers, version, names)
    rows = decoded["rows"]
    kinds = collections.Counter(_core.activity_kinds[row["kind"]] for row in rows)
    assert kinds == {
        "runtime": 131,
        "kernel": 130,
        "driver": 15,
        "memcpy": 10,
        "synchronization": 6,
        "overhead": 2,
    }
    kernels = [row for row in rows if _core.activity_kinds[row["kind"]] == "kernel"]
    assert all(row["end_ns"] > row["start_ns"] for row in kernels)
    calls = {
        row["correlation"]
        for row in rows
        if _core.activity_kinds[row["kind"]] in ("runtime", "driver")
    }
    assert {row["correlation"] for row in kernels} <= calls


def test_the_real_library_walks_the_same_records(tmp_path):
    """Where a CUPTI is installed it needs no GPU to step through a buffer."""
    body = f"""
import json, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from memprof import _core, _cupti
found = _cupti.library()
if found["reason"] or found["cuda"] < 13:
    print(json.dumps(["skip", found["reason"] or "CUPTI of CUDA 12"])); sys.exit()
from test_cupti_replay import DUMP, read_dump
version, buffers, names = read_dump(DUMP)
own = _core.cupti_decode(buffers, version, names)
real = _core.cupti_decode(buffers, version, names, library=True)
print(json.dumps(["same", own["rows"].tobytes() == real["rows"].tobytes(), len(own["rows"]),
                  own["broken"], real["broken"]]))
"""
    done = subprocess.run(
        [sys.executable, "-c", body], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    answer = json.loads(done.stdout.splitlines()[-1])
    if answer[0] == "skip":
        pytest.skip(answer[1])
    assert answer == ["same", True, 294, 0, 0]
