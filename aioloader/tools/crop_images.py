"""Images of a folder at any depth, each with its key in the crop index of the folder."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aioloader.datasets.files import FileDataset
from aioloader.datasets.folder import IMAGE_SUFFIXES, whole_files
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.storage.urls import is_url, redact_url
from aioloader.tools.verify import ImageFolder

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

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
    """Return the images of a folder, sorted by their paths: of a local one at any depth, of a URL in its sub-folders.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
        OSError: it cannot be listed.
    """
    return [path for path, _ in ImageFolder(root).items] if is_url(root) else list(_walk(root, set()))


def _walk(folder: str, seen: set[tuple[int, int]]) -> Iterator[str]:
    """Yield the images of a local folder; a folder that several links lead to is listed once."""
    status = os.stat(folder)
    if (status.st_dev, status.st_ino) in seen:
        return
    seen.add((status.st_dev, status.st_ino))
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: entry.name)
    for entry in entries:
        if entry.is_dir():
            yield from _walk(entry.path, seen)
        elif os.path.splitext(entry.name)[1].lower() in IMAGE_SUFFIXES:
            yield entry.path
