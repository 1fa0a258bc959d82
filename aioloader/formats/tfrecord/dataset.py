"""Dataset over TFRecord files with `tf.train.Example` records."""

from __future__ import annotations

from copy import copy
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import field_names
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shard_dataset import NumberKeys, ShardDataset, ShardTable
from aioloader.datasets.shards import record_files
from aioloader.formats.tfrecord.fields import FIRST_NBYTES, ExampleReader, read_labels
from aioloader.formats.tfrecord.framing import crc32c_function
from aioloader.formats.tfrecord.records import KIND, check_records, record_lengths, scan_records
from aioloader.foundation.validation import advises
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence
    from typing import Self, Unpack

    from aioloader.abc import ByteSource
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.errors import SampleFormatError
    from aioloader.foundation.types import IntArray
    from aioloader.sample_index.store import SampleIndex
    from aioloader.storage.remote.transport import Version

_WHOLE_NBYTES = 64 << 20


class TFRecordDataset(ShardDataset):
    """Dataset over TFRecord files, each record of which is a `tf.train.Example`.

    A sample is (image, label): the image uint8 (height, width, 3) RGB; the label int64 for a feature of integers and
    float32 for one of floats, an array (n,) if it has several values. With `fields` a sample is a dict of features:

    - images are decoded to such images, several to a list of them;
    - other bytes are bytes if there is one value, else a list of bytes; text is not decoded, because a feature does not
      show whether it is text;
    - integers and floats are a numpy scalar, int64 or float32, if there is one value, else an array (n,).

    The key of a sample is the number of its record in its file. Where the records are is found once, by a scan of their
    heads; the index is kept in the user's cache directory or, by `aioloader index`, next to the file. An index of
    DALI's tfrecord2idx, `FILE.idx` or the name with .idx as its suffix, is used if it fits the file.

    The CRC of a record's length is compared each time the record is found or read. The CRC of its data is compared with
    ``check_crc=True`` and by `aioloader verify`. Files that are compressed as a whole are refused.

    Args:
        paths: a file or its URL, a pattern such as ``train-*-of-01024``, or a list of them, in order.
        image: name of the feature that is an encoded image; with `fields`, the name or names of those that are.
        label: name of the feature that is the label; None: the samples are images alone.
        fields: names of the features of samples that are dicts; None: the sample is (image, label).
        check_crc: compare the CRC of the data of each record that is read; needs google-crc32c.
        flag, exif, max_pixels, label_dtype, dct_scaling, crop_index: see `ImageRecordDataset`.
        cache, cache_limit: see `RecordFileDataset`.

    Attributes:
        paths: the files, or their URLs.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        ValueError: an option is not allowed, or files and URLs are mixed.
        MissingPackageError: `check_crc` needs google-crc32c; the error is an ImportError.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
    """

    index_kind = KIND

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | Sequence[str] = "image/encoded",
        label: str | None = "image/class/label",
        fields: str | Sequence[str] | None = None,
        check_crc: bool = False,
        **options: Unpack[ShardKeywords],
    ) -> None:
        images = field_names(image)
        if fields is None and len(images) > 1:
            raise ValueError(f"image must be the name of one feature unless fields are given, got {image!r}")
        if check_crc:
            crc32c_function()
        self._check_crc = bool(check_crc)
        self._field_reader = ExampleReader(
            images=frozenset(images), is_pair=fields is None, check_crc=self._check_crc
        )
        super().__init__(
            record_files(paths),
            image=images[0],
            label=label,
            fields=fields,
            **options,
        )

    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        length = record_lengths(path, version, partial(self._tick, path))
        offset = np.cumsum(length) - length
        return ShardTable(
            path=path, nbytes=int(length.sum()), offset=offset, length=length, keys=NumberKeys()
        )

    def _reader(self) -> ExampleReader:
        return self._field_reader

    def with_all_fields(self) -> Self:
        """Return the dataset whose `reader` takes features with any number of values."""
        found = copy(self)
        found._field_reader = replace(self._field_reader, is_pair=False)
        return found

    # -- labels --------------------------------------------------------------------------------------------------------

    @property
    def label_nbytes(self) -> int:
        """Return the number of bytes that `labels` reads, about: examples in an unusual form are read whole."""
        if self._check_crc:
            return super().label_nbytes
        return int(np.minimum(self.tables.length, FIRST_NBYTES).sum())

    def labels_at(self, indices: IntArray, source: ByteSource) -> list[Any]:
        """Return the label of each sample, or the error of a sample; see `ShardDataset.labels_at`.

        Of most records only the bytes around the image are read. With `check_crc` records are read whole.
        """
        found: list[Any] = [None] * len(indices)
        if not self._check_crc:
            try:
                found = read_labels(source, self.spans(indices), self.label_field)
            except ShortReadError:
                pass  # of some records, which are found when all are read
        decoder = self._image_decoder()
        for place, value in enumerate(found):
            if value is not None:
                try:
                    found[place] = decoder.label_of(value, self.location(int(indices[place])))
                except ValueError as error:
                    found[place] = error
        rest = np.array([place for place, value in enumerate(found) if value is None], np.int64)
        for places in _parts(rest, self.spans(indices).length):
            for place, label in zip(places.tolist(), super().labels_at(indices[places], source), strict=True):
                found[place] = label
        return found

    # -- commands ------------------------------------------------------------------------------------------------------

    def scan_shard(self, number: int, tick: Callable[[int], object] | None = None) -> SampleIndex:
        """Scan a file for its records; see `ShardDataset.scan_shard`."""
        return scan_records(self.paths[number], self._versions[number], tick)

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole file, and yield each fault of it; see `ShardDataset.check_shard`.

        Raises:
            MissingPackageError: google-crc32c is not installed.
        """
        return check_records(self.paths[number], self._versions[number], tick)


def _parts(places: IntArray, nbytes: IntArray) -> list[IntArray]:
    """Split places of records into parts that are read together.

    Args:
        places: in the batch, ascending.
        nbytes: of each record of the batch.
    """
    if not len(places):
        return []
    total = np.cumsum(nbytes[places])
    cuts = np.flatnonzero(np.diff(total // _WHOLE_NBYTES)) + 1
    return np.split(places, cuts)
