"""Tests of inspecting shards, with a format of the tests: fields, labels, images, keys and the states of indexes."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from aioloader.crop_index.layout import RECORDS, shard_index
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.formats.inspection import Inspection, Options, in_passes, inspect_shards
from aioloader.tools.index import index_all
from aioloader.tools.inspect import _text, advice_for, inspect
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard


def jpeg(seed: int, size: int = 300) -> bytes:
    pixels = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(pixels, (size, size * 2 // 3)))[1])


def examine(path: Any, sample: int = 256, **options: Any) -> Inspection:
    dataset = ToyDataset(path, crop_index=None, **options)
    return inspect_shards(
        str(path), dataset, "tar samples", Options(sample, 10.0, None, lambda label, total: lambda done: None)
    )


def test_a_set_is_described(tmp_path: Path) -> None:
    for number in range(2):
        write_shard(
            tmp_path / f"{number}.toy",
            [toy_sample(jpeg(n), label=n % 3, **{"a.txt": "x" * n, "shape": [1, 2]}) for n in range(9)],
        )
    found = examine(str(tmp_path / "*.toy"))
    assert (found.kind, found.files, found.records, found.damage) == ("tar samples", 2, 18, [])
    assert found.nbytes == sum(path.stat().st_size for path in tmp_path.glob("*.toy"))
    assert found.sizes is not None
    assert found.sizes.smallest > 1000
    assert found.labels is not None
    assert found.labels.counts == {0.0: 6, 1.0: 6, 2.0: 6}
    assert found.images is not None
    assert (found.images.formats, found.images.looked_at, found.images.damaged) == ({"jpeg": 18}, 18, [])
    assert found.fields is not None
    assert {(each.name, each.kind, each.samples) for each in found.fields} == {
        ("label", "value", 18),
        ("a.txt", "text", 18),
        ("shape", "value", 18),
        ("image", "image", 18),
    }
    by_name = {each.name: each for each in found.fields}
    assert by_name["label"].values == {"int": 18}
    sizes = by_name["a.txt"].sizes
    assert sizes is not None
    assert (sizes.smallest, sizes.largest) == (0, 8)
    assert found.details["keys"] == []
    assert found.details["image_field"] == "image"
    assert [each["samples"] for each in found.details["shards"]] == [9, 9]
    assert json.dumps(found.facts())
    text = "\n".join(_text(found))
    for line in (
        "18 samples, ",
        "index        none",
        "fields       label: value, in 18 samples, int 18",
    ):
        assert line in text


def test_the_states_of_indexes_are_reported(tmp_path: Path) -> None:
    paths = [write_shard(tmp_path / f"{n}.toy", [toy_sample(jpeg(n), label=n)]) for n in range(4)]
    list(index_all(ToyDataset(paths[:2], crop_index=None)))
    len(ToyDataset(paths[2]))
    write_shard(paths[1], [toy_sample(jpeg(9), label=9)])
    found = examine(paths)
    states = found.sample_indexes
    assert states is not None
    assert (states.adjacent, states.cached, states.stale, states.missing) == (1, 1, 1, 1)
    assert any("write the indexes of the shards with `aioloader index" in text for text in advice_for(found))
    # Now all of them are in the cache directory, where the inspection has put them.
    states = examine(paths).sample_indexes
    assert states is not None
    assert (states.adjacent, states.cached, states.stale, states.missing) == (1, 3, 0, 0)


def test_damaged_shards_and_samples_are_named_and_the_others_described(tmp_path: Path) -> None:
    good = [toy_sample(jpeg(n), label=n) for n in range(3)]
    write_shard(tmp_path / "a.toy", [*good, toy_sample(jpeg(1)[:500], label=3), toy_sample(jpeg(5))])
    write_shard(tmp_path / "b.toy", [*good, b"cut"])
    found = examine(str(tmp_path / "*.toy"))
    assert found.records == 5
    (damage,) = found.damage
    assert "b.toy" in damage
    assert found.images is not None
    assert [key for key, _ in found.images.damaged] == ["3"]
    assert found.labels is not None
    assert found.labels.counts == {0.0: 1, 1.0: 1, 2.0: 1, 3.0: 1}
    assert any("aioloader verify --decode" in text and "repair" not in text for text in advice_for(found))


@pytest.mark.parametrize("name", ["a.tar", "a.tfrecord", "a.parquet"])
def test_shards_of_which_none_can_be_opened_are_described(tmp_path: Path, name: str) -> None:
    if name == "a.parquet":
        pytest.importorskip("pyarrow", reason="needs pyarrow")
    path = tmp_path / name
    path.write_bytes(zlib.compress(np.random.default_rng(0).bytes(2000)))
    found = inspect(str(path))
    assert (found.files, found.nbytes, found.records) == (1, path.stat().st_size, 0)
    (damage,) = found.damage
    assert str(path) in damage
    assert any("lists all damage" in text and "repair" not in text for text in found.advice)


def test_sets_without_images_or_labels_are_described(tmp_path: Path) -> None:
    found = examine(write_shard(tmp_path / "a.toy", [toy_sample(caption="x"), toy_sample(caption="y")]))
    assert (found.images, found.labels, found.crop_indexes) == (None, None, None)
    assert found.details["image_field"] is None
    found = examine(write_shard(tmp_path / "b.toy", []))
    assert (found.records, found.fields, found.details["keys"]) == (0, [], [])
    found = examine(write_shard(tmp_path / "c.toy", [toy_sample(jpeg(1), label=[1, 2])]))
    assert found.labels is None


def test_a_crop_index_is_described(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.toy", [toy_sample(jpeg(n), label=n) for n in range(3)])
    found = examine(path)
    assert found.crop_indexes is not None
    assert found.crop_indexes.files == 0
    writer = CropIndexWriter(shard_index(str(path)), kind=RECORDS)
    writer.put(0, 1000, b"entry")
    writer.finish()
    found = examine(path)
    assert found.crop_indexes is not None
    assert (found.crop_indexes.files, found.crop_indexes.entries) == (1, 1)


def test_a_small_sample_is_even_and_labels_of_all_are_read(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.toy", [toy_sample(jpeg(0, 60), label=n) for n in range(40)])
    found = examine(path, sample=4)
    assert found.images is not None
    assert found.images.looked_at == 4
    assert found.labels is not None
    assert found.labels.classes == 40
    assert found.details["labels_read"] is None


@pytest.mark.parametrize(("count", "size"), [(0, 4), (1, 4), (3, 4), (100, 7), (100_000, 3)])
def test_passes_are_even_parts_of_all_numbers(count: int, size: int) -> None:
    parts = list(in_passes(count, size))
    assert sorted(np.concatenate(parts).tolist()) == list(range(count))
    if len(parts) > 8:
        some = np.sort(np.concatenate(parts[: len(parts) // 4]))
        assert np.diff(some).max() <= 8 * max(1, count // len(some))
