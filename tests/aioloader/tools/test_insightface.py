"""Tests of converting a folder of identities to a set in InsightFace's layout, and back."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from aioloader.datasets import InsightFaceDataset
from aioloader.tools.insightface import extract_faces, main, pack_faces
from aioloader.tools.pack import PackError
from tests.aioloader.datasets.faces import Reader

ROOT = Path(__file__).parents[3]


def encoded(number: int, height: int = 12, width: int = 12, suffix: str = ".png") -> bytes:
    image = np.full((height, width, 3), number, np.uint8)
    done, data = cv2.imencode(suffix, image)
    assert done
    return data.tobytes()


@pytest.fixture
def crops(tmp_path: Path) -> Path:
    """Make three identities with 2, 1 and 3 crops of 12 x 12 pixels: each is filled with its number."""
    root = tmp_path / "crops"
    for name, numbers in {"ann b": (1, 2), "bob": (3,), "zoë": (4, 5, 6)}.items():
        (root / name).mkdir(parents=True)
        for number in numbers:
            (root / name / f"{number}.png").write_bytes(encoded(number))
    return root


def test_what_is_packed_is_what_insightfaces_reader_sees(crops: Path, tmp_path: Path) -> None:
    done: list[int] = []
    report = pack_faces(crops, tmp_path / "set", tick=done.append)
    assert (report.images, report.size, report.identities) == (6, (12, 12), ("ann b", "bob", "zoë"))
    assert (report.resized, report.skipped, report.without, report.exact) == (0, [], (), True)
    assert done == [1, 2, 3, 4, 5, 6]
    folder = tmp_path / "set"
    assert sorted(path.name for path in folder.iterdir()) == [
        "property",
        "train.idx",
        "train.lst",
        "train.rec",
    ]
    assert (folder / "property").read_text() == "3,12,12\n"
    assert report.nbytes == (folder / "train.rec").stat().st_size
    reader = Reader(folder)
    assert [reader[index] for index in range(len(reader))] == [
        (encoded(number), label) for number, label in zip(range(1, 7), [0, 0, 1, 2, 2, 2], strict=True)
    ]
    # As InsightFace's other readers do: identity by identity, by the records of the identities.
    header, _ = recordio.unpack(reader.records.read_idx(0))
    ranges = [
        recordio.unpack(reader.records.read_idx(key))[0].label for key in range(*header.label.astype(int))
    ]
    assert [tuple(pair) for pair in ranges] == [(1, 3), (3, 4), (4, 7)]
    reader.close()
    lines = (folder / "train.lst").read_text(encoding="utf-8").splitlines()
    assert lines[2] == f"1\t{crops / 'bob' / '3.png'}\t1"
    dataset = InsightFaceDataset(folder)
    assert (dataset.num_classes, dataset.image_size, len(dataset)) == (3, (12, 12), 6)
    assert dataset.labels().tolist() == [0, 0, 1, 2, 2, 2]


def test_an_index_made_by_a_scan_has_the_same_keys(crops: Path, tmp_path: Path) -> None:
    pack_faces(crops, tmp_path)
    idx = tmp_path / "train.idx"
    before = idx.read_bytes()
    idx.unlink()
    recordio.build_index(tmp_path / "train.rec")
    assert idx.read_bytes() == before
    assert recordio.verify(tmp_path / "train.rec").ok


def test_images_of_another_size_are_refused_or_left_out(crops: Path, tmp_path: Path) -> None:
    other = crops / "bob" / "odd.png"
    other.write_bytes(encoded(9, 12, 16))
    with pytest.raises(
        PackError, match=r"12 x 16 pixels, and the first image is 12 x 12; .* --size"
    ) as caught:
        pack_faces(crops, tmp_path / "set")
    assert caught.value.path == str(other)
    assert list((tmp_path / "set").iterdir()) == []
    report = pack_faces(crops, tmp_path / "set", on_error="skip")
    assert [path for path, _ in report.skipped] == [str(other)]
    assert len(InsightFaceDataset(tmp_path / "set")) == 6


def test_size_touches_only_what_has_another_one(crops: Path, tmp_path: Path) -> None:
    (crops / "bob" / "wide.jpg").write_bytes(encoded(200, 24, 48, ".jpg"))
    (crops / "bob" / "small.jpg").write_bytes(encoded(100, 6, 6, ".jpg"))
    report = pack_faces(crops, tmp_path / "set", size=(12, 12))
    assert (report.images, report.resized) == (8, 2)
    reader = Reader(tmp_path / "set")
    bodies = [reader[index][0] for index in range(8)]
    reader.close()
    assert [encoded(number) in bodies for number in range(1, 7)] == [True] * 6
    images = [image for image, _ in InsightFaceDataset(tmp_path / "set")]
    assert {image.shape for image in images} == {(12, 12, 3)}
    assert abs(float(images[3].mean()) - 100) < 3
    assert abs(float(images[4].mean()) - 200) < 3


def test_a_cut_in_the_middle_keeps_the_middle(tmp_path: Path) -> None:
    image = np.zeros((8, 24, 3), np.uint8)
    image[:, 8:16] = 255
    (tmp_path / "crops" / "a").mkdir(parents=True)
    cv2.imwrite(str(tmp_path / "crops" / "a" / "x.png"), image)
    pack_faces(tmp_path / "crops", tmp_path / "set", size=(8, 8))
    assert InsightFaceDataset(tmp_path / "set")[0][0].mean() > 250


def test_labels_stay_where_an_identity_has_no_valid_image(crops: Path, tmp_path: Path) -> None:
    (crops / "bob" / "3.png").write_bytes(b"no image")
    with pytest.raises(PackError, match="cannot decode"):
        pack_faces(crops, tmp_path / "set")
    report = pack_faces(crops, tmp_path / "set", on_error="skip")
    assert report.without == ("bob",)
    dataset = InsightFaceDataset(tmp_path / "set")
    assert dataset.num_classes == 3
    assert list(dataset.identities) == [range(0, 2), range(2, 2), range(2, 5)]
    assert dataset.labels().tolist() == [0, 0, 2, 2, 2]


def test_after_an_error_what_was_there_is_still_there(crops: Path, tmp_path: Path) -> None:
    pack_faces(crops, tmp_path / "set")
    before = {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()}
    (crops / "zoë" / "bad.png").write_bytes(b"")
    with pytest.raises(PackError):
        pack_faces(crops, tmp_path / "set")
    assert {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()} == before
    for path in crops.rglob("*.png"):
        path.write_bytes(b"")
    with pytest.raises(PackError, match="none of the 7 images could be packed"):
        pack_faces(crops, tmp_path / "set", on_error="skip")
    assert {path.name: path.read_bytes() for path in (tmp_path / "set").iterdir()} == before


@pytest.mark.parametrize(
    "options",
    [{"on_error": "replace"}, {"size": (0, 4)}, {"quality": 101}, {"num_workers": 0}],
    ids=str,
)
def test_bad_options_are_refused(crops: Path, tmp_path: Path, options: Any) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        pack_faces(crops, tmp_path / "set", **options)
    assert not (tmp_path / "set").exists()


def test_images_without_sub_folders_are_no_identities(crops: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="create one for each identity"):
        pack_faces(crops / "bob", tmp_path / "set")


def test_there_and_back_again(crops: Path, tmp_path: Path) -> None:
    pack_faces(crops, tmp_path / "set")
    done: list[int] = []
    assert extract_faces(tmp_path / "set", tmp_path / "files", tick=done.append) == 6
    assert done == [6]
    files = sorted(
        path.relative_to(tmp_path / "files").as_posix() for path in (tmp_path / "files").rglob("*.png")
    )
    assert files == [f"{label}/{key:08d}.png" for key, label in enumerate([0, 0, 1, 2, 2, 2], 1)]
    assert (tmp_path / "files" / "1" / "00000003.png").read_bytes() == encoded(3)
    pack_faces(tmp_path / "files", tmp_path / "again")
    for name in ("train.rec", "train.idx", "property"):
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "set" / name).read_bytes()
    with pytest.raises(FileExistsError, match="is not empty"):
        extract_faces(tmp_path / "set", tmp_path / "files")


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command_packs_and_extracts(
    crops: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (crops / "bob" / "big.png").write_bytes(encoded(8, 20, 20))
    (crops / "bob" / "bad.png").write_bytes(b"x")
    out = tmp_path / "set"
    assert main([str(crops), str(out), "--size", "12x12", "--on-error", "skip"]) == 0
    captured = capsys.readouterr()
    first, *more = captured.out.splitlines()
    assert first.startswith(f"{out / 'train.rec'}: 7 images of 3 identities, 12 x 12 pixels, ")
    assert more == ["1 had another size and were re-encoded; resizing does not align faces", "1 left out"]
    assert f"left out {crops / 'bob' / 'bad.png'}: " in captured.err
    assert main([str(out), str(tmp_path / "files"), "--extract"]) == 0
    assert capsys.readouterr().out == f"{tmp_path / 'files'}: 7 images\n"
    assert main([str(out), str(tmp_path / "files"), "--extract"]) == 1
    assert "is not empty" in capsys.readouterr().err


@pytest.mark.parametrize("size", ["0", "x", "12x", "12x0", "-3", "99999"])
def test_a_bad_size_is_wrong_usage(size: str, capsys: pytest.CaptureFixture[str]) -> None:
    if size == "12x":
        assert main(["/gone", "/nowhere", f"--size={size}"]) == 2  # the same as 12
        return
    with pytest.raises(SystemExit) as caught:
        main(["/gone", "/nowhere", f"--size={size}"])
    assert caught.value.code == 2
    assert "is not a size" in capsys.readouterr().err


@pytest.mark.parametrize("option", ["--quality=0", "--quality=101", "--num-workers=0", "--num-workers=x"])
def test_numbers_out_of_range_are_wrong_usage(option: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["/gone", "/nowhere", option])
    assert ended.value.code == 2
    assert "must be a whole number from 1 to" in capsys.readouterr().err


def test_a_missing_folder_is_2_and_a_file_too(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(tmp_path / "gone"), str(tmp_path / "set")]) == 2
    (tmp_path / "file").write_text("")
    assert main([str(tmp_path / "file"), str(tmp_path / "set")]) == 2
    assert main([str(tmp_path / "gone.rec"), str(tmp_path / "x"), "--extract"]) == 2
    err = capsys.readouterr().err.splitlines()
    assert len(err) == 3
    assert all(line.startswith("insightface: error: ") for line in err)
    assert not (tmp_path / "set").exists()


@pytest.mark.slow
def test_it_runs_as_a_module(crops: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "aioloader.tools.insightface", str(crops), str(tmp_path / "set")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONWARNINGS": "error"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "6 images of 3 identities" in done.stdout
    assert "packing: 100%" in done.stderr
