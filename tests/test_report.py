"""The answer in words, on recordings whose content the test knows."""

import json
import os
import re

import pytest
from recording_builder import CPU, CUDA, Builder

from memprof.report import units
from memprof.report.environment import environment_text

MIB = 1 << 20
CODE = os.path.join(os.getcwd(), "train.py")


def leaking(steps=12, kept=3 * MIB, device=CPU, header=None):
    """Each step keeps one block from line 31 and drops one from line 30."""
    b = Builder(stop_ns=(steps + 1) * 1000)
    thread = b.thread()
    model = b.module("model.encoder")
    drops = b.stack((CODE, 30, "main"), module_id=model)
    keeps = b.stack((CODE, 31, "main"))
    for step in range(steps):
        at = step * 1000
        b.step(step, at, at + 1000, thread)
        b.alloc(at + 100, 0x1000, 7 * MIB, device, thread=thread, stack_id=drops)
        b.alloc(at + 200, 0x2000 + step, kept, device, thread=thread, stack_id=keeps)
        b.free(at + 300, 0x1000, 7 * MIB, device, thread=thread)
    return b.build(header or {})


def test_says_the_peak_its_lines_and_its_modules():
    text = leaking().summary(color=False)
    assert text.splitlines()[0].startswith("Memory ")
    assert "CPU peak 43.0 MiB  in step 11" in text
    assert re.search(r"  train\.py:31 main +36\.0 MiB +12 +84%", text)
    assert re.search(r"  train\.py:30 main +7\.00 MiB +1 +16%", text)
    assert re.search(r"  model\.encoder +7\.00 MiB +1 +16%", text)


def test_says_what_grows():
    text = leaking().summary(color=False)
    assert "3.00 MiB a step since step 2: train.py:31 main" in text
    assert "12 blocks alive at the end, 36.0 MiB" in text


def test_says_when_nothing_grows_or_steps_are_too_few():
    assert re.search(r"grows  nothing, over 12 steps", leaking(kept=0).summary(color=False))
    few = leaking(steps=4).summary(color=False)
    assert "grows  cannot be told from 4 steps: 3 more are needed" in few


def test_shows_first_highest_and_last_steps():
    lines = leaking().summary(color=False).splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("  step "))
    steps = [line.split()[0] for line in lines[start + 1 : start + 6]]
    assert steps == ["0", "...", "9", "10", "11"]
    assert "highest" in lines[start + 5]


def test_fits_a_narrow_terminal_whatever_the_names():
    b = Builder()
    for i in range(30):
        path = f"/somewhere/{'deep/' * 30}file{i}.py"
        stack = b.stack((path, 10**6, f"Class.{'long_name_' * 20}"))
        b.alloc(i, 0x1000 * (i + 1), 10 ** (i % 12), stack_id=stack)
    text = b.build({"program": {"name": "x" * 200}}).summary(color=False)
    assert max(map(len, text.splitlines())) <= 80
    assert "22 more" in text


def test_an_accelerator_comes_first():
    b = Builder()
    b.alloc(10, 1, 100 * MIB, CPU)
    b.alloc(20, 2, MIB, CUDA, allocated_bytes=MIB, reserved_bytes=2 * MIB)
    text = b.build().summary(color=False)
    assert text.index("cuda:0 peak 1.00 MiB") < text.index("CPU peak 100 MiB")
    assert "the allocator held 2.00 MiB, 1.00 MiB of it unused" in text


def test_colours_change_no_word():
    recording = leaking()
    painted = recording.summary(color=True)
    assert "\x1b[" in painted
    plain = re.sub(r"\x1b\[[0-9;]*m", "", painted)
    assert [line.rstrip() for line in plain.splitlines()] == (
        recording.summary(color=False).splitlines()
    )


def test_no_color_is_heard(monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b[" not in leaking().summary()


def test_says_what_is_not_known():
    coverage = {
        "sources": {
            "cpu memory": {"on": True, "reason": ""},
            "shapes": {"on": False, "reason": "not asked for"},
            "stacks": {"on": False, "reason": "an unknown interpreter"},
        },
        "losses": {"events_at_limit": 1234, "stacks_at_limit": 0},
    }
    text = " ".join(leaking(header={"coverage": coverage}).summary(color=False).split())
    assert "stacks: off, because an unknown interpreter" in text
    assert "1,234 events after the memory limit are missing" in text
    assert "shapes" not in text and "0 events" not in text


def test_blocks_without_a_line_are_named_with_their_size():
    b = Builder()
    b.alloc(1, 1, 3 * MIB, stack_id=b.stack((CODE, 1, "main")))
    b.alloc(2, 2, MIB)
    text = " ".join(b.build().summary(color=False).split())
    assert "CPU: 1.00 MiB of the peak (25%) have no line" in text


def test_an_empty_recording():
    assert "No allocation was seen." in Builder().build().summary(color=False)


def test_the_same_for_machines():
    found = json.loads(leaking().to_json())
    assert found["version"] == 1
    peak = found["devices"]["cpu"]["peak"]
    assert (peak["allocated_bytes"], peak["step"]) == (43 * MIB, 11)
    assert peak["by"]["line"][0] == {"name": f"{CODE}:31 main", "bytes": 36 * MIB, "blocks": 12}
    assert found["growth"][0]["bytes_per_step"] == 3 * MIB
    assert found["growth"][0]["line"] == 31
    assert len(found["devices"]["cpu"]["steps"]) == 12


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0 B"),
        (999, "999 B"),
        (1000, "0.98 KiB"),
        (1024, "1.00 KiB"),
        (10 * 1024 - 1, "10.0 KiB"),
        (999 * 1024, "999 KiB"),
        (1023 * 1024, "1.00 MiB"),
        (12.6 * MIB, "12.6 MiB"),
        (-3 * 2**30, "-3.00 GiB"),
        (5000 * 2**40, "5000 TiB"),
    ],
)
def test_sizes_have_three_digits(number, text):
    assert units.size(number) == text


def test_other_units(monkeypatch, tmp_path):
    assert units.percent(1, 0) == "" and units.percent(1, 1000) == "<1%"
    assert units.percent(0, 10) == "0%" and units.percent(999, 1000) == "100%"
    assert units.seconds(42e6) == "42 ms" and units.seconds(1.25e9) == "1.2 s"
    assert units.seconds(125e9) == "2 min 5 s"
    assert units.count(1, "block") == "1 block" and units.count(2000, "block") == "2,000 blocks"
    monkeypatch.chdir(tmp_path)
    assert units.short_path(str(tmp_path / "a" / "b.py")) == "a/b.py"
    assert units.short_path("/x/site-packages/torch/nn/x.py") == "torch/nn/x.py"
    assert units.short_path("<string>") == "<string>"
    assert len(units.fit("x" * 100, 20)) == 20 == len(units.fit_end("x" * 100, 20))


def test_environment_says_why_something_is_off():
    found = {
        "python": "3.11.7", "platform": "Linux", "numpy": "2.0", "torch": None,
        "clock": "time-stamp counter", "torch_missing": "No module named 'torch'",
        "python_stacks": "a very long reason " * 10,
    }  # fmt: skip
    text = environment_text(found)
    assert "OFF: a very long reason" in text and "No module named 'torch'" in text
    assert max(map(len, text.splitlines())) <= 80
