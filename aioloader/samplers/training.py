"""Samplers for training sets: by weights, by class, by identity, and several sets in a given proportion."""

from __future__ import annotations

from collections.abc import Sequence, Sized
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.rng import CHOICE_DOMAIN, Rng
from aioloader.samplers.basic import SeededSampler, check_count, epoch_length
from aioloader.samplers.epoch_order import epoch_key, mix, permute_rounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.abc import MapDataset
    from aioloader.foundation.types import IntArray

# Uses of an epoch's key: the order of the classes or sets, and that of the items of each.
_GROUPS, _ITEMS = 0, 1
# Words that are drawn together, and the factor that makes the upper 53 bits of one a number in [0, 1).
_WORDS = 4096
_TO_UNIT = 2.0**-53
_STRETCH = 1000


class WeightedRandomSampler(SeededSampler):
    """Index i with a probability in proportion to weights[i].

    Args:
        weights: (n,), none negative; they need not add up to 1.
        num_samples: indices of an epoch; None: the number of weights.
        replacement: draw each index from all again. False: each index at most once in an epoch; the larger its weight,
            the earlier it tends to come.
        seed: see `SeededSampler`.

    Raises:
        ValueError: a weight is negative or not a number, all are zero, or without replacement there are fewer indices
            with a weight than `num_samples`.

    Sources: with replacement, the inverse of the summed weights. Without, Efraimidis and Spirakis, "Weighted random
    sampling with a reservoir", 2006.
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        table: npt.NDArray[np.float64] = np.array(weights, np.float64)
        require(
            table.ndim == 1 and bool(np.isfinite(table).all()) and bool((table >= 0).all()),
            "weights must be numbers of the shape (n,), none of them negative",
        )
        require(bool(table.any()), "at least one weight must be more than 0")
        self._length = epoch_length(num_samples, len(table))
        possible = int(np.count_nonzero(table))
        require(
            replacement or self._length <= possible,
            f"without replacement there are {possible} indices to draw, fewer than num_samples={self._length}",
        )
        self._replacement = replacement
        self._weights = table
        self._kept: tuple[int, int, IntArray] | None = None  # for the blocks of the epoch in progress
        self._sums: npt.NDArray[np.float64] = np.cumsum(table / table.max())

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        if start == stop:
            return np.empty(0, np.int64)
        if not self._replacement:
            return self._without_replacement(seed, epoch)[start:stop].copy()
        first, last = start // _WORDS, (stop - 1) // _WORDS
        words = np.concatenate(
            [Rng(seed, epoch, block, CHOICE_DOMAIN).words(_WORDS) for block in range(first, last + 1)]
        )[start - first * _WORDS : stop - first * _WORDS]
        drawn = (words >> np.uint64(11)).astype(np.float64) * (_TO_UNIT * self._sums[-1])
        found = np.searchsorted(self._sums, drawn, side="right")
        # Rounding may reach the end of the last weight, where no index is left.
        result: IntArray = np.minimum(found, np.searchsorted(self._sums, self._sums[-1])).astype(np.int64)
        return result

    def _without_replacement(self, seed: int, epoch: int) -> IntArray:
        """Return the indices of an epoch in the order in which they are drawn without replacement."""
        if self._kept is None or self._kept[:2] != (seed, epoch):
            words = Rng(seed, epoch, 0, CHOICE_DOMAIN).words(len(self._weights))
            uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * _TO_UNIT
            with np.errstate(divide="ignore"):
                waiting = -np.log(uniform) / self._weights
            order = np.argsort(waiting, kind="stable")[: self._length].astype(np.int64, copy=False)
            self._kept = (seed, epoch, order)
        return self._kept[2]


def class_labels(source: MapDataset[Any] | npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the label of every sample, (n,).

    Args:
        source: a dataset that has labels (``labels()``, or an attribute `labels`, or `targets` as torch's have), or the
            labels themselves.

    Raises:
        TypeError: it is neither.
        ValueError: there is not one label for each sample, or there are no labels.
    """
    # Datasets of any class have them, as a method or an attribute of one of these names.
    found: Any = getattr(source, "labels", source)
    if callable(found):
        found = found()
    elif found is source:
        found = getattr(source, "targets", source)
    if isinstance(found, (str, bytes)) or not hasattr(found, "__len__"):
        raise TypeError(
            f"a {type(source).__name__} has no labels: pass an array with the label of every sample"
        )
    labels = np.asarray(found)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"labels must have the shape (n,), n at least 1, got {labels.shape}")
    return labels


