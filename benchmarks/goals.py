"""Expected figures of peers, and the goals of this project, compared with a run's results.

Expected figures come from one earlier measurement of JPEG photographs on two cores. A peer that is
much slower, as a share of the bare loop in the same round, has a badly configured adapter and proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable  # noqa: TC003 - fields of a named tuple
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.results import Results, Row, Spread, fastest

if TYPE_CHECKING:
    from collections.abc import Sequence


BARE_EXPECTED = (1500.0, 1616.0)
"""Images/s that two bare loops, of two processes on two cores, reached; this machine's figure is compared with them."""

EXPECTED = {
    ("jpeg-uint8", "tf_data"): 1392.0,
    ("jpeg-uint8", "grain"): 1150.0,
    ("jpeg-uint8", "torch/opencv"): 1079.0,
    ("jpeg-uint8", "dali"): 1057.0,
    ("jpeg-uint8", "ffcv"): 885.0,
    ("jpeg-antialias", "torch/pillow"): 709.0,
    ("jpeg-uint8", "spdl/opencv"): 535.0,
    ("jpeg-uint8", "mxnet/ImageRecordIter"): 428.0,
    ("jpeg-uint8", "mxnet/gluon"): 367.0,
    ("raw-area", "ffcv"): 2350.0,
}
"""Images/s of peers, measured together with a bare loop of 1,616 images/s, by case and title."""

_TOLERANCE = 0.9


Found = tuple[float, float, float]
"""Median, low, high of a run."""


class Goal(NamedTuple):
    """Goal of this project.

    Attributes:
        case: its case.
        text: description of the comparison.
        least, aim: the minimum, and the figure to aim for, or None.
        unit: "x" (a ratio), "s", "ms" or "us".
        find: returns the figure of a run, or None if it is missing.
        upwards: True if more is better; else less is better.
        against: (case, title) of the peer that it is compared with, or None.
    """

    case: str
    text: str
    least: float
    aim: float | None
    unit: str
    find: Callable[[Results], Found | None]
    upwards: bool = True
    against: tuple[str, str] | None = None


class Outcome(NamedTuple):
    """Goal with its figure in a run.

    Attributes:
        goal: the goal.
        found: its figure, or None.
        verdict: "aim", "met", "missed", "not measured", or "doubtful": reached, but against a peer that is much slower
            than expected.
    """

    goal: Goal
    found: Found | None
    verdict: str


def mark_peers(results: Results) -> None:
    """Add a note to the rows in which a peer, or the bare loop itself, is slower than expected."""
    low, high = BARE_EXPECTED
    for row in results.rows:
        if not row.measured or row.rate is None:
            continue
        if row.name == "bare_loop" and row.case == "jpeg-uint8":
            row.notes.append(
                f"the targets were set on two cores on which the bare loop made {low:,.0f} to {high:,.0f} images/s; "
                f"here it makes {row.rate.median / high:.2f} times the {high:,.0f}"
            )
        rates = [
            EXPECTED[row.case, title] for title in (row.title, row.name) if (row.case, title) in EXPECTED
        ]
        # The expected figure for raw pixels was measured together with the bare loop of JPEGs.
        bare = results.row("jpeg-uint8", "bare_loop")
        if not rates or bare is None or bare.rate is None:
            continue
        expected = rates[0] / high
        share = row.rate.median / bare.rate.median
        if row.case == bare.case and row.of_bare is not None:
            share = row.of_bare.median
        if share < _TOLERANCE * expected:
            row.doubtful = True
            row.notes.append(
                f"below the expected rate: {share:.2f} of the bare loop, where {expected:.2f} was measured before; "
                "no claim is based on it"
            )


def judge_goals(results: Results, repeated: Sequence[Results] = ()) -> list[Outcome]:
    """Compare every goal whose case was run with the results, after `mark_peers`.

    Args:
        results: of the run.
        repeated: of runs of single cases with more rounds, whose figures count in place of those of `results`.
    """
    outcomes = []
    for goal in _GOALS:
        if goal.case not in results.cases:
            continue
        again = (goal.find(run) for run in repeated if goal.case in run.cases)
        found = next((figures for figures in again if figures is not None), None) or goal.find(results)
        if found is None:
            verdict = "not measured"
        elif goal.aim is not None and _reached(found[0], goal.aim, goal.upwards):
            verdict = "aim"
        else:
            verdict = "met" if _reached(found[0], goal.least, goal.upwards) else "missed"
        peer = None if goal.against is None else results.row(*goal.against)
        if peer is not None and peer.doubtful and verdict in ("aim", "met"):
            verdict = "doubtful"
        outcomes.append(Outcome(goal, found, verdict))
    return outcomes


def _reached(value: float, wanted: float, upwards: bool) -> bool:
    return value >= wanted if upwards else value <= wanted


def _ratio(above: Row | None, below: Row | None) -> Found | None:
    """Return the ratio of two rows, round by round."""
    if above is None or below is None:
        return None
    shared = sorted(set(above.rounds) & set(below.rounds))
    return Spread.of(above.rounds[number] / below.rounds[number] for number in shared)


def _ahead(
    case: str,
    peer: str,
    least: float,
    aim: float | None = None,
    *,
    own: str = "aioloader",
    indexed: bool = False,
    peer_case: str = "",
) -> Goal:
    """Return a goal for a row of this project against one of a peer or of this project.

    Args:
        case: of the row.
        peer: title of the other row.
        least, aim: the ratio.
        own: title of the row; the name alone is the fastest one.
        indexed: with a crop index.
        peer_case: of the other row, if it is another one.
    """
    against = (peer_case or case, peer)
    shown = "aioloader without an index" if indexed and peer == "aioloader" else peer
    where = f" in {peer_case}" if peer_case else ""
    begin = "with a crop index, " if indexed else f"{own} " if own != "aioloader" else ""

    def find(results: Results) -> Found | None:
        return _ratio(results.row(case, own, indexed=indexed), results.row(*against))

    return Goal(case, f"{begin}times {shown}{where}", least, aim, "x", find, against=against)


