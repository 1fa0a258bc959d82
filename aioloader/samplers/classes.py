"""Samplers that draw by class: classes in equal numbers, and batches of some identities with some images each."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.base import SeededSampler, check_count, epoch_length
from aioloader.samplers.permutation import epoch_key, mix, permute_rounds

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.abc import MapDataset
    from aioloader.foundation.types import IntArray

# Uses of an epoch's key.
_CLASSES, _ITEMS = 0, 1


@runtime_checkable
class Labelled(Protocol):
    """Dataset with the label of every sample: a method ``labels()``, or an attribute `labels`."""

    @property
    def labels(self) -> Any:
        """Return the labels, or a function that returns them."""
        ...


def class_labels(source: Labelled | MapDataset[Any] | npt.ArrayLike) -> npt.NDArray[Any]:
    """Return the label of every sample, (n,).

    Args:
        source: a dataset that has labels (``labels()``, or an attribute `labels`), or the labels themselves.

    Raises:
        TypeError: it is neither.
        ValueError: there is not one label for each sample, or there are no labels.
    """
    found: Any = source.labels if isinstance(source, Labelled) else source
    if callable(found):
        found = found()
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
        labels: Labelled | MapDataset[Any] | npt.ArrayLike,
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
        classes = permute_rounds(epoch_key(seed, epoch, _CLASSES), rounds, len(counts), places)
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
        dataset: Labelled | MapDataset[Any] | npt.ArrayLike,
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
        identities = permute_rounds(epoch_key(seed, epoch, _CLASSES), rounds, number, places)
        counts = self._identities.counts[identities]
        # Those with k images or more: parts of k of one order, so that no image is in a batch twice.
        again, part = np.divmod(rounds, np.maximum(counts // self._k, 1))
        enough = counts >= self._k
        item = np.where(enough, part * self._k + image, image % counts)
        again = np.where(enough, again, again * -(-self._k // counts) + image // counts)
        return self._identities.take(epoch_key(seed, epoch, _ITEMS), identities, again, item)
