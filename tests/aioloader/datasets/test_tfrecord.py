"""Tests of TFRecord files: samples, labels, indexes, damage, and checks of whole files.

test_every_format.py has the tests of batches, resume, receipts and dead workers.
"""

from __future__ import annotations

import gzip
import os
import pickle
import struct
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, SampleError, TFRecordDataset
from aioloader.errors import MissingFieldError, SampleFormatError, UnknownFormatError
from aioloader.formats.tfrecord.fields import FIRST_NBYTES
from aioloader.formats.tfrecord.records import check_records
from aioloader.sample_index.store import SUFFIX, index_beside, shard_state
from aioloader.sample_index.store import write_index as write_kept
from recordio.errors import ShortReadError
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
from tests.executors import pool

SIZES = (5, 0, 11, 7)


@pytest.fixture
def photos(tmp_path: Path) -> list[Path]:
    """Write 23 samples in four files: image i is `pixels(i)`, and label i is i."""
    paths, number = [], 0
    for shard, size in enumerate(SIZES):
        payloads = [image_example(png(place), place) for place in range(number, number + size)]
        paths.append(write_records(tmp_path / f"train-{shard:05}-of-00004", payloads))
        number += size
    return paths


def assert_samples(dataset: Any, count: int = 23) -> None:
    """Fail unless the samples of a dataset are those of `photos`."""
    assert len(dataset) == count
    for place in range(count):
        image, label = dataset[place]
        np.testing.assert_array_equal(image, pixels(place))
        assert (label, label.dtype) == (place, np.int64)


def one(tmp_path: Path, features: dict[str, bytes], **options: Any) -> TFRecordDataset:
    """Return the dataset of a file with one record."""
    path = write_records(tmp_path / "one.tfrecord", [example(features)])
    return TFRecordDataset(path, **options)


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_follow_one_another(photos: list[Path]) -> None:
    dataset = TFRecordDataset(photos)
    assert_samples(dataset)
    assert_samples(pickle.loads(pickle.dumps(dataset)))
    assert dataset.paths == tuple(map(str, photos))
    location = dataset.location(7)
    assert (location.key, location.path) == ("2", str(photos[2]))
    assert location.offset == 2 * len(record(image_example(png(5), 5)))
    assert int(dataset.transform_first(lambda image: image.sum()).take(2)[1][1]) == 1


def test_patterns_folders_and_files_are_opened(photos: list[Path]) -> None:
    folder = photos[0].parent
    for path in (photos, f"{folder}/train-*-of-00004", folder, f"file://{folder}"):
        found = aioloader.open_dataset(path)
        assert isinstance(found, TFRecordDataset)
        assert_samples(found)
    renamed = photos[0].rename(folder / "renamed.bin")
    found = aioloader.open_dataset(renamed, fields="image/class/label")
    assert isinstance(found, TFRecordDataset)
    assert found[4] == {"image/class/label": 4}
    with pytest.raises(FileNotFoundError):
        TFRecordDataset(folder / "none-*")


def test_an_empty_file_has_no_samples(tmp_path: Path) -> None:
    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", []))
    assert len(dataset) == 0
    assert (len(dataset.labels()), list(DataLoader(dataset, 2, num_workers=0))) == (0, [])


def test_fields_have_their_values(tmp_path: Path) -> None:
    features = {
        "image": bytes_list(png(1)),
        "views": bytes_list(png(2), png(3)),
        "text": bytes_list("größe".encode()),
        "texts": bytes_list(b"a", b""),
        "one": int64_list(-7),
        "many": int64_list(1, 2, packed=False),
        "float": float_list(0.5),
        "floats": float_list(1, 2),
        "none": int64_list(),
        "no bytes": bytes_list(),
    }
    dataset = one(tmp_path, features, image=("image", "views"), fields=tuple(features))
    (sample,) = dataset.take(1)
    assert list(sample) == list(features)
    np.testing.assert_array_equal(sample["image"], pixels(1))
    for found, place in zip(sample["views"], (2, 3), strict=True):
        np.testing.assert_array_equal(found, pixels(place))
    assert (sample["text"], sample["texts"], sample["no bytes"]) == ("größe".encode(), [b"a", b""], [])
    assert (sample["one"], type(sample["one"])) == (-7, np.int64)
    assert (sample["float"], type(sample["float"])) == (0.5, np.float32)
    for name, values, dtype in (
        ("many", [1, 2], np.int64),
        ("floats", [1, 2], np.float32),
        ("none", [], np.int64),
    ):
        assert (sample[name].tolist(), sample[name].dtype) == (values, dtype)
    assert dataset.reader.names(memoryview(record(example(features))), None, dataset.location(0)) == tuple(
        features
    )


