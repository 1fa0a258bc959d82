"""Tests of record datasets: the records of the index's lines, labels of one dtype, and errors of single items."""

import os
import pickle
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
import recordio.testing
from aioloader import DataLoader, SampleError, abc
from aioloader.datasets import ImageRecordDataset, RecordFileDataset
from aioloader.formats.recordio.dataset import scalar_label_dtype
from aioloader.formats.recordio.heads import read_heads
from aioloader.tools.inspect import inspect
from recordio.errors import DuplicateKeyWarning

MAGIC = struct.pack("<I", 0xCED7230A)


def test_it_fulfils_the_contract(write_rec: Any) -> None:
    assert isinstance(RecordFileDataset(write_rec([b"a"])), abc.ByteDataset)


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
    assert dataset[-1] == payloads[2]
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


@pytest.mark.parametrize("index", [3, -4, 10**20], ids=["past", "before", "huge"])
def test_an_index_outside_is_an_index_error(write_rec: Any, index: int) -> None:
    with pytest.raises(IndexError, match=f"index {index} is out of range.*3 samples"):
        RecordFileDataset(write_rec([b"a", b"b", b"c"]))[index]


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


@pytest.mark.parametrize(
    "offset", ["100000", "18446744073709551615", "-8", "2"], ids=["past-the-end", "marker", "negative", "odd"]
)
def test_a_wrong_offset_is_the_error_of_its_item(write_rec: Any, offset: str) -> None:
    path = Path(write_rec([b"one", b"two", b"three"]))
    lines = path.with_suffix(".idx").read_text().splitlines()
    lines[1] = f"1\t{offset}"
    path.with_suffix(".idx").write_text("\n".join(lines) + "\n")
    dataset = RecordFileDataset(path)

    assert (dataset[0], dataset[2]) == (b"one", b"three")
    with pytest.raises(recordio.CorruptRecordError):
        dataset[1]


@given(st.data())
@settings(max_examples=80)
def test_a_wrong_offset_inside_another_record_fails_alone(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    payloads = data.draw(st.lists(recordio.testing.payloads(), min_size=2, max_size=6))
    path = tmp_path_factory.getbasetemp() / "wrong.rec"
    with recordio.RecordWriter(path, index=True) as writer:
        offsets = [writer.write(payload) for payload in payloads]
        end = writer.tell()
    wrong = data.draw(st.integers(0, len(payloads) - 1))
    offset = 4 * data.draw(st.integers(0, end // 4 - 1))
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
        assert caught.value.offset == offset


def test_a_file_that_vanishes_later_is_an_error_of_the_item(write_rec: Any) -> None:
    path = write_rec([b"one"])
    dataset = RecordFileDataset(path)
    len(dataset)
    os.unlink(path)

    with pytest.raises(FileNotFoundError):
        dataset[0]


def test_datasets_can_be_pickled_before_and_after_use(write_images: Any) -> None:
    dataset = ImageRecordDataset(write_images([1, 2]))
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(dataset))
        assert np.array_equal(copy[1][0], dataset[1][0])
        assert copy[1][1] == 2
    assert len(pickle.dumps(dataset)) < 1000


# -- images and labels -------------------------------------------------------------------------------------------------


def test_images_are_rgb_with_their_label(write_images: Any, pixels: Any) -> None:
    dataset = ImageRecordDataset(write_images([5, 7]))

    image, label = dataset[1]

    assert image.dtype == np.uint8
    assert np.array_equal(image, pixels(1))
    assert (label, label.dtype) == (7, np.int64)


def test_grey_images_have_one_channel(write_images: Any) -> None:
    assert ImageRecordDataset(write_images([5]), 0)[0][0].shape == (6, 8, 1)


@pytest.mark.parametrize(
    ("labels", "dtype"),
    [([1, 2], np.int64), ([0.5, 1], np.float32), ([1.0, float("nan")], np.float32)],
    ids=["whole", "fractions", "nan"],
)
def test_scalar_labels_have_one_dtype(write_images: Any, labels: list[float], dtype: Any) -> None:
    dataset = ImageRecordDataset(write_images(labels))

    assert {label.dtype for _, label in dataset} == {np.dtype(dtype)}
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


@pytest.mark.parametrize("dtype", ["int32", np.int16, "float64", np.dtype("uint8")], ids=str)
def test_label_dtype_decides_for_scalars_and_arrays(write_images: Any, dtype: Any) -> None:
    scalar = ImageRecordDataset(write_images([3]), label_dtype=dtype)[0][1]
    vector = ImageRecordDataset(write_images([[3, 4]]), label_dtype=dtype)[0][1]

    assert (scalar, scalar.dtype) == (3, np.dtype(dtype))
    assert (vector.tolist(), vector.dtype) == ([3, 4], np.dtype(dtype))


@pytest.mark.parametrize("label", [-1, 256, 0.5, float("inf"), [1, 300], [1, 0.5]], ids=str)
def test_a_label_that_does_not_fit_is_an_error(write_images: Any, label: Any) -> None:
    with pytest.raises(ValueError, match="does not fit label_dtype uint8"):
        ImageRecordDataset(write_images([label]), label_dtype="uint8")[0]


def test_label_arrays_are_float32_and_own_their_memory(write_images: Any) -> None:
    label = ImageRecordDataset(write_images([[1, 2.5, 3]]))[0][1]

    assert label.dtype == np.float32
    assert label.tolist() == [1, 2.5, 3]
    assert label.flags.owndata
    assert label.flags.writeable


def test_decoders_are_small_values(write_images: Any) -> None:
    decoder = ImageRecordDataset(write_images([3]), 0, exif="ignore", max_pixels=100).decoder

    assert pickle.loads(pickle.dumps(decoder)) == decoder
    assert hash(decoder) == hash(pickle.loads(pickle.dumps(decoder)))
    assert len(pickle.dumps(decoder)) < 300


@pytest.mark.parametrize(
    "options",
    [{"flag": 2}, {"exif": "rotate"}, {"max_pixels": 0}, {"label_dtype": "U3"}, {"label_dtype": "bool"}],
    ids=str,
)
def test_bad_options_are_refused_at_once(write_images: Any, options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        ImageRecordDataset(write_images([1]), **options)


def test_an_image_larger_than_max_pixels_is_refused(write_images: Any) -> None:
    with pytest.raises(ValueError, match="max_pixels=47"):
        ImageRecordDataset(write_images([1]), max_pixels=47)[0]


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


@pytest.mark.parametrize("label", [70_000, [1, 70_000]], ids=["scalar", "array"])
def test_a_label_beyond_a_small_float_is_an_error_too(write_images: Any, label: Any) -> None:
    dataset = ImageRecordDataset(write_images([label, label]), label_dtype="float16")
    with pytest.raises(ValueError, match=r"label 70000(\.0)? does not fit.*label_dtype='float32'"):
        dataset[0]
    with DataLoader(dataset, 1, num_workers=0) as loader, pytest.raises(SampleError, match="does not fit"):
        list(loader)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_labels_that_are_no_number_stay_so(write_rec: Any, png: Any, dtype: str) -> None:
    odd = struct.pack("<3I", 0x7FA00000, 0x7F800000, 0xFF800000)  # a signalling nan, both infinities
    payload = struct.pack("<IfQQ", 3, 0, 0, 0) + odd + png(0)
    labels = ImageRecordDataset(write_rec([payload]), label_dtype=dtype)[0][1]
    assert np.isnan(labels[0])
    assert labels[1:].tolist() == [np.inf, -np.inf]
    assert labels.dtype == np.dtype(dtype)
