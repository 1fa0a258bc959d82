"""Tests of counting frames: right for what Pillow writes, and never long or wrong for damaged data."""

from __future__ import annotations

import io

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.transforms.formats import count_frames
from tests.cases import with_cases

KINDS = {"GIF": "gif", "WEBP": "webp", "TIFF": "tiff", "PNG": "png"}


def written(kind: str, frames: int) -> bytes:
    pillow = pytest.importorskip("PIL.Image", reason="needs Pillow")
    noise = np.random.default_rng(0).integers(0, 256, (frames, 9, 7, 3), dtype=np.uint8)
    images = [pillow.fromarray(each) for each in noise]
    file = io.BytesIO()
    images[0].save(file, kind, save_all=True, append_images=images[1:])
    return file.getvalue()


@with_cases("frames", [1, 2, 30])
@with_cases("kind", KINDS)
def test_frames_are_counted(kind: str, frames: int) -> None:
    data = written(kind, frames)
    assert count_frames(data, KINDS[kind], 100) == frames
    if kind != "PNG":
        assert count_frames(data, KINDS[kind], 5) == min(frames, 6)


@pytest.mark.parametrize("kind", KINDS)
def test_cut_data_has_the_frames_that_are_there(kind: str) -> None:
    data = written(kind, 10)
    counts = [count_frames(data[:end], KINDS[kind], 100) for end in range(0, len(data), 7)]
    assert all(1 <= count <= 10 for count in counts)


@given(data=st.binary(max_size=300), kind=st.sampled_from(["gif", "webp", "tiff", "png", "jpeg"]))
def test_other_data_has_some_number(data: bytes, kind: str) -> None:
    for head in (
        b"",
        b"GIF89a\1\0\1\0\x80\0\0",
        b"RIFF\0\0\0\0WEBP",
        b"II*\0\x08\0\0\0",
        b"\x89PNG\r\n\x1a\n",
    ):
        assert count_frames(head + data, kind, 3) >= 1


def test_pages_that_refer_to_each_other_are_counted_once() -> None:
    # One directory without entries whose next one is itself.
    data = b"II*\0\x08\0\0\0" + b"\0\0" + b"\x08\0\0\0"
    assert count_frames(data, "tiff", 1000) == 1


def test_a_jpeg_has_one() -> None:
    assert count_frames(b"\xff\xd8\xff", "jpeg", 1) == 1
