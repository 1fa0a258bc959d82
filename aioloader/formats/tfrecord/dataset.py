"""Dataset over TFRecord files with `tf.train.Example` records.

Labels are read without the images. A walk over an example needs the beginnings of its entries only. So the first
kilobyte of each record is read, then the bytes from the end of the feature on that the walk went beyond, and so on.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import FieldKind, field_names
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shard_tables import NumberKeys, ShardTable
from aioloader.datasets.shards import record_files
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tfrecord.example import (
    ExampleWalk,
    MessageFault,
    Wanted,
    feature_value,
    feature_values,
    wanted_features,
)
from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD,
    HEAD_NBYTES,
    check_payload,
    crc32c_function,
    length_crc,
    payload_of,
)
from aioloader.formats.tfrecord.records import KIND, check_records, record_lengths, scan_records
from aioloader.foundation.types import Spans
from aioloader.foundation.validation import advises
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence
    from typing import Self, Unpack

    from aioloader.abc import ByteSource
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.foundation.types import Array, IntArray, ItemLocation
    from aioloader.sample_index import SampleIndex
    from aioloader.storage.remote.transport import Version


FIRST_NBYTES: Final = HEAD_NBYTES + 1024
_NEXT_NBYTES: Final = 1024
# A record with more parts than this is read whole: it has many large features, or very many features.
_MOST_ROUNDS: Final = 6


class _Label:
    """Search for the label of one record."""

    def __init__(self, nbytes: int, wanted: Wanted) -> None:
        self.walk = ExampleWalk(nbytes, wanted)
        self._nbytes = nbytes
        self._key = wanted.keys[0]
        self._feature: tuple[list[tuple[int, int]], bytes] | None = None

    def take(self, window: bytes) -> bool:
        """Take bytes of the example from the walk's place on; return True at its end.

        Raises:
            MessageFault: the bytes are not an example.
        """
        begin = self.walk.at
        done = not self._nbytes or self.walk.take(window)
        parts = self.walk.found.get(self._key)
        if (
            parts is not None
            and len(parts) == 1
            and begin <= parts[0][0]
            and parts[0][1] <= begin + len(window)
        ):
            self._feature = parts, window[parts[0][0] - begin : parts[0][1] - begin]
        return done

    def value(self) -> Any:
        """Return the number or numbers of the feature; None if the windows did not show it all, or it has none.

        Raises:
            MessageFault: the bytes are not a feature.
        """
        if self._feature is None or self._feature[0] is not self.walk.found.get(self._key):
            return None
        data = self._feature[1]
        value = feature_value(memoryview(data), [(0, len(data))])
        return value if isinstance(value, (np.generic, np.ndarray)) and value.size else None

    def next_nbytes(self) -> int:
        """Return the number of bytes to read next."""
        return min(max(_NEXT_NBYTES, self.walk.least), self._nbytes - self.walk.at)


def read_labels(source: ByteSource, spans: Spans, name: str) -> list[Any]:
    """Return the value of a feature of numbers in each record; None where the record has to be read whole. Blocking.

    Args:
        source: of the records.
        spans: of the records, with their heads and CRCs.
        name: of the feature.

    Returns:
        None for a record that is damaged, does not have the feature or has it in an unusual form, too: a reader of the
        whole record returns its value or raises its error.

    Raises:
        OSError: a file cannot be read.
        ShortReadError: a file ends inside a record.
    """
    values: list[Any] = [None] * len(spans)
    wanted = wanted_features((name,))
    labels: dict[int, _Label] = {}
    first = np.minimum(spans.length, FIRST_NBYTES)
    for place, window in enumerate(_windows(source, spans.file, spans.offset, first)):
        nbytes = int(spans.length[place]) - FRAME_NBYTES
        if nbytes >= 0 and HEAD.unpack_from(window) == (nbytes, length_crc(nbytes)):
            labels[place] = _Label(nbytes, wanted)
            _step(labels, place, window[HEAD_NBYTES : HEAD_NBYTES + nbytes], values)
    for _ in range(_MOST_ROUNDS):
        if not labels:
            break
        places = np.array(list(labels), np.int64)
        at = np.array([label.walk.at for label in labels.values()], np.int64)
        nbytes_of = np.array([label.next_nbytes() for label in labels.values()], np.int64)
        windows = _windows(source, spans.file[places], spans.offset[places] + HEAD_NBYTES + at, nbytes_of)
        for place, window in zip(places.tolist(), windows, strict=True):
            _step(labels, place, window, values)
    return values


def _step(labels: dict[int, _Label], place: int, window: bytes, values: list[Any]) -> None:
    """Continue with one record; forget it at its end, or if it is damaged."""
    try:
        if not labels[place].take(window):
            return
        values[place] = labels[place].value()
    except MessageFault:
        pass
    del labels[place]


def _windows(source: ByteSource, file: Array, offset: IntArray, length: IntArray) -> list[bytes]:
    plan, data = source.fetch(Spans(file, offset, length))
    ends = (plan.start + plan.length).tolist()
    return [bytes(data[start:end]) for start, end in zip(plan.start.tolist(), ends, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ExampleReader:
    """Reader of the features of records; see `aioloader.datasets.fields.FieldReader`.

    A feature of bytes is bytes if it has one value, else a list; one of numbers is a numpy scalar (int64 or float32) if
    it has one value, else an array. The values of images stay encoded.

    Attributes:
        images: names of the features that are encoded images.
        is_pair: samples are (image, label): an image has one value, and a label at least one.
        check_crc: compare the CRC of each record's data, too.
    """

    images: frozenset[str]
    is_pair: bool = False
    check_crc: bool = False

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        payload = self._payload(data, location)
        wanted = wanted_features(names)
        try:
            found = feature_values(payload, wanted)
        except MessageFault as fault:
            raise _damaged(fault, location) from None
        values = []
        for name, key in zip(names, wanted.keys, strict=True):
            value = found.get(key)
            if value is None:
                raise self._missing(name, data, payload, location)
            if type(value) is list:
                value = self._bytes(value, name, location)
            elif name in self.images:
                raise _unfit(name, "is not an image: it has numbers", "BytesList", str(value.dtype), location)
            elif self.is_pair and not value.size:
                raise _unfit(name, "has no value", "1 value", "none", location)
            values.append(value)
        return values

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        payload = self._payload(data, location)
        try:
            return tuple(key.decode() for key in feature_values(payload, wanted_features(None)))
        except MessageFault as fault:
            raise _damaged(fault, location) from None

    def kind(self, name: str) -> FieldKind:
        return FieldKind.IMAGE if name in self.images else FieldKind.VALUE

    def _payload(self, data: memoryview, location: ItemLocation) -> memoryview:
        payload = payload_of(data, **location._asdict())
        if self.check_crc:
            check_payload(data, crc32c_function(), **location._asdict())
        return payload

    def _bytes(self, values: list[memoryview], name: str, location: ItemLocation) -> Any:
        if self.is_pair and len(values) != 1:
            advice = "has not one value: pass fields=(...) for samples that are dicts"
            raise _unfit(name, advice, "1 value", f"{len(values)} values", location)
        if name not in self.images:
            copies = [bytes(value) for value in values]
            return copies[0] if len(copies) == 1 else copies
        return values[0] if len(values) == 1 else values

    def _missing(
        self, name: str, data: memoryview, payload: memoryview, location: ItemLocation
    ) -> MissingFieldError | SampleFormatError:
        if not len(payload):
            return SampleFormatError(
                "the record is empty",
                **location._asdict(),
                expected="a tf.train.Example with features",
                found="0 bytes",
            )
        return MissingFieldError(name, self.names(data, None, location), path=location.path, key=location.key)


def _damaged(fault: MessageFault, location: ItemLocation) -> SampleFormatError:
    offset = None if location.offset is None else location.offset + HEAD_NBYTES + fault.at
    return SampleFormatError(
        f"the record is no tf.train.Example: {fault.reason}",
        path=location.path,
        offset=offset,
        key=location.key,
        expected=fault.expected,
        found=fault.found,
    )


def _unfit(name: str, reason: str, expected: str, found: str, location: ItemLocation) -> SampleFormatError:
    return SampleFormatError(
        f"the feature {name!r} {reason}",
        **location._asdict(),
        expected=expected,
        found=found,
    )


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
        shuffle_shards: files that are mixed at a time by a loader with ``shuffle=True``; see `TarDataset`.
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
    reads_to_find = True

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | Sequence[str] = "image/encoded",
        label: str | None = "image/class/label",
        fields: str | Sequence[str] | None = None,
        shuffle_shards: int | None = None,
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
            shuffle_shards=shuffle_shards,
            **options,
        )

    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        length = record_lengths(path, version, partial(self._tick, path), self._held)
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
