"""Sampler of batches whose items are alike: of about one length, or of one aspect ratio.

Shapes of about one area with different aspect ratios, and the nearest of them for each image (pure).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import BudgetError
from aioloader.foundation.validation import require
from aioloader.samplers.basic import check_count
from aioloader.samplers.dealt import DealtBatchSampler
from aioloader.samplers.epoch_order import permute

if TYPE_CHECKING:
    from collections.abc import Iterator

    import numpy.typing as npt

    from aioloader.foundation.types import Array, IntArray


def aspect_shapes(area: int, *, multiple_of: int = 32, max_ratio: float = 2.0) -> list[tuple[int, int]]:
    """Return shapes (height, width) of about one area, from the widest to the tallest.

    Each side is a multiple of `multiple_of`. For each width there is the height that comes nearest to the area, and for
    each height the width; and the square that comes nearest.

    Args:
        area: height times width, in pixels.
        multiple_of: divisor of both sides, in pixels.
        max_ratio: largest ratio of the longer to the shorter side, at least 1.

    Raises:
        ValueError: an argument is out of its range.
    """
    unit = check_count("multiple_of", multiple_of, 1)
    require(max_ratio >= 1, f"max_ratio must be at least 1, got {max_ratio}")
    side = check_count("area", area, 1) ** 0.5
    square = max(1, round(side / unit)) * unit
    found = {(square, square)}
    for units in range(1, int(side * max_ratio**0.5 // unit) + 2):
        one = units * unit
        other = max(1, round(area / one / unit)) * unit
        if max(one, other) <= max_ratio * min(one, other):
            found |= {(one, other), (other, one)}
    return sorted(found, key=lambda shape: (shape[0] / shape[1], shape[0]))


def nearest_shape(sizes: npt.ArrayLike, shapes: Sequence[tuple[int, int]]) -> IntArray:
    """Return for each image the number of the shape whose aspect ratio is nearest to its own, int64 (n,).

    The distance is that of the logarithms of the ratios: as far to twice the width as to half of it. Of equal distances
    the first shape is taken.

    Args:
        sizes: (n, 2), (height, width) of each image in pixels, at least 1 each; see `aioloader.image_sizes`.
        shapes: (height, width), at least one.

    Raises:
        ValueError: a size or shape is not positive, or there are no shapes.
    """
    table = np.asarray(sizes, np.float64).reshape(-1, 2)
    offered = np.asarray(shapes, np.float64).reshape(-1, 2)
    require(len(offered), "there must be at least one shape")
    require((table > 0).all() and (offered > 0).all(), "heights and widths must be at least 1")
    ratios = np.log(offered[:, 0] / offered[:, 1])
    order = np.argsort(ratios, kind="stable")
    wanted = np.log(table[:, 0] / table[:, 1])
    middles = (ratios[order][1:] + ratios[order][:-1]) / 2
    return order[np.searchsorted(middles, wanted, side="left")].astype(np.int64)


# The order of the batches is drawn by another seed than the order of the indices.
_ORDER_OF_BATCHES = 0x9E3779B97F4A7C15


class BucketBatchSampler(DealtBatchSampler):
    """Batches of indices of one bucket each, so that little of a padded batch is padding; every index once.

    ::

        lengths = [len(text) for text in texts]
        batches = BucketBatchSampler(lengths, 32, buckets=8)
        loader = aioloader.DataLoader(dataset, batch_sampler=batches, batchify_fn=batchify.Pad())

    In a loader the loader's seed and epoch number determine the batches, so that a run can be repeated and resumed;
    iterated alone, the sampler counts its iterations as epochs.

    Rule: the indices come in random order; those of each bucket are cut into batches in that order, and the batches of
    all buckets come in random order. What is left of a bucket is a smaller batch. Without `shuffle` a batch comes when
    its last index does, and what is left of the buckets at the end.

    With `shard` the batches are dealt out: of each step of all ranks a rank gets one batch, so all ranks have the same
    number of steps. A state that was saved with one number of ranks can be loaded with another.

    Memory: 16 bytes for each index, and as much again while an epoch begins: a million indices take 0.3 s.

    Args:
        keys: (n,), a number for each index: its length, or the number of its bucket; see `aioloader.image_sizes` and
            `nearest_shape`.
        batch_size: indices of a batch; a sequence has one size for each bucket, in the order of their keys.
        budget: instead of `batch_size`: the most that a batch takes if each item is padded to the largest key of its
            bucket. A bucket has batches of ``budget // largest key`` indices.
        buckets: how keys become buckets: a number of them, with equally many indices each; or ascending boundaries,
            where a key on a boundary belongs to the bucket above it; None: each distinct key is a bucket.
        shuffle: a new random order in each epoch; False: in order.
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone.
        drop_last: leave out the smaller batches, and the last step if it has no batch for some ranks. False: ranks
            without one repeat a batch from the start of the epoch.
        shard: (rank, world size), or "auto" for those of RANK and WORLD_SIZE in the environment; None: one process.

    Attributes:
        sizes: indices of a full batch of each bucket, in the order of their keys.

    Raises:
        BudgetError: an item alone is larger than the budget.
        TypeError, ValueError: another argument is not allowed.
    """

    def __init__(
        self,
        keys: npt.ArrayLike,
        batch_size: int | Sequence[int] | None = None,
        *,
        budget: int | None = None,
        buckets: int | Sequence[float] | None = None,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        shard: Any = None,
    ) -> None:
        super().__init__(seed=seed, drop_last=drop_last, shard=shard)
        table = np.array(keys)
        if table.size and table.dtype.kind not in "iuf":
            raise TypeError(f"keys must be numbers, got dtype {table.dtype}")
        require(table.ndim == 1, f"keys must have one axis, got shape {table.shape}")
        require(not np.isnan(table).any(), "keys must be numbers, and some are NaN")
        if (batch_size is None) == (budget is None):
            raise ValueError("pass a batch_size or a budget, and not both")
        self._bucket, count = _buckets(table, buckets)
        if budget is None:
            assert batch_size is not None
            self.sizes = _given_sizes(batch_size, count)
        else:
            self.sizes = _sizes_within(check_count("budget", budget, 1), table, self._bucket, count)
        self._shuffle = shuffle

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        digest = hashlib.sha256(self._bucket.astype("<i8").tobytes()).hexdigest()
        return ("buckets", *self.sizes, self._shuffle, self._drop_last, digest)

    def all_batches(self, seed: int, epoch: int) -> Iterator[IntArray]:
        """Iterate over the batches of all ranks; see `DealtBatchSampler`."""
        count = len(self._bucket)
        order = permute(seed, epoch, count, 0, count) if self._shuffle else np.arange(count, dtype=np.int64)
        bucket = self._bucket[order]
        by_bucket = np.argsort(bucket, kind="stable")  # places in the order, bucket by bucket
        ends = np.cumsum(np.bincount(bucket, minlength=len(self.sizes)))
        full: list[tuple[int, int]] = []
        partial: list[tuple[int, int]] = []
        start = 0
        for size, end in zip(self.sizes, ends.tolist(), strict=True):
            whole = start + (end - start) // size * size
            full += [(low, low + size) for low in range(start, whole, size)]
            if whole < end and not self._drop_last:
                partial.append((whole, end))
            start = end
        if self._shuffle:
            parts = full + partial
            turns = permute(seed ^ _ORDER_OF_BATCHES, epoch, len(parts), 0, len(parts)).tolist()
            parts = [parts[turn] for turn in turns]
        else:
            parts = sorted(full, key=lambda part: int(by_bucket[part[1] - 1])) + partial
        for low, high in parts:
            yield order[by_bucket[low:high]]


def _buckets(keys: Array, buckets: int | Sequence[float] | None) -> tuple[IntArray, int]:
    """Return the bucket of each key, int64, and the number of buckets."""
    if buckets is None:
        found, numbers = np.unique(keys, return_inverse=True)
        return numbers.astype(np.int64).reshape(-1), len(found)
    if hasattr(buckets, "__index__"):
        count = check_count("buckets", buckets, 1)
        ordered = np.sort(keys)
        places = np.arange(1, count) * len(keys) // count
        bounds = ordered[places] if len(keys) else ordered
    else:
        bounds = np.asarray(buckets, dtype=np.float64)
        require(bounds.ndim == 1, "buckets must be a number of buckets, or their boundaries")
        require((np.diff(bounds) > 0).all(), "the boundaries of buckets must be ascending")
    return np.searchsorted(bounds, keys, side="right").astype(np.int64), len(bounds) + 1


def _given_sizes(batch_size: int | Sequence[int], count: int) -> tuple[int, ...]:
    if not isinstance(batch_size, (Sequence, np.ndarray)):
        return (check_count("batch_size", batch_size, 1),) * count
    sizes = tuple(check_count("batch_size", each, 1) for each in batch_size)
    require(len(sizes) == count, f"batch_size has {len(sizes)} sizes, and there are {count} buckets")
    return sizes


def _sizes_within(budget: int, keys: Array, bucket: IntArray, count: int) -> tuple[int, ...]:
    most = np.zeros(count)
    np.maximum.at(most, bucket, keys)
    wrong = np.flatnonzero((keys > budget) | (keys < 0))
    if len(wrong):
        raise BudgetError(int(keys[wrong[0]]), budget, item=int(wrong[0]))
    return tuple(int(budget // max(each, 1)) for each in most.tolist())