def _both_ahead(case: str, peer: str, least: float, aim: float | None = None) -> Goal:
    """Return a goal for the slower of the async and the blocking loader against a peer."""

    def find(results: Results) -> Found | None:
        mine = (results.row(case, f"aioloader/{variant}") for variant in ("inline", "blocking"))
        found = (_ratio(row, results.row(case, peer)) for row in mine)
        return min((each for each in found if each is not None), default=None)

    return Goal(case, f"async and blocking, times {peer}", least, aim, "x", find, against=(case, peer))


def _best_peer(case: str, least: float, aim: float) -> Goal:
    def find(results: Results) -> Found | None:
        peers = (row for row in results.of_case(case) if row.name not in ("aioloader", "bare_loop"))
        return _ratio(results.row(case, "aioloader"), fastest(peers))

    return Goal(case, "times the best peer", least, aim, "x", find)


def _at_most(
    case: str,
    text: str,
    variant: str,
    least: float,
    aim: float | None,
    unit: str,
    figure: Callable[[Row], Any],
) -> Goal:
    """Return a goal for a figure of a variant of this project, of which less is better."""

    def find(results: Results) -> Found | None:
        row = results.row(case, f"aioloader/{variant}")
        return row and figure(row)

    return Goal(case, text, least, aim, unit, find, upwards=False)


def _cost(variant: str, least: float) -> Goal:
    def figure(row: Row) -> Found | None:
        return row.rate and (1e6 / row.rate.median, 1e6 / row.rate.high, 1e6 / row.rate.low)

    return _at_most("bytes", f"microseconds per record, {variant}", variant, least, 2.0, "us", figure)


def _start_against_torch(least: float) -> Goal:
    def find(results: Results) -> Found | None:
        # Rates of starts are the inverse of times.
        return _ratio(results.row("first-batch", "torch"), results.row("first-batch", "aioloader/fork"))

    return Goal("first-batch", "fork, times torch's forked start", least, None, "x", find, upwards=False)


def _lag(variant: str, least: float, aim: float) -> Goal:
    text = f"loop lag p99, {variant}"
    return _at_most("jpeg-uint8", text, variant, least, aim, "ms", attrgetter("lag_p99_ms"))


def _start(variant: str, least: float, aim: float | None) -> Goal:
    text = f"seconds, {variant}"
    return _at_most("first-batch", text, variant, least, aim, "s", attrgetter("first_batch_s"))


_GOALS = (
    _ahead("jpeg-antialias", "tf_data", 1.35),
    _ahead("jpeg-antialias", "torch/pillow", 2.0),
    _ahead("jpeg-antialias", "torch/torchvision", 1.8),
    _ahead("jpeg-antialias", "aioloader", 0.9, peer_case="jpeg-uint8"),
    _ahead("jpeg-antialias", "tf_data", 2.0, indexed=True),
    _ahead("jpeg-uint8", "tf_data", 1.15, 1.3),
    _ahead("jpeg-uint8", "tf_data", 1.7, 2.0, indexed=True),
    _ahead("jpeg-uint8", "aioloader", 1.35, indexed=True),
    _ahead("jpeg-uint8", "grain", 1.4),
    _ahead("jpeg-uint8", "dali", 1.5),
    _ahead("jpeg-uint8", "mxnet/ImageRecordIter", 3.7),
    _best_peer("jpeg-float32", 1.15, 1.3),
    _ahead("jpeg-float32", "aioloader", 1.25, indexed=True),
    _ahead("large", "tf_data", 8.0, indexed=True),
    _ahead("formats", "webdataset", 1.4, own="aioloader/tar"),
    _ahead("formats", "tf_data", 1.2, own="aioloader/tfrecord"),
    _ahead("formats", "hf_datasets/opencv", 2.0, own="aioloader/parquet"),
    _ahead("formats", "streaming/opencv", 1.4, own="aioloader/mds"),
    _ahead("formats", "aioloader/process", 0.95, own="aioloader/tar"),
    _ahead("formats", "aioloader/process", 0.95, own="aioloader/tfrecord"),
    _ahead("formats", "aioloader/process", 0.95, own="aioloader/mds"),
    _ahead("raw", "bare_loop", 0.8),
    _ahead("raw", "tf_data", 5.0, peer_case="jpeg-uint8"),
    _ahead("raw-area", "ffcv", 1.5),
    _ahead("faces", "bare_loop", 0.85, 0.92),
    _ahead("faces", "dali", 1.2),
    _ahead("faces", "tf_data", 1.6),
    _ahead("faces", "torch/opencv", 2.2),
    _ahead("faces", "torch/pillow", 3.0),
    _ahead("faces", "grain", 2.0),
    _ahead("faces", "mxnet/ImageRecordIter", 2.0),
    _both_ahead("arrays", "torch/plain", 4.0, 6.0),
    _both_ahead("arrays", "mxnet/gluon", 10.0),
    _both_ahead("arrays", "bare_loop", 0.5),
    _cost("inline", 4.0),
    _cost("thread", 5.0),
    _ahead("bytes", "torch/plain", 5.0),
    _ahead("bytes", "torch/workers", 5.0),
    _lag("process", 5.0, 2.0),
    _lag("thread", 15.0, 5.0),
    _start("thread", 0.1, None),
    _start("process", 0.35, 0.3),
    _start_against_torch(1.3),
)
