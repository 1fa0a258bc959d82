"""Columns of Arrow tables as columns of blocks, without a copy of their bytes. Needs pyarrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.formats.parquet.block import (
    NULL,
    Column,
    ColumnBytes,
    ColumnKind,
    common_column,
    null_column,
    pack_item,
    pack_value,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioloader.foundation.types import Array, IntArray

# Arrow's name of a type of numbers: dtype of its values.
_NUMBERS: Final = {
    "bool": "|b1",
    "int8": "|i1",
    "int16": "<i2",
    "int32": "<i4",
    "int64": "<i8",
    "uint8": "|u1",
    "uint16": "<u2",
    "uint32": "<u4",
    "uint64": "<u8",
    "halffloat": "<f2",
    "float": "<f4",
    "double": "<f8",
    "date32[day]": "<M8[D]",
    "date64[ms]": "<M8[ms]",
    **{f"duration[{unit}]": f"<m8[{unit}]" for unit in ("s", "ms", "us", "ns")},
}
_BYTES: Final = "bytes"
_PATH: Final = "path"


# -- schemas -----------------------------------------------------------------------------------------------------------


def columns_of(schema: Any) -> tuple[Column, ...]:
    """Return the columns of an Arrow schema."""
    return tuple(Column(field.name, *_kind(field.type)) for field in schema)


def _kind(kind: Any) -> tuple[ColumnKind, str | None]:
    kind = _storage(kind)
    number = _number(kind)
    if number is not None:
        return ColumnKind.NUMBER, number
    if _is_bytes(kind):
        return ColumnKind.BYTES, None
    if _is_text(kind):
        return ColumnKind.TEXT, None
    if _is_file(kind):
        return ColumnKind.FILE, None
    if _is_list(kind):
        element = _storage(kind.value_type)
        number = _number(element)
        if number is not None:
            return ColumnKind.ARRAY, number
        if _is_file(element):
            return ColumnKind.FILES, None
    return ColumnKind.OBJECT, None


def _storage(kind: Any) -> Any:
    """Return the type of the values of an extension type or a dictionary; any other type as it is."""
    import pyarrow as pa

    while isinstance(kind, (pa.BaseExtensionType, pa.DictionaryType)):
        kind = kind.storage_type if isinstance(kind, pa.BaseExtensionType) else kind.value_type
    return kind


def _number(kind: Any) -> str | None:
    name = str(kind)
    if name.startswith("timestamp["):
        return f"<M8[{kind.unit}]"
    return _NUMBERS.get(name)


def _is_bytes(kind: Any) -> bool:
    return str(kind) in ("binary", "large_binary", "binary_view") or str(kind).startswith(
        "fixed_size_binary["
    )


def _is_text(kind: Any) -> bool:
    return str(kind) in ("string", "large_string", "string_view")


def _is_list(kind: Any) -> bool:
    import pyarrow.types as types

    return bool(types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind))


def _is_file(kind: Any) -> bool:
    """Return whether a type is that of `datasets.Image`: a struct of bytes and a path, which may have more fields."""
    import pyarrow.types as types

    if not types.is_struct(kind):
        return False
    names = {field.name for field in kind}
    if names - {_BYTES, _PATH} and not names > {_BYTES, _PATH}:
        return False
    return kind.get_field_index(_BYTES) >= 0 and _is_bytes(kind.field(_BYTES).type)


# -- values ------------------------------------------------------------------------------------------------------------


def column_bytes(array: Any, column: Column, faults: dict[int, str]) -> ColumnBytes:
    """Return the bytes of a column.

    Args:
        array: an Arrow array of the column.
        column: its kind.
        faults: receives the reason for each row whose value cannot be passed to a worker.

    Raises:
        ValueError: the array is not of the kind of the column.
    """
    array = _plain(array)
    own = Column(column.name, *_kind(array.type))
    if own != column and common_column(own, column) != column:
        raise ValueError(
            f"the column {column.name!r} has the type {array.type}, and another one in the first file"
        )
    if array.null_count == len(array):
        return null_column(len(array))
    if column.kind is ColumnKind.NUMBER:
        values = _numbers(array, own).astype(column.dtype, copy=False)
        width = values.dtype.itemsize
        begin = np.arange(len(values), dtype=np.int64) * width
        found = ColumnBytes(values.view(np.uint8), begin, np.full(len(values), width, np.int64))
    elif column.kind is ColumnKind.ARRAY:
        found = _arrays(array, column, own, faults)
    elif column.kind is ColumnKind.FILE:
        found = _binary(_plain(array.field(_BYTES)))
    elif column.kind is ColumnKind.FILES:
        found = _joined(_files(array))
    elif column.kind is ColumnKind.OBJECT:
        found = _joined(_objects(array, column, faults))
    else:
        found = _binary(array)
    if array.null_count:
        found.length[_nulls(array)] = NULL
    return found


def missing_files(array: Any, column: Column, others: Sequence[str]) -> dict[int, str]:
    """Return the reason for each row that has no bytes of an image where it should have some.

    Args:
        array: an Arrow array of the column.
        column: its kind.
        others: the columns that are read with it, for advice.
    """
    array = _plain(array)
    name = column.name
    nulls: list[int] = np.flatnonzero(_nulls(array)).tolist()
    faults = dict.fromkeys(nulls, f"the column {name!r} has no value in this row")
    if column.kind is ColumnKind.FILE:
        content = array.field(_BYTES)
        rows = np.flatnonzero(_nulls(content)).tolist() if content.null_count else ()
        for row in rows:
            faults.setdefault(row, _without_bytes(name, array[row].as_py(), others))
    elif column.kind is ColumnKind.FILES and _contains_null(array):
        for row, values in enumerate(array.to_pylist()):
            for value in values or ():
                if value is None or value[_BYTES] is None:
                    faults.setdefault(row, _without_bytes(name, value, None))
    return faults


def _contains_null(array: Any) -> bool:
    elements = array.values
    return bool(elements.null_count or elements.field(_BYTES).null_count)


def _without_bytes(name: str, value: Any, others: Sequence[str] | None) -> str:
    """Return the fault of an image without bytes; `others` is None for one of several images of a row."""
    path = None if value is None else value.get(_PATH)
    if path is None:
        return f"the column {name!r} has an image without bytes in this row"
    line = "" if others is None else f", or read them with {line_for_paths(name, others, struct=True)}"
    return (
        f"the column {name!r} has only the path {path!r} of an image outside of the file: write the images into it, as "
        "Dataset.push_to_hub of Hugging Face's `datasets` does, and to_parquet after ds.with_format('arrow')"
        f".map(datasets.table.embed_table_storage, batched=True){line}"
    )


def line_for_paths(column: str, labels: Sequence[str], *, struct: bool) -> str:
    """Return a line of Python that reads the images whose paths are in a file; FOLDER and FILE are the user's.

    Args:
        column: has the paths.
        labels: the columns of the labels.
        struct: the paths are in structs.
    """
    flat, image = (".flatten()", f"{column}.{_PATH}") if struct else ("", column)
    label = repr(labels[0]) if len(labels) == 1 else repr(list(labels) or None)
    return (
        f"aioloader.ImageListDataset(FOLDER, pyarrow.parquet.read_table(FILE, columns={[column, *labels]!r}){flat}, "
        f"image={image!r}, label={label})"
    )


def _plain(array: Any) -> Any:
    """Return an array without dictionary, extension or view types."""
    import pyarrow as pa

    if isinstance(array, pa.ExtensionArray):
        return _plain(array.storage)
    if isinstance(array, pa.DictionaryArray):
        return _plain(array.dictionary_decode())
    if str(array.type) in ("binary_view", "string_view"):
        return array.cast(pa.large_binary() if str(array.type) == "binary_view" else pa.large_string())
    return array


def _nulls(array: Any) -> Array:
    """Return which values are null, bool (n,)."""
    # Not by `is_null` and `to_numpy`, which import pyarrow.compute and pandas: that takes longer than reading a batch.
    count, offset, valid = len(array), array.offset, array.buffers()[0]
    if valid is None:
        return np.full(count, array.null_count > 0)
    bits = np.frombuffer(valid, np.uint8, -(-(offset % 8 + count) // 8), offset // 8)
    found: Array = np.unpackbits(bits, bitorder="little")[offset % 8 : offset % 8 + count] == 0
    return found


def _buffer(array: Any, number: int, dtype: str, offset: int, count: int) -> Array:
    """Return values of a buffer of an array as an array over the same memory."""
    data = array.buffers()[number]
    if data is None or not count:
        return np.zeros(count, dtype)
    found: Array = np.frombuffer(data, dtype, count, offset * np.dtype(dtype).itemsize)
    return found


def _numbers(array: Any, column: Column) -> Array:
    """Return the numbers of an array in the column's dtype; those that are null have any value."""
    assert column.dtype is not None
    count, offset = len(array), array.offset
    if column.dtype == "|b1":
        bits = _buffer(array, 1, "|u1", offset // 8, -(-(offset % 8 + count) // 8))
        return np.unpackbits(bits, bitorder="little")[offset % 8 : offset % 8 + count]
    if str(array.type) == "date32[day]":  # NumPy's days have 64 bits
        return _buffer(array, 1, "<i4", offset, count).astype("<i8")
    return _buffer(array, 1, column.dtype, offset, count)


def _offsets(array: Any, *, large: bool) -> IntArray:
    """Return where each value of a list or of binary data begins, and the end of the last, int64 (n + 1,)."""
    return _buffer(array, 1, "<i8" if large else "<i4", array.offset, len(array) + 1).astype(np.int64)


def _binary(array: Any) -> ColumnBytes:
    name = str(array.type)
    buffers = array.buffers()
    if name.startswith("fixed_size_binary["):
        width = array.type.byte_width
        data = np.empty(0, np.uint8) if buffers[1] is None else np.frombuffer(buffers[1], np.uint8)
        begin = (np.arange(len(array), dtype=np.int64) + array.offset) * width
        found = ColumnBytes(data, begin, np.full(len(array), width, np.int64))
    else:
        data = np.empty(0, np.uint8) if buffers[2] is None else np.frombuffer(buffers[2], np.uint8)
        offsets = _offsets(array, large=name.startswith("large_"))
        found = ColumnBytes(data, offsets[:-1].copy(), np.diff(offsets))
    if array.null_count:
        found.length[_nulls(array)] = NULL
    return found


def _spans_of_elements(array: Any) -> tuple[IntArray, IntArray]:
    """Return the first element of each list in ``array.values``, and their number."""
    import pyarrow.types as types

    if types.is_fixed_size_list(array.type):
        size = array.type.list_size
        return (np.arange(len(array), dtype=np.int64) + array.offset) * size, np.full(
            len(array), size, np.int64
        )
    offsets = _offsets(array, large=types.is_large_list(array.type))
    return offsets[:-1].copy(), np.diff(offsets)


def _arrays(array: Any, column: Column, own: Column, faults: dict[int, str]) -> ColumnBytes:
    assert column.dtype is not None
    first, count = _spans_of_elements(array)
    elements = _plain(array.values)
    values = _numbers(elements, own).astype(column.dtype, copy=False)
    if elements.null_count:
        nulls = _nulls(elements)
        if values.dtype.kind == "f":
            values = np.where(nulls, np.array(np.nan, values.dtype), values)
        else:
            before = np.cumsum(np.r_[0, nulls])
            broken = (before[first + count] > before[first]) & ~_nulls(array)
            for row in np.flatnonzero(broken).tolist():
                faults[row] = f"the list in the column {column.name!r} contains a null"
    width = values.dtype.itemsize
    return ColumnBytes(np.ascontiguousarray(values).view(np.uint8), first * width, count * width)


def _files(array: Any) -> Iterable[bytes | None]:
    for values in array.to_pylist():
        yield (
            None if values is None else pack_item([None if each is None else each[_BYTES] for each in values])
        )


def _objects(array: Any, column: Column, faults: dict[int, str]) -> Iterable[bytes | None]:
    for row in range(len(array)):
        packed = None
        try:
            value = array[row].as_py()
            packed = None if value is None else pack_value(value)
        except (TypeError, ValueError, OverflowError) as error:
            faults[row] = f"the column {column.name!r}: {type(error).__name__}: {error}"
        yield packed


def _joined(values: Iterable[bytes | None]) -> ColumnBytes:
    found = list(values)
    length = np.array([NULL if value is None else len(value) for value in found], np.int64)
    data = np.frombuffer(b"".join([value for value in found if value is not None]) or b"\0", np.uint8)
    ends = np.cumsum(np.maximum(length, 0))
    return ColumnBytes(data, ends - np.maximum(length, 0), length)
