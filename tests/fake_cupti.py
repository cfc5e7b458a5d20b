"""Builds tests/fakes/libcupti.c and runs snippets against it, each in a process of its own:
a process has one CUPTI for its whole life."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent / "fakes" / "libcupti.c"

PROLOGUE = """
import ctypes, json, os, sys, time
from memprof import _core

LIBRARY = os.environ["FAKE_CUPTI"]
fake = ctypes.CDLL(LIBRARY)
U64 = ctypes.c_uint64
KINDS = _core.activity_kinds
KERNEL = ctypes.create_string_buffer(b"_ZN2at6native4copyEi")

def launch(ns=700, delay=1000, name=KERNEL, id=211):
    correlation = fake.fake_call(5, id, U64(500))
    fake.fake_kernel(name, correlation, U64(delay), U64(ns))
    return correlation

class Run:
    def __init__(self, max_bytes=256 << 20, dump=None, **options):
        self.session = _core.Session(activities=True, max_bytes=max_bytes, **options)
        self.session.start()
        self.reason = self.session.start_activities([LIBRARY], only=True, dump=dump)
    def stop(self):
        self.recording = self.session.stop()
        self.counts = self.session.coverage()["activities"]
        self.rows = self.recording.table("activities")
        return self
    def name(self, row):
        return self.recording.string(int(row["name_id"]))
    def of(self, kind):
        return self.rows[self.rows["kind"] == KINDS.index(kind)]

def tell(**facts):
    print(json.dumps(facts))
"""


@pytest.fixture(scope="session")
def fake_library(tmp_path_factory):
    compiler = os.environ.get("CC") or shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        pytest.skip("there is no C compiler here")
    path = tmp_path_factory.mktemp("fake") / "libcupti.so.13"
    flags = ["-shared", "-fPIC", "-O2", "-Wall", "-Wextra", "-Werror", "-pthread"]
    command = [compiler, *flags, "-D_GNU_SOURCE", str(SOURCE), "-o", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return path


@pytest.fixture
def run(fake_library, tmp_path):
    """run(body, **environment): what the body tells, after the prologue above."""

    def run_body(body, **environment):
        done = subprocess.run(
            [sys.executable, "-c", PROLOGUE + body],
            capture_output=True,
            text=True,
            check=False,
            cwd=tmp_path,  # not the source folder, whose memprof has no extension
            timeout=120,
            env={**os.environ, "FAKE_CUPTI": str(fake_library), **environment},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run_body
