"""Tests of record datasets: the records of the lines of an index, several files, labels, errors of single items."""

from __future__ import annotations

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
import recordio.testing
from aioloader import ImageFolderDataset, ImageRecordDataset, RecordFileDataset, SampleError, abc
from aioloader.formats.recordio import heads as record_heads
from aioloader.formats.recordio.dataset import scalar_label_dtype
from aioloader.formats.recordio.heads import RecordHeads, read_heads
from aioloader.tools.inspect import inspect
from recordio.errors import DuplicateKeyWarning
from tests.aioloader.datasets.batches import batches_of
from tests.cases import with_cases

MAGIC = struct.pack("<I", 0xCED7230A)


@pytest.mark.parametrize(
    "keys", ["count", [30, 10, 20], ["x", "y", "z"], None], ids=["count", "any", "text", "no-idx"]
)
def test_item_i_is_the_record_of_line_i(write_rec: Any, keys: Any) -> None:
    payloads = [b"one", b"", b"three" + MAGIC + b"split" * 3]
    path = write_rec(payloads, keys=keys)
    dataset = RecordFileDataset(path)

    assert os.path.exists(path[:-3] + "idx") == (keys is not None)
    assert len(dataset) == 3
    assert list(dataset) == payloads
    assert isinstance(dataset, abc.ByteDataset)
    assert dataset[-1] == payloads[2]
    for outside in (3, -4, 10**20):
        with pytest.raises(IndexError, match=f"index {outside} is out of range.*3 samples"):
            dataset[outside]
    expected = [0, 1, 2] if keys in ("count", None) else keys
    assert [dataset.location(place).key for place in range(3)] == expected
    assert dataset.location(0) == (expected[0], path, 0)


def test_lines_may_come_in_any_order_and_twice(write_rec: Any) -> None:
    path = Path(write_rec([b"one", b"two", b"three"]))
    lines = path.with_suffix(".idx").read_text().splitlines()
    path.with_suffix(".idx").write_text("\n".join([lines[2], lines[0], lines[2]]) + "\n")

    with pytest.warns(DuplicateKeyWarning, match=r"1 lines repeat .* first is line 3, key 2"):
        assert list(RecordFileDataset(path)) == [b"three", b"one", b"three"]
    with pytest.warns(DuplicateKeyWarning):
        assert "1 lines of the index repeat a line before them" in inspect(path).damage


def test_an_empty_file_has_no_items(write_rec: Any) -> None:
    dataset = ImageRecordDataset(write_rec([], keys=None))

    assert len(dataset) == 0
    assert list(dataset) == []
    assert dataset.decoder.scalar_dtype == "float32"


def test_an_empty_index_of_a_full_file_is_refused(write_rec: Any) -> None:
    path = Path(write_rec([b"a"]))
    path.with_suffix(".idx").write_text("")

    with pytest.raises(recordio.CorruptIndexError, match="the index is empty"):
        len(RecordFileDataset(path))


