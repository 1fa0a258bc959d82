"""Tests of `inspect`: reports on sets of each kind, and sampling of large sets."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import struct
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

import recordio
from aioloader.formats.inspection import evenly, is_progressive
from aioloader.formats.recordio import inspect as samples
from aioloader.formats.recordio.heads import detection_label, key_range
from aioloader.formats.recordio.inspect import sample_headers
from aioloader.tools import inspect as tool
from aioloader.tools.draw import draw_image
from aioloader.tools.inspect import inspect
from tests.cases import with_cases
from tests.conftest import with_orientation

JPEGS = [simplejpeg.encode_jpeg(draw_image(seed, height=40, width=60 + seed)) for seed in range(4)]
GOLDEN = Path(__file__).parents[2] / "data" / "mxnet"


def write(path: Path, records: list[tuple[object, bytes]], first_key: int = 0) -> Path:
    with recordio.RecordWriter(path, index=True) as writer:
        for key, (label, body) in enumerate(records, start=first_key):
            writer.write(recordio.pack(recordio.IRHeader(0, label, key, 0), body), key)
    return path


def faces(folder: Path) -> Path:
    """Write a set in InsightFace's layout: ten images of three identities."""
    folder.mkdir()
    ranges = [(1, 5), (5, 9), (9, 11)]
    images: list[tuple[object, bytes]] = [
        (float(identity), JPEGS[0]) for identity, (low, high) in enumerate(ranges) for _ in range(low, high)
    ]
    records = [([11.0, 14.0], b""), *images, *[([float(low), float(high)], b"") for low, high in ranges]]
    (folder / "property").write_text("3,112,112\n")
    return write(folder / "train.rec", records)


def test_packed_images(tmp_path: Path) -> None:
    path = write(tmp_path / "a.rec", [(float(n % 3), JPEGS[n % 4]) for n in range(30)])
    found = inspect(path)
    assert (found.kind, found.records, found.images_in_all, found.headers) == ("packed images", 30, 30, 30)
    assert (found.indexed, found.files, found.nbytes) == (True, 1, path.stat().st_size)
    assert found.sizes is not None
    assert (found.sizes.smallest, found.sizes.largest) == (
        24 + min(map(len, JPEGS)),
        24 + max(map(len, JPEGS)),
    )
    assert found.labels is not None
    assert (found.labels.counts, found.labels.absent) == ({0.0: 10, 1.0: 10, 2.0: 10}, 0)
    images = found.images
    assert images is not None
    assert images.width is not None
    assert images.height is not None
    assert (images.looked_at, images.formats, images.damaged) == (30, {"jpeg": 30}, [])
    assert (images.width.smallest, images.width.largest, images.height.median) == (60, 63, 40)
    assert images.decode_us is not None
    assert images.images_per_s is not None
    assert images.decode_us * images.images_per_s == pytest.approx(1e6)
    assert images.pixel_nbytes == pytest.approx(3 * 40 * images.width.mean)
    assert found.pixel_nbytes == pytest.approx(30 * images.pixel_nbytes)
    assert found.facts()["pixel_nbytes"] == found.pixel_nbytes
    json.dumps(found.facts(), allow_nan=False)


@with_cases(
    ("crop_us", "free", "advised"),
    [
        (
            400,
            1 << 40,
            'dataset.cache_samples("1.3MB"), or images(PATH, decoded_cache="1.3MB"), has room for all',
        ),
        (400, 125_000, "has room for 46% of the images, and makes random crops at about 1.5x the speed"),
        (400, 1000, None),
        (400, None, None),
        (120, 1 << 40, None),
    ],
)
def test_keeping_decoded_images_is_advised_where_it_pays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crop_us: float, free: int | None, advised: str | None
) -> None:
    found = inspect(write(tmp_path / "a.rec", [(0.0, JPEGS[0])] * 30))
    assert found.images is not None
    monkeypatch.setattr(tool, "available_memory", lambda: free)
    images = dataclasses.replace(found.images, crop_us=crop_us, kept_crop_us=100.0)
    advice = " ".join(tool.advice_for(dataclasses.replace(found, images=images)))
    assert advised in advice if advised else "cache_samples" not in advice
    assert any("as pixels    216.0 kB, 7.2 kB an image" in line for line in tool._text(found))


