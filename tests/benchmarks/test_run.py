"""Tests of the whole command on a little data: its files, its resume, and its errors."""

from __future__ import annotations

import functools
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.__main__ import main
from benchmarks.log import read_log

ROOT = Path(__file__).parents[2]
CORES = str(min(2, len(os.sched_getaffinity(0)))) if hasattr(os, "sched_getaffinity") else "1"


def _options(folder: Path) -> list[str]:
    return [
        *("--quick", "--rounds", "1", "--seconds", "0.1", "--scale", "0", "--cores", CORES),
        *("--out", str(folder / "out"), "--scratch", str(folder / "scratch"), "--envs", str(folder / "envs")),
    ]


@pytest.mark.slow
def test_a_quick_run_and_how_it_goes_on(tmp_path: Path) -> None:
    contenders = ["--contenders", "aioloader/thread", "aioloader/inline", "bare_loop"]
    command = [
        sys.executable,
        "-m",
        "benchmarks",
        *_options(tmp_path),
        "--cases",
        "jpeg-uint8",
        "bytes",
        *contenders,
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "FAILED" not in done.stderr
    out = tmp_path / "out"
    rows = json.loads((out / "results.json").read_text())["rows"]
    found = {(row["case"], row["name"], row["variant"]): row for row in rows if row["status"] == "measured"}
    assert set(found) == {
        ("jpeg-uint8", "aioloader", "thread"),
        ("jpeg-uint8", "bare_loop", ""),
        ("bytes", "aioloader", "thread"),
        ("bytes", "aioloader", "inline"),
        ("bytes", "bare_loop", ""),
    }
    thread = found["jpeg-uint8", "aioloader", "thread"]
    assert thread["rate"][0] > 0
    assert thread["of_bare"][0] > 0
    assert thread["explain"]
    assert "aioloader/thread" in (out / "images" / "benchmarks" / "bytes.svg").read_text()

    # A second round is added; nothing of the first is measured again.
    before = [record for record in read_log(out / "log.jsonl") if record["kind"] == "round"]
    more = [
        "2" if word == "1" and command[place - 1] == "--rounds" else word
        for place, word in enumerate(command)
    ]
    done = subprocess.run([*more, "--resume"], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    after = [record for record in read_log(out / "log.jsonl") if record["kind"] == "round"]
    assert after[: len(before)] == before
    assert len(after) == 2 * len(before)
    assert "checked" not in done.stderr
    assert found["bytes", "aioloader", "inline"]["stored_nbytes"] > 512 * 1024


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT to another process")
def test_ctrl_c_leaves_what_was_measured(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-u",
        "-m",
        "benchmarks",
        *_options(tmp_path),
        "--rounds",
        "1000",
        "--cases",
        "bytes",
    ]
    command += ["--contenders", "bare_loop"]
    # A shell ignores interrupts for background jobs such as these tests, and children would inherit it.
    restore = functools.partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=restore,
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "round 1" in line:
                process.send_signal(signal.SIGINT)
                break
        process.stderr.read()
        assert process.wait() == 130
    text = (tmp_path / "out" / "report.md").read_text()
    assert "| bare_loop |" in text


@pytest.mark.slow
def test_numbers_of_workers_are_compared() -> None:
    command = [sys.executable, "-m", "benchmarks.worker_scaling", "--smoke", "--cases", "faces"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "| faces | 1 |" in done.stdout


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--cases", "nonsense"], "unknown case 'nonsense'"),
        (["--contenders", "nonsense/variant"], "unknown contender 'nonsense/variant'"),
        (["--data", "/does/not/exist"], "folder /does/not/exist does not exist"),
        (["--cores", "100000"], "--cores must be"),
        (["--report"], "No such file"),
    ],
    ids=["case", "contender", "data", "cores", "report"],
)
def test_what_cannot_be_is_refused(
    words: list[str], complaint: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*_options(tmp_path), *words]) == 2
    assert complaint in capsys.readouterr().err


def test_another_kind_of_run_is_not_continued(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "log.jsonl").write_text('{"kind": "run", "cores": [0], "seconds": 9}\n')
    assert main([*_options(tmp_path), "--cores", "1", "--resume"]) == 2
    assert "--resume needs the same" in capsys.readouterr().err
