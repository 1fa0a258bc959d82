"""The progress bar: alive on a terminal, quiet elsewhere, and never a reason to fail."""

from __future__ import annotations

import io
import re

import pytest

from aioloader.observability import progress_bar
from aioloader.observability.progress_bar import ProgressBar


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that stands where the test puts it."""
    now = [100.0]
    monkeypatch.setattr(progress_bar, "monotonic", lambda: now[0])
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "100")
    return now


def test_on_a_terminal_one_line_is_redrawn(clock: list[float]) -> None:
    out = Terminal()
    with ProgressBar("epoch 0", 200, file=out) as bar:
        for _ in range(100):
            clock[0] += 0.01
            bar.advance()
    lines = out.getvalue().split("\r")[1:]
    assert 8 <= len(lines) <= 12  # ten redraws in a second, not a hundred
    assert "\x1b[36m" in lines[3]
    assert re.search(r"epoch 0  \d\d% .*100 images/s  1\.\d s left", lines[4])
    assert lines[-1].endswith("\x1b[K\n")
    assert "100/200  100 images/s  in 1.0 s" in lines[-1]


def test_no_color_is_honoured(clock: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    with ProgressBar("epoch 0", 2, file=out):
        pass
    assert "\x1b[3" not in out.getvalue()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_the_line_fits_the_terminal(
    clock: list[float], monkeypatch: pytest.MonkeyPatch, columns: int
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    monkeypatch.setenv("NO_COLOR", "1")
    out = Terminal()
    with ProgressBar("epoch 0", 1_000_000, file=out) as bar:
        clock[0] += 1
        bar.update(500_000)
    for line in out.getvalue().replace("\x1b[K", "").replace("\n", "").split("\r"):
        assert len(line) < columns


def test_elsewhere_lines_are_plain_and_seldom(clock: list[float]) -> None:
    out = io.StringIO()
    with ProgressBar("packing", 100, unit="files", file=out) as bar:
        for _ in range(100):
            clock[0] += 0.25
            bar.advance()
    assert out.getvalue().splitlines() == [
        "packing  40%  40/100  4 files/s  15 s left",
        "packing  80%  80/100  4 files/s  5.0 s left",
        "packing 100%  100/100  4 files/s  in 25 s",
    ]


def test_the_rate_is_that_of_the_last_seconds(clock: list[float]) -> None:
    out = Terminal()
    bar = ProgressBar("epoch 0", 10_000, file=out)
    clock[0] += 60  # a slow start
    bar.update(1)
    for _ in range(50):
        clock[0] += 0.1
        bar.advance(10)
    assert "100 images/s" in out.getvalue().split("\r")[-1]


def test_without_a_total_it_counts(clock: list[float]) -> None:
    out = io.StringIO()
    with ProgressBar("scanning", unit="records", file=out) as bar:
        clock[0] += 2
        bar.update(50)
    assert out.getvalue() == "scanning  50 records  25 records/s  in 2.0 s\n"


def test_a_closed_terminal_does_not_end_the_work(clock: list[float]) -> None:
    out = Terminal()
    bar = ProgressBar("epoch 0", 10, file=out)
    out.close()
    clock[0] += 1
    bar.advance()
    bar.close()
    bar.close()


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (9.94, "9.9 s"), (42, "42 s"), (100, "2 min"), (5000, "83 min"), (7500, "2 h 05 min")],
)
def test_durations_are_read_at_a_glance(seconds: float, text: str) -> None:
    assert progress_bar._duration(seconds) == text
