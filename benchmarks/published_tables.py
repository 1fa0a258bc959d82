"""Tables of README and docs/ from published figures. Pure: figures in, lines of Markdown out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases import CASES, resize_of
from benchmarks.figures import table, value_text
from benchmarks.goals import judge_goals, mark_peers
from benchmarks.published_parts import PHOTOGRAPHS, RAW_AGAIN
from benchmarks.published_results import all_loaders, restore
from benchmarks.report import goal_figure, goal_found
from benchmarks.results import cpu_text, fastest, rate_unit, shown_rate

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from benchmarks.goals import Outcome
    from benchmarks.results import Results, Spread
    from benchmarks.results import Row as Measured

# -- docs/benchmarks.md ------------------------------------------------------------------------------------------------

NOT_DONE = "\N{EN DASH}"
"""Mark in the summary: the contender does not do this work."""
OTHERWISE = "‡"
"""Mark in the summary: the contender resizes in another way."""
SLOWER = "†"
"""Mark in the summary: the contender is much slower than in an earlier measurement."""

_PEERS = {
    "tf.data": "tf_data",
    "Grain": "grain",
    "DALI, CPU": "dali",
    "FFCV": "ffcv",
    "SPDL": "spdl/opencv spdl/plain",
    "WebDataset": "webdataset",
    "LitData": "litdata",
    "Energon": "energon",
    "LanceDB": "lancedb/streaming lancedb/permutation",
    "torch": "torch/pillow torch/torchvision torch/workers torch/plain torch/bulk",
    "torch, OpenCV": "torch/opencv",
    "MXNet": "mxnet/ImageRecordIter mxnet/ImageRecordIter-x2 mxnet/gluon mxnet/NDArrayIter",
}
_WORKS = {
    "jpeg-antialias": "photographs, random resized crop 224, antialiased",
    "jpeg-uint8": "photographs, random resized crop 224, not antialiased",
    "jpeg-float32": "the same, normalised float32",
    "large": "crops of 512 x 512 of 12-megapixel photographs",
    "eval": "photographs, resize 256, centre crop 224, not antialiased",
    "raw": "raw pixels, random resized crop 224, not antialiased",
    "raw-area": "the same, resized by area (five rounds)",
    "faces": "face crops of 5 kB",
    "arrays": "arrays in memory, batches of 32",
    "bytes": "records of 1 kB",
}


def summary(results: Results, *, cpu: bool = False) -> list[str]:
    """Return the table of ratios of docs/benchmarks.md, or that of the CPU time for a sample in the same cells.

    Args:
        results: of all loaders, after `benchmarks.goals.mark_peers`.
        cpu: return the CPU times, in microseconds.
    """
    lines = []
    for case, work in _WORKS.items():
        for indexed in (False, True):
            cells = _summary_cells(results, case, indexed, cpu)
            if cells:
                lines.append(["with a crop index" if indexed else work, *cells])
    return table(["work", "aioloader", "bare loop", *_PEERS], lines)


def _summary_cells(results: Results, case: str, indexed: bool, cpu: bool) -> list[str]:
    """Return the cells of the best setting of this project, of the bare loop, and of each peer."""
    rows = results.of_case(case)
    best = fastest(row for row in rows if row.name == "aioloader" and row.indexed == indexed)
    rate = None if best is None else shown_rate(best)
    if best is None or rate is None:
        return []
    cells = [f"{rate.median:,.0f} {rate_unit(case)}", _two_digits(best.of_bare)]
    if cpu:
        bare = results.row(case, "bare_loop")
        cells = [cpu_text(best), "" if bare is None else cpu_text(bare)]
    by_title = {row.title: row for row in rows}
    for titles in _PEERS.values():
        peers = [by_title[title] for title in titles.split() if title in by_title]
        found = {
            ratio.median: (cpu_text(row) if cpu else _two_digits(ratio), row)
            for row in peers
            if not row.doubtful and (ratio := row.ahead_indexed if indexed else row.ahead)
        }
        if found:
            # Of several ways of a peer the fastest counts.
            text, peer = found[min(found)]
            cells.append(text + ("" if _resize(peer) == _resize(best) or not text else OTHERWISE))
        else:
            cells.append(SLOWER if any(row.doubtful for row in peers) else NOT_DONE)
    return cells


def headline(results: Results) -> list[str]:
    """Return the README's table of images per second, without contenders that resize in another way."""
    lines: list[list[str]] = [["aioloader"], ["aioloader, with a crop index"], *([name] for name in _PEERS)]
    for case in ("jpeg-antialias", "jpeg-uint8"):
        rows = [row for row in results.of_case(case) if not row.doubtful]
        ours = [
            [row for row in rows if row.name == "aioloader" and row.indexed == own] for own in (False, True)
        ]
        best = fastest(ours[0])
        peers = [
            [row for row in rows if row.title in titles.split() and best and _resize(row) == _resize(best)]
            for titles in _PEERS.values()
        ]
        for line, found in zip(lines, [*ours, *peers], strict=True):
            row = fastest(found)
            rate = None if row is None else shown_rate(row)
            line.append(NOT_DONE if rate is None else f"{rate.median:,.0f}")
    shown = [line for line in lines if set(line[1:]) != {NOT_DONE}]
    return table(["photographs, random resized crop 224, flip", "antialiased", "not antialiased"], shown)


