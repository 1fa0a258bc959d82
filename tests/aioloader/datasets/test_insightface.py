"""InsightFace's sets: samples, labels and identities as its own readers see them, and errors that say what is wrong."""

import asyncio
import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import recordio
from aioloader import AsyncDataLoader, DataLoader, InsightFaceDataset, LayoutError, SampleError, abc, images
from aioloader.datasets import insightface
from aioloader.datasets.insightface_files import insightface_file
from aioloader.datasets.insightface_layout import (
    FaceHeader,
    choose_images,
    face_header,
    identity_ranges,
    slack,
)
from aioloader.datasets.insightface_property import parse_property
from aioloader.datasets.record_heads import read_heads
from aioloader.samplers import ClassBalancedSampler, PKSampler
from aioloader.transforms import Resize
from tests.aioloader.datasets.faces import Reader, numbers_record, write_records, write_set

LABELS = [0, 0, 0, 1, 1, 2, 2, 2, 2, 3]


@pytest.fixture(name="faces")
def _faces(tmp_path: Path, png: Any) -> Any:
    """``faces(**options)``: a set of ten images of four identities."""

    def make(labels: Any = LABELS, name: str = "faces", **options: Any) -> Path:
        return write_set(tmp_path / name, [png(number) for number in range(len(labels))], labels, **options)

    return make


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("order", ["header first", "header last", "mixed"])
def test_samples_are_those_of_insightfaces_reader(faces: Any, png: Any, order: str, vectors: bool) -> None:
    folder = faces(order=order, vectors=vectors)
    dataset = InsightFaceDataset(folder)
    reader = Reader(folder)

    assert isinstance(dataset, abc.ByteDataset)
    assert len(dataset) == len(reader) == 10
    for index in range(10):
        image, label = dataset[index]
        body, expected = reader[index]
        assert body == png(index)
        assert image[0, 0, 0] == index
        assert (label, label.dtype) == (expected, np.int64)
        assert dataset.facts(index).key == index + 1
    assert dataset.labels().tolist() == LABELS
    assert dataset.labels().dtype == np.int64
    assert list(dataset.identities) == [range(0, 3), range(3, 5), range(5, 9), range(9, 10)]
    assert dataset.num_classes == 4
    assert dataset.image_size == (6, 8)
    reader.close()


@pytest.mark.parametrize("vectors", [False, True], ids=["scalars", "vectors"])
@pytest.mark.parametrize("workers", [0, 1])
def test_a_loader_gives_the_same_with_fused_transforms(faces: Any, workers: int, vectors: bool) -> None:
    dataset = InsightFaceDataset(faces(vectors=vectors)).transform_first(Resize(4))
    with DataLoader(dataset, 4, shuffle=True, num_workers=workers) as loader:
        batches = list(loader)
    found = sorted(
        (int(image[..., 0].max()), int(label)) for rows in batches for image, label in zip(*rows, strict=True)
    )
    assert [label for _, label in found] == LABELS
    assert batches[0][0].shape == (4, 4, 4, 3)
    assert batches[0][1].dtype == np.int64
    plain = [dataset[index] for index in range(10)]
    assert sorted((int(image[..., 0].max()), int(label)) for image, label in plain) == found


def test_the_rec_file_stands_for_its_folder_and_may_have_another_name(faces: Any) -> None:
    folder = faces()
    assert len(InsightFaceDataset(str(folder / "train.rec"))) == 10
    for suffix in ("rec", "idx"):
        (folder / f"train.{suffix}").rename(folder / f"other.{suffix}")
    assert InsightFaceDataset(folder / "other.rec").num_classes == 4


def test_it_can_be_pickled_before_and_after_use(faces: Any) -> None:
    dataset = InsightFaceDataset(faces())
    for _ in range(2):
        copy = pickle.loads(pickle.dumps(dataset))
        assert copy[4][1] == 1
        assert len(copy.identities) == len(dataset.identities) == 4
    assert len(pickle.dumps(dataset)) < 1000


