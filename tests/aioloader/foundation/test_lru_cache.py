"""Tests of the cache that drops what was used least recently."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.lru_cache import LRUCache


def test_the_value_used_least_recently_is_dropped() -> None:
    cache: LRUCache[str, str] = LRUCache(30)
    for key in "abc":
        assert cache.put(key, key.upper(), 10) == []
    assert cache.get("a") == "A"
    assert cache.put("d", "D", 10) == ["B"]
    assert [cache.get(key) for key in "abcd"] == ["A", None, "C", "D"]
    assert (cache.hits, cache.misses) == (4, 1)
    assert cache.shrink(20) == ["A"]
    assert cache.drop_oldest()
    assert ("c" in cache, "d" in cache, cache.size) == (False, True, 10)
    cache.clear()
    assert (len(cache), cache.size, cache.drop_oldest()) == (0, 0, False)


def test_a_value_that_is_larger_than_the_limit_is_not_kept_and_drops_no_other() -> None:
    cache: LRUCache[str, int] = LRUCache(10)
    cache.put("a", 1, 5)
    cache.put("b", 2, 5)
    assert cache.put("b", 3, 11) == []
    assert (cache.get("a"), cache.get("b"), cache.size) == (1, None, 5)
    assert (cache.pop("a"), cache.pop("a"), cache.size) == (1, None, 0)


def test_values_without_a_size_are_counted() -> None:
    cache: LRUCache[int, int] = LRUCache(3)
    assert [cache.put(number, number) for number in range(5)] == [[], [], [], [0], [1]]
    assert len(cache) == 3


@given(st.integers(0, 50), st.lists(st.tuples(st.integers(0, 9), st.integers(0, 30))))
def test_the_size_is_that_of_the_values_and_at_most_the_limit(
    limit: int, puts: list[tuple[int, int]]
) -> None:
    cache: LRUCache[int, int] = LRUCache(limit)
    for key, size in puts:
        cache.put(key, size, size)
        kept = [found for each in range(10) if (found := cache.get(each)) is not None]
        assert cache.size == sum(kept) <= limit
        assert len(cache) == len(kept)
