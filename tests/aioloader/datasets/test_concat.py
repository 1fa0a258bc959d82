"""Tests of concatenated datasets: every part is read, decoded, resumed and reported as if it were alone."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import aioloader
import recordio
from aioloader import ConcatDataset, DataLoader, SampleError, SimpleDataset, transforms
from aioloader.datasets.resolve import fingerprint, resolve
from aioloader.errors import ResumeError
from aioloader.samplers import BlockShuffleSampler, RandomSampler
from tests.aioloader.crop_index.samples import IMAGES, write_image_folder, write_record_files
from tests.aioloader.datasets import batches
from tests.aioloader.datasets.batches import assert_same, copies, cuts_of, jpeg, labels_in
from tests.aioloader.format_sets import FORMATS, TAR, Sample, damage, is_readable
from tests.executors import pool

COUNT = 24


def chain() -> transforms.Compose:
    return transforms.Compose([transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip()])


CHAIN = chain()


SAMPLES = [Sample(key=f"s{number:03}", image=jpeg(number), label=number) for number in range(COUNT)]


def plain(numbers: Any) -> SimpleDataset:
    return SimpleDataset([(simplejpeg.decode_jpeg(jpeg(n)), np.int64(n)) for n in numbers])


class Others:
    """Dataset of another library."""

    def __init__(self, numbers: Any) -> None:
        self.targets = list(numbers)
        self._items = list(plain(numbers))

    def __len__(self) -> int:
        return len(self._items)

    def __getitem__(self, index: int) -> Any:
        return self._items[index]


def batches_of(dataset: Any, executor: str = "inline", workers: int = 1, **options: Any) -> list[Any]:
    """Return the batches of an epoch in an order that does not depend on the kinds of the parts."""
    return batches.batches_of(
        dataset, executor, workers, **{"sampler": RandomSampler(len(dataset)), **options}
    )


def write_records(path: Path, numbers: Any) -> Path:
    with recordio.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w") as file:
        for number in numbers:
            file.write_idx(
                number, recordio.pack(recordio.IRHeader(0, float(number), number, 0), jpeg(number))
            )
    return path


def write_folder(root: Path, numbers: Any) -> Path:
    for number in numbers:
        (root / f"c{number:03}").mkdir(parents=True, exist_ok=True)
        (root / f"c{number:03}" / f"{number}.jpg").write_bytes(jpeg(number))
    return root


def folder_of(root: Path, numbers: Any) -> aioloader.Dataset:
    synsets = [f"c{number:03}" for number in range(COUNT)]
    with pytest.warns(UserWarning, match="classes have no images"):
        return aioloader.ImageFolderDataset(write_folder(root, numbers), synsets=synsets)


@pytest.fixture(scope="module")
def expected() -> list[Any]:
    return batches_of(plain(range(COUNT)).transform_first(CHAIN))


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    """Return parts of many kinds: records, a folder, tars, rows of Parquet, and items of another class."""
    folder = tmp_path_factory.mktemp("mixed")
    parts: list[Any] = [
        aioloader.ImageRecordDataset(write_records(folder / "a.rec", range(4))),
        folder_of(folder / "images", range(4, 8)),
    ]
    for number, made in enumerate(FORMATS):
        (kind,) = made.values
        low = 8 + 3 * number
        if is_readable(kind):
            parts.append(kind.open(kind.write(folder / kind.name, SAMPLES[low : low + 3])))
        else:
            parts.append(Others(range(low, low + 3)))
    low = 8 + 3 * len(FORMATS)
    return [*parts, Others(range(low, COUNT))]


# -- the same batches --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_parts_of_different_formats(executor: str, mixed: list[Any], expected: list[Any]) -> None:
    joined = ConcatDataset(mixed)
    assert len(joined) == COUNT
    assert_same(batches_of(joined.transform_first(CHAIN), executor, 2), expected)
    assert joined.targets == list(range(COUNT))


def test_parts_of_a_set_are_the_set(tmp_path: Path, expected: list[Any]) -> None:
    dataset = TAR.open(TAR.write(tmp_path / "set", SAMPLES))
    rest = dataset.sample(aioloader.samplers.SequentialSampler(COUNT - 9, 9))
    joined = ConcatDataset([dataset.take(9), rest])
    assert resolve(joined).base_kind == "bytes"
    assert_same(batches_of(joined.transform_first(CHAIN)), expected)


def test_parts_with_transforms_of_their_own(mixed: list[Any], expected: list[Any]) -> None:
    # All have the same one: the loader runs it as that of the whole.
    shared = ConcatDataset([SimpleDataset(part).transform_first(CHAIN) for part in mixed])
    assert len(resolve(shared).stages) == 1
    assert_same(batches_of(shared), expected)
    # Each has its own: it draws from the sample's stream all the same.
    own = ConcatDataset([SimpleDataset(part).transform_first(chain()) for part in mixed])
    assert_same(batches_of(own, "thread", 2), expected)
    # And others follow for all.
    wanted = batches_of(plain(range(COUNT)).transform_first(CHAIN).transform_first(transforms.ToTensor()))
    assert_same(batches_of(own.transform_first(transforms.ToTensor())), wanted)


def test_a_transform_of_whole_samples_of_one_part(mixed: list[Any], expected: list[Any]) -> None:
    parts = [SimpleDataset(mixed[0]).transform(lambda image, label: (image, 2 * label)), *mixed[1:]]
    wanted = [(images, np.where(labels < 4, 2 * labels, labels)) for images, labels in expected]
    assert_same(batches_of(ConcatDataset(parts).transform_first(CHAIN)), wanted)


@pytest.mark.parametrize("nested", [False, True])
def test_global_draws_of_a_part_are_seeded(mixed: list[Any], nested: bool) -> None:
    parts = [
        SimpleDataset(part).transform_first(lambda image: np.float64(np.random.random()))
        for part in mixed[:2]
    ]
    joined = ConcatDataset(parts)
    if nested:
        joined = ConcatDataset([joined, SimpleDataset(mixed[0]).transform_first(CHAIN)])
    with DataLoader(joined, 4, num_workers=1, seed=1, executor="process") as loader:
        first = copies(loader)
        loader.set_epoch(0)
        assert_same(copies(loader), first)


def test_records_share_one_decoder(tmp_path: Path, expected: list[Any]) -> None:
    parts = [
        aioloader.ImageRecordDataset(write_records(tmp_path / f"{low}.rec", range(low, low + 8)))
        for low in (0, 8, 16)
    ]
    joined = ConcatDataset(parts)
    items = resolve(joined).base
    assert items.decoder == parts[0].decoder
    assert items.extras(np.arange(3)) is None
    assert_same(batches_of(joined.transform_first(CHAIN)), expected)


def test_parts_of_parts(mixed: list[Any], expected: list[Any]) -> None:
    first = ConcatDataset(mixed[:2]) + SimpleDataset(mixed[2])
    rest = ConcatDataset(mixed[3:])
    half = len(rest) // 2
    joined = (
        first + rest.take(half) + rest.sample(aioloader.samplers.SequentialSampler(len(rest) - half, half))
    )
    assert_same(batches_of(joined.transform_first(CHAIN)), expected)


# -- items -------------------------------------------------------------------------------------------------------------


def test_items_are_those_of_the_parts(mixed: list[Any]) -> None:
    for joined in (ConcatDataset(mixed), pickle.loads(pickle.dumps(ConcatDataset(mixed)))):
        for number in (0, 3, 4, 9, COUNT - 1, -1, -COUNT):
            image, label = joined[number]
            assert label == number % COUNT
            np.testing.assert_array_equal(image, simplejpeg.decode_jpeg(jpeg(number % COUNT)))
        with pytest.raises(IndexError, match="24 samples"):
            joined[COUNT]
        assert [int(label) for _, label in joined.__getitems__([5, 1, -2])] == [5, 1, COUNT - 2]
        assert [int(label) for _, label in joined] == list(range(COUNT))
        assert joined.cumulative_sizes[0] == 4


async def test_an_item_is_awaited(mixed: list[Any]) -> None:
    async def twice(image: Any) -> Any:
        return image, 2

    image, label = await ConcatDataset(mixed).transform_first(twice).get(6)
    assert (image[1], label) == (2, 6)


def test_views_of_all_parts(mixed: list[Any]) -> None:
    joined = ConcatDataset(mixed)
    odd = joined.filter(lambda sample: sample[1] % 2 == 1)
    assert labels_in(batches_of(odd)) != list(range(1, COUNT, 2))
    assert sorted(odd.targets) == list(range(1, COUNT, 2))
    assert joined.shard(3, 1).targets == list(range(8, 16))


@pytest.mark.parametrize("same", [True, False], ids=["of all parts", "of each part"])
def test_several_views_of_an_image(mixed: list[Any], same: bool) -> None:
    """The arrays of a view are written to their rows, also if the parts make views of another number."""
    two = transforms.Views({"large": (CHAIN, 2)}, as_list=True)
    three = transforms.Views({"large": (CHAIN, 2), "small": (transforms.Resize((4, 4)), 1)}, as_list=True)

    def joined(parts: list[Any]) -> Any:
        if same:
            return ConcatDataset(parts).transform_first(three)
        return ConcatDataset(
            [ConcatDataset(parts[:2]).transform_first(two), ConcatDataset(parts[2:]).transform_first(three)]
        )

    def samples(parts: list[Any], executor: str) -> list[Any]:
        with DataLoader(joined(parts), 5 if same else 1, seed=3, **pool(executor, 2)) as loader:
            return [(*map(np.array, images), np.array(labels)) for images, labels in loader]

    expected = samples([plain(range(4)), plain(range(4, 8)), plain(range(8, COUNT))], "inline")
    for executor in ("inline", "process"):
        assert_same(samples(mixed, executor), expected)


def test_sizes_come_from_headers(mixed: list[Any]) -> None:
    joined = ConcatDataset([*mixed[:2], mixed[3]])
    assert aioloader.image_sizes(joined).tolist() == [[24, 32]] * len(joined)
    assert len(aioloader.image_costs(joined.take(5), lambda height, width: height * width)) == 5


def test_empty_parts_are_passed_over(mixed: list[Any]) -> None:
    empty: list[Any] = []
    joined = ConcatDataset([empty, mixed[0], empty, mixed[1], mixed[0].take(0)])
    assert labels_in(batches_of(joined, sampler=None)) == list(range(8))
    for nothing in (empty, mixed[0].take(0)):
        assert batches_of(ConcatDataset([nothing]), sampler=None) == []


# -- order -------------------------------------------------------------------------------------------------------------


def test_a_state_of_parts_in_another_order_is_refused(mixed: list[Any]) -> None:
    joined = ConcatDataset(mixed)
    other = ConcatDataset([mixed[1], mixed[0], *mixed[2:]])
    assert fingerprint(other) != fingerprint(joined) == fingerprint(ConcatDataset(mixed))
    with DataLoader(joined, 2, shuffle=True, num_workers=0) as loader:
        state = loader.state_dict()
    with DataLoader(other, 2, shuffle=True, num_workers=0) as loader, pytest.raises(ResumeError):
        loader.load_state_dict(state)


def test_blocks_of_several_parts_are_mixed(tmp_path: Path, mixed: list[Any]) -> None:
    parquet = pytest.importorskip("pyarrow.parquet", reason="Parquet files are written with pyarrow")
    assert parquet
    from tests.aioloader.datasets.parquet_files import write_images

    parts = [
        aioloader.ParquetDataset(write_images(tmp_path / f"{n}.parquet", 100 * n, 60, group=5))
        for n in range(2)
    ]
    others = SimpleDataset([(np.zeros((16, 16, 3), np.uint8), np.int64(-number)) for number in range(COUNT)])
    joined = ConcatDataset([parts[0], others, parts[1].take(33)])
    with DataLoader(joined, 4, shuffle=True, num_workers=0, seed=1) as loader:
        order = loader._runtime.planner.sampler
        assert isinstance(order, BlockShuffleSampler)
        indices = order.indices(1, 0, 0, len(joined))
        assert sorted(indices.tolist()) == list(range(len(joined)))
        first = labels_in(loader)
    assert first == [int(joined[int(index)][1]) for index in indices]
    shuffled = joined.sample(RandomSampler(len(joined), seed=2))
    with DataLoader(shuffled, 4, shuffle=True, num_workers=0, seed=1) as loader:
        found = labels_in(loader)
    assert sorted(found) == sorted(first) != first
    assert isinstance(ConcatDataset(mixed[:2]).transform_first(CHAIN), aioloader.Dataset)
    with DataLoader(ConcatDataset(mixed[:2]), 4, shuffle=True, num_workers=0) as loader:
        assert isinstance(loader._runtime.planner.sampler, RandomSampler)


# -- damage, caches, crop indexes --------------------------------------------------------------------------------------


def test_a_damaged_item_names_its_part(tmp_path: Path) -> None:
    root = TAR.write(tmp_path / "set", SAMPLES)
    sound = aioloader.ImageRecordDataset(write_records(tmp_path / "a.rec", range(5)))
    alone = TAR.open(root)
    damage(root, jpeg(13))
    options: dict[str, Any] = {"batch_size": 4, "on_error": "skip", **pool("process", 1)}
    with DataLoader(alone, **options) as loader:
        list(loader)
        (wanted,) = loader.errors
    with DataLoader(ConcatDataset([sound, alone]), **options) as loader:
        assert len(labels_in(loader)) == 5 + COUNT - 1
        (error,) = loader.errors
    assert (error.index, error.path, error.key) == (wanted.index + 5, wanted.path, wanted.key)
    assert error.offset == wanted.offset
    assert str(error.__cause__).splitlines()[0] == str(wanted.__cause__).splitlines()[0]


def test_a_failed_item_of_a_part_without_files_is_named() -> None:
    class Failing:
        def __len__(self) -> int:
            return 3

        def __getitem__(self, index: int) -> Any:
            if index == 1:
                raise OSError("gone")
            return np.int64(index)

    joined = ConcatDataset([SimpleDataset([np.int64(7)]), Failing()])
    with (
        DataLoader(joined, 4, num_workers=0) as loader,
        pytest.raises(SampleError, match="item 1 of part 1 \\(Failing\\)") as caught,
    ):
        list(loader)
    assert caught.value.index == 2


def test_crops_are_cut_with_the_index_of_each_part(tmp_path: Path) -> None:
    write_record_files(tmp_path)
    (tmp_path / "images").mkdir()
    write_image_folder(tmp_path / "images")
    crop = transforms.RandomResizedCrop(24, scale=(0.05, 0.3))

    def run(executor: str, **options: Any) -> tuple[list[Any], int]:
        records = aioloader.ImageRecordDataset(str(tmp_path / "part-*.rec"), **options)
        folder = aioloader.ImageFolderDataset(tmp_path / "images", **options)
        dataset = ConcatDataset([records, folder]).transform_first(crop)
        with DataLoader(dataset, 4, shuffle=True, seed=3, **pool(executor, 1)) as loader:
            return copies(loader), cuts_of(loader)

    without, cuts = run("inline", crop_index=None)
    assert cuts == 0
    for executor in ("inline", "process"):
        found, cuts = run(executor)
        assert_same(found, without)
        assert cuts > len(IMAGES) / 2


def test_caches_of_parts_are_used(tmp_path: Path) -> None:
    paths = [write_records(tmp_path / f"{low}.rec", range(low, low + 4)) for low in (0, 4)]
    parts = [
        aioloader.ImageRecordDataset(path, cache=cache)
        for path, cache in zip(paths, (tmp_path / "cache", None), strict=True)
    ]
    for rate in (0.0, 1.0):
        with DataLoader(ConcatDataset(parts), 4, num_workers=0) as loader:
            assert labels_in(loader) == list(range(8))
            assert loader.stats().hit_rate == rate


# -- as in torch -------------------------------------------------------------------------------------------------------


def test_what_cannot_be_a_part_is_refused(mixed: list[Any]) -> None:
    with pytest.raises(ValueError, match="at least one"):
        ConcatDataset([])
    with pytest.raises(AssertionError):
        ConcatDataset([])
    with pytest.raises(TypeError, match="dataset 1 is an IterableDataset"):
        ConcatDataset([mixed[0], aioloader.IterableDataset(lambda: iter([1]))])
    with pytest.raises(TypeError, match="dataset 0 needs __len__"):
        ConcatDataset([iter([1])])  # type: ignore[list-item]
    with pytest.raises(TypeError, match="a list of datasets"):
        ConcatDataset(mixed[0])


def test_an_async_transform_of_one_part_is_refused(mixed: list[Any]) -> None:
    async def late(image: Any) -> Any:
        return image

    joined = ConcatDataset([SimpleDataset(mixed[0]).transform_first(late), mixed[1]])
    with pytest.raises(TypeError, match="apply it to the ConcatDataset"):
        DataLoader(joined, 2, num_workers=0)
    shared = ConcatDataset([SimpleDataset(part).transform_first(late) for part in mixed[:2]])
    assert sorted(labels_in(batches_of(shared))) == list(range(8))


def test_a_class_with_its_own_items_is_asked_for_them(mixed: list[Any]) -> None:
    class Mine(ConcatDataset):
        def __getitem__(self, index: int) -> Any:
            return int(super().__getitem__(index)[1]) + 100

    mine = Mine(mixed[:2])
    assert resolve(mine).base_kind == "foreign"
    with DataLoader(mine, 8, num_workers=0) as loader:
        assert next(iter(loader)).tolist() == list(range(100, 108))


def test_datasets_are_added(mixed: list[Any]) -> None:
    joined = mixed[0] + mixed[1]
    assert isinstance(joined, aioloader.ConcatDataset)
    assert joined.datasets == [mixed[0], mixed[1]]
    assert (joined + mixed[-1]).targets[-1] == COUNT - 1