def test_labels_are_scalars_or_arrays(tmp_path: Path) -> None:
    for feature, value, dtype in (
        (int64_list(3), 3, np.int64),
        (float_list(0.5), 0.5, np.float32),
        (int64_list(1, 2), [1, 2], np.int64),
        (float_list(1, 2), [1, 2], np.float32),
    ):
        dataset = one(tmp_path, {"image": bytes_list(png(0)), "y": feature}, image="image", label="y")
        _, label = dataset[0]
        assert (np.asarray(label).tolist(), label.dtype) == (value, dtype)
        assert (dataset.labels().tolist(), dataset.labels().dtype) == ([value], dtype)
        dataset = TFRecordDataset(dataset.paths, image="image", label="y", label_dtype="float64")
        assert dataset[0][1].dtype == dataset.labels().dtype == np.float64


@pytest.mark.parametrize(
    ("features", "error", "text"),
    [
        ({"image": bytes_list(b"")}, MissingFieldError, "has no field 'y'"),
        ({"image": bytes_list(png(0)), "y": b""}, MissingFieldError, "has no field 'y'"),
        (
            {"image": bytes_list(png(0)), "y": bytes_list(b"1")},
            SampleFormatError,
            "is not a label, but bytes",
        ),
        ({"image": bytes_list(png(0)), "y": int64_list()}, SampleFormatError, "'y' has no value"),
        ({"image": bytes_list(), "y": int64_list(1)}, SampleFormatError, "'image' has not one value"),
        (
            {"image": bytes_list(b"", b""), "y": int64_list(1)},
            SampleFormatError,
            r"pass fields=\(...\) for samples that are dicts",
        ),
        (
            {"image": int64_list(1), "y": int64_list(1)},
            SampleFormatError,
            "'image' is not an image: it has numbers",
        ),
    ],
)
def test_features_that_are_no_sample_are_named(
    tmp_path: Path, features: dict[str, bytes], error: type[ValueError], text: str
) -> None:
    dataset = one(tmp_path, features, image="image", label="y")
    with pytest.raises(error, match=text) as caught:
        dataset[0]
    found: Any = caught.value
    assert (found.path, found.key) == (str(tmp_path / "one.tfrecord"), "0")
    if isinstance(found, MissingFieldError):
        assert (found.field, set(found.found)) == ("y", {"image"})


def test_an_empty_record_is_named(tmp_path: Path) -> None:
    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", [image_example(png(0), 0), b""]))
    assert len(dataset) == 2
    with pytest.raises(SampleFormatError, match="the record is empty") as caught:
        dataset[1]
    assert (caught.value.key, caught.value.offset) == ("1", dataset.location(1).offset)


def test_a_sequence_example_is_refused_with_advice(tmp_path: Path) -> None:
    payload = field(1, entry("label", int64_list(1))) + field(2, field(1, field(1, b"frames")))
    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", [payload]), fields="label")
    with pytest.raises(
        SampleFormatError, match=r"SequenceExample, which is not read: write a tf\.train\.Example"
    ):
        dataset[0]


def test_options_are_checked_before_a_file_is_read(photos: list[Path]) -> None:
    with pytest.raises(ValueError, match="image must be the name of one feature"):
        TFRecordDataset(photos, image=("a", "b"))
    with pytest.raises(ValueError, match="fields must name at least one"):
        TFRecordDataset(photos, fields=())
    with pytest.raises(TypeError, match="names of fields must be str"):
        TFRecordDataset(photos, image=(1,), fields="a")


# -- labels ----------------------------------------------------------------------------------------------------------


class Ranges:
    """Byte source that counts the bytes read.

    Attributes:
        nbytes: so far.
    """

    def __init__(self, source: Any) -> None:
        self.nbytes = 0
        self._source = source

    def fetch(self, spans: Any) -> Any:
        self.nbytes += int(spans.length.sum())
        return self._source.fetch(spans)


