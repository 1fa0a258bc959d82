"""Fields of the rows of tables, which a worker decodes from the items of a block source."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.crop_index.lookup import AUTO, BlockCrops, RecordCrops
from aioloader.datasets.decoding import ImageOptions, label_vector
from aioloader.datasets.fields import FieldKind
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shards import record_files
from aioloader.errors import MissingFieldError, ParquetError, SampleFormatError
from aioloader.formats.parquet.arrow_columns import line_for_paths
from aioloader.formats.parquet.block import Column, ColumnKind, common_column, split_item
from aioloader.formats.parquet.block_source import BlockByteSource
from aioloader.formats.parquet.footer import (
    STORED,
    BlockTable,
    ParquetFooter,
    ParquetTable,
    class_names,
    features_of,
    image_columns,
    lay_out_blocks,
    open_parquet_table,
)
from aioloader.formats.parquet.row_groups import RowGroupReader, check_parquet
from aioloader.foundation.host_limits import usable_memory
from aioloader.foundation.opening import in_this_opening
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.types import WHOLE_FILE, Array, IntArray, ItemLocation, Spans
from aioloader.foundation.validation import advises, at_least, parse_nbytes
from aioloader.samplers.blocks import BlockShuffleSampler
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Generator, Sequence
    from typing import Self, Unpack

    from aioloader.abc import ByteSource
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.datasets.fields import FieldReader
    from aioloader.datasets.shard_tables import ShardTables
    from aioloader.storage.remote.transport import Version


_VIEWS = (ColumnKind.BYTES, ColumnKind.FILE)


@dataclass(frozen=True)
class RowReader:
    """Reader of the fields of a row; implements `aioloader.datasets.fields.FieldReader`.

    Attributes:
        columns: columns of an item, in order.
        images: names of the columns that are encoded images.
    """

    columns: tuple[Column, ...]
    images: frozenset[str]

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields: views of images, other bytes as bytes, None where there is no value.

        Args:
            data: the item.
            extra: not used.
            location: of the row, for errors.
            names: of the fields.

        Raises:
            MissingFieldError: the item has no such column.
            SampleFormatError: the item is damaged.
        """
        try:
            fields = split_item(data)
            if len(fields) != len(self.columns):
                raise ValueError(
                    f"the item has {len(fields)} fields, and {len(self.columns)} columns were read"
                )
            found = {column.name: place for place, column in enumerate(self.columns)}
            return [self._value(fields, found[name]) for name in names]
        except KeyError as error:
            known = [column.name for column in self.columns]
            raise MissingFieldError(str(error.args[0]), known, path=location.path, key=location.key) from None
        except ValueError as error:
            raise SampleFormatError(
                f"the row is damaged: {error}", path=location.path, key=location.key
            ) from None

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of the columns."""
        return tuple(column.name for column in self.columns)

    def _value(self, fields: list[memoryview | None], place: int) -> Any:
        column, data = self.columns[place], fields[place]
        value = None if data is None else column.value(data)
        if value is None or column.name in self.images:
            return value
        if column.kind in _VIEWS:
            return bytes(value)
        if column.kind is ColumnKind.FILES:
            return [None if each is None else bytes(each) for each in value]
        return value

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        return FieldKind.IMAGE if name in self.images else FieldKind.VALUE


_IMAGE: Final = "image"
_LABEL: Final = "label"
_IMAGE_KINDS: Final = (ColumnKind.BYTES, ColumnKind.FILE)
_ALL_IMAGE_KINDS: Final = (*_IMAGE_KINDS, ColumnKind.FILES)

_USUAL_WINDOW: Final = 16
_USUAL_WINDOW_NBYTES: Final = 2 << 30
_KEPT_WHOLE_NBYTES: Final = 1 << 30
_LEAST_LIMIT_NBYTES: Final = 64 << 20
_UNKNOWN_MEMORY: Final = 4 << 30
_MEMORY_SHARE: Final = 4

# Blocks that are loaded at a time, and those that are announced to be needed next.
_LOCAL_LOADS, _REMOTE_LOADS = 4, 8
_LOCAL_AHEAD, _REMOTE_AHEAD = 2, 8
_LABEL_THREADS: Final = 8


class _Layout(NamedTuple):
    """Facts that follow from the footers of the files.

    Attributes:
        tables: tables of the files.
        columns: the columns that are read.
        images: names of those that are decoded as images.
        blocks: the blocks of the files.
        available_nbytes: memory that this process may use.
    """

    tables: ShardTables
    columns: tuple[Column, ...]
    images: frozenset[str]
    blocks: BlockTable
    available_nbytes: int


class ParquetDataset(ShardDataset):
    """Images and other columns of Parquet files; sample i is row i of all files, one behind the other.

    A sample is (image, label): the image uint8 (height, width, 3) RGB; the label int64 if the column has whole numbers
    or booleans, float32 if it has other numbers. With `fields` a sample is a dict of columns: images are decoded, text
    is a str, a number a NumPy scalar (times are datetime64), a list of numbers an array, other bytes are bytes, and any
    other value is the Python object that pyarrow returns. A value that is null is None, except that of an image, which
    is an error of its sample.

    The unit of reading is the row group: it is read and decompressed as a whole, once, and kept in memory while it is
    likely to be needed again. A row group of more than 512 MiB is read in slices of rows. So ``dataset[i]`` in random
    order is slow, and a loader with ``shuffle=True`` mixes `shuffle_blocks` row groups at a time instead of all rows;
    `aioloader.samplers.BlockShuffleSampler` describes which rows are mixed with which. This holds for views too
    (`take`, `shard`, `filter`, `sample`): the rows of each row group that a view has are one block.

    Needs pyarrow (``pip install "aioloader[parquet]"``), in the loader's own process only.

    Args:
        paths: the file, or its URL; a pattern; or a list of these.
        image: the column of images: of encoded bytes, or of structs of `bytes` and `path`, as `datasets.Image` writes
            them. With `fields`, the name or names of those among them that are images; columns with the feature Image
            are in any case. A column of lists of images has a list of arrays in each sample.
        label: the column of labels; None: the samples are images alone.
        fields: names of the columns of samples that are dicts; None: the sample is (image, label).
        shuffle_blocks: row groups that are mixed at a time by a loader with ``shuffle=True``. "auto": 16, fewer if 16
            take more than 2 GiB; it depends on the files only, so that an epoch can be resumed on another machine.
            None: all rows are shuffled; each batch then reads about as many row groups as it has samples.
        blocks_limit: most bytes of row groups in memory, such as "4GB"; None: enough for `shuffle_blocks`, or for all
            row groups if they take up to 750 MiB, but no more than a quarter of the memory that the process may use.
        flag: 1 for colour; 0 for grey, (height, width, 1); -1 for the channels and bits of each file.
        exif, max_pixels, label_dtype, dct_scaling: see `ImageRecordDataset`.
        crop_index: see `ImageRecordDataset`; not with `fields`.
        cache, cache_limit: see `RecordFileDataset`; what is cached are the bytes of column chunks, compressed.

    Attributes:
        paths: the files, or their URLs.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        ValueError: an option is not allowed, or files and URLs are mixed.
        MissingPackageError: pyarrow is not installed; at the first use.
        ParquetError: a file is not a Parquet file, or lacks a column; at the first use.

    Warns:
        UserWarning: `blocks_limit` is too small for `shuffle_blocks`; when a loader shuffles.
    """

    begins_at_end = True
    _laid_out: _Layout | None = None
    _known_labels: tuple[ShardTables, Array] | None = None

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | Sequence[str] = _IMAGE,
        label: str | None = _LABEL,
        fields: str | Sequence[str] | None = None,
        shuffle_blocks: int | str | None = AUTO,
        blocks_limit: int | str | None = None,
        **options: Unpack[ShardKeywords],
    ) -> None:
        if isinstance(shuffle_blocks, str) and shuffle_blocks != AUTO:
            raise ValueError(f"shuffle_blocks must be a number, 'auto' or None, got {shuffle_blocks!r}")
        if not isinstance(shuffle_blocks, str):
            at_least("shuffle_blocks", shuffle_blocks, 1)
        images = (image,) if isinstance(image, str) else tuple(image)
        if fields is None and len(images) != 1:
            raise ValueError(f"image must be the name of one column unless fields are given, got {image!r}")
        self._shuffle_blocks = shuffle_blocks
        self._blocks_limit = None if blocks_limit is None else parse_nbytes(blocks_limit, "blocks_limit")
        self._image_names = images
        super().__init__(
            record_files(paths),
            image=images[0] if images else _IMAGE,
            label=label,
            fields=fields,
            **options,
        )

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_laid_out": None, "_known_labels": None}

    # -- files and columns -------------------------------------------------------------------------------------------

    def _open_table(self, path: str, version: Version | None) -> ParquetTable:
        end = None if self._held is None else self._held.ends.pop(path, None)
        return open_parquet_table(path, version, end)

    @property
    def _footers(self) -> list[ParquetFooter]:
        return [table.footer for table in self._files]

    @property
    def _files(self) -> list[ParquetTable]:
        return [table for table in self.tables.tables if isinstance(table, ParquetTable)]

    @property
    def _layout(self) -> _Layout:
        """Return the facts that follow from the footers, which are read at the first use, and checked for the columns.

        Raises:
            OSError: a file cannot be read.
            ParquetError: a file is not a Parquet file, or the files lack a column, or it is not what it is used for.
        """
        if self._laid_out is None or self._laid_out.tables is not self.tables:
            footers = self._footers
            features = features_of(footers[0].features)
            names = self._pair if self._fields is None else self._fields
            columns = _common_columns(footers, names, features, self._roles)
            if self._fields is None:
                images = frozenset((self._image,))
                for column in columns:
                    self._check_use(column, redact_url(footers[0].path))
            else:
                named = {*self._image_names, *image_columns(features)}
                images = frozenset(
                    column.name
                    for column in columns
                    if column.name in named and column.kind in _ALL_IMAGE_KINDS
                )
            blocks = lay_out_blocks(footers, names)
            # Found out here, where files are read: a sampler is asked for in an event loop.
            available = usable_memory() or _UNKNOWN_MEMORY
            self._laid_out = _Layout(self.tables, columns, images, blocks, available)
        return self._laid_out

    def _check_use(self, column: Column, path: str) -> None:
        """Raise ParquetError if a column cannot be the image or the label that it is used as."""
        if column.name == self._image and column.kind not in _IMAGE_KINDS:
            raise ParquetError(
                f"the column {column.name!r} has no encoded images, but {_described(column)}: pass image= the name of "
                f"a column of bytes, or fields=(...) for samples that are dicts{self._of_paths(column)}",
                path=path,
            )
        if column.name == self._label and column.kind is ColumnKind.TEXT:
            raise ParquetError(
                f"the label {column.name!r} is text: pass fields=({self._image!r}, {column.name!r}) for samples that "
                f"are dicts, or number the labels with Dataset.class_encode_column({column.name!r}) of Hugging Face's "
                "`datasets` and write the files again",
                path=path,
            )
        if column.name == self._label and column.kind not in (ColumnKind.NUMBER, ColumnKind.ARRAY):
            raise ParquetError(
                f"the label {column.name!r} is no number, but {_described(column)}: pass label= the name of another "
                "column, or fields=(...) for samples that are dicts",
                path=path,
            )

    @property
    def _roles(self) -> dict[str, str]:
        """Return what the columns that are asked for are used as, by their names; nothing for samples of fields."""
        if self._fields is not None:
            return {}
        return {self._image: "image"} | ({} if self._label is None else {self._label: "label"})

    def _of_paths(self, column: Column) -> str:
        """Return advice about a column that may have the paths of images, as text or in a struct."""
        struct = column.kind is not ColumnKind.TEXT
        if struct and f"{column.name}.path" not in self._footers[0].leaves:
            return ""
        labels = () if self._label is None else (self._label,)
        line = line_for_paths(column.name, labels, struct=struct)
        return f"; if it has the paths of images, read them with {line}"

    def _reader(self) -> FieldReader:
        return RowReader(self._layout.columns, self._layout.images)

    def with_all_fields(self) -> Self:
        """Return the dataset whose samples have all columns; of columns with the same name none."""
        names = [column.name for column in self._footers[0].columns]
        found = copy(self)
        found._fields = tuple(name for name in names if names.count(name) == 1)
        found._laid_out = found._source = found._crops = found._crop_index = None
        return found

    @property
    def synsets(self) -> list[str]:
        """Return the names of the classes, in the order of the labels, if the label is a ClassLabel; else nothing."""
        return [] if self._label is None else class_names(features_of(self._footers[0].features), self._label)

    # -- rows ----------------------------------------------------------------------------------------------------------

    @property
    def _table(self) -> BlockTable:
        return self._layout.blocks

    def spans(self, indices: IntArray) -> Spans:
        table = self._table
        blocks = table.blocks_of(indices)
        return Spans(blocks, indices - table.starts[blocks], np.full(len(indices), WHOLE_FILE, np.int64))

    def location(self, index: int) -> ItemLocation:
        """Return the row's number in its file as key, and the file: no bytes of it are those of one row."""
        table = self._table
        (block,) = table.blocks_of(np.array([index])).tolist()
        row = int(table.first_of_file[block]) + index - int(table.starts[block])
        footer = self._footers[int(table.file[block])]
        return ItemLocation(row, redact_url(footer.path), None)

    # -- reading -------------------------------------------------------------------------------------------------------

    def _open_bytes(self) -> ByteSource:
        """Return a source of the bytes of the files."""
        return super().open_source()

    def open_source(self) -> ByteSource:
        layout, table = self._layout, self._table
        source = self._open_bytes()
        try:
            reader = self._row_groups(table, layout.columns, layout.images, source)
        except BaseException:
            source.close()
            raise
        rows = -(-table.row_count // max(1, len(table)))
        threads, ahead = (_REMOTE_LOADS, _REMOTE_AHEAD) if self.reads_ahead else (_LOCAL_LOADS, _LOCAL_AHEAD)
        return BlockByteSource(
            reader, limit_nbytes=self._limit_nbytes(), threads=threads, announced=ahead * rows
        )

    def _row_groups(
        self,
        table: BlockTable,
        columns: Sequence[Column],
        required: frozenset[str],
        source: ByteSource,
    ) -> RowGroupReader:
        files = self._files
        return RowGroupReader(
            [each.footer for each in files],
            table,
            columns,
            required=required,
            source=source,
            modified=[each.modified for each in files],
        )

    # -- shuffling -----------------------------------------------------------------------------------------------------

    def _block_nbytes(self) -> int:
        """Return the mean size of a block in memory."""
        table = self._table
        return int(table.nbytes.mean()) if len(table) else 0

    def _window(self) -> int:
        """Return the number of blocks that are mixed at a time, if not all are."""
        if isinstance(self._shuffle_blocks, int):
            return self._shuffle_blocks
        return max(2, min(_USUAL_WINDOW, _USUAL_WINDOW_NBYTES // max(1, self._block_nbytes())))

    def _limit_nbytes(self) -> int:
        if self._blocks_limit is not None:
            return self._blocks_limit
        table = self._table
        largest = int(table.nbytes.max()) if len(table) else 0
        # A window, the blocks that enter and leave it, and a quarter for those that are announced.
        needed = (self._window() + 3) * self._block_nbytes() * 4 // 3 + 2 * largest
        # The first blocks of an epoch are also its last, so a small set is kept as a whole.
        total = int(table.nbytes.sum()) * 4 // 3
        needed = max(needed, total if total <= _KEPT_WHOLE_NBYTES else 0)
        return max(_LEAST_LIMIT_NBYTES, min(needed, self._layout.available_nbytes // _MEMORY_SHARE))

    def shuffle_sampler(self, indices: IntArray | None) -> BlockShuffleSampler | None:
        """Return the order of shuffled epochs; see `aioloader.abc.ByteDataset`.

        Warns:
            UserWarning: there is too little memory for the blocks that are mixed.
        """
        if self._shuffle_blocks is None:
            return None
        table, window = self._table, self._window()
        needed = (min(window, len(table)) + 1) * self._block_nbytes()
        if needed > self._limit_nbytes():
            warn_caller(
                f"shuffle_blocks={window} needs about {needed >> 20} MiB of memory for row groups, and the limit is "
                f"{self._limit_nbytes() >> 20} MiB, so row groups are read more than once: pass a larger blocks_limit "
                "or a smaller shuffle_blocks, or write the files again with smaller row groups",
                UserWarning,
            )
        groups = table.group_numbers()
        if indices is None:
            return BlockShuffleSampler(table.rows, window, groups=groups)
        blocks = table.blocks_of(indices)
        numbers, counts = np.unique(blocks, return_counts=True)
        in_order = bool((blocks[1:] >= blocks[:-1]).all())
        places = None if in_order else np.argsort(blocks, kind="stable")
        return BlockShuffleSampler(counts, window, groups=groups[numbers], indices=places)

    # -- labels --------------------------------------------------------------------------------------------------------

    def _label_column(self) -> Column:
        """Return the column of labels; raise ParquetError unless it has one number in each row."""
        footers = self._footers
        label = self.label_field
        (column,) = _common_columns(footers, (label,), features_of(footers[0].features), {label: "label"})
        if column.kind is not ColumnKind.NUMBER or np.dtype(column.dtype).kind not in "iufb":
            raise ParquetError(
                f"the label {self._label!r} is no number, but {_described(column)}",
                path=redact_url(footers[0].path),
            )
        return column

    @property
    def label_nbytes(self) -> int:
        """Return the number of bytes that `labels` reads."""
        return sum(
            int(footer.chunks[:, footer.leaves_of((self.label_field,)), STORED].sum())
            for footer in self._footers
        )

    def labels(self) -> Array:
        """Return the label of every row, (n,). Only the column of labels is read.

        Raises:
            OSError: a file cannot be read.
            ValueError: a label is null, or is another value than a number.
        """
        column, footers = self._label_column(), self._footers
        source = self._open_bytes()
        try:
            reader = self._row_groups(
                lay_out_blocks(footers, (self.label_field,)), (column,), frozenset(), source
            )
            with ThreadPoolExecutor(min(_LABEL_THREADS, len(footers)), "aioloader-labels") as pool:
                found = np.concatenate(list(pool.map(in_this_opening(reader.numbers), range(len(footers)))))
        finally:
            source.close()
        if self._label_dtype is not None:
            return label_vector(found, np.dtype(self._label_dtype))
        return found.astype(np.float32 if found.dtype.kind == "f" else np.int64)

    def labels_at(self, indices: IntArray, source: ByteSource) -> list[Any]:
        """Return the label of each row, or the error of a dataset without labels. Blocking.

        Args:
            indices: int64 (n,), of the rows.
            source: not used: the labels of all rows are read at the first call.

        Raises:
            OSError: a file cannot be read.
        """
        if self._known_labels is None or self._known_labels[0] is not self.tables:
            try:
                self._known_labels = self.tables, self.labels()
            except ValueError as error:
                return [error] * len(indices)
        return list(self._known_labels[1][indices])

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Array | None]:
        # The labels of some rows cannot be read alone.
        spans = self.spans(indices)
        return Spans(spans.file, spans.offset, np.zeros(len(indices), np.int64)), None

    # -- commands ------------------------------------------------------------------------------------------------------

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole file, and yield each fault; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

        Raises:
            MissingPackageError: pyarrow is not installed.
        """
        return check_parquet(self.paths[number], self._versions[number], self._image, tick)

    # -- crop indexes --------------------------------------------------------------------------------------------------

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the file of each row, and the row's number in it."""
        return self.tables.rows(indices)

    def _crops_of(self, found: RecordCrops) -> RecordCrops:
        return BlockCrops(found, self._table.file, self._table.first_of_file)


def _common_columns(
    footers: Sequence[ParquetFooter], names: Sequence[str], features: dict[str, Any], roles: dict[str, str]
) -> tuple[Column, ...]:
    """Return columns that all files have, of the same kinds, whole numbers in the widest dtype.

    Raises:
        ParquetError: a file does not have one, or has one of another kind.
    """
    first = footers[0]
    known = [column.name for column in first.columns]
    columns = []
    for name in names:
        column = first.column(name)
        if column is None or known.count(name) > 1:
            raise ParquetError(_missing(name, first.columns, features, roles), path=redact_url(first.path))
        for other in footers[1:]:
            found = other.column(name)
            common = None if found is None else common_column(column, found)
            if common is None:
                raise ParquetError(
                    f"the column {name!r} differs from that of {redact_url(first.path)}: files with one schema make "
                    "one dataset",
                    path=redact_url(other.path),
                    expected=_described(column),
                    found="no such column" if found is None else _described(found),
                )
            column = common
        columns.append(column)
    return tuple(columns)


def _described(column: Column) -> str:
    return column.kind.value if column.dtype is None else f"{column.kind.value} of {np.dtype(column.dtype)}"


def _missing(name: str, columns: Sequence[Column], features: dict[str, Any], roles: dict[str, str]) -> str:
    """Return the message about a column that does not exist, or exists twice."""
    names = [column.name for column in columns]
    if name in names:
        return f"there are {names.count(name)} columns {name!r}: rename all but one"
    known = {
        "image": [
            *image_columns(features),
            *(column.name for column in columns if column.kind in _IMAGE_KINDS),
        ],
        "label": [column.name for column in columns if class_names(features, column.name)]
        or [column.name for column in columns if column.kind is ColumnKind.NUMBER],
    }
    # Advice about what is wrong only: the other column may be there.
    hints = [
        f"{role}={known[role][0]!r}"
        for asked, role in roles.items()
        if asked not in names and known[role] and known[role][0] not in roles
    ]
    advice = f"; perhaps you mean {' and '.join(hints)}" if hints else ""
    if roles and not hints:
        advice = (
            f"; pass {roles.get(name, 'image')}= the name of one, or fields=(...) for samples that are dicts"
        )
    return f"there is no column {name!r}; the columns are {', '.join(map(repr, names))}{advice}"
