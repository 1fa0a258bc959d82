"""Datasets over RecordIO files, and the tables that turn lines of their indexes into spans.

Of the records of JPEGs with entries of a crop index, loaders read only the parts that a crop needs. The crop depends
only on (seed, epoch, index, position) and on the size of the image, which its entry has. So it is drawn here too, by
the chain's own decode operation, from a second generator with the same draws. What is left out is a range of rows above
the crop, and everything below it. Nothing here decides whether the parts are right: the worker compares them with the
CRCs of the entry.
"""

from __future__ import annotations

import os
import shlex
import threading
import zlib
from collections import Counter, defaultdict
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.abc import PartialReads
from aioloader.crop_index.layout import RECORDS, CropFiles
from aioloader.crop_index.lookup import AUTO, RecordCrops, fetch_indexes, open_record_crops
from aioloader.datasets.decoding import PARTS, ImageOptions, check_labelled
from aioloader.datasets.files import FileDataset, opens_offline
from aioloader.datasets.shards import record_files
from aioloader.datasets.stage import stage_of_argument
from aioloader.errors import RemoteReadError
from aioloader.formats.recordio.decoding import RECORD_FIELDS, ImageRecordDecoder, RecordDecoder
from aioloader.formats.recordio.heads import RecordHeads, read_heads
from aioloader.foundation.opening import in_this_opening
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import Array, IntArray, ItemLocation, PartialItems, SpanKind, Spans
from aioloader.foundation.validation import advises
from aioloader.jpeg.crop_entry import CropEntryError
from aioloader.jpeg.crop_window import needed_rows, read_head, row_bytes
from aioloader.observability.progress import ProgressBar
from aioloader.rng import Rng
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.records import doubtful, unreadable_line
from aioloader.storage.urls import beside, is_url, redact_url
from aioloader.transforms.decode import stored_box
from aioloader.transforms.formats import refuse_pointer
from recordio import MAGIC, CorruptIndexError, CorruptRecordError, Index

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import Unpack

    from aioloader.abc import ByteSource, Decoder
    from aioloader.datasets.decoding import ImageKeywords
    from aioloader.storage.remote.transport import Version
    from aioloader.transforms.fused import NeededRegion


_LABELS_LOOKED_AT = 1000
_OPENED_AT_A_TIME = 16
_COMPARED = 16
_MAGIC = MAGIC.to_bytes(4, "little")


