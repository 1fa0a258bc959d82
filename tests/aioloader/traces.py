"""Checks of traces: complete JSON, correctly nested slices, flows between them."""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path

CLOSE_US = 0.0021  # rounded to nanoseconds


def read_trace(path):
    events = json.loads(Path(path).read_text())
    for event in events:
        assert event["ph"] in "XMbeiCsf", event
        assert isinstance(event["name"], str)
        assert isinstance(event["pid"], int)
        assert isinstance(event["tid"], int)
        if event["ph"] != "M":
            assert event["ts"] >= 0
        if event["ph"] == "X":
            assert event["dur"] >= 0
        if event["ph"] in "be":
            assert event["id2"]["local"]
            assert event["cat"]
    return events


def check_nesting(events):
    """Check that slices of a lane follow one another, or are nested."""
    lanes = defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            lanes[event["pid"], event["tid"]].append((event["ts"], -event["dur"], event["name"]))
    for lane, slices in lanes.items():
        open_ends = []
        for begin, took, name in sorted(slices):
            end = begin - took
            while open_ends and open_ends[-1] <= begin + CLOSE_US:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1] + CLOSE_US, (lane, name, begin, end, open_ends)
            open_ends.append(end)


def beside(events, category):
    """Return async slices of a category, which all have an end: (name, begin, end, args)."""
    numbers = [event["id2"]["local"] for event in events if event["ph"] == "b"]
    assert len(numbers) == len(set(numbers))
    chosen = [event for event in events if event.get("cat") == category]
    begun = {event["id2"]["local"]: event for event in chosen if event["ph"] == "b"}
    ended = {event["id2"]["local"]: event["ts"] for event in chosen if event["ph"] == "e"}
    assert begun.keys() == ended.keys()
    assert all(event["ts"] <= ended[each] + CLOSE_US for each, event in begun.items())
    return [(event["name"], event["ts"], ended[each], event["args"]) for each, event in begun.items()]


def check_flows(events):
    """Check that a flow leads from a slice of a batch into every chunk, and that there is no other flow."""
    slices = [event for event in events if event["ph"] == "X"]
    places = defaultdict(list)
    for event in events:
        if event["ph"] in "sf":
            places[event["id"]].append(event)
    for begin, end in places.values():
        assert (begin["ph"], end["ph"], end["bp"]) == ("s", "f", "e")
        for flow, cat in ((begin, "stage"), (end, "worker")):
            assert any(
                each["cat"] == cat
                and (each["pid"], each["tid"]) == (flow["pid"], flow["tid"])
                and each["ts"] - CLOSE_US <= flow["ts"] <= each["ts"] + each["dur"] + CLOSE_US
                for each in slices
            ), flow
    return len(places)


def names_of(events):
    return {event["name"] for event in events if event["ph"] == "X"}


def lanes_of(events):
    return {
        (event["pid"], event["tid"]): event["args"]["name"]
        for event in events
        if event["ph"] == "M" and event["name"] == "thread_name"
    }
