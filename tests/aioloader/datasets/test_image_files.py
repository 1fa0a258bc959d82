"""Tests of the rule for the images and the classes of a folder, in every part that reads folders."""

from __future__ import annotations

import json
import os
from pathlib import Path

import cv2
import numpy as np
import pytest

import aioloader
from aioloader.cli import main
from aioloader.errors import AmbiguousPathError, UnknownFormatError
from aioloader.formats.image_files import find_images
from aioloader.tools.crops import images_of_folder
from aioloader.tools.inspect import inspect
from aioloader.tools.pack import pack
from aioloader.tools.view import open_collection

# Images of the folder with the numbers of their classes, and what else is there.
IMAGES = {
    "cat/a.JPG": 1,
    "cat/b.tif": 1,
    "cat/c.jfif": 1,
    "cat/d.ppm": 1,
    "cat/e.webp": 1,
    "cat/f.gif": 1,
    "cat/g": 1,
    "cat/h.0001": 1,
    "cat/old/i.bmp": 1,
    "cat/old/j": 1,
    "dog/a.png": 2,
    "dog/b.avif": 2,
    "dog/c.jp2": 2,
}
CODECS = {".JPG": ".jpg", ".jfif": ".jpg", "": ".png", ".0001": ".jpg"}
# Older versions of OpenCV write, and read, fewer formats.
IMAGES = {
    name: label
    for name, label in IMAGES.items()
    if cv2.haveImageWriter(f"a{CODECS.get(Path(name).suffix, Path(name).suffix)}")
}
OTHERS = (
    *(".ipynb_checkpoints/a.png", "__MACOSX/cat/._a.png", "cat/._a.JPG", "cat/.hidden/a.png"),
    *("cat/README", "cat/notes.txt", "cat/b.heic", "cat/BMW", "loose.png", "labels.csv"),
)


def encoded(suffix: str, value: int) -> bytes:
    """Return an encoded image of one colour."""
    image = np.full((64, 64, 3), value, np.uint8)
    written: bytes = cv2.imencode(CODECS.get(suffix, suffix), image)[1].tobytes()
    return written


@pytest.fixture
def root(tmp_path: Path) -> Path:
    folder = tmp_path / "photos"
    (folder / "ant").mkdir(parents=True)
    for value, name in enumerate([*IMAGES, *OTHERS]):
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        text = b"BM, or P5 of the notes" if name in OTHERS and not name.endswith(".png") else None
        place.write_bytes(text or encoded(place.suffix, 9 * value))
    (folder / "cat" / "inside").symlink_to(folder / "dog")
    return folder


