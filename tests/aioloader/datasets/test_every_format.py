"""Tests of what every format of shards has in common: batches, resume, receipts, dead workers, damage, and views.

Each format gives the same samples, so that the expected batches are those of the images themselves.
"""

from __future__ import annotations

import asyncio
import json
import os
import pickle
import shutil
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import aioloader
import recordio
from aioloader import AsyncDataLoader, DataLoader, DecodeError, SampleError, transforms
from aioloader.crop_index.layout import RECORDS, shard_index
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.samplers import IntervalSampler
from tests.aioloader.crop_index.samples import IMAGES
from tests.aioloader.datasets.batches import (
    Batches,
    assert_same,
    batches_of,
    copies,
    cuts_of,
    jpeg,
    labels_in,
)
from tests.aioloader.format_sets import FORMATS, Sample, SetFormat, damage
from tests.executors import pool

COUNT = 24
BAD = 13
CHAIN = transforms.Compose([transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip()])
UNLIKE = [FORMATS[0], FORMATS[3]]
"""Formats whose samples are stretches of a file, and rows of blocks that are shuffled in windows."""


SAMPLES = [
    Sample(
        key=f"s{number:03}",
        image=jpeg(number),
        label=number,
        text=f"größe {number}",
        json={"number": number, "tags": ["a", None]},
        second=jpeg(100 + number),
        data=bytes([number, 255]),
    )
    for number in range(COUNT)
]


@pytest.fixture(scope="module", params=FORMATS)
def made(request: pytest.FixtureRequest) -> SetFormat:
    found: SetFormat = request.param
    return found


