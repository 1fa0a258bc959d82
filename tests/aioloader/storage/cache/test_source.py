"""Tests of datasets of local files with a cache: the same samples, and no file is read twice."""

from __future__ import annotations

import asyncio
import os
import pickle
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import ImageFolderDataset, ImageListDataset, ImageRecordDataset, RecordFileDataset
from aioloader.storage.cache import CachedByteSource
from aioloader.storage.local.source import LocalByteSource
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import pack
from recordio import RecordWriter


@pytest.fixture(scope="module")
def small_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("small")
    draw_folder(root, count=12, classes=2, seed=3, sizes=((48, 64), (60, 40)))
    return root


@pytest.fixture(scope="module")
def small_rec(small_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("small-rec") / "small.rec"
    pack(small_folder, out)
    return out


@pytest.fixture
def read_calls(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Record the items of each call that reads files."""
    calls = []
    real, real_cached = LocalByteSource.read_blocking, LocalByteSource._read_cached

    def read(self: LocalByteSource, plan: Any, out: memoryview) -> Any:
        calls.append(int((plan.start >= 0).sum()))
        return real(self, plan, out)

    def read_cached(self: LocalByteSource, plan: Any, out: memoryview) -> bool:
        done = real_cached(self, plan, out)
        if done:
            calls.append(int((plan.start >= 0).sum()))
        return done

    monkeypatch.setattr(LocalByteSource, "read_blocking", read)
    monkeypatch.setattr(LocalByteSource, "_read_cached", read_cached)
    return calls


@pytest.fixture(params=["directory", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "cache" if request.param == "directory" else "memory"


@pytest.fixture(params=["record", "folder", "list"])
def make(request: pytest.FixtureRequest, small_folder: Path, small_rec: Path) -> Any:
    def dataset(**options: Any) -> Any:
        if request.param == "record":
            return ImageRecordDataset(small_rec, **options)
        if request.param == "folder":
            return ImageFolderDataset(small_folder, **options)
        paths = sorted(path.relative_to(small_folder) for path in small_folder.rglob("*.jpg"))
        return ImageListDataset(small_folder, [[n % 3, str(path)] for n, path in enumerate(paths)], **options)

    return dataset


def _batches(dataset: Any, **options: Any) -> list[Any]:
    options = {"batch_size": 7, "shuffle": True, "num_workers": 2, "executor": "thread", **options}
    ready = dataset.transform_first(aioloader.transforms.Resize((32, 32)))
    with aioloader.DataLoader(ready, **options) as loader:
        return [batch for _ in range(2) for batch in loader]


def _same(some: list[Any], others: list[Any]) -> bool:
    return len(some) == len(others) and all(
        np.array_equal(a, b)
        for one, two in zip(some, others, strict=True)
        for a, b in zip(one, two, strict=True)
    )


def test_the_second_epoch_reads_no_file(make: Any, cache: Any, read_calls: list[int]) -> None:
    plain = _batches(make())
    del read_calls[:]
    dataset = make(cache=cache)
    ready = dataset.transform_first(aioloader.transforms.Resize((32, 32)))
    with aioloader.DataLoader(ready, 7, shuffle=True, num_workers=2, executor="thread", seed=0) as loader:
        found = list(loader)
        assert sum(read_calls) == len(dataset)
        del read_calls[:]
        found += list(loader)
        assert read_calls == []
        assert loader.stats().hit_rate == 0.5
    assert _same(found, plain)


def test_another_process_reads_no_file(make: Any, tmp_path: Path, read_calls: list[int]) -> None:
    # A pickled copy of a dataset is like one in another process.
    first = make(cache=tmp_path / "cache")
    expected = _batches(first)
    del read_calls[:]
    again = pickle.loads(pickle.dumps(first))
    assert _same(_batches(again), expected)
    assert read_calls == []
    image, label = again[3]
    assert read_calls == []
    assert np.array_equal(image, make()[3][0])
    assert label == make()[3][1]


def test_a_file_that_was_replaced_is_read_again(tmp_path: Path, small_folder: Path) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(small_folder, folder)
    cache = tmp_path / "cache"
    before = ImageFolderDataset(folder, cache=cache)
    shape = before[0][0].shape
    first, other = (
        before.items[0][0],
        next(path for n, (path, _) in enumerate(before.items) if before[n][0].shape != shape),
    )
    shutil.copyfile(other, first)
    assert ImageFolderDataset(folder, cache=cache)[0][0].shape != shape


def test_a_record_file_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    path, cache = tmp_path / "a.rec", tmp_path / "cache"
    for text in (b"first", b"other"):
        with RecordWriter(path) as writer:
            writer.write(text)
        os.utime(path, ns=(0, text[0]))
        assert RecordFileDataset(path, cache=cache)[0] == text


def test_failures_are_those_without_a_cache(tmp_path: Path, cache: Any) -> None:
    path = tmp_path / "a.rec"
    with RecordWriter(path, tmp_path / "a.idx") as writer:
        for number in range(4):
            writer.write(bytes([number]) * 100, number)
    lines = (tmp_path / "a.idx").read_text().splitlines()
    lines[1] = "1\t999999"
    lines[2] = "2\t3"
    (tmp_path / "a.idx").write_text("\n".join(lines) + "\n")
    plain, cached = RecordFileDataset(path), RecordFileDataset(path, cache=cache)
    for _ in range(2):
        for number in range(4):
            found = []
            for dataset in (plain, cached):
                try:
                    found.append(dataset[number])
                except (OSError, ValueError, EOFError) as error:
                    found.append(f"{type(error)} {error}")
            assert found[0] == found[1]


def test_a_record_longer_than_its_span_is_read_whole(tmp_path: Path, cache: Any) -> None:
    path = tmp_path / "a.rec"
    with RecordWriter(path, tmp_path / "a.idx") as writer:
        for number in range(3):
            writer.write(bytes([number]) * 1000, number)
    (tmp_path / "a.idx").write_text("0\t0\n1\t500\n2\t2016\n")  # the second line cuts the first record
    dataset = RecordFileDataset(path, cache=cache)
    for _ in range(2):
        assert dataset[0] == bytes(1000)
        assert dataset[2] == b"\2" * 1000


def test_a_missing_image_is_its_own_error(tmp_path: Path, small_folder: Path, cache: Any) -> None:
    folder = tmp_path / "folder"
    shutil.copytree(small_folder, folder)
    dataset = ImageFolderDataset(folder, cache=cache)
    os.unlink(dataset.items[2][0])
    ready = dataset.transform_first(aioloader.transforms.Resize((32, 32)))
    with aioloader.DataLoader(ready, 5, num_workers=0, on_error="skip") as loader:
        assert sum(len(labels) for _, labels in loader) == len(dataset) - 1
        assert isinstance(loader.errors[0].__cause__, FileNotFoundError)


async def test_the_loop_is_not_blocked(small_rec: Path, cache: Any, no_blocking: None) -> None:
    dataset = await asyncio.to_thread(ImageRecordDataset, small_rec, cache=cache)  # opening it may block
    ready = dataset.transform_first(aioloader.transforms.Resize((32, 32)))
    async with aioloader.AsyncDataLoader(ready, 7, num_workers=1, executor="thread") as loader:
        counts = [sum([len(labels) async for _, labels in loader]) for _ in range(2)]
    assert counts == [len(ready)] * 2


def test_an_unusable_directory_is_reported_when_the_loader_opens(small_rec: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    dataset = ImageRecordDataset(small_rec, cache=tmp_path / "file")
    with pytest.raises(NotADirectoryError, match="file"):
        _batches(dataset)


def test_sources_leave_nothing_behind(make: Any, tmp_path: Path, leftovers: object) -> None:
    source = make(cache=tmp_path / "cache").open_source()
    assert isinstance(source, CachedByteSource)
    source.close()
    source.close()


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"cache": 3}, TypeError, "cache must be a directory"),
        ({"cache": ""}, ValueError, "empty"),
        ({"cache_limit": "1GB"}, ValueError, "no effect without cache"),
        ({"cache": "memory", "cache_limit": "1 sheep"}, ValueError, "1 sheep"),
        ({"cache": "memory", "cache_limit": 0}, ValueError, "at least 1 byte"),
        ({"cache": "memory", "cache_limit": 1.5}, TypeError, "number of bytes"),
    ],
)
def test_options_are_checked_where_they_are_given(
    small_rec: Path, options: dict[str, Any], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        ImageRecordDataset(small_rec, **options)


def test_images_takes_a_cache(small_rec: Path, tmp_path: Path, read_calls: list[int]) -> None:
    options: dict[str, Any] = {"blocking": True, "executor": "inline", "cache": tmp_path / "cache"}
    for expected in (len(ImageRecordDataset(small_rec)), 0):
        del read_calls[:]
        with aioloader.images(small_rec, 32, 5, cache_limit="1GB", **options) as loader:
            assert sum(len(labels) for _, labels in loader) == len(ImageRecordDataset(small_rec))
        assert sum(read_calls) == expected
