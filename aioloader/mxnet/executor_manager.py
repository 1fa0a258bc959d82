"""`mx.executor_manager`: how a batch is divided among devices."""

from __future__ import annotations

from itertools import accumulate
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.outside import outside_class

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ()


def _split_input_slice(batch_size: int, work_load_list: Sequence[float]) -> list[slice]:
    """Return the rows of each device, in proportion to its load; the last one takes what rounding leaves.

    Raises:
        ValueError: a device would get no rows.
    """
    total = sum(work_load_list)
    counts = [round(load * batch_size / total) for load in work_load_list]
    counts[-1] += max(0, batch_size - sum(counts))
    ends = [min(int(end), batch_size) for end in accumulate(counts)]
    slices = [slice(start, end) for start, end in zip((0, *ends), ends, strict=False)]
    if any(each.start >= each.stop for each in slices):
        raise ValueError("Too many slices. Some splits are empty.")
    return slices


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return outside_class(f"mx.executor_manager.{name}")
