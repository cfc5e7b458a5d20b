"""GPU activity without a GPU: CUPTI's part is played by tests/fakes/libcupti.c, and the
official headers, where there are any, judge the layout."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

pytest_plugins = ["fake_cupti"]  # run, fake_library

ROOT = Path(__file__).resolve().parent.parent
LAYOUT = (ROOT / "csrc" / "collect" / "cupti_layout.h").read_text()
IDS = (ROOT / "csrc" / "collect" / "cupti_ids.h").read_text()

# ---- what a session sees


def test_kernels_carry_their_facts_and_their_launch(run):
    facts = run("""
r = Run(); r.session.mark_step(7)
correlation = launch(ns=700)
copy = fake.fake_call(5, 41, U64(300)); fake.fake_copy(1, 2, 3, U64(4096), copy, U64(2000))
fill = fake.fake_call(5, 51, U64(300)); fake.fake_set(U64(512), fill, U64(100))
malloc = fake.fake_call(5, 20, U64(300)); fake.fake_memory(1, U64(0x7000), U64(1 << 21), malloc)
free = fake.fake_call(5, 22, U64(300)); fake.fake_memory(2, U64(0x7000), U64(1 << 21), free)
wait = fake.fake_call(5, 165, U64(900)); fake.fake_sync(4, 0xffffffff, wait, U64(800))
r.stop()
k, = r.of("kernel"); launch_row = r.rows[k["launch_id"] - 1]
tell(reason=r.reason, on=r.counts["on"], kinds=sorted(KINDS[x] for x in r.rows["kind"]),
     name=r.name(k), dur=int(k["end_ns"] - k["start_ns"]), step=int(k["step"]),
     grid=[int(k[f"grid_{a}"]) for a in "xyz"], block=[int(k[f"block_{a}"]) for a in "xyz"],
     registers=int(k["registers"]), shared=int(k["static_shared_bytes"] + k["dynamic_shared_bytes"]),
     stream=int(k["stream"]), device=int(k["device_index"]),
     launch=[r.name(launch_row), int(launch_row["callback_id"]), KINDS[launch_row["kind"]]],
     thread=int(r.recording.table("threads")[launch_row["thread"] - 1]["os_id"]),
     own=__import__("threading").get_native_id(),
     names=[r.name(r.of(kind)[0]) for kind in ("memcpy", "memset", "alloc", "synchronization")],
     bytes=[int(r.of(kind)[0]["bytes"]) for kind in ("memcpy", "memset", "alloc", "free")],
     linked=[r.name(r.rows[r.of(kind)[0]["launch_id"] - 1]) for kind in ("memcpy", "alloc", "free")],
     within=bool((r.rows["start_ns"] >= r.recording.start_ns).all()
                 and (r.rows["end_ns"] <= r.recording.stop_ns + 10**6).all()),
     dirty=fake.fake_dirty())
""")
    assert facts["reason"] == "" and facts["on"]
    assert facts["kinds"] == sorted(
        ["kernel", "memcpy", "memset", "alloc", "free", "synchronization"] + ["runtime"] * 6
    )
    assert facts["name"] == "at::native::copy(int)" or facts["name"].startswith("_ZN")
    assert facts["dur"] == 700 and facts["step"] == 7
    assert facts["grid"] == [132, 2, 1] and facts["block"] == [256, 1, 1]
    assert facts["registers"] == 40 and facts["shared"] == 3072
    assert facts["stream"] == 7 and facts["device"] == 0
    assert facts["launch"] == ["cudaLaunchKernel", 211, "runtime"]
    assert facts["thread"] == facts["own"]
    assert facts["names"] == [
        "Memcpy HtoD (Pinned -> Device)",
        "Memset (Device)",
        "Device",
        "Context Sync",
    ]
    assert facts["bytes"] == [4096, 512, 1 << 21, -(1 << 21)]
    assert facts["linked"] == ["cudaMemcpyAsync", "cudaMalloc", "cudaFree"]
    assert facts["within"] and facts["dirty"] == 0


def test_only_the_listed_calls_are_on_and_again_at_each_start(run):
    facts = run("""
