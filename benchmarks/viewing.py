"""Time of `aioloader view` to show a first page and any other page, of a thousand records and of a million.

    python -m benchmarks.viewing --rounds 7

Each round starts the program again for every case, one after the other, so that a busy machine slows all of them alike.
"first" has no copy of the index in the cache, "again" has one. "to first page" is from the start of the process to the
whole page with its 48 images made. "any page" is the median of pages drawn at random once all records are known, each
fetched once. Bytes are those that the process reads through system calls (/proc/PID/io), Python's modules included. CPU
seconds are those of all its threads (/proc/PID/task), which a busy machine changes less.

Before that the parts are measured inside one process, in CPU milliseconds, many times alternately: open the file and
make the first page's images; find all records, without and with a copy of the index; make any page's images.
"""

from __future__ import annotations

import http.client
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.tools.draw import draw_image
from aioloader.tools.view import open_collection
from aioloader.viewer.rendering import ImageRenderer
from benchmarks.figures import ratios, spread
from benchmarks.measurement import run, seconds_of
from recordio import IRHeader, pack, serialize

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.formats.collection import Collection
    from benchmarks.figures import Row

PER_PAGE = 48


class Measured(NamedTuple):
    """Measurement of one start of the program, in CPU seconds and bytes; of a page, the median of some."""

    first_cpu_s: float
    page_cpu_s: float
    first_nbytes: int
    page_nbytes: float


_FIGURES = {
    "CPU of start to first page, s": ("first_cpu_s", 1.0),
    "CPU of any page, ms": ("page_cpu_s", 1e3),
    "bytes read to the first page, MB": ("first_nbytes", 1e-6),
    "bytes read for any page, kB": ("page_nbytes", 1e-3),
}


def make(path: Path, count: int, side: int) -> None:
    """Write a record file of drawn images, which repeat, and its index."""
    import simplejpeg

    kinds = min(count, 64)
    images = [simplejpeg.encode_jpeg(draw_image(k, height=side, width=side), 85) for k in range(kinds)]
    framed = [serialize(pack(IRHeader(0, float(k % 10), k, 0), image)) for k, image in enumerate(images)]
    lengths = np.resize([len(record) for record in framed], count)
    offsets = np.cumsum(lengths) - lengths
    with open(path, "wb") as file:
        whole = b"".join(framed)
        for _ in range(count // kinds):
            file.write(whole)
        file.write(b"".join(framed[: count % kinds]))
    lines = (f"{key}\t{offset}\n" for key, offset in enumerate(offsets.tolist()))
    path.with_suffix(".idx").write_text("".join(lines))


def bytes_read(process: subprocess.Popen[str]) -> int:
    """Return the bytes that a process has read so far; 0 if the system does not report it."""
    try:
        words = Path(f"/proc/{process.pid}/io").read_text().split()
    except OSError:
        return 0
    return int(words[words.index("rchar:") + 1])


def cpu_seconds(process: subprocess.Popen[str]) -> float:
    """Return the CPU seconds of a process's threads so far; 0 if the system does not report it."""
    total = 0
    for file in Path(f"/proc/{process.pid}/task").glob("*/schedstat"):
        try:
            total += int(file.read_text().split()[0])
        except (OSError, IndexError):
            continue  # a thread that has ended meanwhile
    return total / 1e9


def fetch(port: int, path: str) -> bytes:
    """Return the body of a page."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        body = answer.read()
        assert answer.status == 200, (answer.status, path)
        return body
    finally:
        connection.close()


def start(path: Path, count: int, cache: Path, pages: int, seed: int) -> Measured:
    """Start the program, fetch the first page and some others, and end it."""
    command = [sys.executable, "-m", "aioloader", "view", str(path), "--port", "0", "--no-browser"]
    environment = {**os.environ, "AIOLOADER_CACHE_DIR": str(cache)}
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        body = fetch(port, "/")
        assert body.count(b'<li class="tile image"') == PER_PAGE
        first = cpu_seconds(process), bytes_read(process)
        while b"counting" in body:
            body = fetch(port, "/")  # until all records are known; not part of any figure
        cpu, nbytes = [], []
        others = range(2, count // PER_PAGE + 1)
        for number in random.Random(seed).sample(others, min(pages, len(others))):
            ran, at = cpu_seconds(process), bytes_read(process)
            fetch(port, f"/?page={number}")
            cpu.append(cpu_seconds(process) - ran)
            nbytes.append(bytes_read(process) - at)
        return Measured(first[0], median(cpu), first[1], median(nbytes))
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def inside(folder: Path, counts: tuple[int, int], rounds: int) -> Iterator[Row]:
    """Measure the parts in this process."""
    taken: dict[tuple[str, int], list[float]] = {}
    pictures = ImageRenderer(None)
    os.environ["AIOLOADER_CACHE_DIR"] = str(folder / "cache")

    def timed(what: str, count: int, work: Callable[[], object]) -> None:
        taken.setdefault((what, count), []).append(1e3 * seconds_of(work, time.process_time))

    def page(collection: Collection, start: int) -> None:
        for position in range(start, start + PER_PAGE):
            assert pictures.make(collection.read(position), 320)[1] is not None

    for turn in range(rounds):
        for count in counts if turn % 2 else counts[::-1]:
            opened: list[Collection] = []

            def first(count: int = count, opened: list[Collection] = opened) -> None:
                opened.append(open_collection(folder / f"{count}.rec"))
                page(opened[0], 0)

            if turn % 3 == 0:
                shutil.rmtree(folder / "cache", ignore_errors=True)
            timed("open and first page", count, first)
            timed("all records" + (", no copy" if turn % 3 == 0 else ""), count, opened[0].load)
            place = random.Random(turn).randrange(PER_PAGE, count - PER_PAGE)
            timed("any page", count, partial(page, opened[0], place))
            opened[0].close()
    for what in sorted({what for what, _ in taken}):
        few, many = (taken[what, count] for count in counts)
        row = {"measure": f"CPU of {what}, ms", "few records": spread(few), "many records": spread(many)}
        # An index of few lines is read whole when the file is opened: there is no second step to compare.
        yield {**row, **({"ratio": ratios(many, few)} if min(few) > 0.1 else {})}


def measure(
    few: int = 1_000, many: int = 1_000_000, rounds: int = 7, pages: int = 9, side: int = 48
) -> Iterator[Row]:
    """Measure the parts in one process, then starts of the program in turns.

    Args:
        few: records of the small file.
        many: records of the large one.
        rounds: starts of each case.
        pages: number of random pages of each start.
        side: of the images, pixels.
    """
    found: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="viewing-") as name:
        folder, counts = Path(name), (few, many)
        for count in counts:
            make(folder / f"{count}.rec", count, side)
        yield from inside(folder, counts, 3 * rounds)
        for turn in range(rounds):
            for count in counts if turn % 2 else counts[::-1]:
                cache = folder / f"cache-{turn}-{count}"
                for kind in ("first", "again"):
                    measured = start(folder / f"{count}.rec", count, cache, pages, turn)
                    found.setdefault((kind, count), []).append(measured)
    for kind in ("first", "again"):
        for what, (attribute, scale) in _FIGURES.items():
            small, large = ([getattr(each, attribute) for each in found[kind, count]] for count in counts)
            row = {"measure": f"{kind}, {what}", "few records": spread(small, scale)}
            yield {**row, "many records": spread(large, scale), "ratio": ratios(large, small)}


if __name__ == "__main__":
    run(measure, few=200, many=20_000, rounds=1, pages=2)
