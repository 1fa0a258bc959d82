"""Collation by padding: samples of different extents, in one array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.fields import by_field, check_out
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array


class Pad:
    """Collation of arrays of unequal shapes: every axis is padded at its end to the length of the longest sample's.

    A sample is an array, a number or a (nested) list of numbers. Dicts and dataclasses are padded by field.

    Args:
        val: the padding value; None is 0.
        dtype: dtype of the batch; None: the promotion of the samples' dtypes by numpy.
        round_to: extents are rounded up to a multiple of this, so that fewer different shapes occur; None:
            they are not.
        use_shared_mem: accepted and ignored, see `Stack`.
        to: extent to pad to, of every axis, or of the first axes in a tuple (None: the longest sample's); a sample that
            is longer is an error.
        multiple_of: another name of `round_to`, for one axis or, in a tuple, for the first axes.
        sizes: also return the extents of the samples, int64 (samples, axes): the result is (batch, sizes).

    Raises:
        ValueError: `round_to` is below 1 (an AssertionError too, as in Gluon), or both of its names are passed.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
        *,
        to: int | tuple[int | None, ...] | None = None,
        multiple_of: int | tuple[int, ...] | None = None,
        sizes: bool = False,
    ) -> None:
        del use_shared_mem
        require(round_to is None or round_to >= 1, f"round_to must be at least 1, got {round_to}")
        if round_to is not None and multiple_of is not None:
            raise ValueError("round_to and multiple_of are two names of one argument; pass one of them")
        self._to = to
        self._multiple_of = multiple_of
        self._sizes = sizes
        for number in multiple_of if isinstance(multiple_of, tuple) else (multiple_of,):
            require(number is None or number >= 1, f"multiple_of must be at least 1, got {multiple_of}")
        self._val = 0 if val is None else val
        self._dtype = None if dtype is None else np.dtype(dtype)
        self._round_to = round_to or 1

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate.

        Args:
            samples: arrays with the same number of axes.
            out: array(s) of exactly the padded shape to write into, or None.

        Raises:
            NotImplementedError: the samples are tuples.
            ValueError: numbers of axes differ, a sample is longer than `to`, `val` does not fit the dtype, or `out`
                does not fit.
        """
        if not len(samples):
            raise ValueError("there are no samples to collate")
        if isinstance(samples[0], tuple):
            raise NotImplementedError(
                "Pad() does not support multiple items, use Group(Pad(), Pad(), ...) instead"
            )
        if isinstance(samples[0], list):
            return self._pad(samples, out)
        return by_field(samples, out, self._pad)

    def _pad(self, values: Sequence[Any], out: Any) -> Any:
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
        shape = (len(arrays), *self._padded([array.shape for array in arrays]))
        if self._sizes:
            extents = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), -1)
            return self._filled(values, arrays, shape, None if out is None else out[0]), extents
        return self._filled(values, arrays, shape, out)

    def _padded(self, shapes: Sequence[tuple[int, ...]]) -> list[int]:
        """Return the extents of the batch without its first axis."""
        axes = len(shapes[0])
        to = self._to if isinstance(self._to, tuple) else (self._to,) * axes
        multiples = self._multiple_of if isinstance(self._multiple_of, tuple) else (self._multiple_of,) * axes
        extents = []
        for axis in range(axes):
            longest = max(shape[axis] for shape in shapes)
            given = to[axis] if axis < len(to) else None
            multiple = (multiples[axis] if axis < len(multiples) else None) or self._round_to
            if given is not None and longest > given:
                place = next(place for place, shape in enumerate(shapes) if shape[axis] > given)
                raise ValueError(
                    f"sample {place} has shape {shapes[place]}, and Pad(to={self._to}) pads axis {axis} to {given}: "
                    "raise `to`, or resize or crop the samples"
                )
            extents.append(-(-(longest if given is None else given) // multiple) * multiple)
        return extents

    def _filled(
        self, values: Sequence[Any], arrays: Sequence[Array], shape: tuple[int, ...], out: Array | None
    ) -> Array:
        if out is None:
            dtype = self._dtype or self._common_dtype(values, arrays)
            out = np.empty(shape, dtype)
        else:
            check_out(out, shape)
        self._check_val(out.dtype)
        if any(array.shape != shape[1:] for array in arrays):
            out.fill(self._val)
        for place, array in enumerate(arrays):
            region: tuple[int | slice, ...] = (place, *map(slice, array.shape))
            out[region] = array
        return out

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