def test_opening_reads_no_more_than_the_header(faces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = InsightFaceDataset(faces(labels=sorted(range(200))))
    read = []
    real = os.preadv

    def preadv(fd: int, buffers: Any, offset: int, *flags: Any) -> int:
        read.append(sum(len(buffer) for buffer in buffers))
        return real(fd, buffers, offset, *flags)

    monkeypatch.setattr(os, "preadv", preadv)
    assert len(dataset) == 200
    assert dataset.decoder.first_label
    assert sum(read) <= 64


def test_labels_read_two_images_of_an_identity(faces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    dataset = InsightFaceDataset(faces(labels=[0] * 50 + [1] * 50))
    assert len(dataset.identities) == 2
    asked: list[int] = []

    def read(path: str, offsets: Any, **options: Any) -> Any:
        asked.extend(offsets.tolist())
        return read_heads(path, offsets, **options)

    monkeypatch.setattr(insightface, "read_heads", read)
    assert dataset.labels().tolist() == [0] * 50 + [1] * 50
    assert len(asked) == 4


def test_labels_are_the_images_own_where_identities_disagree(tmp_path: Path, png: Any) -> None:
    folder = tmp_path / "odd"
    folder.mkdir()
    records = [(key, recordio.pack((0, key % 3, key, 0), png(key))) for key in range(1, 8)]
    write_records(folder / "train", [(0, numbers_record(8, 9, 0)), *records, (8, numbers_record(2, 6, 8))])
    dataset = InsightFaceDataset(folder)
    assert list(dataset.identities) == [range(1, 5)]
    assert dataset.labels().tolist() == [key % 3 for key in range(1, 8)]
    assert [int(label) for _, label in dataset] == [key % 3 for key in range(1, 8)]


def test_identities_and_labels_feed_samplers(faces: Any) -> None:
    dataset = InsightFaceDataset(faces())
    with DataLoader(dataset, 6, sampler=PKSampler(dataset, p=3, k=2), num_workers=0) as loader:
        for _, labels in loader:
            assert [labels[i] == labels[i + 1] for i in (0, 2, 4)] == [True] * 3
            assert len(set(labels.tolist())) == 3
    view = dataset.transform_first(Resize(4))
    assert len(ClassBalancedSampler(view)) == 10
    kept = [index for identity in dataset.identities if len(identity) >= 2 for index in identity]
    assert kept == list(range(9))
    assert dataset.identities[-1] == range(9, 10)
    assert list(dataset.identities[1:3]) == [range(3, 5), range(5, 9)]
    assert repr(dataset.identities) == "<4 identities with 10 images>"
    with pytest.raises(IndexError, match="no identity 4: the set has 4"):
        dataset.identities[4]


def test_shards_share_the_images(faces: Any) -> None:
    dataset = InsightFaceDataset(faces())
    seen: list[int] = []
    for rank in range(2):
        with DataLoader(dataset, 1, shuffle=True, shard=(rank, 2), num_workers=0) as loader:
            seen += [int(picture[0, 0, 0, 0]) for picture, _ in loader]
    assert sorted(seen) == list(range(10))


def test_a_stopped_pass_goes_on_where_it_was(faces: Any) -> None:
    folder = faces(order="header last")
    with DataLoader(InsightFaceDataset(folder), 3, shuffle=True, seed=4, num_workers=0) as loader:
        whole = [labels.tolist() for _, labels in loader]
    with DataLoader(InsightFaceDataset(folder), 3, shuffle=True, seed=4, num_workers=0) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
    with DataLoader(InsightFaceDataset(folder), 3, shuffle=True, seed=4, num_workers=0) as loader:
        loader.load_state_dict(state)
        assert [labels.tolist() for _, labels in loader] == whole[1:]


def test_opening_does_not_hold_up_the_loop(faces: Any, no_blocking: None) -> None:
    dataset = InsightFaceDataset(faces())

    async def count() -> int:
        async with AsyncDataLoader(dataset, 4, num_workers=1, executor="thread") as loader:
            return sum([len(labels) async for _, labels in loader])

    assert asyncio.run(count()) == 10


# -- sets without a header --------------------------------------------------------------------------------------------


def plain_set(folder: Path, png: Any, labels: Any, keys: Any = None) -> Path:
    folder.mkdir()
    records = [
        (key, recordio.pack((0, label, key, 0), png(number)))
        for number, (key, label) in enumerate(zip(keys or range(len(labels)), labels, strict=True))
    ]
    write_records(folder / "train", records)
    (folder / "property").write_text(f"{max(np.ravel(labels)):.0f},6,8\n{len(labels)}\n")
    return folder


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
    assert dataset.num_classes == 5  # what the file says
    assert Reader(folder).keys == [0, 7, 3, 4, 9]


def test_a_record_0_with_labels_and_an_image_is_an_image(tmp_path: Path, png: Any) -> None:
    folder = plain_set(tmp_path / "vectors", png, [[3.0, 9.0], [4.0, 9.0]])
    assert [int(label) for _, label in InsightFaceDataset(folder)] == [3, 4]


def test_mixed_identities_have_no_ranges(tmp_path: Path, png: Any) -> None:
    dataset = InsightFaceDataset(plain_set(tmp_path / "mixed", png, [1, 0, 1]))
    assert dataset.labels().tolist() == [1, 0, 1]
    with pytest.raises(LayoutError, match="do not stand identity by identity"):
        _ = dataset.identities


# -- what can be wrong ------------------------------------------------------------------------------------------------


def test_missing_files_are_said_at_once(faces: Any, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"train\.rec"):
        InsightFaceDataset(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"gone\.rec"):
        InsightFaceDataset(tmp_path / "gone.rec")
    folder = faces()
    (folder / "train.idx").unlink()
    with pytest.raises(FileNotFoundError, match=r"train\.idx: no such file, and without it nobody knows"):
        InsightFaceDataset(folder)


def test_without_property_the_header_counts_identities(faces: Any) -> None:
    folder = faces(shown=None)
    dataset = InsightFaceDataset(folder)
    assert dataset.num_classes == 4
    with pytest.raises(LayoutError, match="no such file; it holds one line") as caught:
        _ = dataset.image_size
    assert caught.value.path == str(folder / "property")


@pytest.mark.parametrize(
    "text", ["", "\n", "4\n", "4,6\n", "4,6,8,1\n", "four,6,8\n", "0,6,8\n", "-4,6,8", "\xff\0", "9" * 5000]
)
def test_a_malformed_property_is_named(faces: Any, text: str) -> None:
    dataset = InsightFaceDataset(faces(shown=text))
    assert len(dataset) == 10
    with pytest.raises(LayoutError, match="the first line should be the number of identities"):
        _ = dataset.num_classes


def test_the_property_file_wins_and_a_difference_is_told(faces: Any) -> None:
    dataset = InsightFaceDataset(faces(shown="7,112,96\r\nmore\n"))
    with pytest.warns(
        UserWarning, match="there are 7 identities, and the header of .* has 4; num_classes is 7"
    ):
        assert dataset.num_classes == 7
    assert dataset.num_classes == 7  # told once
    assert dataset.image_size == (112, 96)


def cut_lines(folder: Path, *keys: int) -> None:
    idx = folder / "train.idx"
    lines = idx.read_text().splitlines()
    idx.write_text("".join(f"{line}\n" for line in lines if int(line.split("\t")[0]) not in keys))


@pytest.mark.parametrize("order", ["header first", "header last", "mixed"])
def test_images_that_a_repaired_index_lacks_are_told_of(faces: Any, order: str) -> None:
    folder = faces(order=order)
    cut_lines(folder, 2, 7)
    dataset = InsightFaceDataset(folder)
    with pytest.warns(
        UserWarning, match="lacks 2 of the 10 images .* the first with the key 2; they are no samples"
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
        (numbers_record(3, 99, 12), "identity 1 has the images 3 to 98, but the last image is 10"),
        (numbers_record(5, 4, 12), "should name the images of an identity, and does not"),
        (numbers_record(0, 4, 12), "should name the images of an identity, and does not"),
        (numbers_record(float("nan"), 4, 12), "should name the images"),
        (numbers_record(1e30, 1e30, 12), "should name the images"),
        (recordio.pack((0, 1.0, 12, 0), b""), "should name the images"),
        (b"", "should name the images"),
    ],
    ids=["outside", "backwards", "the header", "nan", "huge", "scalar", "empty"],
)
def test_a_bad_identity_record_is_named(tmp_path: Path, png: Any, record: bytes, message: str) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    records = [(0, numbers_record(11, 15, 0))]
    records += [(key, recordio.pack((0, LABELS[key - 1], key, 0), png(key))) for key in range(1, 11)]
    ranges = [(1, 4), (4, 6), (6, 10), (10, 11)]
    records += [(11 + k, record if k == 1 else numbers_record(*ranges[k], 11 + k)) for k in range(4)]
    write_records(folder / "train", records)
    dataset = InsightFaceDataset(folder)
    with pytest.raises(LayoutError, match=message) as caught:
        _ = dataset.identities
    assert caught.value.key == 12
    assert dataset.labels().tolist() == LABELS
    assert pickle.loads(pickle.dumps(caught.value)).key == 12


@pytest.mark.parametrize("first", [0, -1, 0.5, float("nan"), float("inf")])
def test_a_header_that_makes_no_sense_is_said(tmp_path: Path, png: Any, first: float) -> None:
    folder = tmp_path / "bad"
    folder.mkdir()
    write_records(
        folder / "train", [(0, numbers_record(first, 3, 0)), (1, recordio.pack((0, 0, 1, 0), png(1)))]
    )
    with pytest.raises(LayoutError, match=r"record 0 has no image, .* are no keys"):
        len(InsightFaceDataset(folder))


def test_a_header_may_say_something_else_in_the_second_place(tmp_path: Path, png: Any) -> None:
    folder = tmp_path / "typed"
    folder.mkdir()
    records = [(key, recordio.pack((0, key - 1, key, 0), png(key))) for key in (1, 2)]
    write_records(folder / "train", [*records, (0, numbers_record(3, 1, 0))])
    dataset = InsightFaceDataset(folder)
    assert len(dataset) == 2
    assert list(dataset.identities) == [range(0, 1), range(1, 2)]
    with pytest.raises(LayoutError, match="no such file"):
        _ = dataset.num_classes


def test_keys_that_are_text_are_refused(faces: Any) -> None:
    folder = faces()
    idx = folder / "train.idx"
    idx.write_text(idx.read_text().replace("3\t", "three\t", 1))
    with pytest.raises(LayoutError, match="keys are whole numbers"):
        len(InsightFaceDataset(folder))


def test_a_damaged_image_is_the_error_of_its_sample(faces: Any) -> None:
    folder = faces()
    rec = folder / "train.rec"
    offset = int(rec.with_suffix(".idx").read_text().splitlines()[4].split("\t")[1])
    data = bytearray(rec.read_bytes())
    data[offset + 40 : offset + 60] = bytes(20)
    rec.write_bytes(data)
    with DataLoader(InsightFaceDataset(folder), 10, num_workers=0, on_error="skip") as loader:
        ((_, labels),) = list(loader)
        assert labels.tolist() == [0, 0, 0, 1, 2, 2, 2, 2, 3]
        (error,) = loader.errors
    assert (error.index, error.key, error.offset) == (3, 4, offset)
    with DataLoader(InsightFaceDataset(folder), 10, num_workers=0) as loader, pytest.raises(SampleError):
        list(loader)


def test_a_label_that_is_no_identity_names_the_option(tmp_path: Path, png: Any) -> None:
    folder = plain_set(tmp_path / "half", png, [0.5, 1.0])
    with pytest.raises(ValueError, match="label_dtype='float32'"):
        InsightFaceDataset(folder)[0]
    with pytest.raises(ValueError, match="label_dtype='float32'"):
        InsightFaceDataset(folder).labels()
    dataset = InsightFaceDataset(folder, label_dtype="float32")
    assert dataset[0][1] == 0.5
    assert dataset.labels().tolist() == [0.5, 1.0]
    with pytest.raises(LayoutError, match="no identities"):
        _ = dataset.identities


def test_a_record_of_the_header_that_is_gone_says_where(faces: Any) -> None:
    folder = faces()
    os.truncate(folder / "train.rec", 20)
    with pytest.raises(recordio.RecordIOError) as caught:
        len(InsightFaceDataset(folder))
    assert caught.value.path == str(folder / "train.rec")


# -- aioloader.images -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("order", ["header first", "header last"])
@pytest.mark.parametrize("shown", ["count", None], ids=["property", "no-property"])
def test_images_serves_no_header(faces: Any, order: str, shown: str | None) -> None:
    folder = faces(order=order, shown=shown)
    for path in (folder, folder / "train.rec"):
        with images(path, 4, batch_size=16, train=False, blocking=True, num_workers=0) as loader:
            ((pictures, labels),) = list(loader)
        assert pictures.shape == (10, 4, 4, 3)
        assert labels.tolist() == LABELS
        assert insightface_file(path) == str(folder / "train.rec")


def test_other_paths_are_no_such_sets(tmp_path: Path, write_images: Any, png: Any) -> None:
    assert insightface_file(write_images([1, 2], name="train")) is None
    assert insightface_file(write_images([[1, 2], [3, 4]], name="vectors")) is None
    assert insightface_file(write_images([1, 2, 3], keys=[5, 0, 2], name="shuffled")) is None
    assert insightface_file(write_images([1], keys=["a"], name="text")) is None
    assert insightface_file(write_images([], name="nothing")) is None
    assert insightface_file(tmp_path) is None
    assert insightface_file(tmp_path / "gone") is None
    (tmp_path / "train.idx").write_text("garbage")
    assert insightface_file(tmp_path) is None


# -- pure parts -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
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
    # Keys about 2**24, of which float32 has every second one only; the others of such a set are left out.
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
