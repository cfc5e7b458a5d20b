"""The command `memprof`: run, report, env."""

import argparse
import json
import os
import sys
from collections.abc import Sequence

from memprof import _run_command

_DESCRIPTION = """\
Where the memory of a PyTorch training run went, and which line is to blame.

  memprof run train.py --epochs 3      run it unchanged, then say where memory went
  memprof run -m package.train         the same for python -m package.train
  memprof report memprof-train-1.memprof
  memprof env                          what memprof can see on this machine
"""

_RUN_DESCRIPTION = """\
Runs a program as `python` would and records every block of memory that torch
allocates, with the line that asked for it. When the program ends, however it
ends, a summary goes to stderr and the recording into a file. The exit status is
the program's.

A step of training is what lies between two optimizer.step() of the first
optimizer. Options of memprof stand before SCRIPT; all that follows it belongs to
the program.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """The exit status."""
    options = _parser().parse_args(arguments)
    status: int = options.command(options)
    return status


def _parser() -> argparse.ArgumentParser:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="memprof", description=_DESCRIPTION, formatter_class=shape
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    run = commands.add_parser(
        "run",
        help="run a program and say where its memory went",
        description=_RUN_DESCRIPTION,
        formatter_class=shape,
        usage="memprof run [options] (SCRIPT | -m MODULE) [ARGS ...]",
    )
    _run_command.add_arguments(run)
    run.set_defaults(command=_run_command.run)

    report = commands.add_parser(
        "report",
        help="read a recording again",
        description="Prints the summary of a recording that `memprof run` or .save() wrote.",
    )
    report.add_argument("file", metavar="FILE", help="a .memprof file")
    report.add_argument("--json", action="store_true", help="the same for machines")
    report.set_defaults(command=_report)

    env = commands.add_parser(
        "env",
        help="what memprof can see on this machine, and what not",
        description="Versions, the self-checks of memprof's hooks, devices; each with the"
        " reason where something is off.",
    )
    env.add_argument("--json", action="store_true", help="the same for machines")
    env.set_defaults(command=_env)
    return parser


def _report(options: argparse.Namespace) -> int:
    from memprof.recording import load
    from memprof.report.data import to_dict

    try:
        recording = load(options.file)
    except OSError as error:
        return _fail(f"memprof report: cannot read {options.file}: {error.strerror or error}")
    except ValueError as error:
        return _fail(f"memprof report: {options.file} is no recording: {error}")
    if options.json:
        return _print(json.dumps(to_dict(recording), indent=2))
    return _print(recording.summary())


def _env(options: argparse.Namespace) -> int:
    from memprof._collection import environment
    from memprof.report.environment import environment_text

    found = environment()
    return _print(json.dumps(found, indent=2) if options.json else environment_text(found))


def _print(text: str) -> int:
    try:
        print(text.rstrip("\n"), flush=True)
    except BrokenPipeError:  # `memprof report FILE | head`: no more is wanted
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return 0


def _fail(text: str) -> int:
    print(text, file=sys.stderr)
    return 2
