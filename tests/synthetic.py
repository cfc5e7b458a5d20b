"""Recordings that imitate training, with the numbers a reader must find in them.

`training()` is three steps of a small network: DataLoader, forward through modules, backward
on a thread of its own, optimizer. `repeated()` makes a long recording of a short one."""

from dataclasses import dataclass, field

import numpy as np
from recording_builder import BACKWARD, CPU, DTYPES, FUNCTION, MODULE_CALL, Builder

from memprof import _core
from memprof.recording import Recording

EPOCH_NS = 1_767_225_600_123_456_789
MAIN, ENGINE = 4321, 4322
USER = 7
TENSOR, TENSOR_LIST = 1, 3
FLOAT, LONG = 6, 4
LOADER = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"
OPTIMIZER = "Optimizer.step#SGD.step"
TRAIN = ("train.py", 30, "main")
HEADER = {
    "environment": {"pid": MAIN, "argv": ["train.py"]},
    "coverage": {"sources": {"shapes": {"on": True, "reason": ""}}, "losses": {}},
}


@dataclass
class Expected:
    """What readers must show."""

    steps: list[int] = field(default_factory=list)
    step_ns: list[int] = field(default_factory=list)
    loader_ns: list[int] = field(default_factory=list)
    calls: dict[str, int] = field(default_factory=dict)
    allocated: int = 0
    freed: int = 0
    memory_events: int = 0
    peak: int = 0
    modules: dict[str, int] = field(default_factory=dict)


class _Training:
    def __init__(self, device, shapes):
        self.device = device
        self.builder = Builder(EPOCH_NS - 10**6, EPOCH_NS, EPOCH_NS + 10**7)
        self.now = EPOCH_NS
        self.expected = Expected()
        self.live = 0
        self.address = 0x7F00_0000_0000
        self.shapes = shapes
        add, text = self.builder.add, self.builder.string
        for os_id, name in ((MAIN, "python"), (ENGINE, "pt_autograd_0")):
            add("threads", os_id=os_id, torch_id=os_id - MAIN + 1, name_id=text(name))
        self.modules = {}
        for path, kind, parent in (
            ("Net", "Net", 0),
            ("Net.fc1", "Linear", 1),
            ("Net.fc2", "Linear", 1),
        ):
            self.modules[path] = add(
                "modules", path_id=text(path), class_id=text(kind), parent_id=parent
            )
        self.shape_ids = {}
        self.builder.rows["shape_offsets"] += [0, 0]

    # ---- time, memory, operators

    def pass_time(self, ns):
        self.now += ns
        return self.now

    def allocate(self, size, stack, thread=1):
        self.address += 4096
        self._event(self.builder.alloc, self.address, size, stack, thread)
        return self.address, size

    def free(self, block, stack=0, thread=1):
        self._event(self.builder.free, *block, stack, thread)

    def _event(self, add, address, size, stack, thread):
        gain = size if add == self.builder.alloc else -size
        self.live += gain
        self.expected.memory_events += 1
        self.expected.peak = max(self.expected.peak, self.live)
        if gain > 0:
            self.expected.allocated += size
        else:
            self.expected.freed += size
        totals = {}
        if self.device != CPU:
            totals = {"allocated_bytes": self.live, "reserved_bytes": 2 << 20}
        add(
            self.pass_time(300),
            address,
            size,
            self.device,
            thread=thread,
            stack_id=stack,
            **totals,
        )

    def operator(self, name, body, stack=0, thread=1, scope=FUNCTION, sequence=-1, inputs=()):
        """`body` runs inside it; returns the operator's duration."""
        self.expected.calls[name] = self.expected.calls.get(name, 0) + 1
        start = self.pass_time(150)
        number = self.builder.operator(
            name,
            start,
            0,
            scope=scope,
            sequence=sequence,
            thread=thread,
            stack_id=stack,
            forward_thread=1 if thread == 2 and sequence >= 0 else 0,
            shapes_id=self._shapes(inputs),
        )
        body()
        self.builder.rows["operators"][number - 1]["end_ns"] = end = self.pass_time(2000)
        return end - start

    def _shapes(self, inputs):
        if not inputs or not self.shapes:
            return 0
        if inputs not in self.shape_ids:
            for dtype, *sizes in inputs:
                self.builder.rows["shape_values"].append(TENSOR | dtype << 8 | len(sizes) << 16)
                self.builder.rows["shape_values"] += sizes
            self.builder.rows["shape_offsets"].append(len(self.builder.rows["shape_values"]))
            self.shape_ids[inputs] = len(self.builder.rows["shape_offsets"]) - 2
        return self.shape_ids[inputs]

    # ---- a step

    def module_stack(self, path, line):
        """Inside forward() of a module; modules on the way are on the stack too."""
        frames = []
        while path:
            frames += [
                (f"{path}.py", line, "forward"),
                ("torch/nn/modules/module.py", 1779, "_call_impl"),
                ("torch/nn/modules/module.py", 1775, "__call__", MODULE_CALL),
            ]
            path = path.rpartition(".")[0]
        return frames

    def forward(self, path, sequence, kept):
        stack = self.builder.stack(
            *self.module_stack(path, 12), TRAIN, module_id=self.modules[path]
        )

        def multiply():
            kept.append(self.allocate(64 * 1024, stack))

        def linear():
            self.operator(
                "aten::addmm",
                multiply,
                stack,
                sequence=sequence,
                inputs=((FLOAT, 64), (FLOAT, 256, 64), (FLOAT, 64, 64)),
            )

        self.operator("aten::linear", linear, stack, inputs=((FLOAT, 256, 64),))
        name = f"{'Linear' if '.' in path else 'Net'}"
        self.expected.modules[name] = self.expected.modules.get(name, 0) + 1

    def backward(self, sequence, kept):
        def node():
            def multiply():
                self.free(self.allocate(32 * 1024, 0, thread=2), thread=2)
                self.free(kept.pop(), thread=2)

            self.operator(
                "AddmmBackward0",
                lambda: self.operator("aten::mm", multiply, thread=2),
                thread=2,
                scope=BACKWARD,
                sequence=sequence,
            )

        name = "autograd::engine::evaluate_function: AddmmBackward0"
        self.operator(name, node, thread=2, sequence=sequence)

    def step(self, number):
        start, main = self.now, self.builder.stack(TRAIN)
        loader_stack = self.builder.stack(("dataloader.py", 700, "__next__"), TRAIN)
        batch = []

        def load():
            def stack_samples():
                batch.append(self.allocate(16 * 1024, loader_stack))

            self.operator("aten::stack", stack_samples, loader_stack)
            self.pass_time(500_000)

        self.expected.loader_ns.append(
            self.operator(LOADER, load, self.builder.stack(TRAIN), scope=USER)
        )
        kept = []
        self.forward("Net.fc1", 10 * number, kept)
        self.pass_time(40_000)
        self.forward("Net.fc2", 10 * number + 1, kept)
        self.pass_time(40_000)
        self.backward(10 * number + 1, kept)
        self.backward(10 * number, kept)

        def update():
            self.operator("aten::add_", lambda: self.pass_time(30_000), main)

        self.operator(OPTIMIZER, update, main, scope=USER)
        self.free(batch.pop(), main)
        self.pass_time(5000)
        self.builder.step(number, start, self.now, thread=1)
        self.expected.steps.append(number)
        self.expected.step_ns.append(self.now - start)


