"""Tests of tiling: the same pixels and segments, crops decoded alone, and unchanged files that cannot be tiled."""

from __future__ import annotations

import io
import shutil
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from PIL import Image

import recordio
from aioloader.cli import main
from aioloader.jpeg import cut, is_tiled, read_frame, restart_interval
from aioloader.packing.encoding import NO_TILES, NOT_JPEG
from aioloader.packing.jpegtran import ProgramNotFoundError, find_jpegtran, rewrite
from aioloader.tools.draw import draw_image
from aioloader.tools.pack import PackError, PackReport, list_images, pack
from aioloader.transforms import decode_image

DATA = Path(__file__).parents[2] / "data" / "images"

needs_jpegtran = pytest.mark.skipif(
    shutil.which("jpegtran") is None, reason="the program jpegtran is not installed (libjpeg-turbo-progs)"
)

IMAGE = draw_image(3, height=117, width=210)
EXIF = b"\xff\xe1\0\x22Exif\0\0MM\0\x2a\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
ICC = b"\xff\xe2\0\x3cICC_PROFILE\0\1\1" + bytes(16) + b"RGB " + bytes(range(24))
COMMENT = b"\xff\xfe\0\x09a note!"


def opencv(*options: int, image: np.ndarray = IMAGE) -> bytes:
    return cv2.imencode(".jpg", image[..., ::-1], list(options))[1].tobytes()


def with_segments(jpeg: bytes) -> bytes:
    return jpeg[:2] + EXIF + ICC + COMMENT + jpeg[2:]


