"""Reads a Chrome trace as strictly as the strictest reader and checks what all of them need."""

import io
import itertools
import json
from collections import defaultdict

MARKS = ("Iteration Start: PyTorch Profiler", "Record Window End")


def written(recording, **options) -> bytes:
    file = io.BytesIO()
    recording.export_chrome_trace(file, **options)
    return file.getvalue()


def parsed(text: bytes):
    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text.decode("utf-8", "strict"), parse_constant=refuse)


def trace_of(recording, **options):
    """The document, after all rules were checked."""
    text = written(recording, **options)
    document = parsed(text)
    check_frame(text.decode(), document)
    check_events(document["traceEvents"])
    return document


def bars(document, cat=None):
    return [
        event
        for event in document["traceEvents"]
        if event["ph"] == "X" and (event["cat"] == cat if cat else event["cat"] != "Trace")
    ]


def memory_events(document):
    return [event for event in document["traceEvents"] if event["name"] == "[memory]"]


def check_frame(text, document):
    assert text.startswith('{"schemaVersion": 1,')
    assert text.count('"traceEvents": [') == 1
    assert set(parsed((text[: text.index('"traceEvents"')] + '"x": 0}').encode())) >= {
        "schemaVersion",
        "baseTimeNanoseconds",
        "displayTimeUnit",
        "deviceProperties",
    }
    assert list(parsed(("{" + text[text.rindex("]") + 2 :]).encode())) == ["traceName"]
    assert isinstance(document["deviceProperties"], list)


def check_events(events):
    for event in events:
        assert isinstance(event["name"], str)
        if event["ph"] == "X":
            check_bar(event)
        elif event["name"] == "[memory]":
            check_memory(event)
    ours = [e for e in events if e["ph"] == "X" and e["cat"] != "Trace"]
    check_tracks(ours)
    check_ids(ours)
    check_flows(events)
    check_end(events)
    assert any(
        e["dur"] > 0 and (e["cat"] == "cpu_op" or e["name"].startswith("ProfilerStep#"))
        for e in ours
    )


def check_bar(event):
    assert {"cat", "name", "pid", "tid", "ts", "dur", "args"} <= set(event)
    assert event["ts"] >= 0 and event["dur"] >= 0
    assert isinstance(event["args"], dict)
    if event["cat"] != "Trace":
        assert type(event["pid"]) is int and type(event["tid"]) is int
    if event["name"].startswith("ProfilerStep"):
        assert event["cat"] == "user_annotation"
        assert event["name"].removeprefix("ProfilerStep#").isdecimal()


def check_memory(event):
    assert (event["ph"], event["s"], event["cat"]) == ("i", "t", "cpu_instant_event")
    args = event["args"]
    for key in ("Device Type", "Device Id", "Addr", "Bytes", "Total Allocated"):
        assert type(args[key]) is int
    assert type(args["Total Reserved"]) is int and type(event["tid"]) is int
    assert args["Bytes"] != 0
    assert (args["Device Type"] == 0) == (args["Device Id"] == -1)


def ns(microseconds):
    return round(microseconds * 1000)


def check_tracks(events):
    """Strictly nested in file order, both exactly and in floating-point numbers."""
    tracks = defaultdict(list)
    for event in events:
        tracks[event["pid"], event["tid"]].append(event)
    for track in tracks.values():
        check_nesting([(ns(e["ts"]), ns(e["ts"]) + ns(e["dur"])) for e in track])
        check_nesting([(e["ts"], e["ts"] + e["dur"]) for e in track])


def check_nesting(spans):
    around = []
    for before, now in itertools.pairwise(spans):
        assert before[0] <= now[0], "not in order of start"
    for start, end in spans:
        while around and around[-1][1] <= start:
            around.pop()
        if around:
            assert end <= around[-1][1], f"{(start, end)} reaches out of {around[-1]}"
        around.append((start, end))
        assert len(around) <= 512


def check_ids(events):
    ids = [e["args"]["External id"] for e in events if "External id" in e["args"]]
    assert len(ids) == len(set(ids))
    functions = {}
    for event in events:
        if event["cat"] != "python_function":
            continue
        args = event["args"]
        parent = args["Python parent id"]
        if parent is not None:
            outer = functions[parent]  # stands before its children
            assert outer["ts"] <= event["ts"]
            assert outer["tid"] == event["tid"]
        assert args["Python id"] not in functions
        functions[args["Python id"]] = event


def check_flows(events):
    starts, ends = {}, {}
    for before, event in itertools.pairwise(events):
        if event["ph"] not in "sf":
            continue
        assert event["cat"] == event["name"] == "fwdbwd"
        assert before["ph"] == "X" and before["dur"] > 0
        assert all(before[key] == event[key] for key in ("ts", "tid", "pid"))
        side = starts if event["ph"] == "s" else ends
        assert event["id"] not in side
        assert event["ph"] == "s" or event["bp"] == "e"
        side[event["id"]] = before
    assert set(starts) == set(ends)


def check_end(events):
    assert tuple(event["name"] for event in events[-2:]) == MARKS
    assert events[-4]["name"] == "PyTorch Profiler (0)" and events[-4]["cat"] == "Trace"
    assert sum(event["name"] in MARKS for event in events) >= len(MARKS)
