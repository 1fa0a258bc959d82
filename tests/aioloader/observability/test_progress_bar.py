"""Tests of the progress bar: shown on a terminal, silent elsewhere, and never a cause of errors."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import re
import termios
import threading

import pytest

from aioloader.observability.progress import ProgressBar


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self) -> bool:
        return True


class Clock:
    """Clock that only the test moves."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr("tqdm.std.time", lambda: self.now)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def test_on_a_terminal_one_line_is_redrawn(clock: Clock) -> None:
    out = Terminal()
    with ProgressBar("epoch 0", 200, file=out) as bar:
        for _ in range(100):
            clock.now += 0.01
            bar.advance()
    lines = out.getvalue().split("\r")[1:]
    assert 8 <= len(lines) <= 12  # ten redraws in a second, not a hundred
    assert re.search(r"epoch 0:  \d\d%.*\d\d/200 \[00:00<00:01, *100\.00 images/s\]", lines[5])
    assert "100/200" in lines[-1]
    assert lines[-1].endswith("\n")


def test_no_colour_is_written(clock: Clock) -> None:
    out = Terminal()
    with ProgressBar("epoch 0", 2, file=out) as bar:
        clock.now += 1
        bar.advance()
    assert "\x1b[3" not in out.getvalue()


@pytest.mark.parametrize("columns", [20, 40, 80])
def test_the_line_fits_the_terminal(clock: Clock, columns: int) -> None:
    master, slave = os.openpty()
    try:
        termios.tcsetwinsize(slave, (24, columns))
        with (
            open(slave, "w", encoding="utf-8", closefd=False) as out,
            ProgressBar("epoch 0", 1_000_000, file=out) as bar,
        ):
            clock.now += 1
            bar.update(500_000)
        text = os.read(master, 1 << 16).decode()
    finally:
        os.close(slave)
        os.close(master)
    lines = [line for line in re.split(r"[\r\n]+", text) if line]
    assert lines
    assert max(map(len, lines)) <= columns  # tqdm before 4.68 uses the last column too


def test_elsewhere_lines_are_plain_and_rare(clock: Clock) -> None:
    out = io.StringIO()
    with ProgressBar("packing", 100, unit="files", file=out) as bar:
        for _ in range(100):
            clock.now += 0.25
            bar.advance()
    assert out.getvalue().splitlines() == [
        "packing:  40% 40/100 [00:10<00:15,  4.00 files/s]",
        "packing:  80% 80/100 [00:20<00:05,  4.00 files/s]",
        "packing: 100% 100/100 [00:25<00:00,  4.00 files/s]",
    ]


def test_what_was_done_before_does_not_count_for_the_rate(clock: Clock) -> None:
    out = io.StringIO()
    with ProgressBar("packing", 100, file=out, done=50) as bar:
        clock.now += 10
        bar.update(60)
    assert "60/100 [00:10<00:40,  1.00 images/s]" in out.getvalue()


def test_the_rate_is_that_of_the_last_redraws(clock: Clock) -> None:
    out = Terminal()
    bar = ProgressBar("epoch 0", 10_000, file=out)
    clock.now += 60  # a slow start
    bar.update(1)
    for _ in range(50):
        clock.now += 0.1
        bar.advance(10)
    rate = re.search(r"([\d.]+) images/s", out.getvalue().split("\r")[-1])
    assert rate is not None
    assert 95 < float(rate[1]) <= 101


def test_without_a_total_it_counts(clock: Clock) -> None:
    out = io.StringIO()
    with ProgressBar("scanning", unit="records", file=out) as bar:
        clock.now += 2
        bar.update(50)
    assert out.getvalue() == "scanning: 50 records [00:02, 25.00 records/s]\n"


def test_a_total_may_come_later(clock: Clock) -> None:
    out = io.StringIO()
    with ProgressBar("writing", unit="records", file=out) as bar:
        bar.set_total(4)
        clock.now += 2
        bar.update(4)
    assert "100%" in out.getvalue()


def test_a_closed_terminal_does_not_end_the_work(clock: Clock) -> None:
    out = Terminal()
    bar = ProgressBar("epoch 0", 10, file=out)
    out.close()
    clock.now += 1
    bar.advance()
    bar.close()
    bar.close()
    assert bar.done == 1


def test_a_full_disk_does_not_end_the_work(clock: Clock) -> None:
    class Full(io.StringIO):
        def write(self, text: str) -> int:
            raise OSError(28, "No space left on device")

    with ProgressBar("packing", 10, file=Full()) as bar:
        clock.now += 20
        bar.advance()
    assert bar.done == 1


def test_a_program_without_standard_error_has_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stderr", None)
    with ProgressBar("packing", 10) as bar:
        bar.advance(3)
    assert bar.done == 3


def test_a_terminal_that_fails_keeps_no_other_bar_waiting() -> None:
    # In another thread, because the lock of all bars is reentrant.
    leader, follower = pty.openpty()
    terminal = os.fdopen(follower, "w")
    bar = ProgressBar("first", 10, file=terminal, mode="tqdm")
    os.close(leader)  # the terminal is gone
    bar.advance(5)
    bar.close()
    with contextlib.suppress(OSError):  # what it could not write
        terminal.close()
    done = threading.Event()

    def draw() -> None:
        with ProgressBar("second", 10, file=io.StringIO(), mode="tqdm") as other:
            other.advance(10)
        done.set()

    threading.Thread(target=draw, daemon=True).start()
    assert done.wait(30)
