"""Tests of InsightFace's sets with missing, contradictory or damaged files and records: the error names the fault."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import recordio
from aioloader import LayoutError, images
from aioloader.datasets import InsightFaceDataset
from aioloader.formats.insightface.layout import (
    FaceHeader,
    choose_images,
    face_header,
    identity_ranges,
    parse_property,
    slack,
)
from tests.aioloader.datasets.faces import LABELS, Reader, numbers_record, plain_set, write_records
from tests.cases import with_cases


def test_missing_files_are_said_at_once(faces: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train\.rec"):
        InsightFaceDataset(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gone\.rec"):
        InsightFaceDataset(tmp_path / "gone.rec")
    folder = faces()
    (folder / "train.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.idx: no such file\. The keys in it are needed"):
        InsightFaceDataset(folder)


def test_without_property_the_header_counts_identities(faces: Any) -> None:
    folder = faces(shown=None)
    dataset = InsightFaceDataset(folder)
    assert dataset.num_classes == 4
    with pytest.raises(LayoutError, match="no such file; write one with one line") as caught:
        _ = dataset.image_size
    assert caught.value.path == str(folder / "property")


@pytest.mark.parametrize("text", ["", "4,6\n", "4,6,8,1\n", "four,6,8\n", "0,6,8\n", "\xff\0", "9" * 5000])
def test_a_malformed_property_is_named(faces: Any, text: str) -> None:
    dataset = InsightFaceDataset(faces(shown=text))
    assert len(dataset) == 10
    with pytest.raises(LayoutError, match="the first line must be the number of identities"):
        _ = dataset.num_classes


def test_the_property_file_wins_and_a_difference_is_reported(faces: Any) -> None:
    dataset = InsightFaceDataset(faces(shown="7,112,96\r\nmore\n"))
    with pytest.warns(
        UserWarning, match="announces 7 identities, but the header of .* has 4; num_classes is 7"
    ):
        assert dataset.num_classes == 7
    assert dataset.num_classes == 7  # warned once
    assert dataset.image_size == (112, 96)


def cut_lines(folder: Path, *keys: int) -> None:
    idx = folder / "train.idx"
    lines = idx.read_text().splitlines()
    idx.write_text("".join(f"{line}\n" for line in lines if int(line.split("\t")[0]) not in keys))


@pytest.mark.parametrize("order", ["header first", "header last", "mixed"])
def test_images_that_a_repaired_index_lacks_are_reported(faces: Any, order: str) -> None:
    folder = faces(order=order)
    cut_lines(folder, 2, 7)
    dataset = InsightFaceDataset(folder)
    with pytest.warns(
        UserWarning, match="lacks 2 of the 10 images .* the first with the key 2; they are left out"
    ):
        assert len(dataset) == 8
    assert [int(image[0, 0, 0]) for image, _ in dataset] == [0, 2, 3, 4, 5, 7, 8, 9]
    assert list(dataset.identities) == [range(0, 2), range(2, 4), range(4, 7), range(7, 8)]
    assert dataset.labels().tolist() == [0, 0, 1, 1, 2, 2, 2, 3]


def test_an_index_that_is_cut_is_no_set(faces: Any) -> None:
    folder = faces()
    cut_lines(folder, *range(6, 15))
    with pytest.raises(
        LayoutError, match=r"images have the keys 1 to 10, but the largest key of .* is 5"
    ) as caught:
        len(InsightFaceDataset(folder))
    assert (caught.value.key, caught.value.path) == (0, str(folder / "train.rec"))
    with pytest.raises(LayoutError):
        next(iter(images(folder, 4, blocking=True, num_workers=0)))


def test_a_missing_identity_record_costs_identities_only(faces: Any) -> None:
    folder = faces()
    cut_lines(folder, 12)
    dataset = InsightFaceDataset(folder)
    assert len(dataset) == 10
    with pytest.raises(LayoutError, match=r"identities have the keys 11 to 14, .* see key 12") as caught:
        _ = dataset.identities
    assert caught.value.key == 12
    assert dataset.labels().tolist() == LABELS


@pytest.mark.parametrize(
    ("record", "message"),
    [
        (numbers_record(3, 99, 12), "assigns the images 3 to 98 to identity 1, but the last image is 10"),
        (numbers_record(5, 4, 12), "should be an identity record, but is not"),
        (numbers_record(float("nan"), 4, 12), "should be an identity record"),
        (numbers_record(1e30, 1e30, 12), "should be an identity record"),
        (recordio.pack((0, 1.0, 12, 0), b""), "should be an identity record"),
        (b"", "should be an identity record"),
    ],
    ids=["outside", "backwards", "nan", "huge", "scalar", "empty"],
)
def test_a_bad_identity_record_is_named(tmp_path: Path, png: Any, record: bytes, message: str) -> None:
    records = [(0, numbers_record(11, 15, 0))]
    records += [(key, recordio.pack((0, LABELS[key - 1], key, 0), png(key))) for key in range(1, 11)]
    ranges = [(1, 4), (4, 6), (6, 10), (10, 11)]
    records += [(11 + k, record if k == 1 else numbers_record(*ranges[k], 11 + k)) for k in range(4)]
    write_records(tmp_path / "train", records)
    dataset = InsightFaceDataset(tmp_path)
    with pytest.raises(LayoutError, match=message) as caught:
        _ = dataset.identities
    assert caught.value.key == 12
    assert dataset.labels().tolist() == LABELS
    assert pickle.loads(pickle.dumps(caught.value)).key == 12


@pytest.mark.parametrize("first", [0, 0.5, float("nan")])
def test_a_header_that_makes_no_sense_is_said(tmp_path: Path, png: Any, first: float) -> None:
    write_records(
        tmp_path / "train", [(0, numbers_record(first, 3, 0)), (1, recordio.pack((0, 0, 1, 0), png(1)))]
    )
    with pytest.raises(LayoutError, match=r"record 0 has no image, .* are not keys"):
        len(InsightFaceDataset(tmp_path))


def test_a_header_may_say_something_else_in_the_second_place(tmp_path: Path, png: Any) -> None:
    records = [(key, recordio.pack((0, key - 1, key, 0), png(key))) for key in (1, 2)]
    write_records(tmp_path / "train", [*records, (0, numbers_record(3, 1, 0))])
    dataset = InsightFaceDataset(tmp_path)
    assert len(dataset) == 2
    assert list(dataset.identities) == [range(0, 1), range(1, 2)]
    with pytest.raises(LayoutError, match="no such file"):
        _ = dataset.num_classes


def test_keys_that_are_text_are_refused(faces: Any) -> None:
    folder = faces()
    idx = folder / "train.idx"
    idx.write_text(idx.read_text().replace("3\t", "three\t", 1))
    with pytest.raises(LayoutError, match="keys must be whole numbers"):
        len(InsightFaceDataset(folder))


def test_a_label_that_is_no_identity_names_the_option(tmp_path: Path, png: Any) -> None:
    folder = plain_set(tmp_path / "half", png, [0.5, 1.0])
    with pytest.raises(ValueError, match="label_dtype='float32'"):
        InsightFaceDataset(folder)[0]
    with pytest.raises(ValueError, match="label_dtype='float32'"):
        InsightFaceDataset(folder).labels()
    dataset = InsightFaceDataset(folder, label_dtype="float32")
    assert dataset[0][1] == 0.5
    assert dataset.labels().tolist() == [0.5, 1.0]
    with pytest.raises(LayoutError, match="cannot be identities"):
        _ = dataset.identities


def test_a_record_of_the_header_that_is_gone_says_where(faces: Any) -> None:
    folder = faces()
    os.truncate(folder / "train.rec", 20)
    with pytest.raises(recordio.RecordIOError) as caught:
        len(InsightFaceDataset(folder))
    assert caught.value.path == str(folder / "train.rec")


# -- headers and identity records --------------------------------------------------------------------------------------


def test_without_a_header_every_record_is_an_image(tmp_path: Path, png: Any) -> None:
    folder = plain_set(tmp_path / "plain", png, [0, 0, 2, 2, 5], keys=[0, 7, 3, 4, 9])
    dataset = InsightFaceDataset(folder)
    assert [int(label) for _, label in dataset] == [0, 0, 2, 2, 5]
    assert [int(image[0, 0, 0]) for image, _ in dataset] == list(range(5))
    assert list(dataset.identities) == [
        range(0, 2),
        range(2, 2),
        range(2, 4),
        range(4, 4),
        range(4, 4),
        range(4, 5),
    ]
    assert dataset.num_classes == 5  # the text of the file
    assert Reader(folder).keys == [0, 7, 3, 4, 9]


def test_a_record_0_with_labels_and_an_image_is_an_image(tmp_path: Path, png: Any) -> None:
    folder = plain_set(tmp_path / "vectors", png, [[3.0, 9.0], [4.0, 9.0]])
    assert [int(label) for _, label in InsightFaceDataset(folder)] == [3, 4]


def test_mixed_identities_have_no_ranges(tmp_path: Path, png: Any) -> None:
    dataset = InsightFaceDataset(plain_set(tmp_path / "mixed", png, [1, 0, 1]))
    assert dataset.labels().tolist() == [1, 0, 1]
    with pytest.raises(LayoutError, match="are not grouped by identity"):
        _ = dataset.identities


@with_cases(
    ("payload", "expected"),
    [
        (numbers_record(11, 15, 0), (11, 15)),
        (recordio.pack((1, [11.0], 0, 0), b""), (11, 11)),
        (numbers_record(11, 3, 0), (11, 11)),
        (numbers_record(1, 1, 0), (1, 1)),
        (recordio.pack((2, [11.0, 15.0], 0, 0), b"x"), None),
        (recordio.pack((0, 11.0, 0, 0), b""), None),
        (b"short", None),
        (b"", None),
    ],
)
def test_a_header_is_recognised_by_itself(payload: bytes, expected: Any) -> None:
    assert face_header(payload) == expected
    assert face_header(memoryview(payload)) == expected


@given(st.text(max_size=40))
def test_any_text_is_a_property_or_an_error(text: str) -> None:
    try:
        assert min(parse_property(text, "property")) >= 1
    except LayoutError as error:
        assert error.path == "property"


@given(st.permutations(range(9)), st.integers(1, 12))
def test_images_are_the_keys_before_the_first_identity(keys: list[int], first: int) -> None:
    chosen = choose_images(np.array(keys), FaceHeader(first, first))
    lines = chosen.at(np.arange(chosen.count))
    assert [keys[line] for line in lines] == [key for key in range(1, 9) if key < first]
    assert (chosen.first_missing is None) == (first <= 9)
    if chosen.first_missing is not None:
        assert chosen.first_missing == 9
    assert chosen.places(np.array([1, 3, 100])).tolist() == [0, min(2, chosen.count), chosen.count]


def test_of_lines_with_one_key_the_last_counts() -> None:
    chosen = choose_images(np.array([0, 1, 2, 1, 3]), FaceHeader(4, 4))
    assert chosen.at(np.arange(3)).tolist() == [3, 2, 4]


@example([bytes(38) + b"\x81\x7f"])  # a signalling nan
@given(st.lists(st.binary(min_size=40, max_size=44), min_size=1, max_size=5))
def test_any_records_are_identities_or_a_named_error(records: list[bytes]) -> None:
    start = np.cumsum([0, *map(len, records)])[:-1]
    length = np.array([len(record) for record in records])
    keys = np.arange(100, 100 + len(records))
    try:
        assert (identity_ranges(b"".join(records), start, length, keys, "x.rec") >= 1).all()
    except LayoutError as error:
        assert error.key in keys


@given(st.integers(1, 1 << 31))
def test_slack_is_how_far_a_float_can_be_off(number: int) -> None:
    stored = int(np.float32(number))
    assert abs(stored - number) <= slack(stored)
    assert slack(stored) == 0 or stored >= 1 << 24


def test_numbers_that_a_float_rounds_are_found_by_the_records(tmp_path: Path, png: Any) -> None:
    # Keys about 2**24, of which float32 has only every second one; the other keys of such a set are left out.
    low, labels = (1 << 24) - 4, [0, 0, 0, 1, 1, 2, 3, 3, 3, 4, 5, 5, 6]
    first = low + len(labels)
    assert int(np.float32(first)) != first
    keys = range(low, first)
    records = [(0, numbers_record(first, first + 7, 0))]
    for key, label in zip(keys, labels, strict=True):
        records.append((key, recordio.pack((0, label, key, 0), png(key - low))))
    for label in range(7):
        begin = low + labels.index(label)
        end = begin + labels.count(label)
        records.append((first + label, numbers_record(begin, end, first + label)))
    write_records(tmp_path / "train", records)
    dataset = InsightFaceDataset(tmp_path)
    with pytest.warns(UserWarning, match=f"lacks {low - 1} of the {first - 1} images"):
        assert len(dataset) == len(labels)
    assert [len(identity) for identity in dataset.identities] == [3, 2, 1, 3, 1, 2, 1]
    assert dataset.labels().tolist() == labels
    assert [int(label) for _, label in dataset] == labels
