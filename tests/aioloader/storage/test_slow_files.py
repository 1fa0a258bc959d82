"""Tests of local files on a slow file system: reads run in parallel, and close stretches are one read.

`slow_files.c` slows the files down, in a separate process.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from aioloader.storage.local.mapped import LEAST_GAP_BYTES, ReadLatency

# --- the measure ---


def test_reads_that_wait_are_slow_and_those_from_memory_are_not() -> None:
    latency = ReadLatency()
    assert not latency.slow
    latency.add(0.0001 * 64, 64, 64 * 100_000)
    assert not latency.slow
    for _ in range(4):
        latency.add(0.005 * 64, 64, 64 * 100_000)
    assert latency.slow
    for _ in range(40):
        latency.add(0.00001 * 64, 64, 64 * 100_000)
    assert not latency.slow
    assert latency.ever


def test_copying_large_reads_does_not_count_as_waiting() -> None:
    latency = ReadLatency()
    latency.add(0.02, 4, 4 * 10_000_000)
    assert not latency.slow
    latency.add(0.0, 0, 0)
    assert not latency.slow


@pytest.mark.parametrize(
    ("first_s", "rest_s", "mean", "least", "most"),
    [
        (1e-5, 1e-5, 100_000, LEAST_GAP_BYTES, LEAST_GAP_BYTES),  # from memory: nothing is known
        (0.01, 0.002, 100_000, 100_000, 100_000),  # 1.25 MB in the time of a wait: as long as an item
        (0.01, 0.002, 1_000, 64 << 10, 64 << 10),  # small items: still some of it
        (0.0005, 0.005, 100_000, 20_000, 30_000),  # 25 kB in the time of a wait
        (0.01, 0.001, 10_000_000, 1 << 20, 1 << 20),
    ],
)
def test_a_gap_is_read_that_takes_no_longer_than_a_wait(
    first_s: float, rest_s: float, mean: float, least: int, most: int
) -> None:
    latency = ReadLatency()
    for _ in range(20):
        latency.add_probe(first_s, rest_s, 250_000)
    assert least <= latency.gap_bytes(mean) <= most


# --- slow files ---


class Report(NamedTuple):
    """Counts of `slow_files.c`."""

    requests: int
    in_flight: int
    said: list[str]


@pytest.fixture(scope="session")
def shim(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compile `slow_files.c` as a library."""
    compiler = shutil.which("cc")
    if sys.platform != "linux" or compiler is None:
        pytest.skip("needs Linux and a C compiler")
    library = tmp_path_factory.mktemp("shim") / "slow_files.so"
    source = Path(__file__).with_name("slow_files.c")
    built = subprocess.run(
        [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl", "-lpthread"],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr
    return library


_PRELUDE = """
import sys
from pathlib import Path
import anyio, numpy as np
from aioloader.foundation.types import SpanKind, Spans
from aioloader.storage import LocalByteSource

async def fetch(source, file, offset, length):
    plan = await source.plan(Spans(file, offset, length))
    out = memoryview(bytearray(plan.nbytes))
    assert not plan.failures and not await source.read(plan, out)
    return plan, [bytes(out[s : s + n]) for s, n in zip(plan.start.tolist(), plan.length.tolist())]
"""


def _run(shim: Path, where: Path, code: str, *, ms: int, deaf: bool = False) -> Report:
    report_file = where.parent / "report"
    environment = {**os.environ, "LD_PRELOAD": str(shim), "SLOW_FILES": str(where), "SLOW_MS": str(ms)}
    environment |= {"SLOW_REPORT": str(report_file)} | ({"SLOW_DEAF": "1"} if deaf else {})
    done = subprocess.run(
        [sys.executable, "-c", _PRELUDE + code, str(where)],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    requests, in_flight = map(int, report_file.read_text().split())
    return Report(requests, in_flight, done.stdout.split())


@pytest.fixture
def record_file(tmp_path: Path) -> Path:
    path = tmp_path / "far" / "a.rec"
    path.parent.mkdir()
    path.write_bytes(np.random.RandomState(0).bytes(400 * 40_000))
    return path


@pytest.mark.slow
@pytest.mark.parametrize("deaf", [False, True], ids=["announced", "threads"])
def test_reads_of_records_are_in_flight_together(shim: Path, record_file: Path, deaf: bool) -> None:
    code = """
path = sys.argv[1]
whole = []
async def main():
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    places = np.random.RandomState(1).permutation(100)[:96].reshape(3, 32) * 160_000
    for offset in places:
        plan, items = await fetch(source, np.zeros(32, np.int64), offset, np.full(32, 40_000))
        whole.append((offset, items))
    source.close()
anyio.run(main)
content = np.random.RandomState(0).bytes(400 * 40_000)
for offset, items in whole:
    assert items == [content[at : at + 40_000] for at in offset.tolist()]
"""
    report = _run(shim, record_file, code, ms=10, deaf=deaf)
    assert report.in_flight >= (24 if not deaf else 8)


@pytest.mark.slow
def test_reads_of_image_files_are_in_flight_together(shim: Path, tmp_path: Path) -> None:
    where = tmp_path / "far"
    where.mkdir()
    for number in range(128):
        (where / f"{number:03}.jpg").write_bytes(bytes([number]) * (1000 + number))
    code = """
paths = sorted(map(str, Path(sys.argv[1]).iterdir()))
async def main():
    source = LocalByteSource(paths, kind=SpanKind.FILE)
    for low in range(0, 128, 32):
        file = np.arange(low, low + 32)
        _, items = await fetch(source, file, np.zeros(32, np.int64), np.full(32, -1))
        assert items == [bytes([number]) * (1000 + number) for number in file.tolist()]
    source.close()
anyio.run(main)
"""
    report = _run(shim, where, code, ms=10)
    assert report.in_flight >= 12
    assert report.requests == 2 * 128  # each is opened once, and read by one request


@pytest.mark.slow
def test_close_stretches_become_one_read(shim: Path, record_file: Path) -> None:
    code = """
path = sys.argv[1]
async def main():
    source = LocalByteSource([path], kind=SpanKind.RECORD)
    for low in range(0, 400, 100):
        offset = np.arange(low, low + 100, 2) * 40_000
        plan, items = await fetch(source, np.zeros(50, np.int64), offset, np.full(50, 40_000))
        print(len(plan.reads))
    source.close()
anyio.run(main)
"""
    report = _run(shim, record_file, code, ms=10)
    reads = list(map(int, report.said))
    assert reads[0] == 50
    assert reads[-1] == 1
