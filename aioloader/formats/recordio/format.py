"""The format RecordIO, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import RECORD_SUFFIX, Format
from aioloader.storage.urls import is_url, redact_url, suffix_of
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
    has_shards = True
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

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection | None:
        """Describe record files that make up one set; return None if a local file does not begin with a record.

        Raises:
            ValueError: the path is an index, or the URL of a file with another suffix.
        """
        from aioloader.datasets.shards import is_pattern
        from aioloader.formats.opening import head_of
        from aioloader.formats.recordio.inspect import inspect_records
        from aioloader.formats.shards import is_record_file

        if is_url(path):
            if not is_pattern(path) and suffix_of(path) and not is_record_file(path):
                raise ValueError(
                    "only record files, shards and folders can be inspected remotely, and "
                    f"{redact_url(path)} is none of these"
                )
        elif list(paths) == [path] and not is_record_file(path) and not self.recognizes(path, head_of(path)):
            if path.lower().endswith(".idx"):
                raise ValueError(f"{path!r} is an index; give the {RECORD_SUFFIX} file that it belongs to")
            return None
        return inspect_records(path, paths, options)


FORMAT = RecordIOFormat()
