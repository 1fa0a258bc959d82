"""Tests of MDS sets: samples, batches, resume, receipts, damage, and compressed shards."""

from __future__ import annotations

import json
import os
import pickle
import struct
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, MDSDataset
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.storage.local.descriptors import open_locked
from tests.aioloader.datasets.batches import assert_numbered, assert_same, batches_of, faults_of
from tests.aioloader.datasets.conftest import pixels, png
from tests.aioloader.formats.mds_sets import (
    compress,
    describe,
    file_of,
    number,
    sample_of,
    shard_of,
    write_index,
    write_set,
)

IMAGES = {"image": "png", "label": "int"}


def samples_of(count: int) -> list[dict[str, bytes]]:
    """Return samples whose image i is `pixels(i)` and whose label is i."""
    return [{"image": png(place), "label": number(place)} for place in range(count)]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write a set of 23 samples in shards of 5."""
    return write_set(tmp_path / "photos", IMAGES, samples_of(23), per_shard=5, hashes=["sha1"])


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    """Write a set with gzip, which needs no package."""
    return write_set(tmp_path / "zipped", IMAGES, samples_of(23), per_shard=5, codec="gz", hashes=["sha256"])


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_follow_one_another(photos: Path) -> None:
    dataset = MDSDataset(photos)
    assert_numbered(dataset, 23)
    location = dataset.location(12)
    assert (location.key, location.path) == ("2", str(photos / "shard.00002.mds"))
    shard = (photos / "shard.00002.mds").read_bytes()
    assert struct.unpack_from("<I", shard, 4 * 3) == (location.offset,)


def test_a_folder_its_index_and_lists_of_them_are_opened(photos: Path, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", IMAGES, samples_of(3))
    assert len(MDSDataset(str(photos / "index.json"))) == 23
    assert len(MDSDataset(f"file://{photos}")) == 23
    dataset = MDSDataset([other, photos / "index.json"])
    assert [int(dataset[place][1]) for place in (0, 2, 3, 25)] == [0, 2, 0, 22]
    assert len(MDSDataset(str(tmp_path / "*" / "index.json"))) == 26
    with pytest.raises(ValueError, match="the list of folders is empty"):
        MDSDataset([])


def test_a_merged_index_names_shards_of_sub_folders(tmp_path: Path) -> None:
    shards = []
    for part in range(2):
        folder = write_set(tmp_path / f"part{part}", IMAGES, samples_of(4))
        (entry,) = json.loads((folder / "index.json").read_text())["shards"]
        entry["raw_data"]["basename"] = f"part{part}/{entry['raw_data']['basename']}"
        shards.append(entry)
    write_index(tmp_path, shards)
    dataset = MDSDataset(tmp_path)
    assert dataset.labels().tolist() == [0, 1, 2, 3] * 2
    assert dataset.paths[1] == str(tmp_path / "part1" / "shard.00000.mds")


def test_splits_are_named_and_not_mixed(tmp_path: Path) -> None:
    for split in ("train", "val"):
        write_set(tmp_path / split, IMAGES, samples_of(1))
    with pytest.raises(FileNotFoundError, match=r"sub-folders have one \(train, val\)") as caught:
        MDSDataset(tmp_path)
    assert caught.value.filename == str(tmp_path / "index.json")
    with pytest.raises(FileNotFoundError, match="no MDS folder"):
        MDSDataset(tmp_path / "none")
    with pytest.raises(FileNotFoundError, match="no MDS folder"):
        MDSDataset(tmp_path / "train" / "shard.00000.mds")


def test_folders_with_other_columns_are_refused(photos: Path, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", {"image": "png", "label": "uint8"}, [{"image": b"", "label": b"1"}])
    with pytest.raises(SampleFormatError, match=r"has other columns than .*photos"):
        MDSDataset([photos, other])


EVERY = {
    "a_str": ("str", "größe".encode(), "größe"),
    "an_int": ("int", number(-7), -7),
    "json": ("json", b'{"a": [1, null]}', {"a": [1, None]}),
    "fixed": ("ndarray:int16:2,1", b"\1\0\2\0", np.array([[1], [2]], np.int16)),
    "free": ("ndarray", b"\x08\4\2ab", np.array([97, 98], np.uint8)),
    "pil": ("pil", struct.pack("<3I", 8, 6, 3) + b"RGB" + pixels(5).tobytes(), pixels(5)),
    "png": ("png", png(6), pixels(6)),
    "encoded": ("bytes", png(7), pixels(7)),
    "pngs": (
        "list[png]",
        struct.pack("<4I", 0, 2, len(png(1)), len(png(2))) + png(1) + png(2),
        [pixels(1), pixels(2)],
    ),
    "pils": (
        "list[pil]",
        struct.pack("<6I", 0, 1, 14, 1, 1, 1) + b"L\7",
        [np.full((1, 1, 3), 7, np.uint8)],
    ),
}


def test_every_encoding_has_its_value(tmp_path: Path) -> None:
    columns = {name: encoding for name, (encoding, _, _) in EVERY.items()} | {"z": "pkl"}
    values = {name: data for name, (_, data, _) in EVERY.items()} | {"z": b"cos\nsystem\n"}
    write_set(tmp_path, columns, [values])
    (sample,) = MDSDataset(tmp_path, image="encoded", fields=tuple(EVERY)).take(1)
    assert list(sample) == list(EVERY)
    for name, (_, _, expected) in EVERY.items():
        found = sample[name]
        np.testing.assert_array_equal(found, expected, err_msg=name)
        if isinstance(expected, np.ndarray):
            assert found.dtype == expected.dtype
            assert found.flags.writeable
    assert sample["an_int"].dtype == np.int64
    assert MDSDataset(tmp_path, fields="encoded")[0] == {"encoded": png(7)}


def test_a_field_that_is_not_there_or_not_an_image_is_an_error_before_the_first_sample(
    tmp_path: Path,
) -> None:
    values = {"image": b"", "tags": b"[]", "bad": b"cos\nsystem\n", "many": bytes(8)}
    write_set(tmp_path, {"image": "png", "tags": "json", "bad": "pkl", "many": "list[png]"}, [values])
    index = str(tmp_path / "index.json")
    with pytest.raises(MissingFieldError, match="has no field 'label'") as missing:
        list(DataLoader(MDSDataset(tmp_path), 2, num_workers=0, on_error="skip"))
    assert (missing.value.field, missing.value.path) == ("label", index)
    assert set(missing.value.found) == set(values)
    for options, text in (
        ({"fields": ("tags", "bad")}, "unpickling runs code"),
        ({"image": "tags", "label": "tags"}, "'tags' is not one of single images"),
        ({"image": "many", "label": "tags"}, "'many' is not one of single images"),
    ):
        with pytest.raises(SampleFormatError, match=text) as caught:
            list(DataLoader(MDSDataset(tmp_path, **options), 2, num_workers=0, on_error="skip"))
        assert caught.value.path == index
    assert MDSDataset(tmp_path, fields=("tags",))[0] == {"tags": []}
    with pytest.raises(ValueError, match="image must be the name of one column"):
        MDSDataset(tmp_path, image=("image", "many"))


def test_a_size_that_does_not_fit_the_encoding_is_named(tmp_path: Path) -> None:
    folder = write_set(tmp_path, IMAGES, samples_of(2))
    rewrite(folder, column_sizes=[None, 4])
    with pytest.raises(
        SampleFormatError, match=r"have 4 bytes in index\.json, and those of the encoding 'int' have 8"
    ):
        _ = MDSDataset(tmp_path).decoder


# -- batches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("encoding", ["pil", "ndarray"])
def test_images_that_are_stored_as_pixels_become_batches(tmp_path: Path, encoding: str) -> None:
    head = {"pil": struct.pack("<3I", 8, 6, 3) + b"RGB", "ndarray": b"\x08\x0c\6\x08\3"}[encoding]
    samples = [
        {"img": head + pixels(place).tobytes(), "class": np.float32(place / 2).tobytes()}
        for place in range(9)
    ]
    write_set(tmp_path, {"img": encoding, "class": "float32"}, samples, per_shard=4)
    dataset = MDSDataset(tmp_path, image="img", label="class")
    crop = aioloader.transforms.CenterCrop((4, 4))
    batches = batches_of(dataset.transform_first(crop), "process", shuffle=False)
    expected = [pixels(place)[1:5, 2:6] for place in range(9)]
    np.testing.assert_array_equal(np.concatenate([images for images, _ in batches]), expected)
    labels = np.concatenate([labels for _, labels in batches])
    assert (labels.tolist(), labels.dtype) == ([place / 2 for place in range(9)], np.float32)


def test_compressed_shards_have_the_same_batches(photos: Path, zipped: Path) -> None:
    expected = batches_of(MDSDataset(photos))
    for executor in ("inline", "process"):
        assert_same(batches_of(MDSDataset(zipped), executor, 2), expected)


# -- damage ----------------------------------------------------------------------------------------------------------


def damage_sample(folder: Path, shard: int, row: int, begin: bytes) -> int:
    """Replace the first bytes of a sample in place; return its offset."""
    path = folder / f"shard.{shard:05}.mds"
    data = bytearray(path.read_bytes())
    (offset,) = struct.unpack_from("<I", data, 4 * (row + 1))
    data[offset : offset + len(begin)] = begin
    path.write_bytes(data)
    return int(offset)


def test_a_damaged_sample_is_named(photos: Path) -> None:
    offset = damage_sample(photos, 2, 3, struct.pack("<I", 1 << 31))
    with pytest.raises(SampleFormatError, match="the sizes of the columns do not add up") as caught:
        MDSDataset(photos)[13]
    assert (caught.value.path, caught.value.key) == (str(photos / "shard.00002.mds"), "3")
    assert caught.value.offset == offset


@pytest.mark.parametrize("nbytes", [-1, 1])
def test_a_shard_of_another_size_is_refused(photos: Path, nbytes: int) -> None:
    path = photos / "shard.00001.mds"
    size = path.stat().st_size
    os.truncate(path, size + nbytes)
    with pytest.raises(SampleFormatError, match=r"does not have the size that index\.json says") as caught:
        MDSDataset(photos)[0]
    assert (caught.value.path, caught.value.found) == (str(path), size + nbytes)


def test_a_shard_that_is_missing_or_has_a_damaged_table_is_named(photos: Path) -> None:
    path = photos / "shard.00003.mds"
    data = bytearray(path.read_bytes())
    data[4:8] = bytes(4)
    path.write_bytes(data)
    with pytest.raises(SampleFormatError, match="sample 0 begins at a place") as caught:
        MDSDataset(photos)[0]
    assert caught.value.path == str(path)
    path.unlink()
    with pytest.raises(FileNotFoundError) as missing:
        MDSDataset(photos)[0]
    assert missing.value.filename == str(path)


# -- compressed shards -----------------------------------------------------------------------------------------------


def decompressed(cache: Path) -> list[Path]:
    """Return the decompressed files in a cache directory."""
    return sorted(cache.glob("unpacked-1/*/*.data"))


@pytest.mark.parametrize("codec", ["gz", "zstd"])
def test_compressed_shards_are_decompressed_once(codec: str, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    packed = write_set(tmp_path / "packed", IMAGES, samples_of(23), per_shard=5, codec=codec, hashes=["sha1"])
    assert_numbered(MDSDataset(packed, cache=cache), 23)
    times = [file.stat().st_mtime_ns for file in decompressed(cache)]
    assert len(times) == 5
    dataset = MDSDataset(packed, cache=cache)
    assert dataset.location(12).path == str(packed / f"shard.00002.mds.{codec}")
    assert_numbered(pickle.loads(pickle.dumps(dataset)), 23)
    assert [file.stat().st_mtime_ns for file in decompressed(cache)] == times
    assert not list(cache.glob("**/*.partial"))
    assert not (cache / "spans-1").exists()


def test_a_missing_package_is_named_with_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packed = write_set(tmp_path / "packed", IMAGES, samples_of(3), codec="zstd")
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install .aioloader\[mds\]"):
        MDSDataset(packed, cache=tmp_path / "cache")[0]


def test_decompressed_files_beside_the_compressed_ones_are_used(zipped: Path, tmp_path: Path) -> None:
    write_set(tmp_path / "raw", IMAGES, samples_of(23), per_shard=5)
    for path in sorted((tmp_path / "raw").glob("*.mds"))[:3]:
        path.rename(zipped / path.name)
        (zipped / f"{path.name}.gz").unlink()
    cache = tmp_path / "cache"
    dataset = MDSDataset(zipped, cache=cache)
    assert_numbered(dataset, 23)
    assert len(decompressed(cache)) == 2
    assert dataset.paths[2:4] == (str(zipped / "shard.00002.mds"), str(zipped / "shard.00003.mds.gz"))


def test_a_shard_that_was_replaced_is_decompressed_again(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert_numbered(MDSDataset(zipped, cache=cache), 23)
    changed = samples_of(23)
    changed[6]["label"] = number(1000)
    write_set(zipped, IMAGES, changed, per_shard=5, codec="gz", hashes=["sha256"])
    assert MDSDataset(zipped, cache=cache).labels()[6] == 1000
    # Those of the old index were deleted.
    assert len(decompressed(cache)) == 5
    path = zipped / "shard.00000.mds.gz"
    os.utime(path, ns=(0, path.stat().st_mtime_ns + 1_000_000))
    assert MDSDataset(zipped, cache=cache).labels()[6] == 1000
    assert len(decompressed(cache)) == 6


def test_the_limit_is_checked_before_anything_is_decompressed(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with pytest.raises(OSError, match=r"take [\d,]+ bytes, and the limit is 1,000: pass cache='DIR'"):
        MDSDataset(zipped, cache=cache, cache_limit=1000).labels()
    assert not decompressed(cache)


def test_sets_that_nobody_has_open_make_space(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    other = write_set(tmp_path / "other", IMAGES, samples_of(23), per_shard=5, codec="gz")
    total = sum(
        entry["raw_data"]["bytes"] for entry in json.loads((zipped / "index.json").read_text())["shards"]
    )
    limit = total * 3 // 2
    first = MDSDataset(zipped, cache=cache, cache_limit=limit)
    assert_numbered(first, 23)
    with pytest.raises(OSError, match="is not free within the limit"):
        MDSDataset(other, cache=cache, cache_limit=limit).labels()
    assert_numbered(first, 23)
    del first
    assert_numbered(MDSDataset(other, cache=cache, cache_limit=limit), 23)
    assert sum(file.stat().st_size for file in decompressed(cache)) <= limit


def rewrite(folder: Path, **values: Any) -> None:
    """Change values of the first shard in an index."""
    index = json.loads((folder / "index.json").read_text())
    for name, change in values.items():
        before = index["shards"][0][name]
        index["shards"][0][name] = before | change if isinstance(before, dict) else change
    (folder / "index.json").write_text(json.dumps(index))


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"raw_data": {"hashes": {"sha256": "0" * 64}}}, "decompressed shard does not have the hash sha256"),
        (
            {"zip_data": {"hashes": {"sha256": "0" * 64}}},
            "the compressed shard does not have the hash sha256",
        ),
        ({"raw_data": {"hashes": {"xxh64": "0"}}, "zip_data": {"hashes": {}}}, None),
        ({"raw_data": {"hashes": {"shake_128": "0"}}}, None),
        ({"zip_data": {"bytes": 5}}, "the compressed shard does not have the size"),
    ],
)
def test_hashes_and_sizes_of_the_index_are_checked(
    zipped: Path, tmp_path: Path, values: dict[str, Any], text: str | None
) -> None:
    rewrite(zipped, **values)
    if text is None:  # not a hash that Python's hashlib has, or one of any length
        assert_numbered(MDSDataset(zipped, cache=tmp_path / "cache"), 23)
        return
    with pytest.raises(SampleFormatError, match=text) as caught:
        MDSDataset(zipped, cache=tmp_path / "cache").labels()
    assert caught.value.path == str(zipped / "shard.00000.mds.gz")
    assert not list((tmp_path / "cache").glob("**/*.partial"))


@pytest.mark.parametrize("kind", ["bomb", "short", "garbage", "cut"])
def test_a_file_that_is_not_what_the_index_says_writes_no_more_than_that(tmp_path: Path, kind: str) -> None:
    raw = shard_of([sample_of(IMAGES, each) for each in samples_of(3)])
    packed = compress("gz", {"bomb": raw + bytes(16 << 20), "short": raw[:-1]}.get(kind, raw))
    content = {"garbage": b"anything" * 40, "cut": packed[:-7]}.get(kind, packed)
    name = "shard.00000.mds.gz"
    folder, cache = tmp_path / "set", tmp_path / "cache"
    folder.mkdir()
    (folder / name).write_bytes(content)
    entry = {"samples": 3, "compression": "gz", "raw_data": file_of(name[:-3], raw)}
    write_index(folder, [describe(IMAGES, {**entry, "zip_data": file_of(name, content)})])
    with pytest.raises(SampleFormatError, match="cannot be decompressed") as caught:
        MDSDataset(folder, cache=cache).labels()
    assert caught.value.path == str(folder / name)
    assert not [path for path in cache.glob("**/*") if path.is_file() and path.stat().st_size > 1000]


def test_two_at_a_time_do_not_decompress_the_same_file(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    dataset = MDSDataset(zipped, cache=cache)
    dataset.labels()
    (some, *_) = decompressed(cache)
    data = some.read_bytes()
    # Another holder has the lock of a file that it "makes"; the dataset waits for it, and takes the file.
    some.unlink()
    fd = open_locked(some.with_name(f"{some.name}.partial"))
    assert fd is not None
    with ThreadPoolExecutor(1) as pool:
        try:
            labels = pool.submit(lambda: MDSDataset(zipped, cache=cache).labels().tolist())
            with pytest.raises(TimeoutError):
                labels.result(0.5)
            os.write(fd, data)
            os.rename(some.with_name(f"{some.name}.partial"), some)
            made = some.stat().st_mtime_ns
        finally:
            os.close(fd)
        assert labels.result(60) == list(range(23))
    assert some.stat().st_mtime_ns == made


# -- checks of whole shards ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [7, 1 << 20])
def test_faults_of_a_shard_are_found(photos: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioloader.storage.cache.unpacked._BLOCK_NBYTES", block)
    offset = damage_sample(photos, 2, 3, bytes(4))
    dataset = MDSDataset(photos)
    (sample, digest), valid = faults_of(dataset, 2)
    assert (sample.key, sample.offset, sample.path) == ("3", offset, str(photos / "shard.00002.mds"))
    assert "hash sha1" in digest.reason
    assert valid == 4
    path = photos / "shard.00001.mds"
    data = path.read_bytes()
    path.write_bytes(data[:-1])
    (size,), valid = faults_of(dataset, 1)
    assert (size.found, valid) == (len(data) - 1, 5)
    path.write_bytes(data[:4] + bytes(4) + data[8:])
    (table, _), valid = faults_of(dataset, 1)
    assert (table.offset, valid) == (4, 0)
    path.write_bytes(data[:10])
    (size,), valid = faults_of(dataset, 1)
    assert (size.found, valid) == (10, 0)


def test_a_compressed_shard_that_is_damaged_is_one_fault(zipped: Path) -> None:
    path = zipped / "shard.00001.mds.gz"
    path.write_bytes(path.read_bytes()[:-9])
    dataset = MDSDataset(zipped)
    (fault,), valid = faults_of(dataset, 1)
    assert (fault.path, valid) == (str(path), 0)
    assert [faults_of(dataset, shard) for shard in (0, 4)] == [([], 5), ([], 3)]
