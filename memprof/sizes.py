"""Sizes in bytes as people write them."""

import operator
import re

_UNITS = {"": 1, "b": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_PATTERN = re.compile(
    r"\s*([0-9]+(?:\.[0-9]+)?)\s*(?:([kmgt])(i?)b?|b|bytes)?\s*", re.IGNORECASE
)


def parse_size(value: int | str, name: str, least: int = 0) -> int:
    """Bytes of 268435456, "256 MiB", "1.5 GB" or "2G"; ValueError or TypeError that names
    the argument `name`."""
    size: int
    cure = f'give a number of bytes or a text such as {name}="256 MiB"'
    if isinstance(value, str):
        size = _parse_text(value, name, cure)
    elif isinstance(value, bool):
        raise TypeError(f"{name}={value!r} is a bool; {cure}")
    else:
        try:
            size = operator.index(value)
        except TypeError:
            kind = type(value).__name__
            raise TypeError(f"{name}={value!r} is of type {kind}; {cure}") from None
    if size < least:
        raise ValueError(f"{name}={value!r} is {size} bytes; at least {least} are needed")
    return size


def _parse_text(text: str, name: str, cure: str) -> int:
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise ValueError(f"{name}={text!r} is not a size; {cure}")
    number, letter, binary = match.groups()
    unit = _UNITS[(letter or "").lower()]
    if binary:
        unit = 1024 ** ("kmgt".index(letter.lower()) + 1)
    whole, _, fraction = number.partition(".")
    return int(whole) * unit + int(fraction or 0) * unit // int(10 ** len(fraction))
