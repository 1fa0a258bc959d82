"""Tests of finding the crop index of a dataset's files, and the entries of its items."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import pytest

import recordio
from aioloader.crop_index import lookup
from aioloader.crop_index.layout import (
    FOLDER,
    RECORDS,
    CropFiles,
    file_number,
    folder_index,
    folder_key,
    record_index,
)
from aioloader.crop_index.lookup import open_folder_crops, relative_name
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.formats.recordio.dataset import open_crops
from tests.cases import with_cases


def write(path: str | Path, entries: dict[int, bytes], kind: int = RECORDS) -> None:
    writer = CropIndexWriter(path, kind=kind)
    for key, entry in entries.items():
        writer.put(key, 10, entry)
    writer.finish()


def write_records(path: Path, count: int = 3) -> list[int]:
    with recordio.RecordWriter(path) as writer:
        for number in range(count):
            writer.write(bytes([number]) * 10, number)
    return recordio.Index.open(path.with_suffix(".idx")).offsets.tolist()


@pytest.fixture
def rec(tmp_path: Path) -> Path:
    path = tmp_path / "a.rec"
    offsets = write_records(path)
    write(record_index(str(path)), {offset: b"%d" % offset for offset in offsets})
    return path


def test_an_index_is_next_to_its_record_file_or_in_its_folder(tmp_path: Path) -> None:
    assert record_index("some/train.rec") == "some/train.crops"
    assert folder_index("some") == os.path.join("some", "images.crops")
    records, shards = CropFiles(RECORDS, (), replaces_suffix=True), CropFiles(RECORDS, ())
    assert records.place("a.rec", "x.crops") == "x.crops"
    assert records.place("data/a.rec", str(tmp_path)) == str(tmp_path / "a.crops")
    assert shards.place("https://host/a.tar?x=1", str(tmp_path)) == str(tmp_path / "a.tar.crops")
    assert CropFiles(FOLDER, ()).place("data", str(tmp_path)) == str(tmp_path / "images.crops")


def test_the_index_of_a_url_is_in_the_cache_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path))
    place = record_index("https://host/a.rec?signature=1")
    assert Path(place).is_relative_to(tmp_path)
    assert place == record_index("https://host/a.rec?signature=2")
    assert place != record_index("https://host/b.rec")
    assert folder_index("s3://bucket/train/") == folder_index("s3://bucket/train")


def test_auto_finds_what_is_there(rec: Path) -> None:
    other = rec.with_name("b.rec")
    write_records(other)
    assert open_crops(None, [str(rec)]) is None
    assert open_crops("auto", [str(other)]) is None
    crops = open_crops("auto", [str(other), str(rec)])
    assert crops is not None
    assert bytes(crops.find(1, 0) or b"") == b"0"
    assert crops.find(1, 4) is None
    assert crops.find(0, 0) is None
    assert crops.path(1) == str(rec.with_suffix(".crops"))
    again = pickle.loads(pickle.dumps(crops))
    assert bytes(again.find(1, 0)) == b"0"


def test_a_path_that_does_not_exist_is_an_error(rec: Path, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="aioloader index --crops"):
        open_crops(tmp_path / "none.crops", [str(rec)])
    with pytest.raises(FileNotFoundError, match=r"images\.crops"):
        open_folder_crops(tmp_path, str(tmp_path), [])


def test_a_path_may_be_a_directory_of_indexes(rec: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    place = rec.with_suffix(".crops").rename(elsewhere / "a.crops")
    for chosen in (elsewhere, place, str(place)):
        crops = open_crops(chosen, [str(rec)])
        assert crops is not None
        assert crops.find(0, 0) is not None
    with pytest.raises(ValueError, match="pass the directory"):
        open_crops(place, [str(rec), str(rec)])


def test_an_index_of_other_data_is_an_error_if_it_was_asked_for(rec: Path, tmp_path: Path) -> None:
    foreign = tmp_path / "foreign.crops"
    write(foreign, {1 << 40: b"entry", 2: b"entry"})
    with pytest.raises(CropIndexError, match="no record of") as caught:
        open_crops(foreign, [str(rec)])
    assert caught.value.path == str(foreign)
    write(foreign, {folder_key("cats/1.jpg"): b"entry"}, FOLDER)
    with pytest.raises(CropIndexError, match="index of a folder"):
        open_crops(foreign, [str(rec)])
    with pytest.raises(CropIndexError, match="none of the images"):
        open_folder_crops(foreign, "root", ["root/dogs/1.jpg"])
    assert open_folder_crops(foreign, "root", ["root/dogs/1.jpg", "root/cats/1.jpg"]) is not None


def test_a_damaged_index_found_by_auto_is_a_warning(rec: Path) -> None:
    place = rec.with_suffix(".crops")
    place.write_bytes(place.read_bytes()[:-1])
    with pytest.warns(CropIndexWarning, match=r"a\.crops.*truncated.*index --crops") as caught:
        assert open_crops("auto", [str(rec)]) is None
    assert len(caught) == 1
    with pytest.raises(CropIndexError, match="truncated"):
        open_crops(place, [str(rec)])


def test_entries_of_a_folder_are_found_by_the_names_of_images(tmp_path: Path) -> None:
    root = str(tmp_path)
    write(folder_index(root), {folder_key("a/1.jpg"): b"one", folder_key("2.jpg"): b"two"}, FOLDER)
    crops = open_folder_crops("auto", root, [])
    assert crops is not None
    keys = crops.keys([f"{root}/a/1.jpg", f"{root}/2.jpg", f"{root}/3.jpg", f"{root}/./a//1.jpg"])
    found = [crops.find(key) for key in keys.tolist()]
    assert [entry and bytes(entry) for entry in found] == [b"one", b"two", None, b"one"]
    assert open_folder_crops("auto", str(tmp_path / "a"), []) is None


@with_cases(
    ("root", "path", "name"),
    [
        ("r", "r/a/b.jpg", "a/b.jpg"),
        ("r/", "r/a.jpg", "a.jpg"),
        ("s3://b/r", "s3://b/r/a.jpg", "a.jpg"),
        ("r", "rr/a.jpg", "rr/a.jpg"),
        (".", "./a.jpg", "a.jpg"),
    ],
)
def test_names_are_relative_to_the_folder(root: str, path: str, name: str) -> None:
    assert relative_name(root, path) == name


def test_few_of_many_indexes_are_open_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lookup, "_MOST_OPEN", 3)
    paths = [str(tmp_path / f"{number}.rec") for number in range(8)]
    for number, path in enumerate(paths):
        write(record_index(path), {0: b"%d" % number})
    before = len(os.listdir("/proc/self/fd")) if os.path.exists("/proc/self/fd") else None
    crops = open_crops("auto", paths)
    assert crops is not None
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) == before
    kept = [crops.find(number, 0) for number in (*range(8), *range(8))]
    assert [bytes(entry or b"") for entry in kept] == [b"%d" % number for number in range(8)] * 2
    del kept
    if before is not None:
        assert len(os.listdir("/proc/self/fd")) <= before + 3


def test_the_number_of_a_file_changes_with_it(rec: Path) -> None:
    before = file_number(str(rec))
    assert before == file_number(str(rec))
    os.utime(rec, ns=(1, 1))
    assert file_number(str(rec)) != before
