"""Collection in this process: the C session plus what only Python can tell it (module
names, optimizer steps, blocks live at start), tied to torch when torch is there."""

from __future__ import annotations

import atexit
import importlib.abc
import importlib.util
import os
import platform
import sys
import weakref
from typing import Any

import numpy as np

from memprof import _core, _cupti, _torch_setup
from memprof._modules import ModuleNames
from memprof._notices import last_line, notify
from memprof.recording import Recording

_FRAME_MODULE_CALL, _FRAME_DATA, _FRAME_BACKWARD = 1, 2, 4
_SPAN_OPTIMIZER = 2

_BASELINE = (
    _core.Recording.from_tables({}, start_ns=0, window_start_ns=0, stop_ns=0)
    .table("baseline")
    .dtype
)

_current: Collection | None = None
_fork_handler_set = False


class Collection:
    """One period of recording: start(), marks, then stop() or abandon().

    memory: allocator events. stacks: a Python stack on each. operators: every operator
    (else backward nodes and user ranges only). shapes: of operators' inputs. cuda: include
    the memory of CUDA devices. gpu: what the GPU does (kernels, copies, API calls), by CUPTI,
    where there is one. max_bytes: bound of the recorder's own memory; ring: keep the last whole
    steps at that bound instead of stopping. auto_steps: each step of the first optimizer
    seen ends a step of the recording, until mark_step() is called.
    """

    def __init__(
        self,
        *,
        stacks: bool = True,
        operators: bool = True,
        shapes: bool = False,
        memory: bool = True,
        cuda: bool = True,
        gpu: bool = False,
        max_bytes: int = 1 << 30,
        ring: bool = False,
        auto_steps: bool = False,
    ) -> None:
        self._options: dict[str, Any] = {
            "stacks": stacks,
            "operators": operators,
            "shapes": shapes,
            "memory": memory,
            "cuda": cuda,
            "gpu": gpu,
            "max_bytes": max_bytes,
            "ring": ring,
        }
        self._session = self._new_session()
        self._auto_steps = auto_steps
        self._older_blocks = False  # torch was there before us: so may blocks have been
        self._auto_number = 0
        self._in_window = False
        self._step: int | None = None  # the one that is going on
        self._step_owner: weakref.ref[Any] | None = None
        self._torch: _TorchTies | None = None
        self._importer: _TorchImporter | None = None

    @property
    def active(self) -> bool:
        return bool(self._session.active)

    def start(self) -> None:
        """Hooks in. RuntimeError while another collection records in this process."""
        global _current
        _set_fork_handler()
        torch = _loaded_torch()
        self._older_blocks = torch is not None
        if torch is not None and not _current:
            _torch_setup.prove(torch)
        self._session.start()
        _current = self
        try:
            if torch is not None:
                self._tie_torch(torch)
            else:
                self._importer = _TorchImporter(self._tie_late_torch)
            if self._auto_steps:
                self._mark(0)
        except BaseException:
            self.abandon()
            raise

    def begin_window(self) -> None:
        """What came before is warm-up."""
        self._in_window = True
        self._session.begin_window()
        if self._auto_steps:
            self._mark(self._auto_number)

    def mark_step(self, number: int) -> None:
        """Step `number` begins, the one before it ends."""
        self._auto_steps = False
        self._mark(number)
        self._name_modules()

    def end_step(self) -> None:
        self._step = None
        self._session.end_step()
        self._name_modules()

    def clock(self) -> int:
        return int(self._session.clock())

    def add_span(self, name: str, start: int, kind: int = 1) -> None:
        """A range of the calling thread, from clock() == start until now."""
        self._session.add_span(name, kind, 0, start)

    def stop(self, header: dict[str, Any] | None = None) -> Recording:
        """Hooks out; the finished recording with `header` in it."""
        self._prepare_end(last_names=True)
        if self._auto_steps:
            self._session.drop_open_step()
        try:
            core = self._session.stop()
        finally:
            self._untie()
        full = dict(header or {})
        full["options"] = {**self._options, **full.get("options", {})}
        full["coverage"] = self.coverage()
        full["environment"] = environment_header()
        return Recording(core, full)

    def abandon(self) -> None:
        """Hooks out; what was recorded is dropped."""
        self._session.abandon()
        self._untie()

    def coverage(self) -> dict[str, Any]:
        """What was asked, what was on, and why not."""
        raw = self._session.coverage()
        setup = self._torch.setup if self._torch is not None else None
        cuda = self._torch.cuda_reason if self._torch is not None else "torch is not loaded"
        found = _coverage(raw, self._options, setup, cuda)
        gpu = self._torch.gpu.reason if self._torch is not None else "torch is not loaded"
        found["sources"]["gpu activity"] = _source(not gpu, gpu)
        found["losses"].update(_cupti.losses(raw["activities"]))
        found["activities"] = raw["activities"]
        found["older_cpu_blocks"] = self._older_blocks
        return found

    # ---- inside ----

    def _tie_torch(self, torch: Any) -> None:
        self._torch = _TorchTies(torch, self._session, self._options, self)

    def _tie_late_torch(self, torch: Any) -> None:
        """torch was imported while we record. None of its memory was seen yet, so recording
        begins afresh, and the proof can make recordings of its own. No failure reaches the
        import."""
        if not self.active:
            return
        try:
            self._session.abandon()
            _torch_setup.prove(torch)
            self._session = self._new_session()
            self._session.start()
            self._tie_torch(torch)
            if self._in_window:
                self._session.begin_window()
            if self._step is not None:
                self._session.mark_step(self._step)
        except Exception as error:  # noqa: BLE001
            notify(f"memprof cannot record torch, which was imported late: {last_line(error)}")

    def _new_session(self) -> Any:
        options = {k: v for k, v in self._options.items() if k not in ("cuda", "gpu")}
        return _core.Session(**options, activities=self._options["gpu"] and _may_have_gpu())

    def _mark(self, number: int) -> None:
        self._step = number
        self._session.mark_step(number)

    def _name_modules(self) -> None:
        if self._torch is not None and self.active:
            self._torch.names.update()

    def _optimizer_stepped(self, optimizer: Any) -> None:
        self._name_modules()
        if not self._auto_steps:
            return
        owner = self._step_owner() if self._step_owner is not None else None
        if owner is None:
            self._step_owner = weakref.ref(optimizer)
            owner = optimizer
        if owner is optimizer:
            self._auto_number += 1
            self._mark(self._auto_number)

    def _prepare_end(self, *, last_names: bool) -> None:
        if self._torch is not None and self.active:
            self._torch.gpu.before_stop()
            self._torch.names.update(last=last_names)
            self._torch.mark_roles()

    def _untie(self) -> None:
        global _current
        if self._importer is not None:
            self._importer.remove()
            self._importer = None
        if self._torch is not None:
            self._torch.undo()
        if _current is self:
            _current = None

    def _after_fork(self) -> None:
        self._session.after_fork()
        self._untie()


