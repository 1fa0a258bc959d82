"""Results from the log of a run: one row per contender, variant and case, with medians, spreads and ratios."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.cases import CASES

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

OURS = "aioloader"
BARE = "bare_loop"


class Spread(NamedTuple):
    """Median, minimum and maximum of some values."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float | None]) -> Spread | None:
        """Return the spread of the values; None if there are none."""
        found = [value for value in values if value is not None]
        return cls(median(found), min(found), max(found)) if found else None


@dataclass
class Row:
    """One variant of a contender in one case.

    Attributes:
        case, name, variant: its identity.
        status: "measured", "failed", "declined" or "pending" (the run ended before its turn).
        reason: the reason of a failure or refusal.
        setting: the measured setting.
        stored_nbytes: size of the stored samples of an epoch; None if unknown.
        swept: (setting, samples per second or the reason of a failure) of each that was tried.
        rounds: samples per second by number of round; in a case of the start: first batches per second.
        rate: the same, of all rounds.
        first_batch_s: seconds from opening to the first batch.
        cpu_ms: CPU milliseconds per sample, of all its processes.
        peak_pss: bytes of memory of all its processes.
        lag_p50_ms, lag_p99_ms: lag of a ticker in its event loop.
        of_bare: its rate as a share of the bare loop's in the same round.
        ahead: this project's best rate in the same round without a crop index, as a multiple of its rate.
        ahead_indexed: the same with a crop index.
        others_cpu_s: cores that other processes kept busy meanwhile.
        doubtful: it is much slower than expected: a badly configured adapter.
        explain: the text of this loader's `explain()` in the last round.
        notes: remarks for the reader.
    """

    case: str
    name: str
    variant: str
    status: str = "pending"
    reason: str = ""
    setting: dict[str, Any] = field(default_factory=dict)
    stored_nbytes: int | None = None
    swept: list[tuple[dict[str, Any], float | str]] = field(default_factory=list)
    rounds: dict[int, float] = field(default_factory=dict)
    rate: Spread | None = None
    first_batch_s: Spread | None = None
    cpu_ms: Spread | None = None
    peak_pss: Spread | None = None
    lag_p50_ms: Spread | None = None
    lag_p99_ms: Spread | None = None
    of_bare: Spread | None = None
    ahead: Spread | None = None
    ahead_indexed: Spread | None = None
    others_cpu_s: Spread | None = None
    doubtful: bool = False
    explain: str = ""
    notes: list[str] = field(default_factory=list)

    @property
    def title(self) -> str:
        """Return name and variant."""
        return "/".join(filter(None, (self.name, self.variant)))

    @property
    def indexed(self) -> bool:
        """Return whether it is this project with a crop index."""
        return self.name == OURS and self.variant.startswith("crop-index")

    @property
    def measured(self) -> bool:
        """Return whether it has figures."""
        return self.status == "measured"


@dataclass
class Results:
    """Results of a run.

    Attributes:
        run: the options, and the machine.
        contenders: versions by contender.
        rows: by case in their usual order, the fastest first.
    """

    run: dict[str, Any]
    contenders: dict[str, dict[str, Any]]
    rows: list[Row]

    def of_case(self, case: str) -> list[Row]:
        """Return the rows of one case."""
        return [row for row in self.rows if row.case == case]

    def row(self, case: str, title: str, *, indexed: bool = False) -> Row | None:
        """Return a row that was measured.

        Args:
            case: its case.
            title: "NAME/VARIANT"; or "NAME" for its fastest variant.
            indexed: with "NAME", look at the variants with a crop index; else at those without one.

        Returns:
            None if none was measured.
        """
        return fastest(
            row
            for row in self.of_case(case)
            if row.title == title or (row.name == title and row.indexed == indexed)
        )

    @property
    def cases(self) -> list[str]:
        """Return the cases that have rows."""
        return [name for name in CASES if any(row.case == name for row in self.rows)]


def rate_unit(case: str) -> str:
    """Return the unit of a case's figures, mostly a rate per second."""
    if CASES[case].start:
        return "seconds, less is better"
    return {"arrays": "batches/s", "bytes": "records/s"}.get(CASES[case].store, "images/s")


def shown_rate(row: Row) -> Spread | None:
    """Return the rate of a row in its case's unit."""
    if row.rate is None:
        return None
    if CASES[row.case].start:
        return Spread(1 / row.rate.median, 1 / row.rate.high, 1 / row.rate.low)
    per = CASES[row.case].batch_size if CASES[row.case].store == "arrays" else 1
    return Spread(*(value / per for value in row.rate))


def rate_text(row: Row) -> str:
    """Return the rate of a row in its case's unit, with its range."""
    return spread_text(shown_rate(row), ".2f" if CASES[row.case].start else ",.0f")


def cpu_text(row: Row) -> str:
    """Return the CPU time of a row for a sample, in microseconds; "" if it was not measured."""
    if row.cpu_ms is None:
        return ""
    cpu_us = row.cpu_ms.median * 1e3
    return format(cpu_us, ",.0f" if cpu_us >= 10 else ".2f")


def spread_text(spread: Spread | None, form: str) -> str:
    """Return "median (least to greatest)", or "" for None."""
    if spread is None:
        return ""
    middle, low, high = (format(value, form) for value in spread)
    return middle if low == high else f"{middle} ({low} to {high})"


def fastest(rows: Iterable[Row]) -> Row | None:
    """Return the row with the greatest rate; None if none was measured."""
    measured = [row for row in rows if row.measured and row.rate]
    return max(measured, key=lambda row: row.rate.median if row.rate else 0.0, default=None)


