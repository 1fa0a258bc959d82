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

# How many of 2,000 uses are of each kind, for each end and data.
WAYS = [
    ("blocking", "inline", 100),
    ("blocking", "thread", 100),
    ("blocking", "process", 40),
    ("async", "inline", 100),
    ("async", "thread", 100),
    ("async", "process", 40),
    ("service", "thread", 60),
    ("service", "process", 20),
]
QUICK = {("blocking", "thread", "with", "images"), ("async", "thread", "without", "numbers")}


def cases() -> Iterator[Any]:
    """Yield the uses; few of them are quick."""
    total = int(os.environ.get("AIOLOADER_TEST_INTERRUPTS", "200"))
    for (face, executor, rounds), closes, data in product(WAYS, ["with", "without"], ["images", "numbers"]):
        case = (face, executor, closes, data)
        if face == "service" and (closes, data) != ("with", "images"):
            continue  # it is entered, and reads images
        name = "-".join(case)
        if case in QUICK:
            yield pytest.param(*case, 20, id=f"{name}-quick")
        yield pytest.param(*case, max(2, rounds * total // 2000), id=name, marks=pytest.mark.slow)


@pytest.fixture(scope="session")
def images(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("interrupts") / "folder"
    draw_folder(folder, count=40, classes=2)
    return folder


@pytest.mark.parametrize(("face", "executor", "closes", "data", "rounds"), [*cases()])
def test_ctrl_c_at_a_random_moment_leaves_nothing(
    images: Path, face: str, executor: str, closes: str, data: str, rounds: int
) -> None:
    program = "tests.aioloader.loader.interrupted_program"
    words = [face, executor, closes, str(images) if data == "images" else "", str(rounds), "1"]
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
