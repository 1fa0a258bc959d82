"""Collection of the samples of a dataset over shards, which have named fields.

Samples are displayed in the order of the data. The first shard is displayed as soon as its index is open, and the
others as they follow; a shard that cannot be opened ends the list.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass, replace
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.fields import FieldKind, FieldReader, field_value
from aioloader.errors import MissingFieldError
from aioloader.formats.collection import (
    FOREIGN,
    MOST_RECORD_NBYTES,
    Collection,
    Contents,
    LabelChunk,
    NoSuchRecordError,
    Record,
    failed,
    with_image,
)
from aioloader.formats.sample_fields import (
    MOST_FIELDS,
    SampleFields,
    field_of,
    is_image,
    name_text,
    printable,
    unread_field,
    words_of,
)
from aioloader.storage.urls import name_of, redact_url
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.abc import ByteSource
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.datasets.shard_tables import ShardTable
    from aioloader.foundation.types import Array, IntArray, ItemLocation

# Seconds until the samples of further shards are added to the list; each time twice as many as before.
_PUBLISH_S = 1.0
# Labels that are read without asking: from a disk they take seconds. Remote labels also cost a request each.
_MOST_LABEL_NBYTES = 1 << 30
_MOST_REMOTE_LABEL_NBYTES = 64 << 20
_MOST_LABELS = 240
# Integers up to here are exact in single precision.
_MOST_EXACT = 1 << 24
_MOST_LABEL_TEXT = 60
_MOST_NAMED = 12


class ShardSamples(Collection):
    """Collection of the samples of a `ShardDataset`. No sample is known before `load`.

    Args:
        dataset: the dataset, with samples that are (image, label).
        path: path as the user passed it.
        kind: description of the format.
        max_pixels: larger images are refused.
    """

    noun = "sample"

    def __init__(self, dataset: ShardDataset, *, path: str, kind: str, max_pixels: int | None) -> None:
        self.path = redact_url(path)
        count = len(dataset.paths)
        self.kind = f"{kind} file" if count == 1 else f"{count:,} {kind} files"
        self.problems: list[str] = []
        self._dataset = dataset
        self._max_pixels = max_pixels
        self._opened: _FirstShards | None = None
        self._earlier: list[_FirstShards] = []
        self._label_ends: IntArray = np.empty(0, np.int64)
        self._loaded = False
        self._closed = False

    def load(self) -> None:
        if self._loaded:
            return
        tables: list[ShardTable] = []
        due, pause = 0.0, _PUBLISH_S
        try:
            for table in self._dataset.open_tables():
                if self._closed:
                    return
                tables.append(table)
                if monotonic() > due:
                    self._publish(tables)
                    due = monotonic() + pause
                    pause *= 2  # each list may open its own source of bytes
            self._publish(tables)
        except (OSError, ValueError):
            # The samples before the failure are displayed, with their labels.
            with suppress(OSError, ValueError):
                self._publish(tables)
            raise
        finally:
            if self._opened is not None:
                self._plan_labels(self._opened.dataset)
        self._loaded = True

    def _plan_labels(self, opened: ShardDataset) -> None:
        try:
            nbytes, batches = opened.label_nbytes, opened.label_batches()
        except ValueError as error:
            self.no_labels = f"The labels cannot be read: {printable(str(error))}"
            return
        most = _MOST_REMOTE_LABEL_NBYTES if opened.reads_ahead else _MOST_LABEL_NBYTES
        if nbytes > most:
            self.no_labels = (
                f"Labels are stored inside the samples: reading all of them would read {nbytes / 1e9:,.2f} GB. The "
                "label of each sample is displayed with it"
            )
        else:
            self._label_ends = np.array([each[-1] + 1 for each in batches], np.int64)

    def _publish(self, tables: list[ShardTable]) -> None:
        """Make the samples of the first shards known."""
        before = self._opened
        if not tables or (before is not None and len(before.dataset.paths) == len(tables)):
            return
        opened = _FirstShards(self._dataset.first_shards(tables), self._max_pixels)
        if before is not None:
            self._earlier.append(before)
        self.decoder = opened.images
        self.classes = {float(number): printable(name) for number, name in enumerate(opened.dataset.synsets)}
        self._opened = opened

    @property
    def count(self) -> int | None:
        return self.known if self._loaded else None

    @property
    def known(self) -> int:
        return 0 if self._opened is None else len(self._opened.dataset)

    def _shards(self, position: int) -> _FirstShards:
        """Return the shards opened so far, which contain a position."""
        opened = self._opened
        count = 0 if opened is None else len(opened.dataset)
        if opened is None or not 0 <= position < count:
            raise NoSuchRecordError(f"there is no sample {position}: the dataset has {count:,}")
        return opened

    def key(self, position: int) -> str:
        return name_text(str(self._shards(position).dataset.location(position).key))

    def find(self, key: str, file: int | None = None) -> int:
        tables = None if self._opened is None else self._opened.dataset.tables
        if tables is not None:
            for number, table in enumerate(tables.tables):
                row = table.row_of(key) if file in (None, number) else None
                if row is not None:
                    return int(tables.starts[number]) + row
        raise NoSuchRecordError(f"no sample has the key {key[:80]!r}")

    def file_names(self) -> list[str]:
        paths = self._dataset.paths
        return [name_text(name_of(path)) for path in paths] if len(paths) > 1 else []

    def file_of(self, position: int) -> int:
        return self._shards(position).dataset.tables.locate(position)[0]

    # -- samples

    def read(self, position: int) -> Contents:
        shards = self._shards(position)
        location = shards.dataset.location(position)
        shown = location._replace(key=name_text(str(location.key)), path=printable(location.path or ""))
        bare = Record(position, shown)
        try:
            data, extra = shards.fetch(position)
            names = shards.reader.names(data, extra, location)
        except (OSError, ValueError, EOFError) as error:
            return Contents(failed(bare, error))
        known = self._with_label(replace(bare, sample_nbytes=len(data)), shards, data, extra)
        try:
            name, body = shards.images.image_of(data, extra, location)
        except ValueError as error:
            return Contents(failed(known, error), None, data, extra)
        if body is None:
            has = ", ".join(map(name_text, names[:_MOST_NAMED])) or "none"
            more = ", \u2026" if len(names) > _MOST_NAMED else ""
            wanted = shards.images.image
            problem = f"no field of the sample is an image; its fields: {has}{more}"
            if wanted in names:
                problem = f"the field {name_text(wanted)!r} has no image; fields of the sample: {has}{more}"
            words = words_of(shards.values(data, extra, location, names[:_MOST_NAMED]))
            return Contents(replace(known, kind=FOREIGN, problem=problem, words=words), None, data, extra)
        wanted = shards.images.image
        if name != wanted:
            note = f"the sample has no field {wanted!r}; this image is its field {name_text(name)!r}"
            known = replace(known, notes=(note, *known.notes))
        return Contents(with_image(known, body), body, data, extra)

    def _with_label(self, known: Record, shards: _FirstShards, data: memoryview, extra: Any) -> Record:
        name = self._dataset.label_field
        location = shards.dataset.location(known.position)
        try:
            (value,) = shards.reader.read(data, extra, location, (name,))
            label = field_value(value, shards.reader.kind(name), name, location)
        except MissingFieldError:
            return replace(known, notes=(f"the sample has no field {name!r}, the label",))
        except ValueError as error:
            note = f"the label cannot be read: {type(error).__name__}: {printable(str(error))}"
            return replace(known, notes=(note,))
        if isinstance(label, dict):
            return replace(known, notes=(f"the label {name!r} is no number, but an object",))
        numbers, text = label_of(label)
        return replace(known, labels=numbers, text_label=text)

    def fields(self, contents: Contents) -> SampleFields:
        if contents.data is None:
            return SampleFields()
        shards = self._shards(contents.record.position)
        location = shards.dataset.location(contents.record.position)
        data, extra, reader = contents.data, contents.extra, shards.reader
        names = reader.names(data, extra, location)
        images: list[Any] = []
        found = []
        for number, name in enumerate(names[:MOST_FIELDS]):
            try:
                (value,) = reader.read(data, extra, location, (name,))
            except ValueError as error:
                found.append(unread_field(number, name, error))
            else:
                found.append(field_of(number, name, reader.kind(name), value, images))
        body = contents.body
        main = None if body is None else next((n for n, each in enumerate(images) if each == body), None)
        return SampleFields(tuple(found), tuple(images), main, max(0, len(names) - MOST_FIELDS))

    def field_bytes(self, contents: Contents, number: int) -> Any:
        position = contents.record.position
        shards = self._shards(position)
        location = shards.dataset.location(position)
        if contents.data is not None:
            names = shards.reader.names(contents.data, contents.extra, location)
            if number < len(names):
                (value,) = shards.reader.read(contents.data, contents.extra, location, (names[number],))
                if isinstance(value, (bytes, bytearray, memoryview)):
                    return value
        raise NoSuchRecordError(f"the sample {position} has no bytes in a field {number}")

    # -- labels

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        shards = self._shards(start)
        end = int(self._label_ends[np.searchsorted(self._label_ends, start, side="right")])
        indices = np.arange(start, min(stop, end))
        first = np.full(len(indices), np.nan, np.float32)
        owners: list[int] = []
        values: list[float] = []
        for place, label in enumerate(shards.dataset.labels_at(indices, shards.source())):
            if isinstance(label, Exception):
                continue
            numbers, _ = label_of(label)
            if len(numbers) == 1:
                first[place] = numbers[0]
            else:
                owners.extend([place] * len(numbers))
                values.extend(numbers)
        return LabelChunk(first, np.array(owners, np.int64), np.array(values, np.float32))

    def close(self) -> None:
        self._closed = True
        for shards in (self._opened, *self._earlier):
            if shards is not None:
                shards.close()


class _FirstShards:
    """Shards that have been opened so far, with a source of their bytes that is opened at the first use.

    Args:
        dataset: of these shards.
        max_pixels: larger images are refused.

    Attributes:
        dataset: the dataset, with all fields of its samples.
        reader: of all fields of its samples.
        images: decoder of its images.

    Raises:
        ValueError: the samples of the shards do not have the same fields.
    """

    def __init__(self, dataset: ShardDataset, max_pixels: int | None) -> None:
        self.dataset = dataset.with_all_fields()
        self.reader = self.dataset.reader
        self.images = SampleImageDecoder(max_pixels=max_pixels, reader=self.reader, image=dataset.image_field)
        self._source: ByteSource | None = None
        self._lock = threading.Lock()

    def source(self) -> ByteSource:
        """Return the source of the bytes."""
        with self._lock:
            if self._source is None:
                self._source = self.dataset.open_source()
            return self._source

    def fetch(self, position: int) -> tuple[memoryview, Any]:
        """Return the bytes of a sample and its extra.

        Raises:
            OSError, ValueError, EOFError: the sample cannot be read, or is too large to be displayed.
        """
        indices = np.array([position], np.int64)
        spans = self.dataset.spans(indices)
        nbytes = int(spans.length[0])
        if nbytes > MOST_RECORD_NBYTES:
            raise ValueError(f"{nbytes:,} bytes are too many to display; the limit is {MOST_RECORD_NBYTES:,}")
        extras = self.dataset.extras(indices)
        plan, data = self.source().fetch(spans)
        start = int(plan.start[0])
        sample = data[start : start + int(plan.length[0])].toreadonly()
        return sample, None if extras is None else extras[0]

    def values(
        self, data: memoryview, extra: Any, location: ItemLocation, names: Iterable[str]
    ) -> Iterator[tuple[str, FieldKind, Any]]:
        """Yield the name, the kind and the value of those fields of a sample that can be read."""
        for name in names:
            with suppress(ValueError):
                (value,) = self.reader.read(data, extra, location, (name,))
                yield name, self.reader.kind(name), value

    def close(self) -> None:
        """Close the source."""
        with self._lock:
            source, self._source = self._source, None
        if source is not None:
            source.close()


@dataclass(frozen=True, kw_only=True)
class SampleImageDecoder(ImageDecoder):
    """Decoder of a sample to (image, None).

    Attributes:
        reader: of the fields.
        image: name of the image; of a sample without it, the first image is taken.
    """

    reader: FieldReader
    image: str

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        return self.image_of(data, extra, location)[1], None

    def image_of(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, Any]:
        """Return the name and the bytes of the encoded image of a sample; None for the bytes if no field is an image.

        Raises:
            ValueError: the sample is damaged.
        """
        try:
            return self.image, _first_image(self.reader.read(data, extra, location, (self.image,))[0])
        except MissingFieldError:
            names = self.reader.names(data, extra, location)[:MOST_FIELDS]
        # Fields that are images by their names come first; `sorted` keeps the order of the others.
        for name in sorted(names, key=lambda each: self.reader.kind(each) is not FieldKind.IMAGE):
            kind = self.reader.kind(name)
            if kind in (FieldKind.IMAGE, FieldKind.BYTES, FieldKind.VALUE):
                body = _first_image(self.reader.read(data, extra, location, (name,))[0])
                if kind is FieldKind.IMAGE or is_image(body):
                    return name, body
        return self.image, None


def _first_image(value: Any) -> Any:
    """Return the encoded image in the value of a field, the first one of a list, or None."""
    if isinstance(value, list):
        value = value[0] if value else None
    if isinstance(value, np.ndarray):
        try:
            return encode_raw(value)
        except ValueError:
            return None
    return value if isinstance(value, (bytes, bytearray, memoryview)) else None


def label_of(value: Any) -> tuple[tuple[float, ...], str]:
    """Return a label as numbers, and as a text if it is not a number, or too many of them.

    A number that single precision cannot hold is a text, because labels are compared in single precision.

    Args:
        value: a number, a string, bytes, or a list or an array of numbers.
    """
    if isinstance(value, (list, tuple)):
        try:
            value = np.asarray(value)
        except ValueError:
            return (), _label_text(value)
    if isinstance(value, (bool, int, float, np.generic, np.ndarray)):
        array: Array = np.asarray(value)
        if array.dtype.kind in "iufb" and 0 < array.size <= _MOST_LABELS:
            inside = (array >= -_MOST_EXACT) & (array <= _MOST_EXACT)
            if array.dtype.kind in "fb" or inside.all():
                with np.errstate(over="ignore"):
                    return tuple(array.astype(np.float32).ravel().tolist()), ""
        if array.ndim and array.dtype.kind in "iufb":
            shape = " \u00d7 ".join(map(str, array.shape))
            return (), f"{array.dtype} {shape}"
    return (), _label_text(value)


def _label_text(value: Any) -> str:
    if isinstance(value, (bytes, bytearray, memoryview)):
        value = bytes(value[:_MOST_LABEL_TEXT]).decode("utf-8", "backslashreplace")
    text = printable(str(value)[: _MOST_LABEL_TEXT + 1]).replace("\n", " ")
    return text if len(text) <= _MOST_LABEL_TEXT else f"{text[: _MOST_LABEL_TEXT - 1]}\u2026"
