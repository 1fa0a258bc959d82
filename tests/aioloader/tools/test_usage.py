"""Tests of the resources of a process tree, measured from outside."""

from __future__ import annotations

import os
import subprocess
import sys

import psutil
import pytest

from aioloader.tools.bench import cpu_seconds, memory_nbytes, process_tree
from benchmarks.process import started

pytestmark = [
    pytest.mark.own_workers,
    pytest.mark.skipif(sys.platform != "linux", reason="reads /proc"),
]

PARENT = """
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "data = b'x' * 60_000_000; print('up', flush=True); input()"])
child.wait()
"""


def test_a_tree_is_a_process_and_what_it_started() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", PARENT], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "up\n"
        tree = process_tree(parent.pid)
        children = [child.pid for child in psutil.Process(parent.pid).children(recursive=True)]
        assert tree == [parent.pid, *children]
        assert len(tree) == 2
        assert (memory_nbytes(parent.pid) or 0) > 50_000_000
        assert (cpu_seconds(parent.pid) or 0) >= (cpu_seconds(children[0]) or 0) > 0
        assert started(parent.pid) is not None
        parent.communicate("\n")
    assert process_tree(parent.pid) == []


def test_what_is_not_there_uses_nothing() -> None:
    nobody = 2**22 + 1  # beyond the greatest process number
    assert process_tree(nobody) == []
    assert cpu_seconds(nobody) is None
    assert memory_nbytes(nobody) is None
    assert started(nobody) is None


def test_time_of_ended_children_counts() -> None:
    before = cpu_seconds(os.getpid())
    subprocess.run([sys.executable, "-c", "sum(range(3_000_000))"], check=True)
    after = cpu_seconds(os.getpid())
    assert before is not None
    assert after is not None
    assert after > before
