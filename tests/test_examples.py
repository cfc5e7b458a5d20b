"""Each example runs as its first lines say, and memprof gives the answer it is there for."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import memprof

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def run(folder: Path, *arguments):
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


def memprof_run(folder: Path, example: str, *arguments):
    return run(folder, "-m", "memprof", "run", EXAMPLES / example, *arguments)


def line_of(example: str, text: str) -> int:
    lines = (EXAMPLES / example).read_text().splitlines()
    [number] = [number for number, line in enumerate(lines, 1) if text in line]
    return number


def recording_of(folder: Path) -> memprof.Recording:
    [file] = folder.glob("*.memprof")
    return memprof.load(file)


@pytest.mark.slow
def test_train_digits_alone_reaches_its_accuracy(tmp_path):
    done = run(tmp_path, EXAMPLES / "train_digits.py")
    assert float(done.stdout.split()[-1]) > 0.95
    assert "memprof." not in (EXAMPLES / "train_digits.py").read_text()


def test_train_digits_shows_peak_lines_and_modules(tmp_path):
    done = memprof_run(tmp_path, "train_digits.py", "--epochs", 2)
    assert re.search(r"CPU peak \d", done.stderr)
    forward = line_of("train_digits.py", "return self.classify(self.features(images))")
    assert re.search(rf"train_digits\.py:{forward} .*MiB", done.stderr)
    assert re.search(r"DigitNet\.features\.\d ", done.stderr)
    assert re.search(r"grows +nothing", done.stderr)
    recording = recording_of(tmp_path)
    assert len(recording.steps) == 2 * 22
    assert all(balance.balanced for balance in recording.balance())


def test_leak_names_the_line_that_made_what_is_kept(tmp_path):
    done = memprof_run(tmp_path, "leak.py")
    made = line_of("leak.py", "feat = encode(images)")
    grows = done.stderr.split("\ngrows\n")[1]
    assert re.match(rf" +256 KiB a step since step \d+: .*leak\.py:{made} main\n", grows)
    [site, *_] = recording_of(tmp_path).growth()
    assert site["bytes_per_step"] == 512 * 128 * 4
    assert site["survivors"] >= 39


def test_char_transformer_learns_and_its_layers_are_told_apart(tmp_path):
    done = memprof_run(tmp_path, "char_transformer.py", "--steps", 30)
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines()]
    assert losses[-1] < losses[0]
    names = {group.name for group in recording_of(tmp_path).by("module")}
    mlps = {name for name in names if re.search(r"\.blocks\.\d\.mlp", name)}
    assert len({name.split(".blocks.")[1][0] for name in mlps}) == 3


def test_profile_digits_writes_for_tensorboard(tmp_path):
    done = run(tmp_path, EXAMPLES / "profile_digits.py")
    assert "CPU peak" in done.stdout
    assert len(list((tmp_path / "log").glob("*.pt.trace.json*"))) == 2


def test_no_example_is_left_out():
    tested = Path(__file__).read_text()
    for example in EXAMPLES.glob("*.py"):
        assert example.name in tested