seen = []
for _ in range(2):
    r = Run()
    seen.append([fake.fake_id_is_on(0, 211), fake.fake_id_is_on(0, 17), fake.fake_id_is_on(1, 307),
                 fake.fake_id_is_on(1, 1), fake.fake_kind_is_on(10)])
    fake.fake_call(5, 17, U64(10)); fake.fake_call(5, 211, U64(10))
    r.stop()
    seen[-1] += [len(r.rows), fake.fake_kind_is_on(10), fake.fake_kind_is_on(5)]
tell(seen=seen)
""")
    assert facts["seen"] == [[1, 0, 1, 0, 1, 1, 0, 0]] * 2


@pytest.mark.parametrize("hours", [-5, 0, 5])
def test_times_come_on_the_recordings_clock(run, hours):
    facts = run(f"""
fake.fake_settings(ctypes.c_int64({hours} * 3600 * 10**9), ctypes.c_size_t(0))
r = Run()
before = time.time_ns(); launch(delay=0, ns=5000); after = time.time_ns()
r.stop(); call, = r.of("runtime"); kernel, = r.of("kernel")
tell(early=int(call["start_ns"] - before), late=int(after - call["start_ns"]),
     dur=int(kernel["end_ns"] - kernel["start_ns"]))
""")
    assert facts["early"] > -50_000 and facts["late"] > -50_000 and facts["dur"] == 5000


def test_many_buffers_many_sessions(run):
    facts = run("""
counts = []
for _ in range(20):
    r = Run(); fake.fake_burst(KERNEL, U64(12000)); r.stop()
    k = r.of("kernel")
    counts.append([len(k), int((k["launch_id"] != 0).sum()), r.counts["dropped"],
                   r.counts["buffers_held"]])
tell(counts=counts, dirty=fake.fake_dirty(), buffers=r.counts["buffers"])
""")
    assert facts["counts"] == [[12000, 12000, 0, 0]] * 20
    assert facts["dirty"] == 0 and facts["buffers"] > 1


def test_threads_are_told_apart_and_unseen_ones_added(run):
    facts = run("""
import threading
r = Run(); ids = []
def work():
    ids.append(threading.get_native_id()); launch()
threads = [threading.Thread(target=work) for _ in range(3)]
for t in threads: t.start()
for t in threads: t.join()
r.stop(); os_ids = r.recording.table("threads")["os_id"]
tell(same=sorted(int(os_ids[c["thread"] - 1]) for c in r.of("runtime")) == sorted(ids))
""")
    assert facts["same"]


# ---- losses


def test_the_bound_is_kept_and_losses_counted(run):
    facts = run("""
r = Run(max_bytes=32 << 20); fake.fake_burst(KERNEL, U64(300000)); r.stop()
c = r.counts
tell(rows=len(r.rows), most=(12 << 20) // 120, lost=c["lost"], refused=c["buffers_refused"],
     dropped=c["dropped"], buffers=c["buffers_most"])
""")
    assert 0 < facts["rows"] <= facts["most"]
    assert facts["lost"] > 0 and facts["buffers"] <= 2
    assert facts["rows"] + facts["lost"] + facts["dropped"] == 600_000


def test_a_ring_keeps_the_last_rows(run):
    facts = run("""
r = Run(max_bytes=64 << 20, ring=True)
for _ in range(40):
    fake.fake_burst(KERNEL, U64(10000)); time.sleep(.02)
last = launch(); r.stop()
tell(over=r.counts["overwritten"], rows=len(r.rows), has_last=bool((r.rows["correlation"] == last).any()))
""")
    assert facts["over"] > 0 and facts["has_last"] and facts["rows"] > 100_000


@pytest.mark.parametrize(("version", "discarded"), [("22", True), ("130001", False)])
def test_without_a_free_buffer_old_libraries_get_one_to_discard(run, version, discarded):
    facts = run(
        """
r = Run(max_bytes=32 << 20)
for _ in range(5): fake.fake_burst(KERNEL, U64(60000))
r.stop(); tell(**r.counts)
""",
        FAKE_CUPTI_VERSION=version,
    )
    if facts["buffers_refused"]:
        assert (facts["buffers_discarded"] > 0) is discarded
        assert (facts["dropped"] > 0) is not discarded


def test_odd_records_are_counted_and_the_rest_kept(run):
    facts = run("""
