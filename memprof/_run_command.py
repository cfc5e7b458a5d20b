"""`memprof run`: a program, recorded from its first line to its last."""

import argparse
import os
import sys
import threading
import uuid
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING

from memprof import _active, _options
from memprof._metadata import distributed_info
from memprof._notices import last_line
from memprof._program import INTERRUPTED, CannotRun, Program
from memprof._window import Window
from memprof.report.text import wants_color

if TYPE_CHECKING:
    from memprof.recording import Recording

_SLOW_SECONDS = 1.0  # work that takes longer says what it is


def run(options: argparse.Namespace) -> int:
    """The program's own exit status; 2 where there is no such program."""
    program = Program(options.target, options.arguments, as_module=options.as_module)
    try:
        program.check()
    except CannotRun as error:
        _say(f"memprof run: {error}")
        return 2
    recorder = _Recorder(options)
    recorder.start()
    status = program.run()
    if recorder.in_child:
        return status
    try:
        _finish(options, program, recorder, status)
    except KeyboardInterrupt:
        _say("memprof: interrupted while the recording was being read; it is lost")
        return INTERRUPTED
    return status


def _finish(
    options: argparse.Namespace, program: Program, recorder: "_Recorder", status: int
) -> None:
    """Nothing here may hide how the program ended."""
    try:
        sys.stdout.flush()
    except (OSError, ValueError):  # the program's affair; python reports it at exit
        pass
    try:
        with _Progress("reading the recording"):
            recording = recorder.stop(program, status)
    except Exception as error:  # noqa: BLE001
        _say(f"memprof: the recording is lost: {last_line(error)}")
        return
    if recording is None:
        return
    files = _write_files(options, program, recording)
    if options.summary:
        with _Progress("summing up"):
            text = recording.summary(color=wants_color(sys.stderr))
        _say("\n" + text.rstrip("\n"))
    if files and not options.quiet:
        _say("\n" + "\n".join(files))


def _write_files(
    options: argparse.Namespace, program: Program, recording: "Recording"
) -> list[str]:
    """One line for each file, or for why it could not be written."""
    output = options.output or f"memprof-{program.name}-{os.getpid()}.memprof"
    wanted: list[tuple[str, Callable[[], object], str]] = [
        (output, lambda: recording.save(output), f"memprof report {output}")
    ]
    if options.trace:
        wanted.append(
            (
                options.trace,
                lambda: recording.export_chrome_trace(options.trace),
                "open it at ui.perfetto.dev",
            )
        )
    if options.tensorboard:
        wanted.append(
            (
                options.tensorboard,
                lambda: recording.export_tensorboard(options.tensorboard),
                f"tensorboard --logdir {options.tensorboard}",
            )
        )
    return [_write(path, write, reader) for path, write, reader in wanted]


def _write(path: str, write: Callable[[], object], reader: str) -> str:
    try:
        with _Progress(f"writing {path}"):
            write()
    except OSError as error:
        _say(f"memprof: cannot write {path}: {error.strerror or error}")
        return f"not written: {path} (give another place)"
    except Exception as error:  # noqa: BLE001
        _say(f"memprof: cannot write {path}: {last_line(error)}")
        return f"not written: {path}"
    line = f"wrote {path}   ({reader})"
    return line if len(line) <= 80 else f"wrote {path}\n      ({reader})"


