"""Dataset over MDS shards: their tables of samples, and the fields of a sample.

The tables are at the beginning of the shards. That of a local shard is read with one call, which takes less time than
reading an index of it. Those of remote shards are read with many requests at a time; all tables of a set are kept in
one file in the user's cache directory.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import FieldKind
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shard_tables import NumberKeys, ShardTable
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.mds.encodings import Encoding, EncodingKind, parse_encoding
from aioloader.formats.mds.index import LayoutFault, MDSColumn, SampleLayout, parse_table, table_nbytes
from aioloader.formats.mds.sets import (
    ShardFile,
    check_same_columns,
    check_shard,
    index_path,
    mds_folders,
    open_set,
)
from aioloader.foundation.types import Array, IntArray, SpanKind, Spans
from aioloader.foundation.validation import advises
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.cache.disk import CacheOptions
from aioloader.storage.cache.unpacked import PackedFile, UnpackedFiles, file_blocks
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import cache_name, is_url, redact_url
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Sequence
    from typing import Unpack

    from aioloader.abc import ByteSource, Decoder
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.foundation.types import ItemLocation
    from aioloader.storage.cache.base import Cache
    from aioloader.storage.remote.transport import Version


_KINDS = {
    EncodingKind.BYTES: FieldKind.BYTES,
    EncodingKind.TEXT: FieldKind.TEXT,
    EncodingKind.JSON: FieldKind.JSON,
    EncodingKind.IMAGE: FieldKind.IMAGE,
    EncodingKind.PIXELS: FieldKind.IMAGE,
    EncodingKind.IMAGES: FieldKind.IMAGE,
    EncodingKind.ARRAY: FieldKind.VALUE,
    EncodingKind.NUMBER: FieldKind.VALUE,
}


@dataclass(frozen=True)
class MDSFieldReader:
    """Reader of the fields of MDS samples; see `aioloader.datasets.fields.FieldReader`.

    If the extra of a sample is not None, its data are the bytes of the one field that is read; see
    `MDSDataset.labels_at`.

    Attributes:
        columns: of every sample, in the order of the data.
        images: names of columns of bytes, or of arrays of pixels, that are images.
    """

    columns: tuple[MDSColumn, ...]
    images: frozenset[str]

    @cached_property
    def _layout(self) -> SampleLayout:
        return SampleLayout(self.columns)

    @cached_property
    def _encodings(self) -> dict[str, Encoding | str]:
        """Return the encoding of each column by its name, or the reason why it is not read."""
        found: dict[str, Encoding | str] = {}
        for column in self.columns:
            try:
                encoding = parse_encoding(column.encoding)
            except ValueError as error:
                found[column.name] = str(error)
                continue
            found[column.name] = encoding
            if column.nbytes is not None and column.nbytes != encoding.nbytes:
                wanted = "any size" if encoding.nbytes is None else f"{encoding.nbytes} bytes"
                found[column.name] = (
                    f"its values have {column.nbytes} bytes in index.json, and those of the encoding "
                    f"{column.encoding!r} have {wanted}"
                )
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {column.name: number for number, column in enumerate(self.columns)}

    def encoding(self, name: str) -> Encoding | None:
        """Return the encoding of a column; None if there is no such column.

        Raises:
            ValueError: columns of this encoding are not read.
        """
        found = self._encodings.get(name)
        if isinstance(found, str):
            raise ValueError(f"the column {name!r} cannot be read: {found}")
        return found

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        found = self._encodings.get(name)
        if not isinstance(found, Encoding):
            return FieldKind.BYTES
        return FieldKind.IMAGE if name in self.images else _KINDS[found.kind]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of the columns that are read: not of those with pickled values or unknown encodings.

        Raises:
            SampleFormatError: the bytes are not a sample of these columns.
        """
        if extra is None:
            self._spans(data, location)
        return self.readable

    @property
    def readable(self) -> tuple[str, ...]:
        """Return the names of the columns that are read."""
        return tuple(name for name, found in self._encodings.items() if isinstance(found, Encoding))

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields.

        Raises:
            MissingFieldError: there is no such column.
            SampleFormatError: the bytes are not a sample of these columns, a value is damaged, or its encoding is not
                read.
        """
        if extra is not None:
            return [self._value(name, data, location) for name in names]
        spans = self._spans(data, location)
        values = []
        for name in names:
            number = self._numbers.get(name)
            if number is None:
                raise MissingFieldError(name, tuple(self._numbers), path=location.path, key=location.key)
            begin, end = spans[number]
            values.append(self._value(name, data[begin:end], location))
        return values

    def _spans(self, data: memoryview, location: ItemLocation) -> list[tuple[int, int]]:
        try:
            return self._layout.spans(data, len(data))
        except LayoutFault as fault:
            raise SampleFormatError(
                f"the sample is damaged: {fault}",
                **location._asdict(),
                expected=None if fault.expected is None else f"{fault.expected} bytes",
                found=len(data),
            ) from None

    def _value(self, name: str, data: memoryview, location: ItemLocation) -> Any:
        try:
            encoding = self.encoding(name)
            if encoding is None:
                raise MissingFieldError(name, tuple(self._numbers), path=location.path, key=location.key)
            value = encoding.decode(data)
            if encoding.kind is EncodingKind.PIXELS or (
                name in self.images and isinstance(value, np.ndarray)
            ):
                return encode_raw(value)
            if encoding.kind is EncodingKind.IMAGES:
                return [encode_raw(each) if isinstance(each, np.ndarray) else each for each in value]
        except MissingFieldError:
            raise
        except (ValueError, OverflowError) as error:
            raise SampleFormatError(
                f"the field {name!r} cannot be read: {error}",
                **location._asdict(),
            ) from None
        return value

    def fixed_span(self, name: str) -> tuple[int, int] | None:
        """Return where a column is in every sample; see `aioloader.formats.mds.index.SampleLayout.fixed_span`."""
        return self._layout.fixed_span(name)


_KIND: Final = "mds-1"
_READ_AT_A_TIME_NBYTES: Final = 64 << 20


def local_table(path: str, file: ShardFile) -> IntArray:
    """Return the table of a local shard; see `aioloader.formats.mds.index.parse_table`.

    Args:
        path: of the shard without compression.
        file: of the shard, for errors.

    Raises:
        OSError: it cannot be read.
        SampleFormatError: it does not have the size that the index says, or its table is damaged.
    """
    descriptor = open_regular(path)
    try:
        _check_size(file, os.fstat(descriptor).st_size, file.shard.raw.nbytes)
        data = bytearray(table_nbytes(file.shard.samples))
        got = read_into(descriptor, memoryview(data), 0)
    finally:
        os.close(descriptor)
    return parse_table(memoryview(data)[:got], file.shard, redact_url(file.path))


def remote_tables(
    index_url: str, files: Sequence[ShardFile], versions: Sequence[Version], *, keep: bool
) -> list[IntArray]:
    """Return the tables of remote shards; see `aioloader.formats.mds.index.parse_table`.

    Args:
        index_url: the index of the set.
        files: of the shards, not compressed.
        versions: of the files.
        keep: the files are all of the set: their tables are kept in the user's cache directory, and read from there.

    Raises:
        RemoteReadError: a shard cannot be read.
        SampleFormatError: a shard does not have the size that the index says, or its table is damaged.
    """
    for file, version in zip(files, versions, strict=True):
        _check_size(file, version.nbytes, file.shard.raw.nbytes)
    lengths = np.array([table_nbytes(file.shard.samples) for file in files], np.int64)

    def read() -> SampleIndex:
        return SampleIndex(_KIND, {"tables": _read_tables(files, versions, lengths)})

    index = open_index(index_url, _state(files, versions), _KIND, read) if keep else read()
    tables = index.arrays.get("tables")
    if tables is None or tables.dtype != np.uint8 or tables.shape != (int(lengths.sum()),):
        tables = _read_tables(files, versions, lengths)
    data = tables.data
    found, at = [], 0
    for file, length in zip(files, lengths.tolist(), strict=True):
        found.append(parse_table(data[at : at + length], file.shard, redact_url(file.path)))
        at += length
    return found


def _state(files: Sequence[ShardFile], versions: Sequence[Version]) -> Version:
    """Return one version for all shards, without a tag if one of them has none."""
    from aioloader.storage.remote.transport import Version

    tags = [version.tag for version in versions]
    digest = hashlib.sha256()
    for file, tag in zip(files, tags, strict=True):
        digest.update(
            f"{cache_name(file.path)}\0{file.shard.samples}\0{tag}\0".encode("utf-8", "surrogateescape")
        )
    tag = None if None in tags else digest.hexdigest()
    return Version(sum(version.nbytes for version in versions), tag, None)


def _read_tables(files: Sequence[ShardFile], versions: Sequence[Version], lengths: IntArray) -> Array:
    """Return the tables, one behind the other, uint8 (n,)."""
    from aioloader.storage.remote.source import RemoteByteSource

    tables = np.empty(int(lengths.sum()), np.uint8)
    ends = np.cumsum(lengths)
    source = RemoteByteSource([file.path for file in files], kind=SpanKind.EXACT, versions=versions)
    try:
        low = 0
        while low < len(files):
            begin = int(ends[low - 1]) if low else 0
            high = max(low + 1, int(np.searchsorted(ends, begin + _READ_AT_A_TIME_NBYTES, side="right")))
            numbers = np.arange(low, high)
            spans = Spans(numbers, np.zeros(len(numbers), np.int64), lengths[low:high])
            data, starts = source.fetch_spans(spans)
            for place, number in enumerate(numbers.tolist()):
                start, length = int(starts[place]), int(lengths[number])
                tables[ends[number] - length : ends[number]] = np.frombuffer(
                    data[start : start + length], np.uint8
                )
            low = high
    finally:
        source.close()
    return tables


def _check_size(file: ShardFile, found: int, expected: int) -> None:
    if found != expected:
        raise SampleFormatError(
            "the shard does not have the size that index.json says; copy it again",
            path=redact_url(file.path),
            expected=f"{expected} bytes",
            found=found,
        )


_IMAGES = (EncodingKind.BYTES, EncodingKind.IMAGE, EncodingKind.PIXELS, EncodingKind.ARRAY)


class MDSDataset(ShardDataset):
    """Dataset over MDS folders, as `streaming.MDSWriter` of MosaicML Streaming writes them: index.json and shards.

    A sample is (image, label): the image uint8 (height, width, 3) RGB; the label int64 if the column has whole numbers,
    float32 if it has other numbers, and arrays as they are. With `fields` a sample is a dict of columns: `jpeg`, `png`
    and `pil` are decoded to such images, lists of them to lists; `str` is a str; `json` is parsed; `int` and the types
    of numpy are numpy scalars; `ndarray` is an array; `str_int` is an int, `str_float` a float64 and `str_decimal` a
    Decimal; `bytes` is bytes. `pkl` is refused, because unpickling runs code that the data contain; other columns of
    such a set can be read.

    The key of a sample is its number in its shard. The table at the beginning of each shard, where its samples are, is
    read when the dataset is first used; those of remote shards are kept in the user's cache directory.

    Compressed shards (zstd, gz, bz2, br, snappy) are decompressed when the dataset is first used, a few at a time, once
    for each machine: into the directory `cache`, or into the user's cache directory. They stay there for the next
    epochs and runs. Their sizes and hashes are compared with those of index.json. `cache_limit`, or 50 GB, limits the
    decompressed files of all datasets in the directory; if it is reached, those of datasets that no process has open
    are deleted. Offsets of samples count decompressed bytes.

    Args:
        root: the folder with index.json, or its URL (http, https, s3, gs, az); or a pattern of paths of index.json; or
            a list of folders with the same columns, in order. Folders whose index was merged from those of sub-folders
            are read, too.
        image: the column of images: `jpeg`, `png`, `pil`, `bytes` of an encoded image, or `ndarray` with uint8 pixels.
            With `fields`, the name or names of those columns of `bytes` that are images.
        label: the column of labels; None: the samples are images alone.
        fields: names of the columns of samples that are dicts; None: the sample is (image, label).
        flag, exif, max_pixels, label_dtype, dct_scaling, crop_index: see `ImageRecordDataset`.
        cache, cache_limit: see `RecordFileDataset`. Of compressed shards, the decompressed files are the cache in a
            directory.

    Attributes:
        paths: files of the shards, or their URLs.

    Raises:
        FileNotFoundError: there is no index.json, or no crop index at the path given.
        SampleFormatError: index.json is damaged, of another version or another format, or folders have different
            columns; the error is a ValueError.
        ValueError: an option is not allowed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
        OSError: an index cannot be read.
    """

    opens_whole = True  # a compressed shard is decompressed

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        root: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | Sequence[str] = "image",
        label: str | None = "label",
        fields: str | Sequence[str] | None = None,
        **options: Unpack[ShardKeywords],
    ) -> None:
        images = (image,) if isinstance(image, str) else tuple(image)
        if fields is None and len(images) != 1:
            raise ValueError(f"image must be the name of one column unless fields are given, got {image!r}")
        sets = [open_set(folder) for folder in mds_folders(root)]
        self._columns = check_same_columns(sets)
        files = [file for each in sets for file in each.files]
        self._files = {file.path: file for file in files}
        self._sizes_of_sets = {each.folder: len(each.files) for each in sets}
        self._is_packed = any(file.is_packed for file in files)
        self._image_names = images
        self._unpacked = self._unpacked_sets(
            {each.folder: each.version for each in sets}, options.get("cache"), options.get("cache_limit")
        )
        super().__init__(
            [file.path for file in files],
            image=images[0] if images else "image",
            label=label,
            fields=fields,
            **options,
        )
        self._field_reader = MDSFieldReader(self._columns, self._images_of(self._columns))

    def _images_of(self, columns: Sequence[MDSColumn]) -> frozenset[str]:
        """Return the names of the columns of other values than encoded images that are images."""
        if self._fields is None:
            return frozenset((self._image,))
        return frozenset(
            column.name
            for column in columns
            if column.encoding == "bytes" and column.name in self._image_names
        )

    def _unpacked_sets(
        self,
        versions: dict[str, str],
        cache: str | os.PathLike[str] | None,
        cache_limit: int | str | None,
    ) -> dict[str, UnpackedFiles]:
        """Return the decompressed copies of each set, by its folder; none if no shard is compressed."""
        if not self._is_packed:
            return {}
        options = CacheOptions(cache, cache_limit)
        if options.in_memory:
            # The limit of that cache is not that of a directory.
            options = CacheOptions()
        return {
            folder: UnpackedFiles(
                cache_name(folder) if is_url(folder) else os.path.abspath(folder),
                version,
                directory=options.cache,
                limit_nbytes=options.limit_nbytes,
                read=_reader_of(folder),
            )
            for folder, version in versions.items()
        }

    # -- samples -----------------------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of samples, which index.json has."""
        return self._counted(sum(self._files[path].shard.samples for path in self.paths))

    def open_tables(self) -> Iterator[ShardTable]:
        """Yield the tables of the shards in order; compressed shards are decompressed before.

        Raises:
            OSError, SampleFormatError: the next shard cannot be read, or is damaged.
        """
        return self._tables_of(self.paths, self._versions)

    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        return next(self._tables_of((path,), (version,)))

    def _tables_of(self, paths: Sequence[str], versions: Sequence[Version | None]) -> Iterator[ShardTable]:
        if self.reads_ahead:
            yield from self._remote_tables(paths, versions)
            return
        for path, local in zip(paths, self._local_paths(paths, versions), strict=True):
            file = self._files[path]
            yield _table(file, local_table(local, file))

    def _remote_tables(
        self, paths: Sequence[str], versions: Sequence[Version | None]
    ) -> Iterator[ShardTable]:
        shards = [
            (self._files[path], version)
            for path, version in zip(paths, versions, strict=True)
            if version is not None
        ]
        for folder, group in groupby(shards, key=lambda shard: shard[0].folder):
            files, known = zip(*group, strict=True)
            keep = len(files) == self._sizes_of_sets[folder]
            tables = remote_tables(index_path(folder), files, known, keep=keep)
            yield from map(_table, files, tables)

    def _local_paths(self, paths: Sequence[str], versions: Sequence[Version | None]) -> list[str]:
        """Return local files of shards; make the decompressed ones that do not exist yet."""
        packed: dict[str, list[PackedFile]] = {}
        for path, version in zip(paths, versions, strict=True):
            file = self._files[path]
            if file.is_packed or version is not None:
                packed.setdefault(file.folder, []).append(_packed_file(file, version))
        made: dict[str, str] = {}
        for folder, some in packed.items():
            copies = self._unpacked[folder].make(some)
            made.update(zip((file.path for file in some), copies, strict=True))
        return [made.get(path, path) for path in paths]

    def open_source(self) -> ByteSource:
        if self.paths and not self._is_packed:
            return super().open_source()
        local = self._local_paths(self.paths, self._versions)
        name = self.paths[0] if self.paths else ""
        return self._open_files(local, remote=False, kind=self.span_kind, name=name)

    def _open_cache(self) -> Cache | None:
        # The decompressed files are in the directory of the cache.
        return None if self._is_packed and not self._cache_options.in_memory else super()._open_cache()

    @property
    def reads_ahead(self) -> bool:
        return super().reads_ahead and not self._is_packed

    @property
    def decoder(self) -> Decoder[Any]:
        """Return the decoder.

        Raises:
            MissingFieldError: the samples have no such column; the error is a ValueError.
            SampleFormatError: the column cannot be read, or is not one of images.
        """
        self._check_fields()
        return super().decoder

    def _check_fields(self) -> None:
        """Raise unless all samples have the fields, so that a loader does not skip every sample."""
        if not self.paths:
            return
        path = redact_url(index_path(self._files[self.paths[0]].folder))
        for name in self._pair if self._fields is None else self._fields:
            try:
                encoding = self._field_reader.encoding(name)
            except ValueError as error:
                raise SampleFormatError(str(error), path=path) from None
            if encoding is None:
                raise MissingFieldError(name, [column.name for column in self._columns], path=path, key="0")
            if self._fields is None and name == self._image and encoding.kind not in _IMAGES:
                raise SampleFormatError(
                    f"the column {name!r} is not one of single images: pass image= the name of a column that is, or "
                    "fields=(...) for samples that are dicts",
                    path=path,
                    expected="jpeg, png, pil, bytes or ndarray",
                    found=next(column.encoding for column in self._columns if column.name == name),
                )

    def _reader(self) -> MDSFieldReader:
        return self._field_reader

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Array | None]:
        """Return the spans of the labels alone if they have the same place in all samples; else of the samples."""
        spans = super().spans(indices)
        fixed = self._field_reader.fixed_span(self.label_field)
        if fixed is None:
            return spans, None
        offset, nbytes = fixed
        begin = spans.offset + offset + (spans.length if offset < 0 else 0)
        # A damaged sample may be shorter.
        low = np.clip(begin, spans.offset, spans.offset + spans.length)
        length = np.minimum(nbytes, spans.offset + spans.length - low)
        return Spans(spans.file, low, length), np.ones(len(indices), np.int8)

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole shard, and yield each fault: of its size, its hash, its table or its samples. Blocking.

        Args:
            number: of the shard.
            tick: called now and then with the number of bytes read so far.

        Returns:
            the number of samples without a fault.

        Raises:
            OSError: the shard cannot be read.
        """
        path, version = self.paths[number], self._versions[number]
        file = self._files[path]
        try:
            local = path if self.reads_ahead else self._local_paths((path,), (version,))[0]
        except SampleFormatError as error:
            yield error
            return 0
        with closing(_reader_of(local)(local)) as blocks:
            return (yield from check_shard(blocks, file, self._columns, tick))


def _table(file: ShardFile, offsets: IntArray) -> ShardTable:
    return ShardTable(
        path=file.path,
        nbytes=file.shard.raw.nbytes,
        offset=offsets[:-1],
        length=np.diff(offsets),
        keys=NumberKeys(),
    )


def _packed_file(file: ShardFile, version: Version | None) -> PackedFile:
    """Return the file of a shard that is decompressed, or copied if it is remote and not compressed."""
    if version is None:
        status = os.stat(file.path)
        state = f"{status.st_size} {status.st_mtime_ns}"
    else:
        # Without a tag the sizes and hashes of the index, which is read each time, have to be enough.
        state = version.tag or str(version.nbytes)
    shard = file.shard
    stored = shard.packed or shard.raw
    return PackedFile(
        path=file.path,
        state=state,
        nbytes=stored.nbytes,
        codec=shard.codec,
        unpacked_nbytes=shard.raw.nbytes,
        hashes=shard.raw.hashes,
        packed_hashes=stored.hashes,
        extra="mds",
    )


def _reader_of(folder: str) -> Callable[[str], Generator[bytes]]:
    """Return the function that reads the files of a set."""
    if not is_url(folder):
        return file_blocks
    from aioloader.storage.remote.opening import object_blocks

    return object_blocks
