"""Tables of README and docs/ from published figures. Pure: figures in, lines of Markdown out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases import CASES, resize_of
from benchmarks.figures import table
from benchmarks.goals import judge_goals, mark_peers
from benchmarks.published_parts import PHOTOGRAPHS, RAW_AGAIN
from benchmarks.published_results import all_loaders, restore
from benchmarks.report import goal_figure, goal_found
from benchmarks.results import cpu_text, fastest, rate_unit, shown_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

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


# -- docs/executors.md -------------------------------------------------------------------------------------------------


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


# -- docs/resume.md ----------------------------------------------------------------------------------------------------

_RESUMED = {
    "aioloader exact": 'aioloader, `even="exact"`',
    "aioloader pad": 'aioloader, `even="pad"`',
    "grain slices": "Grain, `ds[rank::world]`",
    "grain ElasticIterator": "Grain, `ElasticIterator`",
    "streaming": "MosaicML Streaming",
    "lancedb": "LanceDB",
    "litdata": "LitData",
    "torchdata": "torchdata",
    "hf_datasets shards": "Hugging Face datasets, shards shuffled",
    "hf_datasets buffer": "Hugging Face datasets, a buffer of 100",
    "webdataset": "WebDataset",
}


def _resumed(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the table of the loaders, with the batch of all ranks kept, but for one column."""
    same, other = ({row["contender"]: row for row in rows if end in row["batch"]} for end in ("all", "of a"))
    columns = ("2 → 2", "4 → 3", "3 → 5 → 2")
    lines = [
        [
            text,
            *(same[name].get(column, "") for column in columns),
            other[name]["4 → 3"],
            same[name]["draws kept"],
        ]
        for name, text in _RESUMED.items()
        if name in same
    ]
    return table(["loader", *columns, "4 → 3, batch of a rank kept", "draws kept"], lines)


def marked(name: str, parts: Mapping[str, Any]) -> list[str] | None:
    """Return the lines of a marked part of a page; None if the results file does not have their figures."""
    if name == "resume-proof":
        return _resumed(parts[name]["rows"]) if name in parts else None
    if "loaders" not in parts:
        return None
    if name == "executors":
        return _executors(parts)
    results, outcomes = judged(parts)
    if name == "missed":
        return missed(outcomes, parts)
    if name == "headline":
        return headline(results)
    return summary(results, cpu=name == "cpu")