class RecordTable:
    """Offsets and lengths of the records of a file, in the order of its index.

    Args:
        path: the .rec file, or its URL.
        idx_path: its .idx file; None: the file of the same name in the same folder, if it exists.
        tolerant: lines of the .idx that cannot be read become items that fail, each with the line in its error.
        index: an index that was read before, perhaps of a part of the records; then no file is read.
        version: version of the object if `path` is a URL; None: it is requested from the server.

    Attributes:
        path: as given.
        index: the index passed, or that of the .idx, or the result of a scan if there is no .idx.
        file_nbytes: size of the file in bytes when the table was made.
        version: version of the object if `path` is a URL, else None.

    Raises:
        OSError: the file or its index cannot be read.
        RecordIOError: the index is malformed, or a file without an index is corrupt.

    Warns:
        DuplicateKeyWarning: lines of the index repeat others, so that their records are read more than once.
    """

    def __init__(
        self,
        path: str,
        idx_path: str | None = None,
        *,
        tolerant: bool = False,
        index: Index | None = None,
        version: Version | None = None,
    ) -> None:
        self.path = path
        given = idx_path is not None
        idx_path = idx_path or beside(path, ".idx")
        if version is None and is_url(path):
            from aioloader.storage.remote.opening import describe

            version = describe(path)
        self.version = version
        if index is not None:
            self.index = index
        elif version is not None:
            self.index = _load_index(path, idx_path, given=given, tolerant=tolerant)
        elif given or os.path.exists(idx_path):
            self.index = Index.open(idx_path, tolerant=tolerant)
        else:
            self.index = _scan(path)
        self.file_nbytes = os.path.getsize(path) if version is None else version.nbytes
        if index is None and not len(self.index) and self.file_nbytes:
            raise CorruptIndexError(
                f"the index is empty, but {path} has {self.file_nbytes} bytes; rebuild it with "
                "`python -m recordio index FILE`, or delete it",
                path=idx_path,
            )
        offsets = self.index.offsets
        # In an ordered index a record ends where the record of the next line begins. A misaligned offset is an
        # error of its line alone and must not shorten the record before it.
        possible = (offsets & 3) == 0
        ordered = bool(possible.all() and (offsets[1:] > offsets[:-1]).all())
        self._ordered = offsets if ordered else np.unique(np.append(offsets[possible], self.file_nbytes))
        if index is None and not ordered and len(self._ordered) <= np.count_nonzero(possible):
            self.index.warn_repeated()

    def spans(self, indices: IntArray) -> Spans:
        """Return spans that contain the records on the given lines. A wrong offset results in a span that is too short.

        The offset of a line that cannot be read is `unreadable_line` of the line's number, counted from 0.
        """
        offset = np.asarray(self.index.offsets[indices], dtype=np.int64)
        if self.index.faults:
            lines = np.asarray(indices, dtype=np.int64)
            unreadable = np.isin(lines, list(self.index.faults))
            offset = np.where(unreadable, unreadable_line(lines), offset)
        after = (
            indices + 1
            if self._ordered is self.index.offsets
            else np.searchsorted(self._ordered, offset, side="right")
        )
        last = len(self._ordered) - 1
        end = np.where(after > last, self.file_nbytes, self._ordered[np.minimum(after, last)])
        length = np.maximum(np.minimum(end, self.file_nbytes) - offset, 0)
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def location(self, line: int) -> ItemLocation:
        """Return key, path (without a signature) and offset of the record on a line."""
        return ItemLocation(self.index.key_at(line), redact_url(self.path), int(self.index.offsets[line]))

    def first_offsets(self, count: int) -> IntArray:
        """Return the offsets of the first records in the order of the file."""
        first = self._ordered[:count]
        # `numpy.unique` would import numpy.ma first, which takes 12 ms.
        return first[np.diff(first, prepend=-1) > 0]


