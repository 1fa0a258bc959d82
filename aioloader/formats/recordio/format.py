"""The format RecordIO, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.collection import Collection
    from aioloader.formats.recordio.dataset import ImageRecordDataset


class RecordIOFormat(Format):
    """RecordIO files of images and labels."""

    name = "RecordIO"
    suffixes = (".rec",)
    has_fields = False
    text = "RecordIO files (.rec)"
    noun = "records"
    packs_images = True

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a file that begins with a record (docs/format.md)."""
        return head.startswith(MAGIC.to_bytes(4, "little"))

    def dataset(self) -> type[ImageRecordDataset]:
        """Return `ImageRecordDataset`."""
        from aioloader.formats.recordio.dataset import ImageRecordDataset

        return ImageRecordDataset

    def collection(self, paths: Sequence[str], *, path: str, max_pixels: int | None) -> Collection:
        """Return the records of the files."""
        from aioloader.formats.recordio.view import RecordFiles

        return RecordFiles(paths, path=path, max_pixels=max_pixels)


FORMAT = RecordIOFormat()
