"""Tests of packing options: each image gets exactly the requested changes, and the report lists them."""

from __future__ import annotations

import json
import zlib
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest
import simplejpeg

from aioloader.cli import _parser, main
from aioloader.tools.draw import draw_image
from aioloader.tools.pack import PackReport, pack
from aioloader.transforms import decode_image, image_size, raw_image
from tests.aioloader.packing.sample_sets import bodies, write_folder
from tests.cases import with_cases
from tests.executors import pool

IMAGE = draw_image(5, height=60, width=90)
GREY = np.ascontiguousarray(IMAGE[..., :1])
ALPHA = np.dstack([IMAGE, IMAGE[..., 0]])


def opencv(suffix: str, image: np.ndarray) -> bytes:
    """Encode an image in RGB order."""
    code = {3: cv2.COLOR_RGB2BGR, 4: cv2.COLOR_RGBA2BGRA}.get(image.shape[2])
    return cv2.imencode(suffix, image if code is None else cv2.cvtColor(image, code))[1].tobytes()


SOURCES = {
    "a.jpg": simplejpeg.encode_jpeg(IMAGE, 90),
    "b-grey.jpg": simplejpeg.encode_jpeg(GREY, 90, "GRAY", "Gray"),
    "c.png": opencv(".png", IMAGE),
    "d-alpha.png": opencv(".png", ALPHA),
    "e-deep.png": cv2.imencode(".png", IMAGE[..., 0].astype(np.uint16) * 257)[1].tobytes(),
    "f-square.jpg": simplejpeg.encode_jpeg(np.ascontiguousarray(IMAGE[:60, :60]), 90),
    "g.webp": opencv(".webp", IMAGE),
    "h-small.jpg": simplejpeg.encode_jpeg(np.ascontiguousarray(IMAGE[:20, :30]), 90),
}


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("options") / "in"
    root.mkdir()
    for name, data in SOURCES.items():
        (root / name).write_bytes(data)
    return root


def packed(source: Path, out: Path, **options: Any) -> tuple[dict[str, bytes], PackReport]:
    report = pack(source, out / "set", **options)
    return dict(zip(SOURCES, bodies(report.rec), strict=True)), report


