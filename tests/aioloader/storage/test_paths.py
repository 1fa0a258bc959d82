"""Tests of users' paths: local ones, ``file://``, and URLs of unsupported schemes."""

import pickle
from importlib.metadata import entry_points

import pytest

import aioloader
from aioloader.cli import main
from aioloader.errors import UnknownSchemeError
from aioloader.storage.urls import SCHEMES, path_of
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import pack
from tests.cases import with_cases


@with_cases("scheme", SCHEMES)
def test_urls_that_are_read_stay_as_they_are(scheme):
    assert path_of(f"{scheme}://place/~/a%20b.rec?x") == f"{scheme}://place/~/a%20b.rec?x"


def test_home_is_expanded_and_paths_are_taken(monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert path_of("~/photos") == str(tmp_path / "photos")
    assert path_of(tmp_path) == str(tmp_path)
    assert path_of("./ftp://odd") == "./ftp://odd"


def test_a_file_url_is_a_local_path(tmp_path):
    draw_folder(tmp_path / "photos", count=10)
    pack(tmp_path / "photos", f"file://{tmp_path}/packed", encoding="keep")
    folder = aioloader.ImageFolderDataset(f"file://{tmp_path}/photos")
    records = aioloader.ImageRecordDataset(f"file://{tmp_path}/packed.rec")
    assert len(folder) == len(records) == 10
    assert len(aioloader.RecordFileDataset(f"file://{tmp_path}/pack*.rec")) == 10
    assert main(["verify", f"file://{tmp_path}/packed.rec"]) == 0


@pytest.mark.parametrize(
    "make",
    [
        aioloader.images,
        aioloader.ImageFolderDataset,
        aioloader.ImageRecordDataset,
        aioloader.RecordFileDataset,
        aioloader.datasets.InsightFaceDataset,
        lambda path: aioloader.ImageListDataset(path, [(0, "a.jpg")]),
        lambda path: pack(".", path),
    ],
    ids=["images", "folder", "images in records", "records", "faces", "list", "pack"],
)
def test_an_unknown_scheme_is_said_to_be_one(make, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownSchemeError, match=r"ftp:// URLs are not read.*s3") as caught:
        make("FTP://host/a.rec")
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.path, error.scheme) == ("FTP://host/a.rec", "ftp")
    assert set(SCHEMES) < set(error.known)
    assert not list(tmp_path.iterdir())  # in particular no folder named "FTP:"


@pytest.mark.parametrize("command", ["inspect", "verify", "bench"])
def test_commands_say_it_in_a_line(command, capsys):
    assert main([command, "s3x://bucket/a.rec"])
    assert "s3x:// URLs are not read" in capsys.readouterr().err


def test_recordio_finds_the_openers_of_all_schemes():
    names = {point.name for point in entry_points(group="recordio.openers") if point.dist.name == "aioloader"}
    assert names == set(SCHEMES)
