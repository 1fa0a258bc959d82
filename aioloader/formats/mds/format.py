"""The format MDS, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format, Requirement
from aioloader.formats.mds.index import INDEX_NAME
from aioloader.storage.urls import name_of

if TYPE_CHECKING:
    from aioloader.formats.mds.dataset import MDSDataset


class MDSFormat(Format):
    """MDS folders: an index.json and shards."""

    name = "MDS"
    text = "MDS folders (index.json)"
    index = INDEX_NAME
    part_suffixes = (".mds",)
    folder_text = "an MDS folder"
    requirements = (
        Requirement("MDS with zstd", "zstandard", "mds"),
        Requirement("MDS with br", "brotli", "mds"),
        Requirement("MDS with snappy", "cramjam", "mds"),
    )

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for an index that begins like one of MDS."""
        return name_of(path) == INDEX_NAME and b'"shards"' in head

    def dataset(self) -> type[MDSDataset]:
        """Return `MDSDataset`."""
        from aioloader.formats.mds.dataset import MDSDataset

        return MDSDataset


FORMAT = MDSFormat()
