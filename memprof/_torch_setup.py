"""Proves torch's binary interface on known operators and tensors before the C collectors
trust it. What fails a check stays off; each check keeps its sentence for `coverage`."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from memprof import _core

# Offset of at::RecordFunction's inputs by the C++ ABI flag, and where the variant that
# holds its name keeps the index of the alternative.
_INPUTS_BY_ABI = {True: 208, False: 184}
_NAME = 160
_NAME_INDEX_BY_ABI = {True: 32, False: 8}
# (sizes, dtype, key set) offsets in c10::TensorImpl: from 2.13 on, and before.
_IMPL_LAYOUTS = ((56, 160, 168), (64, 168, 176))
_TAG_TENSOR = 1
_LIST_TAGS = (13, 14)  # up to 2.8; from 2.9


class Check(NamedTuple):
    name: str
    passed: bool
    text: str


class TorchSetup(NamedTuple):
    """What was proved. `layout` are the arguments of `_core.torch_set_layout`."""

    checks: tuple[Check, ...]
    layout: dict[str, Any]
    cpu_memory: bool

    def reason(self, *names: str) -> str:
        """The first failed check among `names`, as a sentence; "" when all passed."""
        for check in self.checks:
            if check.name in names and not check.passed:
                return check.text
        return ""


_NO_LAYOUT: dict[str, Any] = {
    "operators": False,
    "sequences": False,
    "schema_names": False,
    "shapes": False,
    "inputs": 0,
    "name_index": 0,
    "impl_sizes": 0,
    "impl_dtype": 0,
    "list_tag": 0,
}

_done: TorchSetup | None = None


def prove(torch: Any) -> TorchSetup:
    """Runs the checks and states the layout to the collectors. Once all have passed they are
    not run again in this process; a failure may come from a mode that was on, so it is."""
    global _done
    if _done is None or not all(check.passed for check in _done.checks):
        with _plain_torch(torch):
            _done = _Prover(torch).run()
    _core.torch_set_layout(**_done.layout)
    return _done


@contextlib.contextmanager
def _plain_torch(torch: Any) -> Iterator[None]:
    """Without the modes of the user's thread, in which an operator is not what it seems."""
    dispatch = sys.modules.get("torch.utils._python_dispatch")
    without_modes = getattr(dispatch, "_disable_current_modes", contextlib.nullcontext)
    with (
        torch.inference_mode(False),
        torch.enable_grad(),
        torch.autocast("cpu", enabled=False),
        torch._C.DisableTorchFunction(),
        without_modes(),
    ):
        yield


def forget() -> None:
    """The next prove() runs the checks again (tests)."""
    global _done
    _done = None


