"""Passes of an iterator, for tests."""

from __future__ import annotations

from typing import Any


def passes(iterator: Any, count: int) -> list[list[tuple[list[float], int]]]:
    found = []
    for _ in range(count):
        found.append([(batch.data[0][:, 0].tolist(), batch.pad) for batch in iterator])
        iterator.reset()
    return found