@pytest.mark.parametrize("first", [True, False])
def test_labels_are_read_without_the_images(tmp_path: Path, first: bool) -> None:
    def payload(place: int) -> bytes:
        parts = {"image/encoded": bytes_list(bytes(200_000)), "other": bytes_list(bytes(5000))}
        label = {"image/class/label": int64_list(place)}
        return example({**label, **parts} if first else {**parts, **label})

    dataset = TFRecordDataset(write_records(tmp_path / "a.tfrecord", [payload(place) for place in range(5)]))
    source = dataset.open_source()
    try:
        ranges: Any = Ranges(source)
        assert dataset.labels_at(np.array([4, 0, 2]), ranges) == [4, 0, 2]
    finally:
        source.close()
    assert ranges.nbytes < 3 * 4 * FIRST_NBYTES
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
    ]
    path = write_records(tmp_path / "a.tfrecord", payloads)
    dataset = TFRecordDataset(path)
    source = dataset.open_source()
    try:
        found = dataset.labels_at(np.arange(5), source)
        assert (found[0], found[3]) == (1, 4)
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


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list that gets the path of each file that is scanned."""
    from aioloader.formats.tfrecord import records as tfrecord

    found: list[str] = []
    scan = tfrecord.scan_records

    def counted(path: str, *args: Any) -> Any:
        found.append(path)
        return scan(path, *args)

    monkeypatch.setattr(tfrecord, "scan_records", counted)
    return found


def test_an_index_next_to_the_file_is_used(photos: list[Path], scans: list[str]) -> None:
    dataset = TFRecordDataset(photos[0])
    state = shard_state(str(photos[0]))
    assert state is not None
    write_kept(index_beside(str(photos[0])), dataset.scan_shard(0), state)
    assert scans == []  # that of the dataset's class
    assert_samples(TFRecordDataset(photos[0]), 5)
    assert scans == []
    assert dataset.index_kind == "tfrecord-1"


@pytest.mark.parametrize("lengths", [[16] * 5, [0], []])
def test_an_index_that_does_not_fit_is_replaced(
    photos: list[Path], scans: list[str], lengths: list[int]
) -> None:
    from aioloader.sample_index.store import SampleIndex

    state = shard_state(str(photos[0]))
    assert state is not None
    index = SampleIndex("tfrecord-1", {"length": np.array(lengths, np.int64)})
    write_kept(index_beside(str(photos[0])), index, state)
    assert_samples(TFRecordDataset(photos[0]), 5)
    assert scans == [str(photos[0])]


@pytest.mark.parametrize("suffix", ["appended", "instead"])
def test_an_index_of_tfrecord2idx_is_used_if_it_fits(tmp_path: Path, scans: list[str], suffix: str) -> None:
    payloads = [image_example(png(place), place) for place in range(9)]
    path = write_records(tmp_path / "a.tfrecord", payloads)
    place = path.with_name("a.tfrecord.idx") if suffix == "appended" else path.with_suffix(".idx")
    lengths = [len(payload) + 16 for payload in payloads]
    write_index(place, lengths)
    assert_samples(TFRecordDataset(path), 9)
    assert scans == []
    # Other lengths with the same sum: the heads are compared.
    os.utime(path, ns=(0, 0))
    write_index(place, [lengths[0] + 1, lengths[1] - 1, *lengths[2:]])
    assert_samples(TFRecordDataset(path), 9)
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


@pytest.mark.parametrize("executor", ["inline", "process"])
@pytest.mark.parametrize(
    ("change", "text"),
    [(wrong_length, "not the head of a TFRecord"), (wrong_message, "is no tf.train.Example")],
)
def test_a_damaged_sample_is_named_or_skipped(
    photos: list[Path], executor: str, change: Callable[[bytearray], None], text: str
) -> None:
    dataset = TFRecordDataset(photos)
    assert len(dataset.tables) == 23
    offset = damage(photos[2], 3, change)
    options: Any = {"batch_size": 4, **pool(executor, 1)}
    with DataLoader(dataset, **options) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    error = caught.value
    assert (error.path, error.offset, error.key) == (str(photos[2]), offset, "3")
    assert isinstance(error.__cause__, SampleFormatError)
    assert text in str(error.__cause__)
    assert error.__cause__.offset is not None
    assert offset <= error.__cause__.offset < offset + 20
    with DataLoader(dataset, on_error="skip", max_errors=5, **options) as loader:
        labels = np.concatenate([labels for _, labels in loader]).tolist()
        (only,) = loader.errors
    assert labels == [label for label in range(23) if label != 8]
    assert (only.path, only.offset, only.key) == (error.path, offset, "3")


def test_wrong_data_are_found_on_request(photos: list[Path]) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")

    dataset = TFRecordDataset(photos, check_crc=True)
    assert len(dataset.tables) == 23
    offset = damage(photos[0], 2, wrong_pixel)
    assert TFRecordDataset(photos).labels()[2] == 2
    with pytest.raises(SampleFormatError, match="checksum of the record's data is wrong") as caught:
        dataset[2]
    assert (caught.value.path, caught.value.offset, caught.value.key) == (str(photos[0]), offset, "2")
    for executor in ("inline", "process"):
        with DataLoader(dataset, 4, **pool(executor, 1), on_error="skip", max_errors=5) as loader:
            labels = np.concatenate([labels for _, labels in loader]).tolist()
        assert labels == [label for label in range(23) if label != 2]


def test_a_missing_package_is_named(photos: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from aioloader.formats.tfrecord.framing import crc32c_function

    crc32c_function.cache_clear()
    monkeypatch.setitem(sys.modules, "google_crc32c", None)
    assert_samples(TFRecordDataset(photos))
    with pytest.raises(ImportError, match=r"google-crc32c.*pip install .aioloader\[tfrecord\]"):
        TFRecordDataset(photos, check_crc=True)
    with pytest.raises(ImportError, match=r"google-crc32c.*pip install .aioloader\[tfrecord\]"):
        list(TFRecordDataset(photos).check_shard(0))


@pytest.mark.parametrize(
    ("damaged", "text"),
    [
        (lambda data: data[:-1], "ends inside this record: it was truncated"),
        (lambda data: data[:10], "ends inside this record: it was truncated"),
        (lambda data: b"\xff" + data[1:], "not the head of a TFRecord"),
        (lambda data: data + b"\0", "ends inside this record"),
        (lambda data: data + bytes(16), "not the head of a TFRecord"),
        (gzip.compress, "compressed as a whole.*gunzip < FILE > NEW"),
    ],
)
def test_a_damaged_file_is_an_error_when_it_is_opened(
    photos: list[Path], damaged: Callable[[bytes], bytes], text: str
) -> None:
    photos[3].write_bytes(damaged(photos[3].read_bytes()))
    with pytest.raises(SampleFormatError, match=text) as caught:
        TFRecordDataset(photos)[0]
    assert caught.value.path == str(photos[3])
    assert caught.value.offset is not None


def test_a_compressed_file_is_not_opened_by_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(gzip.compress(record(b"abc")))
    with pytest.raises(UnknownFormatError, match="compressed"):
        aioloader.open_dataset(path)


def test_a_length_that_lies_takes_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "a.tfrecord"
    for length, text in (((1 << 63) - 17, "ends inside this record"), ((1 << 64) - 1, "ends inside")):
        data = bytearray(record(b"abc"))
        struct.pack_into("<Q", data, 0, length)
        data[8:12] = record(b"")[8:12]
        path.write_bytes(record(b"abc") + data)
        with pytest.raises(SampleFormatError, match="not the head of a TFRecord"):
            len(TFRecordDataset(path))
        from aioloader.formats.tfrecord.framing import length_crc

        struct.pack_into("<I", data, 8, length_crc(length))
        path.write_bytes(record(b"abc") + data)
        with pytest.raises(SampleFormatError, match=text) as caught:
            len(TFRecordDataset(path))
        assert (caught.value.offset, caught.value.key) == (19, "1")


# -- checks of whole files -------------------------------------------------------------------------------------------


def faults_of(path: Path) -> tuple[list[SampleFormatError], int]:
    """Return the faults of a file, and the number of valid records."""
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    faults, checking = [], TFRecordDataset(path).check_shard(0)
    while True:
        try:
            faults.append(next(checking))
        except StopIteration as stop:
            return faults, stop.value


def test_a_valid_file_has_no_faults(photos: list[Path]) -> None:
    assert 0 in SIZES
    assert [faults_of(path) for path in photos] == [([], size) for size in SIZES]


def test_every_fault_is_found(tmp_path: Path) -> None:
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
    faults, valid = faults_of(path)
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


@pytest.mark.parametrize("nbytes", [3, 15, 40])
def test_the_end_of_a_truncated_file_is_one_fault(photos: list[Path], nbytes: int) -> None:
    begin = TFRecordDataset(photos[2]).location(10).offset or 0
    os.truncate(photos[2], begin + nbytes)
    (fault,), valid = faults_of(photos[2])
    assert (valid, fault.key, fault.offset) == (10, "10", begin)
    assert "ends inside this record" in str(fault)


def test_a_compressed_file_is_one_fault(photos: list[Path]) -> None:
    photos[0].write_bytes(gzip.compress(photos[0].read_bytes()))
    (fault,), valid = faults_of(photos[0])
    assert valid == 0
    assert "compressed as a whole (GZIP)" in str(fault)


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
