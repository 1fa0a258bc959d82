"""Tests of the program of docs/end-to-end.md: the page shows its parts, and a stopped run loses and repeats nothing."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aioloader.tools.draw import draw_folder
from tests.docs.blocks import blocks

PROGRAM = Path(__file__).parents[3] / "examples" / "torch_end_to_end.py"


def test_the_page_shows_parts_of_the_program() -> None:
    code = PROGRAM.read_text(encoding="utf-8")
    shown = blocks("end-to-end.md", "python")
    assert len(shown) == 5
    assert [block.place for block in shown if block.code not in code] == []


def train(folder: Path, checkpoint: str, ranks: int, *options: str) -> list[str]:
    """Run the program on some ranks; return its lines."""
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(PROGRAM.parents[1]),
        "GLOO_SOCKET_IFNAME": "lo",
        "OMP_NUM_THREADS": "1",
        "CUDA_VISIBLE_DEVICES": "",
    }
    arguments = [str(PROGRAM), "photos", checkpoint, "--epochs", "2", "--workers", "0", *options]
    done = subprocess.run(
        [*command, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Draw images, and train two ranks until the second epoch's first step; return the folder."""
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    folder = tmp_path_factory.mktemp("run")
    for name, count in (("train", 50), ("val", 13)):
        draw_folder(folder / "photos" / name, count=count, classes=2)
    lines = train(folder, "part.pt", 2, "--stop-at", "4")
    assert lines[-1] == "stopped after step 4: 24 samples of epoch 1"
    return folder


# The program itself raises ReceiptError if a sample is missing, or came twice.
RECEIPTS = re.compile(r"50 samples, each once, and \d+ to fill up; validation: 13 images")


@pytest.mark.torch
@pytest.mark.slow
def test_a_run_that_stops_goes_on_with_another_number_of_ranks(stopped: Path) -> None:
    shutil.copy(stopped / "part.pt", stopped / "three.pt")
    epoch, _ = train(stopped, "three.pt", 3)
    assert epoch.startswith("epoch 1: 2 steps")
    assert RECEIPTS.search(epoch)


@pytest.mark.torch
@pytest.mark.slow
def test_a_run_that_stops_ends_with_the_weights_of_one_that_does_not(stopped: Path) -> None:
    shutil.copy(stopped / "part.pt", stopped / "two.pt")
    assert train(stopped, "two.pt", 2)[-1] == train(stopped, "whole.pt", 2)[-1]
