"""Tests of damaged and missing files: a named error with path, offset or key; never a hang or another exception."""

import asyncio
import os
import re
import shlex
import tracemalloc

import numpy as np
import pytest
import simplejpeg

import recordio
from aioloader import (
    AsyncDataLoader,
    DataLoader,
    DecodeError,
    ImageFolderDataset,
    ImageRecordDataset,
    RecordFileDataset,
    SampleError,
    cli,
)
from tests.cases import with_cases
from tests.executors import pool

JPEG = simplejpeg.encode_jpeg(np.full((20, 30, 3), 90, np.uint8))


def write(path, bodies):
    with recordio.RecordWriter(path, path.with_suffix(".idx")) as writer:
        for key, body in enumerate(bodies):
            writer.write(recordio.pack(recordio.IRHeader(0, key, key, 0), body), key)
    return path


def first_error(dataset, executor):
    with (
        DataLoader(dataset, 2, **pool(executor, 1)) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    return caught.value


@with_cases(
    "body", [b"", JPEG[: len(JPEG) // 2], b"this is text, not an image", b"\xff\xd8\xff\xe0" + bytes(50)]
)
def test_a_bad_image_in_a_record_is_named(tmp_path, body, executor):
    path = write(tmp_path / "a.rec", [JPEG, JPEG, JPEG, body, JPEG])
    error = first_error(ImageRecordDataset(path), executor)
    assert isinstance(error.__cause__, DecodeError)
    assert (error.dataset, error.index, error.key, error.stage) == ("ImageRecordDataset", 3, 3, "decode")
    assert error.path == str(path)
    assert error.offset == recordio.Index.open(path.with_suffix(".idx")).offsets[3]


def test_a_bad_file_in_a_folder_is_named(tmp_path, executor):
    (tmp_path / "cat").mkdir()
    for number in range(4):
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(b"text" if number == 2 else JPEG)
    error = first_error(ImageFolderDataset(tmp_path), executor)
    assert isinstance(error.__cause__, DecodeError)
    assert (error.index, error.stage, error.path) == (2, "decode", str(tmp_path / "cat" / "2.jpg"))


def test_a_file_that_vanished_is_named_and_the_others_come(tmp_path, executor):
    (tmp_path / "cat").mkdir()
    for number in range(5):
        (tmp_path / "cat" / f"{number}.jpg").write_bytes(JPEG)
    dataset = ImageFolderDataset(tmp_path)
    (tmp_path / "cat" / "3.jpg").unlink()
    error = first_error(dataset, executor)
    assert isinstance(error.__cause__, FileNotFoundError)
    assert (error.index, error.stage, error.path) == (3, "fetch", str(tmp_path / "cat" / "3.jpg"))
    with DataLoader(dataset, 2, **pool(executor, 1), on_error="skip") as loader:
        assert [len(labels) for _, labels in loader] == [2, 1, 1]


DAMAGE = {
    "cut": lambda data, at: data[: at + 100],
    "flipped magic": lambda data, at: data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :],
    "length 2**29 - 1": lambda data, at: data[: at + 4] + b"\xff\xff\xff\x1f" + data[at + 8 :],
    "length 2**24 - 1": lambda data, at: data[: at + 4] + b"\xff\xff\xff\x00" + data[at + 8 :],
}


@with_cases("kind", DAMAGE)
def test_a_damaged_record_is_named_and_takes_no_memory(tmp_path, kind, executor):
    path = write(tmp_path / "a.rec", [JPEG] * 4)
    offset = int(recordio.Index.open(path.with_suffix(".idx")).offsets[2])
    path.write_bytes(DAMAGE[kind](path.read_bytes(), offset))
    tracemalloc.start()
    try:
        error = first_error(ImageRecordDataset(path, label_dtype="int64"), executor)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    cause = error.__cause__
    assert isinstance(cause, recordio.RecordIOError)
    assert (error.index, error.key, error.path, error.offset) == (2, 2, str(path), offset)
    assert peak < 16 << 20
    if kind == "flipped magic":
        assert isinstance(cause, recordio.CorruptRecordError)
        assert (str(cause.path), cause.offset) == (str(path), offset)
        assert cause.expected != cause.found


def test_without_an_index_the_file_is_scanned(tmp_path):
    path = write(tmp_path / "a.rec", [JPEG] * 4)
    path.with_suffix(".idx").unlink()
    assert [labels.tolist() for _, labels in DataLoader(ImageRecordDataset(path), 3, num_workers=0)] == [
        [0, 1, 2],
        [3],
    ]


@with_cases("on_error", ["raise", "skip"])
def test_a_damaged_file_without_an_index_says_how_to_get_at_its_valid_records(tmp_path, on_error):
    path = write(tmp_path / "a file.rec", [JPEG] * 4)
    path.with_suffix(".idx").unlink()
    os.truncate(path, path.stat().st_size - 8)
    with (
        DataLoader(ImageRecordDataset(path), 2, num_workers=0, on_error=on_error) as loader,
        pytest.raises(recordio.TruncatedRecordError, match="found by a scan") as caught,
    ):
        list(loader)
    assert caught.value.path == str(path)
    # The command in the message, with another name for DST.
    told = re.search("`aioloader (repair [^`]*) DST`", str(caught.value))
    assert told is not None
    copy = tmp_path / f"{on_error}.rec"
    assert cli.main([*shlex.split(told.group(1)), str(copy)]) == 1  # damage was found, and named
    loader = DataLoader(ImageRecordDataset(copy), 2, num_workers=0, on_error=on_error)
    assert [number for _, numbers in loader for number in numbers.tolist()] == [0, 1, 2]
    assert loader.errors == []


@with_cases("line", ["4\t99999996", "4\t-4", "4\t18446744073709551615", "4\t6"])
def test_an_index_that_points_nowhere_is_named(tmp_path, line):
    path = write(tmp_path / "a.rec", [JPEG] * 4)
    with path.with_suffix(".idx").open("a") as index:
        index.write(line + "\n")
    loader = DataLoader(ImageRecordDataset(path), 2, num_workers=0, on_error="skip")
    assert [number for _, numbers in loader for number in numbers.tolist()] == [0, 1, 2, 3]
    (error,) = loader.errors
    assert isinstance(error.__cause__, recordio.RecordIOError)
    assert (error.index, error.key, error.path) == (4, 4, str(path))
    assert "python -m recordio" in str(error)


def misled(tmp_path, long=3_000_000):
    """Write five records; the line of key 3 points into the long record of key 1."""
    path = tmp_path / "a.rec"
    payloads = [bytes([key]) * (long if key == 1 else 400) for key in range(5)]
    with recordio.RecordWriter(path, index=True) as writer:
        offsets = [writer.write(payload) for payload in payloads]
    offsets[3] = offsets[1] + 400
    path.with_suffix(".idx").write_text("".join(f"{key}\t{at}\n" for key, at in enumerate(offsets)))
    return path, payloads, offsets[3]


def test_a_wrong_offset_inside_another_record_fails_alone(tmp_path, executor):
    path, payloads, offset = misled(tmp_path)
    with DataLoader(RecordFileDataset(path), 2, **pool(executor, 2), on_error="skip") as loader:
        assert [payload for batch in loader for payload in batch] == payloads[:3] + payloads[4:]
        (error,) = loader.errors
    assert isinstance(error.__cause__, recordio.CorruptRecordError)
    assert (error.index, error.key, error.path, error.offset) == (3, 3, str(path), offset)
    with pytest.raises(SampleError, match="key 3"):
        list(DataLoader(RecordFileDataset(path), 2, **pool(executor, 2)))


def test_a_record_that_memory_cannot_hold_says_so(tmp_path, executor, monkeypatch):
    # If the system does not report its page cache, records are read into memory, not looked up in maps.
    monkeypatch.setattr("aioloader.storage.local.mapped.cached_pages", lambda fd: None)
    path, payloads, _ = misled(tmp_path, long=20_000_000)
    with DataLoader(
        RecordFileDataset(path), 1, **pool(executor, 1), on_error="skip", memory_limit=16 << 20
    ) as loader:
        assert [payload for batch in loader for payload in batch] == [payloads[0], payloads[2], payloads[4]]
        assert [error.key for error in loader.errors] == [1, 3]
    assert "raise memory_limit" in str(loader.errors[0])


def test_a_missing_record_file_is_a_file_not_found_error_at_once(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"none\.rec"):
        ImageRecordDataset(tmp_path / "none.rec")


@pytest.fixture
def small_crops(photo_rec, photo_folder):
    datasets = ImageRecordDataset(photo_rec), ImageFolderDataset(photo_folder)
    return [dataset.transform_first(lambda image: image[:8, :8]) for dataset in datasets]


async def test_reading_and_decoding_never_block_the_loop(small_crops, no_blocking):
    for crops in small_crops:
        for executor in ("thread", "process"):
            async with AsyncDataLoader(crops, 4, **pool(executor, 2), shuffle=True) as loader:
                async for _ in loader:
                    await asyncio.sleep(0)


def test_a_length_that_was_made_smaller_is_no_shorter_record(tmp_path, executor):
    path = tmp_path / "a.rec"
    bodies = [bytes([65 + n]) * 100 for n in range(6)]
    with recordio.RecordWriter(path, index=True) as writer:
        for key, body in enumerate(bodies):
            writer.write(body, key)
    data = bytearray(path.read_bytes())
    data[2 * 108 + 4] = 60
    path.write_bytes(data)
    dataset = RecordFileDataset(path)
    with pytest.raises(recordio.CorruptRecordError, match="length was damaged"):
        dataset[2]
    with DataLoader(dataset, 3, **pool(executor, 1), on_error="skip") as loader:
        for _ in range(
            2
        ):  # in the second epoch the records are looked up in maps, if the executor supports it
            assert [payload for batch in loader for payload in batch] == bodies[:2] + bodies[3:]
        assert [(error.index, error.offset) for error in loader.errors] == [(2, 216)] * 2


def test_an_index_of_some_records_shortens_none(tmp_path, executor):
    bodies = [bytes([65 + n]) * 100 for n in range(6)]
    path = tmp_path / "a.rec"
    path.write_bytes(b"".join(map(recordio.serialize, bodies)) + b"behind the last")
    path.with_suffix(".idx").write_text("0\t0\n3\t324\n5\t540\n")
    with DataLoader(RecordFileDataset(path), 2, **pool(executor, 1)) as loader:
        for _ in range(2):
            assert [payload for batch in loader for payload in batch] == [bodies[0], bodies[3], bodies[5]]
