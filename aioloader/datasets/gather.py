"""Arrays whose rows are gathered into batches."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import MapDataset
    from aioloader.foundation.types import Array

_DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}


class GatheredArrays:
    """`GatherDataset` over arrays of equal length.

    Args:
        arrays: at least one.
        items: the items as transforms receive them, such as a list of Python's numbers; None: the rows of the arrays.
    """

    display_name = "ArrayDataset"
    arrays: tuple[Array, ...] = ()

    def __init__(self, arrays: Sequence[Array], items: MapDataset[Any] | None = None) -> None:
        self.arrays = tuple(arrays)
        self._items = items

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        if self._items is not None:
            return self._items[index]
        rows = tuple([array[index] for array in self.arrays])
        return rows if len(rows) > 1 else rows[0]


def as_gatherable(data: Any) -> Array | None:
    """Return `data` as an array whose rows collate as its elements do; None if there is no such array."""
    if type(data) in (np.ndarray, np.memmap):
        # Text is collated as a list, and a scalar of an array has the host's byte order.
        alien = data.dtype.kind in "SU" or (data.ndim == 1 and not data.dtype.isnative)
        return data if data.ndim and not data.dtype.hasobject and not alien else None
    if type(data) in (list, tuple):
        kinds = set(map(type, data))
        # One type only: the dtype of a batch of mixed numbers depends on its values.
        dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
        if dtype is not None:
            array = np.asarray(data)
            return array if array.dtype == dtype else None
    return None
