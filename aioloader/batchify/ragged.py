"""Collation of arrays of any shapes: their values behind one another in one array."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.allocation import new_array
from aioloader.batchify.fields import collate_fields
from aioloader.batchify.nesting import Nested, flatten_nested, holds_numbers, is_list, offsets_of
from aioloader.batchify.stack import stack_leaves
from aioloader.errors import BatchDtypeError, BatchShapeError
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch:
    """Batch of arrays of different shapes, or of nested lists of them.

    The fields are numpy arrays, or tensors with the option ``output`` of a loader. ``batch[i]`` is a view of `values`.

    Attributes:
        values: the values of all arrays behind one another: (values,), or (rows, ...) where the arrays differ in their
            first axis only (``Ragged(rows=True)``).
        offsets: int64 (arrays + 1,), the first value (or row) of each array, and the number of all.
        shapes: int64 (arrays, axes), the shape of each array.
        nesting: int64 (lists + 1,) for each level of lists, from the outermost: the first part of each list, and the
            number of all parts; empty if each sample is one array. With one level, ``nesting[0]`` are the first arrays
            of the samples.
    """

    values: Any
    offsets: Any
    shapes: Any
    nesting: tuple[Any, ...] = ()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.nesting[0] if self.nesting else self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        """Return sample `index`: a view with its shape, or nested lists of views; negative ones count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of range: this batch has {length} samples")
        return self._part(index % length, 0)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the samples."""
        return (self._part(place, 0) for place in range(len(self)))

    def to_list(self) -> list[Any]:
        """Return the samples as a list of views."""
        return list(self)

    def _part(self, place: int, level: int) -> Any:
        if level < len(self.nesting):
            first, stop = (int(each) for each in self.nesting[level][place : place + 2])
            return [self._part(part, level + 1) for part in range(first, stop)]
        first, stop = (int(each) for each in self.offsets[place : place + 2])
        return self.values[first:stop].reshape(tuple(int(extent) for extent in self.shapes[place]))


class Ragged:
    """Collation of arrays that differ in shape, into a `RaggedBatch`: nothing is padded.

    Each field of a sample is collated separately. A field of arrays becomes a `RaggedBatch`, and so does a field of
    lists: a list of numbers is an array, and a list of arrays or lists is nested, such as the images of a prompt. So a
    list is never split into fields, but tuples, dicts and dataclasses are. Fields of single numbers are stacked, all
    others become lists.

    Args:
        rows: the arrays differ in their first axis only, and are put together along it: `values` is (rows, ...).
            False: any axis may differ, and `values` has one axis.
        levels: levels of lists above the arrays of a field; None: those of the deepest sample of the batch. Pass it
            where a batch may have no arrays at all, such as prompts without images. Fields of single numbers or text
            are not affected.
        dtype: of the values; None: that of the arrays, which must be the same. Empty lists have none.

    Raises:
        ValueError: `levels` is negative.
    """

    def __init__(self, rows: bool | None = None, levels: int | None = None, *, dtype: Any = None) -> None:
        require(levels is None or levels >= 0, f"levels must not be negative, got {levels}")
        self._rows = bool(rows)
        self._levels = levels
        self._dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the shape of the result is not known before, so `out` must be None.

        Raises:
            BatchDtypeError: the arrays of a field have different dtypes.
            BatchShapeError: their numbers of axes differ, their nesting does, or with `rows` the axes after the first.
            TypeError: values cannot be converted to `dtype`.
            ValueError: samples differ in structure.
        """
        require(out is None, "Ragged() finds the size of its result itself, so it takes no out")
        return self.collate(samples, new_array)

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        return collate_fields(samples, is_list, lambda values: self._field(values, allocate))

    def _field(self, values: list[Any], allocate: Allocate) -> Any:
        if not all(map(holds_numbers, values)):
            return list(values)
        if not any(map(_has_axes, values)):
            return stack_leaves(values)
        nested = flatten_nested(values, self._levels)
        arrays, dtype = arrays_of(nested, self._dtype, "Ragged()")
        axes = max((array.ndim for array in arrays), default=1)
        shapes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), axes)
        rest: tuple[int, ...] = ()
        counts = shapes.prod(axis=1)
        if self._rows:
            rest = self._common_rest(nested, arrays)
            counts = shapes[:, 0] if axes else counts
        offsets = offsets_of(counts)
        result = allocate((int(offsets[-1]), *rest), dtype)
        for array, first, stop in zip(arrays, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            np.copyto(result[first:stop].reshape(array.shape), array, casting="same_kind")
        return RaggedBatch(result, offsets, shapes, nested.nesting)

    @staticmethod
    def _common_rest(nested: Nested, arrays: list[Array]) -> tuple[int, ...]:
        """Return the shape of a row; raise if arrays with values differ in it."""
        kept = [number for number, array in enumerate(arrays) if array.shape[0] or array.ndim > 1]
        rest = arrays[kept[0]].shape[1:] if kept else ()
        for number in kept:
            if arrays[number].shape[1:] != rest:
                place = nested.places[number]
                raise BatchShapeError(
                    f"with rows=True arrays differ in their first axis only: rows of sample "
                    f"{nested.places[kept[0]]} have shape {rest}, rows of sample {place} {arrays[number].shape[1:]}; "
                    "use Ragged() without rows",
                    place=place,
                    shape=arrays[number].shape,
                    expected=f"(rows, {', '.join(map(str, rest))})",
                )
        return rest


def _has_axes(value: Any) -> bool:
    return isinstance(value, list) or len(getattr(value, "shape", ())) > 0


def arrays_of(
    nested: Nested, dtype: np.dtype[Any] | None, function: str
) -> tuple[list[Array], np.dtype[Any]]:
    """Return the arrays of one number of axes and one dtype, and the dtype.

    Args:
        nested: the values.
        dtype: to convert to; None: they must agree. Arrays of no list with numbers determine it: float64.
        function: named in errors.

    Raises:
        BatchDtypeError, BatchShapeError: they do not agree.
        ValueError: a value is not an array of numbers.
    """
    arrays: list[Array] = []
    first: int | None = None  # the first that has a dtype and axes: an empty list has none
    for number, value in enumerate(nested.arrays):
        array, place = np.asarray(value), nested.places[number]
        arrays.append(array)
        if isinstance(value, (list, tuple)) and not array.size:
            continue
        if array.dtype.kind not in "biufc" or array.ndim == 0:
            kind = "no axes" if array.ndim == 0 else f"dtype {array.dtype}"
            raise ValueError(f"{function} takes arrays and lists of numbers; sample {place} has {kind}")
        if first is None:
            first = number
            continue
        before = arrays[first]
        if array.ndim != before.ndim:
            raise BatchShapeError(
                f"{function} takes arrays with equally many axes: sample {nested.places[first]} has shape "
                f"{before.shape}, sample {place} has shape {array.shape}",
                place=place,
                shape=array.shape,
                expected=f"{before.ndim} axes",
            )
        if dtype is None and array.dtype != before.dtype:
            raise BatchDtypeError(place, str(array.dtype), str(before.dtype), function=function)
    if first is None:
        return arrays, dtype or np.dtype(np.float64)
    found = dtype or arrays[first].dtype
    empty = (0, *arrays[first].shape[1:])
    for number, value in enumerate(nested.arrays):
        if isinstance(value, (list, tuple)) and not arrays[number].size:
            arrays[number] = np.empty(empty, found)
    return arrays, found
