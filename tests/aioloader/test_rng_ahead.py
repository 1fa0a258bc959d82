"""Tests of words drawn ahead for many samples: the draws are the same, with the compiled part and without it."""

from __future__ import annotations

from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import rng as rng_module
from aioloader.foundation.native import native
from aioloader.rng import Rng


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


@pytest.mark.skipif(native is None, reason="aioloader._native is not built")
def test_memory_of_another_size_is_refused():
    assert native is not None
    for places, words in ((23, 32), (24, 40), (24, 31), (0, 32)):
        with pytest.raises(ValueError, match="sizes do not fit each other"):
            native.draw_words(1, bytes(places), bytearray(words))
    native.draw_words(1, b"", bytearray(0))
