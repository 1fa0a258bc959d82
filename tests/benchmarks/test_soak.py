"""Tests of the soak run: it runs, it distinguishes growth from noise, and it detects a wrong batch."""

from __future__ import annotations

import argparse
import asyncio
import mmap
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import load_jpegs
from benchmarks.main_job import write_rec
from benchmarks.soak import Soak, private_nbytes, report, slope

ROOT = Path(__file__).parents[2]


def test_a_slope_is_growth_per_minute() -> None:
    seconds = np.arange(0.0, 600.0, 10.0)
    noise = np.random.default_rng(0).normal(0, 1, len(seconds))
    growth, error = slope(seconds, 100 + seconds / 60 * 0.5)
    assert (round(growth, 9), round(error, 9)) == (0.5, 0)
    growth, error = slope(seconds, 100 + noise)
    assert abs(growth) < 3 * error
    growth, error = slope(seconds, 100 + noise + seconds / 60)
    assert growth > 3 * error


def test_memory_is_what_the_process_has_written_to() -> None:
    with mmap.mmap(-1, 32 << 20, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as held:
        before = private_nbytes()
        for page in range(0, len(held), mmap.PAGESIZE):
            held[page] = 1
        assert 30 << 20 < private_nbytes() - before < 40 << 20


@pytest.mark.slow
def test_a_short_run() -> None:
    command = [sys.executable, "-W", "error", "-m", "benchmarks.soak", "--smoke", "--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all as planned" in done.stdout


@pytest.mark.slow
def test_a_batch_that_is_not_as_planned_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rec = tmp_path / "soak.rec"
    write_rec(rec, load_jpegs(None, str(tmp_path)), 1)
    options = argparse.Namespace(
        minutes=1.0, workers=1, batch_size=32, kill_s=100.0, round_s=30.0, seed=0, smoke=False, rows=False
    )
    soak = Soak(rec, options)
    soak._bad = soak._bad[1:]  # one failure is not expected
    asyncio.run(soak.run())
    assert report(soak) == 1
    assert "WRONG" in capsys.readouterr().out
