"""Tests of `bench` on drawn images: every setting is tried, the best of each executor and the bare loop measured."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import recordio
from aioloader.rng import Rng
from aioloader.tools import bench as bench_module
from aioloader.tools.bench import (
    BareLoop,
    BenchReport,
    ImageWorker,
    Setting,
    Work,
    bench,
    bench_table,
    default_settings,
    turns,
)
from aioloader.tools.draw import draw_folder, draw_image
from aioloader.tools.pack import pack
from aioloader.transforms import RandomResizedCrop
from tests.aioloader.format_sets import FORMATS, Sample, SetFormat

SETTINGS = [Setting("inline", 0), Setting("thread", 1), Setting("thread", 2)]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return draw_folder(tmp_path_factory.mktemp("images") / "drawn", count=24)


@pytest.fixture
def in_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """Run the bare loop in threads, because each process costs a second of CPU time to start."""

    def pipe() -> tuple[Any, Any]:
        mine, theirs = multiprocessing.Pipe()
        # The parent closes its copy of the other end.
        return mine, SimpleNamespace(recv=theirs.recv, send=theirs.send, close=lambda: None)

    context = SimpleNamespace(Pipe=pipe, Process=threading.Thread)
    monkeypatch.setattr(bench_module, "multiprocessing", SimpleNamespace(get_context=lambda kind: context))


def _bench(path: Path, ticks: list[int]) -> BenchReport:
    return bench(path, size=64, batch_size=8, seconds=0.05, rounds=2, settings=SETTINGS, tick=ticks.append)


def test_settings_are_tried_and_the_best_measured(folder: Path, tmp_path: Path) -> None:
    ticks: list[int] = []
    report = _bench(pack(folder, tmp_path / "a.rec").rec, ticks)
    assert ticks == list(range(1, turns(2, SETTINGS) + 1))
    assert [setting for setting, _ in report.tried] == SETTINGS
    assert sorted(row.setting.executor for row in report.rows if row.setting) == ["inline", "thread"]
    assert report.rows[0].images_per_s >= report.rows[1].images_per_s > 0
    assert len(report.bare.rates) == 2
    assert all(rate > 0 for rate in report.bare.rates)
    assert report.samples == 24
    assert report.undecodable == 0
    for row in report.rows:
        assert row.of_bare == pytest.approx(
            [rate / bare for rate, bare in zip(row.rates, report.bare.rates, strict=True)]
        )
        assert row.first_batch_s is not None
        assert row.lag is not None
    table = bench_table(report)
    assert "bare loop" in table
    assert "bare loop: one process per core that only decodes and transforms whole images in memory" in table
    assert "thread, 1" in table
    assert report.explanation in table


@pytest.mark.usefixtures("in_threads")
def test_images_that_cannot_be_decoded_are_counted_and_left_out(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    good = sorted(folder.rglob("*.jpg"))[:9]
    for number, path in enumerate(good):
        data = path.read_bytes()
        (tmp_path / "class" / f"{number}.jpg").write_bytes(data if number else data[: len(data) // 2])
    report = _bench(tmp_path, [])
    assert report.undecodable == 1
    assert report.rows[0].images_per_s > 0
    assert "1 of those looked at cannot be decoded" in bench_table(report)


@pytest.mark.usefixtures("in_threads")
def test_records_that_are_damaged_or_no_images_are_left_out(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "mixed.rec"
    with recordio.RecordWriter(path, index=True) as writer:
        writer.write(b"short", 0)
        writer.write(recordio.pack(recordio.IRHeader(0, 0.0, 1, 0), b"no image"), 1)
        for key, image in enumerate(sorted(folder.rglob("*.jpg"))[:6], 2):
            writer.write(recordio.pack(recordio.IRHeader(0, 0.0, key, 0), image.read_bytes()), key)
    report = _bench(path, [])
    assert (report.samples, report.undecodable) == (8, 2)
    assert report.rows[0].images_per_s > 0


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize("made", FORMATS)
def test_every_format_is_measured(made: SetFormat, folder: Path, tmp_path: Path) -> None:
    pictures = [path.read_bytes() for path in sorted(folder.rglob("*.jpg"))[:6]]
    samples = [Sample(key=f"{number}", image=image, label=number) for number, image in enumerate(pictures)]
    samples[4] = Sample(key="4", image=b"no image", label=4)
    path = made.write(tmp_path / "set", samples)
    report = bench(path, size=32, batch_size=2, seconds=0.02, rounds=1, settings=SETTINGS[:1])
    assert (report.samples, report.undecodable) == (6, 1)
    assert report.mean_nbytes == pytest.approx(np.mean([len(pictures[number]) for number in (0, 1, 2, 3, 5)]))
    assert report.rows[0].images_per_s > 0


def test_nothing_to_measure_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="does-not-exist"):
        bench(tmp_path / "does-not-exist")
    (tmp_path / "flat").mkdir()
    (tmp_path / "flat" / "a.png").write_bytes(b"any")
    with pytest.raises(ValueError, match="make a sub-folder for each class"):
        bench(tmp_path / "flat")
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "a.jpg").write_bytes(b"no image")
    with pytest.raises(ValueError, match="no image that can be decoded"):
        bench(tmp_path)


def test_every_executor_is_tried_and_no_setting_twice() -> None:
    for cores in (1, 2, 8):
        found = default_settings(cores)
        assert len(set(found)) == len(found)
        assert {setting.executor for setting in found} == {"inline", "thread", "process"}
        assert Setting("process", cores) in found


@pytest.mark.usefixtures("in_threads")
@pytest.mark.parametrize(
    "work",
    [
        *(Work(48), Work(48, "window"), Work(48, "window", False)),
        *(Work(48, "centre", False), Work(48, "random", False, normalise=True)),
    ],
)
def test_the_bare_loop_does_the_work(work: Work) -> None:
    images = [draw_image(number, height=80, width=100) for number in range(3)]
    with BareLoop(images, 2, work) as loop:
        assert loop.measure(0.02) > 0
    worker = ImageWorker(images, work)
    made = np.stack([worker.make(number).copy() for number in (0, 1, 2, 3, 0)])
    assert made.shape == ((5, 3, 48, 48) if work.normalise else (5, 48, 48, 3))
    assert made.dtype == (np.float32 if work.normalise else np.uint8)
    np.testing.assert_array_equal(made[0], made[4])
    assert not np.array_equal(made[0], made[1])
    # A repeated image has another crop, unless it is the centre crop.
    assert np.array_equal(made[0], made[3]) == (work.crop == "centre")


@pytest.mark.parametrize("antialias", [True, False])
def test_the_bare_loop_resizes_as_the_loader_does(antialias: bool) -> None:
    image = draw_image(1, height=300, width=400)
    crop, rng = RandomResizedCrop(32, antialias=antialias), Rng(0)
    rng.seek(0, 0, 0)
    made = ImageWorker([image], Work(32, flip=False, antialias=antialias)).make(0)
    np.testing.assert_array_equal(made, crop(image, rng=rng))
