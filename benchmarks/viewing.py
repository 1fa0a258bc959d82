"""Time of `aioloader view` to show a first page and any other page, of a thousand records and of a million.

    python -m benchmarks.viewing --rounds 7

Each round starts the program again for every case, one after the other, so that a busy machine slows all of them alike.
"first" has no copy of the index in the cache, "again" has one. "to the address" is from the start of the process to the
line that it prints, "first page" from there to the whole page with its 48 images made. "any page" is the median of
pages drawn at random once all records are known, each fetched once. Bytes are those that the process reads through
system calls (/proc/PID/io): "with first page" all since its start, Python's modules included; "per page" those of one
more page. CPU seconds are those of all its threads (/proc/PID/task), which a busy machine changes less.

Before that the parts are measured inside one process, in CPU milliseconds, many times alternately: open the file and
make the first page's images; find all records, without and with a copy of the index; make any page's images.
"""

from __future__ import annotations

import argparse
import http.client
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.tools.draw import draw_image
from aioloader.tools.view import open_collection
from aioloader.viewer.rendering import ImageRenderer
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures
from recordio import IRHeader, pack, serialize

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.formats.collection import Collection

PER_PAGE = 48


class Measured(NamedTuple):
    """Measurement of one start of the program, in seconds and bytes."""

    address_s: float
    first_page_s: float
    page_s: float
    first_nbytes: int
    page_nbytes: int
    first_cpu_s: float
    page_cpu_s: float


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


