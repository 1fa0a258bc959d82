"""Tests of every kind of set, viewed record by record, and of the number of bytes read for it."""

from __future__ import annotations

import io
import json
import math
import os
import shutil
from dataclasses import replace
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aioloader
import recordio
from aioloader.formats.collection import Collection, NoSuchRecordError, Record
from aioloader.formats.packed_files import class_names
from aioloader.formats.recordio.view import detection_boxes, read_labels, record_of
from aioloader.foundation.types import ItemLocation
from aioloader.tools.view import open_collection
from aioloader.transforms import encode_raw
from aioloader.transforms.formats import ImageHeader
from aioloader.viewer.rendering import box_table, label_text, parse_label
from aioloader.viewer.site import Labels
from tests.aioloader.viewer.sets import EVIL, detection_label, jpeg, write_records
from tests.cases import with_cases

pytestmark = pytest.mark.usefixtures("own_cache")


def opened(path: Path) -> Collection:
    collection = open_collection(path)
    collection.load()
    return collection


def all_labels(collection: Collection) -> Labels:
    assert collection.count is not None
    labels = Labels(collection, collection.count)
    while not labels.complete:
        labels.add(labels.read())
    return labels


def test_a_record_file(sets: Path) -> None:
    collection = opened(sets / "plain.rec")
    assert (collection.kind, collection.count, list(collection.listing())) == (
        "record file",
        60,
        [*range(60)],
    )
    contents = collection.read(17)
    assert (contents.record.location.key, contents.record.header, contents.record.labels) == (
        17,
        (0, 117, 7),
        (2.0,),
    )
    assert bytes(contents.body) == jpeg(17)
    assert collection.find("17") == 17
    assert (collection.key(5), collection.index(5), collection.file_names()) == (5, 5, [])


def test_damaged_records_say_why(sets: Path) -> None:
    collection = opened(sets / "damaged.rec")
    kinds = {place: collection.read(place).record.kind for place in range(60)}
    # Record 7 has valid headers: only decoding shows the damage.
    assert [place for place, kind in kinds.items() if kind != "image"] == [3, 9]


def test_a_damaged_file_without_an_index_is_shown_up_to_the_damage(sets: Path) -> None:
    collection = opened(sets / "unindexed.rec")
    assert collection.count == 4
    assert [collection.read(place).record.kind for place in range(4)] == ["image"] * 3 + ["damaged"]
    assert "aioloader repair" in " ".join(collection.problems)


def test_shards_follow_each_other(sets: Path) -> None:
    for path in (sets / "shards", sets / "shards" / "train-*.rec"):
        collection = opened(path)
        assert (collection.kind, collection.count) == ("3 record files", 15)
        assert [collection.read(place).record.labels for place in (4, 5, 14)] == [(0.0,), (1.0,), (2.0,)]
        assert [(collection.key(7), collection.index(7), collection.file_of(7))] == [(2, 7, 1)]
        assert [collection.find("2"), collection.find("2", 2)] == [2, 12]
        assert collection.file_names() == ["train-0.rec", "train-1.rec", "train-2.rec"]
        labels = all_labels(collection)
        assert labels.counts() == [(0, 5), (1, 5), (2, 5)]
        assert labels.matches(1).tolist() == [5, 6, 7, 8, 9]


@with_cases("name", ["faces", "faces/train.rec"])
def test_the_images_of_insightface_are_listed_alone(sets: Path, name: str) -> None:
    collection = opened(sets / name)
    assert list(collection.listing()) == [*range(1, 13)]
    assert collection.count == 16
    assert "12 images of 3 identities" in collection.kind
    assert [collection.index(place) for place in (1, 5, 12)] == [0, 4, 11]
    assert collection.read(collection.find("14")).record.kind == "empty"
    assert [collection.index(place) for place in (0, 1, 12, 13)] == [None, 0, 11, None]
    assert all_labels(collection).counts() == [(0, 4), (1, 4), (2, 4)]


def test_images_of_insightface_whose_lines_are_in_another_order(sets: Path, tmp_path: Path) -> None:
    shutil.copytree(sets / "faces", tmp_path / "faces")
    idx = tmp_path / "faces" / "train.idx"
    lines = idx.read_text().splitlines(keepends=True)
    idx.write_text("".join(reversed(lines[:5] + lines[6:])))
    collection = opened(tmp_path / "faces")
    dataset = aioloader.datasets.InsightFaceDataset(tmp_path / "faces")
    listing = list(collection.listing())
    assert listing == sorted(listing)
    with pytest.warns(UserWarning, match="lacks 1 of the 12 images"):
        assert len(dataset) == 11
    for place in listing:
        index = collection.index(place)
        assert index is not None
        assert dataset.location(index).key == collection.key(place)
    assert len(listing) == 11
    assert "lacks 1 of the 12 images" in " ".join(collection.problems)
    assert all_labels(collection).counts() == [(0, 4), (1, 3), (2, 4)]


