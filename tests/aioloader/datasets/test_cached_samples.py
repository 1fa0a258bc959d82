"""Tests of kept samples: batches are those without them, each sample is made once, and nothing wrong is ever used."""

from __future__ import annotations

import io
import json
import os
import pickle
import random
import shutil
import signal
import subprocess
import sys
import tarfile
import threading
import tracemalloc
import warnings
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, SampleCacheWarning, transforms
from aioloader.datasets.cached_samples import ItemVersions
from tests.aioloader.datasets.batches import assert_same, batches_of, copies
from tests.combinations import combinations
from tests.executors import OF_FORKS, pool

CROP = transforms.Compose([transforms.RandomResizedCrop(16), transforms.RandomHorizontalFlip()])


def turned(image: Any) -> Any:
    """Alter the image: it must be the caller's own."""
    image[..., 0] = 255 - image[..., 0]
    return image[::-1].copy()


def square(image: Any) -> Any:
    """Return an image of a fixed size."""
    return np.ascontiguousarray(image[:20, :20])


def shares(image: Any, label: Any) -> dict[str, Any]:
    """Return a dict, which no stage is fused with."""
    return {"image": image[:8, :8], "label": label, "mean": np.float32(image.mean())}


# The stages before the samples are kept, and those behind.
CHAINS: dict[str, tuple[Any, Any]] = {
    "decoded": ((), (CROP,)),
    "resized": ((transforms.Resize(40),), (transforms.RandomCrop(24), transforms.ToTensor())),
    "plain": ((transforms.Resize(24), transforms.CenterCrop(24)), ()),
    "altered": ((), (turned, transforms.RandomResizedCrop(12))),
    "floats": (
        (transforms.Resize(20), transforms.CenterCrop(20), transforms.ToTensor()),
        (transforms.Normalize(0.5, 0.2),),
    ),
    "python": ((square,), (transforms.RandomHorizontalFlip(), transforms.ToTensor())),
    "views": (
        (),
        (transforms.Views({"a": (transforms.RandomResizedCrop(8), 2), "b": (transforms.RandomCrop(8), 1)}),),
    ),
}


def chained(dataset: Any, fns: Any) -> Any:
    for fn in fns:
        dataset = dataset.transform_first(fn)
    return dataset


@pytest.fixture
def paths(photo_folder: Path, photo_rec: Path) -> dict[str, Path]:
    return {"folder": photo_folder, "rec": photo_rec}


@pytest.mark.parametrize(
    ("where", "chain", "executor"),
    combinations(
        {"folder-memory": ("folder", "memory"), "rec-files": ("rec", "files")},
        CHAINS,
        ["inline", "thread", "process"],
    ),
)
def test_batches_are_those_without_it(
    where: tuple[str, str], chain: Any, executor: str, paths: dict[str, Path], tmp_path: Path
) -> None:
    kind, place = where
    before, behind = chain
    plain = chained(aioloader.open_dataset(paths[kind]), before)
    kept = plain.cache_samples("1GB", tmp_path if place == "files" else None)
    options: Any = {"batch_size": 5, "shuffle": True, "seed": 5, **pool(executor, 2)}
    with (
        DataLoader(chained(plain, behind), **options) as expected,
        DataLoader(chained(kept, behind), **options) as found,
    ):
        for _ in range(3):
            assert_same_leaves(list(map(_own, found)), list(map(_own, expected)))
        assert found.stats().kept_samples == len(plain)
        assert found.stats().decode_ways["kept"] == 2 * len(plain)


def _own(batch: Any) -> Any:
    return pickle.loads(pickle.dumps(batch))


def assert_same_leaves(found: Any, expected: Any) -> None:
    from aioloader.foundation.pytree import flatten

    (one, leaves), (other, others) = flatten(found), flatten(expected)
    assert one == other
    for leaf, value in zip(leaves, others, strict=True):
        np.testing.assert_array_equal(leaf, value)
        assert getattr(leaf, "dtype", None) == getattr(value, "dtype", None)