def measure(path: Path, count: int, cache: Path, pages: int, seed: int) -> Measured:
    """Start the program, fetch the first page and some others, and end it."""
    command = [sys.executable, "-m", "aioloader", "view", str(path), "--port", "0", "--no-browser"]
    environment = {**os.environ, "AIOLOADER_CACHE_DIR": str(cache)}
    begin = time.perf_counter()
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    )
    try:
        assert process.stdout is not None
        port = int(process.stdout.readline().strip().rstrip("/").rpartition(":")[2])
        address = time.perf_counter()
        body = fetch(port, "/")
        first = time.perf_counter()
        assert body.count(b'<li class="tile image"') == PER_PAGE
        first_nbytes, first_cpu = bytes_read(process), cpu_seconds(process)
        while b"counting" in body:
            body = fetch(port, "/")  # until all records are known; not part of any figure
        taken, nbytes, cpu = [], [], []
        rng = random.Random(seed)
        others = range(2, count // PER_PAGE + 1)
        for number in rng.sample(others, min(pages, len(others))):
            at, ran = bytes_read(process), cpu_seconds(process)
            before = time.perf_counter()
            fetch(port, f"/?page={number}")
            taken.append(time.perf_counter() - before)
            nbytes.append(bytes_read(process) - at)
            cpu.append(cpu_seconds(process) - ran)
        return Measured(
            address_s=address - begin,
            first_page_s=first - address,
            page_s=statistics.median(taken),
            first_nbytes=first_nbytes,
            page_nbytes=int(statistics.median(nbytes)),
            first_cpu_s=first_cpu,
            page_cpu_s=statistics.median(cpu),
        )
    finally:
        process.send_signal(signal.SIGINT)
        process.wait(20)


def inside(folder: Path, counts: tuple[int, int], rounds: int) -> list[Row]:
    """Measure the parts in this process, print them, and return the figures."""
    taken: dict[tuple[str, int], list[float]] = {}
    pictures = ImageRenderer(None)
    os.environ["AIOLOADER_CACHE_DIR"] = str(folder / "cache")

    def timed(what: str, count: int, work: Callable[[], object]) -> None:
        begin = time.process_time()
        work()
        taken.setdefault((what, count), []).append((time.process_time() - begin) * 1e3)

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
            start = random.Random(turn).randrange(PER_PAGE, count - PER_PAGE)
            timed("any page", count, partial(page, opened[0], start))
            opened[0].close()
    few, many = counts
    print(
        f"inside one process, CPU ms, medians of up to {rounds} turns: {few:,} records, {many:,} records, ratio"
    )
    for what in sorted({what for what, _ in taken}):
        small, large = taken[(what, few)], taken[(what, many)]
        pairs = zip(large, small, strict=True)
        # An index of few lines is read whole when the file is opened: there is no second step to compare.
        ratio = f"{statistics.median(b / a for b, a in pairs):8.2f}" if min(small) > 0.1 else "       -"
        print(f"{what:22} {statistics.median(small):8.2f} {statistics.median(large):8.2f} {ratio}")
    return [
        {
            "measure": f"CPU of {what}, ms",
            "few records": spread(taken[(what, few)]),
            "many records": spread(taken[(what, many)]),
            **(
                {"ratio": ratios(taken[(what, many)], taken[(what, few)])}
                if min(taken[(what, few)]) > 0.1
                else {}
            ),
        }
        for what in sorted({what for what, _ in taken})
    ]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--few", type=int, default=1_000, metavar="N", help="records of the small file")
    parser.add_argument("--many", type=int, default=1_000_000, metavar="N", help="records of the large one")
    parser.add_argument("--rounds", type=int, default=7, metavar="N")
    parser.add_argument(
        "--pages", type=int, default=9, metavar="N", help="number of random pages of each start"
    )
    parser.add_argument("--side", type=int, default=48, metavar="PIXELS", help="seed of the images")
    parser.add_argument("--smoke", action="store_true", help="a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.few, options.many, options.rounds, options.pages = 200, 20_000, 1, 2

    found: dict[tuple[str, int], list[Measured]] = {}
    with tempfile.TemporaryDirectory(prefix="viewing-") as name:
        folder = Path(name)
        counts = (options.few, options.many)
        for count in counts:
            make(folder / f"{count}.rec", count, options.side)
        rows = inside(folder, counts, 3 * options.rounds)
        for turn in range(options.rounds):
            for count in counts if turn % 2 else counts[::-1]:
                cache = folder / f"cache-{turn}-{count}"
                for kind in ("first", "again"):
                    measured = measure(folder / f"{count}.rec", count, cache, options.pages, turn)
                    found.setdefault((kind, count), []).append(measured)
        sizes = {count: (folder / f"{count}.rec").stat().st_size for count in counts}
    print(f"medians of {options.rounds} starts each, in turns; {options.side} x {options.side} pixels")
    heads = ("records", "index", "to the address", "first page", "together", "CPU", "bytes")
    heads += ("any page", "CPU", "bytes")
    print("  ".join(heads))
    for (kind, count), several in sorted(found.items(), key=lambda pair: (pair[0][0] == "again", pair[0][1])):
        address, first, page, first_nbytes, page_nbytes, first_cpu, page_cpu = (
            statistics.median(values) for values in zip(*several, strict=True)
        )
        together = statistics.median(each.address_s + each.first_page_s for each in several)
        cells = (
            *(f"{count:,}", kind, f"{address:.3f} s", f"{first * 1e3:.0f} ms", f"{together:.3f} s"),
            *(f"{first_cpu:.3f} s", f"{first_nbytes / 1e6:.2f} MB"),
            *(f"{page * 1e3:.1f} ms", f"{page_cpu * 1e3:.1f} ms", f"{page_nbytes / 1e3:.1f} kB"),
        )
        print("  ".join(cell.rjust(len(head)) for cell, head in zip(cells, heads, strict=True)))
    print("files: " + ", ".join(f"{nbytes / 1e6:,.1f} MB" for nbytes in sizes.values()))
    for kind in ("first", "again"):
        for what, of in (
            ("start to first page", lambda each: each.address_s + each.first_page_s),
            ("first page alone", lambda each: each.first_page_s),
            ("any page", lambda each: each.page_s),
            ("CPU of start to first page", lambda each: each.first_cpu_s),
            ("CPU of any page", lambda each: each.page_cpu_s),
        ):
            pairs = zip(found[(kind, options.many)], found[(kind, options.few)], strict=True)
            found_ratios = sorted(of(many) / of(few) for many, few in pairs)
            middle_ratio = statistics.median(found_ratios)
            print(
                f"{kind}, {what}: {middle_ratio:.2f} times ({found_ratios[0]:.2f} to {found_ratios[-1]:.2f})"
            )
        for what, attribute, scale in (
            ("CPU of start to first page, s", "first_cpu_s", 1.0),
            ("CPU of any page, ms", "page_cpu_s", 1e3),
            ("bytes read to the first page, MB", "first_nbytes", 1e-6),
            ("bytes read for any page, kB", "page_nbytes", 1e-3),
        ):
            small, large = ([getattr(each, attribute) for each in found[(kind, count)]] for count in counts)
            row: Row = {"measure": f"{kind}, {what}", "few records": spread(small, scale)}
            rows.append({**row, "many records": spread(large, scale), "ratio": ratios(large, small)})
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
