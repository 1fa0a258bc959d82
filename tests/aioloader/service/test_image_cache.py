"""Tests of the cache of made images."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.image_cache import ImageCache


def test_the_image_used_least_recently_is_dropped() -> None:
    cache = ImageCache(30)
    for key in "abc":
        cache.put(key, key.upper(), 10)
    assert cache.get("a") == ("A",)
    cache.put("d", "D", 10)
    assert cache.get("b") is None
    assert [cache.get(key) for key in "acd"] == [("A",), ("C",), ("D",)]
    assert (cache.hits, cache.misses, cache.evictions) == (4, 1, 1)


def test_an_image_that_is_larger_than_the_limit_is_not_kept_and_drops_nothing() -> None:
    cache = ImageCache(10)
    cache.put("a", 1, 10)
    cache.put("b", 2, 11)
    assert cache.get("a") == (1,)
    assert cache.get("b") is None


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30))))
def test_the_bytes_are_those_of_the_images_and_below_the_limit(
    limit: int, puts: list[tuple[int, int]]
) -> None:
    cache = ImageCache(limit)
    for key, nbytes in puts:
        cache.put(key, nbytes, nbytes)
        kept = [found[0] for each in range(10) if (found := cache.get(each)) is not None]
        assert cache.nbytes == sum(kept) <= limit
        assert len(cache) == len(kept)
