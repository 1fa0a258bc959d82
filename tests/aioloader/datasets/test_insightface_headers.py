"""Tests of InsightFace's headers and identity records: missing, random bytes, keys beyond a float; `property`."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import recordio
from aioloader import LayoutError
from aioloader.datasets import InsightFaceDataset
from aioloader.formats.insightface.layout import (
    FaceHeader,
    choose_images,
    face_header,
    identity_ranges,
    parse_property,
    slack,
)
from tests.aioloader.datasets.faces import Reader, numbers_record, plain_set, write_records
from tests.cases import with_cases


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


@given(st.binary(max_size=60))
def test_any_bytes_are_a_header_or_none(payload: bytes) -> None:
    found = face_header(payload)
    assert found is None or 1 <= found.first <= found.end


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
    images_of = {
        label: [key for key, own in zip(keys, labels, strict=True) if own == label] for label in labels
    }
    folder = tmp_path / "huge"
    folder.mkdir()
    records = [(0, numbers_record(first, first + 7, 0))]
    records += [
        (key, recordio.pack((0, label, key, 0), png(key - low)))
        for key, label in zip(keys, labels, strict=True)
    ]
    records += [
        (first + label, numbers_record(mine[0], mine[-1] + 1, first + label))
        for label, mine in images_of.items()
    ]
    write_records(folder / "train", records)
    dataset = InsightFaceDataset(folder)
    with pytest.warns(UserWarning, match=f"lacks {low - 1} of the {first - 1} images"):
        assert len(dataset) == len(labels)
    assert [len(identity) for identity in dataset.identities] == [3, 2, 1, 3, 1, 2, 1]
    assert dataset.labels().tolist() == labels
    assert [int(label) for _, label in dataset] == labels
