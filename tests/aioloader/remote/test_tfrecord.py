"""Tests of TFRecord files by URL: the same batches as from local files, and few requests for an index."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import simplejpeg

from aioloader import TFRecordDataset
from aioloader.errors import SampleFormatError
from aioloader.storage.remote import opening
from tests.aioloader.datasets.conftest import png
from tests.aioloader.formats.tfrecords import image_example, many_records, record, write_index, write_records
from tests.aioloader.remote.conftest import ServedFolder

pytestmark = pytest.mark.remote

NAMES = tuple(f"train-{shard:05}-of-00003" for shard in range(3))


def write(there: ServedFolder) -> list[str]:
    """Write 23 samples in three files, and return their URLs."""
    for shard, name in enumerate(NAMES):
        places = range(shard * 8, min(shard * 8 + 8, 23))
        write_records(there.folder / name, [image_example(png(place), place) for place in places])
    return [f"{there.url}/{name}" for name in NAMES]


def ranges(there: ServedFolder) -> list[str]:
    """Return the ranges that were requested since the last call, without those that ask for the version."""
    log = there.proxy.log()
    there.proxy.restart()
    return [span for method, _, span in log if method == "GET" and span not in ("bytes=0-0", "")]


def test_an_index_is_made_once_for_a_version(there: ServedFolder) -> None:
    urls = write(there)
    assert len(TFRecordDataset(urls)) == 23
    assert len(ranges(there)) == 3
    assert len(TFRecordDataset(urls)) == 23
    assert ranges(there) == []
    write_records(there.folder / NAMES[1], [image_example(png(1), 1)] * 2)
    dataset = TFRecordDataset(urls)
    assert len(dataset) == 17
    assert int(dataset[9][1]) == 1


def test_large_records_are_not_read_for_their_index(
    there: ServedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "cheap_nbytes", lambda *_: 0)
    path = there.folder / "a.tfrecord"
    path.write_bytes(many_records(bytes(50_000), 600))
    assert len(TFRecordDataset(f"{there.url}/a.tfrecord")) == 600
    spans = [span.removeprefix("bytes=").split("-") for span in ranges(there)]
    assert sum(int(last) - int(first) + 1 for first, last in spans) < path.stat().st_size / 10


def test_a_file_of_small_records_is_fetched_once(
    there: ServedFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opening, "cheap_nbytes", lambda *_: 1 << 20)
    path = there.folder / "a.tfrecord"
    noise = np.random.default_rng(1).integers(0, 256, (200, 200, 3), np.uint8)
    photo = simplejpeg.encode_jpeg(noise, 95)
    write_records(path, [image_example(photo, place) for place in range(9 * (1 << 20) // len(photo))])
    here, dataset = TFRecordDataset(path), TFRecordDataset(f"{there.url}/a.tfrecord")
    ranges(there)
    assert len(dataset) == len(here)
    assert len(ranges(there)) == 3  # 1 MiB, and twice 4 MiB
    np.testing.assert_array_equal(dataset.tables.length, here.tables.length)
    for index in range(len(here)):
        assert dataset[index][1] == here[index][1] == index
    assert ranges(there) == []
    assert int(dataset[7][1]) == 7
    assert len(ranges(there)) == 1


def test_the_index_of_tfrecord2idx_is_read(there: ServedFolder) -> None:
    path = there.folder / "a.tfrecord"
    payloads = [bytes(50_000 + place) for place in range(100)]
    write_records(path, payloads)
    write_index(there.folder / "a.idx", [len(payload) + 16 for payload in payloads])
    dataset = TFRecordDataset(f"{there.url}/a.tfrecord")
    assert len(dataset) == 100
    assert len(ranges(there)) <= 34  # the index, and 32 heads or fewer
    assert dataset.tables.length[99] == 50_115
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    (there.folder / "a.idx").write_text("0 1\n")
    assert len(TFRecordDataset(f"{there.url}/a.tfrecord")) == 100


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (record(b"abc") + record(b"abc")[:-1], "ends inside this record"),
        (gzip.compress(record(b"abc"), mtime=0), "compressed as a whole"),
        (record(b"abc") + bytes(40), "not the head of a TFRecord"),
    ],
)
def test_a_damaged_object_is_named(there: ServedFolder, data: bytes, text: str) -> None:
    (there.folder / "a.tfrecord").write_bytes(data)
    with pytest.raises(SampleFormatError, match=text) as caught:
        len(TFRecordDataset(f"{there.url}/a.tfrecord"))
    assert caught.value.path == f"{there.url}/a.tfrecord"


def test_objects_are_checked(there: ServedFolder) -> None:
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    urls = write(there)
    path = there.folder / NAMES[1]
    data = bytearray(path.read_bytes())
    data[-60] ^= 1
    path.write_bytes(data)
    dataset = TFRecordDataset(urls)
    assert list(dataset.check_shard(0)) == []
    (fault,) = dataset.check_shard(1)
    assert (fault.path, fault.key) == (urls[1], "7")
    labels = dataset.labels()
    np.testing.assert_array_equal(labels, np.arange(23))
