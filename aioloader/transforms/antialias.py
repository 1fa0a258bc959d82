"""Antialiased resizing: where an image shrinks, the filter grows with the scale. Pure.

The weights are those of Pillow and of torchvision with ``antialias=True``; OpenCV's filters of these names do not grow.

Rule for bytes by "bilinear" and "bicubic": the weights of a pixel are whole multiples of 2**-15 whose sum is 1, columns
are filtered before rows, and each of the two rounds halves up to bytes, as torchvision does on a CPU. So every product
and every sum is a whole number below 2**24 in units of 2**-15, which float32 represents exactly: the result depends
neither on the order in which a matrix product adds, nor on the processor. A matrix product of a few rows at a time is
the fastest way that numpy has: the weights of neighbouring pixels overlap. Where the compiled part is used, it computes
the same sums in a seventh of the time.

Only Pillow has "box", "hamming" and "lanczos", so bytes are filtered with its weights, multiples of 2**-22; the sums
are exact in float64. Of both axes, Pillow 13 chooses which is first; before, and here, columns are.
"""

from __future__ import annotations

import threading
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.foundation.native import native

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array

Window = tuple[int, int, int, int]
"""(top, left, height, width) of a part of the result in pixels."""

_BITS = 15
_ONE = 1 << _BITS
_PILLOW_BITS = 22
# Rows of a result that are computed by one product. More: less overhead, more multiplications by zero.
_ROWS = 8
# Size in multiplications above which OpenBLAS would use threads, which compete with those of the other workers.
_PRODUCT = 1 << 18
_MOST_KEPT = 1 << 21  # float32 values that a thread keeps
_HAMMING, _HAMMING_COSINE = float(np.float32(0.54)), float(np.float32(0.46))
_local = threading.local()


class _Block(NamedTuple):
    """Neighbouring pixels of the result along an axis, and the weights of the source pixels that they are made of."""

    first: int
    stop: int
    source: slice
    weights: Array


class AxisFilter(NamedTuple):
    """Weights along one axis.

    Attributes:
        start, stop: range of source pixels that is read.
        extent: number of pixels of the result.
        blocks: the weights, by source pixels counted from `start`.
    """

    start: int
    stop: int
    extent: int
    blocks: tuple[_Block, ...]


def source_range(before: int, after: int, first: int, stop: int, *, kernel: str) -> tuple[int, int]:
    """Return the range of source pixels that some pixels of the result are made of.

    Args:
        before, after: extent of the source and of the whole result, pixels.
        first, stop: range of pixels of the result; not empty.
        kernel: "bilinear", "bicubic", "box", "hamming" or "lanczos".
    """
    scale = before / after
    support = max(scale, 1.0) * _KERNELS[kernel].support
    low = int(max(scale * (first + 0.5) - support + 0.5, 0))
    return low, min(int(scale * (stop - 0.5) + support + 0.5), before)


def _axis_weights(
    before: int, after: int, first: int, stop: int, *, kernel: str, whole: bool
) -> tuple[Array, Array, Array]:
    """Compute the weights of a range of pixels of a result; for the arguments see `axis_filter`.

    Returns:
        First source pixel of each pixel, and the one behind its last, intp (n,); weights, float64 (n, most).
    """
    scale = before / after
    grown = max(scale, 1.0)
    support = grown * _KERNELS[kernel].support
    centres = scale * (np.arange(first, stop) + 0.5)
    lows = np.maximum(centres - support + 0.5, 0).astype(np.intp)
    stops = np.minimum((centres + support + 0.5).astype(np.intp), before)
    places = lows[:, None] + np.arange((stops - lows).max())
    weights = _KERNELS[kernel].weigh((places - centres[:, None] + 0.5) * (1 / grown))
    weights[places >= stops[:, None]] = 0
    weights /= weights.sum(1, keepdims=True)
    if whole and kernel in _OF_PILLOW:
        weights = np.trunc(weights * (1 << _PILLOW_BITS) + np.copysign(0.5, weights))
    elif whole:
        weights = np.rint(weights * _ONE)
        # What rounding took from the sum goes to the greatest weight, so that an even surface stays what it is.
        weights[np.arange(len(weights)), weights.argmax(1)] += _ONE - weights.sum(1)
    return lows, stops, weights


