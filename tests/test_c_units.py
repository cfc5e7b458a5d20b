"""Builds and runs every tests/c/test_*.c: plain, with ASan and UBSan, and with TSan.

The first line of a program names the sources of csrc that it needs:
`// needs: record/budget.c output/*.c`, or `// needs: everything` for all that do without
Python."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
PROGRAMS = sorted((ROOT / "tests" / "c").glob("test_*.c"))
FLAGS = ["-std=gnu11", "-D_GNU_SOURCE", "-DMEMPROF_DEBUG", "-g", "-pthread"]
FLAGS += ["-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", f"-I{CSRC}"]
FLAVOURS = {
    "plain": ["-O2"],
    "address": ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all"],
    "thread": ["-O1", "-fsanitize=thread"],
}
SECONDS = 60


def compiler_for(flavour: str) -> str:
    """Skips, with the reason, where this machine cannot build the flavour."""
    if flavour == "plain":
        return os.environ.get("CC") or shutil.which("gcc") or shutil.which("cc") or "cc"
    names = ["clang", *(f"clang-{version}" for version in range(20, 12, -1))]
    clang = next((found for found in map(shutil.which, names) if found), None)
    if clang is None:
        pytest.skip("clang is not installed")
    return clang


@pytest.fixture(scope="session")
def runtime_works(tmp_path_factory):
    """Whether clang finds the runtime of a flavour: asked once, with an empty program."""
    answers = {}

    def ask(clang: str, flavour: str) -> None:
        if flavour not in answers:
            folder = tmp_path_factory.mktemp(flavour)
            source = folder / "empty.c"
            source.write_text("int main(void) { return 0; }\n")
            build = [clang, *FLAVOURS[flavour], str(source), "-o", str(folder / "empty")]
            done = subprocess.run(build, capture_output=True, text=True, check=False)
            if done.returncode == 0:
                done = subprocess.run(
                    [folder / "empty"], capture_output=True, text=True, check=False
                )
            answers[flavour] = "" if done.returncode == 0 else done.stdout + done.stderr
        if answers[flavour]:
            pytest.skip(f"clang's {flavour} sanitizer does not work here: {answers[flavour]}")

    return ask


def matching(name: str) -> list[Path]:
    found = sorted(CSRC.glob(name))
    assert found, f"no source {name}"
    return found


def sources_of(program: Path) -> list[str]:
    needs = re.match(r"// needs: (.*)", program.read_text())
    assert needs, f"the first line of {program.name} must say `// needs: <sources>`"
    if needs[1].strip() != "everything":
        return [str(path) for name in needs[1].split() for path in matching(name)]
    sources = (path for path in CSRC.rglob("*.c") if path.parent.name != "python")
    return sorted(str(path) for path in sources if "Python.h" not in path.read_text())


def checked(command: list[str], **environment: str) -> str:
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        timeout=SECONDS,
        env={**os.environ, **environment},
    )
    output = done.stdout + done.stderr
    assert done.returncode == 0, f"{' '.join(command)}\nstatus {done.returncode}\n{output}"
    return output


@pytest.mark.parametrize("flavour", FLAVOURS)
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_c_program(program, flavour, tmp_path, runtime_works):
    compiler = compiler_for(flavour)
    if flavour != "plain":
        runtime_works(compiler, flavour)
    binary = str(tmp_path / program.stem)
    build = [compiler, *FLAGS, *FLAVOURS[flavour], str(program), *sources_of(program)]
    checked([*build, "-o", binary, "-ldl", "-lm"])
    output = checked(
        [binary],
        ASAN_OPTIONS="detect_stack_use_after_return=1:detect_leaks=1",
        UBSAN_OPTIONS="print_stacktrace=1",
        TSAN_OPTIONS="halt_on_error=0:second_deadlock_stack=1",
    )
    assert " ok\n" in output
