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


@pytest.mark.torch
def test_a_run_that_stops_goes_on_with_any_number_of_ranks(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    if not torch.distributed.is_available():
        pytest.skip("this build of torch has no torch.distributed")
    for name, count in (("train", 50), ("val", 13)):
        draw_folder(tmp_path / "photos" / name, count=count, classes=2)
    whole = train(tmp_path, "whole.pt", 2)
    assert (
        train(tmp_path, "part.pt", 2, "--stop-at", "4")[-1] == "stopped after step 4: 24 samples of epoch 1"
    )
    shutil.copy(tmp_path / "part.pt", tmp_path / "three.pt")
    # The program itself raises ReceiptError if a sample is missing, or came twice.
    receipts = re.compile(r"50 samples, each once, and \d+ to fill up; validation: 13 images")
    assert [bool(receipts.search(line)) for line in whole] == [True, True, False]
    assert train(tmp_path, "part.pt", 2)[-1] == whole[-1]
    (epoch, _) = train(tmp_path, "three.pt", 3)
    assert epoch.startswith("epoch 1: 2 steps")
    assert receipts.search(epoch)