def test_samples_are_those_of_the_dataset(photo_rec: Path) -> None:
    plain = aioloader.open_dataset(photo_rec)
    kept = plain.cache_samples("1GB")
    assert len(kept) == len(plain)
    assert kept.labels().tolist() == plain.labels().tolist()
    for _ in range(2):
        for index in (0, 3, -1):
            image, label = kept[index]
            np.testing.assert_array_equal(image, plain[index][0])
            assert label == plain[index][1]
            image[:] = 0  # the caller's own
    with pytest.raises(IndexError):
        kept[len(plain)]


class Counting:
    """A dataset of torch's kind that counts in a file how often each item is made."""

    def __init__(self, log: Path, count: int = 12) -> None:
        self.log, self.count = log, count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        with self.log.open("a") as log:
            log.write(f"{index}\n")
        return np.full((6, 5, 3), index, np.uint8), {"name": f"item {index}", "of": [index, None]}


def first_of(batch: Any) -> Any:
    return batch[0]


@pytest.mark.parametrize("executor", ["inline", "thread", "process"])
def test_a_dataset_of_another_library_is_asked_once_for_each_item(executor: str, tmp_path: Path) -> None:
    kept = aioloader.cache_samples(Counting(tmp_path / "log"), "10MB")
    with DataLoader(kept, 1, shuffle=True, batchify_fn=first_of, **pool(executor, 2)) as loader:
        for _ in range(3):
            found = sorted(((int(image.max()), other) for image, other in loader), key=lambda each: each[0])
            assert found == [(n, {"name": f"item {n}", "of": [n, None]}) for n in range(12)]
    assert sorted(map(int, (tmp_path / "log").read_text().split())) == list(range(12))


def test_ranks_and_a_later_run_share_a_folder(photo_folder: Path, tmp_path: Path) -> None:
    def rank(number: int, state: Any = None) -> tuple[Any, Any]:
        dataset = aioloader.open_dataset(photo_folder).cache_samples("1GB", tmp_path).transform_first(CROP)
        with DataLoader(dataset, 4, shuffle=True, seed=1, shard=(number, 2), num_workers=0) as loader:
            found = copies(loader)
            return found, loader.stats()

    plain = aioloader.open_dataset(photo_folder).transform_first(CROP)
    made = 0
    for number in (0, 1, 0, 1):
        found, stats = rank(number)
        assert_same(found, batches_of(plain, batch_size=4, seed=1, shard=(number, 2)))
        made += stats.samples - stats.decode_ways["kept"]
    assert made == len(plain)


def test_a_set_that_does_not_fit_is_kept_in_part(photo_rec: Path) -> None:
    plain = aioloader.open_dataset(photo_rec)
    half = sum(image.nbytes for image, _ in plain) // 2
    kept = plain.cache_samples(half).transform_first(CROP)
    with DataLoader(kept, 4, shuffle=True, seed=5, num_workers=0) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            with DataLoader(plain.transform_first(CROP), 4, shuffle=True, seed=5, num_workers=0) as other:
                other.set_epoch(epoch)
                assert_same(copies(loader), copies(other))
        stats = loader.stats()
    assert stats.kept_samples is not None
    assert 0.3 < stats.kept_samples / len(plain) < 0.6
    assert stats.kept_bytes is not None
    assert stats.kept_bytes <= half
    assert stats.decode_ways["kept"] == 2 * stats.kept_samples


def test_a_state_continues_with_and_without_it(photo_rec: Path) -> None:
    plain = aioloader.open_dataset(photo_rec)
    kept = plain.cache_samples("1GB")
    options: Any = {"batch_size": 3, "shuffle": True, "seed": 2, "num_workers": 0}
    with DataLoader(kept.transform_first(CROP), **options) as loader:
        iterator = iter(loader)
        next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        rest = [tuple(map(np.array, batch)) for batch in iterator]
    for dataset in (plain, kept):
        with DataLoader(dataset.transform_first(CROP), **options) as loader:
            loader.load_state_dict(state)
            assert_same(copies(loader), rest)


