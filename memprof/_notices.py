"""Warnings that point at the user's line, and the user's line itself."""

import os
import sys
import traceback
import warnings

_PACKAGE = os.path.dirname(os.path.abspath(__file__)) + os.sep


def _depth_of_user() -> int:
    """Frames between this function's caller and the first one outside the package."""
    frame, depth = sys._getframe(1), 0
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame, depth = frame.f_back, depth + 1
    return depth


def notify(message: str, category: type[Warning] = UserWarning) -> None:
    warnings.warn(message, category, stacklevel=_depth_of_user() + 1)


def user_line() -> str:
    """file:line of the first caller outside the package."""
    frame = sys._getframe(_depth_of_user())
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


def last_line(error: BaseException) -> str:
    """What a traceback ends with: where the error was raised and what it says."""
    text = "".join(traceback.format_exception_only(type(error), error)).strip()
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return text
    return f"{text} ({frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name})"
