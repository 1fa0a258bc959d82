"""Tests of several record files as one dataset, in the order of the files, in every executor."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

import aioloader
import recordio
from aioloader import DataLoader, ImageRecordDataset, RecordFileDataset, SampleError

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


@pytest.mark.parametrize("given", ["pattern", "list"])
def test_records_follow_one_another(shards: list[Path], given: str) -> None:
    dataset = ImageRecordDataset(shards if given == "list" else shards[0].parent / "set-*-of-*.rec")
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
    with (
        DataLoader(ImageRecordDataset(shards), 2, num_workers=0) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    assert caught.value.path == str(shards[3])


def test_one_line_opens_a_pattern(shards: list[Path]) -> None:
    pattern = str(shards[0].parent / "set-*.rec")
    with aioloader.images(pattern, 8, 4, train=False, blocking=True, num_workers=0) as loader:
        assert sum(len(labels) for _, labels in loader) == 13


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