def summarise(records: Sequence[dict[str, Any]]) -> Results:
    """Make rows of the records of a log (see `benchmarks.log`)."""
    run = next((r for r in reversed(records) if r["kind"] == "run"), {})
    contenders = {r["name"]: r for r in records if r["kind"] == "contender"}
    rows: dict[tuple[str, str, str], Row] = {}

    def row_of(record: dict[str, Any]) -> Row:
        key = (record["case"], record["name"], record["variant"])
        return rows.setdefault(key, Row(*key))

    asked_for = run.get("cases", [])
    figures: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    for record in records:
        kind = record["kind"]
        if kind == "failure" and record["case"] is None:
            for case in asked_for:
                _fail(row_of({**record, "case": case, "variant": ""}), record)
        elif kind == "failure":
            _fail(row_of(record), record)
        elif kind == "declined":
            row = row_of(record)
            row.status, row.reason = "declined", record["reason"]
        elif kind == "sweep":
            outcome = record["images_per_s"] if "images_per_s" in record else record["reason"]
            row_of(record).swept.append((record["setting"], outcome))
        elif kind == "prepared":
            row_of(record).stored_nbytes = record["nbytes"]
        elif kind == "chosen":
            row_of(record).setting = record["setting"]
        elif kind == "round":
            row = row_of(record)
            row.rounds[record["round"]] = _rate(record)
            figures.setdefault((row.case, row.name, row.variant), []).append(record)
    for key, found in figures.items():
        _fill(rows[key], found)
    _compare(list(rows.values()))
    order = {name: number for number, name in enumerate(CASES)}
    ranks = {"measured": 0, "pending": 1, "failed": 2, "declined": 3}
    return Results(
        run,
        contenders,
        sorted(
            rows.values(),
            key=lambda row: (
                order[row.case],
                ranks[row.status],
                -(row.rate.median if row.rate else 0.0),
                row.title,
            ),
        ),
    )


def _rate(record: dict[str, Any]) -> float:
    """Return samples per second; first batches per second in a case of the start, so that more is always better."""
    if CASES[record["case"]].start:
        return 1.0 / max(record["first_batch_s"], 1e-9)
    rate: float = record["images_per_s"]
    return rate


def _fail(row: Row, record: dict[str, Any]) -> None:
    row.status, row.reason = "failed", f"{record['stage']}: {record['reason']}"


def _fill(row: Row, found: Sequence[dict[str, Any]]) -> None:
    row.rate = Spread.of(_rate(record) for record in found)
    if row.status == "failed":
        row.notes.append(f"failed after {len(found)} rounds")
        return
    row.status = "measured"
    row.first_batch_s = Spread.of(record.get("first_batch_s") for record in found)
    row.cpu_ms = Spread.of(
        1e3 * record["cpu_s"] / record["images_per_s"]
        for record in found
        if record.get("cpu_s") is not None and record["images_per_s"]
    )
    row.peak_pss = Spread.of(record.get("peak_pss") for record in found)
    lags = [record["lag"] for record in found if record.get("lag", {}).get("ticks")]
    row.lag_p50_ms = Spread.of(lag["p50_ms"] for lag in lags)
    row.lag_p99_ms = Spread.of(lag["p99_ms"] for lag in lags)
    row.others_cpu_s = Spread.of(record.get("others_cpu_s") for record in found)
    row.explain = found[-1].get("explain", "")


def _compare(rows: Sequence[Row]) -> None:
    """Compute ratios to the bare loop and to this project's best, without and with a crop index, round by round."""
    for case in {row.case for row in rows}:
        mine = [row for row in rows if row.case == case and row.measured]
        bare = next((row for row in mine if row.name == BARE), None)
        ours = fastest(row for row in mine if row.name == OURS and not row.indexed)
        indexed = fastest(row for row in mine if row.indexed)
        for row in mine:
            if bare is not None and row is not bare:
                row.of_bare = _ratio(row, bare)
            if ours is not None and row is not ours:
                row.ahead = _ratio(ours, row)
            if indexed is not None and row is not indexed:
                row.ahead_indexed = _ratio(indexed, row)


def _ratio(above: Row, below: Row) -> Spread | None:
    return Spread.of(
        rate / below.rounds[number] for number, rate in above.rounds.items() if below.rounds.get(number)
    )


class KeptSettings:
    """Settings of an earlier run.

    Args:
        path: its ``results.json``, or a file of `benchmarks.published_results`.

    Raises:
        ValueError: it is not such a file.
        OSError: it cannot be read.
    """

    def __init__(self, path: Path) -> None:
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            runs = [run for run in content.get("parts", {"": content}).values() if "contenders" in run]
        except (ValueError, AttributeError):
            runs = []
        rows = [row for run in runs for row in run["rows"] if row.get("rate") and row["status"] == "measured"]
        if not rows:
            raise ValueError(f"{path} has no results of `python -m benchmarks`")
        self._versions = {
            name: facts["versions"] for run in runs for name, facts in run["contenders"].items()
        }
        self._settings = {
            (row["case"], row["name"], row.get("variant", "")): row.get("setting", {}) for row in rows
        }

    def find(
        self, case: str, name: str, variant: str, versions: Mapping[str, str], settings: Sequence[Any]
    ) -> Mapping[str, Any] | None:
        """Return a contender's setting of the earlier run, if it is still one of its settings.

        Args:
            case: name of the case.
            name, variant: of the contender.
            versions: versions of its packages. Those of the earlier run must be the same, except this project's own.
            settings: its settings.

        Returns:
            None if it has to be searched: it was not measured, or a package or the settings have changed.
        """
        found = self._settings.get((case, name, variant))
        before = self._versions.get(name, {})
        if any(versions.get(package, n) != n for package, n in before.items() if package != "aioloader"):
            return None
        return found if found in settings else None
