"""A program under `memprof run` sees what it sees under `python`."""

import os
import signal
import subprocess
import sys
import textwrap
import time
import zipfile
from pathlib import Path

import pytest

MEMPROF = [sys.executable, "-m", "memprof", "run", "--no-summary", "--quiet"]


def run(command, folder: Path, **options):
    return subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
        **options,
    )


def write(folder: Path, name: str, code: str) -> Path:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(code))
    return path


def both(folder: Path, *arguments):
    """(stdout, stderr, status) under python and under memprof run."""
    results = []
    for command in ([sys.executable], [*MEMPROF, "--output", "it.memprof"]):
        done = run([*command, *arguments], folder)
        results.append((done.stdout, done.stderr, done.returncode))
    return results


FACTS = """
    import sys
    print(__name__, __file__, __package__, __doc__, type(__builtins__).__name__)
    print(__spec__ if __spec__ is None else (__spec__.name, __spec__.origin, __spec__.parent))
    print(type(__loader__).__name__, sys.argv, sys.path[0])
    print(sys.modules["__main__"].__dict__ is globals())
"""


def test_a_script_sees_itself_as_main(tmp_path):
    write(tmp_path, "sub/facts.py", FACTS)
    plain, ours = both(tmp_path, "sub/facts.py", "-x", "--flag", "a b")
    assert ours == plain


def test_a_script_behind_a_link_has_its_real_folder_first(tmp_path):
    write(tmp_path, "real/facts.py", FACTS + "    import beside\n")
    write(tmp_path, "real/beside.py", "print('beside')\n")
    (tmp_path / "link.py").symlink_to(tmp_path / "real" / "facts.py")
    plain, ours = both(tmp_path, "link.py")
    assert ours == plain and "beside" in ours[0]


@pytest.mark.parametrize("target", ["package", "package.inner", "single"])
def test_a_module(tmp_path, target):
    write(tmp_path, "package/__init__.py", "print('package begins')\n")
    write(tmp_path, "package/__main__.py", FACTS + "    from . import inner\n")
    write(tmp_path, "package/inner.py", FACTS)
    write(tmp_path, "single.py", FACTS)
    plain, ours = both(tmp_path, "-m", target, "-m", "x")
    assert ours == plain and ours[2] == 0


def test_a_folder_and_a_zip_file(tmp_path):
    source = write(tmp_path, "app/__main__.py", FACTS)
    with zipfile.ZipFile(tmp_path / "app.zip", "w") as archive:
        archive.write(source, "__main__.py")
    for target in ("app", "app.zip"):
        plain, ours = both(tmp_path, tmp_path / target, "argument")
        assert ours == plain and ours[2] == 0


@pytest.mark.parametrize(
    "code",
    [
        "raise SystemExit",
        "raise SystemExit(None)",
        "import sys; sys.exit(0)",
        "import sys; sys.exit(3)",
        "import sys; sys.exit(256 + 7)",
        "import sys; sys.exit(-1)",
        "import sys; sys.exit('said on stderr')",
        "import sys; sys.exit(['a', 'list'])",
        "def f():\n    g()\ndef g():\n    raise ValueError('wrong')\nf()",
        "try:\n    1 / 0\nexcept ZeroDivisionError:\n    raise KeyError('second')",
        "x = (1,\ny = 2",
        "import no_such_module_at_all",
        "import sys\nsys.excepthook = lambda *a: print('hook', a[0].__name__, a[2].tb_lineno)\n1/0",
        "import sys\ndef hook(*a):\n    raise OSError('bad hook')\nsys.excepthook = hook\n1/0",
        "raise KeyboardInterrupt",
        "import atexit\natexit.register(print, 'at exit')\nprint('end')\nraise ValueError(1)",
        "import threading as t\nt.Timer(.2, print, ['late']).start()\nprint('end')",
        "from concurrent.futures import ThreadPoolExecutor as Pool\nPool(2).submit(print, 1)",
    ],
)
def test_ends_as_under_python(tmp_path, code):
    script = write(tmp_path, "script.py", code + "\n")
    plain, ours = both(tmp_path, script)
    if "KeyboardInterrupt" in code:  # python dies of the signal itself, a shell shows 130
        plain = (*plain[:2], 130)
        assert ours[2] in (130, -signal.SIGINT)
        ours = (*ours[:2], 130)
    if "bad hook" in code:  # our call of the hook stands in that hook's own traceback
        plain, ours = ((r[0], r[1].splitlines()[-1], r[2]) for r in (plain, ours))
    assert ours == plain


def test_what_cannot_be_opened_or_found(tmp_path):
    missing = run([*MEMPROF, "missing.py"], tmp_path)
    assert missing.returncode == 2 and "missing.py" in missing.stderr
    plain, ours = both(tmp_path, "-m", "no_such_module")
    assert ours == plain and ours[2] == 1
    plain, ours = both(tmp_path, "-m", "no_such_package.part")
    assert ours[2] == 1 and "no_such_package" in ours[1] and "Traceback" not in ours[1]
    assert list(tmp_path.iterdir()) == [tmp_path / "it.memprof"]


def test_ctrl_c_keeps_what_was_recorded(tmp_path):
    pytest.importorskip("torch")
    script = write(
        tmp_path,
        "script.py",
        """
        import time, torch
        kept = torch.zeros(1 << 18)
        print("ready", flush=True)
        time.sleep(60)
        """,
    )
    process = subprocess.Popen(
        [sys.executable, "-m", "memprof", "run", "--output", "it.memprof", str(script)],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "KeyboardInterrupt" in errors and "script.py:3" in errors
    assert "memprof/" not in errors.split("Memory of")[0]
    assert (tmp_path / "it.memprof").exists()


def test_functions_of_main_can_be_pickled_for_a_spawned_child(tmp_path):
    script = write(
        tmp_path,
        "script.py",
        """
        import multiprocessing

        def double(x):
            return 2 * x

        if __name__ == "__main__":
            with multiprocessing.get_context("spawn").Pool(1) as pool:
                print(pool.map(double, [1, 2]))
        """,
    )
    plain, ours = both(tmp_path, script)
    assert ours == plain and "[2, 4]" in ours[0]


def test_a_forked_child_that_runs_to_the_end_writes_nothing(tmp_path):
    script = write(
        tmp_path,
        "script.py",
        """
        import os, sys
        child = os.fork()
        if child == 0:
            sys.exit(5)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """,
    )
    done = run([*MEMPROF, script], tmp_path)
    assert (done.returncode, done.stdout) == (0, "5\n"), done.stderr
    assert len(list(tmp_path.glob("*.memprof"))) == 1
