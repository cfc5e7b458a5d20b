"""`memprof env`: environment() for people."""

import textwrap
from collections.abc import Iterator, Mapping
from typing import Any

_WIDTH = 80
_CHECKS = {
    "symbols": "torch's functions",
    "abi": "its C++ interface",
    "inputs": "operators",
    "sequences": "forward-backward links",
    "schema_names": "operator names",
    "list_tag": "lists of tensors",
    "tensor_layout": "shapes and dtypes",
    "cpu_blocks": "CPU memory",
}


def environment_text(found: Mapping[str, Any]) -> str:
    return "\n".join(_lines(found))


def _lines(found: Mapping[str, Any]) -> Iterator[str]:
    yield from _row("Python", f"{found['python']} on {found['platform']}")
    yield from _row("NumPy", found["numpy"])
    yield from _row("torch", _torch(found))
    yield from _row("clock", found["clock"])
    yield from _row("Python stacks", _passed(found["python_stacks"], "proved"))
    if checks := found.get("self_checks"):
        yield ""
        yield "What was tried on torch here before it is trusted:"
        for name, answer in checks.items():
            yield from _row("  " + _CHECKS.get(name, name), _passed(answer, "passed"))
    yield ""
    yield from _row("CUDA", _cuda(found))
    if "cupti" in found:
        yield from _row("CUPTI", _cupti(found["cupti"]))
    for device in found.get("devices", ()):
        gib = device["totalGlobalMem"] / 2**30
        yield from _row(f"  cuda:{device['id']}", f"{device['name']}, {gib:.1f} GiB")


def _row(name: str, value: object) -> Iterator[str]:
    lines = textwrap.wrap(str(value), _WIDTH - 26) or [""]
    yield f"{name:<26}{lines[0]}"
    for line in lines[1:]:
        yield " " * 26 + line


def _torch(found: Mapping[str, Any]) -> str:
    if found.get("torch"):
        return str(found["torch"])
    reason = found.get("torch_missing", "")
    return f"not here ({reason})" if reason else "not here"


def _passed(answer: str, good: str) -> str:
    return "ok" if answer == good else f"OFF: {answer}"


def _cuda(found: Mapping[str, Any]) -> str:
    cuda = found.get("cuda")
    if cuda is None:
        return "unknown: torch is not here"
    if cuda["available"]:
        backend = found.get("allocator_backend", "native")
        return f"{cuda['version']}, {cuda['devices']} device(s), allocator {backend}"
    if cuda["version"] is None:
        return "not in this build of torch: CPU memory only"
    return f"torch has {cuda['version']}, but no device can be used: CPU memory only"


def _cupti(library: Mapping[str, Any]) -> str:
    if library["reason"]:
        return f"no GPU activity: {library['reason']}"
    return f"{library['path']} (CUDA {library['cuda']}, version {library['version']})"
