"""Functions that make one batch from many samples. Gluon's classes, on numpy.

Samples are split by field (tuples, lists, dicts, named tuples, dataclasses), each field is collated separately, and the
batch has the samples' structure: tuples of images and labels become a tuple of an image batch and a label batch. Every
function takes ``out``, arrays of the batch's structure to write into, if the result is arrays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.pytree import LEAF, Structure, flatten, unflatten
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

__all__ = ("Append", "AsList", "Group", "Pad", "Stack", "default_batchify_fn", "stack_leaves")


def stack_leaves(values: Sequence[Any], out: Array | None = None) -> Array | list[Any]:
    """Collate one field.

    Arrays, numpy scalars, Python numbers and booleans, and objects with ``__array__`` (such as torch tensors) become
    one array with a first axis for the samples; the dtype follows numpy's rules (int: int64, float: float64). All
    other values (str, bytes, None, objects) become a list: an array of bytes would lose trailing zero bytes.

    Args:
        values: the field of every sample, in order; at least one.
        out: array to write into, of exactly the result's shape; or None.

    Raises:
        ValueError: there are no values, or arrays of unequal shapes, or `out` does not fit.
    """
    if not values:
        raise ValueError("there are no samples to collate")
    if not all(map(_is_numeric, values)):
        return list(values)
    if not any(hasattr(value, "shape") for value in values):
        joined = np.asarray(values)
        # Python integers beyond 64 bits have no dtype.
        return list(values) if joined.dtype.hasobject else _deliver(joined, out)
    arrays = [np.asarray(value) for value in values]
    if any(array.dtype.hasobject for array in arrays):
        return list(values)
    shape = arrays[0].shape
    for place, array in enumerate(arrays):
        if array.shape != shape:
            raise ValueError(
                f"samples of different shapes cannot be stacked: sample 0 has shape {shape}, sample {place} has "
                f"shape {array.shape}; make them equal (Resize, a crop) or use aioloader.batchify.Pad()"
            )
    if out is not None:
        _check_out(out, (len(arrays), *shape))
    return np.stack(arrays, out=out, casting="same_kind")


def _is_numeric(value: Any) -> bool:
    if isinstance(value, (str, bytes)):  # numpy's own strings are among them
        return False
    return isinstance(value, (bool, int, float, complex)) or hasattr(value, "__array__")


def _check_out(out: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = out.shape if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {shape}, got {found}")


def _deliver(result: Array, out: Array | None) -> Array:
    if out is None:
        return result
    _check_out(out, result.shape)
    np.copyto(out, result, casting="same_kind")
    return out


def _columns(samples: Sequence[Any]) -> tuple[Structure, list[list[Any]]]:
    """Return the structure that all samples share, and each of its fields as a list."""
    if not len(samples):
        raise ValueError("there are no samples to collate")
    structure, leaves = flatten(samples[0])
    rows = [leaves]
    for place in range(1, len(samples)):
        found, leaves = flatten(samples[place])
        if found != structure:
            found, leaves = flatten(_in_order_of(structure, samples[place]))
        if found != structure:
            raise ValueError(
                f"samples of different structures cannot be collated: sample 0 is {_describe(structure)}, "
                f"sample {place} is {_describe(found)}"
            )
        rows.append(leaves)
    return structure, [list(column) for column in zip(*rows, strict=True)]


def _in_order_of(structure: Structure, value: Any) -> Any:
    """Return `value` with its dicts in the order of the structure's, if they have the same keys."""
    if structure is LEAF:
        return value
    kind, keys, children = structure
    if kind == "dict" and isinstance(value, Mapping) and set(value) == set(keys):
        return {key: _in_order_of(child, value[key]) for key, child in zip(keys, children, strict=True)}
    if kind in ("tuple", "list") and type(value).__name__ == kind and len(value) == len(children):
        return type(value)([_in_order_of(*pair) for pair in zip(children, value, strict=True)])
    return value


def _describe(structure: Structure) -> str:
    """Describe a structure in a few words, such as ``(value, {'box': value})``."""
    if structure is LEAF:
        return "value"
    kind, what, children = structure
    inner = [_describe(child) for child in children]
    if kind == "tuple":
        return f"({', '.join(inner)}{',' if len(inner) == 1 else ''})"
    if kind == "list":
        return f"[{', '.join(inner)}]"
    if kind == "dict":
        return "{" + ", ".join(f"{key!r}: {text}" for key, text in zip(what, inner, strict=True)) + "}"
    return f"{what.__name__}({', '.join(inner)})"


def _out_leaves(structure: Structure, out: Any, count: int) -> list[Any]:
    if out is None:
        return [None] * count
    found, leaves = flatten(out)
    if found != structure:
        raise ValueError(
            f"out must have the batch's structure {_describe(structure)}, got {_describe(found)}"
        )
    return leaves


def _by_field(samples: Sequence[Any], out: Any, collate: Callable[[list[Any], Any], Any]) -> Any:
    structure, columns = _columns(samples)
    outs = _out_leaves(structure, out, len(columns))
    return unflatten(structure, [collate(column, to) for column, to in zip(columns, outs, strict=True)])


