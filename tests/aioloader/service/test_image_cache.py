"""Tests of the cache of made images."""

from __future__ import annotations

import collections
import dataclasses
from typing import Any

import numpy as np
import pytest

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
