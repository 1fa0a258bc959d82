"""Collation of arrays of unequal shapes by padding."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from aioloader.batchify.fields import collate_by_field
from aioloader.batchify.stack import check_out, new_array
from aioloader.errors import BatchShapeError
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array

Extents: TypeAlias = "int | Sequence[int | None] | None"


class PaddedBatch(NamedTuple):
    """Result of ``Pad(sizes=True)``.

    Attributes:
        values: the padded samples, (n, ...).
        sizes: int64 (n, axes), the shape of each sample before padding.
    """

    values: Any
    sizes: Any


def _extents(name: str, value: Extents) -> int | tuple[int | None, ...] | None:
    """Return extents as an int, a tuple or None.

    Raises:
        ValueError: one is below 1.
    """
    if value is None:
        return None
    parts = (value,) if isinstance(value, int) else tuple(value)
    for part in parts:
        require(part is None or part >= 1, f"{name} must be at least 1, got {value}")
    return value if isinstance(value, int) else parts


class Pad:
    """Collation of arrays of unequal shapes: every axis is padded at its end to the length of the longest sample's.

    A sample is an array, a number or a (nested) list of numbers. Dicts and dataclasses are padded by field; of a tuple
    each field needs a function: ``Group(Pad(), Stack())``.

    `to` and `multiple_of` are for the spatial axes: a number is for all axes but the last one of arrays with three or
    more, which has the channels, and for all axes of others; several numbers are for the first axes, None where an axis
    follows the longest sample.

    Args:
        val: the padding value; None is 0.
        dtype: dtype of the batch; None: the promotion of the samples' dtypes by numpy.
        round_to: extents of all axes are rounded up to a multiple of this, so that fewer different shapes occur; None:
            they are not.
        use_shared_mem: accepted and ignored, see `Stack`.
        to: extents of the batch, such as (height, width); None: those of the longest sample.
        multiple_of: extents are rounded up to multiples of this.
        sizes: return a `PaddedBatch`, which also has the shapes of the samples before padding.

    Raises:
        ValueError: `round_to`, `to` or `multiple_of` is below 1; an AssertionError too, as in Gluon. Or both `round_to`
            and `multiple_of` are given.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
        *,
        to: Extents = None,
        multiple_of: Extents = None,
        sizes: bool = False,
    ) -> None:
        del use_shared_mem
        require(round_to is None or round_to >= 1, f"round_to must be at least 1, got {round_to}")
        require(round_to is None or multiple_of is None, "pass round_to or multiple_of, not both")
        self._val = 0 if val is None else val
        self._dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)
        self._round_to = round_to or 1
        self._to = _extents("to", to)
        self._multiple_of = _extents("multiple_of", multiple_of)
        self._sizes = sizes

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate.

        Args:
            samples: arrays with the same number of axes.
            out: array(s) of exactly the padded shape to write into, or None; not with `sizes`.

        Raises:
            NotImplementedError: the samples are tuples.
            BatchShapeError: a sample is larger than `to`, or has fewer axes than `to` or `multiple_of`.
            ValueError: numbers of axes differ, `val` does not fit the dtype, or `out` does not fit.
        """
        require(out is None or not self._sizes, "with sizes=True Pad() takes no out")
        return self._collate(samples, out, new_array)

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        return self._collate(samples, None, allocate)

    def _collate(self, samples: Sequence[Any], out: Any, allocate: Allocate) -> Any:
        if not len(samples):
            raise ValueError("there are no samples to collate")
        if isinstance(samples[0], tuple):
            raise NotImplementedError(
                "Pad() does not support multiple items, use Group(Pad(), Pad(), ...) instead"
            )
        if isinstance(samples[0], list):
            return self._pad(samples, out, allocate)
        return collate_by_field(samples, out, lambda values, to: self._pad(values, to, allocate))

    def _pad(self, values: Sequence[Any], out: Array | None, allocate: Allocate) -> Any:
        arrays = [np.asarray(value) for value in values]
        for place, array in enumerate(arrays):
            if array.dtype.kind not in "biufc":
                raise ValueError(
                    f"Pad() takes arrays and lists of numbers; sample {place} has dtype {array.dtype}"
                )
            if array.ndim != arrays[0].ndim:
                raise ValueError(
                    f"Pad() lengthens axes but adds none: sample 0 has shape {arrays[0].shape}, "
                    f"sample {place} has shape {array.shape}"
                )
        shape = (len(arrays), *self._extents(arrays))
        if out is None:
            out = allocate(shape, self._dtype or self._common_dtype(values, arrays))
        else:
            check_out(out, shape)
        self._check_val(out.dtype)
        for place, array in enumerate(arrays):
            if array.shape != shape[1:]:
                out[place].fill(self._val)
            region: tuple[int | slice, ...] = (place, *map(slice, array.shape))
            out[region] = array
        if not self._sizes or not arrays[0].ndim:
            return out
        return PaddedBatch(out, np.array([array.shape for array in arrays], np.int64))

    def _extents(self, arrays: Sequence[Array]) -> list[int]:
        """Return the shape of a padded sample."""
        longest = [max(extents) for extents in zip(*(array.shape for array in arrays), strict=True)]
        longest = [-(-extent // self._round_to) * self._round_to for extent in longest]
        if not longest:
            return longest
        for axis, multiple in enumerate(self._of_axes("multiple_of", self._multiple_of, arrays[0])):
            if multiple is not None:
                longest[axis] = -(-longest[axis] // multiple) * multiple
        for axis, extent in enumerate(self._of_axes("to", self._to, arrays[0])):
            if extent is None:
                continue
            for place, array in enumerate(arrays):
                if array.shape[axis] > extent:
                    raise BatchShapeError(
                        f"sample {place} has shape {array.shape}, and Pad(to={self._to!r}) makes axis {axis} only "
                        f"{extent} long: resize the samples first, or pass a larger `to`",
                        place=place,
                        shape=array.shape,
                        expected=f"at most {extent} in axis {axis}",
                    )
            longest[axis] = extent
        return longest

    @staticmethod
    def _of_axes(
        name: str, given: int | tuple[int | None, ...] | None, array: Array
    ) -> tuple[int | None, ...]:
        """Return the number for each of the first axes."""
        if given is None:
            return ()
        if isinstance(given, int):
            return (given,) * (array.ndim - 1 if array.ndim >= 3 else array.ndim)
        if len(given) > array.ndim:
            raise BatchShapeError(
                f"Pad({name}={given!r}) is for arrays with {len(given)} axes or more, and sample 0 has shape "
                f"{array.shape}",
                place=0,
                shape=array.shape,
                expected=f"{len(given)} axes",
            )
        return given

    @staticmethod
    def _common_dtype(values: Sequence[Any], arrays: Sequence[Array]) -> np.dtype[Any]:
        # An empty list has no numbers that determine a dtype, but numpy returns float64 for it.
        dtypes = [
            array.dtype
            for value, array in zip(values, arrays, strict=True)
            if array.size or isinstance(value, np.ndarray)
        ]
        return np.result_type(*dtypes) if dtypes else np.dtype(np.float64)

    def _check_val(self, dtype: np.dtype[Any]) -> None:
        try:
            with np.errstate(all="ignore"):
                kept = np.asarray(self._val).astype(dtype)
                fits = dtype.kind in "fc" or bool(kept == self._val)
        except (OverflowError, ValueError, TypeError):
            fits = False
        if not fits:
            raise ValueError(
                f"Pad's val {self._val!r} does not fit dtype {dtype}; pass Pad(dtype=...) as well"
            )
