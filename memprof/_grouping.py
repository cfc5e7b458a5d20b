"""Blocks added up by a key. Ids are reduced with NumPy first, so names are made once for
each distinct id, never for each block."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from memprof import _core
from memprof._texts import user_frame

if TYPE_CHECKING:
    from memprof.recording import Recording

_SCOPE_FUNCTION, _SCOPE_BACKWARD = 0, 1
_ENGINE_WRAPPER = "autograd::engine::evaluate_function"


BEFORE = "(before the recording)"  # the name of blocks that were live at its start


class Group(NamedTuple):
    name: str | tuple[str, ...]
    bytes: int
    blocks: int


def group_blocks(
    recording: "Recording", blocks: np.ndarray[Any, Any], key: str | Sequence[str]
) -> list[Group]:
    """Descending by bytes, then by name."""
    keys = (key,) if isinstance(key, str) else tuple(key)
    if not keys:
        raise ValueError(f"key={key!r} is empty; {_CURE}")
    columns = [_codes_and_names(recording, blocks, name) for name in keys]
    codes = np.zeros(len(blocks), np.int64)
    for column_codes, names in columns:  # mixed radix, renumbered so that it never overflows
        codes = codes * max(len(names), 1) + column_codes
        codes = np.unique(codes, return_inverse=True)[1].reshape(len(blocks))
    count = int(codes.max()) + 1 if len(blocks) else 0
    sums = np.zeros(count, np.int64)
    np.add.at(sums, codes, blocks["bytes"])
    counts = np.bincount(codes, minlength=count)
    example = np.zeros(count, np.int64)
    example[codes] = np.arange(len(blocks))
    groups = []
    for group in range(count):
        name = tuple(names[code[example[group]]] for code, names in columns)
        label = name[0] if isinstance(key, str) else name
        groups.append(Group(label, int(sums[group]), int(counts[group])))
    return sorted(groups, key=lambda group: (-group.bytes, group.name))


def _codes_and_names(
    recording: "Recording", blocks: np.ndarray[Any, Any], key: object
) -> tuple[np.ndarray[Any, Any], list[str]]:
    """For each block the place of its name in the list of names."""
    if not isinstance(key, str):
        raise TypeError(f"key={key!r} is of type {type(key).__name__}; {_CURE}")
    if key not in _KEYS:
        raise ValueError(f"key={key!r} is unknown; {_CURE}")
    column, name_of = _KEYS[key]
    ids, inverse = np.unique(blocks[column], return_inverse=True)
    names: dict[str, int] = {}
    places = np.array(
        [names.setdefault(text, len(names)) for text in name_of(recording, ids)], np.int64
    )
    codes = places[inverse.reshape(len(blocks))]
    older = (blocks["preexisting"] == 1) & (blocks["birth_ns"] < recording.start_ns)
    if older.any():  # whoever made these was not watched
        codes = np.where(older, names.setdefault(BEFORE, len(names)), codes)
    return codes, list(names)


def _line_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    frames = [user_frame(recording.stacks[int(i)]) for i in ids]
    return ["(no Python stack)" if frame is None else str(frame) for frame in frames]


def _stack_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    return [
        ";".join(str(frame) for frame in reversed(recording.stacks[int(i)]))
        or "(no Python stack)"
        for i in ids
    ]


def _module_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    modules, strings = recording.modules, recording.strings
    names = []
    for module_id in ids:
        if module_id == 0:
            names.append("(no module)")
            continue
        row = modules[int(module_id) - 1]
        names.append(
            strings[int(row["path_id"])] or strings[int(row["class_id"])] or "(unnamed)"
        )
    return names


def _operator_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    """The outermost operator that torch's user called: record_function ranges and the
    engine's wrapper of a backward node are not it."""
    operators, strings = recording.operators, recording.strings
    wrapper = np.array(
        [
            int(i)
            for i in np.unique(operators["name_id"])
            if strings[int(i)].startswith(_ENGINE_WRAPPER)
        ],
        np.int64,
    )
    current = ids.astype(np.int64)
    chosen = np.zeros_like(current)
    while current.any():
        rows = operators[np.maximum(current - 1, 0)]
        counts = (current > 0) & np.isin(rows["scope"], (_SCOPE_FUNCTION, _SCOPE_BACKWARD))
        counts &= ~np.isin(rows["name_id"], wrapper)
        chosen = np.where(counts, current, chosen)
        current = np.where(current > 0, rows["parent_id"].astype(np.int64), 0)
    return [
        "(no operator)" if i == 0 else strings[int(operators[i - 1]["name_id"])] for i in chosen
    ]


def _thread_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    names = []
    for thread_id in ids:
        if thread_id == 0:
            names.append("(before the recording)")
            continue
        row = recording.threads[int(thread_id) - 1]
        names.append(f"{recording.strings[int(row['name_id'])]} {int(row['os_id'])}".strip())
    return names


def _phase_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    return [_core.phases[int(i)] for i in ids]


def _category_names(recording: "Recording", ids: np.ndarray[Any, Any]) -> list[str]:
    return [_core.categories[int(i)] for i in ids]


_KEYS: dict[str, tuple[str, Callable[["Recording", np.ndarray[Any, Any]], list[str]]]] = {
    "category": ("category", _category_names),
    "module": ("module_id", _module_names),
    "line": ("stack_id", _line_names),
    "operator": ("operator_id", _operator_names),
    "stack": ("stack_id", _stack_names),
    "phase": ("phase", _phase_names),
    "thread": ("thread", _thread_names),
}
_CURE = "give one of " + ", ".join(f'"{key}"' for key in _KEYS) + ", or a tuple of them"