@pytest.mark.parametrize("options", [{}, {"pass_through": True}, {"resize": 200}, {"quality": 3}])
def test_nothing_to_do_leaves_every_byte(source: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    found, report = packed(source, tmp_path, **options)
    assert found == SOURCES
    assert (report.reencoded, report.resized, report.source_nbytes) == (0, 0, report.image_nbytes)


@pytest.mark.parametrize("encoding", ["jpg", "png", "webp"])
@pytest.mark.parametrize("color", [1, 0, -1])
def test_a_format_is_what_every_image_has(source: Path, tmp_path: Path, encoding: str, color: int) -> None:
    found, report = packed(source, tmp_path, encoding=encoding, color=color)
    assert report.reencoded == len(SOURCES)
    for name, data in found.items():
        assert image_size(data) == (encoding.replace("jpg", "jpeg"), *image_size(SOURCES[name])[1:])
        image = cv2.imdecode(np.frombuffer(data, np.uint8), -1)
        assert image is not None
        channels = 1 if image.ndim == 2 else image.shape[2]
        stored = {"b-grey.jpg": 1, "d-alpha.png": 4, "e-deep.png": 1}.get(name, 3)
        if encoding == "jpg":
            stored = min(stored, 3)
        if encoding == "webp" and color != 1:
            continue  # that format has no grey
        assert channels == {1: 3, 0: 1, -1: stored}[color]
        deep = encoding == "png" and color == -1 and name == "e-deep.png"
        assert image.dtype == (np.uint16 if deep else np.uint8)
    if encoding == "png" and color == 1:
        for name, data in found.items():
            np.testing.assert_array_equal(decode_image(data), decode_image(SOURCES[name]))
    if encoding == "png" and color == -1:
        np.testing.assert_array_equal(
            cv2.imdecode(np.frombuffer(found["d-alpha.png"], np.uint8), -1),
            cv2.cvtColor(ALPHA, cv2.COLOR_RGBA2BGRA),
        )


def test_grey_images_stay_as_they_are_where_grey_is_asked_for(source: Path, tmp_path: Path) -> None:
    found, report = packed(source, tmp_path, color=0)
    assert found["b-grey.jpg"] == SOURCES["b-grey.jpg"]
    assert report.reencoded == len(SOURCES) - 1
    raw, _ = packed(source, tmp_path / "raw", color=0, encoding="raw")
    assert {raw_image(data).shape[2] for data in raw.values()} == {1}


@pytest.mark.parametrize("encoding", ["keep", "raw", "png"])
def test_the_middle_square_is_cut_out_and_then_made_smaller(
    source: Path, tmp_path: Path, encoding: str
) -> None:
    found, report = packed(source, tmp_path, center_crop=True, resize=40, encoding=encoding)
    for name, data in found.items():
        side = min(40, min(image_size(SOURCES[name])[1:]))
        assert image_size(data)[1:] == (side, side)
    assert (report.cropped, report.resized) == (7, 7)
    whole = decode_image(SOURCES["a.jpg"])[:, 15:75]
    wanted = cv2.resize(whole, (40, 40), interpolation=cv2.INTER_AREA)
    if encoding != "keep":
        np.testing.assert_array_equal(decode_image(found["a.jpg"]), wanted)
    only, _ = packed(source, tmp_path / "only", center_crop=True)
    assert only["f-square.jpg"] == SOURCES["f-square.jpg"]


def test_optimized_jpegs_have_the_same_pixels_in_fewer_bytes(source: Path, tmp_path: Path) -> None:
    plain, before = packed(source, tmp_path / "plain", encoding="jpg")
    small, after = packed(source, tmp_path / "small", encoding="jpg", optimize=True)
    assert after.image_nbytes < before.image_nbytes
    for name, data in small.items():
        np.testing.assert_array_equal(decode_image(data), decode_image(plain[name]))


def test_qualities_of_formats(source: Path, tmp_path: Path) -> None:
    sizes = {}
    for encoding, low, high in (("png", 9, 0), ("webp", 5, 95), ("jpg", 5, 95), ("keep", 5, 95)):
        for quality in (low, high):
            options = {"encoding": encoding, "quality": quality, "resize": 30 if encoding == "keep" else None}
            report = packed(source, tmp_path / f"{encoding}{quality}", **options)[1]
            sizes[quality] = report.image_nbytes
        assert sizes[low] < sizes[high], encoding


@pytest.mark.parametrize("turned", ["jpg", "png"])
def test_images_are_upright_with_all_kept_metadata(tmp_path: Path, turned: str) -> None:
    exif = b"MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    data = SOURCES["a.jpg"]
    if turned == "jpg":
        data = data[:2] + b"\xff\xe1\0\x22Exif\0\0" + exif + data[2:]
    else:
        data = SOURCES["d-alpha.png"]
        chunk = b"eXIf" + exif
        crc = zlib.crc32(chunk).to_bytes(4, "big")
        data = data[:33] + len(exif).to_bytes(4, "big") + chunk + crc + data[33:]
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / f"a.{turned}").write_bytes(data)
    for color in (1, 0, -1):
        report = pack(tmp_path / "in", tmp_path / f"set{color}", encoding="png", color=color)
        assert image_size(bodies(report.rec)[0])[1:] == (90, 60)


@pytest.mark.parametrize(
    "options",
    [{"resize": 30}, pytest.param({"encoding": "raw"}, marks=pytest.mark.slow)],
    ids=str,
)
def test_executors_and_workers_change_no_byte(source: Path, tmp_path: Path, options: dict[str, Any]) -> None:
    files = set()
    for executor, workers in (("inline", 1), ("thread", 1), ("thread", 5), ("process", 2), (None, None)):
        out = tmp_path / f"{executor}{workers}"
        report = pack(source, out / "set", shuffle=True, **pool(executor, workers), **options)
        assert report.json is not None
        files.add(tuple(path.read_bytes() for path in (report.rec, report.idx, report.lst, report.json)))
    assert len(files) == 1


