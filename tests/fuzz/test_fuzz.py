"""Tests that the fuzz targets have no findings, neither in the kept inputs nor in some new ones.

`python -m tests.fuzz` tries millions.
"""

from __future__ import annotations

import subprocess
import sys
from itertools import islice

import pytest

from recordio import RecordParser
from tests.fuzz import records
from tests.fuzz.target import (
    NEEDS,
    NOWHERE,
    ROOT,
    TARGETS,
    Finding,
    Tally,
    Target,
    attempt,
    corpus_of,
    load,
    new_inputs,
    try_inputs,
)

MORE = 25


@pytest.fixture(scope="module", params=TARGETS)
def name(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture(scope="module")
def target(name: str) -> Target:
    if name in NEEDS:
        pytest.importorskip(NEEDS[name], reason=f"the target {name!r} needs the package {NEEDS[name]}")
    return load(name)


@pytest.fixture(autouse=True)
def no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", NOWHERE)


def no_findings(tally: Tally) -> None:
    assert tally.found == {}, "\n".join(f"{data!r}\n{text}" for data, text in tally.found.values())


def test_kept_and_new_inputs_show_no_fault(name: str, target: Target) -> None:
    tally = try_inputs(name, target, TARGETS[name][1], "quick")
    for data in corpus_of(name):
        attempt(target, data, tally)
    no_findings(tally)


@pytest.mark.slow
def test_many_new_inputs_show_no_fault_and_half_of_them_get_past_the_first(name: str, target: Target) -> None:
    tally = try_inputs(name, target, MORE * TARGETS[name][1], "many")
    no_findings(tally)
    assert tally.past > tally.inputs / 2


def test_a_seed_gives_the_same_inputs_again() -> None:
    target = load("index")
    made = [[*islice(new_inputs(target, [], seed), 50)] for seed in "aab"]
    assert made[0] == made[1] != made[2]


class Forgetful(RecordParser):
    """Target that loses the last byte of long records."""

    def next_record(self):  # type: ignore[no-untyped-def]
        record = super().next_record()
        return record[:-1] if isinstance(record, bytes) and len(record) > 35 else record


def test_a_wrong_parser_is_found_and_the_input_made_small(monkeypatch: pytest.MonkeyPatch) -> None:
    target = load("records")
    monkeypatch.setattr(records, "RecordParser", Forgetful)
    tally = try_inputs("records", target, 300, "wrong")
    assert all(where.startswith("Finding at tests/fuzz/records.py:") for where in tally.found)
    data, text = min(tally.found.values(), key=lambda found: len(found[0]))
    assert "Finding" in text
    # One record of 36 bytes is the smallest input that shows it.
    assert 44 <= len(data) <= 120
    with pytest.raises(Finding):
        target.check(data)
    monkeypatch.undo()
    target.check(data)


@pytest.mark.slow
def test_a_short_run_from_the_command_line() -> None:
    command = [sys.executable, "-m", "tests.fuzz", "records", "jpeg", "--inputs", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "records: 1,000 inputs" in done.stdout
    assert "jpeg: 1,000 inputs" in done.stdout