def test_all_parts_read_the_same_files_with_the_same_numbers(
    root: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wanted = [(str(root / name), label) for name, label in IMAGES.items()]
    with pytest.warns(UserWarning, match="entries|classes have") as caught:
        dataset = aioloader.ImageFolderDataset(root)
    assert dataset.items == wanted
    assert dataset.class_to_idx == {"ant": 0, "cat": 1, "dog": 2}
    reasons = {
        **{
            "hidden": 4,
            "of type .txt": 1,
            "of type .heic": 1,
            "a file without a suffix": 2,
            "of type .csv": 1,
        },
        **{"a link to a folder": 1, "outside the folders of the classes": 1},
    }
    assert dataset.left_out == reasons
    assert [str(each.message).split(" of ")[0] for each in caught] == ["Ignoring 11 entries", "1"]

    with (
        pytest.warns(UserWarning, match="entries|classes have"),
        aioloader.images(root, 8, train=False, blocking=True, executor="inline") as loader,
    ):
        (batch,) = loader
    assert batch[1].tolist() == list(IMAGES.values())

    report = pack(root, tmp_path / "out")
    del reasons["outside the folders of the classes"]
    assert (report.classes, report.left_out, report.outside) == (("ant", "cat", "dog"), reasons, 1)
    packed = aioloader.open_dataset(report.rec)
    assert len(packed) == len(dataset)
    for place, (image, label) in enumerate(packed):
        assert label == wanted[place][1]
        assert np.array_equal(image, dataset[place][0])

    found = inspect(root)
    assert (found.records, found.images is not None and found.images.damaged) == (len(wanted), [])
    assert found.details["class_names"] == ["cat", "dog"]
    assert any("notes.txt" in note or "11 entries" in note for note in found.details["passed_over"])

    collection = open_collection(root)
    collection.load()
    assert [collection.key(place) for place in range(collection.known)] == list(IMAGES)
    assert "11 entries" in " ".join(collection.problems)
    collection.close()

    assert main(["verify", "--decode", "--json", "--num-workers", "0", str(root)]) == 0
    (facts,) = json.loads(capsys.readouterr().out)["files"]
    assert facts["images"] == len(wanted) + 1  # the loose one, too
    assert facts["not_read"] == reasons
    assert [path for path, _ in images_of_folder(str(root)).items] == [
        *(path for path, _ in wanted),
        str(root / "loose.png"),
    ]


def test_names_are_enough_for_known_suffixes(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = []
    original = os.open
    monkeypatch.setattr(os, "open", lambda path, *rest: opened.append(str(path)) or original(path, *rest))
    find_images(str(root))
    names = {os.path.relpath(path, root) for path in opened if path.startswith(str(root))}
    assert names == {"cat/g", "cat/h.0001", "cat/old/j", "cat/README", "cat/BMW"}


def test_images_of_one_folder_are_read_without_labels(tmp_path: Path) -> None:
    for value, name in enumerate(["a", "b.png", "c.tif"]):
        (tmp_path / name).write_bytes(encoded(Path(name).suffix, 40 * value))
    with pytest.raises(UnknownFormatError, match="label=None"):
        aioloader.open_dataset(tmp_path)
    with aioloader.images(
        tmp_path, 8, batch_size=3, train=False, blocking=True, label=None, executor="inline"
    ) as loader:
        (batch,) = loader
    assert batch[:, 4, 4, 0].tolist() == [0, 40, 80]
    assert inspect(tmp_path).records == 3
    collection = open_collection(tmp_path)
    collection.load()
    assert collection.known == 3
    collection.close()


def test_a_folder_that_lacks_a_class_is_numbered_as_another(tmp_path: Path) -> None:
    for value, name in enumerate(["train/ant", "train/cat", "val/cat"]):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0.png").write_bytes(encoded(".png", value))
    synsets = aioloader.ImageFolderDataset(tmp_path / "train").synsets
    options = {"train": False, "blocking": True, "executor": "inline", "synsets": synsets}
    with pytest.warns(UserWarning, match="have no images"):
        loader = aioloader.images(tmp_path / "val", 8, **options)
    with loader:
        assert [labels.tolist() for _, labels in loader] == [[1]]


def test_splits_are_not_read_as_classes(tmp_path: Path) -> None:
    for name in ("train/cat", "val/cat"):
        (tmp_path / name).mkdir(parents=True)
        (tmp_path / name / "0.png").write_bytes(encoded(".png", 1))
    with pytest.raises(AmbiguousPathError, match="several splits"):
        aioloader.ImageFolderDataset(tmp_path)
    dataset = aioloader.ImageFolderDataset(tmp_path, synsets=["val", "train"])
    assert [label for _, label in dataset.items] == [0, 1]


def test_mxnets_dataset_keeps_mxnets_rule(root: Path) -> None:
    from aioloader.mxnet import gluon

    with pytest.warns(UserWarning, match="Ignoring|classes have"):
        dataset = gluon.data.vision.ImageFolderDataset(root)
    assert dataset.synsets == [".ipynb_checkpoints", "__MACOSX", "ant", "cat", "dog"]
    assert [os.path.relpath(path, root) for path, _ in dataset.items] == [
        *(".ipynb_checkpoints/a.png", "cat/._a.JPG", "cat/a.JPG", "dog/a.png")
    ]