@pytest.mark.parametrize("damage", [b"", b"\0" * 60])
def test_a_set_of_insightface_whose_header_is_lost_is_shown_whole(
    sets: Path, tmp_path: Path, damage: bytes
) -> None:
    shutil.copytree(sets / "faces", tmp_path / "faces")
    rec = tmp_path / "faces" / "train.rec"
    if damage:
        rec.write_bytes(damage[:40] + rec.read_bytes()[40:])
    else:
        (tmp_path / "faces" / "train.idx").write_text("x\t0\n13\t40\n")
    collection = opened(tmp_path / "faces")
    assert len(collection.listing()) == collection.count
    assert "all records are listed" in " ".join(collection.problems)


def test_classes_have_the_names_of_the_packing(sets: Path, tmp_path: Path) -> None:
    collection = opened(sets / "classes.rec")
    assert [collection.label_name(label) for label in (0.0, 1.0, 9.0)] == [EVIL, "circle", ""]
    assert [collection.label_of_name(name) for name in ("circle", "nothing")] == [1.0, None]
    assert opened(sets / "plain.rec").label_name(0.0) == ""


@with_cases("name", ["a_train.rec", "a-00000-of-00002.rec", "a_train-00000-of-00002.rec"])
def test_a_report_is_found_from_the_names_of_its_files(tmp_path: Path, name: str) -> None:
    classes = [{"label": 0, "name": "cat"}, {"label": True, "name": 3}, {"label": 10**400, "name": "x"}, 7]
    for value, names in (
        ({"kind": "aioloader pack", "files": [{"rec": name}], "classes": classes}, {0.0: "cat"}),
        ({"kind": "aioloader pack", "files": [{"rec": "b.rec"}], "classes": classes}, {}),
        ({"kind": "aioloader pack", "files": name, "classes": 5}, {}),
        ({"files": [{"rec": name}], "classes": classes}, {}),
    ):
        (tmp_path / "a.json").write_text(json.dumps(value))
        assert class_names(tmp_path / name) == names
    (tmp_path / "a.json").write_text("[" * 100_000)
    assert class_names(tmp_path / name) == {}


def test_a_folder(sets: Path) -> None:
    collection = opened(sets / "folder")
    assert collection.count == 32
    names = [collection.key(place) for place in range(32)]
    assert f"{EVIL}/<i>.jpg" in names
    place = names.index("circle/broken.jpg")
    assert collection.find("circle/broken.jpg") == place
    assert collection.find("5") == 5
    assert collection.label_name(0.0) == EVIL
    assert collection.label_of_name("circle") == 1.0
    assert all_labels(collection).matches(0.0).tolist() == [names.index(f"{EVIL}/<i>.jpg")]
    for key in ("../plain.rec", "/etc/passwd", "32", "-1", "\u00b2"):
        with pytest.raises(NoSuchRecordError):
            collection.find(key)


def test_a_folder_without_classes(tmp_path: Path) -> None:
    for name in ("b.jpg", "a.JPG", "c.txt"):
        (tmp_path / name).write_bytes(jpeg(1))
    collection = opened(tmp_path)
    assert [collection.key(place) for place in range(collection.known)] == ["a.JPG", "b.jpg"]
    assert (collection.read(1).record.labels, collection.read(1).record.kind) == ((), "image")
    assert all_labels(collection).counts() == []
    assert [problem.endswith("c.txt of type .txt") for problem in collection.problems] == [True]


@with_cases("key", ["60", "-1", "x", "", str(2**70), "1.0", "9" * 5000])
def test_keys_that_no_record_has(sets: Path, key: str) -> None:
    collection = opened(sets / "plain.rec")
    with pytest.raises(NoSuchRecordError, match="no record has the key"):
        collection.find(key)


@with_cases("position", [-1, 60, 2**62])
def test_places_where_no_record_is(sets: Path, position: int) -> None:
    with pytest.raises(NoSuchRecordError, match="the dataset has 60"):
        opened(sets / "plain.rec").read(position)


