"""Tests of `open_dataset`: what is at a path decides on the class, and errors name what is there and what helps."""

from __future__ import annotations

import io
import json
import os
import pickle
import re
import shutil
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader.errors import AmbiguousPathError, UnknownFormatError
from aioloader.formats.base import Format, formats
from aioloader.formats.folder.format import FORMAT as FOLDER
from aioloader.formats.insightface.format import FORMAT as FACES
from aioloader.formats.insightface.verification import read_verification_pairs
from aioloader.formats.mds.format import FORMAT as MDS
from aioloader.formats.opening import open_dataset, recognize
from aioloader.formats.parquet.format import FORMAT as PARQUET
from aioloader.formats.recordio.format import FORMAT as RECORDS
from aioloader.formats.tar.format import FORMAT as TAR
from aioloader.formats.tfrecord.format import FORMAT as TFRECORD
from aioloader.tools.pack import pack
from recordio import MAGIC
from recordio.errors import NotSeekableError
from tests.cases import with_cases


def _tar_bytes() -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        archive.addfile(tarfile.TarInfo("0.jpg"))
    return buffer.getvalue()


# Beginnings of files; recognition reads no more.
BYTES = {
    RECORDS: MAGIC.to_bytes(4, "little") + bytes(28),
    TAR: _tar_bytes(),
    TFRECORD: bytes.fromhex("0300000000000000b099490e") + bytes(7),
    PARQUET: b"PAR1" + bytes(20) + b"PAR1",
}
SUFFIX = {RECORDS: ".rec", TAR: ".tar", TFRECORD: ".tfrecord", PARQUET: ".parquet"}
MDS_TEXT = json.dumps({"shards": [], "version": 2})


def put(folder: Path, *names: str, kind: Format = TAR) -> Path:
    """Write files of the kind of their suffix, or of `kind`, and return the folder."""
    for name in names:
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        kinds = [each for each, suffix in SUFFIX.items() if name.endswith(suffix)]
        path.write_bytes(MDS_TEXT.encode() if path.name == "index.json" else BYTES[(*kinds, kind)[0]])
    return folder


@with_cases("kind", BYTES)
def test_a_file_is_recognized_by_its_name_or_its_bytes(kind: Format, tmp_path: Path) -> None:
    for name in (f"data{SUFFIX[kind]}", "data.bin"):
        found = recognize(put(tmp_path, name, kind=kind) / name)
        assert found.format is kind
        assert found.paths == (str(tmp_path / name),)


@with_cases("kind", BYTES)
def test_all_shards_of_a_folder_in_order(kind: Format, tmp_path: Path) -> None:
    tmp_path = tmp_path / kind.name
    names = [f"train-{number}{SUFFIX[kind]}" for number in (2, 0, 1)]
    put(tmp_path, *names, kind=kind)
    for other in ("README.md", "train-0.idx", "train-0.tar.samples", ".hidden.tar", "labels.json"):
        (tmp_path / other).write_bytes(b"x")
    found = recognize(tmp_path)
    assert found.format is kind
    assert found.paths == tuple(str(tmp_path / name) for name in sorted(names))
    assert recognize(str(tmp_path / f"train-*{SUFFIX[kind]}")) == found
    assert recognize(found.paths) == found


def test_numbered_files_without_suffix(tmp_path: Path) -> None:
    names = [f"train-{number:05}-of-00003" for number in range(3)]
    put(tmp_path, *names, kind=TFRECORD)
    paths = tuple(str(tmp_path / name) for name in names)
    for path in (tmp_path, str(tmp_path / "train-*"), list(paths)):
        found = recognize(path)
        assert (found.format, found.paths) == (TFRECORD, paths)


def test_folders_with_an_index(tmp_path: Path) -> None:
    (tmp_path / "index.json").write_text(MDS_TEXT)
    (tmp_path / "shard.00000.mds").write_bytes(b"x")
    assert recognize(tmp_path).format is MDS
    found = recognize(tmp_path / "index.json")
    assert (found.format, found.paths) == (MDS, (str(tmp_path),))
    (tmp_path / "index.json").write_text('{"chunks": [], "config": {}}')
    with pytest.raises(UnknownFormatError, match="LitData"):
        recognize(tmp_path)


