"""Test of the program for Ctrl-C on the page Troubleshooting."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

import recordio
from tests.docs.blocks import ROOT, blocks

pytestmark = pytest.mark.slow


def test_a_program_that_ctrl_c_ends_learns_from_every_image_once(photo_rec: Path, tmp_path: Path) -> None:
    for suffix in (".rec", ".idx"):
        shutil.copy(photo_rec.with_suffix(suffix), tmp_path / f"train{suffix}")
    (block,) = (block for block in blocks("troubleshooting.md", "python") if block.title)
    code = block.code.replace("size=224, batch_size=64", "size=32, batch_size=4")
    # A step that takes some time, in which the signal arrives.
    slow = code.replace("    model += ", "    import time\n    time.sleep(0.5)\n    model += ")
    assert slow != code != block.code

    begun = _run(slow, tmp_path, interrupt=True)
    assert (tmp_path / "checkpoint.json").is_file()
    rest = _run(code, tmp_path, interrupt=False)
    with recordio.RecordReader(tmp_path / "train.rec") as reader:
        assert sum(begun) + sum(rest) == len(reader)
    assert (len(begun) > 0, len(rest) > 0) == (True, True)


def _run(code: str, folder: Path, *, interrupt: bool) -> list[int]:
    """Run the program; return the sizes of the batches that it learned from."""
    program = folder / "interruptible.py"
    program.write_text(code, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, program.name],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as running:
        assert running.stdout is not None
        lines = [running.stdout.readline()]
        if interrupt:
            os.killpg(running.pid, signal.SIGINT)  # as a terminal does: to the workers, too
        lines += running.stdout.readlines()
        assert running.wait(60) == 0
    return [int(line.split()[2]) for line in lines]
