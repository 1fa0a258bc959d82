"""Reads of items from a byte source, for tests."""

from __future__ import annotations

import numpy as np

from aioloader.foundation.types import Spans
from aioloader.storage import LocalByteSource


def spans(*triples: tuple[int, int, int]) -> Spans:
    table = np.array(triples, np.int64).reshape(-1, 3)
    return Spans(table[:, 0].copy(), table[:, 1].copy(), table[:, 2].copy())


def whole(*files: int) -> Spans:
    return spans(*[(file, 0, -1) for file in files])


def fetch(source: LocalByteSource, wanted: Spans) -> tuple[list[bytes | None], dict[int, BaseException]]:
    """Return the bytes of every item, None for failed ones, and the errors."""
    plan = source.plan_blocking(wanted)
    out = memoryview(bytearray(plan.nbytes))
    failures = dict(plan.failures) | dict(source.read_blocking(plan, out))
    items = [
        None if place in failures else bytes(out[start : start + length])
        for place, (start, length) in enumerate(zip(plan.start.tolist(), plan.length.tolist(), strict=True))
    ]
    return items, failures