def test_an_index_in_the_current_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "index.json").write_text(MDS_TEXT)
    monkeypatch.chdir(tmp_path)
    assert recognize("index.json").paths == (os.curdir,)


@pytest.mark.filterwarnings("ignore:Ignoring:UserWarning")
def test_folders_of_images(photo_folder: Path, tmp_path: Path) -> None:
    assert recognize(photo_folder).format is FOLDER
    dataset = open_dataset(photo_folder, synsets=[sorted(path.name for path in photo_folder.iterdir())[0]])
    assert isinstance(dataset, aioloader.ImageFolderDataset)
    assert len(dataset.synsets) == 1
    # The first sub-folder has no image.
    shutil.copytree(photo_folder, tmp_path / "set")
    (tmp_path / "set" / "!empty").mkdir()
    assert recognize(tmp_path / "set").format is FOLDER


def test_record_files_and_options(photo_rec: Path, tmp_path: Path) -> None:
    dataset = open_dataset(photo_rec, label_dtype="float32")
    assert isinstance(dataset, aioloader.ImageRecordDataset)
    assert dataset[0][1].dtype == "float32"
    for name in ("a-0", "a-1"):
        shutil.copy(photo_rec, tmp_path / f"{name}.rec")
        shutil.copy(photo_rec.with_suffix(".idx"), tmp_path / f"{name}.idx")
    assert len(open_dataset(tmp_path)) == 2 * len(dataset)


def test_a_set_in_insightfaces_layout(tmp_path: Path) -> None:
    put(tmp_path, "train.rec")
    (tmp_path / "train.idx").write_text("0\t0\n")
    (tmp_path / "property").write_text("2,112,112")
    given: list[Any] = [tmp_path, tmp_path / "train.rec", [tmp_path / "train.rec"], tmp_path / "tra*.rec"]
    for path in given:
        found = recognize(path)
        assert (found.format, found.paths) == (FACES, (str(tmp_path / "train.rec"),))


def test_the_only_sub_folder_with_data_is_taken(tmp_path: Path) -> None:
    put(tmp_path / "data", "a-0.parquet", "a-1.parquet")
    (tmp_path / "docs").mkdir()
    assert recognize(tmp_path) == recognize(tmp_path / "data")


# -- several data sets -------------------------------------------------------------------------------------------------


def ambiguous(path: Path) -> AmbiguousPathError:
    with pytest.raises(AmbiguousPathError) as caught:
        recognize(path)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, AmbiguousPathError)
    assert error.path == str(path)
    assert isinstance(error, ValueError)
    for choice in error.choices:
        assert repr(choice) in str(error)
        assert recognize(choice)  # each of them can be opened
    return error


TWO_SPLITS = ["train-0.tar", "train-1.tar", "val-0.tar"]


