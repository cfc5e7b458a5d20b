"""Instructions of the hot paths, counted by callgrind: the same on every run, so that a
change that makes a hook dearer fails here. Each bound is a tenth above what was counted."""

import subprocess

import pytest
from test_c_units import CSRC, FLAGS, ROOT, checked, compiler_for
from test_patching import BINDINGS, build


@pytest.fixture(autouse=True)
def valgrind():
    found = subprocess.run(["valgrind", "--version"], capture_output=True, check=False)
    if found.returncode != 0:
        pytest.skip("valgrind is not installed")


def instructions(folder, command, rounds, *options):
    """Of one round of a program that takes the number of rounds as its last argument."""
    counts = []
    for n in (rounds, 6 * rounds):
        out = folder / f"callgrind.{n}"
        tool = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={out}", *options]
        checked([*tool, *(str(n) if word == "ROUNDS" else word for word in command)])
        totals = next(t for t in out.read_text().splitlines() if t.startswith("totals:"))
        counts.append(int(totals.split()[1]))
    return (counts[1] - counts[0]) / (5 * rounds)


def test_allocation_and_free(tmp_path):
    """Both hooks without a stack, with the malloc and free below them (about 150)."""
    program = build(tmp_path, "plain", BINDINGS["partial relro"])
    hooks = ("--toggle-collect=hook_alloc_cpu", "--toggle-collect=hook_free_cpu")
    counted = instructions(tmp_path, [program, str(tmp_path), "ROUNDS"], 1000, *hooks)
    assert counted < 305, counted


@pytest.mark.parametrize(("shapes", "bound"), [("0", 186), ("1", 402)])
def test_operator(tmp_path, shapes, bound):
    """Start and end, with the loop and the calls of the program that makes them (20)."""
    program = str(tmp_path / "operator_hook")
    sources = [*sorted(CSRC.glob("base/*.c"))]
    sources += [CSRC / f"record/{name}.c" for name in ("budget", "intern", "thread_log")]
    sources += [CSRC / f"collect/torch_{name}.c" for name in ("ops", "shapes", "symbols")]
    flags = [flag for flag in FLAGS if "DEBUG" not in flag]
    command = [compiler_for("plain"), *flags, "-O2", "-fPIC", "-fvisibility=hidden"]
    command += [str(ROOT / "benchmarks/c/operator_hook.c"), *map(str, sources)]
    checked([*command, "-o", program, "-ldl"])
    counted = instructions(tmp_path, [program, "ROUNDS", shapes], 1000)
    assert counted < bound, counted
