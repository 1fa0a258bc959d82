"""Tests of packing stopped by SIGKILL, Ctrl-C, a full disk or an error, and continued by the same command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import recordio
from aioloader import SampleError
from aioloader.cli import main
from aioloader.tools.pack import PackBusyError, PackError, pack
from tests.aioloader.packing.sample_sets import files, stop_at, write_folder

COUNT = 40


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_folder(tmp_path_factory.mktemp("source"), {3, 4, 11, 19, 20, 39}, COUNT)


OPTIONS: dict[str, dict[str, Any]] = {
    "plain": {"encoding": "raw", "on_error": "skip"},
    "replaced": {"encoding": "jpg", "on_error": "replace", "shuffle": True},
    "parts-of-shards": {
        "encoding": "png",
        "on_error": "replace",
        "train_ratio": 0.6,
        "test_ratio": 0.2,
        "shards": 3,
    },
    "untouched": {"pass_through": True, "shards": 4, "seed": 9, "shuffle": True},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_what_was_stopped_again_and_again_is_the_same_in_the_end(
    source: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    whole, parts = tmp_path / "whole" / "set", tmp_path / "parts" / "set"
    wanted = pack(source, whole, **options)
    begun = []
    for done in (1, 2, 5, 21, 40):
        with pytest.raises(KeyboardInterrupt):
            pack(
                source,
                parts,
                **options,
                sync_s=0 if done % 2 else 60,
                begin=lambda *facts: begun.append(facts),
                tick=stop_at(done),
            )
        assert not [path.name for path in parts.parent.iterdir() if path.suffix != ".partial"]
    report = pack(source, parts, **options, num_workers=3, begin=lambda *facts: begun.append(facts))
    assert files(parts.parent) == files(whole.parent)
    assert [reason for _, _, reason in begun] == [""] * len(begun)
    assert [done for done, _, _ in begun] == sorted(done for done, _, _ in begun)
    assert begun[-1][0] >= 39 - 3  # only images that wait for a replacement are encoded again
    assert report.error_report() == wanted.error_report()
    assert (report.records, report.labels, report.counts) == (wanted.records, wanted.labels, wanted.counts)
    for file in report.files:
        assert recordio.verify(file.rec).ok


KILLED = """
    import itertools, json, os, signal, sys
    from pathlib import Path
    import recordio
    from aioloader.tools.pack import pack

    source, out, kills = sys.argv[1], Path(sys.argv[2]), json.loads(sys.argv[3])

    def die():
        os.kill(os.getpid(), signal.SIGKILL)

    def dies_after(at, original):
        calls = itertools.count(1)
        def wrapped(*args, **options):
            result = original(*args, **options)
            next(calls) == at and die()
            return result
        return wrapped

    def run(place, at):
        owner = {"fsync": os, "replace": Path, "unlink": Path, "flush": recordio.RecordWriter}.get(place)
        if owner is not None:
            setattr(owner, place, dies_after(at, getattr(owner, place)))
        options = {"encoding": "png", "on_error": "replace", "shards": 3, "num_workers": 2}
        tick = lambda done: place == "image" and done == at and die()
        pack(source, out / f"{place}{at}" / "set", sync_s=0, tick=tick, **options)

    for place, at in kills:
        child = os.fork()
        if child == 0:
            run(place, at)
            os._exit(0)
        print(place, at, os.waitpid(child, 0)[1])
