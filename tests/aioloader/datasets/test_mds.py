"""Tests of MDS sets: samples, batches, resume, receipts, damage, and compressed shards."""

from __future__ import annotations

import json
import os
import pickle
import struct
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, MDSDataset, SampleError
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.storage.local.descriptors import open_locked
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
from tests.executors import pool

IMAGES = {"image": "png", "label": "int"}
CODECS = ("gz", "bz2", "zstd", "br", "snappy")


def samples_of(count: int) -> list[dict[str, bytes]]:
    """Return samples whose image i is `pixels(i)` and whose label is i."""
    return [{"image": png(place), "label": number(place)} for place in range(count)]


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write a set of 23 samples in shards of 5."""
    return write_set(tmp_path / "photos", IMAGES, samples_of(23), per_shard=5, hashes=["sha1"])


@pytest.fixture(params=CODECS)
def packed(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """Write the same set, compressed."""
    return write_set(
        tmp_path / "packed", IMAGES, samples_of(23), per_shard=5, codec=request.param, hashes=["sha1"]
    )


def assert_samples(dataset: Any, count: int = 23) -> None:
    """Fail unless the samples of a dataset are those of `samples_of`."""
    assert len(dataset) == count
    for place in range(count):
        image, label = dataset[place]
        np.testing.assert_array_equal(image, pixels(place))
        assert (label, label.dtype) == (place, np.int64)


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_follow_one_another(photos: Path) -> None:
    dataset = MDSDataset(photos)
    assert_samples(dataset)
    assert_samples(pickle.loads(pickle.dumps(dataset)))
    assert dataset.labels().tolist() == list(range(23))
    assert dataset.paths == tuple(str(photos / f"shard.{shard:05}.mds") for shard in range(5))
    location = dataset.location(12)
    assert (location.key, location.path) == ("2", str(photos / "shard.00002.mds"))
    shard = (photos / "shard.00002.mds").read_bytes()
    assert struct.unpack_from("<I", shard, 4 * 3) == (location.offset,)
    assert int(dataset.transform_first(lambda image: image.sum()).take(2)[1][1]) == 1


def test_a_folder_its_index_and_lists_of_them_are_opened(photos: Path, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", IMAGES, samples_of(3))
    assert len(MDSDataset(str(photos / "index.json"))) == 23
    assert len(MDSDataset(f"file://{photos}")) == 23
    dataset = MDSDataset([other, photos / "index.json"])
    assert [int(dataset[place][1]) for place in (0, 2, 3, 25)] == [0, 2, 0, 22]
    assert len(MDSDataset(str(tmp_path / "*" / "index.json"))) == 26
    for path in (photos, photos / "index.json"):
        found = aioloader.open_dataset(path, fields="label")
        assert isinstance(found, MDSDataset)
        assert found[22] == {"label": 22}
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


def test_an_empty_set(tmp_path: Path) -> None:
    write_index(tmp_path, [])
    dataset = MDSDataset(tmp_path)
    assert len(dataset) == 0
    assert list(DataLoader(dataset, 2, num_workers=0)) == []


def test_folders_with_other_columns_are_refused(photos: Path, tmp_path: Path) -> None:
    other = write_set(tmp_path / "other", {"image": "png", "label": "uint8"}, [{"image": b"", "label": b"1"}])
    with pytest.raises(SampleFormatError, match=r"has other columns than .*photos"):
        MDSDataset([photos, other])


EVERY = {
    "a_bytes": ("bytes", b"\0\xff", b"\0\xff"),
    "a_str": ("str", "größe".encode(), "größe"),
    "an_int": ("int", number(-7), -7),
    "json": ("json", b'{"a": [1, null]}', {"a": [1, None]}),
    "str_int": ("str_int", b"12345678901234567890", 12345678901234567890),
    "str_float": ("str_float", b"0.1", 0.1),
    "str_decimal": ("str_decimal", b"0.10", Decimal("0.10")),
    "uint16": ("uint16", b"\1\2", 513),
    "float16": ("float16", np.float16(0.5).tobytes(), 0.5),
    "fixed": ("ndarray:int16:2,1", b"\1\0\2\0", np.array([[1], [2]], np.int16)),
    "shape": ("ndarray:float32", b"\4\1" + np.float32(2.5).tobytes(), np.array([2.5], np.float32)),
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
        if isinstance(expected, list):
            assert len(found) == len(expected)
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_array_equal(one, other)
        else:
            np.testing.assert_array_equal(found, expected, err_msg=name)
        if isinstance(expected, np.ndarray):
            assert found.dtype == expected.dtype
            assert found.flags.writeable
    assert sample["an_int"].dtype == np.int64
    assert MDSDataset(tmp_path, fields="encoded")[0] == {"encoded": png(7)}


@pytest.mark.parametrize(
    ("encoding", "executor"),
    [
        *((encoding, "inline") for encoding in ("bytes", "png", "pil", "ndarray", "ndarray:uint8:6,8,3")),
        *((encoding, "process") for encoding in ("bytes", "pil")),
    ],
)
def test_images_of_every_encoding_become_batches(tmp_path: Path, encoding: str, executor: str) -> None:
    def encode(place: int) -> bytes:
        raw = pixels(place).tobytes()
        heads = {"pil": struct.pack("<3I", 8, 6, 3) + b"RGB", "ndarray": b"\x08\x0c\6\x08\3"}
        return png(place) if encoding in ("bytes", "png") else heads.get(encoding, b"") + raw

    samples = [{"img": encode(place), "class": np.float32(place / 2).tobytes()} for place in range(9)]
    write_set(tmp_path, {"img": encoding, "class": "float32"}, samples, per_shard=4)
    dataset = MDSDataset(tmp_path, image="img", label="class").transform_first(
        aioloader.transforms.CenterCrop((4, 4))
    )
    with DataLoader(dataset, 4, **pool(executor, 2)) as loader:
        batches = [(images.copy(), labels.copy()) for images, labels in loader]
    found = np.concatenate([images for images, _ in batches])
    np.testing.assert_array_equal(found, np.stack([pixels(place)[1:5, 2:6] for place in range(9)]))
    labels = np.concatenate([labels for _, labels in batches])
    assert (labels.tolist(), labels.dtype) == ([place / 2 for place in range(9)], np.float32)


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
    index = json.loads((folder / "index.json").read_text())
    index["shards"][0]["column_sizes"] = [None, 4]
    (folder / "index.json").write_text(json.dumps(index))
    with pytest.raises(
        SampleFormatError, match=r"have 4 bytes in index\.json, and those of the encoding 'int' have 8"
    ):
        _ = MDSDataset(tmp_path).decoder


# -- batches ---------------------------------------------------------------------------------------------------------


def batches_of(dataset: Any, **options: Any) -> list[tuple[Any, Any]]:
    """Return the batches of a shuffled epoch."""
    with DataLoader(dataset, 4, shuffle=True, seed=5, **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


def assert_same(found: list[tuple[Any, Any]], expected: list[tuple[Any, Any]]) -> None:
    """Fail unless the batches are the same, bit for bit."""
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def test_compressed_shards_have_the_same_batches(photos: Path, packed: Path, leftovers: object) -> None:
    expected = batches_of(MDSDataset(photos), executor="inline")
    dataset = MDSDataset(packed)
    assert_same(batches_of(dataset, executor="inline"), expected)
    if any(packed.glob("*.gz")):
        assert_same(batches_of(dataset, executor="process", num_workers=2), expected)
    assert dataset.labels().tolist() == list(range(23))


# -- damage ----------------------------------------------------------------------------------------------------------


def damage_sample(folder: Path, shard: int, row: int, change: Callable[[bytearray], None]) -> int:
    """Change the bytes of a sample in place; return its offset."""
    path = folder / f"shard.{shard:05}.mds"
    data = bytearray(path.read_bytes())
    begin, end = struct.unpack_from("<2I", data, 4 * (row + 1))
    sample = data[begin:end]
    change(sample)
    data[begin:end] = sample
    path.write_bytes(data)
    return begin


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_damaged_sample_is_named_or_skipped(photos: Path, executor: str) -> None:
    def wrong_size(sample: bytearray) -> None:
        sample[:4] = struct.pack("<I", 1 << 31)

    offset = damage_sample(photos, 2, 3, wrong_size)
    options: Any = {"batch_size": 4, **pool(executor, 1)}
    with DataLoader(MDSDataset(photos), **options) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    error = caught.value
    assert (error.path, error.offset, error.key) == (str(photos / "shard.00002.mds"), offset, "3")
    assert isinstance(error.__cause__, SampleFormatError)
    assert "the sizes of the columns do not add up" in str(error.__cause__)
    with DataLoader(MDSDataset(photos), on_error="skip", max_errors=5, **options) as loader:
        labels = np.concatenate([labels for _, labels in loader]).tolist()
        (only,) = loader.errors
    assert labels == [label for label in range(23) if label != 13]
    assert (only.path, only.offset, only.key) == (error.path, offset, "3")


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


def test_compressed_shards_are_decompressed_once(packed: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert_samples(MDSDataset(packed, cache=cache))
    files = decompressed(cache)
    assert len(files) == 5
    times = [file.stat().st_mtime_ns for file in files]
    dataset = MDSDataset(packed, cache=cache)
    suffix = next(packed.glob("shard.00002.*")).name
    assert dataset.location(12).path == str(packed / suffix)
    assert_samples(pickle.loads(pickle.dumps(dataset)))
    assert [file.stat().st_mtime_ns for file in decompressed(cache)] == times
    assert not list(cache.glob("**/*.partial"))
    assert not (cache / "spans-1").exists()


@pytest.fixture
def zipped(tmp_path: Path) -> Path:
    """Write a set with gzip, which needs no package."""
    return write_set(tmp_path / "zipped", IMAGES, samples_of(23), per_shard=5, codec="gz", hashes=["sha256"])


def test_decompressed_files_beside_the_compressed_ones_are_used(zipped: Path, tmp_path: Path) -> None:
    write_set(tmp_path / "raw", IMAGES, samples_of(23), per_shard=5)
    for path in sorted((tmp_path / "raw").glob("*.mds"))[:3]:
        path.rename(zipped / path.name)
        (zipped / f"{path.name}.gz").unlink()
    cache = tmp_path / "cache"
    dataset = MDSDataset(zipped, cache=cache)
    assert_samples(dataset)
    assert len(decompressed(cache)) == 2
    assert dataset.paths[2:4] == (str(zipped / "shard.00002.mds"), str(zipped / "shard.00003.mds.gz"))


def test_a_cache_in_memory_holds_what_is_read(zipped: Path) -> None:
    dataset = MDSDataset(zipped, cache="memory")
    with DataLoader(dataset, 4, num_workers=0) as loader:
        for _ in range(2):
            assert sum(len(labels) for _, labels in loader) == 23
    assert len(decompressed(Path(os.environ["AIOLOADER_CACHE_DIR"]))) == 5


def test_a_shard_that_was_replaced_is_decompressed_again(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    assert_samples(MDSDataset(zipped, cache=cache))
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
    assert_samples(first)
    with pytest.raises(OSError, match="is not free within the limit"):
        MDSDataset(other, cache=cache, cache_limit=limit).labels()
    assert_samples(first)
    del first
    assert_samples(MDSDataset(other, cache=cache, cache_limit=limit))
    assert sum(file.stat().st_size for file in decompressed(cache)) <= limit


def rewrite(folder: Path, **values: Any) -> None:
    """Change values of the first shard in an index."""
    index = json.loads((folder / "index.json").read_text())
    for name, change in values.items():
        index["shards"][0][name] |= change
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
        assert_samples(MDSDataset(zipped, cache=tmp_path / "cache"))
        return
    with pytest.raises(SampleFormatError, match=text) as caught:
        MDSDataset(zipped, cache=tmp_path / "cache").labels()
    assert caught.value.path == str(zipped / "shard.00000.mds.gz")
    assert not list((tmp_path / "cache").glob("**/*.partial"))


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("kind", ["bomb", "short", "garbage", "cut"])
def test_a_file_that_is_not_what_the_index_says_writes_no_more_than_that(
    tmp_path: Path, codec: str, kind: str
) -> None:
    raw = shard_of([sample_of(IMAGES, each) for each in samples_of(3)])
    packed = compress(codec, {"bomb": raw + bytes(16 << 20), "short": raw[:-1]}.get(kind, raw))
    content = {"garbage": b"anything" * 40, "cut": packed[:-7]}.get(kind, packed)
    name = f"shard.00000.mds.{codec}"
    folder, cache = tmp_path / "set", tmp_path / "cache"
    folder.mkdir()
    (folder / name).write_bytes(content)
    entry = {"samples": 3, "compression": codec, "raw_data": file_of(name[:-4], raw)}
    write_index(folder, [describe(IMAGES, {**entry, "zip_data": file_of(name, content)})])
    with pytest.raises(SampleFormatError, match="cannot be decompressed") as caught:
        MDSDataset(folder, cache=cache).labels()
    assert caught.value.path == str(folder / name)
    assert not [path for path in cache.glob("**/*") if path.is_file() and path.stat().st_size > 1000]


SCRIPT = """
import sys
from aioloader import MDSDataset
print(MDSDataset(sys.argv[1], cache=sys.argv[2]).labels().tolist())
"""


def test_two_processes_do_not_decompress_the_same_file(zipped: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    dataset = MDSDataset(zipped, cache=cache)
    dataset.labels()
    (some, *_) = decompressed(cache)
    data = some.read_bytes()
    del dataset
    # This process has the lock of a file that it "makes"; the other one waits for it, and takes it.
    some.unlink()
    fd = open_locked(some.with_name(f"{some.name}.partial"))
    assert fd is not None
    command = [sys.executable, "-c", SCRIPT, str(zipped), str(cache)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(2)
            os.write(fd, data)
            os.rename(some.with_name(f"{some.name}.partial"), some)
            made = some.stat().st_mtime_ns
            os.close(fd)
            out, err = process.communicate(timeout=60)
        finally:
            process.kill()
    assert json.loads(out) == list(range(23)), err
    assert some.stat().st_mtime_ns == made


def test_a_package_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raw = shard_of([sample_of(IMAGES, each) for each in samples_of(3)])
    name = "shard.00000.mds.zstd"
    (tmp_path / name).write_bytes(b"anything")
    entry = {"samples": 3, "compression": "zstd", "raw_data": file_of(name[:-5], raw)}
    write_index(tmp_path, [describe(IMAGES, {**entry, "zip_data": file_of(name, b"anything")})])
    monkeypatch.setitem(sys.modules, "zstandard", None)
    with pytest.raises(ImportError, match=r"pip install .aioloader\[mds\]"):
        MDSDataset(tmp_path, cache=tmp_path / "cache").labels()


# -- checks of whole shards ------------------------------------------------------------------------------------------


def faults_of(dataset: MDSDataset, shard: int) -> tuple[list[SampleFormatError], int]:
    """Return the faults of a shard, and the number of valid samples."""
    faults, checking = [], dataset.check_shard(shard)
    while True:
        try:
            faults.append(next(checking))
        except StopIteration as stop:
            return faults, stop.value


def test_a_valid_shard_has_no_faults(photos: Path, zipped: Path) -> None:
    for folder in (photos, zipped):
        dataset = MDSDataset(folder)
        assert [faults_of(dataset, shard) for shard in range(5)] == [([], 5)] * 4 + [([], 3)]


@pytest.mark.parametrize("block", [7, 64, 1 << 20])
def test_faults_of_a_shard_are_found(photos: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong_size(sample: bytearray) -> None:
        sample[:4] = bytes(4)

    monkeypatch.setattr("aioloader.storage.cache.unpacked._BLOCK_NBYTES", block)
    offset = damage_sample(photos, 2, 3, wrong_size)
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
    assert faults_of(dataset, 0) == ([], 5)
