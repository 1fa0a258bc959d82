"""Tests of loaders' progress bars: their choice, place, text and end."""

from __future__ import annotations

import io
import sys
from importlib.util import find_spec

import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, SampleError
from aioloader.errors import MissingPackageError
from aioloader.loader import epoch_iterator
from aioloader.observability import progress
from aioloader.observability.progress import open_progress_bar
from tests.aioloader.loader.samples import Numbers
from tests.cases import with_cases


class Terminal(io.StringIO):
    encoding = "utf-8"

    def isatty(self):
        return True


BARS = [
    "plain",
    "tqdm",
    pytest.param("rich", marks=pytest.mark.skipif(not find_spec("rich"), reason="needs rich")),
]


@pytest.fixture
def terminal(monkeypatch):
    """Return a terminal that the test installs as standard error, after pytest has installed its file."""
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    out.install = lambda: monkeypatch.setattr(sys, "stderr", out)
    return out


@pytest.fixture(params=BARS)
def bar(request):
    return request.param


def last_line(out):
    lines = out.getvalue().replace("\x1b[K", "").replace("\r", "\n").split("\n")
    return next(line for line in reversed(lines) if "epoch" in line)


def test_on_a_terminal_it_reports_total_rate_and_waiting(bar, terminal):
    terminal.install()
    with DataLoader(Numbers(60, 0.002), 4, num_workers=0, progress=bar) as loader:
        for _ in loader:
            pass
    line = last_line(terminal)
    assert "epoch 0" in line
    assert "60/60" in line
    assert "samples/s" in line
    assert "% waiting for data" in terminal.getvalue()
    assert terminal.getvalue().endswith("\n") or "\x1b[?25h" in terminal.getvalue()[-20:]


def test_while_samples_are_kept_it_reports_their_share(terminal, monkeypatch):
    monkeypatch.setattr(epoch_iterator, "_COUNTED_S", -1.0)
    terminal.install()
    dataset = aioloader.cache_samples(Numbers(60), "10MB")
    with DataLoader(dataset, 4, num_workers=0, progress="plain") as loader:
        for number, _ in enumerate(loader):
            if number == 7:
                break
        assert ", 53% kept" in last_line(terminal)
        for _ in loader:
            pass
        assert "kept" not in last_line(terminal)


async def test_in_a_loop_of_ones_own_too(bar, terminal, leftovers):
    terminal.install()
    async with AsyncDataLoader(
        Numbers(60, 0.002), 4, executor="thread", num_workers=1, progress=bar
    ) as loader:
        async for _ in loader:
            pass
    assert "60/60" in last_line(terminal)


@with_cases("way", ["break", "async break", "error", "close"])
async def test_a_loop_that_is_left_ends_the_bar(bar, terminal, way):
    terminal.install()
    options = {"num_workers": 0, "progress": bar}
    before = len(terminal.getvalue())
    if way == "async break":
        async with AsyncDataLoader(Numbers(60), 4, **options) as loader:
            async for _ in loader:
                break
            shown = terminal.getvalue()
    else:
        with DataLoader(Numbers(60, fail=[30]), 4, **options) as loader:
            batches = iter(loader)
            next(batches)
            if way == "error":
                with pytest.raises(SampleError):
                    list(batches)
            elif way == "close":
                loader.close()
            del batches
            shown = terminal.getvalue()
    assert ("28/60" if way == "error" else "4/60") in shown[before:]
    assert shown.endswith("\n") or "\x1b[?25h" in shown[-20:]
    assert terminal.getvalue() == shown


def test_elsewhere_nothing_is_shown_unless_asked_for(monkeypatch):
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    for mode, shown in ((True, ""), ("plain", "epoch 0: 100%")):
        with DataLoader(Numbers(20), 4, num_workers=0, progress=mode) as loader:
            for _ in loader:
                pass
        assert out.getvalue().startswith(shown)
        assert bool(out.getvalue()) is bool(shown)


def test_a_terminal_that_goes_away_ends_the_bar_only(bar, terminal):
    terminal.install()
    with DataLoader(Numbers(60, 0.003), 4, num_workers=0, progress=bar) as loader:
        for number, _ in enumerate(loader):
            if number == 2:
                terminal.close()
    assert loader.stats().samples == 60


def test_a_bar_that_is_not_installed_is_named(monkeypatch):
    monkeypatch.setattr(progress.importlib.util, "find_spec", lambda name: None)
    with DataLoader(Numbers(8), 4, num_workers=0, progress="rich") as loader:
        with pytest.raises(MissingPackageError, match=r"aioloader\[progress\]"):
            list(loader)


def test_what_is_no_bar_is_refused():
    with pytest.raises(ValueError, match="progress must be one of"):
        DataLoader(Numbers(8), 4, progress="bar")


def test_in_a_notebook_there_is_a_bar(monkeypatch):
    class Shell:
        kernel = object()

    class IPython:
        @staticmethod
        def get_ipython():
            return Shell()

    monkeypatch.setitem(sys.modules, "IPython", IPython)
    out = io.StringIO()
    monkeypatch.setattr(sys, "stderr", out)
    display = open_progress_bar(True, "epoch 0", 3)
    assert display is not None
    display.advance(3, "")
    display.close()
    assert "3/3" in out.getvalue()


def test_bars_side_by_side_are_both_there(bar, terminal):
    terminal.install()
    options = {"num_workers": 0, "progress": bar}
    with (
        DataLoader(Numbers(40, 0.002), 4, **options) as first,
        DataLoader(Numbers(80, 0.001), 8, **options) as second,
    ):
        for _ in range(2):
            for _ in zip(first, second, strict=True):
                pass
    text = terminal.getvalue()
    assert "40/40" in text
    assert "80/80" in text
    assert "epoch 1" in text
    assert text.count("\x1b[?25l") == text.count("\x1b[?25h")  # the cursor is back
