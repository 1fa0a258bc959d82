"""Images of a zip archive, labelled by their folders."""

from __future__ import annotations

import zipfile
from typing import TYPE_CHECKING, Any

from aioloader.formats.encoded import EncodedDataset
from aioloader.formats.foreign import is_image_name

if TYPE_CHECKING:
    from collections.abc import Sequence


class ZipDataset(EncodedDataset):
    """Images of a zip archive, in the order of their names; the label is the number of the folder among all folders.

    Args:
        path: the archive.
        options: see `EncodedDataset`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        with zipfile.ZipFile(self.paths[0]) as archive:
            self._names = sorted(name for name in archive.namelist() if is_image_name(name))
        folders = [name.rpartition("/")[0] for name in self._names]
        numbers = {folder: number for number, folder in enumerate(sorted(set(folders)))}
        self._labels = [numbers[folder] for folder in folders]

    def __len__(self) -> int:
        return self._counted(len(self._names))

    def read(self, indices: Sequence[int]) -> list[bytes]:
        """Return the encoded images of some samples."""
        with zipfile.ZipFile(self.paths[0]) as archive:
            return [archive.read(self._names[index]) for index in indices]

    def labels(self, indices: Sequence[int]) -> list[int]:
        """Return the labels of some samples."""
        return [self._labels[index] for index in indices]

    def location(self, index: int) -> str:
        """Return the name of a member."""
        return self._names[index]