class _TorchTies:
    """What is registered in torch's Python side while recording, and its removal."""

    def __init__(
        self, torch: Any, session: Any, options: dict[str, Any], collection: Collection
    ) -> None:
        self._torch = torch
        self._session = session
        self._collection = weakref.ref(collection)
        self._starts: dict[int, int] = {}
        self.setup = _torch_setup._done
        self.names = ModuleNames(session, torch.nn.Module)
        session.mark_code(_code(torch.nn.Module.__call__), _FRAME_MODULE_CALL)
        self._handles = self._hook_optimizers()
        profiler = torch.autograd.profiler
        self._was_enabled = profiler._is_profiler_enabled
        profiler._is_profiler_enabled = True  # inductor and dynamo mark their ranges
        self.cuda_reason = self._take_baseline(options)
        self.gpu = _cupti.GpuActivity(torch, session, options["gpu"])

    def _hook_optimizers(self) -> list[Any]:
        optimizer: Any = sys.modules.get("torch.optim.optimizer")
        if not hasattr(optimizer, "register_optimizer_step_post_hook"):
            return []
        return [
            optimizer.register_optimizer_step_pre_hook(self._before_step),
            optimizer.register_optimizer_step_post_hook(self._after_step),
        ]

    def _before_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        self._starts[id(optimizer)] = self._session.clock()

    def _after_step(self, optimizer: Any, args: Any, kwargs: Any) -> None:
        start = self._starts.pop(id(optimizer), None)
        if start is not None:
            name = f"Optimizer.step#{type(optimizer).__name__}.step"
            self._session.add_span(name, _SPAN_OPTIMIZER, 0, start)
        collection = self._collection()
        if collection is not None:
            collection._optimizer_stepped(optimizer)

    def _take_baseline(self, options: dict[str, Any]) -> str:
        """CUDA blocks live at start; returns why CUDA memory is not recorded, or ""."""
        cuda = self._torch.cuda
        if not options["cuda"] or not options["memory"]:
            return "not asked for"
        if not cuda.is_available():
            return "no CUDA device"
        reason = _torch_setup.check_cuda_blocks(self._torch, self._session)
        if not reason and cuda.is_initialized():
            rows = _torch_setup.collect_cuda_baseline(self._torch)
            self._session.set_baseline(np.array(rows, dtype=_BASELINE))
        return reason

    def mark_roles(self) -> None:
        torch = self._torch
        for function in (
            torch.Tensor.backward,
            torch.autograd.backward,
            torch.autograd.grad,
        ):
            self._session.mark_code(_code(function), _FRAME_BACKWARD)
        loader = sys.modules.get("torch.utils.data.dataloader")
        if loader is not None:
            self._session.mark_code(_code(loader._BaseDataLoaderIter.__next__), _FRAME_DATA)

    def undo(self) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []
        self.gpu.undo()
        self._torch.autograd.profiler._is_profiler_enabled = self._was_enabled


