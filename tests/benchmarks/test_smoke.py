"""Tests that run every benchmark briefly, because unused scripts break unnoticed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "bare_loop",
        "buckets",
        "crop_index",
        "main_job",
        "many_workers",
        "first_batch",
        "fill",
        "image_record_iter",
        "import_time",
        "index_open",
        "large_results",
        "packing",
        "ragged",
        "resume",
        "scale",
        "tar_index",
        "tracing",
        "viewing",
        "windows",
        "worker_pool",
        "worker_scaling --cases faces",
    ],
)
def test_a_short_run_of_a_benchmark(name: str) -> None:
    if name == "viewing":
        pytest.importorskip("uvicorn", reason="`aioloader view` needs pip install 'aioloader[view]'")
    if name == "crop_index":
        pytest.importorskip("numba", reason="numba makes crop indexes: pip install 'aioloader[crops]'")
    command = [sys.executable, "-W", "error", "-m", *f"benchmarks.{name}".split(), "--smoke"]
    if name in ("bare_loop", "main_job", "first_batch", "packing", "ragged"):
        command += ["--workers", "2"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert "| --- |" in done.stdout