def default_batchify_fn(samples: Sequence[Any], out: Any = None) -> Any:
    """Collate as the loaders do when no function is given: each field is stacked along a new first axis.

    Fields that are not arrays or numbers become lists.

    Args:
        samples: samples of one structure and, field by field, of one shape.
        out: arrays of the batch's structure to write into (None for a field that becomes a list), or None.

    Returns:
        The batch, in the structure of a sample.

    Raises:
        ValueError: the samples differ in structure or shape, or `out` does not fit them.
    """
    return _by_field(samples, out, stack_leaves)


class Stack:
    """Collation by stacking each field along a new first axis; fields that are not arrays or numbers become lists.

    Args:
        use_shared_mem: accepted for compatibility with Gluon and ignored: the loaders put batches in shared memory
            themselves.
    """

    def __init__(self, use_shared_mem: bool = False) -> None:
        del use_shared_mem

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> Any:
        """Collate; see `default_batchify_fn`."""
        return default_batchify_fn(samples, out)


class Pad:
    """Collation of arrays of unequal shapes: every axis is padded at its end to the length of the longest sample's.

    A sample is an array, a number or a (nested) list of numbers. Dicts and dataclasses are padded by field.

    Args:
        val: the padding value; None is 0.
        dtype: dtype of the batch; None: the promotion of the samples' dtypes by numpy.
        round_to: extents are rounded up to a multiple of this, so that fewer different shapes occur; None:
            they are not.
        use_shared_mem: accepted and ignored, see `Stack`.

    Raises:
        ValueError: `round_to` is below 1; an AssertionError too, as in Gluon.
    """

    def __init__(
        self,
        val: float | None = None,
        dtype: Any = None,
        round_to: int | None = None,
        use_shared_mem: bool = False,
    ) -> None:
        del use_shared_mem
        require(round_to is None or round_to >= 1, f"round_to must be at least 1, got {round_to}")
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
            ValueError: numbers of axes differ, `val` does not fit the dtype, or `out` does not fit.
        """
        if not len(samples):
            raise ValueError("there are no samples to collate")
        if isinstance(samples[0], tuple):
            raise NotImplementedError(
                "Pad() does not support multiple items, use Group(Pad(), Pad(), ...) instead"
            )
        if isinstance(samples[0], list):
            return self._pad(samples, out)
        return _by_field(samples, out, self._pad)

    def _pad(self, values: Sequence[Any], out: Array | None) -> Array:
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
        longest = map(max, zip(*(array.shape for array in arrays), strict=True))
        shape = (len(arrays), *(-(-extent // self._round_to) * self._round_to for extent in longest))
        if out is None:
            dtype = self._dtype or self._common_dtype(values, arrays)
            out = np.empty(shape, dtype)
        else:
            _check_out(out, shape)
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


class Append:
    """Collation to lists: each field becomes a list of arrays, one per sample.

    Args:
        expand: add a batch axis of length 1 to every array.
        batch_axis: position of that axis.
        use_shared_mem: accepted and ignored, see `Stack`.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        del use_shared_mem
        self._expand = expand
        self._batch_axis = batch_axis

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the result is a list of arrays, so `out` must be None."""
        require(out is None, "Append() makes no array, so it takes no out")
        return _by_field(samples, None, self._append)

    def _append(self, values: list[Any], out: None) -> list[Any]:
        del out
        arrays = [np.asarray(value) for value in values]
        return [np.expand_dims(array, self._batch_axis) for array in arrays] if self._expand else arrays


class Group:
    """Collation of tuples with one function for each field: ``Group(Stack(), Pad())`` or ``Group([Stack(), Pad()])``.

    Args:
        fn: function of the first field, or a tuple or list of all functions.
        *args: functions of the other fields.

    Raises:
        ValueError: one of them cannot be called.
    """

    _wrong_count: ClassVar[str] = (
        "Group() has {count} functions, so each sample must be a tuple or list of {count} elements; sample {place} has "
        "{found}"
    )

    def __init__(self, fn: Any, *args: Callable[..., Any]) -> None:
        if isinstance(fn, (tuple, list)):
            require(not args, "Group() takes the functions one by one or in one list, not both")
            functions = tuple(fn)
        else:
            functions = (fn, *args)
        for place, function in enumerate(functions):
            require(callable(function), f"function {place} of Group() cannot be called: {function!r}")
        self._functions = functions

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> tuple[Any, ...]:
        """Collate.

        Args:
            samples: tuples or lists with as many elements as there are functions.
            out: a tuple with an entry for each function to write into, or None.

        Raises:
            ValueError: a sample has another number of elements.
        """
        if not len(samples):
            raise ValueError("there are no samples to collate")
        count = len(self._functions)
        for place, sample in enumerate(samples):
            found = len(sample) if isinstance(sample, (tuple, list)) else type(sample).__name__
            require(found == count, self._wrong_count.format(count=count, place=place, found=found))
        columns = [[sample[field] for sample in samples] for field in range(count)]
        if out is None:
            return tuple([fn(column) for fn, column in zip(self._functions, columns, strict=True)])
        require(len(out) == count, f"out must have {count} entries, got {len(out)}")
        return tuple(
            [fn(column, out=to) for fn, column, to in zip(self._functions, columns, out, strict=True)]
        )


class AsList:
    """Collation to a list of the unchanged samples."""

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> list[Any]:
        """Return the samples as a list; `out` must be None."""
        require(out is None, "AsList() makes no array, so it takes no out")
        return list(samples)
