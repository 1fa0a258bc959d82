"""Making of entries: every kind of JPEG, and every reason to refuse one."""

from __future__ import annotations

import contextlib
import io
import mmap
import random

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from aioloader.jpeg.crop_entry import HEAD
from aioloader.jpeg.crop_scan import build_entry, scan_points
from aioloader.jpeg.huffman import NotIndexableError
from tests.aioloader.jpeg.entries import compare, decoded, golden, in_c_and_python
from tests.aioloader.jpeg.samples import KINDS, before_frame, encode, frame_of, make_image, segment
from tests.cases import with_cases

FILES = golden()


@with_cases(("name", "data", "entry"), FILES, ids=[name for name, _, _ in FILES])
def test_golden_entries_are_made_again(name, data, entry):
    assert in_c_and_python(lambda: build_entry(data, interval=2)) == entry
    assert build_entry(memoryview(data), interval=2) == entry


def _optimised(width: int, height: int, quality: int, subsampling: int, grey: bool) -> bytes:
    """Return a JPEG with optimised Huffman tables."""
    image = Image.fromarray(make_image(width, height))
    file = io.BytesIO()
    options = {} if grey else {"subsampling": subsampling}
    (image.convert("L") if grey else image).save(file, "JPEG", quality=quality, optimize=True, **options)
    return file.getvalue()


@st.composite
def jpegs(draw: st.DrawFn) -> bytes:
    """Draw a JPEG of any kind, size, quality and tables, with restart markers after rows, or without."""
    width, height = draw(st.integers(1, 200)), draw(st.integers(1, 200))
    quality = draw(st.integers(1, 100))
    if draw(st.booleans()):
        return _optimised(width, height, quality, draw(st.integers(0, 2)), draw(st.booleans()))
    kind = draw(st.sampled_from(KINDS))
    columns = frame_of(encode(width, height, kind)).mcus_per_row
    restart = columns * draw(st.sampled_from((0, 0, 1, 2)))
    return encode(width, height, kind, restart, quality, draw(st.booleans()))


@given(data=jpegs(), interval=st.integers(1, 9), seed=st.integers(0, 1000))
def test_cuts_of_any_jpeg_have_the_pixels_of_a_full_decode(data, interval, seed):
    frame = frame_of(data)
    try:
        entry = in_c_and_python(lambda: build_entry(data, interval=interval))
    except NotIndexableError as error:
        # Images of few colours can have tables with too few codes.
        assert "too few codes" in error.reason or "no room" in error.reason
        return
    image = decoded(data, (frame.width, frame.height))
    rng = random.Random(seed)
    for _ in range(6):
        width, height = rng.randint(1, frame.width), rng.randint(1, frame.height)
        box = (rng.randint(0, frame.width - width), rng.randint(0, frame.height - height), width, height)
        compare(data, entry, box, image)


@given(file=st.sampled_from(FILES), seed=st.integers(0, 1 << 32), count=st.integers(1, 4))
def test_the_compiled_part_finds_the_faults_that_python_finds(file, seed, count):
    _, data, _ = file
    rng = random.Random(seed)
    data, start = bytearray(data), frame_of(data).scan_start
    for _ in range(count):
        at, other = rng.randrange(start, len(data)), rng.randrange(start, len(data))
        kind = rng.randrange(5)
        if kind == 0:
            data[at] ^= 1 << rng.randrange(8)
        elif kind == 1:
            data[at:at] = rng.choice(
                (b"\xff", b"\xff\0", b"\xff\xff", b"\xff\xd9", bytes((255, 0xD0 + rng.randrange(8))))
            )
        elif kind == 2:
            del data[at : at + rng.randint(1, 30)]
        elif kind == 3:
            data[at:at] = data[other : other + 40]
        else:
            data[at : at + 40] = data[other : other + 40]
    with contextlib.suppress(NotIndexableError):
        in_c_and_python(lambda: build_entry(bytes(data), interval=2))


@with_cases(("kind", "quality"), [("420", 60), ("444", 95), ("grey", 60)])
def test_the_size_of_an_entry_is_nearest_to_a_twentieth_of_the_image(kind, quality):
    data = encode(640, 480, kind, quality=quality, blocks=False)
    entry = build_entry(data)
    interval = HEAD.unpack_from(entry)[1]
    others = [build_entry(data, interval=number) for number in (max(1, interval - 1), interval + 1)]
    distance, *distances = (abs(len(each) - 0.049 * len(data)) for each in (entry, *others))
    assert distance <= min(distances)