def _resize(row: Measured) -> str:
    return resize_of(CASES[row.case], row.name, row.variant)


def _two_digits(ratio: Spread | None) -> str:
    """Return the median of a ratio with two digits below 10, and one above."""
    return "" if ratio is None else f"{ratio.median:.{1 if round(ratio.median, 2) >= 10 else 2}f}"


class _Target(NamedTuple):
    """Target for a ratio of a part that is not the run of the loaders.

    Attributes:
        part: name of the part.
        row: columns by which its row is found.
        column: column of the ratio.
        text: description of the ratio.
        least: the target; None: that of the row, "target".
    """

    part: str
    row: Mapping[str, str]
    column: str
    text: str
    least: float | None = None


_TARGETS = (
    _Target(
        "remote",
        {"data": "payloads", "way": "bytes alone"},
        "loader to it",
        "times requests of bytes alone",
        0.8,
    ),
    _Target("remote-faults", {"part": "faults"}, "to the clean run", "times the same without faults", 0.85),
    _Target(
        "remote-formats", {"format": "tar", "times": "webdataset"}, "whole epoch", "tar, times WebDataset"
    ),
    _Target(
        "remote-formats",
        {"format": "parquet", "times": "datasets"},
        "whole epoch",
        "parquet, times Hugging Face datasets",
    ),
)


def missed(outcomes: Sequence[Outcome], parts: Mapping[str, Any]) -> list[str]:
    """Return the table of the targets that were missed.

    Args:
        outcomes: targets of the run of the loaders.
        parts: of the results file, for the others.
    """
    rows = [
        [
            outcome.goal.case,
            outcome.goal.text,
            f"{'' if outcome.goal.upwards else 'at most '}{goal_figure(outcome, outcome.goal.least)}",
            goal_found(outcome),
        ]
        for outcome in outcomes
        if outcome.verdict == "missed"
    ]
    for target in _TARGETS:
        for row in parts.get(target.part, {"rows": ()})["rows"]:
            if target.column in row and target.row.items() <= row.items():
                least = row["target"] if target.least is None else target.least
                ratio = row[target.column][0]
                if ratio < least:
                    rows.append([target.part, target.text, f"{least:.2f}x", f"{ratio:.2f}x"])
    return table(["case", "this project", "target", "found"], rows)


def judged(parts: Mapping[str, Any]) -> tuple[Results, list[Outcome]]:
    """Return the results of all loaders, and the targets: raw pixels count as they were measured again."""
    results = all_loaders(parts)
    mark_peers(results)
    again = [restore(parts[RAW_AGAIN])] if RAW_AGAIN in parts else []
    outcomes = judge_goals(results, again)
    for run in again:
        mark_peers(run)
        results.rows = [row for row in results.rows if row.case not in run.cases] + run.rows
    return results, outcomes


# -- tables of other pages ---------------------------------------------------------------------------------------------