@lru_cache(maxsize=512)
def axis_filter(before: int, after: int, first: int, stop: int, *, kernel: str, whole: bool) -> AxisFilter:
    """Compute the weights for a range of pixels of a result.

    Args:
        before, after, first, stop, kernel: see `source_range`.
        whole: the weights are whole numbers with sum 2**15, or Pillow's, with a sum near 2**22; otherwise floating,
            with sum 1.
    """
    lows, stops, weights = _axis_weights(before, after, first, stop, kernel=kernel, whole=whole)
    start, end = int(lows[0]), int(stops[-1])
    # The pixels' ranges only move forward. A block begins with that of its first pixel, and ends with that of its last.
    firsts = np.arange(0, stop - first, _ROWS)
    ends = np.minimum(firsts + _ROWS, stop - first)
    lowest, highest = lows[firsts], stops[ends - 1]
    matrices = np.zeros((len(firsts), _ROWS, int((highest - lowest).max()) + weights.shape[1]), np.float32)
    rows = np.arange(stop - first)
    block = rows // _ROWS
    places = (lows - lowest[block])[:, None] + np.arange(weights.shape[1])
    matrices[block[:, None], (rows % _ROWS)[:, None], places] = weights
    blocks = tuple(
        _Block(at, upto, slice(low - start, high - start), matrix[: upto - at, : high - low].copy())
        for matrix, at, upto, low, high in zip(
            matrices, *(values.tolist() for values in (firsts, ends, lowest, highest)), strict=True
        )
    )
    return AxisFilter(start, end, stop - first, blocks)


@lru_cache(maxsize=1024)
def axis_table(before: int, after: int, first: int, stop: int, *, kernel: str) -> Array:
    """Compute the weights of bytes for a range of pixels of a result, as the compiled part takes them.

    Args:
        before, after, first, stop: see `source_range`.
        kernel: "bilinear" or "bicubic".

    Returns:
        int32 (stop - first, 1 + most weights of a pixel): the first source pixel, which only moves forward, and the
        weights from there on.
    """
    lows, _, weights = _axis_weights(before, after, first, stop, kernel=kernel, whole=True)
    most = weights.shape[1]
    table = np.empty((stop - first, 1 + most), np.int32)
    starts = np.minimum(lows, before - most, out=table[:, 0])
    table[:, 1:] = weights
    # At the end fewer weights are left than elsewhere: zeros come before them.
    for row in np.flatnonzero(lows > starts):
        shift = lows[row] - starts[row]
        table[row, 1:] = 0
        table[row, 1 + shift :] = weights[row, : most - shift]
    return table


def _cubic(x: Array) -> Array:
    """Evaluate the cubic convolution kernel (Keys, 1981) with a = -1/2."""
    x = np.abs(x)
    inner = (1.5 * x - 2.5) * x * x + 1
    outer = ((-0.5 * x + 2.5) * x - 4) * x + 2
    return np.where(x < 1, inner, np.where(x < 2, outer, 0.0))


def _hamming(x: Array) -> Array:
    """Evaluate Pillow's Hamming kernel, whose two float32 numbers have a sum above 1, and which is 1 at 0."""
    inside = np.where(x == 0, 1.0, np.sinc(x) * (_HAMMING + _HAMMING_COSINE * np.cos(np.pi * x)))
    return np.where(np.abs(x) < 1, inside, 0.0)


def _lanczos(x: Array) -> Array:
    return np.where((x >= -3) & (x < 3), np.sinc(x) * np.sinc(x / 3), 0.0)


class _Kernel(NamedTuple):
    """A filter.

    Attributes:
        support: distance from which on it is 0, in pixels of the smaller of the two images.
        weigh: function of signed distances, float64.
    """

    support: float
    weigh: Callable[[Array], Array]


_KERNELS = {
    "bilinear": _Kernel(1, lambda x: np.maximum(1 - np.abs(x), 0)),
    "bicubic": _Kernel(2, _cubic),
    "box": _Kernel(0.5, lambda x: ((x > -0.5) & (x <= 0.5)).astype(np.float64)),
    "hamming": _Kernel(1, _hamming),
    "lanczos": _Kernel(3, _lanczos),
}
_OF_PILLOW = frozenset(("box", "hamming", "lanczos"))


def resize_antialiased(
    x: Array, size: tuple[int, int], out: Array, *, kernel: str, window: Window | None = None
) -> None:
    """Resize an image.

    Args:
        x: (height, width, channels), not empty, may be a view; uint8, or any dtype that float32 can hold.
        size: (height, width) of the whole result.
        out: array for the result, or for the `window`, C-contiguous, of the dtype of `x`. Integers are rounded and
            clamped.
        kernel: see `source_range`.
        window: part of the result that is made; None for all of it.
    """
    top, left, height, width = window or (0, 0, *size)
    bytes_only = x.dtype == np.uint8
    if native is not None and bytes_only and kernel not in _OF_PILLOW and x.shape[2] in (1, 3, 4):
        _resize_in_c(x, size, out, kernel, (top, left, height, width))
        return
    rows = axis_filter(x.shape[0], size[0], top, top + height, kernel=kernel, whole=bytes_only)
    columns = axis_filter(x.shape[1], size[1], left, left + width, kernel=kernel, whole=bytes_only)
    # An axis that keeps its extent is cut, not filtered.
    across = slice(left, left + width) if x.shape[1] == size[1] else slice(columns.start, columns.stop)
    down = slice(top, top + height) if x.shape[0] == size[0] else slice(rows.start, rows.stop)
    source = x[down, across]
    channels, cubic = x.shape[2], kernel == "bicubic"
    if bytes_only and kernel in _OF_PILLOW:
        if x.shape[1] != size[1]:
            source = _as_pillow(source.transpose(1, 0, 2), columns).transpose(1, 0, 2)
        out[...] = source if x.shape[0] == size[0] else _as_pillow(source, rows)
        return
    if bytes_only:
        if x.shape[1] != size[1]:
            turned = _turned(source)
            made = np.empty((width, *turned.shape[1:]), np.uint8)
            _filter_bytes(turned.reshape(len(turned), -1), columns, made.reshape(width, -1), clamp=cubic)
            source = _turned(made)
        if x.shape[0] != size[0]:
            source = np.ascontiguousarray(source)
            _filter_bytes(
                source.reshape(len(source), -1), rows, out.reshape(height, width * channels), clamp=cubic
            )
        else:
            out[...] = source
        return
    floating: Any = source.astype(np.float64 if x.dtype == np.float64 else np.float32)
    if x.shape[1] != size[1]:
        floating = _filter(floating.transpose(1, 0, 2), columns).transpose(1, 0, 2)
    if x.shape[0] != size[0]:
        floating = _filter(floating, rows)
    if x.dtype.kind in "iu":
        limits = np.iinfo(x.dtype)
        floating = np.clip(np.floor(floating + 0.5), limits.min, limits.max)
    out[...] = floating


