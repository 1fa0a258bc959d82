"""Tests of one job in a fresh process: its report, and contenders that print, crash, hang or are wrong."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from benchmarks.cases import CASES
from benchmarks.process import JobFailure, busy_seconds, run_job

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")

CASE = CASES["arrays"].scaled(0.002)

CONTENDER = """
import contextlib, os, signal, subprocess, sys, threading
import numpy as np
print("noise on standard output")
VARIANTS = ("",)
PACKAGES = ("numpy", "no-such-distribution")

def supports(case, variant):
    return None if case.store == "arrays" else "only arrays"

def settings(case, variant, cores):
    return [{"cores": cores, "pinned": sorted(os.sched_getaffinity(0))}]

def prepare(case, variant, source, folder):
    return folder

class Stream:
    def __init__(self, case, wrong):
        self.case, self.wrong = case, wrong
    def __iter__(self):
        case = self.case
        order = np.random.permutation(case.samples)
        for start in range(0, case.samples, case.batch_size):
            numbers = order[start : start + case.batch_size]
            images = np.zeros((len(numbers), *case.shape), "float32" if self.wrong else "uint8")
            yield images, numbers

@contextlib.contextmanager
def open_batches(case, variant, data, setting):
    how = setting.get("how")
    if how == "crash":
        print("the last words", file=sys.stderr, flush=True)
        os._exit(3)
    if how == "signal":
        os.kill(os.getpid(), signal.SIGSEGV)
    if how == "raise":
        raise RuntimeError("out of\\norder")
    if how == "hang":
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
        open(os.path.join(data, "child"), "w").write(str(child.pid))
        threading.Event().wait()
    yield Stream(case, how == "wrong")
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "a_contender.py").write_text(CONTENDER)
    return tmp_path


def _run(folder: Path, job: str, limit_s: float = 60, **request: Any) -> dict[str, Any]:
    return run_job(
        Path(sys.executable),
        "a_contender",
        job,
        limit_s=limit_s,
        case=CASE,
        cores=(min(os.sched_getaffinity(0)),),
        module="a_contender",
        variables={"PYTHONPATH": str(folder)},
        variant="",
        data=str(folder),
        **request,
    )


TIMES = {"warm": 0.01, "timed": 0.1, "lag": 0.01, "memory": 0.15}


def test_measuring_counts_and_looks_from_outside(folder: Path) -> None:
    found = _run(folder, "measure", setting={}, times=TIMES, batches=4)
    assert found["images_per_s"] > 0
    assert found["first_batch_s"] > 0
    assert found["first_batch_cpu_s"] >= 0
    assert found["batches"] >= 4
    assert found["cpu_s"] >= 0
    assert found["peak_pss"] > 1_000_000


def test_describing_reports_versions_reasons_and_settings(folder: Path) -> None:
    from dataclasses import asdict

    cases = [asdict(CASES["arrays"]), asdict(CASES["eval"])]
    found = _run(folder, "describe", cases=json.loads(json.dumps(cases)))
    assert found["versions"]["no-such-distribution"] == "absent"
    first, second = found["entries"]
    assert first["reason"] is None
    runtime = min(os.sched_getaffinity(0))
    # Pinned before the contender was imported.
    assert first["settings"] == [{"cores": 1, "pinned": [runtime]}]
    assert second["reason"] == "only arrays"


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("crash", "exit code 3: the last words"),
        ("signal", "signal SIGSEGV"),
        ("raise", "RuntimeError: out of order"),
        ("wrong", "images are float32"),
    ],
)
def test_a_failure_is_a_reason(how: str, reason: str, folder: Path) -> None:
    with pytest.raises(JobFailure, match=reason) as caught:
        _run(folder, "measure", setting={"how": how}, times=TIMES, batches=1)
    assert caught.value.wrong == (how == "wrong")


@pytest.mark.slow
def test_one_that_hangs_is_ended_with_all_that_it_started(folder: Path) -> None:
    with pytest.raises(JobFailure, match="took more than"):
        _run(folder, "measure", setting={"how": "hang"}, times=TIMES, batches=1, limit_s=4)
    try:
        psutil.Process(int((folder / "child").read_text())).wait(30)  # raises if it continues
    except psutil.NoSuchProcess:
        pass


def test_the_machine_has_worked_longer_than_this_process() -> None:
    assert (busy_seconds() or 0) >= psutil.Process().cpu_times().user
