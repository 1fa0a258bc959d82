"""`mx.nd`: NDArray, and the functions that make and transform such arrays; new arrays are float32.

An NDArray is a numpy array with MXNet's methods and aliasing on top (`aioloader.mxnet.ndarray.ndarray`). What is not
offered here is numpy's: the dtype of arithmetic between arrays, broadcasting, advanced indexing. Each function returns
a new array, or writes it to `out`.
"""

from __future__ import annotations

import importlib
import operator
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet import sparse as sparse  # it adds a conversion of arrays
from aioloader.mxnet.base import exported, names_in
from aioloader.mxnet.context import Context, host_context
from aioloader.mxnet.ndarray.ndarray import NDArray as NDArray
from aioloader.mxnet.ndarray.ndarray import as_ndarray
from aioloader.mxnet.ndarray.ndarray import from_numpy as from_numpy
from aioloader.mxnet.outside import module_elsewhere, outside_class, outside_module

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt


# Names of operators, most of them of networks, that can only be imported: they raise when used.
_OPERATORS = names_in("""
    Activation BatchNorm BatchNorm_v1 BilinearSampler BlockGrad CTCLoss CachedOp Convolution Convolution_v1
    Correlation Crop Custom Deconvolution Dropout Embedding FullyConnected GridGenerator GroupNorm
    IdentityAttachKLSparseReg InstanceNorm LRN LayerNorm LeakyReLU LinearRegressionOutput LogisticRegressionOutput
    MAERegressionOutput MakeLoss Pooling Pooling_v1 RNN ROIPooling SVMOutput SequenceLast SequenceMask
    SequenceReverse Softmax SoftmaxActivation SoftmaxOutput SpatialTransformer UpSampling adam_update all_finite
    amp_cast amp_multicast argmax_channel batch_take cast_storage choose_element_0index col2im crop ctc_loss
    depth_to_space erf erfinv fill_element_0index from_dlpack ftml_update ftrl_update gamma gammaln
    get_indexing_dispatch_code get_oshape_of_gather_nd_op hard_sigmoid histogram identity im2col
    indexing_key_expand_implicit_axes khatri_rao lamb_update_phase1 lamb_update_phase2 linalg_det linalg_extractdiag
    linalg_extracttrian linalg_gelqf linalg_gemm linalg_gemm2 linalg_inverse linalg_makediag linalg_maketrian
    linalg_potrf linalg_potri linalg_slogdet linalg_sumlogdiag linalg_syrk linalg_trmm linalg_trsm log_softmax
    make_loss moments mp_lamb_update_phase1 mp_lamb_update_phase2 mp_nag_mom_update mp_sgd_mom_update mp_sgd_update
    multi_all_finite multi_lars multi_mp_sgd_mom_update multi_mp_sgd_update multi_sgd_mom_update multi_sgd_update
    multi_sum_sq nag_mom_update onehot_encode preloaded_multi_mp_sgd_mom_update preloaded_multi_mp_sgd_update
    preloaded_multi_sgd_mom_update preloaded_multi_sgd_update random_exponential random_gamma
    random_generalized_negative_binomial random_negative_binomial random_pdf_dirichlet random_pdf_exponential
    random_pdf_gamma random_pdf_generalized_negative_binomial random_pdf_negative_binomial random_pdf_normal
    random_pdf_poisson random_pdf_uniform random_poisson ravel_multi_index relu reset_arrays rmsprop_update
    rmspropalex_update sample_exponential sample_gamma sample_generalized_negative_binomial sample_multinomial
    sample_negative_binomial sample_normal sample_poisson sample_uniform scatter_nd sgd_mom_update sgd_update
    sigmoid signsgd_update signum_update smooth_l1 softmax softmax_cross_entropy softmin softsign space_to_depth
    stop_gradient to_dlpack_for_read to_dlpack_for_write unravel_index
""")


Shape = int | Sequence[int]


def array(source_array: Any, ctx: Context | None = None, dtype: npt.DTypeLike | None = None) -> NDArray:
    """Return a new NDArray.

    Args:
        source_array: an array, or an object that numpy converts to one.
        ctx: a context of this host.
        dtype: default: that of an NDArray, float32 for everything else, numpy arrays included.
    """
    if dtype is None:
        dtype = source_array.dtype if isinstance(source_array, NDArray) else np.float32
    return _placed(np.array(source_array, dtype=dtype, order="C"), ctx)


def _placed(made: npt.NDArray[Any], ctx: Context | None) -> NDArray:
    placed = made.view(NDArray)
    placed._context = host_context(ctx)
    return placed


