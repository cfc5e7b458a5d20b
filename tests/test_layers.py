"""The rules of csrc/README.md that a program can check."""

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
CSRC = ROOT / "csrc"
FILES = sorted([*CSRC.rglob("*.c"), *CSRC.rglob("*.h")])

# A file may include its own folder and those that stand here.
MAY_INCLUDE = {
    "base": set(),
    "record": {"base"},
    "collect": {"base", "record"},
    "analysis": {"base", "record"},
    "output": {"base", "record"},
    "session": {"base", "record", "collect", "analysis", "output"},
    "python": {"base", "record", "collect", "analysis", "output", "session"},
}
# A NumPy data handler is a Python capsule.
PYTHON_OUTSIDE_PYTHON = {"collect/numpy_alloc.c", "collect/numpy_alloc.h"}
MOST_LINES_OF_A_FILE = 600
MOST_LINES_OF_A_FUNCTION = 80


def name_of(path: Path) -> str:
    return path.relative_to(CSRC).as_posix()


def own_includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s+"([^"]+)"', path.read_text(), re.MULTILINE)


def without_comments_and_strings(text: str) -> str:
    """Newlines stay, so that line numbers do."""

    def blank(match: re.Match[str]) -> str:
        return "\n" * match[0].count("\n") or " "

    return re.sub(
        r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'",
        blank,
        text,
        flags=re.DOTALL,
    )


def functions(text: str) -> list[tuple[int, int]]:
    """(line of the opening brace, lines up to the closing one) of each function: bodies
    open at depth 0 in the first column, as .clang-format puts them."""
    found, start = [], None
    for number, line in enumerate(without_comments_and_strings(text).splitlines(), 1):
        if line == "{":
            start = number
        elif line == "}" and start is not None:
            found.append((start, number - start + 1))
            start = None
    return found


each_file = pytest.mark.parametrize("path", FILES, ids=name_of)
each_source = pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".c"], ids=name_of
)
each_header = pytest.mark.parametrize(
    "path", [path for path in FILES if path.suffix == ".h"], ids=name_of
)


@each_file
def test_includes_go_down_only(path):
    folder = path.parent.name
    assert folder in MAY_INCLUDE, f"{folder}/ is not a layer of csrc/README.md"
    for include in own_includes(path):
        assert (CSRC / include).is_file(), f'"{include}": write it from csrc, <> for others'
        layer = include.split("/")[0]
        assert layer in MAY_INCLUDE[folder] | {folder}, f"{folder}/ may not include {include}"


def test_includes_have_no_cycle():
    edges = {name_of(path): own_includes(path) for path in FILES}
    done: set[str] = set()

    def visit(name: str, trail: tuple[str, ...]) -> None:
        assert name not in trail, " -> ".join([*trail, name])
        if name not in done:
            for include in edges.get(name, []):
                visit(include, (*trail, name))
            done.add(name)

    for name in edges:
        visit(name, ())


@each_file
def test_python_stays_in_python(path):
    if path.parent.name != "python" and name_of(path) not in PYTHON_OUTSIDE_PYTHON:
        text = without_comments_and_strings(path.read_text())
        assert not re.search(r"#\s*include\s*<(Python\.h|numpy/)", text)


@each_file
def test_atomics_go_through_the_named_orders(path):
    if name_of(path) == "base/atomics.h":
        return
    text = without_comments_and_strings(path.read_text())
    bare = re.findall(r"\batomic_(?:load|store|exchange|fetch|compare)\w*", text)
    assert not bare, f"use base/atomics.h in place of {bare[0]}"


@each_source
def test_own_header_comes_first(path):
    header = path.with_suffix(".h")
    if header.exists():
        assert own_includes(path)[:1] == [name_of(header)]
        first = re.search(r'#\s*include\s+(["<].*[">])', path.read_text())
        assert first is not None and first[1] == f'"{name_of(header)}"'


@each_header
def test_guard_has_the_files_name(path):
    guard = f"MP_{path.parent.name}_{path.stem}_H".upper()
    text = path.read_text()
    assert re.search(rf"^#ifndef {guard}\n#define {guard}\n", text, re.MULTILINE)
    assert text.rstrip().endswith("#endif")


@each_file
def test_nothing_needs_much_scrolling(path):
    text = path.read_text()
    assert len(text.splitlines()) <= MOST_LINES_OF_A_FILE
    for line, length in functions(text):
        assert length <= MOST_LINES_OF_A_FUNCTION, f"the function at line {line}: {length}"


def test_the_map_names_every_file():
    text = (CSRC / "README.md").read_text()
    missing = {
        f"{path.parent.name}/{path.stem}"
        for path in FILES
        if not re.search(rf"\b{re.escape(path.stem)}\b", text)
    }
    assert not missing, f"csrc/README.md has no line for {sorted(missing)}"


def test_no_file_knows_a_machine():
    """Paths of somebody's machine have no place in a file that others get."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    if listed.returncode != 0:
        pytest.skip("this is not a git checkout")
    # /home/me and the like are nobody's.
    machine = re.compile(
        r"(?<![\w.])/(?:(?:root|work|opt/mp)/|(?:home|Users)/(?!me\b|user\b|you\b))\w"
    )
    for name in filter(None, listed.stdout.split("\0")):
        path = ROOT / name
        if path.suffix in {".png", ".so"} or path == Path(__file__) or not path.is_file():
            continue
        found = machine.search(path.read_text(errors="replace"))
        assert found is None, f"{name}: {found[0]}"
