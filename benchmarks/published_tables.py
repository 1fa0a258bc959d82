"""Tables of README and docs/ from published figures. Pure: figures in, lines of Markdown out."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.figures import table, value_text
from benchmarks.published_parts import PARTS, PHOTOGRAPHS
from benchmarks.published_results import all_loaders
from benchmarks.report_tables import contender_title, read_case_tables, read_rows, read_table

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from benchmarks.report_tables import CaseTable

__all__ = ("OTHERWISE", "TABLES", "missed", "summary")

Rows = list[dict[str, Any]]


# -- docs/benchmarks.md, from the tables of docs/benchmarks-tables.md --------------------------------------------------

NOT_DONE = "\N{EN DASH}"
"""Mark in the summary: the contender does not do this work."""
OTHERWISE = "‡"
"""Mark in the summary: the contender resizes in another way."""
SLOWER = "†"
"""Mark in the summary: the contender is much slower than in an earlier measurement."""
RAW_AGAIN = "raw-area"
"""Name of a case, and of the part that measures it again with more rounds."""

_PEERS = {
    "tf.data": "tf_data",
    "Grain": "grain",
    "DALI, CPU": "dali",
    "FFCV": "ffcv",
    "SPDL": "spdl/opencv spdl/plain",
    "WebDataset": "webdataset",
    "LitData": "litdata",
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


def summary(tables: str) -> list[str]:
    """Return the table of ratios of docs/benchmarks.md.

    Args:
        tables: docs/benchmarks-tables.md.
    """
    heads = ["work", "aioloader", "bare loop", *_PEERS]
    cases = {each.case: each for each in read_case_tables(tables)}
    again = read_table(tables, PARTS[RAW_AGAIN].title, RAW_AGAIN)
    cases.pop(RAW_AGAIN, None)
    if again is not None:  # it has more rounds than the run of all loaders
        cases[RAW_AGAIN] = again
    lines = []
    for case, work in _WORKS.items():
        if case in cases:
            lines += [
                ["with a crop index" if indexed else work, *cells]
                for indexed in (False, True)
                if (cells := _ratio_cells(cases[case], indexed))
            ]
    return table(heads, lines)


def _ratio_cells(case: CaseTable, indexed: bool) -> list[str]:
    """Return the rate of the best setting of this project, and its ratio to the bare loop and to each peer."""
    by_title = {contender_title(row["contender"]): row for row in case.rows}
    ours = [
        row
        for title, row in by_title.items()
        if title.startswith("aioloader/") and title.startswith("aioloader/crop-index") == indexed
    ]
    ours = [row for row in ours if row[case.unit][:1].isdigit()]
    if not ours:
        return []
    best = max(ours, key=lambda row: float(row[case.unit].partition(" ")[0].replace(",", "")))
    column = "with crop index" if indexed else "aioloader is"
    cells = [f"{best[case.unit].partition(' ')[0]} {case.unit}", _middle(best["of the bare loop"])]
    for titles in _PEERS.values():
        rows = [by_title[title] for title in titles.split() if title in by_title]
        found = [
            f"{text}{'' if row.get('resize') == best.get('resize') else OTHERWISE}"
            for row in rows
            if not _is_doubtful(case, row) and (text := _middle(row.get(column, "")))
        ]
        # Of several ways of a peer the fastest counts.
        missing = SLOWER if any(_is_doubtful(case, row) for row in rows) else NOT_DONE
        cells.append(min(found, key=lambda text: float(text.rstrip(OTHERWISE)), default=missing))
    return cells


def _is_doubtful(case: CaseTable, row: Mapping[str, str]) -> bool:
    """Return whether a peer is much slower than expected, so that no claim is based on it."""
    marks = re.findall(r"\[(\d+)\]", row["contender"])
    return any(case.notes.get(mark, "").startswith("below the expected rate") for mark in marks)


def _middle(cell: str) -> str:
    """Return the median of a ratio with two digits below 10, and one above."""
    text = cell.partition(" ")[0].rstrip("x")
    return text if not text or float(text) < 10 else f"{float(text):.1f}"


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
        "remote-formats",
        {"loader": "aioloader", "format": "tar"},
        "whole epoch",
        "tar, times WebDataset",
    ),
    _Target(
        "remote-formats",
        {"loader": "aioloader", "format": "parquet"},
        "whole epoch",
        "parquet, times Hugging Face datasets",
    ),
)


def missed(tables: str, parts: Mapping[str, Any]) -> list[str]:
    """Return the table of the targets that were missed.

    Args:
        tables: docs/benchmarks-tables.md, with the targets of the run of the loaders.
        parts: of the results file, for the others.
    """
    rows = [
        [row[0], row[1], row[2], row[4].partition(" (")[0]]
        for row in read_rows(tables, "Targets")
        if row[5] == "**missed**"
    ]
    for target in _TARGETS:
        for row in parts.get(target.part, {"rows": ()})["rows"]:
            if target.column not in row or not target.row.items() <= row.items():
                continue
            least = row["target"] if target.least is None else target.least
            ratio = row[target.column][0]
            if ratio < least:
                rows.append([target.part, target.text, f"{least:.2f}x", f"{ratio:.2f}x"])
    return table(["case", "this project", "target", "found"], rows)


def _by(rows: Rows, column: str) -> dict[str, dict[str, Any]]:
    return {str(row[column]): row for row in rows if column in row}


# -- tables of other pages ---------------------------------------------------------------------------------------------


def _windows(parts: Mapping[str, Any]) -> list[str]:
    heads = (
        *("window", "ranges of the file per 1,000 samples", "samples with a file neighbour in their batch"),
        "classes in a batch if the file is sorted by 1,000 classes",
        "pairs in one batch that are in one batch again in the next epoch",
    )
    return table(
        heads,
        (
            (
                row["window"],
                value_text(row["stretches in 1,000"], ".1f"),
                f"{row['neighbours, %']:.1f} %",
                value_text(row["classes of a batch"], ".0f"),
                f"{row['again, in 1,000']:.2f} in 1,000",
            )
            for row in parts["windows"]["rows"]
        ),
    )


def _scale(parts: Mapping[str, Any]) -> list[str]:
    heads = (
        *("ranks", "batches per rank", "creating the loader, ms", "indices of the first batch, ms"),
        *("indices of a batch at 90 %, ms", "memory, kB", "padding samples"),
    )
    forms = (",", ",", ".2f", ".2f", ".2f", ",.0f", ",")
    rows = [list(row.values()) for row in parts["scale"]["rows"]]
    return table(
        heads, ([format(value, form) for value, form in zip(row, forms, strict=True)] for row in rows)
    )


def _many_workers(parts: Mapping[str, Any]) -> list[str]:
    rows = parts["many-workers"]["rows"]
    forms = ("", "", ".1f", ",.0f", ".1f", ",.0f")
    return table(
        list(rows[0]),
        ([format(value, form) for value, form in zip(row.values(), forms, strict=True)] for row in rows),
    )


_RECIPES = {
    "v1": "first",
    "new": "new",
    "rand-augment": "first, and `RandAugment(2, 9)`",
    "multi-crop": "multi-crop, 2 x 224 and 8 x 96",
}


def _recipe_table(parts: Mapping[str, Any]) -> list[str]:
    return table(
        ("recipe", "times torchvision, tensors", "times torchvision, Pillow"),
        (
            (
                _RECIPES.get(row["recipe"], row["recipe"]),
                *(f"{row[f'times {name}'][0]:.1f}" for name in ("tensors", "pillow")),
            )
            for row in parts["recipes"]["rows"]
        ),
    )


_SERVICE_WAYS = {
    "service": "`AsyncImageService`, two workers",
    "to_thread": "`asyncio.to_thread`, the same decoder",
    "threads": "`ThreadPoolExecutor(16)`, the same decoder",
    "threads-pillow": "`ThreadPoolExecutor(16)`, Pillow",
    "processes": "`ProcessPoolExecutor(2)`, the same decoder",
    "processes-pillow": "`ProcessPoolExecutor(2)`, Pillow",
}


def _service_table(parts: Mapping[str, Any]) -> list[str]:
    ways = _by(parts["image-service"]["rows"], "way")
    heads = (
        "way",
        "lag of the loop, p50 and p99, ms",
        "CPU a request, ms",
        "requests/s",
        "latency p99, s",
        "memory, MB",
    )
    return table(
        heads,
        (
            (
                text,
                f"{ways[way]['lag p50, ms'][0]:.1f}, {ways[way]['lag p99, ms'][0]:.1f}",
                value_text(ways[way]["CPU a request, ms"][0], ".0f"),
                value_text(ways[way]["requests/s"][0], ".1f"),
                value_text(ways[way]["latency p99, s"][0], ".1f"),
                value_text(ways[way]["memory, MB"][0], ",.0f"),
            )
            for way, text in _SERVICE_WAYS.items()
            if way in ways
        ),
    )


_VIEWS = {
    "from program start to the complete first page, without a copy of the index": (
        "first, CPU of start to first page, s",
        "s",
    ),
    "the same, with a copy of the index": ("again, CPU of start to first page, s", "s"),
    "of that, opening the file and making the images of the first page": (
        "CPU of open and first page, ms",
        "ms",
    ),
    "images of any page": ("CPU of any page, ms", "ms"),
    "bytes read from program start to the first page, including Python's modules": (
        "first, bytes read to the first page, MB",
        "MB",
    ),
    "bytes read for any page": ("first, bytes read for any page, kB", "kB"),
    "reading the whole index, after the first page, without a copy of the index": (
        "CPU of all records, no copy, ms",
        "ms",
    ),
    "the same, with a copy": ("CPU of all records, ms", "ms"),
}


def _viewing_table(parts: Mapping[str, Any]) -> list[str]:
    found = _by(parts["viewing"]["rows"], "measure")
    return table(
        ("", "1,000 records", "1,000,000 records", "ratio"),
        (
            (
                text,
                f"{value_text(found[name]['few records'][0])} {unit}",
                f"{value_text(found[name]['many records'][0])} {unit}",
                value_text(found[name].get("ratio", [None])[0]),
            )
            for text, (name, unit) in _VIEWS.items()
            if name in found
        ),
    )


def _executors(parts: Mapping[str, Any]) -> list[str]:
    results = all_loaders(parts)
    photographs = "jpeg-antialias" if PHOTOGRAPHS in parts else "jpeg-uint8"

    def cells(text: str, case: str, show: Callable[[Any], str]) -> tuple[str, str, str]:
        process, thread = (results.row(case, f"aioloader/{name}") for name in ("process", "thread"))
        return text, "" if process is None else show(process), "" if thread is None else show(thread)

    def middle(attribute: str, form: str, scale: float = 1.0) -> Callable[[Any], str]:
        def show(row: Any) -> str:
            spread = getattr(row, attribute)
            return "" if spread is None else format(spread.median * scale, form)

        return show

    def cost(row: Any) -> str:
        return f"{1e6 / row.rate.median:.1f}"

    inline = results.row("bytes", "aioloader/inline")
    small = cells("unmodified records of 1 kB, µs per record", "bytes", cost)
    if inline is not None:
        small = (small[0], small[1], f"{small[2]} (inline: {cost(inline)})")
    return table(
        ("", "process", "thread"),
        (
            cells("images/s", photographs, middle("rate", ",.0f")),
            cells("first batch, s", photographs, middle("first_batch_s", ".2f")),
            cells("CPU, µs per image", photographs, middle("cpu_ms", ",.0f", 1e3)),
            cells("memory of all processes, MB", photographs, middle("peak_pss", ",.0f", 1e-6)),
            cells("event loop lag, p99, ms", photographs, middle("lag_p99_ms", ".1f")),
            cells("face crops of 5 kB, images/s", "faces", middle("rate", ",.0f")),
            small,
        ),
    )


def _remote_lag(parts: Mapping[str, Any]) -> list[str]:
    rows = [row for row in parts["remote"]["rows"] if row["part"] == "lag"]
    found: dict[float, dict[str, str]] = {}
    for row in rows:
        column = "bytes only" if row["way"] == "bytes alone" else row["data"]
        # Both kinds of data measure the bytes alone: the median of the first is shown.
        shown = value_text(row["lag p99, ms"][0] if column == "bytes only" else row["lag p99, ms"], ".1f")
        found.setdefault(row["latency, ms"], {}).setdefault(column, shown)
    heads = ("payloads", "images of 224", "bytes only")
    return table(
        ("latency", *heads),
        ((f"{latency:.0f} ms", *(cells.get(head, "") for head in heads)) for latency, cells in found.items()),
    )


def _row(rows: Rows, **wanted: str) -> dict[str, Any]:
    """Return the row that has these values."""
    return next(row for row in rows if wanted.items() <= row.items())


def _speed(parts: Mapping[str, Any], data: str, way: str, text: str) -> tuple[str, ...]:
    """Return the line of the loader against another way, with the same data."""
    rows = parts["remote"]["rows"]
    mine = _row(rows, part="speed", data=data, way="loader")
    other = _row(rows, part="speed", data=data, way=way)
    rate = value_text(other["samples/s"][0], ",.0f")
    return (
        data,
        value_text(mine["samples/s"][0], ",.0f"),
        f"{text}: {rate}",
        value_text(other["loader to it"]),
    )


def _cached(parts: Mapping[str, Any], data: str) -> tuple[str, ...]:
    """Return the line of a second epoch from a cache."""
    row = _row(parts["remote"]["rows"], part="cache", data=data)
    rates = [value_text(row[name][0], ",.0f") for name in ("samples/s", "local file, samples/s")]
    ratio = f"{value_text(row['to a local file'])}, {row['requests'] or 'no'} requests"
    return f"{data}, second epoch from a cache", rates[0], f"a local file: {rates[1]}", ratio


def _remote_rates(parts: Mapping[str, Any]) -> list[str]:
    faults = _row(parts["remote-faults"]["rows"], part="faults")
    with_faults = (
        "payloads, 1 % of 503s, 1 % of resets, 0.5 % of stalls of 30 s",
        value_text(faults["samples/s"][0], ",.0f"),
        "the same payloads without faults",
        value_text(faults["to the clean run"]),
    )
    return table(
        ("data", "samples/s", "baseline, samples/s", "ratio"),
        (
            _speed(parts, "payloads", "torch", "PyTorch's loader, 2 workers, one blocking read per sample"),
            _speed(
                parts,
                "payloads",
                "bytes alone",
                "a client that only fetches the bytes, 256 requests in flight",
            ),
            _speed(parts, "images of 224", "torch", "PyTorch's loader with the same images"),
            _speed(parts, "images of 224", "local", "the same images from a local file"),
            with_faults,
            _cached(parts, "payloads"),
            _cached(parts, "images of 224"),
        ),
    )


_REMOTE_FORMATS = {
    "tar": ("tar", "WebDataset through curl", "webdataset"),
    "tfrecord": ("TFRecord", "", ""),
    "parquet": ("Parquet", "Hugging Face's streaming", "datasets"),
}


def _remote_format_rates(parts: Mapping[str, Any]) -> list[str]:
    rows = parts["remote-formats"]["rows"]

    def rate(row: Mapping[str, Any]) -> str:
        first = value_text(row["first batch, s"][0], ".1f")
        return f"{value_text(row['images/s'][0], ',.0f')}; first batch after {first} s"

    lines = []
    for name, (title, peer, loader) in _REMOTE_FORMATS.items():
        mine = _row(rows, loader="aioloader", format=name)
        cells = ("", "", "")
        if peer:
            other = rate(_row(rows, loader=loader, format=name))
            cells = (f"{peer}: {other}", value_text(mine["whole epoch"]), value_text(mine["later batches"]))
        lines.append((title, rate(mine), *cells))
    heads = ("format", "aioloader, images/s", "baseline, images/s", "whole epoch", "after the first batch")
    return table(heads, lines)


TABLES: dict[str, tuple[tuple[str, ...], Callable[[Mapping[str, Any]], list[str]]]] = {
    "windows": (("windows",), _windows),
    "scale": (("scale",), _scale),
    "many-workers": (("many-workers",), _many_workers),
    "recipes": (("recipes",), _recipe_table),
    "image-service": (("image-service",), _service_table),
    "viewing": (("viewing",), _viewing_table),
    "executors": (("loaders",), _executors),
    "remote-lag": (("remote",), _remote_lag),
    "remote-rates": (("remote", "remote-faults"), _remote_rates),
    "remote-formats": (("remote-formats",), _remote_format_rates),
}
"""Marked tables of other pages: the parts that they need, and the function that makes the lines from the parts."""
