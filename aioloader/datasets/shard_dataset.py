"""Base class of the datasets whose samples are spans of shards, found by an index of each shard."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections import deque
from contextlib import suppress
from copy import copy
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.layout import RECORDS, CropFiles
from aioloader.crop_index.lookup import AUTO, RecordCrops, open_record_crops
from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import FieldReader, FieldsDecoder, ShardImageDecoder, field_names
from aioloader.datasets.files import FileDataset
from aioloader.datasets.growing_tables import GrowingTables
from aioloader.datasets.shard_tables import NAMED, ShardTable, ShardTables, first_indices
from aioloader.errors import LoaderError, SampleFormatError
from aioloader.foundation.host_limits import usable_memory
from aioloader.foundation.opening import in_this_opening
from aioloader.foundation.protocols import redefinable
from aioloader.foundation.types import Array, IntArray, ItemLocation, SpanKind, Spans
from aioloader.foundation.validation import at_least
from aioloader.sample_index import ScanProgress, cached_index
from aioloader.samplers.blocks import BlockShuffleSampler
from aioloader.storage.urls import is_hub, is_url, redact_url
from aioloader.transforms.formats import refuse_pointer
from recordio.errors import ShortReadError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Self, Unpack

    from aioloader.abc import ByteSource, Decoder
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.sample_index import SampleIndex
    from aioloader.storage.remote.source import HeldObjects
    from aioloader.storage.remote.transport import Version

_OPENED_AT_A_TIME = 32
# Ends of shards that are read with the versions, and so are in memory at a time.
_MOST_ENDS = 64
# Samples whose labels are read together.
_LABELS_AT_A_TIME = 4096
_MOST_LABEL_NBYTES = 64 << 20
# Bytes that stay in memory because the samples were found in them: half of a loader's usual `memory_limit`, or less.
_MOST_HELD_NBYTES = 1 << 30
_HELD_SHARE = 8


class ShardDataset(FileDataset):
    """Base class of the datasets whose samples are spans of shards.

    A format defines how the index of a shard is opened (`_open_table`) and how the fields of a sample are found
    (`_reader`). It sets the attributes that these need before it calls the constructor of this class, which may open
    the tables to compare them with a crop index.

    Args:
        paths: the shards, or their URLs, in order.
        image, label: names of the fields of the sample (image, label); without a label the sample is the image.
        fields: names of the fields of samples that are dicts; None: the sample is (image, label).
        shuffle_shards: shards that are mixed at a time by a loader with ``shuffle=True``; None: all.
        flag, exif, max_pixels, label_dtype, dct_scaling, crop_index: see `ImageRecordDataset`.
        cache, cache_limit: see `RecordFileDataset`.

    Attributes:
        paths: the shards, or their URLs.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        ValueError: an option is not allowed, or files and URLs are mixed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
    """

    span_kind = SpanKind.EXACT

    def __init__(
        self,
        paths: Sequence[str],
        *,
        image: str,
        label: str | None,
        fields: str | Sequence[str] | None,
        shuffle_shards: int | None = None,
        **options: Unpack[ShardKeywords],
    ) -> None:
        at_least("shuffle_shards", shuffle_shards, 1)
        self._shuffle_shards = shuffle_shards
        self._options = given = ImageOptions(**options)
        super().__init__(given.cache, given.cache_limit)
        self.paths = tuple(paths)
        self._fields = None if fields is None else field_names(fields)
        self._image = image
        self._label = label
        self._label_dtype = None if given.dtype is None else given.dtype.name
        self._crop_index = given.crop_index
        self._crops: RecordCrops | None = None
        self._tables: ShardTables | None = None
        self._growing: GrowingTables | None = None
        self._progress: ScanProgress | None = None
        self._versions: tuple[Version | None, ...] = (None,) * len(self.paths)
        self._held: HeldObjects | None = None
        if any(map(is_url, self.paths)):
            if not all(map(is_url, self.paths)):
                raise ValueError("a dataset cannot mix local files and URLs: pass only one kind")
            from aioloader.storage.remote.opening import describe_all
            from aioloader.storage.remote.source import HeldObjects
            from aioloader.storage.remote.stores import keep_connections

            usable = usable_memory() or _MOST_HELD_NBYTES
            self._held = HeldObjects(min(_MOST_HELD_NBYTES, usable // _HELD_SHARE), len(self.paths))
            self._held.ends = dict.fromkeys(self._without_index()[:_MOST_ENDS])
            if not is_hub(self.paths[0]):
                with suppress(ValueError):  # `describe_all` says it with the name of the object
                    self._held.connections = keep_connections(self.paths[0])
            self._versions = describe_all(self.paths, self._held.ends)
        if given.crop_index != AUTO:
            self._open_crops()

    # -- what a format defines -------------------------------------------------------------------------------------

    @abstractmethod
    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        """Return the table of one shard. Blocking; called for several shards at once, in threads.

        Args:
            path: the shard, or its URL.
            version: of the object if `path` is a URL.

        Raises:
            OSError: the shard or its index cannot be read.
            SampleFormatError: the shard is not one of this format.
        """

    @abstractmethod
    def _reader(self) -> FieldReader:
        """Return the reader of the fields of a sample."""

    # -- samples ---------------------------------------------------------------------------------------------------

    def __getstate__(self) -> dict[str, Any]:
        return {
            **super().__getstate__(),
            "_tables": None,
            "_growing": None,
            "_progress": None,
            "_held": None,
        }

    @property
    def tables(self) -> ShardTables:
        """Return the tables of all shards, which are opened at the first use, several at a time."""
        if self._tables is None:
            growing = self._growing
            if growing is not None and growing.usable:
                self._tables = growing.in_order()
            else:
                with self._asking():
                    self._tables = ShardTables(list(self.open_tables()))
        return self._tables

    @property
    def known_tables(self) -> ShardTables:
        """Return the tables of all shards, or of the first ones while `search_samples` goes on."""
        growing = self._growing
        if self._tables is not None or growing is None or growing.complete:
            return self.tables
        return growing

    def search_samples(self, timeout: float, shuffled: tuple[int, int] | None) -> GrowingTables | None:
        is_begun = self._growing is not None and self._growing.usable
        if not self.reads_to_find or not self.reads_ahead or self._tables is not None or is_begun:
            return None
        find, shards = self._found_tables, len(self.paths)
        if shuffled is None:
            self._growing = GrowingTables(find, shards, timeout)
        elif self._shuffle_shards is not None and self._shuffle_shards < shards:
            self._growing = GrowingTables(find, shards, timeout, self._sampler_of, shuffled)
        return self._growing

    def _found_tables(self, numbers: IntArray, at_a_time: Callable[[], int]) -> Iterator[ShardTable]:
        with self._asking():
            yield from self._opened_tables(numbers.tolist(), at_a_time)

    def _sampler_of(self, sizes: IntArray) -> BlockShuffleSampler:
        """Return the sampler of shuffled epochs if shards have these numbers of samples."""
        assert self._shuffle_shards is not None
        return BlockShuffleSampler(sizes, self._shuffle_shards, firsts=first_indices(len(sizes)))

    def shuffle_sampler(self, indices: IntArray | None) -> BlockShuffleSampler | None:
        if self._shuffle_shards is None:
            return None
        if indices is None:
            return self._sampler_of(np.diff(self.tables.starts))
        shards = self.tables.rows(indices)[0]
        places = np.argsort(shards, kind="stable")
        return BlockShuffleSampler(
            np.unique(shards, return_counts=True)[1], self._shuffle_shards, indices=places
        )

    @property
    def index_limit(self) -> int:
        order = self.shuffle_sampler(None)
        return len(self) if order is None else order.index_limit

    def open_tables(self) -> Iterator[ShardTable]:
        """Yield the tables of the shards in order, as they are opened; several are opened at a time.

        Raises:
            OSError, SampleFormatError: the next shard, or its index, cannot be read.
        """
        with ScanProgress("index of shards", self._nbytes) as self._progress:
            try:
                yield from self._opened_tables(range(len(self.paths)))
            finally:
                self._progress = None

    def _opened_tables(
        self, numbers: Sequence[int], at_a_time: Callable[[], int] = lambda: _OPENED_AT_A_TIME
    ) -> Iterator[ShardTable]:
        if len(self.paths) == 1:
            yield self._counted_table(self.paths[0], self._versions[0])
            return
        from concurrent.futures import Future, ThreadPoolExecutor

        # Local shards are scanned one after the other: the scan is CPU work under the interpreter's lock.
        most = min(_OPENED_AT_A_TIME, len(self.paths)) if self.reads_ahead else 1
        left = deque(numbers)
        opened: deque[Future[ShardTable]] = deque()
        pool = ThreadPoolExecutor(most, "aioloader-index")
        try:
            while left or opened:
                together = min(at_a_time(), most) if left else 0
                while left and len(opened) < together:
                    number = left.popleft()
                    shard = self.paths[number], self._versions[number]
                    opened.append(pool.submit(in_this_opening(self._counted_table), *shard))
                yield opened.popleft().result()
        finally:
            pool.shutdown(cancel_futures=True)

    def _counted_table(self, path: str, version: Version | None) -> ShardTable:
        try:
            table = self._open_table(path, version)
        except LoaderError:
            refuse_pointer(path)
            raise
        self._tick(path, table.nbytes)
        return table

    def _tick(self, path: str, reached: int) -> None:
        """Set the number of bytes of a shard whose samples are known, for the progress bar."""
        progress = self._progress
        if progress is not None:
            progress.update(path, reached)

    def _nbytes(self) -> int:
        """Return the number of bytes of all shards that can be read."""
        known = zip(self.paths, self._versions, strict=True)
        local = [path for path, version in known if version is None and os.path.exists(path)]
        return sum(map(os.path.getsize, local)) + sum(
            each.nbytes for each in self._versions if each is not None
        )

    def _without_index(self) -> list[str]:
        """Return the URLs of shards that begin with their ends, and have no index yet."""
        if not self.begins_at_end:
            return []
        return [path for path in self.paths if not is_hub(path) and not os.path.exists(cached_index(path))]

    def first_shards(self, tables: Sequence[ShardTable]) -> Self:
        """Return the dataset of the first shards only.

        Args:
            tables: the tables of these shards, from `open_tables`.
        """
        found = copy(self)
        found.paths = self.paths[: len(tables)]
        found._versions = self._versions[: len(tables)]
        found._growing = None
        found._tables = ShardTables(tables)
        return found

    def only(self, numbers: Sequence[int]) -> Self:
        """Return the dataset of some of the shards, without crop indexes.

        Args:
            numbers: of the shards.
        """
        found = copy(self)
        found.paths = tuple(self.paths[number] for number in numbers)
        found._versions = tuple(self._versions[number] for number in numbers)
        opened = self._tables
        found._growing = None
        found._tables = None if opened is None else ShardTables([opened.tables[number] for number in numbers])
        found._source = found._crops = found._crop_index = None
        return found

    def with_all_fields(self) -> Self:
        """Return the dataset whose `reader` finds all fields in the bytes of a sample, for whoever shows them.

        It is this dataset, unless a format reads only the fields that are asked for.
        """
        return self

    # -- for the commands; a format overrides what it has ------------------------------------------------------------

    index_kind: str | None = None
    """Kind of the indexes of the shards (`aioloader.sample_index.SampleIndex`); None: they need none."""
    opens_whole = False
    """To find the samples of a shard is to read it as a whole."""
    begins_at_end = False
    """Samples are found with the last bytes of a shard, which `_held` has of those without an index."""
    reads_to_find = False
    """To find the samples of a remote shard is to read much of it."""

    def as_shards(self) -> Self:
        """Return this dataset."""
        return self

    def scan_shard(self, number: int, tick: Callable[[int], object] | None = None) -> SampleIndex:
        """Scan a shard for its samples and return their index; for formats with an `index_kind`. Blocking.

        Args:
            number: of the shard.
            tick: called now and then with the number of bytes read so far.

        Raises:
            OSError: the shard cannot be read.
            SampleFormatError: it is damaged.
        """
        raise NotImplementedError

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole shard, and yield each fault of its structure; no sample is decoded. Blocking.

        Args:
            number: of the shard.
            tick: called now and then with the number of bytes read so far.

        Returns:
            the number of samples without a fault.

        Raises:
            OSError: the shard cannot be read.
        """
        raise ValueError(f"the files of a {type(self).__name__} cannot be checked")

    def members_outside(self) -> dict[str, int]:
        """Return the numbers of the members of the shards that belong to no sample, by the names of their kinds."""
        return {}

    @property
    def synsets(self) -> list[str]:
        """Return the names of the classes, in the order of the labels; nothing if the data have no names."""
        return []

    def class_names(self) -> list[str]:
        """Return the `synsets`."""
        return self.synsets

    def __len__(self) -> int:
        return self._counted(len(self.tables))

    @property
    def decoder(self) -> Decoder[Any]:
        if self._fields is not None:
            return FieldsDecoder(reader=self._reader(), fields=self._fields, **self._options.decoding)
        return self._image_decoder()

    def _image_decoder(self) -> ShardImageDecoder:
        return ShardImageDecoder(
            reader=self._reader(),
            image=self._image,
            label=self._label,
            labelled=self._label is not None,
            label_dtype=self._label_dtype,
            dct_scaling=bool(self._options.dct_scaling),
            crops=self._open_crops(),
            **self._options.decoding,
        )

    def _open_crops(self) -> RecordCrops | None:
        """Return the crop indexes of the shards, which are opened at the first call; None without any."""
        if self._crop_index is not None and self._fields is None:
            option, self._crop_index = self._crop_index, None
            found = open_record_crops(option, self.crop_files(), self._crop_fault)
            self._crops = None if found is None else self._crops_of(found)
        return self._crops

    def _crops_of(self, found: RecordCrops) -> RecordCrops:
        """Return the crop indexes of the shards as the decoder asks for entries."""
        return found

    def _crop_fault(self, number: int, keys: Array) -> str:
        begin, end = self.tables.starts[number : number + 2].tolist()
        own = self.crop_keys(np.arange(begin, end))[1].astype(np.uint64)
        behind = keys[keys > 0]  # every shard has a sample at its beginning
        fits = not len(behind) or np.isin(behind, own).any()
        return "" if fits else f"it has no sample of {self.paths[number]}"

    def openable(self) -> tuple[list[int], dict[int, str]]:
        """Find out which shards can be opened; see `FileDataset.openable`."""
        numbers = list(range(len(self.paths)))
        try:
            _ = self.tables  # all at once, several at a time
        except (OSError, ValueError, EOFError):
            pass
        else:
            return numbers, {}
        fine: list[int] = []
        reasons: dict[int, str] = {}
        for number in numbers:
            try:
                _ = self.only([number]).tables
            except (OSError, ValueError, EOFError) as error:
                reasons[number] = fault_line(redact_url(self.paths[number]), error)
            else:
                fine.append(number)
        return fine, reasons

    def image_decoder(self) -> ShardImageDecoder:
        return ShardImageDecoder(
            reader=self._reader(), image=self._image, label=None, labelled=False, **self._options.decoding
        )

    def crop_files(self) -> CropFiles:
        return CropFiles(RECORDS, self.paths, self._image)

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the shard of each sample, and the sample's key in the crop index of the shard.

        The keys are offsets of samples, unless samples have none in this format.

        Args:
            indices: int64 (n,), of the samples.
        """
        spans = self.tables.spans(indices)
        return spans.file, spans.offset

    def open_source(self) -> ByteSource:
        return self._open_files(
            self.paths,
            remote=self.reads_ahead,
            kind=self.span_kind,
            name=self.paths[0],
            versions=self._versions,
            held=self._held,
        )

    @property
    def reads_ahead(self) -> bool:
        return bool(self.paths) and is_url(self.paths[0])

    def spans(self, indices: IntArray) -> Spans:
        return self.known_tables.spans(indices)

    def extras(self, indices: IntArray) -> Array | None:
        """Return None: the bytes of a sample contain all of its fields."""
        return None

    @redefinable
    def location(self, index: int) -> ItemLocation:
        tables = self.known_tables
        file, row = tables.locate(index)
        table = tables.table(file)
        return ItemLocation(table.keys.key_at(row), redact_url(table.path), int(table.offset[row]))

    def _place(self, index: int) -> int:
        if index >= NAMED:
            (index,) = self.tables.counted(np.array([index], np.int64)).tolist()
        return super()._place(index)

    def file_nbytes(self, index: int) -> int:
        return self.tables.tables[self.tables.locate(index)[0]].nbytes

    @property
    def reader(self) -> FieldReader:
        """Return the reader of the fields of a sample."""
        return self._reader()

    @property
    def image_field(self) -> str:
        """Return the name of the image in samples that are (image, label)."""
        return self._image

    @property
    def label_field(self) -> str:
        """Return the name of the label in samples that are (image, label).

        Raises:
            ValueError: they have none, because the dataset was made with ``label=None``.
        """
        if self._label is None:
            raise self._unlabelled()
        return self._label

    @staticmethod
    def _unlabelled() -> ValueError:
        return ValueError("this dataset has no labels, because it was made with label=None")

    @property
    def _pair(self) -> tuple[str, ...]:
        """Return the names of the fields of samples that are not dicts."""
        return (self._image,) if self._label is None else (self._image, self._label)

    @property
    def label_nbytes(self) -> int:
        """Return the number of bytes that `labels` reads."""
        return int(self._label_spans(np.arange(len(self)))[0].length.sum())

    @redefinable
    def labels(self) -> Array:
        """Return the label of every sample, (n,) or (n, labels); `label_nbytes` are read.

        Raises:
            OSError: a shard cannot be read.
            ValueError: a sample has no label, or labels have different shapes; or the dataset was made without labels.
        """
        if self._label is None:
            raise self._unlabelled()
        found: list[Any] = []
        source = self.open_source()
        try:
            for indices in self.label_batches():
                for label in self.labels_at(indices, source):
                    if isinstance(label, Exception):
                        raise label
                    found.append(label)
        finally:
            source.close()
        return np.array(found) if found else np.empty(0, self._label_dtype or np.int64)

    def labels_at(self, indices: IntArray, source: ByteSource) -> list[Any]:
        """Return the label of each sample, or the error of a sample that has none or is damaged. Blocking.

        Args:
            indices: int64 (n,), of the samples. All of their `label_nbytes` are held in memory at once.
            source: from `open_source`.

        Raises:
            OSError: a shard cannot be read.
        """
        decoder = self._image_decoder()
        spans, extras = self._label_spans(indices)
        try:
            plan, data = source.fetch(spans)
        except ShortReadError as error:
            if len(indices) == 1:
                return [error]
            # The end of one shard is missing: its samples are found one by one.
            return [label for place in indices for label in self.labels_at(np.array([place]), source)]
        found: list[Any] = []
        ends = (plan.start + plan.length).tolist()
        for place, (start, end) in enumerate(zip(plan.start.tolist(), ends, strict=True)):
            extra = None if extras is None else extras[place]
            location = self.location(int(indices[place]))
            try:
                found.append(decoder.read_label(data[start:end].toreadonly(), extra, location))
            except ValueError as error:
                found.append(error)
        return found

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Array | None]:
        """Return spans that contain the labels of samples, and the extras with which they are found in them."""
        return self.spans(indices), self.extras(indices)

    def label_batches(self) -> Sequence[IntArray]:
        """Return the samples whose labels are read together: a bounded number of them, and of bytes."""
        nbytes = np.cumsum(self._label_spans(np.arange(len(self)))[0].length)
        cuts = [0]
        while cuts[-1] < len(self):
            before = int(nbytes[cuts[-1] - 1]) if cuts[-1] else 0
            last = int(np.searchsorted(nbytes, before + _MOST_LABEL_NBYTES, side="right"))
            cuts.append(min(max(last, cuts[-1] + 1), cuts[-1] + _LABELS_AT_A_TIME, len(self)))
        return [np.arange(low, high) for low, high in pairwise(cuts)]


def fault_line(name: str, error: Exception) -> str:
    """Return the text of an error in one line that begins with the name of the file."""
    text = " ".join(str(error).split())
    if isinstance(error, FileNotFoundError) and error.strerror:
        text = error.strerror
    return text if text.startswith(name) else f"{name}: {text}"
