"""Tests of making sample indexes of shards, with a format of the tests: their places, and which ones are kept."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioloader.sample_index import IndexState, cached_index, index_beside, index_state
from aioloader.tools.index import index_all, index_samples
from tests.aioloader.datasets.toy_shards import KIND, ToyDataset, toy_sample, write_shard


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    return [
        write_shard(tmp_path / f"{number}.toy", [toy_sample(label=n) for n in range(count)])
        for number, count in enumerate((3, 0, 2))
    ]


def test_indexes_are_written_next_to_the_shards_and_used(shards: list[Path]) -> None:
    dataset = ToyDataset(shards, crop_index=None)
    reports = list(index_all(dataset))
    assert [(report.index, report.samples, report.kept, report.fault) for report in reports] == [
        (index_beside(str(path)), count, False, "") for path, count in zip(shards, (3, 0, 2), strict=True)
    ]
    assert [report.nbytes for report in reports] == [os.path.getsize(report.index) for report in reports]
    assert all(report.ok for report in reports)
    other = ToyDataset(shards)
    assert (len(other), other.scans) == (5, 0)
    assert index_state(str(shards[0]), None, KIND) is IndexState.BESIDE


def test_an_index_that_fits_is_kept(shards: list[Path]) -> None:
    dataset = ToyDataset(shards, crop_index=None)
    list(index_all(dataset))
    before = dataset.scans
    assert [report.kept for report in index_all(dataset)] == [True, True, True]
    assert dataset.scans == before
    assert [report.kept for report in index_all(dataset, remake=True)] == [False, False, False]
    assert dataset.scans == before + 3


@pytest.mark.parametrize("change", ["shard", "damage", "kind"])
def test_an_index_that_does_not_fit_is_made_again(shards: list[Path], change: str) -> None:
    list(index_all(ToyDataset(shards, crop_index=None)))
    place = Path(index_beside(str(shards[0])))
    if change == "shard":
        write_shard(shards[0], [toy_sample(label=1)])
    else:
        data = bytearray(place.read_bytes())
        data[-1 if change == "damage" else 30] ^= 1
        place.write_bytes(data)
    assert index_state(str(shards[0]), None, KIND) is IndexState.STALE
    reports = list(index_all(ToyDataset(shards, crop_index=None)))
    assert [report.kept for report in reports] == [False, True, True]
    assert index_state(str(shards[0]), None, KIND) is IndexState.BESIDE


def test_a_damaged_shard_gets_no_index(shards: list[Path]) -> None:
    with open(shards[0], "ab") as file:
        file.write(b"cut")
    first, second, third = index_all(ToyDataset(shards, crop_index=None))
    assert (first.ok, first.index) == (False, "")
    assert "ends inside a sample" in first.fault
    assert second.ok
    assert third.ok
    assert not Path(index_beside(str(shards[0]))).exists()


def test_in_a_folder_that_cannot_be_written_the_cache_is_used(
    shards: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = str(shards[0])
    os.mkdir(index_beside(path))
    report = index_samples(ToyDataset(path, crop_index=None), 0)
    assert (report.ok, report.index, report.samples) == (True, cached_index(path), 3)
    assert "cannot be written" in report.fault
    assert index_state(path, None, KIND) is IndexState.CACHED
    os.unlink(cached_index(path))
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", os.path.join(path, "no folder"))
    with pytest.raises(OSError, match=r"toy"):
        index_samples(ToyDataset(path, crop_index=None), 0)


def test_a_shard_that_changes_while_it_is_scanned_gets_no_index(shards: list[Path]) -> None:
    class Changing(ToyDataset):
        # It returns what the base class returns; the types of both are no part of the test.
        def scan_shard(self, number: int, tick: object = None) -> object:  # type: ignore[override]
            write_shard(shards[0], [toy_sample(label=9)])
            return super().scan_shard(number)

    report = index_samples(Changing(shards[0], crop_index=None), 0)
    assert (report.ok, report.index, report.fault) == (
        False,
        "",
        f"{shards[0]}: the file changed while it was read",
    )


def test_files_that_contain_the_places_of_their_samples_need_none(shards: list[Path]) -> None:
    class Other(ToyDataset):
        index_kind = None

    report = index_samples(Other(shards[0], crop_index=None), 0)
    assert (report.ok, report.index, report.fault) == (True, "", "")
    assert report.facts()["ok"] is True
