"""Tests of the report of `benchmarks.before_after`; the measurements themselves are its use."""

from __future__ import annotations

from benchmarks.before_after import CASES, measurements, report


def test_the_report_compares_round_by_round() -> None:
    rates = {
        "slower": {"before": [100.0, 200.0, 100.0], "after": [90.0, 180.0, 100.0]},
        "faster": {"before": [10.0, 10.0, 10.0], "after": [20.0, 10.0, 20.0]},
    }
    _, slower, faster, last = report(rates).splitlines()
    assert "0.900 (0.900 to 1.000)" in slower
    assert slower.endswith("below 0.97")
    assert "2.000 (1.000 to 2.000)" in faster
    assert "below" not in faster
    assert last == "geometric mean 1.342, lowest 0.900"


def test_every_case_has_its_own_measurement() -> None:
    class Recorder:
        def case(self, name: str, seconds: float) -> str:
            return name

    found = measurements("photos", 1.0)
    assert [found[name](Recorder()) for name in CASES] == list(CASES)
