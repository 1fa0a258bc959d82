"""Tests of the executors without processes where the calls of Linux, or those of POSIX, are missing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import pack
from tests.aioloader.loader import hidden_calls

ROOT = Path(__file__).parents[3]


# Elsewhere nothing has to be hidden.
PLATFORMS = ["linux", "darwin", "win32"] if sys.platform == "linux" else [sys.platform]


@pytest.mark.parametrize("platform", PLATFORMS)
def test_batches_are_the_same_without_the_calls_that_a_platform_lacks(platform: str, tmp_path: Path) -> None:
    folder, rec = tmp_path / "folder", tmp_path / "a.rec"
    draw_folder(folder, count=24, classes=3, sizes=((300, 400), (80, 60)))
    pack(folder, rec)
    wanted = {digest for path in (folder, rec) for digest in hidden_calls.digests(str(path))}
    assert len(wanted) == 1
    command = [sys.executable, hidden_calls.__file__, platform, folder, rec]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.split() == [*wanted] * 6, done.stderr