def training_builder(steps=3, device=CPU, shapes=True, first=2):
    """A Builder that holds the run, and what readers must find."""
    run = _Training(device, shapes)
    for number in range(first, first + steps):
        run.step(number)
    run.builder.times["stop_ns"] = run.pass_time(1000)
    return run.builder, run.expected


def training(steps=3, device=CPU, shapes=True, header=None):
    builder, expected = training_builder(steps, device, shapes)
    return builder.build(header or HEADER), expected


def repeated(tables, period_ns, times):
    """The rows of `tables` again and again, each time `period_ns` later."""
    rows = {name: len(table) for name, table in tables.items()}
    out = dict(tables)
    for name, columns in (
        ("allocations", ("time_ns",)),
        ("operators", ("start_ns", "end_ns")),
        ("steps", ("start_ns", "end_ns")),
    ):
        table = np.tile(tables[name], times)
        turn = np.repeat(np.arange(times), rows[name])
        for column in columns:
            table[column] += turn * period_ns
        for column in ("operator_id", "parent_id", "forward_id"):
            if column in DTYPES[name].names:
                ids = table[column]
                table[column] = np.where(ids > 0, ids + turn * rows["operators"], 0)
        out[name] = table
    out["steps"]["number"] = np.arange(len(out["steps"]))
    return out


def long_recording(operators=300_000):
    """About as many allocator events too."""
    builder, _ = training_builder(steps=3)
    tables, times = builder.tables(), builder.times
    period = times["stop_ns"] - times["window_start_ns"]
    count = -(-operators // len(tables["operators"]))
    tables = repeated(tables, period, count)
    stop = times["window_start_ns"] + count * period
    core = _core.Recording.from_tables(tables, **{**times, "stop_ns": stop}, analyse=True)
    return Recording(core, HEADER)
