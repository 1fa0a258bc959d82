"""Tests of the soak run: it runs, it distinguishes growth from noise, and it detects a wrong batch."""

from __future__ import annotations

import asyncio
import json
import mmap
import subprocess
import sys
from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.data import load_jpegs, write_rec
from benchmarks.soak import Options, Soak, Usage, figures, is_faulty, private_nbytes, slope

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


def test_figures_have_the_counts_and_the_growth_after_the_first_rounds() -> None:
    soak = Namespace(rounds=20, resumed=4, batches=900, wrong=[], kills=7, failed=3, usage=[])
    counts = {row["counted"]: row["number"] for row in figures(soak)}
    assert counts == {
        "rounds": 20,
        "of them resumed": 4,
        "batches": 900,
        "wrong batches and other faults": 0,
        "workers killed": 7,
        "samples that failed on purpose": 3,
    }
    soak.usage = [Usage(60.0 * n, (100 + (n if n > 3 else 50)) << 20, 9, 4, 0) for n in range(20)]
    growth = {row["growth of"]: row["a minute"] for row in figures(soak) if "growth of" in row}
    assert growth == {"memory (MiB)": 1.0, "descriptors": 0.0, "threads": 0.0}
    assert is_faulty(figures(soak))
    soak.usage = [Usage(60.0 * n, 100 << 20, 9, 4, 0) for n in range(20)]
    assert not is_faulty(figures(soak))


@pytest.mark.slow
def test_a_short_run(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-m", "benchmarks.soak", "--smoke", "--workers", "2"]
    command += ["--json", str(tmp_path / "rows.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = {
        row["counted"]: row["number"]
        for row in json.loads((tmp_path / "rows.json").read_text())
        if "counted" in row
    }
    assert rows["batches"] > 0
    assert rows["wrong batches and other faults"] == 0


@pytest.mark.slow
def test_a_batch_that_is_not_as_planned_is_noticed(tmp_path: Path) -> None:
    rec = tmp_path / "soak.rec"
    write_rec(rec, load_jpegs(None), 1)
    soak = Soak(rec, Options(minutes=1.0, workers=1, batch_size=32, kill_s=100.0, round_s=30.0, seed=0))
    soak._bad = soak._bad[1:]  # one failure is not expected
    asyncio.run(soak.run())
    assert soak.wrong
    assert is_faulty(figures(soak))