def _code(function: Any) -> Any:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    return function.__code__


def _loaded_torch() -> Any | None:
    """torch if its import has finished."""
    torch = sys.modules.get("torch")
    return torch if torch is not None and hasattr(torch, "autograd") else None


class _TorchImporter(importlib.abc.MetaPathFinder):
    """Calls back once torch's import has finished."""

    def __init__(self, then: Any) -> None:
        self._then = then
        sys.meta_path.insert(0, self)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != "torch":
            return None
        self.remove()
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load, then = spec.loader.exec_module, self._then

            def exec_module(module: Any) -> None:
                load(module)
                then(module)

            spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec

    def remove(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)


@atexit.register
def _abandon_at_exit() -> None:
    """Hooks go before the interpreter does: they read its frames."""
    active = sys.modules.get("memprof._active")
    if active is not None:
        active._stop_at_exit()  # a profile that nobody stopped still writes its files
    if _current is not None:
        _current.abandon()


def _may_have_gpu() -> bool:
    """Whether room for GPU activity is worth keeping; asks no driver before torch does."""
    torch = _loaded_torch()
    return torch is None or bool(torch.cuda.is_available())


def _set_fork_handler() -> None:
    global _fork_handler_set
    if not _fork_handler_set:
        os.register_at_fork(after_in_child=_after_fork)
        _fork_handler_set = True


def _after_fork() -> None:
    _core.leave_parents_session()
    if _current is not None:
        _current._after_fork()


def _source(on: bool, reason: str = "") -> dict[str, Any]:
    return {"on": on, "reason": "" if on else reason}


