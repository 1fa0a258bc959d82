"""Tests of reading only the parts of remote images that crops need: the samples are those of local files."""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest

import aioloader
import recordio
from aioloader import transforms
from aioloader.crop_index import lookup as fetched
from aioloader.crop_index.layout import FOLDER, RECORDS, fetched_index, record_index
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.datasets import InsightFaceDataset
from aioloader.errors import CropIndexWarning, SampleError
from aioloader.formats.recordio import dataset as partial_reads
from aioloader.storage.remote import source
from aioloader.storage.remote.opening import describe
from tests.aioloader.crop_index.samples import IMAGES, spoil_entries, write_record_files
from tests.aioloader.remote.conftest import ServedFolder, assert_same
from tests.aioloader.transforms.fusing import oriented
from tests.executors import pool
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote
IGNORED = pytest.mark.filterwarnings("ignore::aioloader.errors.CropIndexWarning")

CROP = transforms.RandomResizedCrop(24, scale=(0.05, 0.3))
CHAINS: dict[str, list[Any]] = {
    "resized": [CROP, transforms.RandomHorizontalFlip()],
    "tensor": [CROP, transforms.ToTensor(), transforms.Normalize(0.5, 0.25)],
    "random": [transforms.RandomCrop(31)],
    "centre": [transforms.CenterCrop((40, 30))],
    "fixed": [transforms.CropResize(35, 10, 30, 50, size=20)],
    "resize-crop": [transforms.Resize((120, 120)), transforms.RandomCrop(40)],
}


SKIP: dict[str, Any] = {"on_error": "skip", "max_errors": 10000}


class Served(NamedTuple):
    """Record files of the golden images with crop indexes, on a server.

    Attributes:
        urls: their addresses through `proxy`.
        paths: the files themselves.
        proxy: a `tests.servers.fault_proxy.FaultProxy`.
    """

    urls: list[str]
    paths: list[Path]
    proxy: Any

    def restart(self) -> None:
        """Forget the requests."""
        self.proxy.restart()

    def targets(self) -> list[str]:
        """Return the names of the files that were requested."""
        return [target.rpartition("/")[2] for _, target, _ in self.proxy.log()]


@pytest.fixture
def golden(there: ServedFolder) -> Served:
    """Serve two record files with crop indexes next to them."""
    paths = write_record_files(there.folder)
    return Served([f"{there.url}/{path.name}" for path in paths], paths, there.proxy)


@pytest.fixture(autouse=True)
def _gaps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out every gap, because the golden images are smaller than those that are requested along."""
    monkeypatch.setattr(source, "_GAP_OF_PARTS", 0)


def images(paths: Any, chain: str = "resized", **options: Any) -> aioloader.Dataset:
    """Return a dataset of crops."""
    paths = [str(path) for path in paths]
    return aioloader.ImageRecordDataset(paths, **options).transform_first(transforms.Compose(CHAINS[chain]))


def epochs(dataset: aioloader.Dataset, count: int = 2, **options: Any) -> tuple[list[Any], Any]:
    """Return the batches of some epochs, and the statistics."""
    options = {"batch_size": 4, "executor": "inline", "shuffle": True, "seed": 3, **options}
    with aioloader.DataLoader(dataset, **options) as loader:
        batches = [(pixels.copy(), labels.copy()) for _ in range(count) for pixels, labels in loader]
        return batches, loader.stats()


def compare(
    golden: Served,
    count: int = 2,
    chain: str = "resized",
    fn: Any = None,
    files: slice = slice(None),
    dataset: dict[str, Any] | None = None,
    **options: Any,
) -> Any:
    """Fail unless the batches of some epochs are those of the local files; return the statistics.

    Args:
        golden: files and their URLs.
        count: epochs.
        chain: one of `CHAINS`.
        fn: transform after the chain, or None.
        files: some of the files.
        dataset: options of both datasets.
        options: of both loaders; local files are read inline.
    """

    def made(paths: Any, **more: Any) -> aioloader.Dataset:
        found = images(paths[files], chain, **(dataset or {}), **more)
        return found if fn is None else found.transform_first(fn)

    plain = {name: value for name, value in options.items() if name not in ("executor", "num_workers")}
    expected, _ = epochs(made(golden.paths, crop_index=None), count, **plain)
    found, stats = epochs(made(golden.urls), count, **options)
    assert_same(found, expected)
    return stats


def write_images(path: Path, made: list[tuple[Any, bytes, Any]]) -> None:
    """Write a record file and its crop index of some labels, images and entries."""
    with recordio.RecordWriter(path) as writer:
        for number, (label, data, _) in enumerate(made):
            writer.write(recordio.pack(recordio.IRHeader(0, label, number, 0), data), number)
    crops = CropIndexWriter(path.with_suffix(".crops"), kind=RECORDS)
    for (_, data, entry), offset in zip(made, offsets_of(path), strict=True):
        crops.put(offset, len(data), entry)
    crops.finish()


def offsets_of(path: Path) -> list[int]:
    """Return the offsets of the records of a file."""
    found: list[int] = recordio.Index.open(path.with_suffix(".idx")).offsets.tolist()
    return found


def assert_saves(golden: Served, stats: Any, count: int = 2) -> None:
    """Fail unless the loader fetched clearly less than all records."""
    whole = count * sum(path.stat().st_size for path in golden.paths)
    assert 0 < stats.request_bytes < 0.9 * whole
    assert stats.bytes_read < 0.9 * whole
    assert not stats.bad_entries


@pytest.fixture
def incomplete(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Collect the file of each sample that could not be made of parts."""
    found: list[int] = []
    real = partial_reads.CropReads.exclude

    def exclude(self: partial_reads.CropReads, file: int, offset: int) -> None:
        found.append(file)
        real(self, file, offset)

    monkeypatch.setattr(partial_reads.CropReads, "exclude", exclude)
    return found


