"""Tests of cache writers killed at any moment, several at a time: they lose at most the current write."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from aioloader.storage.cache import SpanCache
from aioloader.storage.cache.base import PlacedSpans

ROOT = Path(__file__).parents[4]
SPAN, COUNT = 20_000, 400
LIMIT = 5_000_000
# Every byte of a span depends on its number, so that a span of another place, or a torn one, is detected.
WRITER = f"""
import random, sys
import numpy as np
from aioloader.storage.cache import SpanCache
from aioloader.storage.cache.base import PlacedSpans
directory, seed = sys.argv[1], int(sys.argv[2])
cache = SpanCache(directory, int(sys.argv[3]))
draw = random.Random(seed)
print("ready", flush=True)
first = True
while True:
    items = np.array(draw.sample(range({COUNT}), 8))
    data = b"".join(int(item).to_bytes(4, "little") * ({SPAN} // 4) for item in items)
    place = np.arange(8) * {SPAN}
    out = bytearray(8 * {SPAN})
    length = np.full(8, {SPAN})
    here = cache.read("object", "1", PlacedSpans(items * {SPAN}, length, place), memoryview(out))
    for item, begin in zip(items[here].tolist(), place[here].tolist()):
        assert bytes(out[begin : begin + {SPAN}]) == int(item).to_bytes(4, "little") * ({SPAN} // 4), item
    cache.write("object", "1", PlacedSpans(items * {SPAN}, length, place), memoryview(data))
    if first:
        print("written", flush=True)
        first = False
"""


def _start(directory: Path, seed: int, limit: int = LIMIT) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(seed), str(limit)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )


def _wait(process: subprocess.Popen[str], word: str = "ready") -> None:
    assert process.stdout is not None
    assert process.stdout.readline() == f"{word}\n"


def _end(process: subprocess.Popen[str], number: int) -> str:
    with process:
        process.send_signal(number)
        return process.communicate()[1]


def _nbytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def _sound(directory: Path) -> int:
    """Return the number of spans; fail if one differs from the written bytes."""
    cache = SpanCache(directory, LIMIT)
    items = np.arange(COUNT)
    out = bytearray(COUNT * SPAN)
    here = cache.read(
        "object", "1", PlacedSpans(items * SPAN, np.full(COUNT, SPAN), items * SPAN), memoryview(out)
    )
    for item in items[here].tolist():
        assert bytes(out[item * SPAN : item * SPAN + SPAN]) == int(item).to_bytes(4, "little") * (SPAN // 4)
    assert cache.counts().damaged == 0  # a journal names only bytes that are already in the data
    assert cache.taken_nbytes == _nbytes(directory)
    cache.close()
    return int(here.sum())


@pytest.mark.slow
def test_killed_writers_leave_valid_spans_within_the_limit(tmp_path: Path) -> None:
    draw = random.Random(1)
    before = 0
    for round_ in range(6):
        writers = [_start(tmp_path, round_ * 10 + number) for number in range(3)]
        for writer in writers:
            _wait(writer)
        for writer in writers[round_ % 2 :]:  # the others may be killed before their first write
            _wait(writer, "written")
        time.sleep(draw.random() * 0.1)
        for writer in writers:
            errors = _end(writer, signal.SIGKILL)
            assert "Error" not in errors
        assert _nbytes(tmp_path) <= LIMIT
        sound = _sound(tmp_path)
        assert sound >= before
        before = sound
    assert before > 80  # of 120 that were written at least, some of them twice


def test_a_killed_writer_locks_no_other_process_out(tmp_path: Path) -> None:
    writer = _start(tmp_path, 0, 1 << 30)
    _wait(writer)
    while not (files := list(tmp_path.rglob("*.lines"))) or files[0].stat().st_size == 0:
        assert writer.poll() is None
    assert _end(writer, signal.SIGKILL) == ""
    found = _sound(tmp_path)
    assert found > 0
    cache = SpanCache(tmp_path, 1 << 30)
    more = np.array([COUNT])
    cache.write("object", "1", PlacedSpans(more * SPAN, np.array([SPAN]), more * 0), memoryview(bytes(SPAN)))
    assert cache.counts().written == 1
    assert len(list(tmp_path.rglob("*.data"))) == 1  # the segment of the dead writer is continued
    cache.close()