@pytest.fixture(scope="module")
def folder(made: SetFormat, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a set of three shards. Read only: tests share it."""
    return made.write(tmp_path_factory.mktemp("sets") / made.name, SAMPLES)


# -- samples -----------------------------------------------------------------------------------------------------------


def test_samples_are_those_that_were_written(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder)
    assert len(dataset) == COUNT
    assert (dataset.labels().tolist(), dataset.labels().dtype) == (list(range(COUNT)), np.int64)
    for again in (dataset, pickle.loads(pickle.dumps(dataset))):
        for number in (0, 7, 8, -1):
            image, label = again[number]
            np.testing.assert_array_equal(image, simplejpeg.decode_jpeg(jpeg(number % COUNT)))
            assert (label, label.dtype) == (number % COUNT, np.int64)
        with pytest.raises(IndexError):
            again[COUNT]


def test_samples_without_labels_are_images_alone(made: SetFormat, folder: Path, tmp_path: Path) -> None:
    name = {"image": made.image}
    assert_alone(lambda **options: aioloader.open_dataset(folder, **name, **options), folder, name)


@pytest.mark.parametrize("labels", [[float("nan")], [1e30, 3.5]])
def test_records_without_labels_are_images_alone(labels: list[float], tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec", index=tmp_path / "a.idx") as writer:
        for number, sample in enumerate(SAMPLES):
            label = labels[0] if len(labels) == 1 else np.array(labels, np.float32)
            writer.write(recordio.pack(recordio.IRHeader(0, label, number, 0), sample.image))
    assert_alone(
        lambda **options: aioloader.open_dataset(tmp_path / "a.rec", **options), tmp_path / "a.rec", {}
    )


def assert_alone(open_it: Any, path: Path, name: dict[str, str]) -> None:
    """Fail unless ``label=None`` gives the images of `SAMPLES` alone, as samples and in batches."""
    dataset = open_it(label=None)
    for number in (0, COUNT - 1):
        np.testing.assert_array_equal(dataset[number], simplejpeg.decode_jpeg(jpeg(number)))
    with pytest.raises(ValueError, match="made with label=None"):
        dataset.labels()
    with aioloader.images(
        path, 8, 5, train=False, blocking=True, label=None, executor="inline", **name
    ) as loader:
        found = np.concatenate([np.array(batch) for batch in loader])
    chain = transforms.Compose([transforms.Resize(9), transforms.CenterCrop(8)])
    np.testing.assert_array_equal(found, [chain(dataset[number]) for number in range(COUNT)])


def test_samples_are_dicts_of_all_fields(made: SetFormat, folder: Path) -> None:
    names = made.names(SAMPLES[0])
    dataset = made.open(folder, image=[made.image, made.second], fields=tuple(names.values()))
    for number in (3, COUNT - 1):
        sample = dataset[number]
        assert list(sample) == list(names.values())
        for name, image in ((made.image, jpeg(number)), (made.second, jpeg(100 + number))):
            np.testing.assert_array_equal(sample[name], simplejpeg.decode_jpeg(image))
        assert sample[made.label] == number
        text, value = sample[made.text], sample[made.json]
        assert (text.decode() if isinstance(text, bytes) else text) == f"größe {number}"
        # In a TFRecord or Parquet file, JSON is bytes or a text like any other.
        assert (value if isinstance(value, dict) else json.loads(value)) == SAMPLES[number].json
        assert sample[made.data] == bytes([number, 255])


def test_a_sample_is_found_by_its_key(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder)
    for number in (0, 8, COUNT - 1):
        location = dataset.location(number)
        shard, row = dataset.tables.locate(number)
        assert location.path == dataset.paths[shard]
        assert dataset.file_nbytes(number) == os.path.getsize(dataset.paths[shard])
        assert dataset.tables.tables[shard].row_of(str(location.key)) == row


# -- batches -----------------------------------------------------------------------------------------------------------


def test_batches_depend_neither_on_the_format_nor_on_workers(
    made: SetFormat, folder: Path, leftovers: object
) -> None:
    plain = aioloader.SimpleDataset([(simplejpeg.decode_jpeg(jpeg(n)), np.int64(n)) for n in range(COUNT)])
    expected = batches_of(plain.transform_first(CHAIN), shuffle=False)
    dataset = made.open(folder).transform_first(CHAIN)
    assert_same(batches_of(dataset, shuffle=False), expected)
    expected = batches_of(dataset)
    assert sorted(labels_in(expected)) == list(range(COUNT))
    assert_same(batches_of(dataset, "thread", 3), expected)


def test_batches_of_worker_processes_are_the_same(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder).transform_first(CHAIN)
    assert_same(batches_of(dataset, "process", 2), batches_of(dataset))


def test_an_async_loader_makes_them_without_blocking_its_loop(
    made: SetFormat, folder: Path, no_blocking: None
) -> None:
    dataset = made.open(folder)
    expected = batches_of(dataset)

    async def run() -> Batches:
        async with AsyncDataLoader(dataset, 4, shuffle=True, seed=5, executor="inline") as loader:
            return [tuple(np.array(part) for part in batch) async for batch in loader]

    assert_same(asyncio.run(run()), expected)


def run_rank(
    dataset: Any, rank: int, ranks: int, *, steps: int | None = None, state: Any = None, **options: Any
) -> Any:
    """Run a rank from a state on, for some steps or to the end; return its labels, state and receipt."""
    with DataLoader(dataset, 2, shuffle=True, seed=3, shard=(rank, ranks), **options) as loader:
        if state is not None:
            loader.load_state_dict(state)
        labels: list[int] = []
        for count, batch in enumerate(loader, 1):
            labels += labels_in([batch])
            if count == steps:
                break
        return labels, json.loads(json.dumps(loader.state_dict())), loader.receipt()


@pytest.mark.parametrize("made", UNLIKE, indirect=True)
def test_an_epoch_is_resumed_with_other_ranks_and_workers(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder)
    executors = [("process", 2), ("thread", 1), ("inline", 0)]
    first = [
        run_rank(dataset, rank, 3, steps=2, **pool(executor, workers))
        for rank, (executor, workers) in enumerate(executors)
    ]
    rest = [
        run_rank(made.open(folder), rank, 2, state=first[0][1], executor="thread", num_workers=1 + rank)
        for rank in range(2)
    ]
    assert sorted(label for part in first + rest for label in part[0]) == list(range(COUNT))
    with DataLoader(dataset, 2, shuffle=True, seed=3, executor="inline") as loader:
        loader.check_receipt(sum(part[2] for part in first + rest))
        with pytest.raises(aioloader.ReceiptError):
            loader.check_receipt(sum(part[2] for part in first + rest[:1]))


@pytest.mark.parametrize("made", UNLIKE, indirect=True)
def test_a_state_of_shards_in_another_order_is_refused(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder)
    _, state, _ = run_rank(dataset, 0, 1, steps=2, executor="inline")
    reversed_shards = type(dataset)(dataset.paths[::-1])
    with DataLoader(reversed_shards, 2, shuffle=True) as loader, pytest.raises(aioloader.ResumeError):
        loader.load_state_dict(state)


@pytest.mark.parametrize("made", UNLIKE[1:], indirect=True)
def test_no_sample_is_lost_with_a_worker_that_is_killed(
    made: SetFormat, folder: Path, leftovers: object
) -> None:
    dataset = made.open(folder).transform_first(CHAIN)
    expected = batches_of(dataset, batch_size=2)
    with DataLoader(dataset, 2, shuffle=True, seed=5, num_workers=2, prefetch=1) as loader:
        batches = iter(loader)
        found = [tuple(np.array(part) for part in next(batches))]
        for pid in loader._runtime.open().executor.pids:
            os.kill(pid, signal.SIGKILL)
        found += [tuple(np.array(part) for part in batch) for batch in batches]
        assert loader.errors == []
        assert loader.stats().restarts >= 1
    assert_same(found, expected)


# -- damage ------------------------------------------------------------------------------------------------------------


@pytest.fixture
def damaged(folder: Path, tmp_path: Path) -> tuple[Path, Path, int]:
    """Copy the set with one damaged image: return its folder, the file, and the offset of the image."""
    copied = Path(shutil.copytree(folder, tmp_path / "damaged"))
    return copied, *damage(copied, jpeg(BAD))


def assert_named(error: SampleError, dataset: ShardDataset, path: Path, place: int) -> None:
    """Fail unless an error names the damaged sample."""
    location = dataset.location(BAD)
    assert isinstance(error.__cause__, DecodeError)
    assert (error.index, error.key, error.path, error.offset) == (
        BAD,
        location.key,
        str(path),
        location.offset,
    )
    if error.offset is not None:  # a row of Parquet has no bytes to itself
        assert 0 <= place - error.offset < 16 * len(jpeg(BAD))
    else:
        assert isinstance(dataset, aioloader.ParquetDataset)
    assert error.stage == "decode"
    assert str(location.key) in str(error)
    assert str(path) in str(error)


def test_a_damaged_sample_is_named_and_costs_no_other(
    made: SetFormat, damaged: tuple[Path, Path, int]
) -> None:
    root, path, place = damaged
    dataset = made.open(root)
    with DataLoader(dataset, 4, **pool("process", 1)) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    assert_named(caught.value, dataset, path, place)
    with DataLoader(dataset, 4, on_error="skip", executor="inline") as loader:
        assert labels_in(loader) == [*range(BAD), *range(BAD + 1, COUNT)]
        (error,) = loader.errors
    assert_named(error, dataset, path, place)


def test_a_field_that_a_set_does_not_have_is_named(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder, fields=(made.text, "nothing"))
    with pytest.raises(ValueError, match="nothing") as caught:
        dataset[0]
    assert made.text in str(caught.value)


# -- crop indexes and caches -------------------------------------------------------------------------------------------


def put_golden_entries(dataset: ShardDataset) -> None:
    """Write the crop indexes of a set of the golden images."""
    shards, keys = dataset.crop_keys(np.arange(len(dataset)))
    for shard, path in enumerate(dataset.paths):
        writer = CropIndexWriter(shard_index(path), kind=RECORDS)
        for number in np.flatnonzero(shards == shard).tolist():
            _, data, entry = IMAGES[number]
            writer.put(int(keys[number]), len(data), entry)
        writer.finish()


def test_crops_by_entries_are_those_without(made: SetFormat, tmp_path: Path) -> None:
    samples = [Sample(key=f"{n:03}", image=data, label=n) for n, (_, data, _) in enumerate(IMAGES)]
    root = made.write(tmp_path / "set", samples, shards=2)
    crop = transforms.RandomResizedCrop(24, scale=(0.05, 0.3))
    dataset = made.open(root, crop_index=None)
    expected = batches_of(dataset.transform_first(crop))
    put_golden_entries(dataset)
    for executor in ("inline", "process"):
        options = {"shuffle": True, "seed": 5, **pool(executor, 1)}
        with DataLoader(made.open(root).transform_first(crop), 4, **options) as loader:
            assert_same(copies(loader), expected)
            assert cuts_of(loader) > len(IMAGES) // 2
            assert not loader.stats().bad_entries


def test_a_cache_changes_no_batch(made: SetFormat, folder: Path, tmp_path: Path) -> None:
    expected = batches_of(made.open(folder))
    for cache in ("memory", tmp_path / "bytes"):
        with DataLoader(made.open(folder, cache=cache), 4, shuffle=True, seed=5, executor="inline") as loader:
            assert_same(copies(loader), expected)
            assert sorted(labels_in(loader)) == list(range(COUNT))
            rate = loader.stats().hit_rate
        # Row groups of Parquet stay in memory, decompressed, so their bytes are read only once.
        assert rate is not None
        assert rate > 0 or made.name == "parquet"


# -- views -------------------------------------------------------------------------------------------------------------


def test_views_have_the_samples_that_they_select(made: SetFormat, folder: Path) -> None:
    dataset = made.open(folder)
    numbers = list(range(COUNT))
    views = {
        "filter": (dataset.filter(lambda sample: int(sample[1]) % 3 == 0), numbers[::3]),
        "take": (dataset.take(5), numbers[:5]),
        "shard": (dataset.shard(5, 1), numbers[5:10]),
        "sample": (dataset.sample(IntervalSampler(COUNT, 7)), [n for k in range(7) for n in numbers[k::7]]),
        "shard of take": (dataset.take(10).shard(2, 1), numbers[5:10]),
    }
    for name, (view, expected) in views.items():
        assert [int(view[place][1]) for place in range(len(view))] == expected, name
        small = view.transform_first(transforms.CenterCrop((4, 4)))
        batches = batches_of(small, shuffle=False)
        assert labels_in(batches) == expected, name
        images = np.concatenate([batch[0] for batch in batches])
        decoded = [simplejpeg.decode_jpeg(jpeg(number)) for number in expected]
        np.testing.assert_array_equal(images, np.stack([image[10:14, 14:18] for image in decoded]))
        assert sorted(labels_in(batches_of(view))) == sorted(expected)
