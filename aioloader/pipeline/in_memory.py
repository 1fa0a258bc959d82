"""In-memory data: a batch is one gather per array, straight into leased memory. Nothing here waits."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.pipeline.context import Delivery, PipelineContext

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.pipeline.plan import BatchPlan

__all__ = ("InMemoryBatcher",)


# Larger pieces of memory are mapped anew each time by glibc, and filling fresh pages is what slabs avoid.
_SMALL = 128 * 1024


class InMemoryBatcher:
    """Makes the batches of one epoch.

    Args:
        context: the parts; its items have arrays.
    """

    def __init__(self, context: PipelineContext) -> None:
        assert context.items.arrays is not None
        self._context = context
        self._single = context.items.single
        # One row of a batch: its array, shape, dtype and bytes.
        self._columns = [
            (array, array.shape[1:], array.dtype, array[:1].nbytes) for array in context.items.arrays
        ]
        self._checked: Any = None
        self._rows = -1
        self._parts: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        self._nbytes = 0

    def batch(self, plan: BatchPlan) -> Delivery:
        """The batch of a plan.

        Raises:
            IndexError: the sampler gave an index outside of the data.
        """
        begin = perf_counter()
        context = self._context
        indices = self._base(plan.indices)
        n = len(indices)
        if n != self._rows:
            self._lay_out(n)
        # Beyond what the caller may keep, batches are ordinary arrays, and so are small ones: the C library's allocator
        # hands the memory of the last one out again, which costs less than a lease.
        slab = None
        if self._nbytes > _SMALL and context.may_lease(self._nbytes):
            slab = context.memory.allocate(self._nbytes, lasting=True)
        roots: list[Array]
        if slab is None:
            roots = [np.empty(shape, dtype) for _, shape, dtype in self._parts]
        else:
            roots = context.memory.lend(slab, self._parts)
        for (array, _, _, _), root in zip(self._columns, roots, strict=True):
            array.take(indices, 0, root, "clip")
        context.metrics.collate_s += perf_counter() - begin
        return Delivery(plan.consumed, roots[0] if self._single else tuple(roots), None, [], n, plan.padded)

    def _base(self, indices: IntArray) -> IntArray:
        items = self._context.items
        if items.remap is not None or indices.base is None:
            return items.base(indices)
        # Plans are stretches of longer blocks of indices: a block is looked at once.
        block: Any = indices.base
        if block is not self._checked:
            plain = isinstance(block, np.ndarray) and block.ndim == 1
            if not plain or not 0 <= block.min() <= block.max() < items.length:
                return items.base(indices)
            self._checked = block
        return indices

    def _lay_out(self, rows: int) -> None:
        self._rows = rows
        self._parts = []
        place = 0
        for _, shape, dtype, nbytes in self._columns:
            self._parts.append((place, (rows, *shape), dtype))
            place += -(-rows * nbytes // 64) * 64
        self._nbytes = place