class _Recorder:
    """The collection of one run, and its claim to be the only one in the process."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._window: Window | None = None
        self._claim = _active.Claim(self, "memprof run")
        self._claim.where = "the command line"
        self.in_child = False

    def start(self) -> None:
        """A program that cannot be recorded runs all the same."""
        asked = self._options
        try:
            self._claim.take()
            self._window = Window(
                {
                    "stacks": asked.stacks,
                    "operators": asked.operators or asked.shapes,
                    "shapes": asked.shapes,
                    "memory": True,
                    "cuda": True,
                    "max_bytes": asked.max_memory,
                    "ring": asked.at_limit == "ring",
                    "auto_steps": True,
                },
                None,
            )
            self._window.open()
            self._window.begin()
        except Exception as error:  # noqa: BLE001
            self._leave()
            _say(f"memprof: nothing is recorded: {last_line(error)}")

    def stop(self, program: Program, status: int) -> "Recording | None":
        if self._window is None:
            return None
        try:
            return self._window.finish(self._header(program, status))
        finally:
            self._leave()

    def _leave(self) -> None:
        window, self._window = self._window, None
        try:
            if window is not None:
                window.close()
        finally:
            self._claim.release()

    def _header(self, program: Program, status: int) -> dict[str, object]:
        asked = self._options
        metadata: dict[str, object] = {"profile_memory": 1}
        metadata.update({"with_stack": 1} if asked.stacks else {})
        metadata.update({"record_shapes": 1} if asked.shapes else {})
        if info := distributed_info():
            metadata["distributedInfo"] = info
        return {
            "options": {"max_memory": asked.max_memory, "at_limit": asked.at_limit},
            "metadata": metadata,
            "trace_id": uuid.uuid4().hex.upper(),
            "program": {"name": program.name, "exit_status": status},
        }

    def _stop_at_exit(self, where: str) -> None:
        self._leave()

    def _forget_parent(self) -> None:
        """In the child of a fork nothing is recorded and nothing will be written."""
        self._window = None
        self.in_child = True


class _Progress:
    """Says on stderr what is going on, if it goes on for more than a second."""

    def __init__(self, what: str) -> None:
        self._text = f"memprof: {what} ..."
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._wait, name="memprof-progress", daemon=True)
        self._shown = False

    def __enter__(self) -> None:
        try:
            self._thread.start()
        except RuntimeError:  # no more threads: then no progress either
            self._ended.set()

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_val: BaseException | None,
        exc_tb: TracebackType | None,
    ) -> None:
        started = not self._ended.is_set()
        self._ended.set()
        if started:
            self._thread.join()
        if self._shown and sys.stderr.isatty():
            sys.stderr.write("\r" + " " * len(self._text) + "\r")

    def _wait(self) -> None:
        if not self._ended.wait(_SLOW_SECONDS):
            self._shown = True
            end = "" if sys.stderr.isatty() else "\n"
            print(self._text, end=end, file=sys.stderr, flush=True)


def _say(text: str) -> None:
    """To stderr: the program's stdout stays what the program printed."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):  # stderr is closed
        pass


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "-m",
        dest="as_module",
        action="store_true",
        help="run the module SCRIPT, as python -m does",
    )
    what = parser.add_argument_group("what is recorded")
    what.add_argument(
        "--operators",
        action="store_true",
        help="every operator as well, for the trace and TensorBoard's views; costs more",
    )
    what.add_argument(
        "--shapes", action="store_true", help="operators with the shapes of their inputs"
    )
    what.add_argument(
        "--no-stack",
        dest="stacks",
        action="store_false",
        help="leave Python stacks out: cheaper, but no line can be named",
    )
    what.add_argument(
        "--max-memory",
        type=_size,
        default="1 GiB",
        metavar="SIZE",
        help='most memory that the recorder itself may take (default "%(default)s")',
    )
    what.add_argument(
        "--at-limit",
        choices=("stop", "ring"),
        default="stop",
        help="when that is used up: stop recording (the default), or keep the last whole steps",
    )
    files = parser.add_argument_group("what is written")
    files.add_argument(
        "--output",
        metavar="FILE",
        help="the recording (default memprof-<name>-<pid>.memprof in the current folder)",
    )
    files.add_argument(
        "--trace", metavar="FILE", help="also a Chrome/Perfetto trace (.json or .json.gz)"
    )
    files.add_argument("--tensorboard", metavar="DIR", help="also a TensorBoard log directory")
    files.add_argument(
        "--no-summary", dest="summary", action="store_false", help="print no summary"
    )
    files.add_argument("--quiet", action="store_true", help="do not name the files written")
    parser.add_argument("target", metavar="SCRIPT", help="the program: a path, or a module")
    parser.add_argument(
        "arguments",
        metavar="ARGS",
        nargs=argparse.REMAINDER,
        help="the program's own arguments",
    )


def _size(text: str) -> int:
    try:
        return _options.checked_memory(text)
    except (TypeError, ValueError) as error:
        raise argparse.ArgumentTypeError(str(error)) from None
