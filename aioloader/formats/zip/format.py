"""The format zip, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.zip.dataset import ZipDataset


class ZipFormat(Format):
    """Zip archives of images in folders of their classes."""

    name = "zip"
    suffixes = (".zip",)
    text = "zip archives of images in class folders (.zip)"

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a file that begins with the header of a member."""
        return head[:4] == b"PK\3\4"

    def open(self, paths: Sequence[str], **options: Any) -> ZipDataset:
        """Return the dataset of an archive."""
        from aioloader.formats.zip.dataset import ZipDataset

        (path,) = paths
        return ZipDataset(path, **options)


FORMAT = ZipFormat()
