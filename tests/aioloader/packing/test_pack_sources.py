"""Tests of packing other sources than folders: lists with one or several labels, and the well-known sets."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader
from aioloader.cli import main
from aioloader.packing.lists import read_lines
from aioloader.packing.sources import list_source
from aioloader.tools.im2rec import main as im2rec
from aioloader.tools.pack import pack
from aioloader.transforms import raw_image
from tests.aioloader.datasets.vision_files import cifar_rows, write_cifar, write_mnist
from tests.aioloader.packing.sample_sets import records
from tests.cases import with_cases

DATA = Path(__file__).parents[2] / "data" / "mxnet"
GOLDEN = DATA / "im2rec_src"


# -- lists -------------------------------------------------------------------------------------------------------------


def test_a_list_gives_the_records_that_im2rec_makes(tmp_path: Path) -> None:
    for name in ("theirs", "ours"):
        (tmp_path / name).mkdir()
        shutil.copy(DATA / "multilabel.lst", tmp_path / name / "set.lst")
    words = ["--pass-through", "--pack-label", str(tmp_path / "theirs" / "set"), str(GOLDEN)]
    assert im2rec(words) == 0
    before = (tmp_path / "ours" / "set.lst").read_bytes()
    report = pack(tmp_path / "ours" / "set.lst", tmp_path / "ours" / "set", root=GOLDEN)
    for ending in ("rec", "idx"):
        theirs, ours = (tmp_path / name / f"set.{ending}" for name in ("theirs", "ours"))
        assert theirs.read_bytes() == ours.read_bytes()
    assert (tmp_path / "ours" / "set.lst").read_bytes() == before  # the source itself
    assert report.files[0].lst is None
    assert report.labels == {}
    assert not (tmp_path / "theirs" / "set.json").exists()


def test_ids_are_keys_and_labels_are_written_as_they_are(tmp_path: Path) -> None:
    names = [str(path.relative_to(GOLDEN)) for path in sorted(GOLDEN.rglob("*.*"))][:3]
    labels = [(0.1234567890123,), (1.0, 2.5), (1e20,)]
    lines = [
        f"{key}\t" + "".join(f"{label!r}\t" for label in each) + name
        for key, each, name in zip((7, 3, 2**62), labels, names, strict=True)
    ]
    (tmp_path / "some.lst").write_text("\n".join(lines) + "\n\n")
    report = pack(tmp_path / "some.lst", tmp_path / "out", root=GOLDEN)
    assert [header.id for header, _ in records(report.rec)] == [7, 3, 2**62]
    made = report.lst.read_text().splitlines()
    assert [tuple(map(float, line.split("\t")[1:-1])) for line in made] == labels
    assert made[1] == f"3\t1.000000\t2.500000\t{names[1]}"


def test_a_failed_entry_keeps_its_id_for_what_stands_in(tmp_path: Path) -> None:
    name = next(str(path.relative_to(GOLDEN)) for path in sorted(GOLDEN.rglob("*.*")))
    (tmp_path / "some.lst").write_text(f"5\t1\tmissing.jpg\n8\t2\t{name}\n9\t3\tgone.jpg\n")
    report = pack(tmp_path / "some.lst", tmp_path / "out", root=GOLDEN, on_error="replace")
    assert [(header.id, header.label) for header, _ in records(report.rec)] == [(5, 2.0), (8, 2.0), (9, 2.0)]
    assert [error.key for error in report.errors] == [5, 9]
    skipped = pack(tmp_path / "some.lst", tmp_path / "out", root=GOLDEN, on_error="skip")
    assert [header.id for header, _ in records(skipped.rec)] == [8]


@with_cases(
    ("text", "message"),
    [
        ("", "lists no images"),
        ("1\ta.jpg\n", "line 1"),
        ("x\t1\ta.jpg\n", "line 1"),
        ("1\t1\ta.jpg\n1\t1\tb.jpg\n", "the id 1 occurs twice"),
        ("-1\t1\ta.jpg\n", "not between 0"),
        ("1\t1\t../a.jpg\n", "leads out of the root"),
        ("1\t1\t/etc/passwd\n", "leads out of the root"),
        ("1\t1e39\ta.jpg\n", "range of float32"),
        (
            "1\t16777216\ta.jpg\n2\t16777217\ta.jpg\n",
            "the id 2 is 16777217, which float32 cannot store exactly",
        ),
        ("1\t9007199254740993\ta.jpg\n", "line 1 .*too large to be read exactly"),
        ("1\t0\t16777217.0\ta.jpg\n", "float32 cannot store exactly"),
        ("1\tnan\ta.jpg\n", "is not a number"),
    ],
)
def test_lists_that_are_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "bad.lst").write_text(text)
    with pytest.raises(ValueError, match=message):
        pack(tmp_path / "bad.lst", tmp_path / "out")
    assert [path.name for path in tmp_path.iterdir()] == ["bad.lst"]


def test_what_is_no_source_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "a.rec").write_bytes(b"")
    out = str(tmp_path / "out")
    assert main(["pack", str(tmp_path / "a.rec"), out]) == 1
    assert main(["pack", str(tmp_path / "none"), out]) == 2
    assert main(["pack", str(tmp_path / "none.lst"), out]) == 2
    shutil.copy(DATA / "folder.lst", tmp_path / "some.lst")
    assert main(["pack", str(tmp_path / "some.lst"), out, "--root", str(tmp_path / "nowhere")]) == 2
    told = capsys.readouterr().err
    for words in (
        "there are no samples",
        "there is no file or folder",
        "there is no list",
        "there is no folder",
    ):
        assert words in told
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.rec", "some.lst"]


def test_a_file_of_somebody_else_is_not_replaced_by_the_report(tmp_path: Path) -> None:
    (tmp_path / "set.json").write_text('{"annotations": []}')
    with pytest.raises(FileExistsError, match="is not a packing report"):
        pack(GOLDEN, tmp_path / "set")
    report = pack(GOLDEN, tmp_path / "set", json=tmp_path / "report.json")
    assert json.loads((tmp_path / "report.json").read_text())["records"] == report.records
    assert (tmp_path / "set.json").read_text() == '{"annotations": []}'


# -- sets --------------------------------------------------------------------------------------------------------------


def mnist(folder: Path) -> dict[str, tuple[Any, Any]]:
    """Write MNIST, and return images and labels of each part."""
    folder.mkdir(parents=True)
    parts = {"train": ("train", 30), "test": ("t10k", 12)}
    return {part: write_mnist(folder, *names, packed=part == "train") for part, names in parts.items()}


def cifar(folder: Path, kind: str) -> dict[str, tuple[Any, Any]]:
    """Write CIFAR, and return images and labels of each part."""
    folder.mkdir(parents=True)
    width, classes = (1, 10) if kind == "cifar10" else (2, 100)
    files = {f"data_batch_{n}.bin": "train" for n in range(1, 6)} if width == 1 else {"train.bin": "train"}
    made: dict[str, list[Any]] = {}
    for seed, (name, part) in enumerate({**files, f"test{'_batch' * (width == 1)}.bin": "test"}.items()):
        rows = cifar_rows(6, width, seed)
        rows[:, width - 1] %= classes
        write_cifar(folder, {name: rows}, None)
        made.setdefault(part, []).append(rows)
    tables = {part: np.concatenate(rows) for part, rows in made.items()}
    return {
        part: (rows[:, width:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1), rows[:, width - 1])
        for part, rows in tables.items()
    }


@pytest.mark.parametrize(
    ("kind", "encoding"), [("mnist", None), ("fashion-mnist", "raw"), ("cifar10", "raw"), ("cifar100", None)]
)
def test_sets_come_out_as_they_are(tmp_path: Path, kind: str, encoding: str | None) -> None:
    wanted = mnist(tmp_path / "in") if "mnist" in kind else cifar(tmp_path / "in", kind)
    words = ["pack", "--from", kind, str(tmp_path / "in"), str(tmp_path / "set")]
    assert main([*words, *(["--encoding", encoding] if encoding else [])]) == 0
    for part, (images, labels) in wanted.items():
        found = records(tmp_path / f"set_{part}.rec")
        assert [int(header.label) for header, _ in found] == labels.tolist()
        for (_, body), image in zip(found, images, strict=True):
            assert body.startswith(b"\x89PNG") == (encoding is None)
            pixels = raw_image(body) if encoding else cv2.imdecode(np.frombuffer(body, np.uint8), -1)
            if not encoding and pixels.ndim == 3:
                pixels = pixels[..., ::-1]
            np.testing.assert_array_equal(pixels.squeeze(), image)
    flag = 0 if "mnist" in kind else 1
    dataset = aioloader.ImageRecordDataset(tmp_path / "set_test.rec", flag=flag)
    np.testing.assert_array_equal(dataset[3][0].squeeze(), wanted["test"][0][3])
    report = json.loads((tmp_path / "set.json").read_text())
    assert [file["part"] for file in report["files"]] == ["train", "test"]
    assert len(report["classes"]) == (100 if kind == "cifar100" else 10)
    names = {"mnist": "0", "fashion-mnist": "T-shirt/top", "cifar10": "airplane", "cifar100": "apple"}
    assert report["classes"][0]["name"] == names[kind]
    assert sum(each["records"] for each in report["classes"]) == report["records"]


def test_sets_in_shards_mixed_and_small(tmp_path: Path) -> None:
    wanted = cifar(tmp_path / "in", "cifar10")
    options: dict[str, Any] = {
        "kind": "cifar10",
        "shuffle": True,
        "shards": 2,
        "resize": 16,
        "encoding": "raw",
    }
    report = pack(tmp_path / "in", tmp_path / "set", **options)
    assert [file.records for file in report.files] == [15, 15, 3, 3]
    assert report.resized == 36
    found = [record for file in report.files[2:] for record in records(file.rec)]
    assert sorted(int(header.label) for header, _ in found) == sorted(wanted["test"][1].tolist())
    again = pack(tmp_path / "in", tmp_path / "again", **options, executor="inline")
    assert [a.rec.read_bytes() for a in report.files] == [b.rec.read_bytes() for b in again.files]


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"kind": "mnist"}, FileNotFoundError, "nothing is downloaded"),
        ({"kind": "cifar10", "train_ratio": 0.5}, ValueError, "published train and test parts"),
        ({"kind": "cifar10", "encoding": "keep"}, ValueError, "not separate files that could be kept"),
        ({"kind": "cifar10", "pass_through": True}, ValueError, "leave out the options that change them"),
        ({"kind": "cifar10", "root": "."}, ValueError, "root can only be used with a list"),
    ],
)
def test_what_does_not_go_with_a_set(
    tmp_path: Path, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    cifar(tmp_path / "in", "cifar10")
    with pytest.raises(error, match=message):
        pack(tmp_path / "in", tmp_path / "set", **options)
    assert not list(tmp_path.glob("set*"))


def test_a_list_may_begin_with_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "a.lst"
    path.write_bytes(b"\xef\xbb\xbf7\t1\ta.jpg\r\n")
    assert [item.key for item in list_source(path).items] == [7]
    assert [image.key for image in read_lines(str(path), lambda *bad: pytest.fail(str(bad)))] == [7]


# -- folders that lack a class -----------------------------------------------------------------------------------------


def test_synsets_number_the_classes_of_a_folder_as_those_of_another(tmp_path: Path) -> None:
    for name in ("train/ant", "train/cat", "val/cat", "val/dog"):
        (tmp_path / name).mkdir(parents=True)
        shutil.copy(GOLDEN / "dog" / "x.JPG", tmp_path / name)
    report = pack(tmp_path / "val", tmp_path / "names", synsets=["ant", "cat"])
    assert (report.classes, report.empty) == (("ant", "cat"), ("ant",))
    assert report.left_out == {"not among the synsets": 1}
    assert (
        main(["pack", str(tmp_path / "val"), str(tmp_path / "dir"), "--synsets", str(tmp_path / "train")])
        == 0
    )
    for name in ("names", "dir"):
        assert [head.label for head, _ in records(tmp_path / f"{name}.rec")] == [1]
    for wrong in ("cat", ["cat", "cat"]):
        with pytest.raises(ValueError, match="different names"):
            pack(tmp_path / "val", tmp_path / "no", synsets=wrong)
    with pytest.raises(ValueError, match="without images"):
        pack(tmp_path / "val", tmp_path / "no", synsets=["bee"])
    with pytest.raises(TypeError, match="synsets number the classes of a folder"):
        pack(DATA / "multilabel.lst", tmp_path / "no", root=GOLDEN, synsets=["ant"])