class _Prover:
    def __init__(self, torch: Any) -> None:
        self._torch = torch
        self._checks: list[Check] = []
        self._x = torch.ones(3, 5, dtype=torch.float32, device="cpu")
        self._y = torch.ones(5, 2, dtype=torch.float32, device="cpu")
        self._layout = dict(_NO_LAYOUT)

    def run(self) -> TorchSetup:
        found = self._run(self._symbols)
        if found and self._run(self._abi) and self._run(self._inputs):
            self._run(self._sequences)
            self._run(self._schema_names)
            if self._run(self._list_tag) and self._run(self._tensor_layout):
                self._layout["shapes"] = True
        cpu_memory = found and self._run(self._cpu_blocks)
        return TorchSetup(tuple(self._checks), self._layout, cpu_memory)

    def _run(self, check: Callable[[], str]) -> bool:
        """A check returns "" when it passed, else why not."""
        name = check.__name__.strip("_")
        try:
            text = check()
        except Exception as error:  # noqa: BLE001 - any surprise means: not proved
            text = f"{type(error).__name__}: {error}"
        sentence = f"self-check '{name}' failed: {text}" if text else ""
        self._checks.append(Check(name, not text, sentence))
        return not text

    def _symbols(self) -> str:
        found = _core.torch_find()
        if not found["found"]:
            return "torch's libraries are not in the process"
        optional = {"op_overload", "reporter_new", "reporter_delete", "reporter_oom"}
        missing = [
            n for n, there in found["symbols"].items() if not there and n not in optional
        ]
        return f"torch does not export {', '.join(missing)}" if missing else ""

    def _abi(self) -> str:
        flag = getattr(self._torch._C, "_GLIBCXX_USE_CXX11_ABI", None)
        if not isinstance(flag, bool):
            return f"torch._C._GLIBCXX_USE_CXX11_ABI is {flag!r}, not a bool"
        self._abi_flag = flag
        return ""

    def _inputs(self) -> str:
        probe = _core.torch_probe(
            "aten::mm", self._x._cdata, 0, lambda: self._torch.mm(self._x, self._y)
        )
        expected = _INPUTS_BY_ABI[self._abi_flag]
        if probe["failed"] or probe["calls"] != 1:
            return f"one call of aten::mm was seen {probe['calls']} times"
        if probe["matches"] != 1 or probe["inputs_offset"] != expected:
            return (
                f"the inputs of an operator were found in {probe['matches']} places "
                f"(last at {probe['inputs_offset']}, expected {expected})"
            )
        if probe["inputs_size"] != 2 or probe["tags"][:2] != (_TAG_TENSOR, _TAG_TENSOR):
            return f"aten::mm shows {probe['inputs_size']} inputs, tags {probe['tags'][:2]}"
        for fact in ("scope_valid", "thread_id_agrees", "async_agrees"):
            if not probe[fact]:
                return f"{fact} does not hold"
        self._layout.update(operators=True, inputs=probe["inputs_offset"])
        return ""

    def _sequences(self) -> str:
        torch = self._torch
        read = getattr(torch._C._autograd, "_get_sequence_nr", None)
        if read is None:
            read = torch.autograd._get_sequence_nr
        leaf = torch.ones(2, requires_grad=True, device="cpu")
        for _ in range(2):
            expected = read()
            probe = self._probe_at_offset("aten::mul", lambda: torch.mul(leaf, leaf))
            if probe["sequence"] != expected:
                return f"an operator shows {probe['sequence']}, autograd says {expected}"
        self._layout["sequences"] = True
        return ""

    def _schema_names(self) -> str:
        key = f"name_index_{_NAME_INDEX_BY_ABI[self._abi_flag]}"
        torch = self._torch
        schema = self._probe_at_offset("aten::mm", lambda: torch.mm(self._x, self._y))
        leaf = torch.ones(2, requires_grad=True, device="cpu")
        loss = torch.mul(leaf, leaf).sum()
        text = self._probe_at_offset(
            "autograd::engine::evaluate_function: MulBackward0", loss.backward
        )
        if text["calls"] < 1 or (schema[key], text[key]) != (1, 0):
            return f"the kind of an operator's name reads {schema[key]} and {text[key]}"
        self._layout.update(
            schema_names=True, name_index=_NAME + _NAME_INDEX_BY_ABI[self._abi_flag]
        )
        return ""

    def _list_tag(self) -> str:
        probe = self._probe_at_offset("aten::cat", lambda: self._torch.cat([self._x, self._x]))
        tag = probe["tags"][0]
        if tag not in _LIST_TAGS:
            return f"a list of tensors has tag {tag}"
        self._layout["list_tag"] = tag
        return ""

    def _tensor_layout(self) -> str:
        torch = self._torch
        samples = [
            (self._x, 6),
            (torch.ones((), dtype=torch.int64, device="cpu"), 4),
            (torch.ones(2, 1, 3, 1, 2, dtype=torch.bfloat16, device="cpu"), 15),
            (torch.ones(1, 2, 3, 1, 2, 1, 2, dtype=torch.bool, device="cpu"), 11),
        ]
        raw = getattr(torch._C._dispatch_keys(self._x), "raw_repr", None)
        for sizes, dtype, keys in _IMPL_LAYOUTS:
            if raw is not None and _core.torch_read_word(self._x._cdata, keys) != raw():
                continue
            if all(
                _core.torch_read_impl(tensor._cdata, sizes, dtype)
                == (tuple(tensor.shape), code)
                for tensor, code in samples
            ):
                self._layout.update(impl_sizes=sizes, impl_dtype=dtype)
                return ""
        return "no known layout of a tensor gives its shape and dtype"

    def _cpu_blocks(self) -> str:
        """One known block, from birth to death, in a recording of its own."""
        torch = self._torch
        size = 1 << 20
        session = _core.Session(stacks=False, operators=False, max_bytes=8 << 20)
        session.start()
        try:
            block = torch.empty(size, dtype=torch.uint8, device="cpu")
            address = block.data_ptr()
            del block
        finally:
            recording = session.stop()
        rows = recording.table("allocations")
        rows = rows[rows["address"] == address]
        seen = [(int(r["kind"]), int(r["bytes"])) for r in rows]
        return (
            "" if seen == [(1, size), (2, -size)] else f"a block of {size} bytes shows {seen}"
        )

    def _probe_at_offset(self, operator: str, call: Callable[[], Any]) -> dict[str, Any]:
        probe: dict[str, Any] = _core.torch_probe(operator, 0, self._layout["inputs"], call)
        return probe


def check_cuda_blocks(torch: Any, session: Any) -> str:
    """Whether the caching allocator is one whose blocks the hooks see. Makes no context.
    Returns "" or the reason why blocks will be missing."""
    import os

    backend = torch.cuda.get_allocator_backend()
    if backend != "native":
        return f"the CUDA allocator is {backend!r}: it reports no blocks"
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        return "PYTORCH_NO_CUDA_MEMORY_CACHING is set: blocks are not reported"
    if session.coverage()["device_slots"] == 0:
        return "no call from torch's CUDA allocator to its report function was found"
    return ""


def collect_cuda_baseline(torch: Any) -> list[tuple[Any, ...]]:
    """Blocks that the caching allocator holds now, as rows of the table baseline."""
    import inspect
    import time

    snapshot = torch.cuda.memory_snapshot
    without_traces = "include_traces" in inspect.signature(snapshot).parameters
    segments = snapshot(include_traces=False) if without_traces else snapshot()
    # After the call: a block of the snapshot whose birth was hooked has an earlier event.
    now = time.time_ns()
    rows = []
    for segment in segments:
        address = segment["address"]
        for block in segment["blocks"]:
            at = block.get("address", address)
            if block["state"] == "active_allocated":
                requested = block.get("requested_size", -1)
                rows.append((now, at, block["size"], requested, 0, 1, segment["device"], 0))
            address += block["size"]
    return rows
