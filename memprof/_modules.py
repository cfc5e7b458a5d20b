"""Names for the module instances that were seen on stacks: `model.layers.3.mlp.fc1`."""

from __future__ import annotations

import gc
import sys
import weakref
from typing import Any

_SCAN_LIMIT = 32  # scans of the heap in one session; modules that come later keep their class


class ModuleNames:
    """Finds the live module behind each address that the session saw and tells the session
    its path. No reference to a module is kept; when one dies its address is struck out."""

    def __init__(self, session: Any, module_class: type) -> None:
        self._session = session
        self._module_class = module_class
        self._seen = 0
        self._scans = 0
        self._watched: dict[int, weakref.ref[Any]] = {}

    def update(self, *, last: bool = False) -> None:
        """Names what came since the last call. Cheap when nothing did."""
        if self._session.object_count() == self._seen:
            return
        found, self._seen = self._session.unnamed_modules(self._seen)
        if not found or (self._scans >= _SCAN_LIMIT and not last):
            return
        self._scans += 1
        live = self._live_modules()
        parents = _parents(live)
        ids = {address: object_id for object_id, address, _ in found}
        for object_id, address, class_name in found:
            module = live.get(address)
            if module is None or type(module).__name__ != class_name[:55].rpartition(".")[2]:
                continue
            self._watch(address, module)
            path, ancestors = _path(module, parents)
            parent = next((ids[id(a)] for a in ancestors if id(a) in ids), 0)
            self._session.name_module(object_id, parent, path, type(module).__name__)

    def _live_modules(self) -> dict[int, Any]:
        is_module: dict[type, bool] = {}
        live = {}
        for candidate in gc.get_objects():
            kind = type(candidate)
            known = is_module.get(kind)
            if known is None:
                known = is_module[kind] = issubclass(kind, self._module_class)
            if known:
                live[id(candidate)] = candidate
        return live

    def _watch(self, address: int, module: Any) -> None:
        strike = self._session.strike

        def died(_: Any) -> None:
            strike(address)

        self._watched[address] = weakref.ref(module, died)


def _parents(live: dict[int, Any]) -> dict[int, tuple[Any, str]]:
    parents: dict[int, tuple[Any, str]] = {}
    for module in live.values():
        for name, child in (module.__dict__.get("_modules") or {}).items():
            if child is not None and child is not module:
                parents.setdefault(id(child), (module, name))
    return parents


def _path(module: Any, parents: dict[int, tuple[Any, str]]) -> tuple[str, list[Any]]:
    names: list[str] = []
    ancestors: list[Any] = []
    seen = {id(module)}
    top = module
    while (link := parents.get(id(top))) is not None and id(link[0]) not in seen:
        top = link[0]
        seen.add(id(top))
        ancestors.append(top)
        names.append(link[1])
    return ".".join([_root_name(top), *reversed(names)]), ancestors


def _root_name(module: Any) -> str:
    """The global variable of the main program that holds it, else its class. Locals of
    running functions are not asked: reading them would keep their values alive."""
    main = sys.modules.get("__main__")
    for name, value in list(vars(main).items()) if main is not None else ():
        if value is module and not name.startswith("_"):
            return name
    return type(module).__name__
