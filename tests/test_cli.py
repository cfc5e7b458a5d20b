"""`memprof run`, `report` and `env`: files, words, errors."""

import json
import os
import subprocess
import sys
import textwrap

import pytest

import memprof
from memprof.cli import main

TRAINING = """
    import torch
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(10):
        loss = model(torch.ones(32, 64)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print("trained")
    """


def run(folder, *arguments, code: str = TRAINING):
    script = folder / "script.py"
    script.write_text(textwrap.dedent(code))
    return subprocess.run(
        [sys.executable, "-m", "memprof", *map(str, arguments)],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )


def test_run_says_where_memory_went_and_keeps_stdout(tmp_path):
    done = run(tmp_path, "run", "script.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout == "trained\n"
    assert "CPU peak" in done.stderr and "script.py:" in done.stderr
    assert max(map(len, done.stderr.splitlines())) <= 80, done.stderr
    [file] = tmp_path.glob("memprof-script-*.memprof")
    recording = memprof.load(file)
    assert len(recording.steps) == 10
    assert file.name in done.stderr


def test_run_writes_what_is_asked_for(tmp_path):
    done = run(
        tmp_path, "run", "--operators", "--output", "a.memprof", "--trace", "t.json.gz",
        "--tensorboard", "log", "script.py",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "a.memprof").exists() and (tmp_path / "t.json.gz").exists()
    assert len(list((tmp_path / "log").rglob("*.pt.trace.json*"))) == 1
    assert len(memprof.load(tmp_path / "a.memprof").operators) > 100


def test_run_is_light_by_default(tmp_path):
    run(tmp_path, "run", "--output", "a.memprof", "script.py")
    recording = memprof.load(tmp_path / "a.memprof")
    assert len(recording.operators) < 100
    assert len(recording.allocations) > 50


def test_an_unwritable_place_costs_neither_status_nor_summary(tmp_path):
    done = run(tmp_path, "run", "--output", "missing/a.memprof", "script.py")
    assert done.returncode == 0
    assert "cannot write missing/a.memprof" in done.stderr and "CPU peak" in done.stderr


def test_a_failing_script_is_summed_up_too(tmp_path):
    done = run(
        tmp_path, "run", "script.py", code=textwrap.dedent(TRAINING) + "raise ValueError('no')"
    )
    assert done.returncode == 1
    assert "ValueError: no" in done.stderr and "exit status 1" in done.stderr
    assert "_program.py" not in done.stderr


def test_quiet(tmp_path):
    done = run(tmp_path, "run", "--quiet", "--no-summary", "script.py")
    assert (done.stdout, done.stderr) == ("trained\n", "")


def test_a_program_without_torch(tmp_path):
    done = run(tmp_path, "run", "script.py", code="print('no torch')")
    assert done.returncode == 0
    assert "No allocation was seen" in done.stderr


def test_a_profile_inside_is_told_who_records(tmp_path):
    code = "import memprof\nmemprof.profile().start()"
    done = run(tmp_path, "run", "script.py", code=code)
    assert done.returncode == 1
    assert "RuntimeError" in done.stderr and "memprof run" in done.stderr


def test_options_are_checked(tmp_path, capsys):
    for arguments in (["run"], ["run", "--max-memory", "much", "x.py"], ["walk"], []):
        with pytest.raises(SystemExit) as caught:
            main(arguments)
        assert caught.value.code == 2
    assert "not a size" in capsys.readouterr().err


def test_help_teaches(capsys):
    with pytest.raises(SystemExit) as caught:
        main(["run", "--help"])
    assert caught.value.code == 0
    text = capsys.readouterr().out
    assert "exit status" in text and "optimizer.step()" in text


def test_report_reads_a_recording_again(tmp_path):
    first = run(tmp_path, "run", "--output", "a.memprof", "script.py")
    again = run(tmp_path, "report", "a.memprof")
    assert again.returncode == 0
    assert again.stdout.strip() in first.stderr
    missing = run(tmp_path, "report", "b.memprof")
    assert missing.returncode == 2 and "b.memprof" in missing.stderr
    (tmp_path / "c.memprof").write_text("not a zip")
    broken = run(tmp_path, "report", "c.memprof")
    assert broken.returncode == 2 and "Traceback" not in broken.stderr


def test_report_for_machines(tmp_path):
    run(tmp_path, "run", "--output", "a.memprof", "script.py")
    done = run(tmp_path, "report", "--json", "a.memprof")
    found = json.loads(done.stdout)
    assert found["version"] >= 1


def test_env(tmp_path):
    words = run(tmp_path, "env")
    assert words.returncode == 0 and "CPU memory" in words.stdout
    found = json.loads(run(tmp_path, "env", "--json").stdout)
    assert found["python"] and found["torch"]
