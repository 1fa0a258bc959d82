"""Tests of fused decoders: samples, labels and errors equal those of separate stages."""

import struct
from typing import Any

import cv2
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import aioloader
import recordio
from aioloader.datasets import ImageFolderDataset, ImageListDataset, ImageRecordDataset
from aioloader.datasets.decoding import ImageFileDecoder
from aioloader.datasets.stage import Stage
from aioloader.formats.recordio.decoding import ImageRecordDecoder
from aioloader.foundation.types import ItemLocation, StageTimer
from aioloader.rng import Rng
from aioloader.transforms import (
    Compose,
    CropResize,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    ToTensor,
)
from tests.aioloader.datasets.batches import batches_of, labels_in
from tests.cases import with_cases

TRAIN = Compose([RandomResizedCrop(24), RandomHorizontalFlip()])
FLOAT = Compose([*TRAIN.transforms, ToTensor(), Normalize(0.5, 0.5)])


def jpeg(number: int, width: int = 64, height: int = 48, grain: int = 8) -> bytes:
    image = np.random.default_rng(number).integers(0, 256, (height // grain, width // grain, 3), np.uint8)
    image = cv2.resize(image, (width, height), interpolation=cv2.INTER_CUBIC)
    return cv2.imencode(".jpg", image)[1].tobytes()


def framed(payload: bytes) -> bytes:
    return struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4)


def outcome(run: Any) -> Any:
    try:
        image, label = run()
    except Exception as error:
        return type(error), str(error)
    # As text, because one nan is not equal to another.
    return image.tolist(), repr(label), np.asarray(label).dtype, type(label)


def check(decoder: Any, data: bytes, extra: Any = None, stages: tuple[Stage, ...] = ()) -> Any:
    """Compare separate decoder and stages with the fused ones, over memory that is overwritten afterwards."""
    location = ItemLocation(None, "a/file", 8)

    def apart() -> Any:
        sample = decoder(memoryview(data), extra, location)
        for stage in stages:
            sample = stage.apply(sample, Rng(1))
        return sample

    fused = decoder.fuse(stages)
    assert fused.stages == len(stages)
    memory = bytearray(data)
    given_extra = None if extra is None else extra.copy()

    def together() -> Any:
        image, label = fused(
            memoryview(memory),
            given_extra,
            location,
            rng=Rng(1),
            out=None,
            trace=StageTimer([0.0] * len(stages)),
        )
        image = image.copy()
        memory[:] = bytes(len(memory))
        if isinstance(given_extra, np.ndarray):
            given_extra[...] = 0
        return image, label

    expected, found = outcome(apart), outcome(together)
    assert found == expected
    return found


@with_cases("dtype", ["int64", "int8", "uint8", "float32", "float64"])
@with_cases("label", [3.0, -1.0, 300.0, 2.5, float("nan"), float("inf")])
def test_scalar_labels(dtype: str, label: float) -> None:
    record = framed(recordio.pack(recordio.IRHeader(0, label, 1, 0), jpeg(0)))
    check(ImageRecordDecoder(scalar_dtype=dtype), record, stages=(Stage(TRAIN, first=True),))


@pytest.mark.parametrize("dtype", ["int64", "float32"])
@pytest.mark.parametrize("labels", [[1.0], [1.0, 2.0, 3.0], [0.5, 1.0]])
def test_label_arrays(dtype: str, labels: list[float]) -> None:
    record = framed(recordio.pack(recordio.IRHeader(len(labels), np.array(labels), 1, 0), jpeg(0)))
    check(ImageRecordDecoder(vector_dtype=dtype), record, stages=(Stage(TRAIN, first=True),))


@pytest.mark.parametrize("shift", range(4))
def test_records_in_parts(write_rec: Any, shift: int) -> None:
    magic = struct.pack("<I", 0xCED7230A)
    body = jpeg(0)
    comment = bytes(shift) + magic
    body = body[:2] + struct.pack(">BBH", 0xFF, 0xFE, 2 + len(comment)) + comment + body[2:]
    with open(write_rec([recordio.pack((0, 4.0, 1, 0), body)]), "rb") as file:
        record = file.read()
    (word,) = struct.unpack_from("<I", record, 4)
    # The writer splits a record at an aligned magic number.
    assert (word >> 29 == 1) == (shift == 2)
    assert check(ImageRecordDecoder(), record)[1] == repr(np.int64(4))


def test_what_follows_a_record_does_not_matter() -> None:
    assert check(ImageRecordDecoder(), SOUND + b"more")[1] == repr(np.int64(4))


SOUND = framed(recordio.pack(recordio.IRHeader(0, 4.0, 1, 0), jpeg(0)))


@given(
    cut=st.integers(0, len(SOUND)),
    at=st.integers(0, len(SOUND) - 1),
    value=st.integers(0, 255),
    part=st.booleans(),
)
@settings(max_examples=3 * settings().max_examples)
@example(cut=len(SOUND), at=8, value=1, part=False)
@example(cut=len(SOUND), at=7, value=0x20, part=False)
def test_damaged_records(cut: int, at: int, value: int, part: bool) -> None:
    # Only the heads: damage among the pixels may be outside of a crop.
    at = at % 40 if part else at % 32
    data = bytearray(SOUND)
    data[at] = value
    check(ImageRecordDecoder(), bytes(data[:cut]))


@with_cases("extra", [np.int64(4), np.array([1.0, 2.0], np.float32), None])
def test_files(extra: Any) -> None:
    check(ImageFileDecoder(), jpeg(0), extra, (Stage(TRAIN, first=True), Stage(ToTensor(), first=True)))
    check(ImageFileDecoder(flag=0), jpeg(0), extra, (Stage(TRAIN, first=True),))
    check(ImageFileDecoder(), b"never", extra, (Stage(TRAIN, first=True),))


def test_stages_that_take_the_label_too_are_left_to_others() -> None:
    stages = [
        Stage(TRAIN, first=True),
        Stage(lambda image, label: (image, label), first=False),
        Stage(ToTensor(), first=True),
    ]
    assert ImageRecordDecoder().fuse(stages).stages == 1
    assert ImageFileDecoder().fuse(stages[1:]).stages == 0
    assert ImageFileDecoder().fuse(()).stages == 0


@with_cases("base", [ImageRecordDecoder, ImageFileDecoder])
def test_a_decoder_of_ones_own_is_not_passed_over(base: Any) -> None:
    class Own(base):  # type: ignore[misc]
        def __call__(self, data: Any, extra: Any, location: Any) -> Any:
            return None

    class Named(base):  # type: ignore[misc]
        pass

    assert Own().fuse(()) is None
    assert Named().fuse(()) is not None


@pytest.fixture
def datasets(tmp_path: Any, write_rec: Any) -> list[Any]:
    """Return the same images as records, as a folder and as a list; of several sizes and formats."""
    images = [jpeg(n, 40 + 8 * n, 100 - 8 * n) for n in range(7)]
    images.append(cv2.imencode(".png", np.full((50, 60, 3), 7, np.uint8))[1].tobytes())
    rec = write_rec([recordio.pack((0, float(n), n, 0), image) for n, image in enumerate(images)])
    for n, image in enumerate(images):
        folder = tmp_path / "folder" / str(n)
        folder.mkdir(parents=True)
        (folder / "image.jpg").write_bytes(image)
    entries = [[float(n), f"{n}/image.jpg"] for n in range(len(images))]
    return [
        ImageRecordDataset(rec),
        ImageFolderDataset(tmp_path / "folder"),
        ImageListDataset(tmp_path / "folder", entries),
    ]


def test_a_loader_gives_what_the_dataset_gives_by_hand(datasets: list[Any]) -> None:
    for dataset in datasets:
        expected = [FLOAT(dataset[n][0], rng=Rng(5, 0, n, position=n)) for n in range(len(dataset))]
        for stages in ([FLOAT], list(FLOAT.transforms)):
            view = dataset
            for stage in stages:
                view = view.transform_first(stage)
            batches = batches_of(view, batch_size=3, shuffle=False)
            assert np.array_equal(np.concatenate([images for images, _ in batches]), expected)
            assert labels_in(batches) == list(range(8))


def test_statistics_are_reported_by_stage(datasets: list[Any]) -> None:
    view = datasets[0].transform_first(TRAIN).transform_first(ToTensor())
    with aioloader.DataLoader(view, 4, executor="inline") as loader:
        list(loader)
        stats = loader.stats()
    assert set(stats.transforms) == {"RandomResizedCrop > RandomHorizontalFlip", "ToTensor"}
    assert stats.decode_s > 0
    assert stats.transform_s == pytest.approx(sum(stats.transforms.values()))


def test_a_failed_sample_names_its_stage(write_rec: Any) -> None:
    images = [jpeg(0), jpeg(1)[:300], jpeg(2, 16, 16)]
    rec = write_rec([recordio.pack((0, float(n), n, 0), image) for n, image in enumerate(images)])
    view = ImageRecordDataset(rec).transform_first(CropResize(0, 0, 40, 40))
    with aioloader.DataLoader(view, 3, executor="inline", on_error="skip") as loader:
        (batch,) = loader
        assert batch[1].tolist() == [0]
        assert [(error.index, error.stage) for error in loader.errors] == [
            (1, "decode"),
            (2, "transform:CropResize"),
        ]
    with pytest.raises(aioloader.SampleError) as caught:
        next(iter(aioloader.DataLoader(view.take(2), 2, executor="inline")))
    assert isinstance(caught.value.__cause__, aioloader.DecodeError)


@pytest.mark.parametrize("chain", [TRAIN, FLOAT], ids=["uint8", "float32"])
def test_scaling_is_an_option(tmp_path: Any, chain: Any) -> None:
    (tmp_path / "a").mkdir()
    for n in range(4):
        (tmp_path / "a" / f"{n}.jpg").write_bytes(jpeg(n, 320, 240, grain=60))
    results = []
    for options in ({}, {"dct_scaling": False}, {"dct_scaling": True}):
        dataset = ImageFolderDataset(tmp_path, **options).transform_first(chain)
        ((images, _),) = batches_of(dataset, shuffle=False)
        results.append(images.astype(np.float64))
    assert np.array_equal(results[0], results[1])
    assert not np.array_equal(results[0], results[2])
    scale = 255 if chain is TRAIN else 2
    assert np.abs(results[0] - results[2]).mean() < 0.05 * scale
