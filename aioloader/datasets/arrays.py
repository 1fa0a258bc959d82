"""Datasets in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.datasets.base import Dataset
from aioloader.datasets.gather import as_gatherable
from aioloader.foundation.validation import require
from aioloader.samplers.classes import class_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array

__all__ = ("ArrayDataset",)


class ArrayDataset(Dataset):
    """Arrays, lists or datasets of one length, side by side.

    Sample i is the tuple of their elements i; with one array it is the element itself. If all are numpy
    arrays or lists of plain numbers, a loader makes each batch by one gather per array.

    Args:
        *args: at least one.

    Raises:
        ValueError: none is given, or their lengths differ (an AssertionError too).
    """

    def __init__(self, *args: Any) -> None:
        require(args, "Needs at least 1 arrays")
        self._length = len(args[0])
        for number, data in enumerate(args, 1):
            # Gluon counts the second number of its message from 1.
            require(
                len(data) == self._length,
                f"All arrays must have the same length; array[0] has length {self._length} "
                f"while array[{number}] has {len(data)}.",
            )
        self._data = args
        self._arrays: tuple[Array, ...] | None = None

    @property
    def arrays(self) -> Sequence[Array]:
        """The arrays to gather from; see `GatherDataset.arrays`.

        Raises:
            AttributeError: not all of them are arrays or lists of plain numbers.
        """
        if self._arrays is None:
            arrays = [as_gatherable(data) for data in self._data]
            if any(array is None for array in arrays):
                raise AttributeError("not all parts of this ArrayDataset are arrays")
            self._arrays = tuple([array for array in arrays if array is not None])
        return self._arrays

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_arrays": None}

    def __getitem__(self, index: int) -> Any:
        """The element at `index`, or the tuple of them."""
        if len(self._data) == 1:
            return self._data[0][index]
        return tuple([data[index] for data in self._data])

    def __len__(self) -> int:
        """Number of samples."""
        return self._length

    def labels(self) -> Array:
        """The last of several arrays, (n,); see `Dataset.labels`."""
        if len(self._data) == 1:
            return super().labels()
        return class_labels(self._data[-1])