"""


def program(script: str, *words: object) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(script), *map(str, words)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def killed(source: Path, out: Path, kills: list[tuple[str, int]]) -> list[Path]:
    """Kill a packing behind each of these calls, "image" being a packed one; return the folders of the files."""
    done = program(KILLED, source, out, json.dumps(kills))
    assert done.stdout.splitlines() == [f"{place} {at} {int(signal.SIGKILL)}" for place, at in kills], (
        done.stderr
    )
    return [out / f"{place}{at}" for place, at in kills]


PNG: dict[str, Any] = {"encoding": "png", "on_error": "replace", "shards": 3}


@pytest.mark.slow
def test_a_killed_packing_goes_on(source: Path, tmp_path: Path) -> None:
    pack(source, tmp_path / "whole" / "set", **PNG)
    kills = [("image", at) for at in (1, 27, 40)] + [("fsync", at) for at in (1, 5, 77)]
    kills += [("flush", 17), ("unlink", 1), ("unlink", 4), *(("replace", at) for at in (1, 5, 10))]
    for (place, _), out in zip(kills, killed(source, tmp_path, kills), strict=True):
        assert place == "replace" or not list(out.glob("*.rec"))
        pack(source, out / "set", **PNG)
        assert files(out) == files(tmp_path / "whole")


def test_a_kill_leaves_nothing_that_is_named_like_a_whole_file(source: Path, tmp_path: Path) -> None:
    (out,) = killed(source, tmp_path, [("image", 30)])
    assert {path.suffix for path in out.iterdir()} == {".partial"}
    begun = []
    pack(source, out / "set", **PNG, begin=lambda *facts: begun.append(facts))
    pack(source, tmp_path / "whole" / "set", **PNG)
    assert begun == [(29, COUNT, "")]  # the image was reported, but not yet synced
    assert files(out) == files(tmp_path / "whole")


INTERRUPTED = """
    import signal, sys
    from aioloader.observability import progress
    from aioloader.cli import main
    update = progress.ProgressBar.update

    def interrupt(self, done):
        update(self, done)
        if done == 17:
            signal.raise_signal(signal.SIGINT)  # in this thread, so at once

    progress.ProgressBar.update = interrupt
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a job in the background lacks
    sys.exit(main(sys.argv[1:]))