@pytest.mark.parametrize("place", ["memory", "files"])
def test_a_file_that_changes_is_made_anew(photo_folder: Path, tmp_path: Path, place: str) -> None:
    photos = tmp_path / "photos"
    shutil.copytree(photo_folder, photos)
    victim = sorted(photos.rglob("*.jpg"))[0]
    plain = aioloader.open_dataset(photos)
    kept = plain.cache_samples("1GB", tmp_path / "kept" if place == "files" else None)
    options: Any = {"batch_size": 4, "seed": 5, "num_workers": 0}
    with DataLoader(kept.transform_first(CROP), **options) as loader:
        list(loader)
        victim.write_bytes(sorted(photos.rglob("*.jpg"))[1].read_bytes())
        os.utime(victim, ns=(1, 1))
        with pytest.warns(SampleCacheWarning, match="has changed"):
            found = copies(loader)
        loader.set_epoch(1)
        with DataLoader(plain.transform_first(CROP), **options) as other:
            other.set_epoch(1)
            assert_same(found, copies(other))


def test_a_record_file_that_is_written_to_is_read_anew_at_once(photo_rec: Path, tmp_path: Path) -> None:
    for name in ("photos.rec", "photos.idx"):
        shutil.copy(photo_rec.with_name(name), tmp_path)
    kept = aioloader.open_dataset(tmp_path / "photos.rec").cache_samples("1GB").transform_first(CROP)
    with DataLoader(kept, 4, num_workers=0) as loader:
        list(loader)
        with (tmp_path / "photos.rec").open("r+b") as file:
            file.seek(12)  # the label of the first record
            file.write(np.float32(77).tobytes())
        with pytest.warns(SampleCacheWarning, match="has changed"):
            assert float(next(iter(loader))[1][0]) == 77


def test_what_draws_is_refused_by_name(photo_rec: Path) -> None:
    dataset = aioloader.open_dataset(photo_rec)
    with pytest.raises(ValueError, match="RandomResizedCrop draws"):
        dataset.transform_first(CROP).cache_samples("1MB")
    with pytest.raises(ValueError, match="ColorJitter draws"):
        dataset.transform_first(transforms.ColorJitter(0.5)).cache_samples("1MB")
    with pytest.raises(TypeError, match="async"):
        dataset.transform(_awaited).cache_samples("1MB")


async def _awaited(image: Any, label: Any) -> Any:
    return image, label


def noisy(image: Any) -> Any:
    return image[: 4 + np.random.randint(3), :4]


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_draws_of_foreign_code_are_noticed(photo_rec: Path, executor: str) -> None:
    kept = aioloader.open_dataset(photo_rec).transform_first(noisy).cache_samples("1MB")
    with (
        pytest.raises(aioloader.SampleError, match="draws random numbers"),
        DataLoader(kept, 4, **pool(executor, 1)) as loader,
    ):
        list(loader)


def test_images_keeps_decoded_pixels(photo_folder: Path) -> None:
    with (
        aioloader.images(photo_folder, 32, 6, blocking=True, num_workers=0, decoded_cache="1GB") as kept,
        aioloader.images(photo_folder, 32, 6, blocking=True, num_workers=0) as plain,
    ):
        for _ in range(2):
            assert_same(copies(kept), copies(plain))
        assert kept.stats().decode_ways["kept"] == len(kept.dataset)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_kept_sets_are_joined(photo_folder: Path, tmp_path: Path, executor: str) -> None:
    shutil.copytree(photo_folder, tmp_path / "photos")
    plain = aioloader.open_dataset(tmp_path / "photos")
    kept, full = plain.take(4).cache_samples("1GB"), plain.take(3).cache_samples(8000)
    joined = aioloader.ConcatDataset(
        [kept, plain, full, aioloader.ConcatDataset([plain, plain]).cache_samples("1GB")]
    )
    options: Any = {"batch_size": 5, **pool(executor, 2)}
    with DataLoader(joined.transform_first(CROP), **options) as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            if epoch == 2:
                victim = sorted((tmp_path / "photos").rglob("*.jpg"))[0]
                victim.write_bytes(sorted(photo_folder.rglob("*.jpg"))[1].read_bytes())
                os.utime(victim, ns=(1, 1))
            with warnings.catch_warnings():
                warnings.simplefilter("ignore" if epoch == 2 else "error", SampleCacheWarning)
                found = copies(loader)
            same = aioloader.ConcatDataset(
                [plain.take(4), plain, plain.take(3), plain, plain]
            ).transform_first(CROP)
            with DataLoader(same, **options) as other:
                other.set_epoch(epoch)
                assert_same(found, copies(other))
        stats = loader.stats()
        assert "The limit of cache_samples() is reached" in loader.explain()
    assert (stats.kept_full, stats.kept_failed) == (True, False)
    assert stats.kept_items is not None
    assert stats.kept_samples is not None
    assert 0 < stats.kept_samples < stats.kept_items


