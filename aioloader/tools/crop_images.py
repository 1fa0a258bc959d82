"""Images of a folder at any depth, each with its key in the crop index of the folder."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.datasets.files import FileDataset
from aioloader.formats.folder.dataset import whole_files
from aioloader.formats.folder.files import find_images
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.storage.urls import is_url, redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Decoder, FetchingByteSource


class FolderImages(FileDataset):
    """Dataset of image files.

    Args:
        root: the folder, or its URL.
        paths: the files, or their URLs.
        decoder: makes the samples; it is passed the key of each file.
        keys: uint64 (n,), keys of the files.
    """

    def __init__(self, root: str, paths: Sequence[str], decoder: Decoder[Any], keys: Array) -> None:
        super().__init__()
        self._root = root
        self._paths = paths
        self._keys = keys
        self._decoder = decoder

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def decoder(self) -> Decoder[Any]:
        return self._decoder

    def open_source(self) -> FetchingByteSource:
        return self._open_files(self._paths, remote=self.reads_ahead, kind=SpanKind.FILE, name=self._root)

    @property
    def reads_ahead(self) -> bool:
        return is_url(self._root)

    def spans(self, indices: IntArray) -> Spans:
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        return self._keys[indices]

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(None, redact_url(self._paths[index]), None)


def image_paths(root: str) -> list[str]:
    """Return the images of a folder at any depth, sorted by their paths.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        OSError: it cannot be listed.
    """
    return find_images(root).all_images(root)
