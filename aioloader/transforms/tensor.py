"""Conversion of pixels to the input of a model: dtype, axis order, normalisation."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.transforms.base import Transform, check_image, result_array

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.rng import Rng

IMAGENET_MEAN = (0.485, 0.456, 0.406)
"""Mean of ImageNet's training pixels, red, green, blue, on the scale 0 to 1: for `Normalize` after `ToTensor`."""

IMAGENET_STD = (0.229, 0.224, 0.225)
"""Standard deviation of ImageNet's training pixels; see `IMAGENET_MEAN`."""

_FLOAT32 = np.dtype(np.float32)
_UINT8 = np.dtype(np.uint8)
_255 = np.float32(255.0)


class Cast(Transform):
    """Another dtype, values converted as `numpy.ndarray.astype` does (no scaling, no saturation). No draws.

    An array that has the dtype already is returned unchanged.

    Args:
        dtype: anything that `numpy.dtype` takes.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        self.dtype = np.dtype(dtype)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        array = np.asarray(x)
        if array.dtype == self.dtype:
            return array
        result = result_array(array, array.shape, self.dtype, out)
        np.copyto(result, array, casting="unsafe")
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return None if spec is None else ArraySpec(spec.shape, self.dtype)

    def __repr__(self) -> str:
        return f"Cast(dtype={self.dtype.name!r})"


class ToDtype(Transform):
    """Another dtype, as torchvision's of this name; with `scale`, values fill the range of the dtype. No draws.

    The range of integers is 0 to their maximum, that of floating dtypes 0 to 1. With `scale`, integers become floating
    by a factor of 1 / maximum; floating numbers become integers by a factor of just below maximum + 1, and fractions
    are cut off; between integers, values are shifted by the difference in bits. An array that has the dtype already
    is returned unchanged. The order of the axes is kept: `ToTensor` moves the channels to the front as well.

    Args:
        dtype: anything that `numpy.dtype` takes, or a dtype of torch.
        scale: change the range of the values too.

    Raises:
        TypeError: with `scale`, when it is applied: a dtype is neither floating nor a whole number, or is too small
            for the maximum (float32 to int32).
    """

    def __init__(self, dtype: Any, scale: bool = False) -> None:
        self.dtype = np.dtype(
            str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype
        )
        self.scale = bool(scale)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        array = np.asarray(x)
        if array.dtype == self.dtype:
            return array
        result = result_array(array, array.shape, self.dtype, out)
        if self.scale:
            _scale(array, result)
        else:
            np.copyto(result, array, casting="unsafe")
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return None if spec is None else ArraySpec(spec.shape, self.dtype)

    def __repr__(self) -> str:
        return f"ToDtype(dtype={self.dtype.name!r}, scale={self.scale!r})"


def _scale(x: Array, result: Array) -> None:
    """Write values with another range, see `ToDtype`."""
    source, target = x.dtype, result.dtype
    for dtype in (source, target):
        if dtype.kind not in "iuf":
            raise TypeError(f"ToDtype(scale=True) converts whole and floating numbers, got {dtype}")
    if source.kind == "f" and target.kind == "f":
        np.copyto(result, x, casting="unsafe")
    elif target.kind == "f":
        # Half precision is computed with more, as torch does.
        wide = np.dtype(np.float64) if target.itemsize == 8 else _FLOAT32
        if np.iinfo(source).max > float(np.finfo(target).max):
            raise TypeError(f"ToDtype(scale=True): {target} is not exact enough for the range of {source}")
        factor = wide.type(1.0 / np.iinfo(source).max)
        np.multiply(x.astype(target), factor, out=result, dtype=wide, casting="unsafe")
    elif source.kind == "f":
        if target.itemsize >= source.itemsize:
            raise TypeError(f"ToDtype(scale=True): {source} is not exact enough for the range of {target}")
        wide = source if source.itemsize >= 4 else _FLOAT32
        factor = wide.type(float(np.iinfo(target).max) + 1.0 - 1e-3)
        np.copyto(result, np.multiply(x, factor, dtype=wide).astype(source), casting="unsafe")
    else:
        bits = int(np.iinfo(source).max).bit_length() - int(np.iinfo(target).max).bit_length()
        if bits > 0:
            np.copyto(result, np.right_shift(x, bits), casting="unsafe")
        else:
            np.left_shift(x.astype(target), -bits, out=result)


class ToTensor(Transform):
    """float32 with channels first, divided by 255; any dtype in, nothing clipped. No draws.

    (height, width, channels) becomes (channels, height, width), and (n, height, width, channels) becomes (n, channels,
    height, width); uint8 pixels are between 0 and 1 afterwards. Floats are divided too, as Gluon's `ToTensor` does
    (torchvision's does not), so it must not follow ``ToDtype(..., scale=True)`` or another `ToTensor`.
    """

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "ToTensor", (3, 4))
        moved = np.moveaxis(image, -1, -3) if image.ndim == 4 else image.transpose(2, 0, 1)
        result = result_array(image, moved.shape, _FLOAT32, out)
        if image.dtype == _UINT8 and image.size and 1 < image.shape[-1] <= 4:
            import cv2

            # Splitting in uint8 first is twice as fast as dividing across the strides of interleaved channels.
            images, places = (image, result) if image.ndim == 4 else ((image,), (result,))
            for one, planes in zip(images, places, strict=True):
                for plane, place in zip(cv2.split(one), planes, strict=True):
                    np.divide(plane, _255, out=place)
        else:
            np.divide(moved, _255, out=result, dtype=_FLOAT32, casting="unsafe")
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        return ArraySpec((*spec.shape[:-3], spec.shape[-1], *spec.shape[-3:-1]), _FLOAT32)


class Normalize(Transform):
    """``(x - mean) / std`` per channel, for (channels, height, width) or (n, channels, height, width). No draws.

    A floating dtype is kept. Integers, which cannot hold the result, become float32: note that `mean` and `std` must
    then be on the scale of the integers; after `ToTensor` they are on the scale 0 to 1.

    Args:
        mean, std: one number, or one per channel; no `std` may be zero.

    Raises:
        ValueError: a `std` is zero, or `mean` and `std` are for different numbers of channels.
    """

    in_place = True

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        self.mean = self._check(mean, "mean")
        self.std = self._check(std, "std")
        if not np.all(self._column(self.std)):
            raise ValueError(f"Normalize: std must not be zero, got {std!r}")
        channels = {len(side) for side in (self.mean, self.std) if isinstance(side, tuple)} - {1}
        if len(channels) > 1:
            raise ValueError(f"Normalize: mean and std differ in length, got {mean!r} and {std!r}")
        self._channels = max(channels, default=1)
        self._mean = self._column(self.mean)
        self._std = self._column(self.std)

    @staticmethod
    def _check(value: Any, name: str) -> float | tuple[float, ...]:
        array = np.asarray(value, np.float64)
        if array.ndim > 1 or array.size == 0 or not np.all(np.isfinite(array)):
            raise ValueError(f"Normalize: {name} must be a number, or one per channel, got {value!r}")
        return float(array) if array.ndim == 0 else tuple(array.tolist())

    @staticmethod
    def _column(value: float | tuple[float, ...]) -> Array:
        return np.asarray(value, np.float32).reshape(-1, 1, 1)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        if not isinstance(x, np.ndarray) or x.ndim not in (3, 4):
            got = f"shape {x.shape}" if isinstance(x, np.ndarray) else type(x).__name__
            raise ValueError(
                f"Normalize takes an array (channels, height, width), with n in front or not, got {got}"
            )
        if self._channels not in (1, x.shape[-3]):
            raise ValueError(
                f"Normalize has a mean and std of {self._channels} channels, got shape {x.shape}; "
                "channels come first: use ToTensor before"
            )
        dtype = x.dtype if x.dtype.kind == "f" else _FLOAT32
        result = result_array(x, x.shape, dtype, out, in_place=True)
        np.subtract(x, self._mean, out=result, dtype=dtype, casting="unsafe")
        np.divide(result, self._std, out=result, dtype=dtype, casting="unsafe")
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or spec.dtype.kind == "f":
            return spec
        return ArraySpec(spec.shape, _FLOAT32)