def test_text_keys_are_found(tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec", tmp_path / "a.idx") as writer:
        for key in ("one", "two", "3"):
            writer.write(recordio.pack(recordio.IRHeader(0, 1.0, 0, 0), jpeg(1)), key)
    collection = opened(tmp_path / "a.rec")
    assert [collection.find(key) for key in ("two", "3")] == [1, 2]


def test_an_empty_file_has_no_records(sets: Path) -> None:
    collection = opened(sets / "empty.rec")
    assert (collection.count, list(collection.listing()), all_labels(collection).counts()) == (0, [], [])


@with_cases(
    ("name", "error"),
    [("nothing.rec", FileNotFoundError), ("*.none", FileNotFoundError), ("plain.idx", ValueError)],
)
def test_what_cannot_be_looked_at(sets: Path, name: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        open_collection(sets / name)


def test_labels_of_boxes_are_their_classes(sets: Path) -> None:
    labels = all_labels(opened(sets / "boxes.rec"))
    assert labels.counts() == [(1, 3), (2, 3), (4, 3)]
    assert labels.matches(4).tolist() == [1, 3, 5]


def test_damaged_records_have_no_label(sets: Path) -> None:
    # Record 9's header is valid, but its image is not.
    labels = all_labels(opened(sets / "damaged.rec"))
    assert [
        place for place in range(60) if place not in np.concatenate([labels.matches(k) for k in range(3)])
    ] == [3]


def test_labels_are_the_same_from_a_stretch_and_one_by_one(tmp_path: Path) -> None:
    many = [
        (float(k % 7) if k % 3 else np.arange(k % 5 + 1, dtype=np.float32), b"x" * (k % 90))
        for k in range(300)
    ]
    far = [(label, b"x" * 9000) for label, _ in many[:60]]
    for records in (many, far):
        path = write_records(tmp_path / f"{len(records)}.rec", records)
        index = recordio.Index.open(path.with_suffix(".idx"), cache=False)
        found = read_labels(str(path), index.offsets)
        for place, (label, _) in enumerate(records):
            values = found.values[found.owners == place].tolist()
            assert ([found.first[place]] if np.isscalar(label) else values) == np.ravel(label).tolist()


def read_bytes() -> int:
    """Return the bytes that this process has read so far."""
    return int(psutil.Process().io_counters().read_chars)


def many_records(path: Path, count: int) -> Path:
    """Write a record file of many small images at once."""
    bodies = [jpeg(k, 16, 16) for k in range(16)]
    framed = [
        recordio.serialize(recordio.pack(recordio.IRHeader(0, float(k), k, 0), bodies[k])) for k in range(16)
    ]
    lengths = np.resize([len(each) for each in framed], count)
    offsets = np.cumsum(lengths) - lengths
    rest = b"".join(framed[: count % 16])
    path.write_bytes(b"".join(framed) * (count // 16) + rest)
    lines = (f"{key}\t{offset}\n" for key, offset in enumerate(offsets.tolist()))
    path.with_suffix(".idx").write_text("".join(lines))
    return path


@pytest.mark.skipif(not os.path.exists("/proc/self/io"), reason="counts bytes by /proc")
@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.slow)])
def test_the_first_page_and_any_other_read_little(tmp_path: Path, count: int) -> None:
    path = many_records(tmp_path / "many.rec", count)
    before = read_bytes()
    collection = open_collection(path)
    for position in range(48):
        assert collection.read(position).record.kind == "image"
    first = read_bytes() - before
    assert collection.count is None  # the rest of the index was not needed for it
    assert first < 200_000 + io.DEFAULT_BUFFER_SIZE  # 128 kB from Python 3.14 on
    collection.load()
    assert collection.count == count
    # A small index is also compared with its copy, before and after.
    assert read_bytes() - before - first < 3 * path.with_suffix(".idx").stat().st_size + 200_000
    rng = np.random.default_rng(0)
    for start in rng.integers(0, count - 48, 20).tolist():
        before = read_bytes()
        for position in range(start, start + 48):
            record = collection.read(position).record
            assert (record.location.key, record.labels) == (position, (float(position % 16),))
        assert read_bytes() - before < 100_000


# -- what a record is --------------------------------------------------------------------------------------------------


BARE = Record(4, ItemLocation(17, "a.rec", 0))


def framed(label: object, body: bytes) -> memoryview:
    return memoryview(recordio.serialize(recordio.pack(recordio.IRHeader(0, label, 5, 6), body)))


def test_an_image_record_shows_everything() -> None:
    body = jpeg(1)
    record, found = record_of(BARE, framed(3.0, body))
    assert bytes(found) == body
    wanted = replace(
        BARE, nbytes=len(body), header=(0, 5, 6), labels=(3.0,), image=ImageHeader("jpeg", 60, 80)
    )
    assert record == wanted


def test_a_raw_image_is_one() -> None:
    record, _ = record_of(BARE, framed([1.0, 2.5], encode_raw(np.zeros((5, 7, 3), np.uint8))))
    assert (record.kind, record.image) == ("image", ImageHeader("raw", 5, 7))
    assert (record.header, record.labels, record.boxes) == ((2, 5, 6), (1.0, 2.5), ())


@with_cases(
    ("data", "kind", "problem"),
    [
        (framed(1.0, b""), "empty", "without an image"),
        (framed(1.0, b"no picture"), "damaged", "no image format"),
        (framed(1.0, jpeg(1)[:12]), "damaged", ""),
        (memoryview(recordio.serialize(b"short")), "foreign", "5 bytes without the header"),
        (memoryview(bytes(40)), "damaged", "magic number"),
        (framed(1.0, jpeg(1))[:50], "damaged", "ends"),
        (memoryview(b""), "damaged", "ends"),
    ],
    ids=["no body", "text", "cut header", "no header", "no magic", "cut", "nothing"],
)
def test_what_is_no_image_says_why(data: memoryview, kind: str, problem: str) -> None:
    record, _ = record_of(BARE, data)
    assert record.kind == kind
    assert record.problem is not None
    assert problem in record.problem
    assert "\n" not in record.problem


@settings(max_examples=40)
@given(st.binary(max_size=200))
def test_any_bytes_are_something(data: bytes) -> None:
    record, _ = record_of(BARE, memoryview(data))
    assert record.kind in ("image", "damaged", "foreign", "empty")
    assert (record.problem is None) == (record.kind == "image")


EDGES = st.tuples(
    st.integers(0, 90), *[st.floats(0, 0.5, width=32)] * 2, *[st.floats(0.5625, 1, width=32)] * 2
)


@settings(max_examples=40)
@given(st.lists(EDGES, min_size=1, max_size=8), st.integers(0, 3), st.integers(0, 2))
def test_boxes_of_detection_labels_come_back(
    objects: list[tuple[float, ...]], more_header: int, more: int
) -> None:
    rows = [(*each, *[9.0] * more) for each in objects]
    label = np.array([2 + more_header, 5 + more, *[0.0] * more_header, *np.ravel(rows)], np.float32)
    assert [tuple(box) for box in detection_boxes(label)] == objects


@with_cases(
    "label",
    [
        [],
        [1, 2, 3],
        [2, 5, 1, 0.1, 0.1, 0.2],
        [2, 5, 1, 10, 10, 200, 200],
        [2, 4, 1, 0.1, 0.1, 0.2, 0.2, 0.3],
        [2.5, 5, 1, 0.1, 0.1, 0.2, 0.2],
        [2, 5, 1, math.nan, 0.1, 0.2, 0.2],
        [2, 5, 1, 0.4, 0.1, 0.2, 0.2],
        [1e30, 5, 1, 0.1, 0.1, 0.2, 0.2],
        [-2, 5, 1, 0.1, 0.1, 0.2, 0.2],
    ],
    ids=str,
)
def test_other_labels_have_no_boxes(label: list[float]) -> None:
    assert detection_boxes(np.array(label, np.float32)) == ()


@settings(max_examples=40)
@given(st.lists(st.floats(width=32), max_size=40))
def test_any_label_is_taken(label: list[float]) -> None:
    for box in detection_boxes(np.array(label, np.float32)):
        assert box.right > box.left
        assert box.bottom > box.top


def test_boxes_in_pixels() -> None:
    boxes = detection_boxes(detection_label((3, 0.25, 0.5, 0.75, 1)))
    assert box_table(boxes, 80, 60).tolist() == [[20, 30, 60, 60, 3]]
    assert box_table((), 80, 60).shape == (0, 5)


@settings(max_examples=40)
@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
@example(3.4028234663852886e38)  # whose eight digits are greater in double precision
def test_a_label_survives_its_address(value: float) -> None:
    assert np.float32(parse_label(label_text(value))) == np.float32(value)


@with_cases("text", ["", "nan", "inf", "1e39", "1e999", "x", "<b>", "1" * 50])
def test_what_is_no_label_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="labels are numbers"):
        parse_label(text)
