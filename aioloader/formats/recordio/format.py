"""The format RecordIO, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import RECORD_SUFFIX, Format
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.collection import Collection
    from aioloader.formats.inspection import Inspection, Options
    from aioloader.formats.recordio.dataset import ImageRecordDataset


class RecordIOFormat(Format):
    """RecordIO files of images and labels."""

    name = "RecordIO"
    suffixes = (RECORD_SUFFIX,)
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

    def collection(
        self, paths: Sequence[str], *, path: str, max_pixels: int | None, labelled: bool = True
    ) -> Collection:
        """Return the records of the files."""
        from aioloader.formats.recordio.view import RecordFiles

        return RecordFiles(paths, path=path, max_pixels=max_pixels)

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection:
        """Describe record files that make up one set."""
        from aioloader.formats.recordio.inspect import inspect_records

        return inspect_records(path, paths, options)


FORMAT = RecordIOFormat()