class _ClassItems:
    """The items of each class, again and again, in a new random order each time.

    Args:
        labels: (n,), the label of each item.

    Attributes:
        counts: int64 (classes,), items of each class; classes are numbered in the order of their labels.
    """

    def __init__(self, labels: npt.NDArray[Any]) -> None:
        self._items: IntArray = np.argsort(labels, kind="stable").astype(np.int64, copy=False)
        ordered = labels[self._items]
        starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
        self._starts: IntArray = starts.astype(np.int64, copy=False)
        self.counts: IntArray = np.diff(np.r_[self._starts, len(labels)])

    def take(self, key: np.uint64, classes: IntArray, rounds: IntArray, places: IntArray) -> IntArray:
        """Return items of classes, int64 (n,).

        Args:
            key: of the epoch.
            classes: int64 (n,), numbers of classes.
            rounds: int64 (n,), numbers of the classes' orders.
            places: int64 (n,), places in these orders, below the class's count.
        """
        keys = mix(key ^ mix(classes.astype(np.uint64)))
        order = permute_rounds(keys, rounds, self.counts[classes], places)
        found: IntArray = self._items[self._starts[classes] + order]
        return found


class ClassBalancedSampler(SeededSampler):
    """Each class equally often, regardless of its size.

    Rule: an epoch is a sequence of rounds, and a round has each class once, in random order. A class yields its items
    one after the other in random order, and begins again, in another order, after the last. So the items of a small
    class come often, and those of a large one not all in one epoch.

    Args:
        labels: the label of each sample, (n,) of anything that can be sorted; or a dataset that has labels.
        num_samples: indices of an epoch; None: the number of samples.
        seed: see `SeededSampler`.

    Raises:
        TypeError, ValueError: `labels` has no labels, or a number is not allowed.
    """

    def __init__(
        self,
        labels: MapDataset[Any] | npt.ArrayLike,
        num_samples: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        found = class_labels(labels)
        self._length = epoch_length(num_samples, len(found))
        self._classes = _ClassItems(found)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        counts = self._classes.counts
        rounds, places = np.divmod(np.arange(start, stop, dtype=np.int64), len(counts))
        classes = permute_rounds(epoch_key(seed, epoch, _GROUPS), rounds, len(counts), places)
        again, item = np.divmod(rounds, counts[classes])
        return self._classes.take(epoch_key(seed, epoch, _ITEMS), classes, again, item)


class PKSampler(SeededSampler):
    """Sequences of p identities with k images each, for losses that compare images.

    Pass it to a loader with ``batch_size=p * k``.

    Rule: a round has all identities in random order, p in a batch; those that do not fill a batch are left out of that
    round. An identity yields other images in each round, k at a time, until fewer than k are left, then begins again in
    another order. One with fewer than k images yields some of them more than once in a batch.

    Args:
        dataset: one that has labels, or an array of labels, (n,): the identity of each sample.
        p: identities of a batch, at most the number of identities.
        k: images of each.
        num_batches: of an epoch; None: the number that the samples would fill, at least one.
        seed: see `SeededSampler`.

    Raises:
        TypeError, ValueError: `dataset` has no labels, or a number is not allowed.

    Source: Hermans, Beyer and Leibe, "In defense of the triplet loss for person re-identification", 2017.
    """

    def __init__(
        self,
        dataset: MapDataset[Any] | npt.ArrayLike,
        p: int,
        k: int,
        num_batches: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        p, k = check_count("p", p), check_count("k", k, 1)
        labels = class_labels(dataset)
        self._identities = _ClassItems(labels)
        count = len(self._identities.counts)
        require(1 <= p <= count, f"p must be between 1 and the number of identities, {count}, got {p}")
        if num_batches is None:
            batches = max(1, len(labels) // (p * k))
        else:
            batches = check_count("num_batches", num_batches)
        self._p = p
        self._k = k
        self._length = batches * p * k

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        number = len(self._identities.counts)
        groups, image = np.divmod(np.arange(start, stop, dtype=np.int64), self._k)
        # Rounds of whole batches: an identity is in a batch once.
        rounds, places = np.divmod(groups, number // self._p * self._p)
        identities = permute_rounds(epoch_key(seed, epoch, _GROUPS), rounds, number, places)
        counts = self._identities.counts[identities]
        # Those with k images or more: parts of k of one order, so that no image is in a batch twice.
        again, part = np.divmod(rounds, np.maximum(counts // self._k, 1))
        enough = counts >= self._k
        item = np.where(enough, part * self._k + image, image % counts)
        again = np.where(enough, again, again * -(-self._k // counts) + image // counts)
        return self._identities.take(epoch_key(seed, epoch, _ITEMS), identities, again, item)


class MixingSampler(SeededSampler):
    """Indices into concatenated sets, in the proportion of the ratios.

    Rule: each block of 1,000 positions has each set's share of it, rounded so that together they are 1,000 (largest
    remainders), in random order. A set yields its items in random order, and begins again, in another order, after the
    last.

    Args:
        sets: the length of each set, or the sets.
        ratios: a number for each, none negative; they need not add up to 1.
        num_samples: indices of an epoch; None: the total length of the sets.
        seed: see `SeededSampler`.

    Raises:
        ValueError: a number is not allowed, an empty set has a share, or a share is too small for 1 in 1,000.
    """

    def __init__(
        self,
        sets: Sequence[Any],
        ratios: Sequence[float],
        num_samples: int | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        lengths = [len(each) if isinstance(each, Sized) else int(each) for each in sets]
        shares: npt.NDArray[np.float64] = np.array(ratios, np.float64)
        require(
            len(lengths) > 0 and shares.shape == (len(lengths),),
            f"pass a ratio for each set, got {len(lengths)} sets and {len(shares)} ratios",
        )
        require(
            bool(np.isfinite(shares).all() and (shares >= 0).all() and shares.any()),
            f"ratios must not be negative, and not all 0, got {list(ratios)}",
        )
        self._quotas = largest_remainders(shares, _STRETCH)
        require(
            all(
                length > 0 or not quota for length, quota in zip(lengths, self._quotas.tolist(), strict=True)
            ),
            f"a set without samples cannot have a share: lengths {lengths}, ratios {list(ratios)}",
        )
        require(
            bool((self._quotas[shares > 0] > 0).all()),
            f"a set with less than one of {_STRETCH} samples would never be drawn: ratios {list(ratios)}",
        )
        self._lengths: IntArray = np.maximum(np.array(lengths, np.int64), 1)
        self._starts: IntArray = np.cumsum(lengths, dtype=np.int64) - np.array(lengths, np.int64)
        self._length = epoch_length(num_samples, sum(lengths))
        self._ends: IntArray = np.cumsum(self._quotas)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        stretch, place = np.divmod(np.arange(start, stop, dtype=np.int64), _STRETCH)
        slot = permute_rounds(epoch_key(seed, epoch, _GROUPS), stretch, _STRETCH, place)
        which = np.searchsorted(self._ends, slot, side="right")
        # The slots of a set within a block are numbered, so the number of its items before is known without counting.
        drawn = stretch * self._quotas[which] + slot - (self._ends[which] - self._quotas[which])
        again, item = np.divmod(drawn, self._lengths[which])
        keys = mix(epoch_key(seed, epoch, _ITEMS) ^ mix(which.astype(np.uint64)))
        result: IntArray = self._starts[which] + permute_rounds(keys, again, self._lengths[which], item)
        return result


def largest_remainders(shares: npt.NDArray[np.float64], total: int) -> IntArray:
    """Return integers that add up to `total`, as near as possible in proportion to shares; int64 (n,). Pure."""
    scaled = shares / shares.max()  # tiny shares would make the factor overflow
    exact = scaled * (total / scaled.sum())
    quotas: IntArray = np.floor(exact).astype(np.int64)
    missing = total - int(quotas.sum())
    quotas[np.argsort(quotas - exact, kind="stable")[:missing]] += 1
    return quotas
