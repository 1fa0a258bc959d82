"""Entries of a folder's crop index for the items of a dataset of image files."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.crop_index.lookup import FolderCrops, open_folder_crops

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, IntArray


class ItemCrops:
    """The crop index of a folder, opened at the first use, and the keys of a dataset's items in it.

    A worker does not know the names of a dataset's files, because there may be millions. So the keys of their entries
    travel with the labels, as a second field of the extras.

    Args:
        option: the dataset's option `crop_index`.
        root: the folder, or its URL.
    """

    def __init__(self, option: str | os.PathLike[str] | None, root: str) -> None:
        self._option = option
        self._root = root
        self._crops: FolderCrops | None = None
        self._keys: IntArray | None = None

    def open(self, paths: Callable[[], Sequence[str]]) -> FolderCrops | None:
        """Return the crop index; None without one. Takes about a microsecond for each item, once.

        Args:
            paths: returns the files of all items, or their URLs; called only where they are needed, because there may
                be millions, and ``dataset[i]`` calls this each time.

        Raises:
            OSError, CropIndexError: see `open_folder_crops`.
        """
        if self._option is not None:
            self._crops = open_folder_crops(self._option, self._root, paths())
            self._option = None
        if self._crops is not None and self._keys is None:
            self._keys = self._crops.keys(paths())
        return self._crops

    def forget_items(self) -> None:
        """Forget the keys, because the dataset has other items now."""
        self._keys = None

    def extras(self, labels: Array, indices: IntArray) -> Array:
        """Return the labels of items, and if there is a crop index that `open` has found, the keys of their entries.

        Args:
            labels: of all items, (n,) or (n, labels).
            indices: int64 (m,), the items.

        Returns:
            (m,) or (m, labels); or (m,) with the fields "label" and "key".
        """
        if self._keys is None:
            return labels[indices]
        extras = np.empty(len(indices), [("label", labels.dtype, labels.shape[1:]), ("key", np.uint64)])
        extras["label"], extras["key"] = labels[indices], self._keys[indices]
        return extras