class Table(NamedTuple):
    """Table of a page, of the rows of a part.

    Attributes:
        part: name of the part.
        columns: for each heading the text of its cells, with columns of the rows in braces: ``{images/s:,.0f}`` is a
            median, ``{images/s:±,.0f}`` with its range.
        only: values by which the rows are chosen.
        named: text for each value of the first column of the rows that is shown, in this order; empty: all are.
    """

    part: str
    columns: Mapping[str, str]
    only: Mapping[str, str] = {}
    named: Mapping[str, str] = {}

    def lines(self, parts: Mapping[str, Any]) -> list[str]:
        """Return the lines of the table."""
        return table(
            list(self.columns),
            ([text.format_map(_Cells(row)) for text in self.columns.values()] for row in self._rows(parts)),
        )

    def _rows(self, parts: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
        rows = [row for row in parts[self.part]["rows"] if self.only.items() <= row.items()]
        if not self.named:
            yield from rows
        for value, text in self.named.items():
            for row in rows:
                column = next(name for name in row if name not in self.only)
                if row[column] == value:
                    yield {**row, column: text}


class _Cells(dict[str, Any]):
    """Row whose values can be formatted; a missing one is an empty text."""

    def __getitem__(self, name: str) -> Any:
        return _Value(self.get(name))


class _Value(NamedTuple):
    value: Any

    def __format__(self, form: str) -> str:
        whole = form.startswith("±")
        value = self.value[0] if isinstance(self.value, list) and not whole else self.value
        return value_text(value, form[whole:])


def _executors(parts: Mapping[str, Any]) -> list[str]:
    results = all_loaders(parts)
    photographs = "jpeg-antialias" if PHOTOGRAPHS in parts else "jpeg-uint8"
    executors = ("process", "thread", "inline")
    lines = []
    for text, case, attribute, form, scale in (
        ("images/s", photographs, "rate", ",.0f", 1.0),
        ("first batch, s", photographs, "first_batch_s", ".2f", 1.0),
        ("CPU, µs per image", photographs, "cpu_ms", ",.0f", 1e3),
        ("memory of all processes, MB", photographs, "peak_pss", ",.0f", 1e-6),
        ("event loop lag, p99, ms", photographs, "lag_p99_ms", ".1f", 1.0),
        ("face crops of 5 kB, images/s", "faces", "rate", ",.0f", 1.0),
        ("unmodified records of 1 kB/s", "bytes", "rate", ",.0f", 1.0),
    ):
        found = [getattr(results.row(case, f"aioloader/{name}"), attribute, None) for name in executors]
        lines.append([text, *("" if each is None else format(each.median * scale, form) for each in found)])
    return table(["", *executors], lines)


TABLES = {
    "windows": Table(
        "windows",
        {
            "window": "{window}",
            "ranges of the file per 1,000 samples": "{stretches in 1,000:.1f}",
            "samples with a file neighbour in their batch": "{neighbours, %:.1f} %",
            "classes in a batch if the file is sorted by 1,000 classes": "{classes of a batch:.0f}",
            "pairs in one batch that are in one batch again in the next epoch": "{again, in 1,000:.2f} in 1,000",
        },
    ),
    "scale": Table(
        "scale",
        {
            "ranks": "{ranks:,}",
            "batches per rank": "{batches of each:,}",
            "creating the loader, ms": "{loader, ms:.2f}",
            "indices of the first batch, ms": "{first batch, ms:.2f}",
            "indices of a batch at 90 %, ms": "{at 90 %, ms:.2f}",
            "memory, kB": "{memory, kB:,.0f}",
            "padding samples": "{padding samples:,}",
        },
    ),
    "many-workers": Table(
        "many-workers",
        {
            "workers": "{workers}",
            "batch size": "{batch size}",
            "CPU time for an image, µs": "{CPU time for an image, µs:.1f}",
            "images/s": "{images/s:,.0f}",
            "chunks of a batch": "{chunks of a batch:.1f}",
            "slab memory, MB": "{slab memory, MB:,.0f}",
        },
    ),
    "recipes": Table(
        "recipes",
        {
            "recipe": "{recipe}",
            "times torchvision, tensors": "{times tensors:.1f}",
            "times torchvision, Pillow": "{times pillow:.1f}",
            "aioloader, CPU, µs an image": "{aioloader, CPU, µs an image:,.0f}",
            "tensors, CPU, µs an image": "{tensors, CPU, µs an image:,.0f}",
            "Pillow, CPU, µs an image": "{pillow, CPU, µs an image:,.0f}",
        },
        named={
            "v1": "first",
            "new": "new",
            "rand-augment": "first, and `RandAugment(2, 9)`",
            "multi-crop": "multi-crop, 2 x 224 and 8 x 96",
        },
    ),
    "image-service": Table(
        "image-service",
        {
            "way": "{way}",
            "lag of the loop, p50 and p99, ms": "{lag p50, ms:.1f}, {lag p99, ms:.1f}",
            "CPU a request, ms": "{CPU a request, ms:.0f}",
            "requests/s": "{requests/s:.1f}",
            "latency p99, s": "{latency p99, s:.1f}",
            "memory, MB": "{memory, MB:,.0f}",
        },
        named={
            "service": "`AsyncImageService`, two workers",
            "to_thread": "`asyncio.to_thread`, the same decoder",
            "threads": "`ThreadPoolExecutor(16)`, the same decoder",
            "threads-pillow": "`ThreadPoolExecutor(16)`, Pillow",
            "processes": "`ProcessPoolExecutor(2)`, the same decoder",
            "processes-pillow": "`ProcessPoolExecutor(2)`, Pillow",
        },
    ),
    "viewing": Table(
        "viewing",
        {
            "": "{measure}",
            "1,000 records": "{few records}",
            "1,000,000 records": "{many records}",
            "ratio": "{ratio}",
        },
        named={
            "first, CPU of start to first page, s": (
                "from program start to the complete first page, without a copy of the index, s"
            ),
            "again, CPU of start to first page, s": "the same, with a copy of the index, s",
            "CPU of open and first page, ms": "of that, opening the file and making the images of the first page, ms",
            "CPU of any page, ms": "images of any page, ms",
            "first, bytes read to the first page, MB": (
                "bytes read from program start to the first page, including Python's modules, MB"
            ),
            "first, bytes read for any page, kB": "bytes read for any page, kB",
            "CPU of all records, no copy, ms": (
                "reading the whole index, after the first page, without a copy of the index, ms"
            ),
            "CPU of all records, ms": "the same, with a copy, ms",
        },
    ),
    "remote-rates": Table(
        "remote",
        {
            "data": "{data}",
            "way": "{way}",
            "samples/s": "{samples/s:,.0f}",
            "CPU, µs a sample": "{CPU, µs a sample:,.0f}",
            "aioloader's rate, times it": "{loader to it:±}",
        },
        only={"part": "speed"},
    ),
    "remote-cache": Table(
        "remote",
        {
            "data": "{data}",
            "second epoch from a cache, samples/s": "{samples/s:,.0f}",
            "requests": "{requests}",
            "a local file, samples/s": "{local file, samples/s:,.0f}",
            "times it": "{to a local file:±}",
        },
        only={"part": "cache"},
    ),
    "remote-faults": Table(
        "remote-faults",
        {
            "data": "{data}",
            "samples/s": "{samples/s:,.0f}",
            "of the rate without faults": "{to the clean run:±}",
        },
    ),
    "remote-formats": Table(
        "remote-formats",
        {
            "format": "{format}",
            "loader": "{loader}",
            "images/s": "{images/s:,.0f}",
            "CPU, µs an image": "{CPU, µs an image:,.0f}",
            "first batch, s": "{first batch, s:.1f}",
            "times the other loader": "{whole epoch:±}",
            "after the first batch": "{later batches:±}",
        },
        named={
            "aioloader": "aioloader",
            "webdataset": "WebDataset through curl",
            "datasets": "Hugging Face's streaming",
        },
    ),
    "remote-lag": Table(
        "remote",
        {
            "latency": "{latency, ms:.0f} ms",
            "data": "{data}",
            "way": "{way}",
            "lag p99, ms": "{lag p99, ms:±.1f}",
        },
        only={"part": "lag"},
    ),
}
"""Marked tables of other pages than docs/benchmarks.md, but for "executors"."""


def marked(name: str, parts: Mapping[str, Any]) -> list[str] | None:
    """Return the lines of a marked part of a page; None if the results file does not have their figures."""
    needed = TABLES[name].part if name in TABLES else "loaders"
    if needed not in parts:
        return None
    if name in TABLES:
        return TABLES[name].lines(parts)
    if name == "executors":
        return _executors(parts)
    results, outcomes = judged(parts)
    if name == "missed":
        return missed(outcomes, parts)
    if name == "headline":
        return headline(results)
    return summary(results, cpu=name == "cpu")
