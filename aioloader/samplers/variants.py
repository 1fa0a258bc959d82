"""Sampler of batches, each of one of several variants of a dataset, such as sizes of its images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.basic import check_count
from aioloader.samplers.dealt import DealtBatchSampler
from aioloader.samplers.epoch_order import epoch_key, mix, permute

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import IntArray

_VARIANTS = 3  # use of an epoch's key: the variant of each batch


class VariantBatchSampler(DealtBatchSampler):
    """Batches of one variant each, drawn at random for each batch; every item comes once, in one of its variants.

    The variants are parts of an `aioloader.ConcatDataset`: variant k of item i has the index ``k * length + i``. So the
    image size may differ from batch to batch::

        sized = aioloader.ConcatDataset([photos.transform_first(RandomResizedCrop(size)) for size in (160, 192, 224)])
        batches = VariantBatchSampler(len(photos), [96, 64, 48])
        loader = aioloader.DataLoader(sized, batch_sampler=batches)

    In a loader the loader's seed and epoch number determine the order and the variants, so that a run can be repeated
    and resumed; iterated alone, the sampler counts its iterations as epochs.

    Args:
        length: number of items.
        batch_sizes: items of a batch, one number for each variant.
        shuffle: a new random order in each epoch; False: in order.
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone.
        drop_last: leave out a last batch that is not full, and the last step if it has no batch for some ranks. False:
            ranks without one repeat a batch from the start of the epoch.
        shard: (rank, world size), or "auto" for those of RANK and WORLD_SIZE in the environment; None: one process, or
            the loader's.

    Raises:
        TypeError, ValueError: an argument is not allowed.
    """

    def __init__(
        self,
        length: int,
        batch_sizes: Sequence[int],
        *,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        shard: Any = None,
    ) -> None:
        super().__init__(seed=seed, drop_last=drop_last, shard=shard)
        self._length = check_count("length", length)
        if not isinstance(batch_sizes, (Sequence, np.ndarray)):
            raise TypeError(f"batch_sizes must have a number for each variant, got {batch_sizes!r}")
        self.sizes = tuple(check_count("batch_sizes", size, 1) for size in batch_sizes)
        require(len(self.sizes), "batch_sizes must have a number for each variant, at least one")
        self._shuffle = shuffle

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        return "variants", self._length, self.sizes, self._shuffle, self._drop_last

    def all_batches(self, seed: int, epoch: int) -> Iterator[IntArray]:
        """Iterate over the batches of all ranks; see `DealtBatchSampler`."""
        key = epoch_key(seed, epoch, _VARIANTS)
        number = start = 0
        while start < self._length:
            drawn = int(mix(np.array([number], np.uint64) ^ key)[0])
            variant = drawn * len(self.sizes) >> 64
            stop = min(start + self.sizes[variant], self._length)
            if stop - start < self.sizes[variant] and self._drop_last:
                return
            if self._shuffle:
                indices = permute(seed, epoch, self._length, start, stop)
            else:
                indices = np.arange(start, stop, dtype=np.int64)
            yield indices + variant * self._length
            start, number = stop, number + 1