def test_shares_of_progressive_and_turned_images(tmp_path: Path) -> None:
    import cv2

    image = draw_image(1, height=64, width=96)
    _, progressive = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])
    turned = with_orientation(JPEGS[0], 6)
    bodies = [progressive.tobytes(), turned, JPEGS[0], JPEGS[1]]
    assert [is_progressive(body) for body in bodies] == [True, False, False, False]
    found = inspect(write(tmp_path / "a.rec", [(0.0, body) for body in bodies]))
    assert found.images is not None
    assert (found.images.progressive, found.images.turned) == (0.25, 0.25)
    assert any("progressive" in line for line in found.advice)


def test_insightface(tmp_path: Path) -> None:
    rec = faces(tmp_path / "faces")
    for path in (rec, rec.parent):
        found = inspect(path)
        assert (found.kind, found.records, found.images_in_all) == ("InsightFace", 14, 10)
        assert found.details["identities"] == 3
        assert found.details["property"] == [3, 112, 112]
        assert found.labels is not None
        assert found.labels.counts == {0.0: 4, 1.0: 4, 2.0: 2}
        assert found.images is not None
        assert (found.images.looked_at, found.images.damaged) == (10, [])


def test_detection_and_label_vectors(tmp_path: Path) -> None:
    box = [1.0, 0.1, 0.1, 0.5, 0.6]
    path = write(tmp_path / "boxes.rec", [([2.0, 5.0, *box * (1 + n % 2)], JPEGS[0]) for n in range(6)])
    found = inspect(path)
    assert (found.kind, found.details["header_width"], found.details["object_width"]) == (
        "detection",
        [2],
        [5],
    )
    assert (found.details["objects"]["largest"], found.label_widths) == (2, {7: 3, 12: 3})
    found = inspect(write(tmp_path / "many.rec", [([1.0, 0.0, 1.0], JPEGS[0])] * 4))
    assert (found.kind, found.label_widths, found.labels) == (
        "packed images with label vectors",
        {3: 4},
        None,
    )


@with_cases(
    ("labels", "expected"),
    [
        ([2, 5, 0, 0.1, 0.1, 0.2, 0.2], (2, 5, 1)),
        ([4, 6, 300, 200, *[1] * 12], (4, 6, 2)),
        ([2, 5], (2, 5, 0)),
        ([2, 5, 0, 0.1, 0.1, 0.2], None),
        ([1, 5, 0, 0.1, 0.1, 0.2], None),
        ([2, 4, 0, 1, 2, 3], None),
        ([2.5, 5, 0], None),
        ([float("nan"), 5], None),
        ([9, 5, 0], None),
        ([2], None),
    ],
)
def test_detection_labels_are_recognised_by_their_widths(
    labels: list[float], expected: tuple[int, ...] | None
) -> None:
    assert detection_label(labels) == expected


def test_header_records_are_recognised_by_their_two_keys() -> None:
    assert key_range([11.0, 14.0], 0) == (11, 14)
    assert key_range([11.0, 14.0], 5) is None
    assert key_range([14.0, 11.0], 0) is None
    assert key_range([1.5, 4.0], 0) is None
    assert key_range([float("nan"), 4.0], 0) is None
    assert key_range([1.0], 0) is None