r = Run()
launch(); fake.fake_unknown_kind(); launch(ns=0); launch(); fake.fake_garbage(); launch()
intact = fake.fake_foreign_buffer()
r.stop(); tell(kernels=len(r.of("kernel")), intact=intact, **r.counts)
""")
    assert facts["kernels"] == 3 and facts["intact"] == 1
    assert facts["unknown"] == 1 and facts["without_time"] == 1
    assert facts["broken"] == 1 and facts["buffers_foreign"] == 1


def test_another_client_takes_over(run):
    facts = run("""
r = Run(); launch(); fake.fake_other_client(); launch(); r.stop()
tell(kernels=len(r.of("kernel")), foreign=r.counts["buffers_foreign"])
r = Run(); launch(); r.stop(); tell(kernels=len(r.of("kernel")), held=r.counts["buffers_held"])
""")
    assert facts["kernels"] >= 1


def test_short_buffers(run):
    facts = run("""
fake.fake_settings(ctypes.c_int64(0), ctypes.c_size_t(300))
r = Run()
for _ in range(30): launch(); time.sleep(.006)
r.stop(); tell(kernels=len(r.of("kernel")), calls=len(r.of("runtime")), buffers=r.counts["buffers"])
""")
    assert facts["kernels"] == facts["calls"] == 30 and facts["buffers"] >= 30


# ---- refusals


@pytest.mark.parametrize(
    ("environment", "words"),
    [
        ({"FAKE_CUPTI_REFUSE": "10=39"}, "another profiler holds CUPTI"),
        ({"FAKE_CUPTI_REFUSE": "0=15"}, "stubs folder"),
        ({"FAKE_CUPTI_REFUSE": "10=35"}, "no permission"),
        ({"FAKE_CUPTI_REFUSE": "10=777"}, "fake result 777"),
        ({"FAKE_CUPTI_VERSION": "150000"}, "whose records memprof does not know"),
        ({"FAKE_CUPTI_VERSION": "12"}, "whose records memprof does not know"),
    ],
)
def test_a_refusal_has_its_reason_and_the_rest_goes_on(run, environment, words):
    facts = run(
        """
r = Run(); r.session.mark_step(1); r.session.mark_step(2); r.stop()
tell(reason=r.reason, rows=len(r.rows), steps=len(r.recording.table("steps")), on=r.counts["on"],
     kernels=fake.fake_kind_is_on(10), calls=fake.fake_kind_is_on(5))
""",
        **environment,
    )
    assert words in facts["reason"]
    assert facts["rows"] == 0 and not facts["on"] and facts["steps"] == 2
    assert facts["kernels"] == 0 and facts["calls"] == 0


def test_a_kind_that_is_missing_is_named(run):
    facts = run(
        "r = Run(); launch(); r.stop(); tell(kernels=len(r.of('kernel')), **r.counts)",
        FAKE_CUPTI_REFUSE="49=21,50=21",
    )
    assert facts["kernels"] == 1 and facts["refused"] == "driver memory, memory pools"


def test_no_library_is_no_failure(run):
    facts = run("""
s = _core.Session(activities=True); s.start()
reasons = [s.start_activities(["/nowhere/libcupti.so.13"], only=True), s.start_activities([], only=True)]
s.stop(); tell(reasons=reasons)
""")
    assert "/nowhere/libcupti.so.13" in facts["reasons"][0]
    assert "none was found" in facts["reasons"][1]


def test_a_stub_is_not_taken(run, fake_library, tmp_path):
    stub = tmp_path / "stubs" / "libcupti.so.13"
    stub.parent.mkdir()
    shutil.copy(fake_library, stub)
    facts = run(
        "s = _core.Session(activities=True); s.start()\n"
        f"tell(reason=s.start_activities([{str(stub)!r}], only=True)); s.stop()"
    )
    assert "is a stub" in facts["reason"]


def test_too_little_memory(run):
    facts = run("r = Run(max_bytes=8 << 20); r.stop(); tell(reason=r.reason)")
    assert "at least 32 MiB" in facts["reason"]


def test_a_forked_child_leaves_cupti_alone(run):
    facts = run("""
