"""Tests of words drawn ahead for many samples: the draws are the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.rng import Rng


@given(
    st.integers(0, 2**64 - 1),
    st.lists(st.tuples(st.integers(0, 99), *[st.integers(0, 2**40)] * 2), min_size=1, max_size=5),
    st.lists(st.sampled_from(["random", "integers", "words", "normal"]), max_size=24),
)
def test_words_drawn_ahead_are_those_of_the_stream(seed, places, draws):
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
    ahead = rng.ahead(seed, places)
    for (epoch, index, position), words in zip(places, ahead, strict=True):
        rng.seek(seed, epoch, index, position=position, words=words)
        assert not rng.drew
        assert drawn(rng) == drawn(Rng(seed, epoch, index, position=position))
        assert rng.drew == bool(draws)
