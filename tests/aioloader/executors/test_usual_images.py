"""Tests of images that a runner makes in their rows with few calls: as decoding and transforming each by itself."""

from __future__ import annotations

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
import recordio
from aioloader import transforms as t
from aioloader.abc import Program
from aioloader.datasets.stage import Stage
from aioloader.executors.runner import Runner
from aioloader.formats.recordio.decoding import ImageRecordDecoder
from aioloader.foundation.pytree import flatten, leaf_spec
from aioloader.foundation.types import (
    INDEX,
    INDEX_TABLE_ROWS,
    LENGTH,
    OFFSET,
    POSITION,
    ROW,
    START,
    Chunk,
    ChunkResult,
    SpanKind,
)
from aioloader.pipeline.collate import row_layout
from aioloader.rng import Rng
from aioloader.storage.local.mapped import FileMaps
from aioloader.transforms import decode_image
from tests.aioloader.transforms.fusing import images
from tests.cases import with_cases
from tests.executors import pool

# Two of each are enough: the headers of the first are known when the second comes.
KINDS = sorted(images())
CHAINS: dict[str, tuple[Any, ...]] = {
    "nothing": (),
    "flip": (t.RandomHorizontalFlip(),),
    "flips": (t.Compose([t.RandomVerticalFlip(), t.RandomHorizontalFlip(0.3)]),),
    "flips of two stages": (t.RandomHorizontalFlip(), t.RandomVerticalFlip()),
    "crop": (t.RandomResizedCrop(32, antialias=False),),
    "crop and flips": (
        t.Compose([t.RandomResizedCrop((20, 40), antialias=False), t.RandomHorizontalFlip()]),
        t.Compose([]),
    ),
    "crop by OpenCV": (
        t.RandomResizedCrop(32, interpolation="cubic", antialias=None),
        t.RandomVerticalFlip(),
    ),
    "crop that fits": (t.RandomResizedCrop((53, 61), (1.0, 1.0), (61 / 53, 61 / 53), antialias=False),),
    "crop, antialiased": (t.Compose([t.RandomResizedCrop(32), t.RandomHorizontalFlip()]),),
    "crop with a border": (t.Compose([t.RandomCrop(56, padding=4), t.RandomHorizontalFlip()]),),
    "crop that is too large": (t.RandomCrop(60),),
    "interpolation drawn": (t.RandomResizedCrop(32, interpolation="random", antialias=False),),
    "planes": (t.Compose([t.RandomHorizontalFlip(), t.ToTensor()]),),
    "colours": (t.Compose([t.RandomHorizontalFlip(), t.RandomBrightness(0.2)]),),
    "foreign": (t.RandomHorizontalFlip(), lambda image: image[::-1]),
}


@dataclass(frozen=True)
class Alone(ImageRecordDecoder):
    """Decoder whose records are parsed one by one, so that each sample is made the general way."""

    def parse(self, data: Any, extra: Any, location: Any) -> Any:
        return super().parse(data, extra, location)


def record(body: bytes, label: Any) -> bytes:
    flag = 0 if np.ndim(label) == 0 else len(label)
    payload = recordio.pack(recordio.IRHeader(flag, label, 0, 0), body)
    return struct.pack("<II", 0xCED7230A, len(payload)) + payload + bytes(-len(payload) % 4)


def layout_of(stages: tuple[Stage, ...], first: str) -> Any:
    image: Any = decode_image(images()[first])
    for stage in stages:
        image = stage.apply(image, Rng(0))
    structure, leaves = flatten((image, np.int64(0)))
    return row_layout(structure, [leaf_spec(leaf) for leaf in leaves])


def run(decoder: ImageRecordDecoder, stages: tuple[Stage, ...], chunks: list[Chunk], file: Any) -> list[Any]:
    """Run chunks one after the other; return what each delivers, and its counters."""
    memory = mmap.mmap(-1, 1 << 24)
    memory[: len(file["bytes"])] = file["bytes"]
    program = Program(decoder=decoder, paths=("a.rec",), stages=stages, seed=5, maps=file["maps"])
    runner = Runner(program, memory, spills=True)
    return [outcome(runner.run(chunk), chunk, memory) for chunk in chunks]


def outcome(result: ChunkResult, chunk: Chunk, memory: Any) -> Any:
    layout: Any = chunk.layout
    arrays = layout.arrays(memory, chunk.bases, chunk.rows)
    return (
        {row: [array[row].tobytes() for array in arrays] for row in result.written},
        {row: [np.array(leaf).tobytes() for leaf in sample] for row, sample in result.values.items()},
        [(each.row, each.stage, type(each.error), str(each.error)) for each in result.failures],
        result.decodes,
        sorted(result.transforms),
        result.samples,
    )


def chunks_of(records: list[bytes], size: int, layout: Any, *, mapped: bool) -> list[Chunk]:
    length = np.array([len(each) for each in records], np.int64)
    table = np.zeros((INDEX_TABLE_ROWS, len(records)), np.int64)
    table[ROW] = table[INDEX] = np.arange(len(records))
    table[POSITION] = table[INDEX] + 100
    table[OFFSET] = np.cumsum(length) - length
    table[START] = -1 if mapped else table[OFFSET]
    table[LENGTH] = length
    offsets, _ = layout.offsets(len(records))
    bases = tuple((1 << 21) + offset for offset in offsets)
    whole = Chunk(batch=0, index_table=table, rows=len(records), layout=layout, bases=bases)
    return [whole.part(slice(low, low + size)) for low in range(0, len(records), size)]


