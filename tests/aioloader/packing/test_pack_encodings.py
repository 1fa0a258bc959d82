"""Tests of packing in another order or size, or as raw pixels, and of images that cannot be packed."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

import aioloader
import recordio
from aioloader.cli import _parser, main
from aioloader.tools.pack import PackError, list_images, pack
from aioloader.transforms import (
    DEFAULT_MAX_PIXELS,
    RandomResizedCrop,
    decode_image,
    encode_raw,
    image_size,
    raw_image,
)
from tests.aioloader.datasets.batches import assert_same, batches_of
from tests.aioloader.packing.sample_sets import bodies, records
from tests.cases import with_cases


def sources(folder: Path) -> list[bytes]:
    return [path.read_bytes() for path, _ in list_images(folder)[1]]


# --- order ---


def test_shuffled_records_are_the_same_ones_in_an_order_of_the_seed(
    photo_folder: Path, tmp_path: Path
) -> None:
    plain = pack(photo_folder, tmp_path / "plain")
    mixed = pack(photo_folder, tmp_path / "mixed", shuffle=True)
    again = pack(photo_folder, tmp_path / "again", shuffle=True, seed=0, num_workers=3)
    other = pack(photo_folder, tmp_path / "other", shuffle=True, seed=1)
    assert bodies(mixed.rec) != bodies(plain.rec)
    assert sorted(bodies(mixed.rec)) == sorted(bodies(plain.rec))
    assert mixed.rec.read_bytes() == again.rec.read_bytes()
    assert mixed.rec.read_bytes() != other.rec.read_bytes()

    lines = [line.split("\t") for line in mixed.lst.read_text().splitlines()]
    assert [int(key) for key, _, _ in lines] == list(range(plain.records))
    assert [float(label) for _, label, _ in lines] == [header.label for header, _ in records(mixed.rec)]
    assert [(photo_folder / path).read_bytes() for _, _, path in lines] == bodies(mixed.rec)


# --- raw ---


def test_raw_records_are_the_decoded_upright_images(photo_folder: Path, tmp_path: Path) -> None:
    report = pack(photo_folder, tmp_path / "raw", encoding="raw")
    expected = [decode_image(data) for data in sources(photo_folder)]
    for body, image in zip(bodies(report.rec), expected, strict=True):
        np.testing.assert_array_equal(raw_image(body), image, strict=True)
    assert report.image_nbytes == sum(24 + image.size for image in expected)
    assert report.source_nbytes == sum(map(len, sources(photo_folder)))

    packed = aioloader.ImageRecordDataset(str(report.rec))
    for index, image in enumerate(expected):
        np.testing.assert_array_equal(packed[index][0], image, strict=True)


def test_batches_of_raw_records_are_those_of_the_files(photo_folder: Path, tmp_path: Path) -> None:
    report = pack(photo_folder, tmp_path / "raw", encoding="raw")
    direct, packed = (
        batches_of(dataset.transform_first(RandomResizedCrop(32)), batch_size=7)
        for dataset in (
            aioloader.ImageFolderDataset(str(photo_folder)),
            aioloader.ImageRecordDataset(str(report.rec)),
        )
    )
    assert_same(packed, direct)


def test_what_a_foreign_transform_keeps_of_a_raw_image_stays(photo_folder: Path, tmp_path: Path) -> None:
    report = pack(photo_folder, tmp_path / "raw", encoding="raw")
    expected = [decode_image(data) for data in sources(photo_folder)]
    kept = []

    def keep(image: np.ndarray) -> int:
        kept.append(image)
        return len(kept)

    dataset = aioloader.ImageRecordDataset(str(report.rec)).transform_first(keep)
    with aioloader.DataLoader(dataset, batch_size=4, num_workers=0) as loader:
        assert sum(len(batch[0]) for batch in loader) == len(expected)
    for image, right in zip(kept, expected, strict=True):
        np.testing.assert_array_equal(image, right, strict=True)


def test_pixels_that_look_like_a_record_head_survive(tmp_path: Path) -> None:
    magic = np.frombuffer(b"\x0a\x23\xd7\xce" * 12, np.uint8)
    image = np.stack([magic.reshape(4, 4, 3)] * 3).reshape(12, 4, 3)
    (tmp_path / "source").mkdir()
    cv2.imwrite(str(tmp_path / "source" / "a.png"), image[..., ::-1])
    report = pack(tmp_path / "source", tmp_path / "out", encoding="raw")
    assert report.rec.read_bytes().count(magic[:4].tobytes()) > 5
    assert bodies(report.rec) == [encode_raw(image)]
    np.testing.assert_array_equal(aioloader.ImageRecordDataset(str(report.rec))[0][0], image)


# --- size ---


def test_only_larger_images_are_made_smaller(photo_folder: Path, tmp_path: Path) -> None:
    before = sources(photo_folder)
    sides = [min(image_size(data)[1:]) for data in before]
    limit = sorted(sides)[len(sides) // 2]
    report = pack(photo_folder, tmp_path / "small", resize=limit)
    after = bodies(report.rec)
    assert 0 < report.resized == sum(side > limit for side in sides) < len(sides)
    for old, new, side in zip(before, after, sides, strict=True):
        if side <= limit:
            assert new == old
        else:
            assert new.startswith(b"\xff\xd8")
            whole, small = decode_image(old), decode_image(new)
            assert min(small.shape[:2]) == limit
            exact = max(whole.shape[:2]) * limit / side
            assert max(small.shape[:2]) == int(exact)
            size = (small.shape[1], small.shape[0])
            wanted = cv2.resize(whole, size, interpolation=cv2.INTER_AREA)
            assert np.abs(small.astype(int) - wanted).mean() < 4


def test_a_turned_image_is_upright_after_a_resize(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    data = (photo_folder / "various" / "c-turned.jpg").read_bytes()
    (tmp_path / "one" / "a.jpg").write_bytes(data)
    upright = decode_image(data)
    stored = decode_image(data, exif="ignore")
    assert upright.shape[0] == stored.shape[1] != upright.shape[1]
    report = pack(tmp_path / "one", tmp_path / "out", resize=40)
    (body,) = bodies(report.rec)
    height, width = decode_image(body, exif="ignore").shape[:2]
    assert (height > width) == (upright.shape[0] > upright.shape[1])


def test_raw_and_resize_go_together(photo_folder: Path, tmp_path: Path) -> None:
    report = pack(photo_folder, tmp_path / "small", encoding="raw", resize=50)
    for body, data in zip(bodies(report.rec), sources(photo_folder), strict=True):
        whole, small = decode_image(data), raw_image(body)
        wanted = cv2.resize(whole, (small.shape[1], small.shape[0]), interpolation=cv2.INTER_AREA)
        np.testing.assert_array_equal(small, whole if min(whole.shape[:2]) <= 50 else wanted)
        assert min(small.shape[:2]) == min(50, *whole.shape[:2])


def test_a_thin_image_keeps_a_pixel_each_way(tmp_path: Path) -> None:
    (tmp_path / "thin").mkdir()
    cv2.imwrite(str(tmp_path / "thin" / "a.png"), np.full((1, 300, 3), 200, np.uint8))
    cv2.imwrite(str(tmp_path / "thin" / "b.png"), np.full((300, 2, 3), 200, np.uint8))
    report = pack(tmp_path / "thin", tmp_path / "out", resize=1, encoding="raw")
    assert [image_size(body)[1:] for body in bodies(report.rec)] == [(1, 300), (150, 1)]


# --- colour profiles ---


def icc_segments(*, space: bytes = b"RGB ", parts: int = 2) -> bytes:
    profile = bytes(16) + space + bytes(range(200))
    size = -(-len(profile) // parts)
    chunks = [profile[place : place + size] for place in range(0, len(profile), size)]
    out = b""
    for number, chunk in enumerate(chunks, 1):
        body = b"ICC_PROFILE\0" + bytes([number, len(chunks)]) + chunk
        out += b"\xff\xe2" + (len(body) + 2).to_bytes(2, "big") + body
    return out


@pytest.mark.parametrize(("space", "kept"), [(b"RGB ", True), (b"CMYK", False)])
def test_a_resize_keeps_an_rgb_profile(photo_folder: Path, tmp_path: Path, space: bytes, kept: bool) -> None:
    jpeg = sources(photo_folder)[0]
    segments = icc_segments(space=space)
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.jpg").write_bytes(jpeg[:2] + segments + jpeg[2:])
    (body,) = bodies(pack(tmp_path / "one", tmp_path / "out", resize=20).rec)
    (bare,) = bodies(pack(photo_folder, tmp_path / "bare", resize=20).rec)[:1]
    assert (segments in body) == kept
    assert body.replace(segments, b"") == bare


# --- errors ---


@pytest.fixture
def with_damage(photo_folder: Path, tmp_path: Path) -> Path:
    root = tmp_path / "damaged"
    for name, data in (
        ("a/1.jpg", sources(photo_folder)[0]),
        ("a/2-cut.jpg", sources(photo_folder)[1][:-200]),
        ("b/3-text.png", b"no image"),
        ("b/4.jpg", sources(photo_folder)[2]),
    ):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(data)
    return root


def test_a_damaged_image_is_named_and_nothing_is_written(with_damage: Path, tmp_path: Path) -> None:
    with pytest.raises(PackError) as caught:
        pack(with_damage, tmp_path / "out", encoding="raw")
    assert caught.value.path == str(with_damage / "a" / "2-cut.jpg")
    assert isinstance(caught.value.__cause__, aioloader.DecodeError)
    assert caught.value.path in str(caught.value)
    assert not list(tmp_path.glob("out*"))


def test_a_damaged_image_can_be_left_out(with_damage: Path, tmp_path: Path) -> None:
    done: list[int] = []
    report = pack(with_damage, tmp_path / "out", encoding="raw", on_error="skip", tick=done.append)
    assert [Path(path).name for path, _ in report.skipped] == ["2-cut.jpg", "3-text.png"]
    assert all("cannot decode" in reason for _, reason in report.skipped)
    assert report.records == 2
    assert done == [1, 2, 3, 4]
    assert report.lst.read_text() == "0\t0.000000\ta/1.jpg\n1\t1.000000\tb/4.jpg\n"
    assert [header.id for header, _ in records(report.rec)] == [0, 1]


@pytest.mark.parametrize("on_error", ["raise", "skip"])
def test_a_file_that_goes_missing_is_named(tmp_path: Path, on_error: str) -> None:
    (tmp_path / "some").mkdir()
    last = tmp_path / "some" / "9.jpg"
    for number in range(10):
        last.with_name(f"{number}.jpg").write_bytes(b"any")

    def vanish(done: int, count: int, reason: str) -> None:
        last.unlink()  # listed, and not yet read

    def packed() -> list[tuple[str, str]]:
        out = tmp_path / "out"
        return pack(tmp_path / "some", out, num_workers=1, on_error=on_error, begin=vanish).skipped

    if on_error == "raise":
        with pytest.raises(FileNotFoundError, match=r"9\.jpg"):
            packed()
        assert not list(tmp_path.glob("out*"))
    else:
        ((path, reason),) = packed()
        assert path == str(last)
        assert "No such file" in reason


@with_cases(
    ("options", "message"),
    [
        ({"encoding": "gif"}, "encoding must be one of keep, raw"),
        ({"resize": 0}, "resize must be at least 1"),
        ({"quality": 0}, "quality must lie between 1 and 100"),
        ({"quality": 101}, "quality must lie between 1 and 100"),
        ({"num_workers": 0}, "num_workers must be at least 1"),
        ({"on_error": "ignore"}, "on_error must be 'raise', 'skip' or 'replace'"),
        ({"shuffle": True, "seed": -1}, "seed"),
        ({"max_errors": 1.5}, "max_errors must be a number of samples, or a share"),
        ({"encoding": "png", "quality": 10}, "quality must lie between 0 and 9"),
        ({"color": 2}, "color must be 1"),
        ({"pass_through": True, "resize": 8}, "pass_through stores images unchanged"),
        ({"pass_through": True, "optimize": True}, "pass_through stores images unchanged"),
        ({"shards": 0}, "shards must lie between 1"),
        ({"shards": 1000}, "too few for 1000 shards"),
        ({"train_ratio": 0.7, "test_ratio": 0.4}, "their sum at most 1"),
        ({"train_ratio": 1.0}, "must be between 0 and 1"),
        ({"test_ratio": 0.001}, "the part test would get none"),
        ({"sync_s": -1.0}, "sync_s must be at least 0"),
        ({"root": "."}, "root can only be used with a list"),
        ({"json": "/elsewhere/report.json"}, "must be in the folder"),
        ({"kind": "svhn"}, "there is no set 'svhn'"),
    ],
    ids=str,
)
def test_bad_options_are_refused_before_anything_is_done(
    photo_folder: Path,
    tmp_path: Path,
    options: dict[str, object],
    message: str,
) -> None:
    with pytest.raises(ValueError, match=message):
        pack(photo_folder, tmp_path / "new" / "out", **options)  # type: ignore[arg-type]
    assert not list(tmp_path.iterdir())


# --- the command ---


def test_the_command_reports_what_it_did(
    photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = str(tmp_path / "out")
    assert main(["pack", str(photo_folder), out, "--encoding", "raw", "--resize", "64", "--shuffle"]) == 0
    text = capsys.readouterr().out.splitlines()
    count = len(sources(photo_folder))
    assert text[0].startswith(f"{out}.rec: {count} records of 5 classes, ")
    assert any(line.endswith(" scaled down") for line in text)
    assert any(line.startswith("images: ") and "%" in line for line in text)
    assert main(["pack", str(photo_folder), out]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 1


def test_the_command_names_what_it_left_out(
    with_damage: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ["pack", str(with_damage), str(tmp_path / "out"), "--encoding", "raw"]
    for words in ([], ["--on-error", "raise"]):
        assert main([*argv, *words]) == 1
        told = capsys.readouterr().err
        assert "2-cut.jpg" in told
        assert "--on-error skip leaves out images that cannot be packed" in told
    assert main([*argv, "--on-error", "skip"]) == 0
    captured = capsys.readouterr()
    assert "2-cut.jpg" in captured.err
    assert "3-text.png" in captured.err
    assert "--on-error" not in captured.err
    assert "2 left out" in captured.out


# --- limits ---


@pytest.mark.parametrize("options", [{}, {"encoding": "raw"}, {"resize": 8}], ids=str)
def test_images_of_too_many_pixels_are_refused_by_their_header(
    photo_folder: Path, tmp_path: Path, options: dict[str, object]
) -> None:
    sizes = [image_size(data)[1:] for data in sources(photo_folder)]
    largest = max(height * width for height, width in sizes)
    limit = largest - 1
    with pytest.raises(PackError, match=f"more than max_pixels={limit}; raise max_pixels") as caught:
        pack(photo_folder, tmp_path / "out", max_pixels=limit, **options)  # type: ignore[arg-type]
    assert caught.value.path
    assert not list(tmp_path.glob("out*"))
    if options:
        return
    report = pack(photo_folder, tmp_path / "out", max_pixels=largest - 1, on_error="skip")
    assert len(report.skipped) == sum(height * width == largest for height, width in sizes)
    assert pack(photo_folder, tmp_path / "all", max_pixels=largest).skipped == []
    assert pack(photo_folder, tmp_path / "all", max_pixels=None).skipped == []
    with pytest.raises(ValueError, match="max_pixels must be at least 1"):
        pack(photo_folder, tmp_path / "all", max_pixels=0)


def test_max_pixels_from_the_command_line(
    photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["pack", str(photo_folder), str(tmp_path / "out")]
    assert main([*words, "--max-pixels", "100"]) == 1
    assert "more than max_pixels=100" in capsys.readouterr().err
    assert main([*words, "--max-pixels", "0"]) == 0
    assert _parser().parse_args(words).max_pixels == DEFAULT_MAX_PIXELS


def test_what_does_not_fit_into_a_record_is_named(
    photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    longest = max(map(len, sources(photo_folder)))
    monkeypatch.setattr(recordio, "MAX_PAYLOAD", longest + 23)
    with pytest.raises(PackError, match=f"{longest} bytes do not fit into one record"):
        pack(photo_folder, tmp_path / "out")
    monkeypatch.setattr(recordio, "MAX_PAYLOAD", longest + 24)
    pack(photo_folder, tmp_path / "out")
    monkeypatch.setattr("aioloader.packing.writer.MOST_NBYTES", longest - 1)
    with pytest.raises(OSError, match="too large for an image"):
        pack(photo_folder, tmp_path / "out")