@pytest.mark.parametrize(
    ("chain", "executor"),
    [
        *((name, "inline") for name in CHAINS if name not in ("resized", "tensor")),
        ("resized", "thread"),
        ("tensor", "process"),
    ],
)
def test_samples_are_those_of_local_files(
    golden: Served, chain: str, executor: str, incomplete: list[int], leftovers: Any
) -> None:
    assert_saves(golden, compare(golden, chain=chain, **pool(executor, 2)))
    assert incomplete == []


@pytest.mark.parametrize(
    "options", [{"dct_scaling": True}, {"flag": 0}, {"exif": "ignore"}, {"max_pixels": 100}]
)
def test_options_of_the_dataset_are_kept(
    golden: Served, options: dict[str, Any], incomplete: list[int]
) -> None:
    stats = compare(golden, dataset=options, **SKIP)
    assert incomplete == []
    if "max_pixels" not in options:
        assert_saves(golden, stats)


@pytest.mark.parametrize("exif", ["apply", "ignore"])
def test_images_are_turned_upright(golden: Served, exif: str, incomplete: list[int]) -> None:
    from aioloader.jpeg.crop_scan import build_entry

    path = golden.paths[0]
    turned = [oriented(IMAGES[number % 4][1], 1 + number // 2) for number in range(16)]
    write_images(
        path, [(float(number), data, build_entry(data, interval=2)) for number, data in enumerate(turned)]
    )
    stats = compare(golden, 4, files=slice(1), dataset={"exif": exif})
    assert stats.bytes_read < 0.9 * 4 * path.stat().st_size
    assert incomplete == []


def test_several_labels_are_those_of_the_record(golden: Served, incomplete: list[int]) -> None:
    path = golden.paths[0]
    write_images(
        path,
        [
            (np.arange(3, dtype=np.float32) + number, data, entry)
            for number, (_, data, entry) in enumerate(IMAGES)
        ],
    )
    stats = compare(golden, files=slice(1), executor="process")
    assert aioloader.ImageRecordDataset(path)[0][1].shape == (3,)
    assert stats.bytes_read < 0.9 * 2 * path.stat().st_size
    assert incomplete == []


def _flip_bytes(path: Path) -> None:
    """Change one byte in the scan of every image, in its middle."""
    data = bytearray(path.read_bytes())
    offsets = offsets_of(path)
    for begin, end in zip(offsets, [*offsets[1:], len(data)], strict=True):
        data[(begin + 2 * end) // 3] ^= 4
    path.write_bytes(data)


def _spoil_headers(path: Path, only: int | None = None) -> None:
    """Change a byte of the headers of every image, or of one image, that no decoder reads: the number of its JFIF."""
    data = bytearray(path.read_bytes())
    for number, at in enumerate(offsets_of(path)):
        if only in (None, number):
            data[data.index(b"JFIF\0", at) + 6] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("executor", "custom"), [("inline", True), ("process", False)])
def test_an_index_of_other_bytes_changes_no_pixel_and_is_one_warning_a_file(
    golden: Served, executor: str, custom: bool, incomplete: list[int]
) -> None:
    for path in golden.paths:
        _flip_bytes(path)
    with pytest.warns(CropIndexWarning) as caught:
        stats = compare(golden, executor=executor, **SKIP, **({"batchify_fn": _stacked} if custom else {}))
    assert len(caught) == 2
    assert len(stats.bad_entries) == 2
    assert set(incomplete) == {0, 1}


def _stacked(samples: list[Any]) -> tuple[Any, Any]:
    return np.stack([pixels for pixels, _ in samples]), np.array([label for _, label in samples])


def _stacked_fours(samples: list[Any]) -> tuple[Any, Any]:
    if len(samples) != 4:
        raise ValueError(f"{len(samples)} samples are no batch")
    return _stacked(samples)


@pytest.mark.parametrize(
    ("executor", "asynchronous", "custom"),
    [("inline", True, True), ("process", False, True), ("process", True, False)],
)
def test_no_batchify_function_gets_a_part_of_a_batch(
    golden: Served, executor: str, asynchronous: bool, custom: bool, incomplete: list[int]
) -> None:
    for path in golden.paths:
        _spoil_headers(path, only=1)
    options = {"batchify_fn": _stacked_fours} if custom else {}
    fn = _doubled if asynchronous else None
    with pytest.warns(CropIndexWarning):
        compare(golden, fn=fn, executor=executor, last_batch="discard", **options)
    assert incomplete


class _WithExtras(aioloader.ImageRecordDataset):
    """Dataset whose items have numbers of its own."""

    def extras(self, indices: Any) -> Any:
        return indices * 3 + 1


def test_the_extras_of_a_derived_class_are_no_parts(golden: Served) -> None:
    expected, _ = epochs(images(golden.paths))
    urls = [str(url) for url in golden.urls]
    found, stats = epochs(_WithExtras(urls).transform_first(transforms.Compose(CHAINS["resized"])))
    assert_same(found, expected)
    assert stats.bytes_read == 2 * sum(path.stat().st_size for path in golden.paths)


def test_damage_in_bytes_that_are_not_fetched_changes_no_sample(
    golden: Served, incomplete: list[int]
) -> None:
    expected, _ = epochs(images(golden.paths, "fixed", crop_index=None))
    for path in golden.paths:
        data = bytearray(path.read_bytes())
        for at in offsets_of(path):
            data[data.index(b"\xff\xda", at) + 20] ^= 4  # in the first row of MCUs
        path.write_bytes(data)
    found, _ = epochs(images(golden.urls, "fixed"))
    assert_same(found, expected)
    assert incomplete == []


@pytest.mark.parametrize(
    "rule",
    [
        Rule("truncate", share=0.5, attempts=1),
        Rule("stall", share=0.3, attempts=1, limit=2, seconds=60, after=0),
    ],
    ids=["truncate", "stall"],
)
def test_faults_of_the_server_change_no_batch(golden: Served, rule: Rule, incomplete: list[int]) -> None:
    expected, _ = epochs(images(golden.paths, crop_index=None))
    there = images(golden.urls)
    with aioloader.DataLoader(there, 4, shuffle=True, seed=3, executor="thread", num_workers=2) as loader:
        found = [(pixels.copy(), labels.copy()) for pixels, labels in loader]
        golden.proxy.behave(rule, seed=3)
        found += [(pixels.copy(), labels.copy()) for pixels, labels in loader]
        stats = loader.stats()
    assert sum(golden.proxy.counts().faults.values()) > 0
    assert_same(found, expected)
    assert_saves(golden, stats)
    assert incomplete == []


def test_damaged_entries_change_no_pixel(golden: Served) -> None:
    spoil_entries(golden.paths[0].parent)
    with pytest.warns(CropIndexWarning) as caught:
        compare(golden, executor="thread")
    assert len(caught) == 2


def test_one_damaged_image_is_read_whole(golden: Served, incomplete: list[int]) -> None:
    path = golden.paths[0]
    data = bytearray(path.read_bytes())
    begin, end = offsets_of(path)[1:3]
    data[(begin + 2 * end) // 3] ^= 4
    path.write_bytes(data)
    with pytest.warns(CropIndexWarning):
        stats = compare(golden, 8)
    assert incomplete == [0]  # once, and no other image
    assert stats.bytes_read < 0.9 * 8 * sum(path.stat().st_size for path in golden.paths)


@IGNORED
def test_a_wrong_index_is_not_tried_for_ever(
    golden: Served, incomplete: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_reads, "_MOST_EXCLUDED", 2)
    for path in golden.paths:
        _spoil_headers(path)
    compare(golden, 4, batch_size=1, prefetch=1)
    # A further one may have been planned already.
    assert [incomplete.count(file) in (2, 3) for file in (0, 1)] == [True, True]


def test_an_index_with_few_wrong_entries_is_used_for_the_others(
    golden: Served, incomplete: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(partial_reads, "_MOST_EXCLUDED", 1)
    monkeypatch.setattr(partial_reads, "_MOST_EXCLUDED_SHARE", 1.0)
    _spoil_headers(golden.paths[0], only=1)
    with pytest.warns(CropIndexWarning):
        stats = compare(golden, 8)
    assert incomplete == [0]
    assert stats.bytes_read < 0.9 * 8 * sum(path.stat().st_size for path in golden.paths)


def test_a_record_that_cannot_be_decoded_fails_as_from_a_local_file(golden: Served) -> None:
    for path in golden.paths:
        data = bytearray(path.read_bytes())
        begin, end = recordio.Index.open(path.with_suffix(".idx")).offsets[1:3].tolist()
        data[begin + 32 : end] = bytes(end - begin - 32)
        path.write_bytes(data)

    def run(paths: Any, **options: Any) -> tuple[list[Any], list[SampleError]]:
        dataset = images(paths, **options)
        with aioloader.DataLoader(
            dataset, 4, shuffle=True, executor="inline", on_error="skip", max_errors=10000
        ) as loader:
            return [(pixels.copy(), labels.copy()) for pixels, labels in loader], list(loader.errors)

    expected, errors = run(golden.paths, crop_index=None)
    found, others = run(golden.urls)
    assert_same(found, expected)
    assert len(errors) == 2
    assert [(e.index, e.stage, type(e.__cause__)) for e in others] == [
        (e.index, e.stage, type(e.__cause__)) for e in errors
    ]


def test_an_async_loader_is_not_blocked(golden: Served, backend: str, no_blocking: None) -> None:
    expected, _ = epochs(images(golden.paths, crop_index=None), 1)
    there = images(golden.urls)

    async def main() -> list[Any]:
        async with aioloader.AsyncDataLoader(
            there, 4, shuffle=True, seed=3, executor="thread", num_workers=2
        ) as loader:
            return [(pixels.copy(), labels.copy()) async for pixels, labels in loader]

    assert_same(anyio.run(main, backend=backend), expected)


@IGNORED
def test_leaving_an_epoch_frees_everything(golden: Served, leftovers: Any) -> None:
    for path in golden.paths:
        _flip_bytes(path)  # so that items are being read whole
    golden.proxy.behave(latency_s=0.05)

    async def main() -> None:
        async with aioloader.AsyncDataLoader(
            images(golden.urls), 2, executor="thread", num_workers=2
        ) as loader:
            with anyio.move_on_after(5) as scope:
                async for _ in loader:
                    scope.cancel()

    anyio.run(main)


async def _doubled(pixels: Any) -> Any:
    await anyio.sleep(0)
    return pixels * 2


@IGNORED
@pytest.mark.parametrize("flip", [False, True])
def test_async_transforms_follow_a_crop(golden: Served, flip: bool, incomplete: list[int]) -> None:
    if flip:
        for path in golden.paths:
            _flip_bytes(path)
    compare(golden, fn=_doubled, executor="process", **SKIP)
    assert bool(incomplete) == flip


def _mirrored(pixels: Any) -> Any:
    return pixels[:, ::-1]


def _cut_first(pixels: Any) -> Any:
    return pixels[:20, :20]


def test_a_chain_that_does_not_begin_with_a_crop_reads_records_whole(golden: Served) -> None:
    whole = sum(path.stat().st_size for path in golden.paths)
    for fn in (_cut_first, transforms.Resize((24, 24))):
        golden.restart()
        there = aioloader.ImageRecordDataset(golden.urls).transform_first(fn)
        _, stats = epochs(there, 1)
        assert stats.bytes_read == whole
        assert "part-0.crops" not in golden.targets()
    assert_saves(golden, compare(golden, fn=_mirrored))


def test_a_cache_gets_whole_records(golden: Served, tmp_path: Path) -> None:
    whole = sum(path.stat().st_size for path in golden.paths)
    expected, _ = epochs(images(golden.paths, crop_index=None))
    found, stats = epochs(images(golden.urls, cache=tmp_path / "cache"))
    assert_same(found, expected)
    assert stats.bytes_read == 2 * whole
    assert stats.hit_rate == 0.5
    assert stats.decodes  # by the fetched index


def test_an_index_is_fetched_once_and_again_when_it_changed(golden: Served) -> None:
    epochs(images(golden.urls), 1)
    assert golden.targets().count("part-0.crops") > 1
    golden.restart()
    epochs(images(golden.urls), 1)
    assert golden.targets().count("part-0.crops") == 1  # one byte, which shows the version
    crops = golden.paths[0].with_suffix(".crops")
    os.utime(crops, (1e9, 1e9))
    golden.restart()
    _, stats = epochs(images(golden.urls), 1)
    assert golden.targets().count("part-0.crops") > 1
    assert golden.targets().count("part-1.crops") == 1
    assert_saves(golden, stats, 1)
    version = describe(golden.urls[0].replace(".rec", ".crops"))
    path = Path(fetched_index(golden.urls[0], version))
    assert path.read_bytes() == crops.read_bytes()
    assert len(list(path.parent.iterdir())) == 2  # the old version is gone


def test_a_missing_index_is_no_reason_for_a_warning(golden: Served) -> None:
    golden.paths[0].with_suffix(".crops").unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        stats = compare(golden)
    sizes = [path.stat().st_size for path in golden.paths]
    assert 2 * sizes[0] < stats.bytes_read < 2 * sum(sizes)
    golden.restart()
    epochs(images(golden.urls, crop_index=None), 1)
    assert not any(name.endswith(".crops") for name in golden.targets())


def test_an_index_that_was_made_here_comes_first(golden: Served) -> None:
    for url, path in zip(golden.urls, golden.paths, strict=True):
        here = Path(record_index(url))
        here.parent.mkdir(parents=True, exist_ok=True)
        path.with_suffix(".crops").rename(here)
    golden.restart()
    stats = compare(golden)
    assert not any(name.endswith(".crops") for name in golden.targets())
    assert_saves(golden, stats)


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("foreign", "it is not a crop index"),
        ("empty", "too short"),
        ("truncated", "truncated, or damaged"),
        ("tables", "its list of reasons is damaged"),
        ("folder", "index of a folder"),
        ("large", "it has [0-9,]+ bytes, and its record file only"),
        ("directory", "[Nn]ot a directory|blocked"),
    ],
)
def test_an_index_that_cannot_be_used_is_a_warning(
    golden: Served, fault: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, _ = epochs(images(golden.paths, crop_index=None))
    blocked = tmp_path / "blocked"
    for path in golden.paths:
        crops = path.with_suffix(".crops")
        data = crops.read_bytes()
        if fault == "foreign":
            crops.write_bytes(b"<html>" * 100)
        elif fault == "empty":
            crops.write_bytes(b"")
        elif fault == "truncated":
            crops.write_bytes(data[:-1])
        elif fault == "tables":
            crops.write_bytes(data[:-1] + b"?")
        elif fault == "folder":
            CropIndexWriter(crops, kind=FOLDER).finish()
    if fault == "large":
        monkeypatch.setattr(fetched, "_ALWAYS_ALLOWED_NBYTES", 0)
        monkeypatch.setattr(fetched, "_MOST_SHARE", 0.1)
    elif fault == "directory":
        blocked.write_bytes(b"")
        monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(blocked))
    with pytest.warns(CropIndexWarning, match="no crop index is used: .*" + says) as caught:
        found, _ = epochs(images(golden.urls))
    assert len(caught) == 2
    assert_same(found, expected)
    assert all("part-" in str(each.message) for each in caught) or fault == "directory"
    assert not list(tmp_path.rglob("*.crops*"))  # neither a copy nor a part of one stays
    if fault in ("foreign", "empty", "large"):
        golden.restart()
        with pytest.warns(CropIndexWarning):
            epochs(images(golden.urls), 1)
        assert golden.targets().count("part-0.crops") <= 4


def test_a_damaged_copy_of_an_index_is_fetched_again(golden: Served) -> None:
    epochs(images(golden.urls), 1)
    version = describe(golden.urls[0].replace(".rec", ".crops"))
    copy = Path(fetched_index(golden.urls[0], version))
    data = copy.read_bytes()
    copy.unlink()  # the first loader may have it in its memory
    copy.write_bytes(data[:-1] + b"?")
    with warnings.catch_warnings():
        warnings.simplefilter("error", CropIndexWarning)
        _, stats = epochs(images(golden.urls), 1)
    assert copy.read_bytes() == data
    assert_saves(golden, stats, 1)


def test_single_samples_fetch_no_index(golden: Served) -> None:
    there, here = images(golden.urls, "centre"), images(golden.paths, "centre")
    golden.restart()
    assert np.array_equal(there[1][0], here[1][0])
    assert not any(name.endswith(".crops") for name in golden.targets())
    assert_saves(golden, epochs(there)[1])


def test_a_wrong_line_of_the_idx_fails_only_its_own_sample(golden: Served) -> None:
    for path in golden.paths:
        lines = path.with_suffix(".idx").read_text().splitlines()
        key, offset = lines[2].split("\t")
        lines[2] = f"{key}\t{int(offset) + 8}"
        path.with_suffix(".idx").write_text("\n".join(lines) + "\n")
    compare(golden, **SKIP)


@IGNORED
def test_little_memory_is_enough(golden: Served, incomplete: list[int]) -> None:
    """Items are read whole into the memory of their batch."""
    for path in golden.paths:
        _flip_bytes(path)
    compare(golden, memory_limit=96 << 10, prefetch=2, **SKIP)
    assert incomplete


def test_a_record_in_several_parts_is_read_whole(golden: Served, incomplete: list[int]) -> None:
    """Its image contains the magic number of records, so that it does not lie in one piece."""
    from aioloader.jpeg.crop_scan import build_entry

    jpeg = IMAGES[0][1]
    # The payload begins with 24 bytes, so that offset 8 of the image is aligned.
    data = jpeg[:2] + b"\xff\xfe\0\x0c" + bytes(2) + recordio.MAGIC.to_bytes(4, "little") * 2 + jpeg[2:]
    entry = build_entry(data, interval=2)
    write_images(golden.paths[0], [(float(number), data, entry) for number in range(6)])
    stats = compare(golden, files=slice(1))
    assert incomplete
    assert not stats.bad_entries


def test_objects_in_a_bucket_are_read_in_parts(
    bucket: str, s3_server: Any, tmp_path: Path, incomplete: list[int]
) -> None:
    path = write_record_files(tmp_path)[0]
    for suffix in (".rec", ".idx", ".crops"):
        s3_server.put_file(bucket, f"golden/part-0{suffix}", path.with_suffix(suffix))
    expected, _ = epochs(images([path], crop_index=None))
    found, stats = epochs(images([f"s3://{bucket}/golden/part-0.rec"]))
    assert_same(found, expected)
    assert stats.bytes_read < 0.9 * 2 * path.stat().st_size
    assert incomplete == []


def test_the_images_of_a_set_of_faces_are_read_in_parts(golden: Served, incomplete: list[int]) -> None:
    def faces(path: Any, **options: Any) -> aioloader.Dataset:
        return InsightFaceDataset(str(path), **options).transform_first(CROP)

    expected, _ = epochs(faces(golden.paths[0], crop_index=None))
    found, stats = epochs(faces(golden.urls[0]))
    assert_same(found, expected)
    assert stats.bytes_read < 0.9 * 2 * golden.paths[0].stat().st_size
    assert incomplete == []


# -- several datasets --------------------------------------------------------------------------------------------------


def test_parts_of_a_joined_dataset_are_read_in_parts(golden: Served) -> None:
    local = epochs(aioloader.ConcatDataset([images(golden.paths[:1]), images(golden.paths[1:])]))[0]
    # One part on a server, which leaves out what crops do not need; the other one here.
    joined = images(golden.urls[:1]) + images(golden.paths[1:])
    found, stats = epochs(joined, **pool("thread", 2))
    assert_same(found, local)
    whole = 2 * golden.paths[0].stat().st_size
    assert 0 < stats.request_bytes < 0.9 * whole
    both, stats = epochs(images(golden.urls[:1]) + images(golden.urls[1:]), **pool("thread", 2))
    assert_same(both, local)
    assert_saves(golden, stats)