def _resize_in_c(x: Array, size: tuple[int, int], out: Array, kernel: str, window: Window) -> None:
    """Resize bytes by the compiled part; see `resize_antialiased`."""
    assert native is not None
    top, left, height, width = window
    rows = columns = None
    if x.shape[0] == size[0]:
        x = x[top : top + height]
    else:
        rows = axis_table(x.shape[0], size[0], top, top + height, kernel=kernel)
    if x.shape[1] == size[1]:
        x = x[:, left : left + width]
    else:
        columns = axis_table(x.shape[1], size[1], left, left + width, kernel=kernel)
    if rows is columns is None:
        out[...] = x
        return
    if x.strides[1:] != (x.shape[2], 1) or x.strides[0] < x.shape[1] * x.shape[2]:
        x = np.ascontiguousarray(x)
    native.resize(x, out, columns, rows)


def _turned(x: Array) -> Array:
    """Exchange rows and columns, into new memory."""
    import cv2

    if x.shape[2] <= 4:
        turned: Any = cv2.transpose(x)
        found: Array = turned.reshape(x.shape[1], x.shape[0], x.shape[2])
        return found
    return np.ascontiguousarray(x.transpose(1, 0, 2))


# Some libraries of linear algebra, such as that of numpy on Arm, raise flags for products that are right.
@np.errstate(all="ignore")
def _filter_bytes(x: Array, axis: AxisFilter, out: Array, *, clamp: bool) -> None:
    """Filter along the first axis; uint8 (n, m) to uint8 (extent, m). Sums may be negative only with `clamp`."""
    import cv2

    across = x.shape[1]
    width = max(1, min(across, _PRODUCT // (_ROWS * max(block.weights.shape[1] for block in axis.blocks))))
    memory: Array | None = getattr(_local, "memory", None)
    needed = x.size + _ROWS * across
    if memory is None or memory.size < needed:
        memory = np.empty(needed, np.float32)
        if needed <= _MOST_KEPT:
            _local.memory = memory
    floats = memory[: x.size].reshape(x.shape)
    np.copyto(floats, x)
    for block in axis.blocks:
        sums = memory[x.size : x.size + (block.stop - block.first) * across].reshape(-1, across)
        for at in range(0, across, width):
            np.matmul(block.weights, floats[block.source, at : at + width], out=sums[:, at : at + width])
        if clamp:
            np.maximum(sums, 0, out=sums)  # the conversion takes absolute values
        # It rounds halves to even numbers: half a unit more makes them round up, and changes no other value.
        target = out[block.first : block.stop]
        made = cv2.convertScaleAbs(sums, dst=target, alpha=1 / _ONE, beta=0.5 / _ONE)
        if made is not target:
            target[...] = made


def _as_pillow(x: Array, axis: AxisFilter) -> Array:
    """Filter along the first axis; uint8 (n, a, b) to (extent, a, b), rounded as Pillow does."""
    one = 1 << _PILLOW_BITS
    sums = _filter(x.astype(np.float64), axis)
    return np.clip(np.floor((sums + one / 2) / one), 0, 255).astype(np.uint8)


@np.errstate(all="ignore")
def _filter(x: Array, axis: AxisFilter) -> Array:
    """Filter along the first axis; floating (n, a, b) to (extent, a, b)."""
    flat = np.ascontiguousarray(x).reshape(len(x), -1)
    made = np.empty((axis.extent, flat.shape[1]), x.dtype)
    for block in axis.blocks:
        np.matmul(block.weights, flat[block.source], out=made[block.first : block.stop])
    return made.reshape(axis.extent, *x.shape[1:])
