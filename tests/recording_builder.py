"""Recordings from a few lines: tables are written row by row, analysed by the C core."""

import numpy as np

from memprof import _core
from memprof.recording import Recording

CPU, CUDA = (0, -1), (1, 0)
ALLOC, FREE, OOM = 1, 2, 3
FUNCTION, BACKWARD = 0, 1
USER_SPAN, OPTIMIZER_SPAN = 1, 2
MODULE_CALL, DATA, BACKWARD_CALL, OPTIMIZER_STEP = 1, 2, 4, 8
STACK_DATA, STACK_BACKWARD = 2, 4

_EMPTY = _core.Recording.from_tables({}, start_ns=0, window_start_ns=0, stop_ns=0)
DTYPES = {name: _EMPTY.table(name).dtype for name in _EMPTY.table_names}


class Builder:
    def __init__(self, start_ns=0, window_start_ns=0, stop_ns=10**9):
        self.times = {
            "start_ns": start_ns,
            "window_start_ns": window_start_ns,
            "stop_ns": stop_ns,
        }
        self.rows = {name: [] for name in DTYPES}
        self.texts = [""]
        self.stack()

    def add(self, table, **values):
        """Appends a row; returns its 1-based id."""
        self.rows[table].append(values)
        return len(self.rows[table])

    def string(self, text):
        if text not in self.texts:
            self.texts.append(text)
        return self.texts.index(text)

    def thread(self, torch_id=0, name="main"):
        return self.add(
            "threads", torch_id=torch_id, name_id=self.string(name), os_id=100 + torch_id
        )

    def module(self, path, parent_id=0):
        return self.add(
            "modules",
            path_id=self.string(path),
            class_id=self.string("Linear"),
            parent_id=parent_id,
        )

    def stack(self, *frames, module_id=0):
        """Frames are (file, line, function[, flags]), innermost first. Returns the id."""
        offset = len(self.rows["stack_frames"])
        flags = 0
        for file, line, function, *role in frames:
            roles = role[0] if role else 0
            flags |= roles & (DATA | BACKWARD_CALL)
            frame = self.add(
                "frames",
                file_id=self.string(file),
                function_id=self.string(function),
                line=line,
                flags=roles,
            )
            self.rows["stack_frames"].append(frame - 1)
        row = self.add(
            "stacks", offset=offset, depth=len(frames), module_id=module_id, flags=flags
        )
        return row - 1

    def event(self, kind, time, address, size, device=CPU, **values):
        values.setdefault("allocated_bytes", -1)
        values.setdefault("sequence", -1)
        return self.add(
            "allocations",
            kind=kind,
            time_ns=time,
            address=address,
            bytes=size,
            device_type=device[0],
            device_index=device[1],
            reserved_bytes=values.pop("reserved_bytes", -1),
            **values,
        )

    def alloc(self, time, address, size, device=CPU, **values):
        return self.event(ALLOC, time, address, size, device, **values)

    def free(self, time, address, size=0, device=CPU, **values):
        return self.event(FREE, time, address, -size, device, **values)

    def operator(self, name, start, end, scope=FUNCTION, sequence=-1, **values):
        return self.add(
            "operators",
            name_id=self.string(name),
            start_ns=start,
            end_ns=end,
            scope=scope,
            sequence=sequence,
            **values,
        )

    def step(self, number, start, end, thread=0):
        return self.add("steps", number=number, start_ns=start, end_ns=end, thread=thread)

    def tables(self):
        encoded = [text.encode() for text in self.texts]
        tables = {
            "string_offsets": np.cumsum([0, *map(len, encoded)], dtype="u8"),
            "string_bytes": np.frombuffer(b"".join(encoded), "u1"),
        }
        for name, rows in self.rows.items():
            if not rows or name in tables:
                continue
            table = tables[name] = np.zeros(len(rows), DTYPES[name])
            for place, row in enumerate(rows):
                if isinstance(row, dict):
                    for field, value in row.items():
                        table[field][place] = value
                else:
                    table[place] = row
        return tables

    def build(self, header=None):
        core = _core.Recording.from_tables(self.tables(), **self.times, analyse=True)
        return Recording(core, header)
