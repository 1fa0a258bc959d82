"""Tests of tars with an index of another program next to them: it saves the scan, and is never trusted blindly."""

from __future__ import annotations

import json
import os
import shutil
import tarfile
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from aioloader import TarDataset
from aioloader.formats.tar import index as tar_index
from tests.aioloader.datasets.conftest import pixels
from tests.aioloader.datasets.tars import members_of, photo, write_photos, write_tar
from tests.aioloader.formats.tars import END, header, member
from tests.combinations import combinations


def write_idx(tar: Path) -> Path:
    """Write the index of a tar as DALI's wds2idx does."""
    samples: dict[str, list[str]] = {}
    with tarfile.open(tar) as archive:
        for each in archive:
            key, _, extension = each.name.partition(".")
            samples.setdefault(key, []).append(f"{extension} {each.offset_data} {each.size} {each.name}")
    lines = [" ".join(members) for members in samples.values()]
    path = tar.with_suffix(".idx")
    path.write_text(f"v1.2 {len(lines)}\n" + "".join(f"{line}\n" for line in lines))
    return path


def write_json(tar: Path) -> Path:
    """Write the index of a tar as webshart does."""
    with tarfile.open(tar) as archive:
        files = {
            each.name: {"path": each.name, "offset": each.offset_data, "length": each.size}
            for each in sorted(archive, key=lambda each: hash(each.name))
        }
    path = tar.with_suffix(".json")
    path.write_text(json.dumps({"path": tar.name, "filesize": tar.stat().st_size, "files": files}))
    return path


WRITERS = {"wds2idx": write_idx, "webshart": write_json}


@pytest.fixture
def tar(tmp_path: Path) -> Path:
    """Write 23 samples as one tar."""
    return write_photos(tmp_path / "photos", per_shard=23) / "train-0.tar"


def assert_photos(path: Path) -> None:
    """Fail unless the samples of a tar are those of `photo`."""
    dataset = TarDataset(path, fields=("__key__", "png", "cls"))
    assert len(dataset) == 23
    for number in range(23):
        found = dataset[number]
        assert (found["__key__"], found["cls"]) == (photo(number)[0], number)
        assert np.array_equal(found["png"], pixels(number))


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_a_tar_with_an_index_is_not_scanned(
    tar: Path, write: Callable[[Path], Path], scans: list[str]
) -> None:
    place = write(tar)
    assert_photos(tar)
    assert scans == []
    place.unlink()
    assert_photos(tar)  # by the copy in the cache directory
    assert scans == []


def test_its_arrays_are_those_of_a_scan(tar: Path) -> None:
    scanned = tar_index.scan_tar(str(tar), None).arrays
    for write in WRITERS.values():
        place = write(tar)
        found = tar_index.tar_samples(str(tar), None)._asdict()
        assert set(found) == set(scanned)
        assert all((found[name] == scanned[name]).all() for name in found)
        place.unlink()
        os.utime(tar)  # another state: the kept index is not used


@pytest.mark.parametrize(
    ("write", "change"), combinations(WRITERS, ["cut", "moved", "renamed", "grown", "nonsense"])
)
def test_an_index_that_is_not_that_of_the_tar_is_ignored_with_a_warning(
    tar: Path, write: Callable[[Path], Path], change: str, scans: list[str]
) -> None:
    place = write(tar)
    text = place.read_text()
    if change == "cut":
        place.write_text(text[: len(text) // 2])
    elif change == "moved":
        place.write_text(text.replace("512", "513", 1))
    elif change == "renamed":
        place.write_text(text.replace("0000.", "0098."))
    elif change == "grown":
        write_tar(tar, [*members_of([photo(number) for number in range(23)]), ("more.txt", b"1")])
        place.touch()
    else:
        place.write_text(text.replace("512 ", "512 x ").replace('"offset":', '"offset": "a", "b":'))
    with pytest.warns(UserWarning, match=rf"{place.name} is ignored: .*the tar is scanned instead"):
        samples = tar_index.tar_samples(str(tar), None)
    assert len(samples) == 23 + (change == "grown")
    assert scans == [str(tar)]


@pytest.mark.parametrize("write", WRITERS.values(), ids=WRITERS)
def test_an_index_that_is_older_than_the_tar_is_not_used(
    tar: Path, write: Callable[[Path], Path], scans: list[str]
) -> None:
    status = tar.stat()
    place = write(tar)
    os.utime(place, ns=(status.st_mtime_ns - 1, status.st_mtime_ns - 1))
    assert_photos(tar)
    assert scans == [str(tar)]
    os.utime(tar, ns=(status.st_mtime_ns - 5, status.st_mtime_ns - 5))
    assert_photos(tar)
    assert scans == [str(tar)]


def test_other_things_of_the_name_are_not_an_index(tar: Path, scans: list[str]) -> None:
    def fill(what: str, place: Path) -> None:
        if what == "folder":
            place.mkdir()
        elif what == "pipe":
            os.mkfifo(place)
        else:
            place.write_text(what)

    copies = [shutil.copy(tar, tar.with_name(f"{number}.tar")) for number in range(2)]
    for path, *contents in zip(copies, ("folder", "0\t0\n1\t700\n"), ("pipe", '{"a": 1}'), strict=True):
        for suffix, what in zip((".idx", ".json"), contents, strict=True):
            fill(what, path.with_suffix(suffix))
        assert_photos(path)
    assert scans == list(map(str, copies))


def test_an_index_of_a_tar_with_folders_is_not_complete(tmp_path: Path, scans: list[str]) -> None:
    tar = tmp_path / "a.tar"
    tar.write_bytes(header(b"train/", kind=b"5") + member(b"train/0.cls", b"7") + END)
    (tmp_path / "a.idx").write_text("v1.2 1\ncls 1024 1 train/0.cls\n")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert TarDataset(tar, fields="cls")[0]["cls"] == 7
    assert scans == [str(tar)]
