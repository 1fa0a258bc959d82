"""`NDArray`: a numpy array that behaves like MXNet's where scripts notice; and `ndarray`, that of `mx.np`.

Rules of MXNet 1.9.1 (python/mxnet/ndarray/ndarray.py): indexing with integers and slices returns a view where the part
is contiguous, and a copy elsewhere; `reshape`, `as_in_context` and `detach` return views; every other method returns a
new array.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NoReturn, cast

import numpy as np
import numpy.typing as npt

from aioloader.mxnet.base import OutsideError, names_in
from aioloader.mxnet.context import Context, cpu, host_context

__all__ = ("NDArray", "as_ndarray", "from_numpy", "ndarray")

SPARSE_TYPES: dict[str, Callable[[NDArray], Any]] = {}
"""Conversions to sparse types, by their names; `aioloader.mxnet.sparse` adds its own."""

_slice = slice  # the class below has a method of this name


def _reduction(name: str, difference: str = "") -> Callable[..., Any]:
    """Return the method for a reduction of numpy, whose result over all axes has shape (1,)."""
    reduction = _REDUCTIONS.get(name) or getattr(np.ndarray, name)

    def reduce(self: NDArray, axis: Any = None, *args: Any, exclude: bool = False, **kwargs: Any) -> Any:
        found = reduction(np.asarray(self), _axes(axis, exclude, self.ndim), *args, **kwargs)
        if "dtype" not in kwargs and name not in ("mean", "std", "var"):
            found = found.astype(_wide(self.dtype), copy=False)
        return _boxed(found, self)

    reduce.__name__, reduce.__qualname__ = name, f"NDArray.{name}"
    reduce.__doc__ = (
        f"Return numpy's `{name}`{difference}; over all axes its shape is (1,). Axes of () are all; with `exclude` "
        "the axes are those to keep."
    )
    return reduce


def _wide(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """Return the dtype of a sum: that of the array, but int64 for those that a sum of few elements overflows."""
    return dtype if dtype.itemsize > 1 else np.dtype(np.int64)


# Those that numpy's arrays do not have as methods.
_REDUCTIONS: dict[str, Callable[..., Any]] = {"nansum": np.nansum, "nanprod": np.nanprod}


def _axes(axis: Any, exclude: bool, ndim: int) -> Any:
    """Return the axes of a reduction as numpy takes them."""
    if isinstance(axis, list):
        axis = tuple(axis)
    if axis == ():
        axis = None
    if not exclude:
        return axis
    kept = range(ndim) if axis is None else (axis,) if isinstance(axis, int) else axis
    return tuple(set(range(ndim)) - {each % ndim for each in kept})


def _comparison(name: str) -> Callable[..., Any]:
    """Return the method for a comparison, whose result has the dtype of the array: 1 where it is true, else 0."""
    compare = getattr(np.ndarray, name)

    def apply(self: NDArray, other: Any) -> Any:
        found = compare(self, other)
        return found.astype(self.dtype) if isinstance(found, np.ndarray) else found

    apply.__name__, apply.__qualname__ = name, f"NDArray.{name}"
    return apply


# Methods of MXNet's arrays that are operators of networks, or specific to its memory.
_ABSENT = names_in(
    "argmax_channel depth_to_space handle log_softmax pad relu sigmoid slice_assign slice_assign_scalar "
    "softmax softmin space_to_depth to_dlpack_for_read to_dlpack_for_write"
)


def _elementwise(name: str, function: Callable[..., Any], text: str) -> Callable[..., Any]:
    """Return the method for a function of each element, which keeps the dtype."""

    def apply(self: NDArray) -> NDArray:
        values = np.asarray(self)
        with np.errstate(invalid="ignore", divide="ignore"):
            found = function(values)
            if found.dtype == np.float16 != values.dtype:  # of bytes, for which it is not exact enough
                found = function(values.astype(np.float32))
            return _made(found.astype(values.dtype, copy=False), self)

    apply.__name__, apply.__qualname__ = name, f"NDArray.{name}"
    apply.__doc__ = f"Return {text} of each element, in the dtype of the array."
    return apply


def _rounded(values: npt.NDArray[Any]) -> Any:
    return np.trunc(values + np.copysign(0.5, values))  # away from 0, as C's round


_OF_MASKS = frozenset([np.bitwise_and, np.bitwise_or, np.bitwise_xor])


def _as_masks(values: list[Any]) -> list[Any]:
    """Return operands in which floats are booleans if another operand is: comparisons of float arrays are floats."""
    kinds = [np.asarray(value).dtype.kind for value in values]
    if "b" not in kinds:
        return values
    return [
        np.not_equal(value, 0) if kind == "f" else value for value, kind in zip(values, kinds, strict=True)
    ]


class NDArray(np.ndarray[Any, Any]):
    """Numpy array with the methods and the aliasing of MXNet's NDArray. `from_numpy` makes one without copying.

    Differences from numpy: an element (``x[0]`` of a vector) and a full reduction (``x.sum()``) are arrays of
    shape (1,), which convert to numbers with `asscalar`, `int` and `float`; an element is a view, and so is a part
    that is contiguous (rows), but any other part (columns), `T` and the results of all other methods except `reshape`
    are copies; a comparison has the dtype of the array; a float array can be an index; and the methods below.
    """

    _context: Context | None = None

    def __array_finalize__(self, source: object) -> None:  # numpy passes any array, or None
        # Most sources are plain arrays, for which this test of the type is the fastest.
        if type(source) is not np.ndarray and isinstance(source, NDArray) and source._context is not None:
            self._context = source._context

    def __array_ufunc__(self, ufunc: Any, method: Any, *inputs: Any, **kwargs: Any) -> Any:
        """Calculate with numpy, where a number of any type leaves the dtype of the array as it is."""
        plain = [each.item() if isinstance(each, np.generic) else _plain(each) for each in inputs]
        out = kwargs.pop("out", None)
        if ufunc in _OF_MASKS:
            plain = _as_masks(plain)
        if ufunc is np.remainder and method == "__call__" and type(self) is NDArray:
            dividend, divisor = plain
            found = _remainder(dividend, divisor, None if out is None else _plain(out[0]))
            return _wrapped(found, self) if out is None else out[0]
        if out is None:
            return _wrapped(getattr(ufunc, method)(*plain, **kwargs), self)
        getattr(ufunc, method)(*plain, out=_plain(out), **kwargs)
        return out[0] if len(out) == 1 else out

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        """Apply a function of numpy, which expects numpy's methods, to plain arrays over the same memory."""
        del types
        return _wrapped(
            func(*map(_plain, args), **{name: _plain(each) for name, each in kwargs.items()}), self
        )

    # --- MXNet's own methods ---

    def asnumpy(self) -> npt.NDArray[Any]:
        """Return a copy as a plain numpy array. ``numpy.asarray(x)`` does the same without copying."""
        return np.array(self, order="C")

    def asscalar(self) -> Any:
        """Return the one element, as a numpy scalar.

        Raises:
            ValueError: there is not exactly one element.
        """
        if self.size != 1:
            raise ValueError("The current array is not a scalar")
        return np.asarray(self).reshape(-1)[0]

    @property
    def context(self) -> Context:
        """Return the context that was named when the array was made; the memory is this host's in any case."""
        return cpu() if self._context is None else self._context

    ctx = context

    def as_in_context(self, context: Context) -> NDArray:
        """Return the array under the name of another context; itself if the name is the same. Nothing is copied.

        Raises:
            MXNetError: `context` is a GPU.
        """
        context = host_context(context)
        if context == self.context:
            return self
        moved = self.view()
        moved._context = context
        return moved

    as_in_ctx = as_in_context

    def copyto(self, other: Any) -> NDArray:
        """Copy into another array of the same shape, or into a new one in a context."""
        if isinstance(other, Context):
            return self.copy().as_in_context(other)
        other[...] = self
        return from_numpy(other)

    def wait_to_read(self) -> None:
        """Do nothing: the array is complete."""

    wait_to_write = wait_to_read

    @property
    def stype(self) -> str:
        """Return "default": the array is dense."""
        return "default"

    def tostype(self, stype: str) -> Any:
        """Return a copy for "default", an `mx.nd.sparse.CSRNDArray` for "csr".

        Raises:
            OutsideError: another type is requested.
        """
        if stype == "default":
            return self.copy()
        if stype not in SPARSE_TYPES:
            raise OutsideError(f"NDArray.tostype({stype!r})", "csr is the only sparse type here")
        return SPARSE_TYPES[stype](self)

    @property
    def grad(self) -> None:
        """Return None: your framework computes gradients."""
        return None

    @property
    def writable(self) -> bool:
        """Return whether the elements can be changed."""
        return self.flags.writeable

    def as_nd_ndarray(self) -> NDArray:
        """Return the array itself."""
        return self

    def as_np_ndarray(self) -> NDArray:
        """Return the array as an `mx.np.ndarray`, over the same memory."""
        return self.view(ndarray)

    def detach(self) -> NDArray:
        """Return a view of the array."""
        return self.view()

    def attach_grad(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise OutsideError: your framework computes gradients."""
        raise OutsideError("NDArray.attach_grad()")

    def backward(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise OutsideError: your framework computes gradients."""
        raise OutsideError("NDArray.backward()")

    # --- shapes: `reshape` is a view, all others are copies ---

    def reshape(self, *shape: Any, **kwargs: Any) -> NDArray:
        """Return a view, or else a copy, in another shape.

        Args:
            *shape: integers or one tuple. In addition to numpy's -1, as in MXNet: 0 keeps this axis, -2 keeps all
                remaining axes, -3 joins two axes, -4 splits one axis into the two numbers that follow. An array without
                elements takes its shape literally.
            **kwargs: `shape`, MXNet's name for it; `reverse=True` reads the codes from the last axis to the first;
                `order` as numpy's.
        """
        backwards = kwargs.pop("reverse", False)
        if not shape and "shape" in kwargs:
            shape = (kwargs.pop("shape"),)
        wanted = shape[0] if len(shape) == 1 else shape
        lengths = [operator.index(wanted)] if not isinstance(wanted, Sequence | np.ndarray) else list(wanted)
        if self.size and any(n == 0 or n < -1 for n in lengths):
            turn = -1 if backwards else 1
            lengths = _mxnet_shape(self.shape[::turn], lengths[::turn])[::turn]
        return cast("NDArray", super().reshape(tuple(lengths), **kwargs))

    def reshape_like(self, other: Any) -> NDArray:
        """Return a copy in the shape of another array."""
        return self.reshape(np.shape(other)).copy()

    def flatten(self, inplace: Any = False, **kwargs: Any) -> NDArray:  # type: ignore[override]
        """Return a copy with two axes, the first one and all others joined; with ``inplace=True``, a view."""
        return (self if inplace is True else self.copy()).reshape(
            (len(self), -1) if self.size else (len(self), 0)
        )

    def expand_dims(self, axis: int, inplace: bool = False) -> NDArray:
        """Return a copy with a new axis of length 1 at `axis`; with `inplace`, a view."""
        made = np.expand_dims(np.asarray(self), axis)
        return self.reshape(made.shape) if inplace else _copied(made, self)

    def squeeze(  # type: ignore[override]
        self, axis: int | tuple[int, ...] | None = None, inplace: bool = False
    ) -> NDArray:
        """Return a copy without the axes of length 1, or those of them that are given; at least one axis stays.

        Args:
            axis: the axes.
            inplace: return a view.
        """
        view = np.squeeze(np.asarray(self), axis)
        made = self.reshape(view.shape) if inplace and view.ndim else _copied(view, self)
        return made if made.ndim else made.reshape(1)

    def transpose(self, *axes: Any, **kwargs: Any) -> NDArray:
        """Return a copy with the axes in another order, by default reversed.

        Args:
            *axes: integers, or one sequence of them.
            **kwargs: `axes`, MXNet's name for it.
        """
        order = kwargs.pop("axes", axes[0] if len(axes) == 1 and not isinstance(axes[0], int) else axes)
        return _copied(np.transpose(np.asarray(self), order or None), self)

    @property
    def T(self) -> NDArray:
        """Return a copy with the axes in reversed order."""
        return self.transpose()

    def swapaxes(self, dim1: int = 0, dim2: int = 0) -> NDArray:  # type: ignore[override]
        """Return a copy with two axes exchanged."""
        return _copied(np.swapaxes(np.asarray(self), dim1, dim2), self)

    def broadcast_to(self, shape: Sequence[int]) -> NDArray:
        """Return a copy in a shape in which axes of length 1 are repeated; 0 keeps the length of an axis."""
        lengths = tuple(n or self.shape[axis] for axis, n in enumerate(shape))
        return _copied(np.broadcast_to(np.asarray(self), lengths), self)

    def broadcast_axes(self, axis: int | Sequence[int], size: int | Sequence[int]) -> NDArray:
        """Return a copy in which these axes of length 1 are repeated to these lengths."""
        lengths = list(self.shape)
        for place, length in zip(np.atleast_1d(axis), np.atleast_1d(size), strict=True):
            lengths[place] = int(length)
        return self.broadcast_to(lengths)

    def broadcast_like(self, other: Any) -> NDArray:
        """Return a copy in the shape of another array; see `broadcast_to`."""
        return self.broadcast_to(np.shape(other))

    # --- parts and copies of elements ---

    def slice(
        self,
        begin: Sequence[int | None],
        end: Sequence[int | None],
        step: Sequence[int | None] | None = None,
    ) -> NDArray:
        """Return a copy of the part from `begin` up to but without `end`, one number for each of the first axes."""
        steps = step or [None] * len(begin)
        places = tuple(_slice(*each) for each in zip(begin, end, steps, strict=True))
        return _copied(np.asarray(self)[places], self)

    def slice_axis(self, axis: int, begin: int, end: int | None) -> NDArray:
        """Return a copy of the part from `begin` up to but without `end` along one axis; None: up to its end."""
        places = [_slice(None)] * self.ndim
        places[axis] = _slice(begin, end)
        return _copied(np.asarray(self)[tuple(places)], self)

    def split(self, num_outputs: int, axis: int = 1, squeeze_axis: bool = False) -> Any:
        """Return copies of `num_outputs` equal parts along `axis`, as a list; the part itself if there is one."""
        parts = np.split(np.asarray(self), num_outputs, axis)
        made = [_copied(part.squeeze(axis) if squeeze_axis else part, self) for part in parts]
        return made if len(made) > 1 else made[0]

    def slice_like(self, shape_like: Any, axes: int | Sequence[int] = ()) -> NDArray:
        """Return a copy of the first part, as long as another array along `axes`, by default along all."""
        places = [_slice(None)] * self.ndim
        for axis in np.atleast_1d(axes).tolist() or range(np.ndim(shape_like)):
            places[axis] = _slice(np.shape(shape_like)[axis])
        return _copied(np.asarray(self)[tuple(places)], self)

    def split_v2(
        self, indices_or_sections: int | Sequence[int], axis: int = 0, squeeze_axis: bool = False
    ) -> Any:
        """Return copies of parts along `axis`: this number of equal ones, or those that begin at these places and 0."""
        parts = np.split(np.asarray(self), cast("Any", indices_or_sections), axis)
        made = [_copied(part.squeeze(axis) if squeeze_axis else part, self) for part in parts]
        return made if len(made) > 1 else made[0]

    def pick(self, index: Any, axis: int | None = -1, keepdims: bool = False, mode: str = "clip") -> NDArray:
        """Return one element along `axis` for each place in `index`.

        Args:
            index: their places, numbers of any dtype, in the shape of this array without `axis`.
            axis: the axis; None: of the array as a vector.
            keepdims: keep the axis, with length 1.
            mode: "clip" or "wrap", see `take`.
        """
        values = np.asarray(self).reshape(-1) if axis is None else np.asarray(self)
        along = 0 if axis is None else axis
        places = np.asarray(index).astype(np.intp)
        if places.ndim < values.ndim:
            places = np.expand_dims(places, along)
        length = values.shape[along]
        places = places % length if mode == "wrap" else places.clip(0, length - 1)
        made = np.take_along_axis(values, places, along)
        return _made(made if keepdims else made.squeeze(along), self)

    def diag(self, k: int = 0, axis1: int = 0, axis2: int = 1) -> NDArray:
        """Return the diagonal `k` of two axes; of a vector, a matrix with it as its diagonal."""
        values = np.asarray(self)
        return _copied(np.diag(values, k) if self.ndim == 1 else np.diagonal(values, k, axis1, axis2), self)

    def take(self, indices: Any, axis: int = 0, mode: str = "clip") -> NDArray:  # type: ignore[override]
        """Return parts along an axis, by default rows.

        Args:
            indices: their places, numbers of any dtype.
            axis: the axis.
            mode: what becomes of a place outside: "clip" takes the nearest one, "wrap" counts from the other end,
                "raise" is an IndexError.
        """
        places = np.asarray(indices).astype(np.intp)
        return _made(np.take(np.asarray(self), places, axis, mode=cast("Any", mode)), self)

    def flip(self, axis: int | tuple[int, ...]) -> NDArray:
        """Return a copy with the order reversed along an axis."""
        return _copied(np.flip(np.asarray(self), axis), self)

    def tile(self, reps: int | Sequence[int]) -> NDArray:
        """Return the array repeated as a whole, `reps` times along each axis."""
        return _made(np.tile(np.asarray(self), reps), self)

    def repeat(self, repeats: int, axis: int | None = None) -> NDArray:  # type: ignore[override]
        """Return every element repeated along an axis; without one, of the array as a vector."""
        return _made(np.repeat(np.asarray(self), repeats, axis), self)

    def one_hot(
        self, depth: int, on_value: float = 1.0, off_value: float = 0.0, dtype: npt.DTypeLike = np.float32
    ) -> NDArray:
        """Return a vector of length `depth` for each element, `on_value` at this place; of a place outside, none."""
        places = np.asarray(self).astype(np.int64)[..., np.newaxis]
        return _made(np.where(places == np.arange(depth), on_value, off_value).astype(dtype), self)

    # --- order ---

    def sort(self, axis: int | None = -1, is_ascend: bool = True) -> NDArray:  # type: ignore[override]
        """Return a sorted copy, ascending or descending; without an axis, of the array as a vector."""
        ordered = np.sort(np.asarray(self), axis)
        return _copied(ordered if is_ascend else np.flip(ordered, -1 if axis is None else axis), self)

    def argsort(  # type: ignore[override]
        self, axis: int | None = -1, is_ascend: bool = True, dtype: npt.DTypeLike = np.float32
    ) -> NDArray:
        """Return the places of the elements in ascending or descending order, float32 by default."""
        order = np.argsort(np.asarray(self), axis, kind="stable")
        return _copied(
            (order if is_ascend else np.flip(order, -1 if axis is None else axis)).astype(dtype), self
        )

    def topk(
        self,
        axis: int | None = -1,
        k: int = 1,
        ret_typ: str = "indices",
        is_ascend: bool = False,
        dtype: npt.DTypeLike = np.float32,
    ) -> Any:
        """Return the `k` largest elements along an axis, or the smallest.

        Args:
            axis: the axis; None: of the array as a vector.
            k: their number; less than 1: all.
            ret_typ: "indices" (their places), "value", "both" (a list of values and places) or "mask" (1 at their
                places, else 0).
            is_ascend: the smallest.
            dtype: that of the places.

        Raises:
            ValueError: there is no such `ret_typ`.
        """
        values = np.asarray(self).reshape(-1) if axis is None else np.asarray(self)
        along = 0 if axis is None else axis
        order = np.argsort(values if is_ascend else np.flip(values, along), along, kind="stable")
        if not is_ascend:  # of equal elements the first comes first, as in ascending order
            order = values.shape[along] - 1 - np.flip(order, along)
        places = np.take(order, range(k if k > 0 else values.shape[along]), along)
        if ret_typ == "mask":
            mask = np.zeros_like(values)
            np.put_along_axis(mask, places, 1, along)
            return _copied(mask.reshape(self.shape), self)
        found = {"indices": places.astype(dtype), "value": np.take_along_axis(values, places, along)}
        if ret_typ == "both":
            return [_copied(found["value"], self), _copied(found["indices"], self)]
        if ret_typ not in found:
            raise ValueError(f"ret_typ must be indices, value, both or mask, got {ret_typ!r}")
        return _copied(found[ret_typ], self)

    # --- elements ---

    def zeros_like(self) -> NDArray:
        """Return zeros in the shape and dtype of the array."""
        return _made(np.zeros(self.shape, self.dtype), self)

    def ones_like(self) -> NDArray:
        """Return ones in the shape and dtype of the array."""
        return _made(np.ones(self.shape, self.dtype), self)

    def shape_array(self) -> NDArray:
        """Return the shape as an int64 vector."""
        return _made(np.array(self.shape, np.int64), self)

    def size_array(self) -> NDArray:
        """Return the number of elements as an int64 vector of length 1."""
        return _made(np.array([self.size], np.int64), self)

    def clip(self, a_min: Any = None, a_max: Any = None) -> NDArray:  # type: ignore[override]
        """Return the elements limited to [a_min, a_max]."""
        return _made(np.clip(np.asarray(self), a_min, a_max).astype(self.dtype, copy=False), self)

    floor = _elementwise("floor", np.floor, "the next lower whole number")
    ceil = _elementwise("ceil", np.ceil, "the next higher whole number")
    rint = _elementwise("rint", np.rint, "the nearest whole number")
    round = _elementwise("round", _rounded, "the nearest whole number, of two that away from 0,")
    trunc = _elementwise("trunc", np.trunc, "the whole number towards 0")
    abs = _elementwise("abs", np.abs, "the absolute value")
    sign = _elementwise("sign", np.sign, "the sign")
    square = _elementwise("square", np.square, "the square")
    sqrt = _elementwise("sqrt", np.sqrt, "the square root")
    rsqrt = _elementwise("rsqrt", lambda values: 1 / np.sqrt(values), "1 by the square root")
    cbrt = _elementwise("cbrt", np.cbrt, "the cube root")
    rcbrt = _elementwise("rcbrt", lambda values: 1 / np.cbrt(values), "1 by the cube root")
    reciprocal = _elementwise("reciprocal", lambda values: 1 / values, "the reciprocal")
    fix = _elementwise("fix", np.trunc, "the whole number towards 0")
    exp = _elementwise("exp", np.exp, "the exponential function")
    expm1 = _elementwise("expm1", np.expm1, "the exponential function less 1")
    log = _elementwise("log", np.log, "the natural logarithm")
    log2 = _elementwise("log2", np.log2, "the logarithm to the base 2")
    log10 = _elementwise("log10", np.log10, "the logarithm to the base 10")
    log1p = _elementwise("log1p", np.log1p, "the natural logarithm of 1 more")
    degrees = _elementwise("degrees", np.degrees, "the angle in degrees")
    radians = _elementwise("radians", np.radians, "the angle in radians")
    sin = _elementwise("sin", np.sin, "the sine")
    cos = _elementwise("cos", np.cos, "the cosine")
    tan = _elementwise("tan", np.tan, "the tangent")
    arcsin = _elementwise("arcsin", np.arcsin, "the inverse sine")
    arccos = _elementwise("arccos", np.arccos, "the inverse cosine")
    arctan = _elementwise("arctan", np.arctan, "the inverse tangent")
    sinh = _elementwise("sinh", np.sinh, "the hyperbolic sine")
    cosh = _elementwise("cosh", np.cosh, "the hyperbolic cosine")
    tanh = _elementwise("tanh", np.tanh, "the hyperbolic tangent")
    arcsinh = _elementwise("arcsinh", np.arcsinh, "the inverse hyperbolic sine")
    arccosh = _elementwise("arccosh", np.arccosh, "the inverse hyperbolic cosine")
    arctanh = _elementwise("arctanh", np.arctanh, "the inverse hyperbolic tangent")

    def norm(self, ord: int = 2, axis: Any = None, keepdims: bool = False) -> NDArray:
        """Return the norm of order 1 or 2 over an axis, by default over all, which has shape (1,)."""
        values = np.abs(np.asarray(self))
        if ord == 1:
            total = values.sum(axis=axis, keepdims=keepdims).astype(_wide(self.dtype), copy=False)
            return cast("NDArray", _boxed(total, self))
        return cast("NDArray", _boxed(np.sqrt(np.square(values).sum(axis=axis, keepdims=keepdims)), self))

    def dot(self, other: Any, transpose_a: bool = False, transpose_b: bool = False) -> NDArray:  # type: ignore[override]
        """Return the product over the last axis of this array and the first axis of the other."""
        first, second = np.asarray(self), np.asarray(other)
        made = np.tensordot(first.T if transpose_a else first, second.T if transpose_b else second, 1)
        return cast("NDArray", _boxed(made if made.ndim else made[()], self))

    # --- results that numpy returns as a scalar, and views ---

    def __getitem__(self, key: Any) -> Any:
        key = _index(key)
        found = super().__getitem__(key)
        if not isinstance(found, np.ndarray):  # one element
            return super().__getitem__((*key, ...) if isinstance(key, tuple) else (key, ...)).reshape(1)
        if not found.flags.c_contiguous and self.flags.c_contiguous:
            return found.copy()
        return found if found.ndim else found.reshape(1)

    def __setitem__(self, key: Any, value: Any) -> None:
        # Not by numpy's own method, which writes to what `__getitem__` returns.
        np.asarray(self)[_index(key)] = value

    def __iter__(self) -> Iterator[Any]:
        return (self[place] for place in range(len(self)))

    def __hash__(self) -> int:  # type: ignore[override]
        return id(self) // 16

    def copy(self, order: Any = "C") -> NDArray:
        """Return a copy."""
        return super().copy(order)

    sum: Any = _reduction("sum")
    mean: Any = _reduction("mean")
    max: Any = _reduction("max")
    min: Any = _reduction("min")
    prod: Any = _reduction("prod")
    std: Any = _reduction("std")
    var: Any = _reduction("var")
    nansum: Any = _reduction("nansum")
    nanprod: Any = _reduction("nanprod")
    argmax: Any = _reduction("argmax", " in the dtype of the array")
    argmin: Any = _reduction("argmin", " in the dtype of the array")

    __eq__, __ne__ = map(_comparison, ("__eq__", "__ne__"))
    __lt__, __le__, __gt__, __ge__ = map(_comparison, ("__lt__", "__le__", "__gt__", "__ge__"))

    def all(self, *args: Any, **kwargs: Any) -> Any:
        """Return numpy's `all`."""
        return np.asarray(self).all(*args, **kwargs)

    def any(self, *args: Any, **kwargs: Any) -> Any:
        """Return numpy's `any`."""
        return np.asarray(self).any(*args, **kwargs)

    def __getattr__(self, name: str) -> NoReturn:
        if name in _ABSENT:
            raise OutsideError(f"NDArray.{name}()")
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __bool__(self) -> bool:
        """Return whether the one element is not 0; False for an array without elements (an error in numpy)."""
        return self.size > 0 and bool(np.asarray(self))

    def __int__(self) -> int:
        return int(self.item())

    def __float__(self) -> float:
        return float(self.item())

    def __index__(self) -> int:
        return operator.index(self.item())

    def __format__(self, spec: str) -> str:
        return format(self.item(), spec) if spec and self.size == 1 else repr(self).__format__(spec)

    def __repr__(self) -> str:
        lengths = "x".join(map(str, self.shape))
        return f"\n{np.asarray(self)}\n<NDArray {lengths} @{self.context}>"

    __str__ = __repr__


def _made(result: npt.NDArray[Any], like: NDArray) -> NDArray:
    """Return a new array of numpy as an NDArray of the same class and context."""
    made = np.ascontiguousarray(result).view(type(like))
    made._context = like._context
    return made


def _copied(part: npt.NDArray[Any], like: NDArray) -> NDArray:
    """Return a copy of a view of numpy as an NDArray of the same class and context."""
    return _made(np.array(part, order="C"), like)


def _boxed(result: Any, like: NDArray) -> Any:
    """Return a result of numpy as an NDArray; a scalar as one of shape (1,)."""
    return _made(result if isinstance(result, np.ndarray) else np.array([result]), like)


def _plain(value: Any) -> Any:
    """Return an argument of a function of numpy with plain arrays in place of NDArrays."""
    if isinstance(value, NDArray):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return type(value)(map(_plain, value))
    return value


def _remainder(dividend: Any, divisor: Any, out: Any) -> Any:
    """Return the remainder, 0 where the divisor is 0."""
    nothing = np.equal(divisor, 0)  # before `out` is written, which can be the divisor
    with np.errstate(invalid="ignore", divide="ignore"):
        found = np.remainder(dividend, divisor, out=out)
    np.copyto(found, 0, where=nothing)
    return found


def _wrapped(result: Any, like: NDArray) -> Any:
    """Return a result of a function of numpy with NDArrays in place of its arrays."""
    if type(result) is np.ndarray:
        wrapped = result.view(type(like))
        wrapped._context = like._context
        return wrapped
    if type(result) in (list, tuple):
        return type(result)([_wrapped(each, like) for each in result])
    return result


def _index(key: Any) -> Any:
    # nd.array([0, 2]) is float32, and MXNet accepts it as an index.
    if isinstance(key, NDArray) and key.dtype.kind == "f":
        return np.asarray(key).astype(np.intp)
    if isinstance(key, tuple):
        return tuple(_index(each) if isinstance(each, NDArray) else each for each in key)
    return key


def _mxnet_shape(old: tuple[int, ...], wanted: Sequence[int]) -> list[int]:
    """Return `wanted` with MXNet's codes 0, -2, -3 and -4 resolved; -1 may remain."""
    shape: list[int] = []
    at = 0  # the axis of `old` that is next
    codes = iter(wanted)
    try:
        for code in codes:
            if code == 0:
                shape.append(old[at])
                at += 1
            elif code == -2:
                shape.extend(old[at:])
                at = len(old)
            elif code == -3:
                shape.append(old[at] * old[at + 1])
                at += 2
            elif code == -4:
                first, second = next(codes), next(codes)
                first = old[at] // second if first == -1 else first
                shape += [first, old[at] // first if second == -1 else second]
                at += 1
            else:
                shape.append(code)
                at += 1
    except (IndexError, StopIteration):
        raise ValueError(f"the shape {tuple(wanted)} asks for more axes than {old} has") from None
    return shape


def from_numpy(ndarray: npt.NDArray[Any], zero_copy: bool = True) -> NDArray:
    """Return a numpy array as NDArray: the same memory, or a copy of it.

    Unlike MXNet's, the given array stays writable.
    """
    return ndarray.view(NDArray) if zero_copy else ndarray.copy().view(NDArray)


def as_ndarray(data: Any) -> NDArray:
    """Return an array as an NDArray over the same memory; itself if it is one."""
    return data if isinstance(data, NDArray) else np.asarray(data).view(NDArray)


def _numpys(name: str) -> Any:
    """Return the method for a reduction, with numpy's dtype of the result."""
    reduction = getattr(np.ndarray, name)

    def reduce(self: ndarray, *args: Any, **kwargs: Any) -> Any:
        found = reduction(np.asarray(self), *args, **kwargs)
        return (found if isinstance(found, np.ndarray) else np.array([found])).view(ndarray)

    reduce.__name__, reduce.__qualname__ = name, f"ndarray.{name}"
    reduce.__doc__ = f"Return numpy's `{name}`; over all axes its shape is (1,)."
    return reduce


# Methods of other types than the array's above.
_NUMPY: Any = np.ndarray


class ndarray(NDArray):  # MXNet's name
    """NDArray whose comparisons are bool, and whose methods that numpy has too are numpy's.

    An element and a full reduction have shape (1,), as those of an NDArray.
    """

    def as_nd_ndarray(self) -> NDArray:
        """Return the array as an NDArray, over the same memory."""
        return self.view(NDArray)

    def as_np_ndarray(self) -> NDArray:
        """Return the array itself."""
        return self

    argmax = _numpys("argmax")
    argmin = _numpys("argmin")
    argsort = _NUMPY.argsort
    clip = _NUMPY.clip
    dot = _NUMPY.dot
    flatten = _NUMPY.flatten
    repeat = _NUMPY.repeat
    round = _NUMPY.round
    sort = _NUMPY.sort
    squeeze = _NUMPY.squeeze
    swapaxes = _NUMPY.swapaxes
    take = _NUMPY.take
    transpose = _NUMPY.transpose
    T = _NUMPY.T
    sum = _numpys("sum")
    prod = _numpys("prod")
    __eq__ = _NUMPY.__eq__
    __ne__ = _NUMPY.__ne__
    __lt__ = _NUMPY.__lt__
    __le__ = _NUMPY.__le__
    __gt__ = _NUMPY.__gt__
    __ge__ = _NUMPY.__ge__
    __hash__ = NDArray.__hash__