JPEGS = {
    **{
        f"sampling-{s}": simplejpeg.encode_jpeg(IMAGE, 90, colorsubsampling=s)
        for s in ("444", "422", "420", "440", "411")
    },
    "grey": simplejpeg.encode_jpeg(IMAGE[..., :1].copy(), 90, "GRAY", "Gray"),
    "progressive": opencv(cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
    "other-restart-markers": opencv(cv2.IMWRITE_JPEG_RST_INTERVAL, 3),
    "exif-icc-comment": with_segments(opencv()),
    "exif-progressive": with_segments(opencv(cv2.IMWRITE_JPEG_PROGRESSIVE, 1)),
    "tiny": opencv(image=IMAGE[:1, :1]),
    "narrow": opencv(image=IMAGE[:, :5]),
    "extraneous-bytes": opencv()[:-2] + b"\0\0\0\xff\xd9",
    "data-behind": opencv() + b"a second image may follow",
}


def pack_one(data: bytes, tmp_path: Path, name: str = "a.jpg", **options: object) -> tuple[bytes, PackReport]:
    folder = tmp_path / "one"
    folder.mkdir()
    (folder / name).write_bytes(data)
    report = pack(folder, tmp_path / "out", tile=True, **options)  # type: ignore[arg-type]
    with recordio.RecordReader(report.rec) as reader:
        (record,) = reader
    return bytes(recordio.unpack(record)[1]), report


@needs_jpegtran
@pytest.mark.parametrize("data", JPEGS.values(), ids=JPEGS)
def test_a_tiled_file_has_the_pixels_and_segments_of_the_original(data: bytes, tmp_path: Path) -> None:
    tiled, report = pack_one(data, tmp_path)
    assert (report.tiled, report.kept) == (1, {})
    assert is_tiled(tiled)
    frame = read_frame(tiled)
    assert frame is not None
    assert frame.restart_interval == restart_interval(frame)
    for flag in (0, 1):
        np.testing.assert_array_equal(
            decode_image(tiled, flag=flag), decode_image(data, flag=flag), strict=True
        )
    for segment in (EXIF, ICC, COMMENT):
        assert tiled.count(segment) == data.count(segment)
    for marker in (b"JFIF\0", b"Adobe"):
        assert tiled.count(marker) == max(1 if marker == b"JFIF\0" else 0, data.count(marker))


@needs_jpegtran
@pytest.mark.parametrize("data", JPEGS.values(), ids=JPEGS)
def test_other_programs_read_a_tiled_file(data: bytes, tmp_path: Path) -> None:
    tiled, _ = pack_one(data, tmp_path)
    np.testing.assert_array_equal(
        np.asarray(Image.open(io.BytesIO(tiled))), np.asarray(Image.open(io.BytesIO(data)))
    )
    for mode in (cv2.IMREAD_COLOR, cv2.IMREAD_UNCHANGED):
        mine, theirs = (cv2.imdecode(np.frombuffer(x, np.uint8), mode) for x in (tiled, data))
        np.testing.assert_array_equal(mine, theirs)


@needs_jpegtran
def test_a_crop_of_a_tiled_file_needs_a_part_of_it(tmp_path: Path) -> None:
    tiled, _ = pack_one(opencv(image=draw_image(5, height=300, width=400)), tmp_path)
    frame = read_frame(tiled)
    assert frame is not None
    part = cut(tiled, frame, (100, 100, 80, 60))
    assert part is not None
    assert len(part.data) < len(tiled) / 2
    x, y = 100 - part.left, 100 - part.top
    np.testing.assert_array_equal(
        decode_image(bytes(part.data))[y : y + 60, x : x + 80], decode_image(tiled)[100:160, 100:180]
    )


@needs_jpegtran
def test_tiling_again_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    once, _ = pack_one(JPEGS["exif-icc-comment"], tmp_path / "first")
    twice, report = pack_one(once, tmp_path / "second")
    assert twice == once
    assert report.tiled == 1


@needs_jpegtran
def test_a_stale_table_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    (tmp_path / "second").mkdir()
    once, _ = pack_one(JPEGS["sampling-420"], tmp_path / "first")
    stale = rewrite(find_jpegtran(), once)
    assert not is_tiled(stale)
    again, report = pack_one(stale, tmp_path / "second")
    assert again == once
    assert report.tiled == 1


@needs_jpegtran
@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        pytest.param("a.png", cv2.imencode(".png", IMAGE)[1].tobytes(), NOT_JPEG, id="png"),
        pytest.param("a.jpg", cv2.imencode(".webp", IMAGE)[1].tobytes(), NOT_JPEG, id="webp-named-jpg"),
        *(
            pytest.param("a.jpg", (DATA / f"{name}.jpg").read_bytes(), NO_TILES, id=name)
            for name in ("cmyk", "cmyk-no-adobe", "ycck")
        ),
    ],
)
def test_what_has_no_tiles_stays_and_is_counted(
    name: str, data: bytes, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    packed, report = pack_one(data, tmp_path, name)
    assert packed == data
    assert (report.tiled, report.kept) == (0, {reason: 1})
    assert main(["pack", str(tmp_path / "one"), str(tmp_path / "again"), "--tile"]) == 0
    assert f"1 unchanged: {reason}" in capsys.readouterr().out


@needs_jpegtran
@pytest.mark.parametrize("kind", ["cut", "no-image", "empty"])
def test_damage_is_an_error_that_names_the_file(kind: str, tmp_path: Path) -> None:
    data = {"cut": opencv()[:-100], "no-image": b"text", "empty": b""}[kind]
    with pytest.raises(PackError, match=r"one.a\.jpg"):
        pack_one(data, tmp_path)
    assert not list(tmp_path.glob("out*"))


@needs_jpegtran
def test_a_resize_tiles_too(tmp_path: Path) -> None:
    big = with_segments(opencv(image=draw_image(5, height=300, width=400)))
    tiled, report = pack_one(big, tmp_path, resize=100)
    assert (report.tiled, report.resized) == (1, 1)
    assert is_tiled(tiled)
    assert decode_image(tiled).shape == (133, 100, 3)  # upright: the original has an orientation
    frame = read_frame(tiled)
    assert frame is not None
    assert frame.exif is None
    assert ICC in tiled

    untiled = pack(tmp_path / "one", tmp_path / "untiled", resize=100)
    with recordio.RecordReader(untiled.rec) as reader:
        plain = bytes(recordio.unpack(reader[0])[1])
    assert not is_tiled(plain)
    np.testing.assert_array_equal(decode_image(plain), decode_image(tiled))


@needs_jpegtran
def test_with_a_resize_small_images_are_tiled_without_loss(tmp_path: Path) -> None:
    tiled, report = pack_one(JPEGS["sampling-444"], tmp_path, resize=117)
    assert (report.tiled, report.resized) == (1, 0)
    np.testing.assert_array_equal(decode_image(tiled), decode_image(JPEGS["sampling-444"]))


@needs_jpegtran
def test_a_folder_of_all_kinds(
    photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "tiled.rec"
    assert main(["pack", str(photo_folder), str(out), "--tile"]) == 0
    text = capsys.readouterr().out
    with recordio.RecordReader(out) as reader:
        packed = [bytes(recordio.unpack(record)[1]) for record in reader]
    originals = [path.read_bytes() for path, _ in list_images(photo_folder)[1]]
    for new, old in zip(packed, originals, strict=True):
        np.testing.assert_array_equal(decode_image(new), decode_image(old))
    tiled = sum(map(is_tiled, packed))
    assert f"{tiled} tiled" in text
    assert "1 unchanged: not JPEG" in text
    assert "images: " in text
    assert recordio.verify(out).ok


def test_without_jpegtran_the_error_says_what_to_install(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ProgramNotFoundError) as caught:
        pack(photo_folder, tmp_path / "out", tile=True)
    assert caught.value.program == "jpegtran"
    for word in ("libjpeg-turbo-progs", "jpeg-turbo (Homebrew"):
        assert word in str(caught.value)
    assert main(["pack", str(photo_folder), str(tmp_path / "out"), "--tile"]) == 2
    assert "libjpeg-turbo-progs" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
    assert pack(photo_folder, tmp_path / "out").records