r = Run(); launch(); read, write = os.pipe(); pid = os.fork()
if pid == 0:
    _core.leave_parents_session(); r.session.after_fork()
    child = _core.Session(activities=True); child.start()
    reason = child.start_activities([LIBRARY], only=True)
    rows = len(child.stop().table("activities"))
    os.write(write, json.dumps([reason, rows]).encode()); os._exit(0)
os.close(write); os.waitpid(pid, 0); child = json.loads(os.read(read, 1000))
launch(); r.stop()
tell(child=child, kernels=len(r.of("kernel")))
""")
    assert "forked" in facts["child"][0] and facts["child"][1] == 0
    assert facts["kernels"] == 2


# ---- operators and files


def test_work_belongs_to_the_innermost_operator_and_its_line(run, tmp_path):
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text("""
import torch
from torch.autograd.profiler import record_function

class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2
    @staticmethod
    def backward(ctx, g):
        launch(); return g * 2

def train():
    x = torch.ones(3, requires_grad=True)
    with record_function("outer"):
        with record_function("inner"):
            launch()
        launch()
    y = Scale.apply(x)  # line 19
    y.sum().backward()
    launch()
""")
    facts = run(f"""
import torch
from memprof import _collection
_collection._may_have_gpu = lambda: True
Collection = _collection.Collection
namespace = {{"launch": launch}}
exec(compile(open({str(script)!r}).read(), {str(script)!r}, "exec"), namespace)
c = Collection(gpu=True); c.start()
reason = c._session.start_activities([LIBRARY], only=True)
namespace["train"](); recording = c.stop()
rows, ops = recording.activities, recording.operators
kernels = rows[rows["kind"] == KINDS.index("kernel")]
out = []
for k in kernels:
    op = recording.strings[int(ops[k["operator_id"] - 1]["name_id"])] if k["operator_id"] else None
    frame = recording.user_frame(int(k["stack_id"])) if k["stack_id"] else None
    out.append([op, frame.line if frame else None])
recording.export_chrome_trace({str(tmp_path / "t.json")!r})
recording.save({str(tmp_path / "r.memprof")!r})
import memprof
again = memprof.load({str(tmp_path / "r.memprof")!r})
tell(reason=reason, out=out, same=bool((again.activities == rows).all()), n=len(rows),
     gpu=recording.coverage["sources"]["gpu activity"], losses=recording.coverage["losses"])
""")
    assert facts["reason"] == "" and facts["same"] and facts["n"] == 8
    assert [op for op, _ in facts["out"]] == ["inner", "outer", "ScaleBackward", None]
    assert facts["out"][0][1] in (15, 16) and facts["out"][1][1] == 15
    assert facts["out"][2][1] == 19  # the forward line of backward work
    assert facts["losses"]["activities_at_limit"] == 0


TRACE = """
from memprof.recording import Recording
r = Run(); r.session.mark_step(0)
first = launch(ns=40000); copy = fake.fake_call(5, 41, U64(300))
fake.fake_copy(1, 1, 3, U64(1 << 20), copy, U64(20000))
wait = fake.fake_call(5, 165, U64(900)); fake.fake_sync(3, 7, wait, U64(800))
driver = fake.fake_call(4, 307, U64(200)); fake.fake_kernel(KERNEL, driver, U64(90000), U64(30000))
time.sleep(.01); r.session.mark_step(1); r.stop()
header = {"environment": {"pid": os.getpid(), "devices": [{"id": 0, "name": "fake", "totalGlobalMem": 1 << 34,
    "computeMajor": 9, "computeMinor": 0, "numSms": 132, "maxThreadsPerMultiprocessor": 2048,
    "regsPerMultiprocessor": 65536, "sharedMemPerMultiprocessor": 233472}]}}
recording = Recording(r.recording, header)
"""


def test_trace_has_rows_by_device_and_stream_and_arrows(run, tmp_path):
    path = tmp_path / "trace.json"
    facts = run(
        TRACE
        + f"""
recording.export_chrome_trace({str(path)!r})
events = json.load(open({str(path)!r}))["traceEvents"]
tell(events=[e for e in events if e["ph"] != "M"], meta=[e for e in events if e["ph"] == "M"],
     first=first, driver=driver, pid=os.getpid())
