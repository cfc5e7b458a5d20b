"""A Python program run inside this process as `python` itself would run it: the same
`__main__`, sys.argv, sys.path[0], tracebacks and exit status."""

import builtins
import importlib.machinery
import importlib.util
import io
import os
import sys
import types
import zipfile
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, TracebackType
from typing import Any

INTERRUPTED = 130  # 128 + SIGINT, what a shell shows for python

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


class CannotRun(Exception):
    """There is no such program; the text is for the user."""


class Program:
    """A script, a folder or zip file with a __main__.py, or (as_module) a module."""

    def __init__(self, target: str, arguments: Sequence[str], *, as_module: bool) -> None:
        self.target = target
        self.arguments = list(arguments)
        self.as_module = as_module

    @property
    def name(self) -> str:
        """For file names."""
        if self.as_module:
            return self.target
        stem = os.path.splitext(os.path.basename(os.path.abspath(self.target)))[0]
        return stem or "script"

    def check(self) -> None:
        """CannotRun where a script can not be opened. Modules are looked for by run()."""
        if self.as_module or os.path.isdir(self.target):
            return
        try:
            with open(self.target, "rb"):
                pass
        except OSError as error:
            raise CannotRun(f"can't open file {self.target!r}: {error.strerror}") from None

    def run(self) -> int:
        """Runs it to its end and returns the exit status. Errors of the program are shown
        as python shows them; none is raised."""
        # The module object that is replaced must live on: this frame's globals may be its.
        previous = sys.modules.get("__main__")
        try:
            self._execute()
        except SystemExit as error:
            return _status_of(error)
        except CannotRun as error:
            print(f"{sys.executable}: {error}", file=sys.stderr)
            return 1
        except KeyboardInterrupt as error:
            _show(error)
            return INTERRUPTED
        except BaseException as error:  # noqa: BLE001
            _show(error)
            return 1
        finally:
            del previous
        return 0

    def _execute(self) -> None:
        main = types.ModuleType("__main__")
        main.__dict__["__builtins__"] = builtins
        sys.modules["__main__"] = main
        code = self._module_code(main) if self.as_module else self._script_code(main)
        exec(code, main.__dict__)  # noqa: S102

    def _script_code(self, main: types.ModuleType) -> CodeType:
        sys.argv[:] = [self.target, *self.arguments]
        if os.path.isdir(self.target) or zipfile.is_zipfile(self.target):
            _set_first_path(os.path.abspath(self.target))
            spec = importlib.machinery.PathFinder.find_spec("__main__", [self.target])
            return _code_of(spec, main, f"can't find '__main__' module in {self.target!r}")
        _set_first_path(os.path.dirname(os.path.realpath(self.target)))
        path = os.path.abspath(self.target)
        main.__dict__.update(
            __file__=path, __cached__=None, __loader__=SourceFileLoader("__main__", path)
        )
        with io.open_code(path) as file:
            return compile(file.read(), path, "exec", dont_inherit=True)

    def _module_code(self, main: types.ModuleType) -> CodeType:
        sys.argv[:] = ["-m", *self.arguments]
        _set_first_path(os.getcwd())
        missing = f"No module named {self.target}"
        spec = _find_spec(self.target)
        if spec is not None and spec.submodule_search_locations is not None:
            missing = (
                f"No module named {self.target}.__main__; {self.target!r} is a package and"
                " cannot be directly executed"
            )
            spec = _find_spec(f"{self.target}.__main__")
        code = _code_of(spec, main, missing)
        sys.argv[0] = main.__dict__["__file__"]
        return code


def _find_spec(name: str) -> ModuleSpec | None:
    try:
        return importlib.util.find_spec(name)
    except ModuleNotFoundError as error:
        if name.startswith(f"{error.name}.") or error.name == name:
            return None
        raise
    except ValueError as error:  # a relative name, or a module without a spec
        raise CannotRun(f"cannot run {name!r} as a module: {error}") from None


def _code_of(spec: ModuleSpec | None, main: types.ModuleType, missing: str) -> CodeType:
    """The code of a module that becomes `__main__`, whose attributes are set."""
    if spec is None or spec.loader is None:
        raise CannotRun(missing)
    loader: Any = spec.loader
    code: CodeType | None = loader.get_code(spec.name)
    if code is None:
        raise CannotRun(f"{missing}: it has no Python code")
    main.__dict__.update(
        __file__=spec.origin or code.co_filename,
        __cached__=spec.cached,
        __loader__=loader,
        __package__=spec.parent,
        __spec__=spec,
    )
    return code


def _set_first_path(folder: str) -> None:
    """In place of the entry that stands for memprof's own command; with python -P there
    is none."""
    if not getattr(sys.flags, "safe_path", False) and not sys.flags.isolated:
        sys.path[:1] = [folder]


def _status_of(error: SystemExit) -> int:
    code = error.code
    if code is None:
        return 0
    if isinstance(code, int):
        return code & 0xFF
    print(code, file=sys.stderr)
    return 1


def _show(error: BaseException) -> None:
    """Through the program's own sys.excepthook, without the frames of this package."""
    kind = type(error)
    trimmed = error.with_traceback(_without_our_frames(error.__traceback__))
    try:
        sys.excepthook(kind, trimmed, trimmed.__traceback__)
    except BaseException as failure:  # noqa: BLE001
        print("Error in sys.excepthook:", file=sys.stderr)
        sys.__excepthook__(type(failure), failure, failure.__traceback__)
        print("\nOriginal exception was:", file=sys.stderr)
        sys.__excepthook__(kind, trimmed, trimmed.__traceback__)


def _without_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    while traceback is not None:
        name = traceback.tb_frame.f_code.co_filename
        if not name.startswith((_PACKAGE, "<frozen ")):
            break
        traceback = traceback.tb_next
    return traceback
