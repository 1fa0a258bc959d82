"""`mx.gluon.data.sampler`: the samplers of `aioloader.samplers`; the random one draws from `numpy.random`."""

from __future__ import annotations

from itertools import chain, islice
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import samplers
from aioloader.mxnet.base import renamed
from aioloader.samplers.basic import FilterSampler, IntervalSampler, Sampler, SequentialSampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.foundation.types import IntArray

__all__ = (
    "BatchSampler",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
)

# Number of indices read at once from a caller's sampler; only an endless one has more.
_DRAWN_AT_ONCE = 1 << 20


class RandomSampler(Sampler):
    """Sampler of every index of range(length) once, in a new order at each ``iter``, drawn from `numpy.random`.

    After ``np.random.seed(0)`` the order is MXNet's.

    Args:
        length: number of indices.
    """

    def __init__(self, length: int) -> None:
        self._length = length

    def order(self) -> IntArray:
        """Draw the order of a pass: int64 (length,)."""
        indices = np.arange(self._length, dtype=np.int64)
        np.random.shuffle(indices)
        return indices

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the indices of one pass, numpy integers."""
        return iter(self.order())

    def __len__(self) -> int:
        return self._length


class BatchSampler(samplers.BatchSampler):
    """Lists of `batch_size` indices from another sampler; see `aioloader.samplers.BatchSampler`.

    Args:
        sampler: iterable of single indices, with a length.
        batch_size: indices of a batch, at least 1.
        last_batch: "keep", "discard" or "rollover".
    """

    _sampler = renamed("sampler")
    _batch_size = renamed("batch_size")
    _last_batch = renamed("last_batch")
    _prev = renamed("_carried")

    def batches(self, at_once: bool) -> Iterator[Any]:
        """Return the batches of one pass, for the loader: those of ``iter``, or int64 arrays.

        Args:
            at_once: draw the order now, not when the first batch is requested.
        """
        if type(self).__iter__ is not BatchSampler.__iter__:
            return iter(self)
        return self._drawn(_order(self.sampler, True) if at_once else None)

    def _drawn(self, order: IntArray | Iterable[Any] | None) -> Iterator[Any]:
        if order is None:
            order = _order(self.sampler, False)
        yield from self._slices(order) if isinstance(order, np.ndarray) else self._cut(order)

    def _slices(self, order: IntArray) -> Iterator[IntArray]:
        if self._carried:
            order = np.concatenate([np.asarray(self._carried, dtype=np.int64), order])
            self._carried = []
        size = self.batch_size
        whole = len(order) // size * size
        for start in range(0, whole, size):
            yield order[start : start + size]
        if self.last_batch == "rollover":
            self._carried = order[whole:].tolist()
        elif self.last_batch == "keep" and whole < len(order):
            yield order[whole:]


def _order(sampler: Iterable[Any], at_once: bool) -> IntArray | Iterable[Any]:
    """Return the order of one pass: an int64 array where it is known at once, else an iterable of indices."""
    # By the type itself: a derived class may have another order.
    if isinstance(sampler, RandomSampler) and type(sampler) is RandomSampler:
        return sampler.order()
    computed = SequentialSampler, FilterSampler, IntervalSampler
    if isinstance(sampler, computed) and type(sampler) in computed:
        return sampler.indices(0, 0, 0, len(sampler))
    source = iter(sampler)
    return chain(list(islice(source, _DRAWN_AT_ONCE)), source) if at_once else source