"""
    )
    events = facts["events"]
    by = {}
    for event in events:
        by.setdefault(event.get("cat"), []).append(event)
    kernel = next(e for e in by["kernel"] if e["args"]["correlation"] == facts["first"])
    assert kernel["pid"] == 0 and kernel["tid"] == 7 and kernel["dur"] == 40.0
    args = kernel["args"]
    assert args["grid"] == [132, 2, 1] and args["block"] == [256, 1, 1]
    assert args["blocks per SM"] == 2.0 and args["warps per SM"] == 16.0
    assert args["est. achieved occupancy %"] == 25
    assert [e["name"] for e in by["cuda_driver"]] == ["cuLaunchKernel"]
    assert by["gpu_memcpy"][0]["args"]["bytes"] == 1 << 20
    assert by["cuda_sync"][0]["tid"] == 1000007
    starts = {e["id"]: e for e in by["ac2g"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in by["ac2g"] if e["ph"] == "f"}
    assert set(starts) == set(ends) and len(starts) == 3
    assert ends[facts["first"]]["ts"] == kernel["ts"] and ends[facts["first"]]["bp"] == "e"
    call = next(e for e in by["cuda_runtime"] if e["args"]["correlation"] == facts["first"])
    assert starts[facts["first"]]["ts"] == call["ts"] and call["pid"] == facts["pid"]
    labels = {e["pid"]: e["args"]["labels"] for e in facts["meta"] if "labels" in e["args"]}
    assert labels[0] == "GPU 0"
    names = [e["args"]["name"] for e in facts["meta"] if e["name"] == "thread_name"]
    assert "stream 7 " in names and "stream 7 (sync)" in names


def test_the_tensorboard_plugin_reads_kernels(run, tmp_path):
    pytest.importorskip("torch_tb_profiler")
    facts = run(
        TRACE
        + f"""
recording.export_tensorboard({str(tmp_path)!r}, "worker")
from torch_tb_profiler.profiler.data import RunProfileData
import glob
path, = glob.glob({str(tmp_path)!r} + "/*.pt.trace.json")
data = RunProfileData.parse("worker", "1", path, {str(tmp_path)!r})
data.process()
tell(kernels=[[e.name, e.duration] for e in data.events if e.type == "Kernel"],
     runtime=sum(e.type == "Runtime" for e in data.events), gpus=sorted(data.gpu_metrics_parser.gpu_ids))
"""
    )
    assert len(facts["kernels"]) == 2 and facts["runtime"] == 4 and facts["gpus"] == [0]


def test_a_dump_replays_to_the_same_rows(run, tmp_path):
    facts = run(f"""
import struct
path = {str(tmp_path / "raw")!r}
r = Run(dump=path); launch(); launch(ns=0); fake.fake_unknown_kind(); fake.fake_burst(KERNEL, U64(20000)); r.stop()
data = open(path, "rb").read(); assert data[:8] == b"MPCUPTI1"
at, version, buffers, names = 8, None, [], {{}}
while at < len(data):
    kind, _, key, size = struct.unpack_from("<IIQQ", data, at); at += 24
    block = data[at:at + size]; at += size
    if kind == 1: version = key
    elif kind == 2: buffers.append(block)
    else: names[key] = block.decode()
again = _core.cupti_decode(buffers, version, names, library=True)
tell(rows=len(again["rows"]), live=len(r.rows), names=again["names"], kernels=names and list(names.values()),
     same=sorted(again["rows"]["correlation"].tolist()) == sorted(r.rows["correlation"].tolist()),
     unknown=again["unknown"], without_time=again["without_time"])
