"""Tests of Ctrl-C at random moments in a program that goes on: no thread, process, file or memory is left."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from aioloader.tools.draw import draw_folder

# How many of 2,000 uses are of each kind, for each end.
WAYS = [
    ("blocking", "inline", 200),
    ("blocking", "thread", 200),
    ("blocking", "process", 80),
    ("async", "inline", 200),
    ("async", "thread", 200),
    ("async", "process", 80),
    ("service", "thread", 60),
    ("service", "process", 20),
]
QUICK = {("blocking", "thread", "with"), ("async", "thread", "without")}


def cases() -> Iterator[Any]:
    """Yield the uses: of images with a loader that is closed, of numbers with one that is not; few are quick."""
    total = int(os.environ.get("AIOLOADER_TEST_INTERRUPTS", "200"))
    for (face, executor, rounds), closes in product(WAYS, ["with", "without"]):
        case = (face, executor, closes)
        if face == "service" and closes == "without":
            continue  # it is entered, and reads images
        name = "-".join(case)
        if case in QUICK:
            yield pytest.param(*case, 12, id=f"{name}-quick")
        yield pytest.param(*case, max(2, rounds * total // 2000), id=name, marks=pytest.mark.slow)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupts") / "folder"
    draw_folder(folder, count=40, classes=2)
    return folder


@pytest.mark.parametrize(("face", "executor", "closes", "rounds"), [*cases()])
def test_ctrl_c_at_a_random_moment_leaves_nothing(
    images: Path, face: str, executor: str, closes: str, rounds: int
) -> None:
    program = "tests.aioloader.loader.interrupted_program"
    words = [face, executor, closes, str(images) if closes == "with" else "", str(rounds), "1"]
    done = subprocess.run(
        [sys.executable, "-m", program, *words],
        capture_output=True,
        text=True,
        timeout=280,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    assert report["interrupted"] >= report["rounds"] // 4
    assert (report["left"], report["slow"]) == ([], [])
