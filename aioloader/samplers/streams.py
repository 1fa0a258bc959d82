"""For each class of a set its items, again and again, in a new random order each time. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import CHOICE_DOMAIN, Rng
from aioloader.samplers.permutation import mix, permute_each

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.foundation.types import IntArray

__all__ = ("ClassStreams", "class_labels", "epoch_key")


def class_labels(source: Any) -> npt.NDArray[Any]:
    """The label of every sample, (n,).

    Args:
        source: a dataset that can tell its labels (``labels()``, or an attribute `labels`), or the labels themselves.

    Raises:
        TypeError: it is neither.
        ValueError: there is not one label for each sample, or none at all.
    """
    found = getattr(source, "labels", source)
    if callable(found):
        found = found()
    if isinstance(found, (str, bytes)) or not hasattr(found, "__len__"):
        raise TypeError(
            f"a {type(source).__name__} does not tell its labels: give an array with the label of every sample"
        )
    labels = np.asarray(found)
    if labels.ndim != 1 or not len(labels):
        raise ValueError(f"labels must have the shape (n,), n at least 1, got {labels.shape}")
    return labels


def epoch_key(seed: int, epoch: int, use: int) -> np.uint64:
    """A key of one use of one epoch.

    Args:
        seed, epoch: the loader's.
        use: keeps keys of the same epoch apart.
    """
    word: np.uint64 = Rng(seed, epoch, use, CHOICE_DOMAIN).words(1)[0]
    return word


class ClassStreams:
    """The items of each class.

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

    def __len__(self) -> int:
        """Number of classes."""
        return len(self.counts)

    def take(self, key: np.uint64, classes: IntArray, rounds: IntArray, places: IntArray) -> IntArray:
        """Items of classes.

        Args:
            key: of the epoch.
            classes: int64 (n,), numbers of classes.
            rounds: int64 (n,), which of the class's orders.
            places: int64 (n,), place in that order, below the class's count.

        Returns:
            int64 (n,), the items.
        """
        keys = mix(mix(key ^ mix(classes.astype(np.uint64))) + rounds.astype(np.uint64))
        found: IntArray = self._items[
            self._starts[classes] + permute_each(keys, self.counts[classes], places)
        ]
        return found