@pytest.mark.parametrize("executor", ["inline", "process"])
@pytest.mark.parametrize("length", [None, 4096, 0])
def test_a_table_that_is_damaged_between_epochs(
    photo_rec: Path, tmp_path: Path, executor: str, length: int | None
) -> None:
    plain = aioloader.open_dataset(photo_rec)
    kept = plain.cache_samples("1GB", tmp_path)
    options: Any = {"batch_size": 4, "shuffle": True, "seed": 5, **pool(executor, 1)}
    with (
        DataLoader(kept.transform_first(CROP), **options) as loader,
        DataLoader(plain.transform_first(CROP), **options) as expected,
    ):
        for _ in range(2):
            assert_same(copies(loader), copies(expected))
        (path,) = tmp_path.glob("samples-1-*-*")
        size = path.stat().st_size if length is None else length
        os.truncate(path, size if length is not None else 4096)
        os.truncate(path, size)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SampleCacheWarning)
            for _ in range(2):
                assert_same(copies(loader), copies(expected))


SCRIPT = """
import sys, numpy as np, aioloader

class Squares:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        print("made", flush=True)
        return np.full((2, 2), index * index)

kept = aioloader.cache_samples(Squares(), "1MB", sys.argv[1])
assert [int(kept[index][0, 0]) for index in range(4)] == [0, 1, 4, 9]
"""


def test_a_class_of_the_main_script_is_recognized_in_a_later_run(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script), str(tmp_path / "kept")]
    made = [subprocess.run(command, capture_output=True, text=True, check=True).stdout for _ in range(2)]
    assert [text.count("made") for text in made] == [4, 0]


# Transforms without draws, and with, for chains of a property test.
PLAIN: list[Any] = [
    transforms.Resize(40),
    transforms.Resize((30, 50)),
    transforms.CenterCrop(28),
    transforms.Grayscale(3),
    square,
    turned,
]
DRAWN: list[Any] = [
    transforms.RandomResizedCrop(20),
    transforms.RandomCrop(18, padding=8),
    transforms.RandomHorizontalFlip(),
    transforms.ColorJitter(0.4, 0.4),
    transforms.RandomErasing(0.5),
    turned,
]