def test_the_report_says_all(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "in", {2, 6}, 10)
    (source / "none").mkdir()
    (source / "outside.jpg").write_bytes(b"")
    report = pack(source, tmp_path / "set", resize=8, on_error="skip", shuffle=True, seed=7)
    found = json.loads((tmp_path / "set.json").read_text())
    assert (found["kind"], found["version"]) == ("aioloader pack", 1)
    assert found["source"] == {"kind": "folder", "path": str(source), "images": 10}
    assert found["files"] == [
        {
            "rec": "set.rec",
            "idx": "set.idx",
            "lst": "set.lst",
            "part": None,
            "shard": None,
            "records": 8,
            "bytes": report.rec.stat().st_size,
        }
    ]
    assert found["bytes"]["records"] == report.nbytes
    assert [(each["name"], each["label"], each["records"]) for each in found["classes"]] == [
        ("cat", 0, 4),
        ("dog", 1, 4),
        ("none", 2, 0),
    ]
    assert found["counts"]["resized"] == found["counts"]["encoded_anew"] == 8
    assert (found["counts"]["left_out"], found["counts"]["outside_of_classes"]) == (2, 1)
    assert found["folders_without_images"] == ["none"]
    assert sorted(Path(each["path"]).stem for each in found["failures"]) == ["002", "006"]
    assert found["failed_by_reason"] == {"DecodeError": 2}
    assert (found["options"]["seed"], found["options"]["resize"]) == (7, 8)
    before = (tmp_path / "set.json").read_bytes()
    pack(source, tmp_path / "set", resize=8, on_error="skip", shuffle=True, seed=7, num_workers=3)
    assert (tmp_path / "set.json").read_bytes() == before


@with_cases(
    ("text", "number"),
    [("1", 1), ("color", 1), ("0", 0), ("gray", 0), ("Grey", 0), ("-1", -1), ("unchanged", -1)],
)
def test_colours_have_numbers_and_names(text: str, number: int) -> None:
    assert _parser().parse_args(["pack", "in", "out", "--color", text]).color == number


@with_cases(
    "words",
    [["--color", "2"], ["--color", "mauve"], ["--train-ratio", "1.5"], ["--shards", "0"], ["--from", "x"]],
)
def test_wrong_words_are_reported(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["pack", "in", "out", *words])
    assert caught.value.code == 2
    assert words[0] in capsys.readouterr().err


@with_cases(("out", "report"), [("set", "set_train.rec"), ("set", "set_val.lst"), ("set/", None), ("", None)])
def test_names_that_would_mix_files_up_are_refused(
    source: Path, tmp_path: Path, out: str, report: str | None
) -> None:
    json = None if report is None else tmp_path / "out" / report
    with pytest.raises(
        ValueError, match=r"choose another name for the report|add a name for the record file"
    ):
        pack(source, f"{tmp_path / 'out'}/{out}", train_ratio=0.5, json=json)
    assert not (tmp_path / "out").exists()


def test_shards_of_an_earlier_division_are_reported(
    source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert pack(source, tmp_path / "set", shards=3).others == ()
    assert pack(source, tmp_path / "other", shards=2).others == ()
    assert pack(source, tmp_path / "set").others == ()
    assert pack(source, tmp_path / "set", shards=2).others == tuple(
        f"set-{number:05}-of-00003.rec" for number in range(3)
    )
    assert main(["pack", str(source), str(tmp_path / "set"), "--shards", "2"]) == 0
    assert "3 shards of an earlier run" in capsys.readouterr().err


def test_what_helps_where_images_of_a_list_are_missing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "a.lst").write_text("0\t1\tnone.jpg\n")
    assert main(["pack", str(tmp_path / "a.lst"), str(tmp_path / "a")]) == 2
    assert "--root" in capsys.readouterr().err
