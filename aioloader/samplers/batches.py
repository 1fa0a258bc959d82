"""Samplers of batches that are made of chosen items, dealt out to ranks.

Batches within a budget, such as a number of tokens or pixels: first fit within a window, nearly in the order of
arrival. Batches of items that are alike: of about one length, or of one aspect ratio. Batches of one variant of a
dataset, such as a size of its images.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_right, insort
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import numpy as np

from aioloader.errors import BudgetError
from aioloader.foundation.validation import require
from aioloader.samplers.basic import check_count
from aioloader.samplers.dealt import DealtBatchSampler
from aioloader.samplers.epoch_order import epoch_key, mix, permute

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy.typing as npt

    from aioloader.foundation.types import Array, IntArray


T = TypeVar("T")

# A key is the cost above the number of an item, counted backwards: of equal costs the oldest has the largest key.
_NUMBER_BITS = 48
_LAST = (1 << _NUMBER_BITS) - 1
# A window that is too small for the budget grows by this factor at most: items may cost nothing.
_MOST_WINDOWS = 64


class FirstFit(Generic[T]):
    """Items that wait for a batch.

    A batch begins with the item that has waited longest, and takes the next ones in order, until one does not fit into
    what is left of the budget. From then on it takes, of all items in the window, the one that fills the rest best: the
    most expensive that fits, of equal ones the oldest. So no item waits for more batches than there are items before
    it, and batches have nearly the order of arrival.

    Args:
        budget: largest sum of the costs of a batch.
        lookahead: items in the window. While they would fill less than two batches it is larger, up to 64 times.
        max_items: most items of a batch; None: any number.

    Raises:
        ValueError: a number is less than 1.
    """

    def __init__(self, budget: int, *, lookahead: int = 64, max_items: int | None = None) -> None:
        for name, number in (("budget", budget), ("lookahead", lookahead), ("max_items", max_items)):
            if number is not None and number < 1:
                raise ValueError(f"{name} must be at least 1, got {number}")
        self.budget = budget
        self.lookahead = lookahead
        self.max_items = max_items
        self._added = 0
        self._total = 0
        self._waiting: dict[int, T] = {}
        self._arrivals: deque[int] = (
            deque()
        )  # keys in the order of arrival; those that were taken stay until first
        self._keys: list[int] = []  # the same, sorted

    def __len__(self) -> int:
        """Return the number of items that wait."""
        return len(self._keys)

    @property
    def full(self) -> bool:
        """Return whether the window is full, so that a batch can be taken."""
        waiting = len(self._keys)
        if waiting < self.lookahead:
            return False
        return (
            self._total >= 2 * self.budget
            or waiting >= _MOST_WINDOWS * self.lookahead
            or (self.max_items is not None and waiting >= self.lookahead + self.max_items)
        )

    def add(self, item: T, cost: int) -> None:
        """Add an item.

        Raises:
            BudgetError: it costs more than the budget, or less than nothing.
        """
        if not 0 <= cost <= self.budget:
            raise BudgetError(cost, self.budget)
        key = cost << _NUMBER_BITS | (_LAST - self._added)
        self._added += 1
        self._total += cost
        self._waiting[key] = item
        self._arrivals.append(key)
        insort(self._keys, key)

    def take(self) -> list[tuple[T, int]]:
        """Return the next batch as (item, cost) in the order of arrival; empty if nothing waits."""
        left, most = self.budget, self.max_items or len(self._keys)
        keys, waiting, arrivals = self._keys, self._waiting, self._arrivals
        batch: list[tuple[T, int]] = []
        while arrivals and len(batch) < most:
            key = arrivals[0]
            if key in waiting:
                cost = key >> _NUMBER_BITS
                if cost > left:
                    break
                left -= cost
                batch.append((waiting.pop(key), cost))
                del keys[bisect_right(keys, key) - 1]
            arrivals.popleft()
        chosen: list[int] = []
        while len(batch) + len(chosen) < most and (place := bisect_right(keys, left << _NUMBER_BITS | _LAST)):
            key = keys.pop(place - 1)
            left -= key >> _NUMBER_BITS
            chosen.append(key)
        # All of these arrived later than those that were taken in order.
        chosen.sort(key=_arrival)
        batch += [(waiting.pop(key), key >> _NUMBER_BITS) for key in chosen]
        self._total -= self.budget - left
        return batch


def _arrival(key: int) -> int:
    return _LAST - (key & _LAST)


def first_fit(
    items: Iterable[tuple[T, int]], budget: int, *, lookahead: int = 64, max_items: int | None = None
) -> Iterator[list[tuple[T, int]]]:
    """Iterate over the batches of items with their costs; see `FirstFit`.

    Raises:
        BudgetError: an item costs more than the budget, or less than nothing.
    """
    fit: FirstFit[T] = FirstFit(budget, lookahead=lookahead, max_items=max_items)
    for item, cost in items:
        fit.add(item, cost)
        if fit.full:
            yield fit.take()
    while len(fit):
        yield fit.take()


_BLOCK = 1 << 14


class BudgetBatchSampler(DealtBatchSampler):
    """Batches of indices whose costs add up to at most a budget; every index once.

    Pass it to a loader as ``batch_sampler``. In a loader the loader's seed and epoch number determine the batches, so
    that a run can be repeated and resumed; iterated alone, the sampler counts its iterations as epochs.

    Rule: the indices come in random order, and first fit within a window makes batches of them
    (`aioloader.samplers.batches`): a batch begins with the index that has waited longest, takes those that follow,
    and fills the rest with the best of the window. So most of a batch is random.

    With `shard` the batches are dealt out: of each step of all ranks a rank gets one batch, so all ranks have the same
    number of steps. A state that was saved with one number of ranks can be loaded with another.

    Memory: 8 bytes for each index. Batches are computed as they are needed; a loader that resumes computes all batches
    before its position first, and `len` all of the epoch: a second or two for a million indices.

    Args:
        costs: (n,), whole numbers: the cost of each index; see `aioloader.image_costs`.
        budget: largest sum of the costs of a batch.
        lookahead: indices of which the rest of a batch is chosen; more fill better and change the order more. It grows
            where they would not fill two batches.
        shuffle: a new random order in each epoch; False: in order.
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone.
        drop_last: leave out the last batch of an epoch, which may be far from full, and the last step if it has no
            batch for some ranks. False: ranks without one repeat a batch from the start of the epoch.
        max_items: most indices of a batch; None: any number.
        shard: (rank, world size), or "auto" for those of RANK and WORLD_SIZE in the environment; None: one process.

    Raises:
        BudgetError: an item alone costs more than the budget, or less than nothing.
        TypeError, ValueError: another argument is not allowed.
    """

    def __init__(
        self,
        costs: npt.ArrayLike,
        budget: int,
        *,
        lookahead: int = 64,
        shuffle: bool = True,
        seed: int = 0,
        drop_last: bool = False,
        max_items: int | None = None,
        shard: Any = None,
    ) -> None:
        super().__init__(seed=seed, drop_last=drop_last, shard=shard)
        table = np.array(costs)
        if table.size and table.dtype.kind not in "iu":
            raise TypeError(f"costs must be whole numbers, got dtype {table.dtype}")
        require(table.ndim == 1, f"costs must have one axis, got shape {table.shape}")
        self._budget = check_count("budget", budget, 1)
        self._lookahead = check_count("lookahead", lookahead, 1)
        self._max_items = None if max_items is None else check_count("max_items", max_items, 1)
        wrong = np.flatnonzero((table < 0) | (table > self._budget))
        if len(wrong):
            raise BudgetError(int(table[wrong[0]]), self._budget, item=int(wrong[0]))
        self._costs: IntArray = table.astype(np.int64)
        self._shuffle = shuffle

    def description(self) -> tuple[Any, ...]:
        """Return all that the batches of all ranks depend on, except seed and epoch."""
        digest = hashlib.sha256(self._costs.astype("<i8").tobytes()).hexdigest()
        return (
            *("budget", self._budget, self._lookahead, self._shuffle, self._drop_last, self._max_items),
            digest,
        )

    def all_batches(self, seed: int, epoch: int) -> Iterator[IntArray]:
        """Iterate over the batches of all ranks; see `DealtBatchSampler`."""
        items = self._items(seed, epoch)
        last: IntArray | None = None
        for batch in first_fit(items, self._budget, lookahead=self._lookahead, max_items=self._max_items):
            if last is not None:
                yield last
            last = np.array([index for index, _ in batch], np.int64)
        if last is not None and not self._drop_last:
            yield last

    def _items(self, seed: int, epoch: int) -> Iterator[tuple[int, int]]:
        """Yield the indices with their costs, in the order of the epoch."""
        count = len(self._costs)
        for start in range(0, count, _BLOCK):
            stop = min(start + _BLOCK, count)
            if self._shuffle:
                indices = permute(seed, epoch, count, start, stop)
            else:
                indices = np.arange(start, stop, dtype=np.int64)
            yield from zip(indices.tolist(), self._costs[indices].tolist(), strict=True)


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