@pytest.fixture(scope="module")
def formats(photo_folder: Path, photo_rec: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    parquet, table = pytest.importorskip("pyarrow.parquet"), pytest.importorskip("pyarrow").table
    folder = tmp_path_factory.mktemp("formats")
    photos = sorted(path for path in photo_folder.rglob("*") if path.is_file())
    labels = [sorted(photo_folder.iterdir()).index(path.parent) for path in photos]
    with tarfile.open(folder / "photos.tar", "w") as tar:
        for number, (path, label) in enumerate(zip(photos, labels, strict=True)):
            for name, data in ((path.suffix, path.read_bytes()), (".cls", str(label).encode())):
                member = tarfile.TarInfo(f"{number:03}{name}")
                member.size = len(data)
                tar.addfile(member, io.BytesIO(data))
    images = [{"bytes": path.read_bytes(), "path": path.name} for path in photos]
    parquet.write_table(table({"image": images, "label": labels}), folder / "photos.parquet")
    return {
        "folder": photo_folder,
        "rec": photo_rec,
        "tar": folder / "photos.tar",
        "parquet": folder / "photos.parquet",
    }


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] * (seed >= 3)) for seed in range(16)]
)
def test_any_chain_has_the_same_batches(seed: int, formats: dict[str, Path], tmp_path: Path) -> None:
    """Chains of a random length, kept at a random place, one rank of several, stopped at a batch and continued."""
    rng = random.Random(seed)
    kind = list(formats)[seed % 4]
    executor = ["inline", "process", "thread", "fork"][(seed + seed // 4) % 4]
    plain = kept = aioloader.open_dataset(formats[kind])
    limit = rng.choice(["1GB", "1GB", "400kB"])
    if rng.random() < 0.3:
        plain = kept = plain.sample(rng.sample(range(len(plain)), 15))
    before = rng.sample(PLAIN, rng.randrange(3))
    for fn in before:
        plain, kept = plain.transform_first(fn), kept.transform_first(fn)
    kept = kept.cache_samples(limit, rng.choice([None, tmp_path]))
    if rng.random() < 0.3:
        plain, kept = plain.take(14), kept.take(14)
    for fn in [*rng.sample(DRAWN, rng.randrange(3)), transforms.RandomResizedCrop(16)]:
        plain, kept = plain.transform_first(fn), kept.transform_first(fn)
    world = rng.choice([1, 2, 3])
    options: Any = {
        "batch_size": rng.randrange(2, 6),
        "shuffle": rng.random() < 0.8,
        "seed": seed,
        "even": "pad",
    }
    options["shard"] = (rng.randrange(world), world)
    with DataLoader(plain, **options, **pool(executor, 2)) as loader:
        expected = [copies(loader) for _ in range(3)]
    found: list[Any] = [[], [], []]
    state, at = None, rng.randrange(1, len(expected[1]) + 1)
    with DataLoader(kept, **options, **pool(executor, 2)) as loader:
        found[0] = copies(loader)
        for batch in loader:
            found[1].append(tuple(map(np.array, batch)))
            if len(found[1]) == at:
                state = json.loads(json.dumps(loader.state_dict()))
                break
    with DataLoader(kept, **options, **pool(rng.choice(["inline", "thread"]), 1)) as loader:
        loader.load_state_dict(state)
        found[1] += copies(loader)
        found[2] = copies(loader)
    if at == len(expected[1]):  # the rest of an epoch that was whole is empty
        assert len(found[1]) in (at, at + len(expected[2]))
    for some, others in zip(found, expected, strict=True):
        assert_same_leaves(some[: len(others)], others)


def test_arrays_of_the_dataset_are_not_altered() -> None:
    images = [np.random.default_rng(number).integers(0, 256, (9, 7, 3), np.uint8) for number in range(8)]
    before = [image.copy() for image in images]
    kept = aioloader.SimpleDataset(images).cache_samples("1MB")
    chain = transforms.Compose([transforms.RandomHorizontalFlip(1.0), transforms.ToTensor()])
    with DataLoader(kept.transform_first(chain), 4, num_workers=0) as loader:
        for _ in range(2):
            list(loader)
    for image, old in zip(images, before, strict=True):
        np.testing.assert_array_equal(image, old)


def test_samples_for_torchs_loader_are_its_own(photo_rec: Path) -> None:
    kept = aioloader.open_dataset(photo_rec).cache_samples("1GB")
    for dataset in (kept, kept.transform(shares)):
        before = pickle.dumps([dataset[index] for index in range(3)])
        for sample in dataset.__getitems__([0, 1, 2]):
            (sample["image"] if isinstance(sample, dict) else sample[0])[:] = 7
        assert pickle.dumps([dataset[index] for index in range(3)]) == before


def test_a_single_sample_of_a_changed_file_is_made_again(photo_folder: Path, tmp_path: Path) -> None:
    shutil.copytree(photo_folder, tmp_path / "photos")
    plain = aioloader.open_dataset(tmp_path / "photos")
    kept = plain.cache_samples("1GB")
    first, second = plain.location(0).path, plain.location(1).path
    assert kept[0][0].size
    shutil.copy(second, first)
    with pytest.warns(SampleCacheWarning, match="has changed"):
        image = kept[0][0]
    np.testing.assert_array_equal(image, plain[1][0])


class Numbered(aioloader.formats.EncodedDataset):
    """Images of a library that reads a file by itself."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.path = path

    def __len__(self) -> int:
        return 3

    def read(self, indices: Any) -> list[bytes]:
        image = np.full((4, 4, 3), int(self.path.read_text()), np.uint8)
        return [transforms.encode_raw(image)] * len(indices)


def test_sets_without_files_are_told_apart_in_a_folder(tmp_path: Path) -> None:
    for number in (3, 4):
        (tmp_path / f"{number}.db").write_text(str(number))
        kept = Numbered(tmp_path / f"{number}.db").cache_samples("1MB", tmp_path / "kept")
        assert kept[0].max() == number
    (tmp_path / "4.db").write_text("5")
    assert Numbered(tmp_path / "4.db").cache_samples("1MB", tmp_path / "kept")[0].max() == 5


def test_joined_sets_of_one_class_are_told_apart_in_a_folder(tmp_path: Path) -> None:
    for number in (3, 4):
        (tmp_path / f"{number}.db").write_text(str(number))
        one = Numbered(tmp_path / f"{number}.db")
        assert (one + one).cache_samples("1MB", tmp_path / "kept")[5].max() == number


@pytest.mark.parametrize("outer", [lambda kept: kept.sample([2, 0] * 20), lambda kept: kept.shard(3, 1)])
def test_kept_samples_of_a_part_of_kept_samples(photo_rec: Path, tmp_path: Path, outer: Any) -> None:
    plain = aioloader.open_dataset(photo_rec)
    resized = transforms.Resize(20)
    kept = outer(plain.cache_samples("1GB", tmp_path)).transform_first(resized).cache_samples("1GB", tmp_path)
    expected = batches_of(outer(plain).transform_first(transforms.Compose([resized, CROP])))
    for _ in range(2):
        assert_same(batches_of(kept.transform_first(CROP)), expected)


def test_a_state_goes_on_with_twice_kept_samples(photo_rec: Path) -> None:
    kept = aioloader.open_dataset(photo_rec).cache_samples("1GB").transform_first(transforms.Resize(20))
    with DataLoader(kept.cache_samples("1GB").transform_first(CROP), 4, num_workers=0) as loader:
        state = loader.state_dict()
        list(loader)
        loader.load_state_dict(state)


def test_edited_code_that_a_transform_calls_makes_another_set(
    photo_rec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "deep_code.py").write_text("def part(image):\n    return image[:5, :5]\n")
    (tmp_path / "my_code.py").write_text(
        "import deep_code\n\ndef cut(image):\n    return deep_code.part(image)\n"
    )
    import my_code  # type: ignore[import-not-found]

    def made() -> set[str]:
        chain = transforms.Compose([my_code.cut])
        kept = (
            aioloader.open_dataset(photo_rec).transform_first(chain).cache_samples("1GB", tmp_path / "kept")
        )
        assert len(kept[0])
        return {path.name for path in (tmp_path / "kept").iterdir()}

    before = made()
    assert made() == before
    os.utime(tmp_path / "deep_code.py", ns=(1, 1))
    assert made() != before


@pytest.mark.parametrize("collate", [None, first_of], ids=["rows", "whole"])
def test_samples_that_are_lost_are_made_again_in_little_memory(tmp_path: Path, collate: Any) -> None:
    (tmp_path / "noise" / "a").mkdir(parents=True)
    for number in range(6):
        image = np.random.default_rng(number).integers(0, 256, (200, 200, 3), np.uint8)
        cv2.imwrite(str(tmp_path / "noise" / "a" / f"{number}.png"), image)
    plain = aioloader.open_dataset(tmp_path / "noise")
    kept = plain.cache_samples("1GB", tmp_path / "kept")
    assert all(kept[index][1] == 0 for index in range(6))
    options: Any = {"batch_size": 1, "batchify_fn": collate, "shuffle": True, "seed": 5}
    few: Any = {"memory_limit": 180_000, "prefetch": 4, **pool("process", 1)}
    with DataLoader(kept.transform_first(CROP), **options, **few) as loader:
        (path,) = (tmp_path / "kept").glob("samples-1-*-*")
        with path.open("r+b") as file:
            for place in range(8192, path.stat().st_size, 1000):
                file.seek(place)
                file.write(b"\1\2\3")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SampleCacheWarning)
            found = copies(loader)
    assert_same(found, batches_of(plain.transform_first(CROP), **options))


@OF_FORKS
def test_a_fork_while_a_thread_opens_the_set_opens_it(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = aioloader.SimpleDataset([1, 2]).cache_samples("1MB")
    begun, forked, parent, of = threading.Event(), threading.Event(), os.getpid(), ItemVersions.of

    def slow(resolved: Any) -> Any:
        if os.getpid() == parent:
            begun.set()
            forked.wait()
        return of(resolved)

    monkeypatch.setattr(ItemVersions, "of", slow)
    thread = threading.Thread(target=kept.__getitem__, args=(0,))
    thread.start()
    begun.wait()
    child = os.fork()
    if not child:
        signal.alarm(60)
        os._exit(kept[1])
    _, status = os.waitpid(child, 0)
    forked.set()
    thread.join()
    assert os.waitstatus_to_exitcode(status) == kept[1] == 2


class Listed:
    """Numbers that are read from files with names in a folder."""

    def __init__(self, root: Path) -> None:
        self.root, self.names = root, [path.name for path in sorted(root.iterdir())]

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> Any:
        return np.full(3, int((self.root / self.names[index]).read_text()))


class Selected:
    """A part of another dataset, as torch's Subset."""

    def __init__(self, dataset: Any, indices: list[int]) -> None:
        self.dataset, self.indices = dataset, indices

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, index: int) -> Any:
        return self.dataset[self.indices[index]]


@pytest.mark.parametrize("place", ["memory", "files", "single"])
def test_changed_files_of_other_datasets_are_noticed(tmp_path: Path, place: str) -> None:
    (tmp_path / "data").mkdir()
    for number in range(9):
        (tmp_path / "data" / str(number)).write_text("1")

    def kept() -> Any:
        selected = Selected(Listed(tmp_path / "data"), [7, 0, 3, 2])
        return aioloader.cache_samples(selected, "1MB", None if place == "memory" else tmp_path / "kept")

    dataset = kept()
    with DataLoader(dataset, 2, shuffle=True, num_workers=0) as loader:
        assert sum(batch.sum() for batch in loader) == 12
        (tmp_path / "data" / "3").write_text("25")
        with pytest.warns(SampleCacheWarning, match="data/3 has changed"):
            list(dataset if place == "single" else loader)
        assert sum(sample.sum() for sample in (dataset if place == "single" else loader)) == 84
    assert sum(sample.sum() for sample in kept()) == 84


def test_mapped_arrays_are_recognized_by_their_files(tmp_path: Path) -> None:
    path = tmp_path / "images.npy"
    np.lib.format.open_memmap(path, "w+", np.uint8, (1 << 14, 64, 64)).flush()  # 67 MB of zeros

    def most(start: int) -> int:
        images = np.load(path, mmap_mode="r")[start:]
        return int(aioloader.cache_samples(images, "1MB", tmp_path / "kept")[0].max())

    tracemalloc.start()
    assert [most(0), most(3)] == [0, 0]
    assert tracemalloc.get_traced_memory()[1] < 1 << 25
    tracemalloc.stop()
    assert len(list((tmp_path / "kept").glob("samples-*-*-*"))) == 2
    images = np.load(path, mmap_mode="r+")
    images[3] = 7
    images.flush()
    os.utime(path, ns=(1, 1))
    assert most(3) == 7
    assert len(list((tmp_path / "kept").glob("samples-*-*-*"))) == 2