"""


def test_ctrl_c_says_that_the_same_command_goes_on_and_it_does(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pack", str(source), str(tmp_path / "out" / "set"), "--seed", "3"]
    words += ["--encoding", "raw", "--on-error", "skip"]
    done = program(INTERRUPTED, *words)
    assert done.returncode == 130, done.stderr
    assert "run the same command again to resume" in done.stderr
    assert "Traceback" not in done.stderr
    assert main(words) == 0
    assert f"resuming at image 18 of {COUNT}" in capsys.readouterr().err
    pack(source, tmp_path / "whole" / "set", encoding="raw", on_error="skip", seed=3)
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def stopped(source: Path, out: Path, **options: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        pack(source, out, encoding="raw", on_error="skip", tick=stop_at(25), **options)


def begun_with(source: Path, out: Path, **options: Any) -> tuple[int, str]:
    facts: list[tuple[int, int, str]] = []
    arguments = {"encoding": "raw", "on_error": "skip", **options}
    pack(source, out, **arguments, begin=lambda *each: facts.append(each))
    ((done, _, reason),) = facts
    assert not list(out.parent.glob("*.partial"))
    return done, reason


def test_workers_and_executors_may_differ(source: Path, tmp_path: Path) -> None:
    stopped(source, tmp_path / "set", num_workers=1)
    assert begun_with(source, tmp_path / "set", executor="inline") == (25, "")


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"resize": 8}, "with other options (resize)"),
        ({"shuffle": True, "seed": 4}, "with other options (seed, shuffle)"),
        ({"shards": 2}, "with other options (shards)"),
        ({"resume": False}, "resuming was switched off"),
    ],
)
def test_other_options_start_again_and_say_so(
    source: Path, tmp_path: Path, options: dict[str, Any], named: str
) -> None:
    stopped(source, tmp_path / "set")
    done, reason = begun_with(source, tmp_path / "set", **options)
    assert done == 0
    assert named in reason
    fresh = tmp_path / "fresh"
    begun_with(source, fresh / "set", **options)
    for name, content in files(fresh).items():
        assert (tmp_path / name).read_bytes() == content


@pytest.mark.parametrize("change", ["content", "time", "gone", "new", "list"])
def test_other_images_start_again_and_say_so(tmp_path: Path, change: str) -> None:
    root = write_folder(tmp_path / "in", set(), COUNT)
    last = sorted(root.rglob("*.jpg"))[-1]
    listed = tmp_path / "in.lst"
    listed.write_text("".join(f"{n}\t0\tcat/{n:03}.jpg\n" for n in range(20)) * 1)
    given = listed if change == "list" else root
    options = {"root": root} if change == "list" else {}
    with pytest.raises(KeyboardInterrupt):
        pack(given, tmp_path / "set", tick=stop_at(15), **options)  # type: ignore[arg-type]
    if change == "content":
        last.write_bytes(simplejpeg.encode_jpeg(np.zeros((8, 8, 3), np.uint8)))
    elif change == "time":
        os.utime(last, ns=(0, 0))
    elif change == "gone":
        last.unlink()
    elif change == "new":
        last.with_name("zzz.jpg").write_bytes(last.read_bytes())
    else:
        listed.write_text(listed.read_text().replace("19\t0", "19\t1"))
    facts: list[tuple[int, int, str]] = []
    pack(given, tmp_path / "set", begin=lambda *each: facts.append(each), **options)  # type: ignore[arg-type]
    assert [(done, reason) for done, _, reason in facts] == [
        (0, "the images have changed since it was begun")
    ]


@pytest.mark.parametrize("damage", ["draft", "journal", "torn", "odd", "option", "version"])
def test_what_is_left_may_be_damaged(source: Path, tmp_path: Path, damage: str) -> None:
    stopped(source, tmp_path / "out" / "set")
    place = tmp_path / "out"
    journal = place / "set.pack.partial"
    if damage == "draft":
        (place / "set.rec.partial").unlink()
        expected = (0, "its files are gone or incomplete")
    elif damage == "journal":
        journal.write_bytes(b"no journal\n" * 3)
        expected = (0, "")
    elif damage == "torn":
        with open(journal, "ab") as file:
            file.write(b'{"done": 39, "files')
        expected = (25, "")
    elif damage == "odd":
        with open(journal, "ab") as file:
            file.write(b'{"done": 39, "files": {"0": ["many"]}, "counts": {}, "errors": [{}]}\n')
        expected = (25, "")
    elif damage == "option":  # of an earlier version
        journal.write_bytes(journal.read_bytes().replace(b'"arguments":{', b'"arguments":{"tile":true,'))
        expected = (0, "it was begun with other options (tile)")
    else:
        journal.write_bytes(journal.read_bytes().replace(b'"journal":3', b'"journal":9'))
        expected = (0, "it was begun by another version of aioloader")
    assert begun_with(source, place / "set") == expected
    begun_with(source, tmp_path / "whole" / "set")
    assert files(place) == files(tmp_path / "whole")


def test_a_second_packing_into_the_same_files_is_refused(source: Path, tmp_path: Path) -> None:
    refused: list[str] = []

    def tick(done: int) -> None:
        if done == 5:
            with pytest.raises(PackBusyError, match=f"process {os.getpid()} is packing into") as caught:
                pack(source, tmp_path / "set", encoding="jpg")
            refused.append(caught.value.out)

    report = pack(source, tmp_path / "set", encoding="raw", on_error="skip", tick=tick)
    assert refused == [str(tmp_path / "set")]
    assert report.records == COUNT - 6
    pack(source, tmp_path / "set", encoding="raw", on_error="skip")


def test_an_error_that_the_same_call_would_meet_again_leaves_nothing(source: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError, match=r"003\.jpg"):
        pack(source, tmp_path / "set", encoding="raw", sync_s=0)
    assert list(tmp_path.iterdir()) == []


def test_after_a_full_disk_it_goes_on(source: Path, tmp_path: Path) -> None:
    def full(done: int) -> None:
        if done == 30:
            raise OSError(28, "No space left on device")

    options: dict[str, Any] = {"encoding": "raw", "on_error": "skip"}
    with pytest.raises(OSError, match="No space left"):
        pack(source, tmp_path / "out" / "set", sync_s=0, tick=full, **options)
    done, reason = begun_with(source, tmp_path / "out" / "set")
    assert (done, reason) == (30 - 1, "")
    begun_with(source, tmp_path / "whole" / "set")
    assert files(tmp_path / "out") == files(tmp_path / "whole")


def test_failures_of_before_come_back_with_their_causes(source: Path, tmp_path: Path) -> None:
    stopped(source, tmp_path / "set")
    report = pack(source, tmp_path / "set", encoding="raw", on_error="skip")
    assert all(isinstance(error, SampleError) for error in report.errors)
    assert [int(Path(str(error.path)).stem) for error in report.errors] == [3, 4, 11, 19, 20, 39]
    found = json.loads((tmp_path / "set.json").read_text())
    assert found["failed_by_reason"] == {"DecodeError": 6}
    assert found["counts"]["left_out"] == 6