def _coverage(
    raw: dict[str, Any],
    options: dict[str, Any],
    setup: _torch_setup.TorchSetup | None,
    cuda_reason: str,
) -> dict[str, Any]:
    asked = {True: "", False: "not asked for"}
    why = "torch is not loaded" if setup is None else ""
    cpu = why or (setup.reason("symbols", "cpu_blocks") if setup else "")
    ops = why or (setup.reason("symbols", "abi", "inputs") if setup else "")
    links = ops or (setup.reason("sequences") if setup else "")
    shapes = ops or (setup.reason("list_tag", "tensor_layout") if setup else "")
    distrusted = (
        f"{raw['contradictions']} callbacks contradicted the layout"
        if raw["contradictions"]
        else ""
    )
    sources = {
        "cpu memory": _source(
            raw["memory"] and not cpu, cpu or asked[options["memory"]] or "no slot was patched"
        ),
        "cuda memory": _source(not cuda_reason, cuda_reason),
        "stacks": _source(raw["stacks"], raw["stacks_reason"]),
        "operators": _source(
            bool(raw["operators"] and options["operators"] and not ops and not distrusted),
            asked[options["operators"]] or ops or distrusted or "torch refused the callback",
        ),
        "shapes": _source(raw["shapes"] and not shapes, asked[options["shapes"]] or shapes),
        "backward links": _source(
            bool(raw["operators"] and not links), links or "torch refused the callback"
        ),
    }
    return {
        "asked": dict(options),
        "sources": sources,
        "losses": raw["losses"],
        "threads": raw["threads"],
        "used_bytes": raw["used_bytes"],
        "stopped_at_limit": raw["stopped_at_limit"],
        "ring": raw["ring"],
        "slots_left_in_place": raw["slots_left_in_place"],
        "other_tool_in_slots": raw["other_tool_in_slots"],
        "self_checks": {c.name: c.text or "passed" for c in setup.checks} if setup else {},
    }


def environment_header() -> dict[str, Any]:
    """Versions that a recording carries."""
    torch = _loaded_torch()
    header: dict[str, Any] = {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "pid": os.getpid(),
        "numpy": np.__version__,
        "torch": str(torch.__version__) if torch is not None else None,
        "clock": _core.clock_source,
        "argv": list(sys.argv),
    }
    if torch is not None and torch.cuda.is_available() and torch.cuda.is_initialized():
        header["devices"] = [_device(torch, i) for i in range(torch.cuda.device_count())]
        header["allocator_backend"] = torch.cuda.get_allocator_backend()
    return header


# Kineto's keys and the names that torch has them under, not all in each version.
_DEVICE_LIMITS = {
    "maxThreadsPerMultiprocessor": "max_threads_per_multi_processor",
    "regsPerMultiprocessor": "regs_per_multiprocessor",
    "sharedMemPerMultiprocessor": "shared_memory_per_multiprocessor",
    "sharedMemPerBlock": "shared_memory_per_block",
    "sharedMemPerBlockOptin": "shared_memory_per_block_optin",
    "warpSize": "warp_size",
}


def _device(torch: Any, index: int) -> dict[str, Any]:
    properties = torch.cuda.get_device_properties(index)
    return {
        "id": index,
        "name": properties.name,
        "totalGlobalMem": properties.total_memory,
        "computeMajor": properties.major,
        "computeMinor": properties.minor,
        "numSms": properties.multi_processor_count,
        **{
            key: getattr(properties, name)
            for key, name in _DEVICE_LIMITS.items()
            if hasattr(properties, name)
        },
    }


def environment() -> dict[str, Any]:
    """What memprof can do here and why not: versions, the self-checks of its hooks into
    torch and of the frame walk, devices. Imports torch if it is installed."""
    found: dict[str, Any] = {}
    try:
        import torch
    except ImportError as error:
        found["torch_missing"] = str(error)
    else:
        setup = _torch_setup.prove(torch)
        found["self_checks"] = {c.name: c.text or "passed" for c in setup.checks}
        found["cuda"] = {
            "available": torch.cuda.is_available(),
            "version": torch.version.cuda,
            "devices": torch.cuda.device_count(),
        }
        if torch.cuda.is_available():
            found["cupti"] = _cupti.library()
    check = getattr(_core, "_frames_check", None)
    reason = check() if check is not None else ""
    found["python_stacks"] = reason or "proved"
    return {**environment_header(), **found}