def empty(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array whose elements are not set."""
    return _placed(np.empty(shape, dtype or np.float32), ctx)


def zeros(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array of zeros."""
    return _placed(np.zeros(shape, dtype or np.float32), ctx)


def ones(shape: Shape, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32) -> NDArray:
    """Return an array of ones."""
    return _placed(np.ones(shape, dtype or np.float32), ctx)


def full(
    shape: Shape, val: Any, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32
) -> NDArray:
    """Return an array filled with `val`."""
    return _placed(np.full(shape, val, dtype or np.float32), ctx)


def zeros_like(data: Any) -> NDArray:
    """Return zeros in the shape and dtype of `data`."""
    return np.zeros_like(np.asarray(data), order="C").view(NDArray)


def ones_like(data: Any) -> NDArray:
    """Return ones in the shape and dtype of `data`."""
    return np.ones_like(np.asarray(data), order="C").view(NDArray)


def arange(
    start: float,
    stop: float | None = None,
    step: float = 1.0,
    repeat: int = 1,
    ctx: Context | None = None,
    dtype: npt.DTypeLike | None = np.float32,
) -> NDArray:
    """Return numbers from `start` up to but without `stop`, each `repeat` times."""
    numbers = np.arange(start, stop, step) if stop is not None else np.arange(0, start, step)
    return _placed(np.repeat(numbers, repeat).astype(dtype or np.float32), ctx)


def linspace(
    start: float,
    stop: float,
    num: int,
    endpoint: bool = True,
    ctx: Context | None = None,
    dtype: npt.DTypeLike | None = np.float32,
) -> NDArray:
    """Return `num` numbers at equal distances from `start` to `stop`."""
    return _placed(np.linspace(start, stop, num, endpoint).astype(dtype or np.float32), ctx)


def eye(
    N: int, M: int = 0, k: int = 0, ctx: Context | None = None, dtype: npt.DTypeLike | None = np.float32
) -> NDArray:
    """Return ones on the diagonal `k` of a matrix of zeros with N rows and M columns, by default N."""
    return _placed(np.eye(N, M or N, k, dtype or np.float32), ctx)


def _function(method: str) -> Callable[..., Any]:
    """Return the function for a method of NDArray, whose first argument is `data`."""
    work = getattr(NDArray, method)

    def call(data: Any, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        return _into(work(as_ndarray(data), *args, **kwargs), out)

    call.__name__ = call.__qualname__ = method
    call.__doc__ = (
        f"{work.__doc__}\n\n    See `NDArray.{method}`; `data` is the array, and `out` receives the result."
    )
    return call


def _into(result: Any, out: Any) -> Any:
    """Return a result, or write it to `out` and return that."""
    if out is None:
        return result
    out[...] = result
    return out


broadcast_axes = broadcast_axis = _function("broadcast_axes")
flatten = Flatten = _function("flatten")
flip = reverse = _function("flip")
max = max_axis = _function("max")
min = min_axis = _function("min")
split = SliceChannel = _function("split")
sum = sum_axis = _function("sum")


def swapaxes(data: Any, dim1: int = 0, dim2: int = 0, out: Any = None) -> Any:
    """Return a copy of `data` with two axes exchanged."""
    return _into(as_ndarray(data).swapaxes(dim1, dim2), out)


SwapAxis = swapaxes


def moveaxis(tensor: Any, source: int | Sequence[int], destination: int | Sequence[int]) -> NDArray:
    """Return a copy of an array with axes moved to other places."""
    return from_numpy(np.array(np.moveaxis(np.asarray(tensor), source, destination), order="C"))


def reshape(data: Any, shape: Any = (), out: Any = None, **kwargs: Any) -> Any:
    """Return a copy of `data` in another shape; see `NDArray.reshape`."""
    return _into(as_ndarray(data).reshape(shape, **kwargs).copy(), out)


Reshape = reshape


def cast(data: Any, dtype: npt.DTypeLike, out: Any = None) -> Any:
    """Return a copy of `data` with another dtype."""
    return _into(as_ndarray(data).astype(dtype), out)


Cast = cast


def stack(*data: Any, axis: int = 0, out: Any = None, **kwargs: Any) -> Any:
    """Stack arrays of one shape along a new axis. Takes arrays, or one list of them."""
    return _into(from_numpy(np.stack(_arrays(data), axis=axis)), out)


def concat(*data: Any, dim: int = 1, out: Any = None, **kwargs: Any) -> Any:
    """Concatenate arrays along the axis `dim`, by default 1. Takes arrays, or one list of them."""
    return _into(from_numpy(np.concatenate(_arrays(data), axis=dim)), out)


Concat = concat


def concatenate(arrays: Sequence[Any], axis: int = 0, always_copy: bool = True) -> NDArray:
    """Concatenate arrays along `axis`, by default 0; a single one is returned itself without `always_copy`."""
    if len(arrays) == 1 and not always_copy:
        return as_ndarray(arrays[0])
    return from_numpy(np.concatenate(_arrays(arrays), axis=axis))


def add_n(*args: Any, out: Any = None) -> Any:
    """Return the sum of arrays of one shape."""
    first, *others = _arrays(args)
    total = first.copy()
    for each in others:
        total += each
    return _into(from_numpy(total), out)


ElementWiseSum = add_n


def negative(data: Any, out: Any = None) -> Any:
    """Return the elements with the other sign."""
    return _into(-as_ndarray(data), out)


def cumsum(a: Any, axis: int | None = None, dtype: npt.DTypeLike | None = None, out: Any = None) -> Any:
    """Return the sums of the elements up to each one along an axis; without one, of the array as a vector."""
    values = np.asarray(a)
    return _into(from_numpy(np.cumsum(values, axis, dtype or values.dtype)), out)


def batch_dot(
    lhs: Any, rhs: Any, transpose_a: bool = False, transpose_b: bool = False, out: Any = None
) -> Any:
    """Return the products of the matrices of two batches, (n, rows, columns)."""
    first, second = np.asarray(lhs), np.asarray(rhs)
    first = first.swapaxes(1, 2) if transpose_a else first
    return _into(from_numpy(np.matmul(first, second.swapaxes(1, 2) if transpose_b else second)), out)


def gather_nd(data: Any, indices: Any, out: Any = None) -> Any:
    """Return the parts at `indices`, (axes, ...): their places along the first axes of `data`."""
    places = tuple(np.asarray(indices).astype(np.intp))
    return _into(from_numpy(np.array(np.asarray(data)[places])), out)


def _arrays(data: Sequence[Any]) -> list[npt.NDArray[Any]]:
    if len(data) == 1 and isinstance(data[0], list | tuple):
        data = data[0]
    return [np.asarray(one) for one in data]


def where(condition: Any, x: Any, y: Any, out: Any = None) -> Any:
    """Return elements of `x` where the condition is not 0, else of `y`; or rows, for one condition a row."""
    chosen, first, second = np.asarray(condition) != 0, np.asarray(x), np.asarray(y)
    if chosen.ndim == 1 and first.ndim > 1:
        chosen = chosen.reshape(-1, *[1] * (first.ndim - 1))
    return _into(from_numpy(np.where(chosen, first, second)), out)


def pad(
    data: Any,
    mode: str = "constant",
    pad_width: Sequence[int] = (),
    constant_value: float = 0,
    out: Any = None,
) -> Any:
    """Return `data` with more elements at both ends of its axes.

    Args:
        data: the array.
        mode: "constant", "edge" (repeats the last element) or "reflect".
        pad_width: two numbers for each axis, before and after.
        constant_value: the value with "constant".
        out: receives the result.
    """
    widths = np.reshape(pad_width, (-1, 2)).tolist()
    extra = {"constant_values": constant_value} if mode == "constant" else {}
    return _into(from_numpy(np.pad(np.asarray(data), widths, mode, **extra)), out)  # type: ignore[call-overload]


Pad = pad


def L2Normalization(data: Any, eps: float = 1e-10, mode: str = "instance", out: Any = None) -> Any:
    """Return `data` divided by its norm of order 2, the root of the sum of squares and `eps`.

    Args:
        data: (n, ...).
        eps: is added to the sum.
        mode: over which axes: "instance" all but the first, "channel" the second, "spatial" all behind the second.
        out: receives the result.

    Raises:
        ValueError: there is no such mode.
    """
    values = np.asarray(data)
    axes = {"instance": range(1, values.ndim), "channel": (1,), "spatial": range(2, values.ndim)}
    if mode not in axes:
        raise ValueError(f"mode must be one of {', '.join(axes)}, got {mode!r}")
    total = np.square(values).sum(axis=tuple(axes[mode]), keepdims=True, dtype=values.dtype)
    return _into(from_numpy(values / np.sqrt(total + values.dtype.type(eps))), out)


def _binary(name: str, work: Callable[[Any, Any], Any], text: str) -> Callable[..., Any]:
    """Return the function for an operator on two arrays, or an array and a number."""

    def call(lhs: Any, rhs: Any, out: Any = None) -> Any:
        first = as_ndarray(lhs) if isinstance(lhs, np.ndarray | list) else lhs
        second = as_ndarray(rhs) if isinstance(rhs, np.ndarray | list) else rhs
        found = work(first, second)
        return _into(found, out)

    call.__name__ = call.__qualname__ = name
    call.__doc__ = f"Return {text}, with broadcasting."
    return call


def _logical(work: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        like = lhs if isinstance(lhs, NDArray) else rhs
        return from_numpy(work(np.asarray(lhs), np.asarray(rhs)).astype(like.dtype))

    return call


def _selected(work: Callable[..., Any]) -> Callable[[Any, Any], Any]:
    def call(lhs: Any, rhs: Any) -> Any:
        found = work(lhs, rhs)
        return found if isinstance(found, np.ndarray) else found.item()  # of two numbers

    return call


# Operators on two arrays: the work, what it returns, and the names besides that with "broadcast_".
_OPERATORS_ON_TWO: dict[str, tuple[Callable[[Any, Any], Any], str, str]] = {
    "add": (operator.add, "the sum", "add broadcast_plus elemwise_add"),
    "sub": (operator.sub, "the difference", "subtract broadcast_minus elemwise_sub"),
    "mul": (operator.mul, "the product", "multiply elemwise_mul"),
    "div": (operator.truediv, "the quotient", "divide true_divide elemwise_div"),
    "hypot": (np.hypot, "the root of the sum of both squares", ""),
    "mod": (operator.mod, "the remainder", "modulo"),
    "power": (operator.pow, "the power", "power"),
    "maximum": (_selected(np.maximum), "the larger elements", "maximum"),
    "minimum": (_selected(np.minimum), "the smaller elements", "minimum"),
    "equal": (operator.eq, "1 where they are equal, else 0", "equal"),
    "not_equal": (operator.ne, "1 where they differ, else 0", "not_equal"),
    "greater": (operator.gt, "1 where the first is greater, else 0", "greater"),
    "greater_equal": (operator.ge, "1 where the first is not less, else 0", "greater_equal"),
    "lesser": (operator.lt, "1 where the first is less, else 0", "lesser"),
    "lesser_equal": (operator.le, "1 where the first is not greater, else 0", "lesser_equal"),
    "logical_and": (_logical(np.logical_and), "1 where both are not 0, else 0", "logical_and"),
    "logical_or": (_logical(np.logical_or), "1 where one is not 0, else 0", "logical_or"),
    "logical_xor": (_logical(np.logical_xor), "1 where exactly one is not 0, else 0", "logical_xor"),
}
for _name, (_work, _text, _aliases) in _OPERATORS_ON_TWO.items():
    _made = _binary(f"broadcast_{_name}", _work, _text)
    globals().update(dict.fromkeys((f"broadcast_{_name}", *_aliases.split()), _made))


def logical_not(data: Any, out: Any = None) -> Any:
    """Return 1 where an element is 0, else 0."""
    array = as_ndarray(data)
    return _into(from_numpy(np.logical_not(np.asarray(array)).astype(array.dtype)), out)


def waitall() -> None:
    """Do nothing: arrays are complete when they are returned."""


# Functions that are methods of NDArray of the same names.
_METHODS = names_in("""
    abs arccos arccosh arcsin arcsinh arctan arctanh argmax argmin argsort broadcast_like broadcast_to cbrt ceil
    clip cos cosh degrees diag dot exp expand_dims expm1 fix floor log log10 log1p log2 mean nanprod nansum norm
    one_hot pick prod radians rcbrt reciprocal repeat reshape_like rint round rsqrt shape_array sign sin sinh
    size_array slice slice_axis slice_like sort split_v2 sqrt square squeeze take tan tanh tile topk transpose
    trunc
""")
globals().update({name: _function(name) for name in _METHODS})

__all__ = exported(globals(), "NDArray", "from_numpy", module=__name__)

# Modules of MXNet's package with operators of networks.
_OUTSIDE = frozenset(("contrib", "linalg", "op"))


def __getattr__(name: str) -> Any:
    if name in ("image", "random", "sparse", "utils"):
        return module_elsewhere(__name__, name)
    if name == "imdecode":
        return importlib.import_module("aioloader.mxnet.ndarray_image").imdecode
    if name in ("normal", "random_normal", "random_randint", "random_uniform", "shuffle", "uniform"):
        return getattr(importlib.import_module("aioloader.mxnet.random"), name.removeprefix("random_"))
    if name in ("load", "load_frombuffer", "save"):
        return getattr(importlib.import_module("aioloader.mxnet.ndarray_file"), name)
    if name in _OUTSIDE:
        return outside_module(f"aioloader.mxnet.ndarray.{name}")
    if name in _OPERATORS:
        value = globals()[name] = outside_class(f"mx.nd.{name}")
        return value
    instead = f"; an NDArray is a numpy array: use numpy.{name}" if hasattr(np, name) else ""
    raise AttributeError(f"mx.nd.{name} is not part of aioloader.mxnet{instead}")
