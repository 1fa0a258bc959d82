"""Tests of TFRecord files: samples, labels, indexes, damage, and checks of whole files.

test_every_format.py has the tests of batches, resume, receipts and dead workers.
"""

from __future__ import annotations

import gzip
import itertools
import os
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, TFRecordDataset
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tfrecord.dataset import FIRST_NBYTES
from aioloader.formats.tfrecord.framing import crc32c_function, length_crc
from aioloader.formats.tfrecord.records import check_records
from aioloader.sample_index import SUFFIX, SampleIndex, index_beside, shard_state
from aioloader.sample_index import write_index as write_kept
from recordio.errors import ShortReadError
from tests.aioloader.datasets.batches import assert_numbered, faults_of, labels_in
from tests.aioloader.datasets.conftest import pixels, png
from tests.aioloader.formats.tfrecords import (
    bytes_list,
    entry,
    example,
    field,
    float_list,
    image_example,
    int64_list,
    many_records,
    record,
    write_index,
    write_records,
)
from tests.cases import with_cases
from tests.executors import pool

SIZES = (5, 0, 11, 7)
TIMES = itertools.count()


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Write 23 samples in four files: image i is `pixels(i)`, and label i is i."""
    paths, number = [], 0
    for shard, size in enumerate(SIZES):
        payloads = [image_example(png(place), place) for place in range(number, number + size)]
        paths.append(write_records(tmp_path / f"train-{shard:05}-of-00004", payloads))
        number += size
    return paths


def one(tmp_path: Path, features: dict[str, bytes], **options: Any) -> TFRecordDataset:
    """Return the dataset of a file with one record."""
    path = write_records(tmp_path / "one.tfrecord", [example(features)])
    os.utime(path, ns=(0, next(TIMES)))  # no index of an earlier file fits
    return TFRecordDataset(path, **options)


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_follow_one_another(photos: list[Path]) -> None:
    dataset = aioloader.open_dataset(photos[0].parent)
    assert_numbered(dataset, 23)
    location = dataset.location(7)
    assert (location.key, location.path) == ("2", str(photos[2]))
    assert location.offset == 2 * len(record(image_example(png(5), 5)))
    with pytest.raises(FileNotFoundError):
        TFRecordDataset(photos[0].with_name("none-*"))
    with pytest.raises(ValueError, match="image must be the name of one feature"):
        TFRecordDataset(photos, image=("a", "b"))


def test_fields_have_their_values(tmp_path: Path) -> None:
    features = {
        "image": bytes_list(png(1)),
        "views": bytes_list(png(2), png(3)),
        "texts": bytes_list(b"a", b""),
        "one": int64_list(-7),
        "floats": float_list(1, 2),
        "none": int64_list(),
        "no bytes": bytes_list(),
    }
    dataset = one(tmp_path, features, image=("image", "views"), fields=tuple(features))
    sample = dataset[0]
    assert list(sample) == list(features)
    np.testing.assert_array_equal(sample["image"], pixels(1))
    np.testing.assert_array_equal(sample["views"], [pixels(2), pixels(3)])
    assert (sample["texts"], sample["no bytes"]) == ([b"a", b""], [])
    assert (sample["one"], type(sample["one"])) == (-7, np.int64)
    assert (sample["floats"].tolist(), sample["floats"].dtype) == ([1, 2], np.float32)
    assert (sample["none"].tolist(), sample["none"].dtype) == ([], np.int64)
    names = dataset.reader.names(memoryview(record(example(features))), None, dataset.location(0))
    assert names == tuple(features)


def test_labels_are_scalars_or_arrays(tmp_path: Path) -> None:
    for feature, value, dtype in (
        (int64_list(3), 3, np.int64),
        (float_list(1, 2), [1, 2], np.float32),
    ):
        dataset = one(tmp_path, {"image": bytes_list(png(0)), "y": feature}, image="image", label="y")
        _, label = dataset[0]
        assert (np.asarray(label).tolist(), label.dtype) == (value, dtype)
        assert (dataset.labels().tolist(), dataset.labels().dtype) == ([value], dtype)
        dataset = TFRecordDataset(dataset.paths, image="image", label="y", label_dtype="float64")
        assert dataset[0][1].dtype == dataset.labels().dtype == np.float64


@with_cases(
    ("image", "label", "error", "text"),
    [
        (bytes_list(b""), None, MissingFieldError, "has no field 'y'"),
        (bytes_list(png(0)), b"", MissingFieldError, "has no field 'y'"),
        (bytes_list(png(0)), bytes_list(b"1"), SampleFormatError, "is not a label, but bytes"),
        (bytes_list(png(0)), int64_list(), SampleFormatError, "'y' has no value"),
        (bytes_list(), int64_list(1), SampleFormatError, "'image' has not one value"),
        (bytes_list(b"", b""), int64_list(1), SampleFormatError, r"pass fields=\(...\) for samples that are"),
        (int64_list(1), int64_list(1), SampleFormatError, "'image' is not an image: it has numbers"),
    ],
)
def test_features_that_are_no_sample_are_named(
    tmp_path: Path, image: bytes, label: bytes | None, error: type[ValueError], text: str
) -> None:
    features = {"image": image} if label is None else {"image": image, "y": label}
    dataset = one(tmp_path, features, image="image", label="y")
    with pytest.raises(error, match=text) as caught:
        dataset[0]
    found: Any = caught.value
    assert (found.path, found.key) == (str(tmp_path / "one.tfrecord"), "0")
    if isinstance(found, MissingFieldError):
        assert (found.field, set(found.found)) == ("y", {"image"})


# -- labels ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [True, False])
def test_labels_are_read_without_the_images(tmp_path: Path, first: bool) -> None:
    def payload(place: int) -> bytes:
        parts = {"image/encoded": bytes_list(bytes(200_000)), "other": bytes_list(bytes(5000))}
        label = {"image/class/label": int64_list(place)}
        return example({**label, **parts} if first else {**parts, **label})

    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", [payload(place) for place in range(5)]))
    nbytes: list[int] = []
    source = dataset.open_source()
    counted: Any = SimpleNamespace(
        fetch=lambda spans: (nbytes.append(int(spans.length.sum())), source.fetch(spans))[1]
    )
    assert dataset.labels_at(np.array([4, 0, 2]), counted) == [4, 0, 2]
    source.close()
    assert sum(nbytes) < 3 * 4 * FIRST_NBYTES
    assert dataset.labels().tolist() == list(range(5))
    assert dataset.label_nbytes <= 5 * FIRST_NBYTES


def unusual(place: int) -> bytes:
    """Return an example in one of many forms, with `place` as its label."""
    label, image = (
        entry("image/class/label", int64_list(place)),
        entry("image/encoded", bytes_list(bytes(3000))),
    )
    many = b"".join(entry(f"f{number}", bytes_list(bytes(1500))) for number in range(12))
    reverse = field(1, field(2, int64_list(place)) + field(1, b"image/class/label"))
    split = field(1, field(1, b"image/class/label") + field(2, b"") + field(2, int64_list(place)))
    forms = (
        field(1, label),
        field(1, image + label),
        field(1, image) + field(1, label),
        field(1, many + label),
        field(1, image + reverse),
        field(1, image + split),
        field(1, entry("image/class/label", int64_list(99)) + image + label),
        field(1, label + image + entry("image/class/label", int64_list(place))),
        field(9, bytes(5000)) + field(1, image + label),
    )
    return forms[place % len(forms)]


def test_labels_of_unusual_examples(tmp_path: Path) -> None:
    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", map(unusual, range(18))))
    assert dataset.labels().tolist() == list(range(18))


def test_errors_of_labels_are_those_of_their_samples(tmp_path: Path) -> None:
    payloads = [
        image_example(png(0), 1),
        example({"x": int64_list(1)}),
        b"\x0a\x05",
        image_example(png(0), 4),
        b"",
        image_example(png(0), 300),
    ]
    path = write_records(tmp_path / "a.tfrecord", payloads)
    dataset = TFRecordDataset(path, label_dtype="uint8")
    source = dataset.open_source()
    try:
        found = dataset.labels_at(np.arange(6), source)
        assert (found[0], found[3]) == (1, 4)
        assert isinstance(found[5], ValueError)
        for place, error in ((1, MissingFieldError), (2, SampleFormatError), (4, SampleFormatError)):
            assert isinstance(found[place], error)
            assert found[place].key == str(place)
        assert dataset.location(3).offset is not None
        os.truncate(path, dataset.location(3).offset or 0)
        again = dataset.labels_at(np.arange(5), source)
        assert again[0] == 1
        assert [isinstance(error, ShortReadError) for error in again[3:]] == [True, True]
    finally:
        source.close()


def test_labels_are_checked_on_request(photos: list[Path]) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    dataset = TFRecordDataset(photos, check_crc=True)
    assert dataset.labels().tolist() == list(range(23))
    assert dataset.label_nbytes == dataset.tables.length.sum()
    damage(photos[2], 3, wrong_pixel)
    assert TFRecordDataset(photos).labels().tolist() == list(range(23))
    with pytest.raises(SampleFormatError, match="checksum of the record's data is wrong") as caught:
        dataset.labels()
    assert (caught.value.key, caught.value.path) == ("3", str(photos[2]))


# -- indexes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("lengths", [[16] * 5, []])
def test_an_index_that_does_not_fit_is_replaced(
    photos: list[Path], scans: list[str], lengths: list[int]
) -> None:
    state = shard_state(str(photos[0]))
    assert state is not None
    index = SampleIndex("tfrecord-1", {"length": np.array(lengths, np.int64)})
    write_kept(index_beside(str(photos[0])), index, state)
    assert_numbered(TFRecordDataset(photos[0]), 5)
    assert scans == [str(photos[0])]
    write_kept(index_beside(str(photos[0])), TFRecordDataset(photos[0]).scan_shard(0), state)
    scans.clear()
    assert_numbered(TFRecordDataset(photos[0]), 5)
    assert scans == []


@pytest.mark.parametrize("suffix", ["appended", "instead"])
def test_an_index_of_tfrecord2idx_is_used_if_it_fits(tmp_path: Path, scans: list[str], suffix: str) -> None:
    payloads = [image_example(png(place), place) for place in range(9)]
    path = write_records(tmp_path / "a.tfrecord", payloads)
    place = path.with_name("a.tfrecord.idx") if suffix == "appended" else path.with_suffix(".idx")
    lengths = [len(payload) + 16 for payload in payloads]
    write_index(place, lengths)
    assert_numbered(TFRecordDataset(path), 9)
    assert scans == []
    # Other lengths with the same sum: the heads are compared.
    os.utime(path, ns=(0, 0))
    write_index(place, [lengths[0] + 1, lengths[1] - 1, *lengths[2:]])
    assert_numbered(TFRecordDataset(path), 9)
    assert scans == [str(path)]
    for number, text in enumerate((b"", b"0 20\n", b"x" * 5000, b"\xff\xfe", b"0 -1\n")):
        os.utime(path, ns=(0, number + 1))
        place.write_bytes(text)
        assert len(TFRecordDataset(path)) == 9
    place.unlink()
    place.mkdir()
    os.utime(path, ns=(0, 100))
    assert len(TFRecordDataset(path)) == 9
    assert len(scans) == 7


def test_a_wrong_entry_between_those_compared_is_an_error_of_its_samples(tmp_path: Path) -> None:
    payloads = [image_example(png(0), place % 10) for place in range(400)]
    path = write_records(tmp_path / "a.tfrecord", payloads)
    lengths = [len(payload) + 16 for payload in payloads]
    lengths[200] += 1
    lengths[201] -= 1
    write_index(tmp_path / "a.tfrecord.idx", lengths)
    dataset = TFRecordDataset(path)
    assert int(dataset[199][1]) == 9
    for place in (200, 201):
        with pytest.raises(SampleFormatError, match=r"another length than its index says|is not the head"):
            dataset[place]
    assert int(dataset[202][1]) == 2


@pytest.mark.slow
def test_a_million_samples_are_opened_in_a_second_the_second_time(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    path.write_bytes(many_records(b"", 1_000_000))
    assert len(TFRecordDataset(path)) == 1_000_000
    begin = time.perf_counter()
    assert len(TFRecordDataset(path)) == 1_000_000
    assert time.perf_counter() - begin < 1


# -- damage ----------------------------------------------------------------------------------------------------------


def damage(path: Path, row: int, change: Callable[[bytearray], object]) -> int:
    """Change the bytes of a record in place, and keep the index; return its offset."""
    dataset = TFRecordDataset(path)
    table = dataset.tables.tables[0]
    begin, length = int(table.offset[row]), int(table.length[row])
    times = path.stat()
    data = bytearray(path.read_bytes())
    part = data[begin : begin + length]
    change(part)
    assert len(part) == length
    data[begin : begin + length] = part
    path.write_bytes(data)
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    return begin


def wrong_length(data: bytearray) -> None:
    data[0] ^= 1


def wrong_pixel(data: bytearray) -> None:
    data[-60] ^= 1


def wrong_message(data: bytearray) -> None:
    data[13:17] = b"\xff" * 4


@pytest.mark.parametrize(
    ("change", "text"),
    [(wrong_length, "not the head of a TFRecord"), (wrong_message, "is no tf.train.Example")],
)
def test_a_damaged_sample_is_named(
    photos: list[Path], change: Callable[[bytearray], None], text: str
) -> None:
    dataset = TFRecordDataset(photos)
    assert len(dataset) == 23
    offset = damage(photos[2], 3, change)
    with pytest.raises(SampleFormatError, match=text) as caught:
        dataset[8]
    assert (caught.value.path, caught.value.key) == (str(photos[2]), "3")
    assert caught.value.offset is not None
    assert offset <= caught.value.offset < offset + 20


def test_wrong_data_are_found_on_request(photos: list[Path]) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")

    dataset = TFRecordDataset(photos, check_crc=True)
    assert len(dataset.tables) == 23
    offset = damage(photos[0], 2, wrong_pixel)
    assert TFRecordDataset(photos).labels()[2] == 2
    with pytest.raises(SampleFormatError, match="checksum of the record's data is wrong") as caught:
        dataset[2]
    assert (caught.value.path, caught.value.offset, caught.value.key) == (str(photos[0]), offset, "2")
    with DataLoader(dataset, 4, **pool("process", 1), on_error="skip", max_errors=5) as loader:
        assert labels_in(loader) == [label for label in range(23) if label != 2]


def test_a_missing_package_is_named(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    crc32c_function.cache_clear()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert_numbered(TFRecordDataset(photos), 23)
    with pytest.raises(ImportError, match=r"google-crc32c.*pip install .aioloader\[tfrecord\]"):
        TFRecordDataset(photos, check_crc=True)
    with pytest.raises(ImportError, match=r"google-crc32c.*pip install .aioloader\[tfrecord\]"):
        list(TFRecordDataset(photos).check_shard(0))


def test_a_damaged_file_is_an_error_when_it_is_opened(photos: list[Path]) -> None:
    photos[3].write_bytes(photos[3].read_bytes()[:-1])
    with pytest.raises(SampleFormatError, match="ends inside this record: it was truncated") as caught:
        TFRecordDataset(photos)[0]
    assert caught.value.path == str(photos[3])
    assert caught.value.offset is not None


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for length, text in (((1 << 63) - 17, "ends inside this record"), ((1 << 64) - 1, "ends inside")):
        data = bytearray(record(b"abc"))
        struct.pack_into("<Q", data, 0, length)
        data[8:12] = record(b"")[8:12]
        path.write_bytes(record(b"abc") + data)
        with pytest.raises(SampleFormatError, match="not the head of a TFRecord"):
            len(TFRecordDataset(path))
        struct.pack_into("<I", data, 8, length_crc(length))
        path.write_bytes(record(b"abc") + data)
        with pytest.raises(SampleFormatError, match=text) as caught:
            len(TFRecordDataset(path))
        assert (caught.value.offset, caught.value.key) == (19, "1")


# -- checks of whole files -------------------------------------------------------------------------------------------


def test_every_fault_is_found(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    payloads = [image_example(png(place), place) for place in range(9)]
    payloads[2] = b"\x0a\x05ab"
    payloads[3] = b""
    payloads[8] = field(1, entry("a", field(3, field(1, b"\x80" * 5))))
    path = write_records(tmp_path / "a.tfrecord", payloads)
    places = np.cumsum([0, *(len(payload) + 16 for payload in payloads)]).tolist()
    data = bytearray(path.read_bytes())
    data[places[1] + 50] ^= 1  # the data
    data[places[5] - 1] ^= 1  # their CRC
    data[places[6]] ^= 1  # a length
    path.write_bytes(data)
    faults, valid = faults_of(TFRecordDataset(path))
    assert valid == 3
    assert [(fault.key, fault.offset) for fault in faults] == [
        ("1", places[1]),
        ("2", places[2] + 12),
        ("3", places[3]),
        ("4", places[4]),
        ("6", places[6]),
        (None, faults[-1].offset),
    ]
    assert places[8] < (faults[-1].offset or 0) < places[9]
    texts = ("record's data is wrong", "no tf.train.Example", "it is empty", "record's data is wrong")
    for fault, text in zip(
        faults, (*texts, "not the head of a TFRecord", "no tf.train.Example"), strict=True
    ):
        assert fault.path == str(path)
        assert text in str(fault)


def test_a_compressed_file_is_one_fault(photos: list[Path]) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    photos[0].write_bytes(gzip.compress(photos[0].read_bytes()))
    (fault,), valid = faults_of(TFRecordDataset(photos[0]))
    assert (valid, "compressed as a whole (GZIP)" in str(fault)) == (0, True)


def test_the_check_reports_its_progress(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    path = tmp_path / "a.tfrecord"
    path.write_bytes(many_records(image_example(bytes(1000), 1), 4000))
    reached: list[int] = []
    dataset = TFRecordDataset(path)
    assert list(dataset.check_shard(0, reached.append)) == []
    assert reached == sorted(reached)
    assert reached[-1] == path.stat().st_size
    assert len(reached) > 3
    reached.clear()
    assert len(dataset.scan_shard(0, reached.append).arrays["length"]) == 4000
    assert reached[-1] == path.stat().st_size
    assert not Path(f"{path}{SUFFIX}").exists()


def test_a_file_that_shrinks_while_it_is_checked_is_reported(tmp_path: Path) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    path = write_records(tmp_path / "a.tfrecord", [image_example(png(number), number) for number in range(4)])
    data = bytearray(path.read_bytes())
    data[30] ^= 1  # in the first payload
    path.write_bytes(data)
    checking = check_records(str(path), None)
    assert "checksum" in str(next(checking))
    os.truncate(path, len(data) // 4 + 10)
    shrank = next(checking)
    assert "shrank while it was read" in str(shrank)
    assert shrank.path == str(path)
    with pytest.raises(StopIteration) as ended:
        next(checking)
    assert ended.value.value == 0
