"""Tests of the cache of made images."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.image_cache import ImageCache
from tests.aioloader.service.images import numbered, service_of
from tests.cases import with_cases

SIZE = 30_000
LIMIT = 4 * SIZE


@dataclasses.dataclass(slots=True)
class Slotted:
    content: Any


class Opaque:
    def __init__(self, content: Any) -> None:
        self.content = content
        self.itself = self


class Sizeless:
    @property
    def nbytes(self) -> int:
        raise RuntimeError("no size")


def tensor(data: bytes) -> Any:
    torch = pytest.importorskip("torch")
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def pillow(data: bytes) -> Any:
    return pytest.importorskip("PIL.Image").frombytes("L", (SIZE, 1), data)


KINDS: dict[str, Any] = {
    "array": lambda data: np.frombuffer(data, np.uint8).copy(),
    "tensor": tensor,
    "jax": lambda data: pytest.importorskip("jax.numpy").asarray(np.frombuffer(data, np.uint8)),
    "pillow": pillow,
    "bytes": lambda data: data,
    "bytearray": bytearray,
    "text": lambda data: data.decode("latin-1"),
    "objects": lambda data: np.array([data[:10], data[10:], None], object)[:2],
    "rows": lambda data: np.array([(1, data)], [("a", np.int32), ("b", object)]),
    "set": lambda data: {data},
    "key": lambda data: {data: 1},
    "deque": lambda data: collections.deque([data]),
    "slots": lambda data: collections.deque([Slotted(data)]),
    "opaque": lambda data: Opaque([1, {"a": data}]),
    "nested": lambda data: {"a": [1, (data[: SIZE // 2], None)], "b": data[SIZE // 2 :].decode("latin-1")},
    "numbers": lambda data: list(range(1000, 1000 + SIZE // 32)),
}


@with_cases("kind", KINDS)
async def test_the_limit_holds_for_results_of_any_kind(kind: str) -> None:
    made = KINDS[kind](bytes(SIZE))

    def make(image: Any) -> Any:
        return KINDS[kind](image.tobytes() + bytes(SIZE - 3))

    async with service_of(make, cache_limit=LIMIT) as service:
        for number in range(12):
            assert type(await service.get(numbered(number))) is type(made)
        stats = service.stats()
        assert 1 <= stats.cached <= 4
        assert SIZE * stats.cached <= stats.cache_nbytes <= LIMIT
        await service.get(numbered(11))
        assert service.stats().cache_hits == 1


async def test_an_object_whose_size_cannot_be_found_is_not_kept() -> None:
    async with service_of(lambda image: Sizeless(), cache_limit=LIMIT) as service:
        assert isinstance(await service.get(numbered(1)), Sizeless)
        assert service.stats().cached == 0


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