""")
    assert facts["rows"] == facts["live"] and facts["same"]
    assert facts["kernels"] == ["_ZN2at6native4copyEi"]
    assert facts["unknown"] == 1 and facts["without_time"] == 1


# ---- the official headers

RECORDS = {
    "API": ["CUpti_ActivityAPI"],
    "KERNEL": [f"CUpti_ActivityKernel{n}" for n in (10, 9, 8, 7)],
    "MEMCPY": [f"CUpti_ActivityMemcpy{n}" for n in (6, 5)],
    "MEMCPY_PEER": ["CUpti_ActivityMemcpyPtoP4"],
    "MEMSET": ["CUpti_ActivityMemset4"],
    "MEMORY": [f"CUpti_ActivityMemory{n}" for n in (4, 3)],
    "POOL": [f"CUpti_ActivityMemoryPool{n}" for n in (3, 2)],
    "SYNC": ["CUpti_ActivitySynchronization2", "CUpti_ActivitySynchronization"],
    "OVERHEAD": [f"CUpti_ActivityOverhead{n}" for n in ("3", "2", "")],
}


def include_folder():
    folders = [
        os.path.join(os.environ.get(name, ""), "include")
        for name in ("CUDA_HOME", "CUDA_PATH")
        if os.environ.get(name)
    ]
    for folder in [*folders, "/usr/local/cuda/include"]:
        if os.path.isfile(os.path.join(folder, "cupti_activity.h")):
            return folder
    pytest.skip("no cupti_activity.h in CUDA_HOME or /usr/local/cuda")


def printed(source, tmp_path):
    program, binary = tmp_path / "facts.c", tmp_path / "facts"
    program.write_text(source)
    compiler = os.environ.get("CC") or shutil.which("cc") or "cc"
    command = [compiler, "-I", include_folder(), str(program), "-o", str(binary)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)
    assert built.returncode == 0, built.stderr
    lines = subprocess.run([binary], capture_output=True, text=True, check=True).stdout
    return dict(line.rsplit(" ", 1) for line in lines.splitlines())


def test_offsets_are_those_of_the_official_headers(tmp_path):
    header = Path(include_folder())
    known = "".join(path.read_text() for path in header.glob("cupti_activity*.h"))
    fields = re.findall(r"F\((\w+), (\w+), (\d+), (u?int\d+)_t, (\w+)\)", LAYOUT)
    assert len(fields) > 80
    lines, wanted = [], {}
    sizes = {"uint8": 1, "uint16": 2, "uint32": 4, "uint64": 8}
    for record, field, offset, kind, member in fields:
        struct = next(s for s in RECORDS[record] if re.search(rf"\b{s};", known))
        key = f"{record}.{field}"
        expression = f"offsetof({struct}, {member}), sizeof((({struct} *)0)->{member})"
        lines.append(f'printf("{key} %zu:%zu\\n", {expression});')
        wanted[key] = f"{offset}:{sizes[kind]}"
    source = "#include <stddef.h>\n#include <stdio.h>\n#include <cupti.h>\n"
    found = printed(source + "int main(void) {" + "\n".join(lines) + "}", tmp_path)
    assert found == wanted


def test_numbers_are_those_of_the_official_headers(tmp_path):
    lines, wanted = [], {}

    def expect(key, expression, value):
        lines.append(f'printf("{key} %lld\\n", (long long)({expression}));')
        wanted[key] = value

    def of(macro):
        body = re.search(rf"#define {macro}\(\w\)(.*?)\n\n", IDS, re.DOTALL)
        assert body is not None
        return re.findall(r"\w\((\w+),\s*(\d+)", body[1])

    header = Path(include_folder())
    runtime = (header / "cupti_runtime_cbid.h").read_text()
    for name, value in of("MP_CUPTI_RUNTIME_IDS"):
        constant = re.search(rf"(CUPTI_RUNTIME_TRACE_CBID_{name}_v\d+)\s", runtime)
        if constant is not None:
            expect(name, constant[1], value)
    for name, value in of("MP_CUPTI_DRIVER_IDS"):
        expect(name, f"CUPTI_DRIVER_TRACE_CBID_{name}", value)
    for name, value in of("MP_CUPTI_KINDS"):
        expect(f"kind {name}", f"CUPTI_ACTIVITY_KIND_{name}", value)
    for name, value in of("MP_CUPTI_RESULTS"):
        prefix = "CUPTI_SUCCESS" if name == "SUCCESS" else f"CUPTI_ERROR_{name}"
        expect(f"result {name}", prefix, value)
    source = "#include <stdio.h>\n#include <cupti.h>\n"
    found = printed(source + "int main(void) {" + "\n".join(lines) + "}", tmp_path)
    assert found == wanted and len(found) > 60
