"""Tests of what is drawn ahead for many samples: it is the same with the compiled part and without it."""

from __future__ import annotations

import math
import struct
from typing import Any
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import rng as rng_module
from aioloader.errors import DecodeError
from aioloader.foundation.native import native
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop
from aioloader.transforms.raw import read_raw_header


@given(
    st.booleans(),
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 99), *[st.integers(0, 2**63 - 1)] * 2), max_size=5),
    st.lists(st.sampled_from(["random", "integers", "words", "normal"]), max_size=24),
)
def test_words_drawn_ahead_are_those_of_the_stream(compiled, seed, places, draws):
    def drawn(rng):
        return [
            {"random": rng.random, "normal": rng.normal}[draw]()
            if draw in ("random", "normal")
            else rng.integers(1000)
            if draw == "integers"
            else rng.words(3).tolist()
            for draw in draws
        ]

    rng = Rng(1)
    table = np.array(places, np.int64).reshape(-1, 3)
    with mock.patch.object(rng_module, "native", native if compiled else None):
        ahead = rng.ahead(seed, table.T.copy().T)
    for (epoch, index, position), words in zip(places, ahead, strict=True):
        rng.seek(seed, epoch, index, position=position, words=words)
        assert not rng.drew
        assert drawn(rng) == drawn(Rng(seed, epoch, index, position=position))
        assert rng.drew == bool(draws)


def raw_head(height, width, channels=3, start=24):
    return struct.pack("<8sBBHIII", b"\x8cRAW\r\n\x1a\n", 1, 1, channels, height, width, start)


def crop_of(image, rng, crop, most):
    """Return what `draw_crops` returns for an image, by the functions that it stands for."""
    try:
        height, width, channels, start = read_raw_header(image)
    except DecodeError:
        return None
    if channels != 3 or height * width > most:
        return None
    ahead = list(rng._words)
    x, y, w, h = crop.box(height, width, rng)
    if rng._words != ahead or (h, w) == crop.size:
        return None
    return start + 3 * (y * width + x), h, w, 3 * width, rng._next


@pytest.mark.skipif(native is None, reason="aioloader._native is not built")
@given(
    st.integers(0, 2**64 - 1),
    st.lists(
        st.tuples(
            *[st.integers(1, 40)] * 2, st.sampled_from([3, 3, 3, 1]), st.sampled_from([24, 24, 31, 23])
        ),
        min_size=1,
        max_size=6,
    ),
    st.tuples(*[st.floats(1e-3, 4.0)] * 2).map(sorted),
    st.tuples(*[st.floats(0.1, 10.0)] * 2).map(sorted),
    st.sampled_from([4, 8, 16]),  # fewer than what is drawn where nothing fits
    st.tuples(st.integers(0, 70), st.integers(0, 255)),
)
def test_crops_of_raw_images_are_drawn_in_c_as_in_python(seed, heads, scale, ratio, ahead, fault):
    crop, most = RandomResizedCrop((5, 7), scale, ratio), 900
    images: list[bytearray] = [
        bytearray(raw_head(*head) + bytes(head[0] * head[1] * head[2] + head[3] - 24)) for head in heads
    ]
    if fault[0] < len(images[0]):
        images[0][fault[0]] = fault[1]
    words = [Rng(seed, 1, index).words(ahead).tolist() for index in range(len(images))]
    expected = []
    for index, image in enumerate(images):
        rng = Rng(0)
        rng.seek(seed, 1, index, words=words[index])
        expected.append(crop_of(bytes(image), rng, crop, most))
    found = crop.draw_crops([memoryview(image) for image in images], words, most)
    assert found == expected


@pytest.mark.skipif(native is None, reason="aioloader._native is not built")
def test_crops_are_drawn_in_c_only_for_whole_raw_images_and_from_words_that_are_there():
    assert native is not None
    ranges = (2**64 - 1, (5, 7), (0.08, 1.0), (-0.2, 0.2))
    image, words = raw_head(40, 50) + bytes(6000), Rng(3).words(8).tolist()
    (usual,) = native.draw_crops([image], [words], *ranges, math.exp)
    assert len(usual) == 5
    largest = raw_head(2**31 - 1, 2**31 - 1)
    images = [None, b"", image[:-1], image + b"0", largest, raw_head(0, 50), image, image, image, image]
    others: list[Any] = [words[: usual[4] - 1], [], [-1] * 8, [2**64] * 8, [None] * 8, None]
    given_words = [words] * 6 + others[:4]
    assert native.draw_crops(images, given_words, *ranges, math.exp) == [None] * 10
    assert native.draw_crops([image] * 2, others[4:], *ranges, math.exp) == [None] * 2
    assert native.draw_crops([image], [words], *ranges, lambda power: 1 / 0) == [None]
    assert native.draw_crops([image], [words], 1999, *ranges[1:], math.exp) == [None]
    assert native.draw_crops([], [], *ranges, math.exp) == []
    with pytest.raises(ValueError, match="sizes do not fit each other"):
        native.draw_crops([image], [], *ranges, math.exp)
    with pytest.raises(TypeError):
        native.draw_crops([1], [words], *ranges, math.exp)


@pytest.mark.skipif(native is None, reason="aioloader._native is not built")
def test_memory_of_another_size_is_refused():
    assert native is not None
    for places, words in ((23, 32), (24, 40), (24, 31), (0, 32)):
        with pytest.raises(ValueError, match="sizes do not fit each other"):
            native.draw_words(1, bytes(places), bytearray(words))
    native.draw_words(1, b"", bytearray(0))