def test_a_point_is_noted_for_each_mcu():
    data = encode(100, 50, "420")
    points = scan_points(data)
    assert points.positions.shape == (4, 8)
    assert points.predictors.shape == (3, 4, 8)
    # Rows without restart markers continue each other.
    assert np.array_equal(points.predictors[:, :-1, -1], points.predictors[:, 1:, 0])
    assert (np.diff(points.positions.ravel()) >= 0).all()
    assert points.positions[0, 0] == 0
    assert points.positions[-1, -1] <= 8 * points.scan_nbytes
    assert (points.predictors[:, 0, 0] == 0).all()


PROGRESSIVE = bytes(cv2.imencode(".jpg", make_image(200, 200), [cv2.IMWRITE_JPEG_PROGRESSIVE, 1])[1])
ROWS = encode(200, 200, "444", 25)
REFUSED = {
    "text": (b"some text", "not a baseline JPEG"),
    "nothing": (b"", "not a baseline JPEG"),
    "progressive": (PROGRESSIVE, "not a baseline JPEG"),
    "intervals inside of rows": (encode(200, 200, "420", 5), "restart markers are not at the ends of rows"),
    "no end": (encode(200, 200)[:-2], "not followed by the end"),
    "half": (encode(200, 200)[:8000], "not followed by the end"),
    "cut short": (encode(200, 200)[:8000] + b"\xff\xd9", "ends before its last MCU"),
    "longer": (encode(200, 200)[:-2] + b"abcdef\xff\xd9", "goes on after its last MCU"),
    "tiny": (encode(32, 32), "so small that an index would not pay"),
    "taller": (
        encode(200, 200).replace(b"\x08\0\xc8\0\xc8", b"\x08\xff\xff\xff\xff", 1),
        "ends before its last MCU",
    ),
    "a restart marker less": (ROWS.replace(b"\xff\xd1", b"\xff\0", 1), "restart markers"),
    "another restart marker": (ROWS.replace(b"\xff\xd1", b"\xff\xd2", 1), "restart markers"),
    "restart markers that are not announced": (
        ROWS.replace(b"\xff\xdd\0\4\0\x19", b"", 1),
        "restart markers",
    ),
}


@with_cases(("data", "reason"), REFUSED.values(), ids=REFUSED)
def test_other_images_are_refused_with_a_reason(data, reason):
    with pytest.raises(NotIndexableError, match=reason) as caught:
        in_c_and_python(lambda: build_entry(data))
    assert reason in caught.value.reason


def test_a_wide_flat_image_that_would_need_a_longer_interval_than_entries_have_is_refused():
    image = np.full((48, 65500), 128, np.uint8)
    image[:8, :8], image[16:24, 100:108], image[40:48, 40000:40008] = 255, 0, np.eye(8) * 255
    options = [cv2.IMWRITE_JPEG_QUALITY, 50, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
    data = bytes(cv2.imencode(".jpg", image, options)[1])
    with pytest.raises(NotIndexableError, match="so small"):
        build_entry(data)
    assert build_entry(data, interval=255)[1] == 255


@with_cases("interval", [0, -1, 256])
def test_an_interval_that_entries_cannot_have_is_an_error(interval):
    with pytest.raises(ValueError, match="interval must be 1 to 255"):
        build_entry(FILES[0][1], interval=interval)


def test_an_image_whose_rows_begin_at_numbers_of_more_than_32_bits_is_refused():
    with mmap.mmap(-1, 1 << 29) as memory, memoryview(memory) as data:
        memory[: len(FILES[0][1])] = FILES[0][1]
        with pytest.raises(NotIndexableError, match="512 MiB"):
            build_entry(data)


def test_segments_before_the_frame_do_not_matter():
    plain = encode(200, 160, "422")
    data = before_frame(plain, segment(0xE1, b"x" * 3000) + segment(0xFE, b"comment"))
    entry = build_entry(data)
    assert compare(data, entry, (60, 60, 50, 50), simplejpeg.decode_jpeg(data)) is not None
