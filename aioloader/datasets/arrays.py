"""Datasets in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.abc import GatherDataset
from aioloader.datasets.base import Dataset
from aioloader.datasets.resolve import as_gatherable
from aioloader.foundation.validation import require
from aioloader.samplers.training import class_labels

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array


class ArrayDataset(Dataset, GatherDataset[Any]):
    """Arrays, lists or datasets of equal length, zipped.

    Sample i is the tuple of their elements i; with one array it is the element itself. If all are numpy
    arrays or lists of plain numbers, a loader makes each batch by one gather per array.

    Args:
        *args: one or more arrays, lists or datasets; anything with ``__len__`` and ``__getitem__``.

    Raises:
        ValueError: there are no arguments, or their lengths differ (also an AssertionError).
    """

    def __init__(self, *args: Any) -> None:
        require(args, "ArrayDataset needs at least one array, list or dataset")
        self._length = len(args[0])
        for number, data in enumerate(args, 1):
            require(
                len(data) == self._length,
                "all arguments of ArrayDataset must have the same length: "
                f"the first has {self._length} elements, but argument {number} has {len(data)}",
            )
        self._data: Sequence[Any] = args
        self._arrays: tuple[Array, ...] | None = None

    @property
    def arrays(self) -> Sequence[Array]:
        """Return the arrays to gather from; see `GatherDataset.arrays`.

        Raises:
            AttributeError: an argument is neither an array nor a list of plain numbers.
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
        """Return the sample at `index`: the tuple of all elements `index`, or the element of a single array."""
        if len(self._data) == 1:
            return self._data[0][index]
        return tuple([data[index] for data in self._data])

    def __len__(self) -> int:
        """Return the number of samples."""
        return self._length

    def labels(self) -> Array:
        """Return the last of several arrays as the labels, (n,); see `Dataset.labels`."""
        if len(self._data) == 1:
            found: Array = super().labels()
            return found
        return class_labels(self._data[-1])