@settings(max_examples=3 * settings().max_examples // 2, deadline=None)
@given(data=st.data())
def test_samples_and_errors_are_those_of_the_general_way(
    tmp_path_factory: pytest.TempPathFactory, data: Any
) -> None:
    stages = tuple(Stage(fn, first=True) for fn in CHAINS[data.draw(st.sampled_from(sorted(CHAINS)))])
    kinds = data.draw(st.lists(st.sampled_from(KINDS), min_size=1, max_size=4))
    names = data.draw(st.lists(st.sampled_from(kinds), min_size=10, max_size=24))
    labels = data.draw(st.lists(st.sampled_from([1.0, 1.0, 1.0, 2.5, [1.0, 2.0]]), min_size=24, max_size=24))
    records = [record(images()[name], label) for name, label in zip(names, labels, strict=False)]
    for place in data.draw(st.lists(st.integers(0, len(records) - 1), max_size=3)):
        damaged = bytearray(records[place])
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
        records[place] = bytes(damaged)
    options: dict[str, Any] = {
        "flag": data.draw(st.sampled_from([1, 1, 1, 0])),
        "exif": data.draw(st.sampled_from(["apply", "ignore"])),
        "max_pixels": data.draw(st.sampled_from([None, 3000, 10_000])),
        "labelled": data.draw(st.sampled_from([True, True, False])),
        "first_label": data.draw(st.booleans()),
    }
    mapped = data.draw(st.booleans())
    path = tmp_path_factory.mktemp("usual") / "a.rec"
    path.write_bytes(b"".join(records))
    maps = FileMaps.open([str(path)], SpanKind.RECORD) if mapped else None
    try:
        layout = layout_of(stages, data.draw(st.sampled_from(["jpeg-420", "large", "one-pixel"])))
    except ValueError:
        layout = layout_of((), "jpeg-420")
    try:
        chunks = chunks_of(records, data.draw(st.integers(10, 24)), layout, mapped=mapped)
        file = {"bytes": path.read_bytes(), "maps": maps}
        found = run(ImageRecordDecoder(**options), stages, chunks, file)
        assert found == run(Alone(**options), stages, chunks, file)
    finally:
        if maps is not None:
            maps.close()


@with_cases(
    ("chain", "kind"),
    [
        *(("flip", "jpeg-420"), ("flip", "jpeg-grey"), ("nothing", "exif-1")),
        *(
            ("crop", "raw"),
            ("crop, antialiased", "raw"),
            ("crop", "jpeg-420"),
            ("crop, antialiased", "large"),
        ),
    ],
)
def test_usual_images_need_few_calls(monkeypatch: pytest.MonkeyPatch, chain: str, kind: str) -> None:
    stages = tuple(Stage(fn, first=True) for fn in CHAINS[chain])
    records = [record(images()[kind], number) for number in range(20)]
    general = []
    make = Runner._make
    monkeypatch.setattr(
        Runner,
        "_make",
        lambda self, chunk, place, *rest: general.append(place) or make(self, chunk, place, *rest),
    )
    chunks = chunks_of(records, 20, layout_of(stages, kind), mapped=False)
    (found,) = run(ImageRecordDecoder(), stages, chunks, {"bytes": b"".join(records), "maps": None})
    assert len(found[0]) == 20
    assert len(general) <= 1  # the headers of the first JPEG have to be read


@pytest.fixture(scope="module")
def sets(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return record files of 48 images: JPEGs of two kinds, and raw ones."""
    folder = tmp_path_factory.mktemp("sets")
    for name, kinds in (("jpeg", ("jpeg-420", "jpeg-444")), ("raw", ("raw", "raw"))):
        with recordio.RecordWriter(folder / f"{name}.rec", folder / f"{name}.idx") as writer:
            for number in range(48):
                header = recordio.IRHeader(0, float(number), number, 0)
                writer.write(recordio.pack(header, images()[kinds[number % 2]]), number)
    return {path.stem: path for path in folder.glob("*.rec")}


@with_cases("executor", ["inline", "thread", "process"])
@with_cases(("name", "chain"), [("jpeg", "flip"), ("jpeg", "flips of two stages"), ("raw", "crop and flips")])
def test_batches_are_those_of_single_samples(
    sets: dict[str, Path], executor: str, name: str, chain: str
) -> None:
    dataset: Any = aioloader.ImageRecordDataset(sets[name])
    pixels = [dataset[index][0] for index in range(48)]
    for fn in CHAINS[chain]:
        dataset = dataset.transform_first(fn)
    with aioloader.DataLoader(dataset, 16, shuffle=True, seed=7, **pool(executor, 2)) as loader:
        for epoch in range(2):
            position = 0
            for batch, labels in loader:
                for image, label in zip(batch, labels.tolist(), strict=True):
                    expected, rng = pixels[label], Rng(7, epoch, label, position=position)
                    for fn in CHAINS[chain]:
                        expected = fn.apply(expected, rng)
                    assert np.array_equal(image, expected)
                    position += 1
            assert position == 48
