"""Tests that the fuzz targets have no findings, neither in the kept inputs nor in some new ones.

`python -m tests.fuzz --long` tries millions.
"""

from __future__ import annotations

import subprocess
import sys
from random import Random

import pytest

from recordio import RecordParser
from tests.fuzz import records
from tests.fuzz.runner import run
from tests.fuzz.target import ROOT, Finding, Tally, Target, attempt, corpus_of, shrink
from tests.fuzz.targets import TARGETS, load
from tests.fuzz.worker import NOWHERE, try_inputs

# Tried with every run of the test suite: half a second in all. The slow tests try many times as many.
QUICK = {
    "records": 1500,
    "jpeg": 200,
    "crops": 150,
    "entries": 100,
    "parts": 120,
    "crop-indexes": 60,
    "sample-indexes": 100,
    "rows": 300,
    "parquet": 12,
    "index": 200,
    "files": 8,
    "lst": 60,
    "header": 200,
    "sets": 60,
    "arrays": 200,
    "images": 80,
    "tables": 60,
    "hub-answers": 200,
    "boxes": 100,
    "mds": 120,
    "tfrecord": 120,
    "tar": 60,
    "references": 300,
    "http-responses": 100,
    "states": 80,
}
MORE = 25


@pytest.fixture(scope="module", params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def target(name: str) -> Target:
    if needed := TARGETS[name].needs:
        pytest.importorskip(needed, reason=f"the target {name!r} needs the package {needed}")
    return load(name)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", NOWHERE)


def no_findings(tally: Tally) -> None:
    assert tally.found == {}, "\n".join(f"{one.data!r}\n{one.text}" for one in tally.found.values())


def test_inputs_that_were_kept_show_no_fault_any_more(name: str, target: Target) -> None:
    tally = Tally()
    for path in corpus_of(name):
        attempt(target, path.read_bytes(), tally)
    no_findings(tally)


def test_new_inputs_show_no_fault(name: str, target: Target) -> None:
    tally = try_inputs(target, QUICK[name], "quick", float("inf"))
    no_findings(tally)
    assert tally.inputs == QUICK[name]


@pytest.mark.slow
def test_many_new_inputs_show_no_fault_and_half_of_them_get_past_the_first(name: str, target: Target) -> None:
    tally = try_inputs(target, MORE * QUICK[name], "many", float("inf"))
    no_findings(tally)
    assert tally.inputs == MORE * QUICK[name]
    assert tally.share(target.past) > 0.5, tally.outcomes


def test_a_seed_gives_the_same_inputs_again() -> None:
    made = []
    for seed in ("a", "a", "b"):
        target, draw = load("index"), Random(seed).random
        made.append([target.make(draw) for _ in range(50)])
    assert made[0] == made[1] != made[2]


class Forgetful(RecordParser):
    """Target that loses the last byte of long records."""

    def next_record(self):  # type: ignore[no-untyped-def]
        record = super().next_record()
        return record[:-1] if isinstance(record, bytes) and len(record) > 35 else record


def test_a_wrong_parser_is_found_and_the_input_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    target = load("records")
    monkeypatch.setattr(records, "RecordParser", Forgetful)
    tally = try_inputs(target, 300, "wrong", float("inf"))
    assert tally.outcomes["finding"] > 10
    found = min(tally.found.values(), key=lambda one: len(one.data))
    assert "Finding" in found.text
    # One record of 36 bytes is the smallest input that shows it.
    assert 44 <= len(found.data) <= 120
    with pytest.raises(Finding):
        target.check(found.data)
    monkeypatch.undo()
    target.check(found.data)


def test_shrinking_keeps_the_finding() -> None:
    class Picky:
        past = frozenset[str]()

        def make(self, draw: object) -> bytes:
            return b""

        def check(self, data: bytes) -> str:
            if b"a" in data and b"z" in data:
                raise Finding("both")
            return "fine"

    place = "Finding at tests/fuzz/test_fuzz.py:"
    tally = Tally()
    attempt(Picky(), b"xxxaxxxxxxxzxx", tally)
    ((where, found),) = tally.found.items()
    assert where.startswith(place)
    assert found.data == b"az"
    assert shrink(Picky(), b"qaz", "something else") == b"qaz"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("toy", "says"),
    [("Wrong", "Finding"), ("Hanging", "no end within"), ("Crashing", "ended with status -11")],
)
def test_a_target_that_misbehaves_is_reported_and_the_run_continues(toy: str, says: str) -> None:
    tally = run(f"tests.fuzz.toys:{toy}", inputs=60, processes=2, hang_s=1.0)
    (place,) = tally.found
    assert place.startswith(says)
    assert 77 in tally.found[place].data
    assert tally.inputs == 60
    assert tally.outcomes["fine"] > 0 or toy == "Crashing"


@pytest.mark.slow
def test_a_short_run_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "records", "jpeg", "--inputs", "2000", "--seconds", "30"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "records: 2,000 inputs" in done.stdout
    assert "jpeg: 2,000 inputs" in done.stdout