@with_cases(
    ("names", "choices", "text"),
    [
        (TWO_SPLITS, ["train-*.tar", "val-0.tar"], "tar files of several splits (train: 2, val: 1)"),
        (["extra.rec", "train.rec"], ["extra.rec", "train.rec"], "no split: 1, train: 1"),
        (["a-0.tar", "a-1.tar", "a.parquet"], ["a-*.tar", "a.parquet"], "2 tar files and 1 Parquet file"),
        (["all.tar", "cat/0.jpg", "dog/0.jpg"], ["all.tar"], "aioloader.ImageFolderDataset reads them"),
        (["test/index.json", "train/0.tar", "val/0.tar"], ["test", "train", "val"], ""),
        (["train/cat/0.jpg", "train/dog/0.jpg", "val/cat/0.jpg", "docs/notes.txt"], ["train", "val"], ""),
        (["train/cat/0.jpg", "val/cat/0.jpg", "test/0.jpg"], ["train", "val"], ""),
        (["train/cat/0.jpg", "test/0.jpg"], ["train"], ""),
    ],
)
def test_several_data_sets_are_not_mixed(
    names: list[str], choices: list[str], text: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = put(tmp_path_factory.mktemp("sets"), *names)
    error = ambiguous(folder)
    assert error.choices == tuple(f"{folder}/{choice}" for choice in choices)
    assert text in str(error)
    assert error.nested == names[0].startswith("train/cat")


def test_choices_in_a_folder_whose_name_is_a_pattern(tmp_path: Path) -> None:
    assert "set [[]1]" in ambiguous(put(tmp_path / "set [1]", *TWO_SPLITS)).choices[0]


def test_folders_in_a_class_are_no_data_set(tmp_path: Path) -> None:
    put(tmp_path, "train/0.jpg", "train/old/0.jpg", "bus/old/0.jpg", "car/0.jpg")
    assert recognize(tmp_path).format is FOLDER


def test_files_of_one_list_have_one_format(tmp_path: Path) -> None:
    put(tmp_path, "a.tar")
    put(tmp_path, "b.rec")
    with pytest.raises(ValueError, match=r"several formats.*a\.tar' \(tar\).*b\.rec' \(RecordIO\)"):
        open_dataset([tmp_path / "a.tar", tmp_path / "b.rec"])
    with pytest.raises(ValueError, match="is a folder"):
        open_dataset([tmp_path / "a.tar", tmp_path])
    with pytest.raises(ValueError, match="empty"):
        open_dataset([])


# -- what is not read --------------------------------------------------------------------------------------------------


def unknown(path: Path) -> UnknownFormatError:
    with pytest.raises(UnknownFormatError) as caught:
        recognize(path)
    error = pickle.loads(pickle.dumps(caught.value))
    assert isinstance(error, UnknownFormatError)
    assert isinstance(error, ValueError)
    assert error.path == str(path)
    assert all(kind.text in str(error) for kind in formats())
    return error


@with_cases(
    ("name", "data", "found", "advice"),
    [
        ("a.zip", b"PK\x03\x04", "ZIP archive", "extract it"),
        ("a.tar.gz", b"\x1f\x8b", "compressed as a whole", "decompress"),
        ("a.h5", b"\x89HDF\r\n\x1a\n", "HDF5", "h5py"),
        ("a.unknown", b"\x89HDF\r\n\x1a\n", "HDF5", "h5py"),
        ("a.unknown", bytes(16) + b"\xde\xc0\xef\xbe", "LMDB", "loader"),
        ("a.unknown", b"ARROW1\0\0", "Arrow", "to_parquet"),
        ("a.unknown", b"\x93NUMPY\x01", "NumPy", "ArrayDataset"),
        ("a.unknown", b"SQLite format 3\0", "database", ""),
        ("a.unknown", b"\xff\xd8\xff\xe0", "image", "sub-folder"),
        ("a.TGZ", b"x", "compressed", "decompress"),
        ("a.tar.samples", b"x", "index", ""),
        ("a.pt", b"x", "Python", ""),
        ("data.mdb", bytes(40), "LMDB", "loader"),
        ("a.arrow", b"ARROW1", "Arrow", "to_parquet"),
        ("a.csv", b"a,b\n", "table", "ImageListDataset"),
        ("a.npy", b"\x93NUMPY", "NumPy", "ArrayDataset"),
        ("a.lst", b"0\t1.0\ta.jpg\n", "list of images", "ImageListDataset"),
        ("a.idx", b"0\t0\n", "index", r"\.rec file"),
        ("a.jpg", b"\xff\xd8\xff\xe0", "image", "sub-folder"),
        ("a.mds", b"x", "MDS", "open its folder"),
        ("a.unknown", b"\x28\xb5\x2f\xfd", "compressed", "decompress"),
        ("a.tar", b"\x1f\x8b\x08", "named as a tar file, but compressed", "decompress"),
        ("a.parquet", b"PK\x03\x04", "named as a Parquet file, but a ZIP archive", "extract"),
        ("a.unknown", b"hello world", r"of an unknown format \(it begins with b'hello wo'\)", "can be read"),
        ("empty", b"", "empty", "check"),
    ],
)
def test_a_file_of_another_format(name: str, data: bytes, found: str, advice: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(data)
    assert re.search(f"{found}.*{advice}", str(unknown(tmp_path / name)))


def test_a_file_of_this_suffix_is_left_to_its_class(tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(b"")
    assert recognize(tmp_path / "a.tar").format is TAR


@with_cases(
    ("names", "message"),
    [
        (["a.jpg"], "label=None reads its images without labels; or make a sub-folder for each class"),
        (["README.md", "train.zip"], "'train.zip' in it is a ZIP archive: extract it"),
        (["class/"], "a sub-folder with images"),
        (
            ["images/cat/0.jpg", "images/dog/0.jpg", "docs/notes.txt"],
            "images' has a sub-folder of images for each class: pass it instead",
        ),
    ],
)
def test_a_folder_without_a_data_set(names: list[str], message: str, tmp_path: Path) -> None:
    root = tmp_path / str(len(names))
    if names == ["class/"]:
        (root := tmp_path / "empty").joinpath("class").mkdir(parents=True)
    else:
        put(root, *names)
    assert message in str(unknown(root))


def test_a_folder_that_may_not_be_listed_is_passed_over(photo_folder: Path, tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may list any folder")
    shutil.copytree(photo_folder, tmp_path / "set")
    (tmp_path / "set" / "!lost").mkdir(mode=0)
    assert recognize(tmp_path / "set").format is FOLDER


def test_nothing_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="nothing here"):
        open_dataset(tmp_path / "nothing here")
    with pytest.raises(FileNotFoundError):
        open_dataset(str(tmp_path / "nothing-*.tar"))


def test_an_option_that_the_class_does_not_have(photo_rec: Path) -> None:
    for option in ("fields", "self"):
        with pytest.raises(
            TypeError, match=f"read by ImageRecordDataset, which has no option '{option}'; it has .*exif"
        ):
            open_dataset(photo_rec, **{option: "x"})


# -- pipes and devices -------------------------------------------------------------------------------------------------

READERS: dict[str, tuple[str, Callable[[Path], object]]] = {
    **{
        f"open_dataset, a{suffix}": (f"a{suffix}", open_dataset)
        for suffix in ("", ".rec", ".tar", ".tfrecord", ".parquet")
    },
    **{
        cls.__name__: (f"a{suffix}", lambda path, cls=cls: cls(path)[0])
        for cls, suffix in (
            (aioloader.RecordFileDataset, ".rec"),
            (aioloader.TarDataset, ".tar"),
            (aioloader.TFRecordDataset, ".tfrecord"),
            (aioloader.ParquetDataset, ".parquet"),
        )
    },
    "open_dataset, an index": ("index.json", lambda path: open_dataset(path.parent)),
    "MDSDataset": ("index.json", lambda path: aioloader.MDSDataset(path.parent)[0]),
    "a .lst file": ("a.lst", lambda path: aioloader.ImageListDataset(path.parent, path.name)),
    "a .csv file": ("a.csv", lambda path: aioloader.ImageListDataset(path.parent, path.name)),
    "MNIST": ("train-images-idx3-ubyte", lambda path: aioloader.datasets.MNIST(path.parent)),
    "pairs of faces": ("a.bin", read_verification_pairs),
    "pack, a list": ("a.lst", lambda path: pack(path, path.with_name("out"))),
}


@with_cases(("name", "read"), READERS.values(), ids=READERS)
@with_cases("kind", ["pipe", "terminal"])
def test_a_pipe_or_device_is_refused_at_once(
    name: str, read: Callable[[Path], object], kind: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp(kind) / name
    terminal = os.openpty() if kind == "terminal" else ()
    if terminal:
        path.symlink_to(os.ttyname(terminal[1]))
    else:
        os.mkfifo(path)
    with pytest.raises(NotSeekableError, match="can only be read once") as caught:
        read(path)
    assert caught.value.path == str(path)
    for descriptor in terminal:
        os.close(descriptor)