@given(st.data())
@settings(max_examples=4 * settings().max_examples // 5)
def test_a_wrong_offset_is_the_error_of_its_item_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    payloads = data.draw(st.lists(recordio.testing.payloads(), min_size=2, max_size=6))
    path = tmp_path_factory.getbasetemp() / "wrong.rec"
    with recordio.RecordWriter(path, index=True) as writer:
        offsets = [writer.write(payload) for payload in payloads]
        end = writer.tell()
    wrong = data.draw(st.integers(0, len(payloads) - 1))
    inside = st.integers(0, end // 4 - 1).map(lambda word: 4 * word)
    offset = data.draw(inside | st.sampled_from([end, 2**64 - 1, -8, 2]))
    lines = [(key, offset if key == wrong else right) for key, right in enumerate(offsets)]
    path.with_suffix(".idx").write_text("".join(f"{key}\t{at}\n" for key, at in lines))
    dataset = RecordFileDataset(path)

    for key, payload in enumerate(payloads):
        if key != wrong:
            assert dataset[key] == payload
    if offset in offsets:
        assert dataset[wrong] == payloads[offsets.index(offset)]
    else:
        with pytest.raises(recordio.CorruptRecordError) as caught:
            dataset[wrong]
        assert caught.value.offset == offset or offset not in range(0, end, 4)


def test_a_file_that_vanishes_later_is_an_error_of_the_item(write_rec: Any) -> None:
    path = write_rec([b"one"])
    dataset = RecordFileDataset(path)
    len(dataset)
    os.unlink(path)

    with pytest.raises(FileNotFoundError):
        dataset[0]


# -- images and labels -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [([1, 2], np.int64), ([0.5, 1], np.float32), ([1.0, float("nan")], np.float32)],
    ids=["whole", "fractions", "nan"],
)
def test_scalar_labels_have_one_dtype(
    write_images: Any, labels: list[float], dtype: Any, pixels: Any
) -> None:
    dataset = ImageRecordDataset(write_images(labels))

    assert {label.dtype for _, label in dataset} == {np.dtype(dtype)}
    assert dataset[1][0].tolist() == pixels(1).tolist()
    assert np.array_equal([label for _, label in dataset], np.asarray(labels, np.float32), equal_nan=True)


def test_the_first_thousand_records_of_the_file_decide(write_rec: Any, png: Any) -> None:
    payloads = [recordio.pack((0, 1, 0, 0), b"")] * 1000 + [recordio.pack((0, 0.5, 0, 0), png(0))]
    path = Path(write_rec(payloads))
    lines = path.with_suffix(".idx").read_text().splitlines()
    path.with_suffix(".idx").write_text("\n".join(lines[::-1]) + "\n")  # the file's order, not the index's
    dataset = ImageRecordDataset(path)

    assert dataset.decoder.scalar_dtype == "int64"
    with pytest.raises(ValueError, match=r"label 0\.5 does not fit.*label_dtype='float32'"):
        dataset[0]
    assert ImageRecordDataset(path, label_dtype="float32")[0][1] == 0.5


def test_only_the_heads_of_the_first_records_are_read(
    write_rec: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_rec([recordio.pack((0, 1, 0, 0), bytes(9000))] * 1200)
    dataset = ImageRecordDataset(path)
    len(dataset)
    sizes = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int) -> int:
        sizes.append(len(buffers[0]))
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", preadv)

    assert dataset.decoder is not None
    assert dataset.decoder == dataset.decoder
    assert len(sizes) == 1000
    assert max(sizes) <= 32


def test_damaged_split_and_labelled_records_have_no_say(tmp_path: Path) -> None:
    heads = [
        b"\0" * 40,
        recordio.serialize(recordio.pack((0, [0.5, 0.5], 0, 0), b"")),
        recordio.serialize(recordio.pack((0, 3, 0, 0), b"image")),
        recordio.serialize(b"abc"),
    ]
    path = tmp_path / "heads.rec"
    path.write_bytes(b"".join(heads))
    offsets = np.cumsum([0, *map(len, heads)]).tolist()

    assert scalar_label_dtype(read_heads(str(path), [-4, *offsets, 10**9])) == "int64"
    assert scalar_label_dtype(read_heads(str(path), offsets[:2])) == "float32"


@with_cases(
    ("label", "dtype", "expected"),
    [
        *((3, dtype, np.array(3, dtype)) for dtype in ("int32", np.dtype("uint8"), "float64")),
        ([3, 4], np.int16, np.array([3, 4], np.int16)),
        ([1, 2.5, 3], None, np.array([1, 2.5, 3], np.float32)),
    ],
)
def test_label_dtype_decides_for_scalars_and_arrays(
    write_images: Any, label: Any, dtype: Any, expected: Any
) -> None:
    found = ImageRecordDataset(write_images([label]), label_dtype=dtype)[0][1]
    assert (found.tolist(), found.dtype) == (expected.tolist(), expected.dtype)
    assert found.ndim == 0 or (found.flags.owndata and found.flags.writeable)


@with_cases(
    ("label", "dtype"),
    [
        *((label, "uint8") for label in (-1, 256, 0.5, float("inf"), [1, 300], [1, 0.5])),
        *((label, "float16") for label in (70_000, [1, 70_000])),
    ],
)
def test_a_label_that_does_not_fit_is_an_error(write_images: Any, label: Any, dtype: str) -> None:
    dataset = ImageRecordDataset(write_images([label]), label_dtype=dtype)
    larger = "" if dtype == "uint8" else ".*label_dtype='float32'"
    for read in (lambda: dataset[0], lambda: batches_of(dataset)):
        with pytest.raises((ValueError, SampleError), match=f"does not fit label_dtype {dtype}{larger}"):
            read()


def test_the_argument_transform_is_deprecated(write_images: Any) -> None:
    with pytest.warns(DeprecationWarning, match=r"use \.transform\(fn\)") as caught:
        dataset = ImageRecordDataset(write_images([1]), 1, lambda image, label: label + 1)

    assert dataset[0] == 2
    assert caught[0].filename == __file__


def test_the_index_is_found_and_labels_looked_at_only_at_the_first_use(write_images: Any) -> None:
    path = write_images([1])
    dataset = ImageRecordDataset(path)
    os.unlink(path[:-3] + "idx")

    assert len(dataset) == 1  # by a scan


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_labels_that_are_no_number_stay_so(write_rec: Any, png: Any, dtype: str) -> None:
    odd = struct.pack("<3I", 0x7FA00000, 0x7F800000, 0xFF800000)  # a signalling nan, both infinities
    payload = struct.pack("<IfQQ", 3, 0, 0, 0) + odd + png(0)
    labels = ImageRecordDataset(write_rec([payload]), label_dtype=dtype)[0][1]
    assert np.isnan(labels[0])
    assert labels[1:].tolist() == [np.inf, -np.inf]
    assert labels.dtype == np.dtype(dtype)


# -- several files -----------------------------------------------------------------------------------------------------


SIZES = (5, 0, 1, 7)


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Write files of 5, 0, 1 and 7 records with consecutive labels; the last file has no .idx."""
    paths, number = [], 0
    for shard, size in enumerate(SIZES):
        path = tmp_path / f"set-{shard:05}-of-00004.rec"
        with recordio.RecordWriter(path, index=shard != 3) as writer:
            for _ in range(size):
                image = simplejpeg.encode_jpeg(np.full((16, 16, 3), number, np.uint8))
                body = recordio.pack(recordio.IRHeader(0, float(number), number, 0), image)
                writer.write(body, None if shard == 3 else number)
                number += 1
        paths.append(path)
    return paths


def test_records_follow_one_another(shards: list[Path]) -> None:
    dataset = ImageRecordDataset(shards[0].parent / "set-*-of-*.rec")
    assert [dataset.location(n).path for n in (4, 5, 6)] == [str(shards[n]) for n in (0, 2, 3)]
    assert len(ImageRecordDataset(shards)) == 13
    assert len(dataset) == 13
    assert [int(dataset[index][1]) for index in range(13)] == list(range(13))
    assert int(dataset[-1][1]) == 12
    assert dataset.labels().tolist() == list(range(13))
    again = pickle.loads(pickle.dumps(dataset))
    assert [int(again[index][1]) for index in (0, 5, 12)] == [0, 5, 12]
    location = dataset.location(6)
    assert (location.key, location.path) == (0, str(shards[3]))


def test_an_error_names_the_file(shards: list[Path]) -> None:
    data = bytearray(shards[3].read_bytes())
    data[:4] = bytes(4)
    shards[3].with_suffix(".idx").write_text("0\t0\n")
    shards[3].write_bytes(data)
    with pytest.raises(SampleError) as caught:
        batches_of(ImageRecordDataset(shards))
    assert caught.value.path == str(shards[3])


def test_a_name_with_a_bracket_is_a_name(tmp_path: Path, shards: list[Path]) -> None:
    place = tmp_path / "set[1].rec"
    shards[0].rename(place)
    shards[0].with_suffix(".idx").rename(place.with_suffix(".idx"))
    assert len(RecordFileDataset(place)) == 5


def test_what_is_missing_is_named(tmp_path: Path, shards: list[Path]) -> None:
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*none-\*"):
        ImageRecordDataset(tmp_path / "none-*.rec")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*none\.rec"):
        ImageRecordDataset([shards[0], tmp_path / "none.rec"])
    with pytest.raises(ValueError, match="at least one"):
        ImageRecordDataset([])


# -- many headers at a time --------------------------------------------------------------------------------------------


label = st.one_of(
    st.floats(-100, 100, width=32),
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6),
)


def facts(heads: RecordHeads) -> list[tuple[object, ...]]:
    vectors = [row[:held].tolist() for row, held in zip(heads.vectors, heads.held.tolist(), strict=True)]
    columns = (heads.packed, heads.flag, heads.nbytes, heads.id, heads.bare)
    return [*zip(*(column.tolist() for column in columns), vectors, strict=True)]


@given(st.lists(st.tuples(label, st.integers(0, 40)), max_size=8), st.integers(0, 4))
def test_headers_are_what_was_packed(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[float | list[float], int]], labels: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "heads.rec"
    with recordio.RecordWriter(path) as writer:
        offsets = [
            writer.write(recordio.pack((0, value, key, 0), bytes(size)))
            for key, (value, size) in enumerate(records)
        ]
    order = np.array(offsets, np.int64)[::-1]
    together = read_heads(str(path), order, labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_heads, "_CLOSE", 0)
        apart = read_heads(str(path), order, labels=labels)
    assert facts(together) == facts(apart)
    expected = []
    for key, (value, size) in reversed([*enumerate(records)]):
        vector = value if isinstance(value, list) else []
        nbytes = 24 + 4 * len(vector) + size
        expected.append(
            (True, len(vector), nbytes, key, bool(vector) and not size, [*map(float, vector[:labels])])
        )
    assert facts(together) == expected
    if labels:
        first = [value[0] if isinstance(value, list) else value for value, _ in reversed(records)]
        assert together.first_label.tolist() == first


def test_what_is_no_header_is_none(tmp_path: Path) -> None:
    framed = [
        b"\0" * 40,
        recordio.serialize(recordio.pack((0, [1, 2, 3], 7, 0), b"")),
        recordio.serialize(b"short"),
    ]
    path = tmp_path / "odd.rec"
    path.write_bytes(b"".join(framed) + recordio.serialize(recordio.pack((0, [4.0, 5.0], 8, 0), b""))[:36])
    offsets = np.cumsum([0, *map(len, framed)])
    heads = read_heads(str(path), np.array([-4, *offsets, 1 << 40], np.int64), labels=3)
    assert heads.valid.tolist() == [False, False, True, True, True, False]
    assert heads.packed.tolist() == [False, False, True, False, True, False]
    assert heads.bare.tolist() == [False, False, True, False, True, False]
    assert heads.held.tolist() == [0, 0, 3, 0, 1, 0]  # the last one is cut after its first label
    assert np.isnan(heads.first_label).tolist() == [True, True, False, True, False, True]
    joined = RecordHeads.joined([heads, heads], np.array([8, 2]))
    assert joined.id.tolist() == [7, 7]
    assert len(read_heads(str(path), np.empty(0, np.int64))) == 0


# -- files of MXNet ----------------------------------------------------------------------------------------------------


DATA = Path(__file__).parents[2] / "data" / "mxnet"


def test_payloads_without_an_index_are_those_that_were_written() -> None:
    dataset = RecordFileDataset(DATA / "plain.rec")

    assert len(dataset) == 30
    assert all(isinstance(payload, bytes) for payload in dataset)


@pytest.mark.parametrize("name", ["images", "folder", "aug"])
def test_scalar_labels_are_whole_numbers(name: str) -> None:
    dataset = ImageRecordDataset(DATA / f"{name}.rec")

    assert {label.dtype for _, label in dataset if label.ndim == 0} == {np.dtype(np.int64)}
    assert all(image.dtype == np.uint8 and image.shape[2] == 3 for image, _ in dataset)


def test_label_arrays_are_kept() -> None:
    labels = [label.tolist() for _, label in ImageRecordDataset(DATA / "multilabel.rec")]

    assert labels == [[0, 10, 0.5], [1, 11, 0.25], [2, 12, 0.125]]


@pytest.mark.filterwarnings("ignore:Ignoring")
def test_a_packed_folder_equals_the_folder() -> None:
    packed = ImageRecordDataset(DATA / "folder.rec")
    folder: Any = ImageFolderDataset(DATA / "im2rec_src")

    assert len(packed) == len(folder)
    for (image, label), (other, number) in zip(packed, folder, strict=True):
        assert np.array_equal(image, other)
        assert label == number