class RecordTables:
    """Tables of the records of several concatenated files.

    Args:
        tables: tables of the files, in order.
    """

    def __init__(self, tables: Sequence[RecordTable]) -> None:
        self.tables = tables
        self._starts = np.cumsum([0, *[len(table.index) for table in tables]])

    def __len__(self) -> int:
        return int(self._starts[-1])

    def locate(self, index: int) -> tuple[int, int]:
        """Return the number of the file that contains a record, and the record's line in the index of that file."""
        (file,), (line,) = self.lines(np.array([index]))
        return int(file), int(line)

    def lines(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the numbers of the files that contain records, and the records' lines in their indexes."""
        files: IntArray = np.searchsorted(self._starts, indices, side="right") - 1
        return files, indices - self._starts[files]

    def spans(self, indices: IntArray) -> Spans:
        """Return spans that contain the records at the given indices; see `RecordTable.spans`."""
        if len(self.tables) == 1:
            return self.tables[0].spans(indices)
        files, lines = self.lines(indices)
        offset, length = np.empty(len(lines), np.int64), np.empty(len(lines), np.int64)
        for number in np.unique(files).tolist():
            here = files == number
            found = self.tables[number].spans(lines[here])
            offset[here], length[here] = found.offset, found.length
        return Spans(files.astype(np.int64), offset, length)


def open_tables(paths: Sequence[str], versions: Sequence[Version | None]) -> list[RecordTable]:
    """Open the tables of several files; those of objects concurrently, because loading an index takes several requests.

    Args:
        paths: the files, or their URLs.
        versions: the version of each object; None for files.
    """

    def open_table(path: str, version: Version | None) -> RecordTable:
        return RecordTable(path, tolerant=True, version=version)

    if len(paths) == 1 or versions[0] is None:
        return list(map(open_table, paths, versions))
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(min(_OPENED_AT_A_TIME, len(paths)), "aioloader-index") as pool:
        return list(pool.map(in_this_opening(open_table), paths, versions))


# One pass uses all of the network, and has a progress bar.
_one_pass = threading.Lock()


def _load_index(url: str, idx_path: str, *, given: bool, tolerant: bool) -> Index:
    """Return the index of an object: from its .idx, or from a scan of the whole object, with a progress bar.

    Either is kept in the user's cache directory, for this version of the object.

    Args:
        url: the object.
        idx_path: its .idx file, a URL or a path.
        given: the caller passed it, so that it must exist.
        tolerant: see `recordio.Index.open`.

    Raises:
        OSError: the object or its index cannot be read.
        RecordIOError: the index is malformed, or an object without an index is damaged.
    """
    from aioloader.storage.remote.opening import BlockingObject, Stream

    try:
        return Index.open(idx_path, tolerant=tolerant)
    except FileNotFoundError:
        if given:
            raise
    except RemoteReadError as error:
        # A missing object is denied, too, to users who may not list the bucket, and to a signature of another object.
        if given or error.kind != "denied":
            raise
    with closing(BlockingObject(url)) as source:
        mebibytes = max(1, source.size() >> 20)
        label = f"index of {source.path.rpartition('/')[2]}"
        with _one_pass, ProgressBar(label, mebibytes, unit="MiB") as bar:
            with closing(Stream(source, lambda reached: bar.update(reached >> 20))) as stream:
                index = Index.scan(stream)
            bar.update(mebibytes)
            return index


def _scan(path: str) -> Index:
    try:
        return Index.scan(path)
    except CorruptRecordError as error:
        refuse_pointer(path)
        # The records after the damage are unknown, so the error cannot be that of single items.
        raise type(error)(
            f"{error.message}; without an .idx the records are found by a scan, which needs a valid file: "
            f"`aioloader repair {shlex.quote(path)} DST` writes all readable records to a new file, with an .idx",
            path=error.path,
            offset=error.offset,
            expected=error.expected,
            found=error.found,
        ) from error


def record_crop_files(paths: Sequence[str]) -> CropFiles:
    """Return record files as files that have crop indexes."""
    return CropFiles(RECORDS, paths, replaces_suffix=True)


def open_crops(
    option: str | os.PathLike[str] | None, paths: Sequence[str], fetched: Sequence[str | None] = ()
) -> RecordCrops | None:
    """Open the crop indexes of record files, or of their URLs; see `open_record_crops`."""

    def fault_of(number: int, keys: Array) -> str:
        path = paths[number]
        some = keys[np.linspace(0, len(keys) - 1, min(len(keys), _COMPARED)).astype(np.int64)]
        if is_url(path) or not len(some):
            return ""
        size = os.path.getsize(path)
        with os.fdopen(open_regular(path), "rb") as file:
            for offset in some.tolist():
                if offset < size and file.seek(offset) == offset and file.read(4) == _MAGIC:
                    return ""
        return f"it has no record of {path}"

    return open_record_crops(option, record_crop_files(paths), fault_of, fetched)


class RecordFileDataset(FileDataset):
    """Payloads of the records of RecordIO files, as bytes. Sample i is the record of line i of the .idx.

    The .idx is the file of the same name in the same folder. Without it the records are found by a scan when they are
    first needed. A line of the .idx that cannot be read is a sample that fails.

    Args:
        filename: the .rec file, or its URL. Several files are concatenated: a pattern such as ``train-*.rec``, in the
            order of the names, or a list of files.
        cache: a folder, or "memory": bytes that were read once are stored there and read from there.
        cache_limit: size limit of the cache in bytes, such as "50GB" (the default for a folder; for memory 4 GB).
        direct: bypass the system's page cache, if the file system supports it (Linux): for a local file much larger
            than memory.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: an option is not allowed, or files and URLs are mixed.
    """

    @opens_offline
    def __init__(
        self,
        filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        cache: str | os.PathLike[str] | None = None,
        cache_limit: int | str | None = None,
        direct: bool = False,
    ) -> None:
        super().__init__(cache, cache_limit)
        self._paths = record_files(filename)
        self._path = self._paths[0]
        self._direct = bool(direct)
        self._versions: tuple[Version | None, ...] = (None,) * len(self._paths)
        if any(map(is_url, self._paths)):
            if not all(map(is_url, self._paths)):
                raise ValueError("a dataset cannot mix local files and URLs: pass only one kind")
            if self._direct:
                raise ValueError(f"direct=True is for local files, and {redact_url(self._path)} is a URL")
            from aioloader.storage.remote.opening import describe_all

            self._versions = describe_all(self._paths)
        self._records: RecordTables | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_records": None}

    @property
    def tables(self) -> RecordTables:
        """Return the tables of all files, which are read at the first use."""
        if self._records is None:
            with self._asking():
                self._records = RecordTables(open_tables(self._paths, self._versions))
        return self._records

    @property
    def table(self) -> RecordTable:
        """Return the table of the first file."""
        return self.tables.tables[0]

    def __len__(self) -> int:
        return self._counted(len(self.tables))

    @property
    def decoder(self) -> Decoder[Any]:
        return RecordDecoder()

    def open_source(self) -> ByteSource:
        return self._open_files(
            self._paths,
            remote=self.reads_ahead,
            kind=SpanKind.RECORD,
            name=self._path,
            versions=self._versions,
            direct=self._direct,
        )

    @property
    def reads_ahead(self) -> bool:
        return self._versions[0] is not None

    def _read_heads(self, number: int, offsets: IntArray, *, labels: int = 0) -> RecordHeads:
        """Read headers of records of one file; those of an object from the cache, if they are there."""
        cache = self._open_cache() if self.reads_ahead else None
        version = self._versions[number]
        try:
            with self._asking():
                return read_heads(self._paths[number], offsets, labels=labels, version=version, cache=cache)
        finally:
            if cache is not None:
                cache.close()

    def spans(self, indices: IntArray) -> Spans:
        return self.tables.spans(indices)

    def crop_files(self) -> CropFiles:
        return record_crop_files(self._paths)

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the file of each record, and its offset there, which is its key."""
        spans = self.spans(indices)
        return spans.file, spans.offset

    def extras(self, indices: IntArray) -> None:
        """Return None: the records contain their labels."""

    def location(self, index: int) -> ItemLocation:
        file, line = self.tables.locate(index)
        return self.tables.tables[file].location(line)

    def file_nbytes(self, index: int) -> int:
        version = self._versions[self.tables.locate(index)[0]]
        return super().file_nbytes(index) if version is None else version.nbytes


class ImageRecordDataset(RecordFileDataset):
    """Images of RecordIO files: (image, label) of every record.

    The image is uint8 (height, width, 3) RGB, the label the one passed to `recordio.pack`. Scalar labels are int64 if
    those of the first 1,000 records of the file are whole numbers, else float32; a later label that does not fit is an
    error of its sample. Several labels of a record are float32 (n,).

    Args:
        path: the .rec file, or several; see `RecordFileDataset`.
        flag: 1 for colour; 0 for grey, (height, width, 1); -1 for the channels and bits of each file.
        transform: deprecated; use ``.transform(fn)``.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        label: None: the samples are images alone, without the labels of the records.
        label_dtype: dtype of all labels; None: by the rules above.
        dct_scaling: if the first transform is a crop or resize that shrinks a JPEG to a half or less, decode it at 1/2,
            1/4 or 1/8 of its size. Faster for large photographs, but it changes pixels slightly, and a crop's edges
            move by up to half a decoded pixel. Used by loaders only, not by ``dataset[i]``.
        crop_index: crop indexes (`aioloader index --crops`), with which a crop of a JPEG is decoded without the rest of
            the image, pixels unchanged. "auto": those that exist at their usual places; None: none; or the path of a
            file or of a directory of them. Used by loaders only.
        cache, cache_limit, direct: see `RecordFileDataset`.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        ValueError: an option is not allowed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
    """

    _first_label = False
    _crops: RecordCrops | None = None
    _crops_looked_up = False

    @advises({}, ImageOptions)
    def __init__(
        self,
        path: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        flag: int = 1,
        transform: Callable[..., Any] | None = None,
        *,
        label: str | None = AUTO,
        direct: bool = False,
        **options: Unpack[ImageKeywords],
    ) -> None:
        self._options = given = ImageOptions(flag=flag, **options)
        super().__init__(path, cache=given.cache, cache_limit=given.cache_limit, direct=direct)
        self._own_stage = stage_of_argument(self, transform)
        self._label_dtype = None if given.dtype is None else given.dtype.name
        self._labelled = check_labelled(label, "records")
        # Every label of a record is a float64, so that none that nobody asked for is an error.
        self._scalar_dtype: str | None = self._label_dtype if self._labelled else "float64"
        self._crop_index = given.crop_index
        if given.crop_index != AUTO:
            self._open_crops()

    def _open_crops(self, *, fetch: bool = False) -> RecordCrops | None:
        """Return the crop indexes of the files, which are opened at the first call; None without any.

        Args:
            fetch: those next to URLs too, which takes requests. Without it only those that are on this machine.
        """
        option = self._crop_index
        remote = option == AUTO and self.reads_ahead
        if option is None or (self._crops_looked_up and not (remote and fetch)):
            return self._crops
        places: Sequence[str | None] = ()
        if remote and fetch:
            with self._asking():
                places = fetch_indexes(self._paths, [version.nbytes for version in self._versions if version])
        self._crops = open_crops(option, self._paths, places)
        self._crops_looked_up = True
        if fetch or not remote:
            self._crop_index = None
        return self._crops

    def partial_reads(self, stages: Sequence[Any], seed: int) -> CropReads | None:
        """Return the finder of the parts of records that a loader's crops need; see `ByteDataset`.

        Of remote files with a crop index; a crop index next to a remote file is fetched first.
        """
        decoder = self.decoder if self.reads_ahead else None
        # The parts are for this decoder only, and take the place of a record's extras.
        usual = type(decoder) is ImageRecordDecoder and type(self).extras is RecordFileDataset.extras
        region = decoder.needed_region(stages) if usual and decoder is not None else None
        crops = None if region is None else self._open_crops(fetch=True)
        if region is None or crops is None:
            return None
        upright, max_pixels = self._options.exif == "apply", self._options.max_pixels
        return CropReads(crops=crops, region=region, seed=seed, upright=upright, max_pixels=max_pixels)

    @property
    def decoder(self) -> ImageRecordDecoder:
        """Return the decoder. The first call reads the labels of the first records, unless `label_dtype` is given."""
        if self._scalar_dtype is None:
            self._scalar_dtype = self._find_scalar_dtype()
        vector_dtype = (self._label_dtype or "float32") if self._labelled else "float64"
        return ImageRecordDecoder(
            **self._options.decoding,
            scalar_dtype=self._scalar_dtype,
            vector_dtype=vector_dtype,
            dct_scaling=bool(self._options.dct_scaling),
            crops=self._open_crops(),
            first_label=self._first_label,
            labelled=self._labelled,
        )

    def image_decoder(self) -> ImageRecordDecoder:
        # Every label of a record is a float64.
        return ImageRecordDecoder(
            **self._options.decoding, scalar_dtype="float64", vector_dtype="float64", labelled=False
        )

    def _find_scalar_dtype(self) -> str:
        """Return the dtype of scalar labels by the first records. For an object it is kept, for this version."""
        first = next((n for n, table in enumerate(self.tables.tables) if len(table.index)), 0)
        offsets = self.tables.tables[first].first_offsets(_LABELS_LOOKED_AT)
        version = self._versions[first]
        if version is None:
            return scalar_label_dtype(self._read_heads(first, offsets))
        # The .idx may be replaced while the records stay.
        kind = f"labels-1-{zlib.crc32(offsets.tobytes()):08x}"

        def make() -> SampleIndex:
            whole = scalar_label_dtype(self._read_heads(first, offsets)) == "int64"
            return SampleIndex(kind, {"whole": np.array([whole], np.uint8)})

        kept = open_index(self._paths[first], version, kind, make)
        return "int64" if np.any(kept.arrays.get("whole", False)) else "float32"

    def labels(self) -> Array:
        """Return the label of every record, (n,); all headers are read, in the order of the file.

        Raises:
            OSError: the file cannot be read.
            ValueError: a record has no label or several labels, or its header is corrupt.
        """
        if not self._labelled:
            raise ValueError("this dataset has no labels, because it was made with label=None")
        found = np.concatenate(
            [
                _labels_of(table, self._read_heads(number, table.index.offsets))
                for number, table in enumerate(self.tables.tables)
            ]
        )
        if self._label_dtype is not None:
            return found.astype(self._label_dtype)
        whole = bool(np.equal(np.floor(found), found).all())
        return found.astype(np.int64) if whole and len(found) else found


def _labels_of(table: RecordTable, heads: RecordHeads) -> Array:
    """Return the label of every record of a file, float32 (n,)."""
    lost = np.flatnonzero(~heads.scalar)
    if len(lost):
        key = table.index.key_at(int(lost[0]))
        raise ValueError(f"{redact_url(table.path)}: the record with the key {key!r} has no single label")
    return heads.label


def begins_with_a_record(path: str) -> bool:
    """Return True if a file begins like a RecordIO file.

    Raises:
        OSError: the file cannot be read.
    """
    with os.fdopen(open_regular(path), "rb") as file:
        return file.read(4) == _MAGIC


def scalar_label_dtype(heads: RecordHeads) -> str:
    """Return "int64" if all scalar labels of these records are whole numbers, else "float32".

    Records that are corrupt, truncated within their header, or have a label array are ignored; without any scalar label
    the result is "float32".
    """
    labels = heads.label[heads.scalar]
    return "int64" if len(labels) and bool((labels == np.floor(labels)).all()) else "float32"


# Saving less than this share of a record is not worth a second request or the check.
_LEAST_SAVING: Final = 1 / 16
# Records of a file whose parts were not enough, as a number and as a share of those that were read in parts: with more
# of them the file's crop index is wrong, and all its records are read whole.
_MOST_EXCLUDED: Final = 16
_MOST_EXCLUDED_SHARE: Final = 1 / 8
_MOST_LABELS: Final = 1 << 16


class CropReads(PartialReads):
    """Finder of the parts of image records.

    The extras of its items are `aioloader.datasets.decoding.PARTS`.

    Args:
        crops: crop indexes of the files.
        region: finds the rectangle of an image that the loader's chain needs.
        seed: of the loader.
        upright: images are turned upright.
        max_pixels: larger images are refused; None for no limit.
    """

    def __init__(
        self,
        *,
        crops: RecordCrops,
        region: NeededRegion,
        seed: int,
        upright: bool,
        max_pixels: int | None,
    ) -> None:
        self._crops = crops
        self._region = region
        self._seed = seed
        self._upright = upright
        self._max_pixels = max_pixels
        self._rng = Rng(seed)
        self._tried: Counter[int] = Counter()
        self._excluded: defaultdict[int, set[int]] = defaultdict(set)
        self._threads: Threads | None = None

    def close(self) -> None:
        """End the thread; may be called twice."""
        threads, self._threads = self._threads, None
        if threads is not None:
            threads.close()

    def exclude(self, file: int, offset: int) -> None:
        """Read a record whole from now on, because its sample could not be made of its parts."""
        self._excluded[file].add(offset)

    def _may_be_narrowed(self, file: int, offset: int) -> bool:
        excluded = self._excluded.get(file)
        if not excluded:
            return True
        most = max(_MOST_EXCLUDED, _MOST_EXCLUDED_SHARE * self._tried[file])
        return len(excluded) < most and offset not in excluded

    async def narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        """Leave out what the samples do not need.

        In a thread, because crop indexes are opened, and may not be in memory.
        """
        if self._threads is None:
            self._threads = Threads(1, "aioloader-crops")
        return await self._threads.run(self._narrow, spans, index, epoch, position)

    def _narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        usual = ~doubtful(spans.length) & (spans.offset >= 0) & (spans.length & 3 == 0)
        length, gaps, extras = spans.length.copy(), np.zeros((len(spans), 2), np.int64), None
        columns = zip(
            np.flatnonzero(usual).tolist(),
            spans.file[usual].tolist(),
            spans.offset[usual].tolist(),
            spans.length[usual].tolist(),
            zip(epoch[usual].tolist(), index[usual].tolist(), position[usual].tolist(), strict=True),
            strict=True,
        )
        for place, file, offset, nbytes, sample in columns:
            if not self._may_be_narrowed(file, offset):
                continue
            entry = self._crops.find(file, offset)
            if entry is None:
                continue
            try:
                found = self._parts(entry, nbytes, sample)
            except CropEntryError:  # a worker will count it
                continue
            if found is None:
                continue
            rows, gap, end = found
            if extras is None:
                extras = np.zeros(len(spans), PARTS)
            self._tried[file] += 1
            length[place], gaps[place], extras[place] = end, gap, (*rows, nbytes)
        if extras is None:
            return None
        return PartialItems(Spans(spans.file, spans.offset, length, gaps), extras)

    def _parts(
        self, entry: memoryview, nbytes: int, sample: tuple[int, int, int]
    ) -> tuple[tuple[int, int], tuple[int, int], int] | None:
        """Find the parts of a record.

        Args:
            entry: of its image.
            nbytes: of the record.
            sample: (epoch, index, position).

        Returns:
            rows of MCUs, begin and bytes of the gap, end of the last part; None if the record is to be read whole.

        Raises:
            CropEntryError: the entry is damaged.
        """
        head = read_head(entry)
        # Between the fixed fields and the image are several labels, if any.
        image_at = nbytes - (head.jpeg_nbytes + 3 & -4)
        labels = image_at - RECORD_FIELDS.size
        if not 0 <= labels <= 4 * _MOST_LABELS:
            return None
        if self._max_pixels is not None and head.height * head.width > self._max_pixels:
            return None
        orientation = head.orientation if self._upright else 1
        height, width = (head.width, head.height) if orientation >= 5 else (head.height, head.width)
        epoch, index, position = sample
        self._rng.seek(self._seed, epoch, index, position=position)
        needed = self._region.find(height, width, self._rng)
        if needed is None:
            return None
        box, scale = needed
        if orientation != 1:
            box = stored_box(box, orientation, head.height, head.width)
        rows = needed_rows(head, box, scale)
        if rows[0] == 0 and rows[1] == head.rows:
            return None
        begin, end = row_bytes(entry, head, rows)
        scan_at = image_at + head.scan_start
        if begin + (nbytes - scan_at - end) < _LEAST_SAVING * nbytes:
            return None
        return rows, (scan_at, begin), scan_at + end
