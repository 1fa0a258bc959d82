"""The format TFRecord, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format, Requirement
from aioloader.formats.tfrecord.framing import HEAD, length_crc

if TYPE_CHECKING:
    from aioloader.formats.tfrecord.dataset import TFRecordDataset

_LARGEST_RECORD = 1 << 40


class TFRecordFormat(Format):
    """TFRecord files of `tf.train.Example`."""

    name = "TFRecord"
    suffixes = (".tfrecord", ".tfrecords", ".tfrec")
    text = "TFRecord files (.tfrecord, or names such as train-00000-of-01024)"
    has_shards = True
    scanned = True
    requirements = (Requirement("checksums of TFRecord", "google-crc32c", "tfrecord"),)

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a file that begins with a length and its masked CRC.

        The source is TensorFlow's guide "TFRecord and tf.train.Example".
        """
        if len(head) < HEAD.size:
            return False
        length, masked = HEAD.unpack_from(head)
        return bool(length < _LARGEST_RECORD and masked == length_crc(length))

    def dataset(self) -> type[TFRecordDataset]:
        """Return `TFRecordDataset`."""
        from aioloader.formats.tfrecord.dataset import TFRecordDataset

        return TFRecordDataset


FORMAT = TFRecordFormat()