def test_plain_records_and_an_empty_file(tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        for key in range(5):
            writer.write(b"x" * 100 * key, key)
    found = inspect(tmp_path / "a.rec")
    assert (found.kind, found.records, found.images, found.labels) == ("plain records", 5, None, None)
    (tmp_path / "b.rec").touch()
    found = inspect(tmp_path / "b.rec")
    assert (found.kind, found.records, found.advice) == ("empty", 0, [])
    assert inspect(GOLDEN / "plain.rec").kind == "plain records"


def test_shards_are_one_set(tmp_path: Path) -> None:
    for shard in range(3):
        write(tmp_path / f"train-{shard}.rec", [(float(shard), JPEGS[shard])] * (2 + shard))
    (tmp_path / "train-1.idx").unlink()
    for path in (tmp_path, f"{tmp_path}/train-*.rec"):
        found = inspect(path)
        assert (found.kind, found.files, found.records, found.indexed) == ("packed images", 3, 9, False)
        assert [shard["records"] for shard in found.details["shards"]] == [2, 3, 4]
        assert found.labels is not None
        assert found.labels.counts == {0.0: 2, 1.0: 3, 2.0: 4}
    assert any("aioloader index" in line for line in found.advice)


def test_shards_that_are_missing_or_of_two_packings_are_reported(tmp_path: Path) -> None:
    for shard in ("0-of-00002", "1-of-00002", "0-of-00003", "2-of-00003"):
        write(tmp_path / f"a-0000{shard}.rec", [(0.0, JPEGS[0])])
    assert inspect(f"{tmp_path}/a-*-of-00002.rec").details["shard_faults"] == []
    twice, missing = inspect(tmp_path).details["shard_faults"]
    assert "into 2 and into 3 shards" in twice
    assert missing == f"1 of 3 shards are missing, first {tmp_path}/a-00001-of-00003.rec"
    assert "shard_faults" not in inspect(tmp_path / "a-00000-of-00003.rec").details


def test_damage_is_seen_where_the_sample_meets_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.rec", [(0.0, JPEGS[0])] * 10)
    data = bytearray(path.read_bytes())
    offsets = recordio.Index.open(path.with_suffix(".idx")).offsets.tolist()
    data[offsets[3]] ^= 0xFF
    data[offsets[7] + 200 : offsets[7] + 230] = b"\xff" * 30
    path.write_bytes(data)
    with open(path.with_suffix(".idx"), "a") as index:
        index.write("10\tnowhere\n")
    found = inspect(path)
    assert found.images is not None
    assert sorted(key for key, _ in found.images.damaged) == [3, 7, 10]
    assert "a line of the index cannot be read" in found.damage[0]
    assert found.damage[1].endswith(
        f"1 of 11 offsets of the index that were checked have no record: byte {offsets[3]}"
    )
    assert "aioloader verify" in found.advice[0]


def test_a_damaged_file_without_an_index_is_searched_for_its_records(tmp_path: Path) -> None:
    path = write(tmp_path / "a.rec", [(0.0, JPEGS[0])] * 10)
    data = bytearray(path.read_bytes())
    data[0] ^= 0xFF
    path.write_bytes(data)
    path.with_suffix(".idx").unlink()
    found = inspect(path)
    assert (found.records, found.indexed) == (9, False)
    assert "has no index" in found.damage[0]


def test_a_folder_of_images(photo_folder: Path) -> None:
    found = inspect(photo_folder)
    assert (found.kind, found.indexed, found.headers) == ("image folder", None, None)
    assert found.images is not None
    assert found.images.looked_at == found.records == found.images_in_all
    assert found.images.formats["png"] == 1
    assert found.images.turned == pytest.approx(1 / found.records)
    assert "various" in found.details["class_names"]


def test_a_pipe_among_the_images_is_damage(photo_folder: Path, tmp_path: Path) -> None:
    (tmp_path / "class").mkdir()
    (tmp_path / "class" / "photo.jpg").symlink_to(next(photo_folder.glob("*/*.jpg")))
    os.mkfifo(tmp_path / "class" / "pipe.jpg")
    found = inspect(tmp_path).images
    assert found is not None
    assert [(key, "not a regular file" in reason) for key, reason in found.damaged] == [
        ("class/pipe.jpg", True)
    ]
    with pytest.raises(OSError, match="not a regular file"):
        inspect(tmp_path / "class" / "pipe.jpg")


def test_lists_and_files_of_arrays(tmp_path: Path) -> None:
    (tmp_path / "a.lst").write_text("0\t1.0\ta.jpg\n1\t2.0\tb.png\n1\t2.0\tc.png\n")
    found = inspect(tmp_path / "a.lst")
    assert (found.kind, found.records, found.damage) == ("image list", 3, ["1 lines repeat an id"])
    images = struct.pack(">4B3I", 0, 0, 8, 3, 10, 28, 28)
    (tmp_path / "images-idx3-ubyte").write_bytes(images + bytes(7840))
    assert inspect(tmp_path / "images-idx3-ubyte").details == {"shape": [10, 28, 28]}
    (tmp_path / "cut-idx3-ubyte").write_bytes(images + bytes(7000))
    assert "should have 7856 bytes" in inspect(tmp_path / "cut-idx3-ubyte").damage[0]
    with gzip.open(tmp_path / "labels-idx1-ubyte.gz", "wb") as file:
        file.write(struct.pack(">4BI", 0, 0, 8, 1, 9) + bytes(9))
    assert inspect(tmp_path / "labels-idx1-ubyte.gz").records == 9
    (tmp_path / "data_batch_1.bin").write_bytes(bytes(3073 * 4))
    assert inspect(tmp_path / "data_batch_1.bin").kind == "CIFAR files"
    (tmp_path / "a.jpg").write_bytes(JPEGS[0])
    assert inspect(tmp_path / "a.jpg").kind == "image"


def test_what_is_no_set_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("text")
    (tmp_path / "a.idx").write_text("0\t0\n")
    (tmp_path / "empty").mkdir()
    for name, text in (
        ("a.txt", "is not a record file"),
        ("a.idx", "is an index"),
        ("empty", "an empty folder"),
    ):
        with pytest.raises(ValueError, match=text):
            inspect(tmp_path / name)
    for name in ("none", "none-*.rec"):
        with pytest.raises(FileNotFoundError, match=r"none"):
            inspect(tmp_path / name)
    with pytest.raises(ValueError, match="at least 1"):
        inspect(tmp_path / "a.txt", sample=0)


def test_the_sample_is_as_large_as_asked_for(tmp_path: Path) -> None:
    found = inspect(write(tmp_path / "a.rec", [(0.0, JPEGS[0])] * 50), sample=7)
    assert found.images is not None
    assert found.images.looked_at == 7
    assert found.images_in_all == 50


def test_headers_can_be_an_even_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "a.rec", [(float(n), b"body") for n in range(1000)])
    offsets = recordio.Index.open(path.with_suffix(".idx")).offsets
    monkeypatch.setattr(samples, "_BETWEEN_TICKS", 10)
    monkeypatch.setattr(samples, "_MOST_SAMPLED", 300)
    ticks: list[int] = []
    numbers, found = sample_headers(str(path), offsets, seconds=1e9, tick=ticks.append)
    assert 250 < len(found) <= 300
    assert ticks[-1] == len(found)
    assert np.diff(numbers).max() <= 8  # evenly: 64 places over the file, a quarter of them read
    assert found.label.tolist() == numbers.tolist()
    assert found.valid.all()
    assert found.packed.all()
    _, soon = sample_headers(str(path), offsets, seconds=1e-9)
    assert 0 < len(soon) < 30
    assert len(sample_headers(str(path), offsets)[1]) == 1000


def test_evenly_spread_numbers_hold_both_ends() -> None:
    assert evenly(3, 5).tolist() == [0, 1, 2]
    assert evenly(100, 5).tolist() == [0, 24, 49, 74, 99]
    assert evenly(0, 5).tolist() == []
