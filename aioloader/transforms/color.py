"""Changes of colours, by given amounts and by drawn ones, and of levels by tables.

A random transform draws its amounts before the image is read, so the number of draws never depends on it.

Luma is 0.299 R + 0.587 G + 0.114 B (ITU-R BT.601). uint8 results are rounded to the nearest value and saturate;
float32 results are not clipped. All take (height, width, channels); those that mix channels need RGB.

Invert, posterize, solarize, autocontrast and equalize are torchvision's (version 2): of uint8 (height, width, 1 or 3),
with the same bytes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.transforms.base import (
    Transform,
    check_image,
    check_probability,
    drop_grey_axis,
    result_array,
)

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, ArraySpec
    from aioloader.rng import Rng


_LUMA = np.array([0.299, 0.587, 0.114])
_UINT8 = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)
_STRIP = 8192
"""Pixels whose colours are changed at a time if that needs temporaries in float32."""

# Principal components of ImageNet's colours (Krizhevsky et al., 2012), with MXNet's values, on the scale 0 to 255.
_EIGENVALUES = np.array([55.46, 4.794, 1.148])
_EIGENVECTORS = np.array([[-0.5675, 0.7192, 0.4009], [-0.5808, -0.0045, -0.8140], [-0.5836, -0.6948, 0.4203]])
# Greatest hue, lightness and saturation in OpenCV's HLS of bytes.
_HLS_LIMITS = (180, 255, 255)


def _check(x: Any, name: str, rgb: bool = False) -> Array:
    image = check_image(x, name)
    if image.dtype != _UINT8 and image.dtype != _FLOAT32:
        raise TypeError(f"{name} takes uint8 or float32, got {image.dtype}")
    if (rgb and image.shape[2] != 3) or image.shape[2] not in (1, 3):
        wanted = "3 channels (RGB)" if rgb else "1 or 3 channels"
        raise ValueError(f"{name} takes an image of {wanted}, got shape {image.shape}")
    if image.dtype == _FLOAT32 and not image.flags.c_contiguous:
        # OpenCV's rounding of floats depends on the memory layout; results must not.
        return np.ascontiguousarray(image)
    return image


def _linear(x: Array, scale: float, offset: float, out: Array | None) -> Array:
    """Compute ``x * scale + offset``."""
    result = result_array(x, x.shape, x.dtype, out, in_place=True)
    if x.size == 0:
        return result
    if x.dtype == _UINT8:
        import cv2

        source = drop_grey_axis(x)
        cv2.addWeighted(source, scale, source, 0.0, offset, dst=drop_grey_axis(result))
    else:
        np.multiply(x, np.float32(scale), out=result)
        if offset:
            np.add(result, np.float32(offset), out=result)
    return result


def _mix(x: Array, matrix: Array, out: Array | None) -> Array:
    """Multiply every pixel by a (3, 3) matrix, or by a (3, 4) matrix whose last column is added."""
    result = result_array(x, x.shape, x.dtype, out, in_place=True)
    if x.size:
        import cv2

        cv2.transform(x, matrix, dst=result)
    return result


def adjust_brightness(x: Any, factor: float, out: Array | None = None) -> Array:
    """Compute ``x * factor``; factor >= 0, 1 changes nothing."""
    image = _check(x, "adjust_brightness")
    return image if factor == 1.0 else _linear(image, factor, 0.0, out)


def adjust_contrast(x: Any, factor: float, out: Array | None = None) -> Array:
    """Compute ``x * factor + (1 - factor) * m``, m the mean luma of the image (one number); 1 changes nothing."""
    image = _check(x, "adjust_contrast")
    if factor == 1.0 or image.size == 0:
        return image
    import cv2

    means = cv2.mean(drop_grey_axis(image))
    mean = means[0] if image.shape[2] == 1 else float(np.dot(_LUMA, means[:3]))
    return _linear(image, factor, (1.0 - factor) * mean, out)


def adjust_saturation(x: Any, factor: float, out: Array | None = None, *, truncate: bool = False) -> Array:
    """Compute ``x * factor + (1 - factor) * luma`` with the luma of the same pixel; 1 changes nothing. RGB.

    uint8: within one level of the exact value (OpenCV computes with 10-bit weights).

    Args:
        x: the image.
        factor: at least 0.
        out: as for `Transform.apply`.
        truncate: uint8 values are rounded down, as torchvision's are, not to the nearest one.
    """
    image = _check(x, "adjust_saturation", rgb=True)
    if factor == 1.0:
        return image
    matrix = factor * np.eye(3) + (1.0 - factor) * _LUMA
    if truncate and image.dtype == _UINT8:
        matrix = np.hstack([matrix, np.full((3, 1), -0.5)])
    return _mix(image, matrix, out)


def _adjust_saturation(x: Any, factor: float, out: Array | None = None) -> Array:
    return adjust_saturation(x, factor, out, truncate=True)


def to_gray(x: Any, out: Array | None = None) -> Array:
    """Set all three channels to the luma of the pixel. RGB."""
    image = _check(x, "to_gray", rgb=True)
    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    if image.size:
        import cv2

        cv2.cvtColor(cv2.cvtColor(image, cv2.COLOR_RGB2GRAY), cv2.COLOR_GRAY2RGB, dst=result)
    return result


def adjust_hue(x: Any, turns: float, out: Array | None = None) -> Array:
    """Rotate the hue by `turns` of the colour circle (1 is 360 degrees), in HSV; 0 changes nothing. RGB.

    Computed in float32, so that uint8 colours are not coarsened in between. Float values must not be negative.
    """
    image = _check(x, "adjust_hue", rgb=True)
    if turns == 0.0 or image.size == 0:
        return image
    import cv2

    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    shift = np.float32((turns % 1.0) * 360.0)
    # In strips that stay in the cache: large temporaries cost more in page faults than the conversion of colours.
    rows = max(1, _STRIP // image.shape[1])
    for top in range(0, image.shape[0], rows):
        strip, place = image[top : top + rows], result[top : top + rows]
        exact = strip.astype(np.float32, copy=False)
        hsv: Any = cv2.cvtColor(exact, cv2.COLOR_RGB2HSV)
        # OpenCV wraps hues of 360 degrees and more around the circle, but not negative ones.
        hsv[:, :, 0] += shift
        if image.dtype == _FLOAT32:
            cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB, dst=place)
        else:
            cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB, dst=exact)
            cv2.convertScaleAbs(exact, dst=place)
    return result


def adjust_lighting(x: Any, weights: Array, out: Array | None = None) -> Array:
    """Add to every pixel the principal components of ImageNet's colours, times `weights` (3,). RGB.

    On the scale 0 to 255, for uint8 and float32 alike.
    """
    image = _check(x, "adjust_lighting", rgb=True)
    offset = (_EIGENVECTORS * weights) @ _EIGENVALUES
    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    if image.dtype == _FLOAT32:
        np.add(image, offset.astype(np.float32), out=result)
    elif image.size:
        import cv2

        levels = np.arange(256.0)[:, None] + offset
        cv2.LUT(image, np.clip(np.rint(levels), 0, 255).astype(np.uint8)[None], dst=result)
    return result


def shift_hls(x: Array, hue: int, lightness: int, saturation: int, out: Array | None = None) -> Array:
    """Add to hue, lightness and saturation; each saturates at its limits.

    Args:
        x: uint8 (height, width, 3) RGB.
        hue: in steps of 2 degrees, on a scale of 0 to 180 that does not wrap around.
        lightness, saturation: on the scale 0 to 255.
        out: as for `Transform.apply`; may be `x` itself.

    Raises:
        TypeError, ValueError: not a uint8 image of 3 channels.
    """
    image = check_image(x, "shift_hls")
    if image.dtype != np.uint8:
        raise TypeError(f"shift_hls takes uint8, got {image.dtype}")
    if image.shape[2] != 3:
        raise ValueError(f"shift_hls takes an image of 3 channels (RGB), got shape {image.shape}")
    if not (hue or lightness or saturation) or not image.size:
        return image
    import cv2

    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    levels = np.arange(256)[:, None] + np.array([hue, lightness, saturation])
    table = np.clip(levels, 0, _HLS_LIMITS).astype(np.uint8)[None]
    colours = cv2.cvtColor(image, cv2.COLOR_RGB2HLS)
    cv2.LUT(colours, table, dst=colours)
    cv2.cvtColor(colours, cv2.COLOR_HLS2RGB, dst=result)
    return result


# In the order of the parameters of `ColorJitter`, on which the draws depend.
_ADJUST = {
    "brightness": adjust_brightness,
    "contrast": adjust_contrast,
    "saturation": adjust_saturation,
    "hue": adjust_hue,
}


def _check_amount(value: float, name: str, what: str) -> float:
    if not 0.0 <= value < math.inf:
        raise ValueError(f"{name}: {what} must be a finite number >= 0, got {value!r}")
    return float(value)


def _draw(what: str, amount: float, rng: Rng) -> float:
    """Draw a factor in [max(0, 1 - amount), 1 + amount), or for hue a rotation in [-amount, amount)."""
    return rng.uniform(*_range_of(what, amount))


class _RandomAdjust(Transform):
    """Base of the changes of one property; the greatest change is the attribute with the name of the property."""

    in_place = True
    _what: ClassVar[str]

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        what = self._what
        return _ADJUST[what](x, _draw(what, getattr(self, what), rng), out)


class RandomBrightness(_RandomAdjust):
    """Multiplication of all values by a factor. One draw.

    Args:
        brightness: the factor is uniform in [max(0, 1 - brightness), 1 + brightness).
    """

    _what = "brightness"

    def __init__(self, brightness: float) -> None:
        self.brightness = _check_amount(brightness, type(self).__name__, self._what)


class RandomContrast(_RandomAdjust):
    """Change of the contrast by a factor, around the image's mean luma. One draw.

    Args:
        contrast: the factor is uniform in [max(0, 1 - contrast), 1 + contrast).
    """

    _what = "contrast"

    def __init__(self, contrast: float) -> None:
        self.contrast = _check_amount(contrast, type(self).__name__, self._what)


class RandomSaturation(_RandomAdjust):
    """Change of the saturation by a factor, around every pixel's luma. One draw.

    Args:
        saturation: the factor is uniform in [max(0, 1 - saturation), 1 + saturation).
    """

    _what = "saturation"

    def __init__(self, saturation: float) -> None:
        self.saturation = _check_amount(saturation, type(self).__name__, self._what)


class RandomHue(_RandomAdjust):
    """Rotation of the hue. One draw.

    Args:
        hue: the rotation is uniform in [-hue, hue) of the colour circle; 0.5 reaches every hue.
    """

    _what = "hue"

    def __init__(self, hue: float) -> None:
        self.hue = _check_amount(hue, type(self).__name__, self._what)


class FreeColorJitter(Transform):
    """Changes of brightness, contrast, saturation and hue by drawn amounts, in a drawn order; those of 0 are left out.

    Draws: with k amounts above 0, k - 1 for the order, then one for each in that order.

    Args:
        brightness, contrast, saturation, hue: as for `RandomBrightness`, `RandomContrast`, `RandomSaturation` and
            `RandomHue`. All 0: the image is returned unchanged.

    Raises:
        ValueError: an amount is negative, or not finite.
    """

    in_place = True

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
    ) -> None:
        name = type(self).__name__
        self.brightness = _check_amount(brightness, name, "brightness")
        self.contrast = _check_amount(contrast, name, "contrast")
        self.saturation = _check_amount(saturation, name, "saturation")
        self.hue = _check_amount(hue, name, "hue")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        amounts = vars(self)
        ranges = {what: _range_of(what, amounts[what]) for what in _ADJUST if amounts[what] > 0.0}
        return _jittered(check_image(x, type(self).__name__), ranges, rng, out)


class ColorJitter(Transform):
    """Changes of brightness, contrast, saturation and hue by drawn factors, in a drawn order, as torchvision's.

    Draws: with k properties that may change, k - 1 for the order, then one for each in that order.

    Args:
        brightness, contrast, saturation: the factor is uniform in [max(0, 1 - value), 1 + value), or in the range
            (least, most) that is passed; 0: not changed.
        hue: the rotation is uniform in [-hue, hue) of the colour circle, at most 0.5; or in the range that is passed,
            from -0.5 to 0.5; 0: not changed.

    Raises:
        ValueError: a value is out of its range.
    """

    in_place = True

    def __init__(
        self,
        brightness: float | Sequence[float] = 0.0,
        contrast: float | Sequence[float] = 0.0,
        saturation: float | Sequence[float] = 0.0,
        hue: float | Sequence[float] = 0.0,
    ) -> None:
        self.brightness = brightness
        self.contrast = contrast
        self.saturation = saturation
        self.hue = hue
        given = {"brightness": brightness, "contrast": contrast, "saturation": saturation, "hue": hue}
        self._ranges = {what: _check_range(what, value) for what, value in given.items()}

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        ranges = {what: found for what, found in self._ranges.items() if found is not None}
        adjust = {**_ADJUST, "saturation": _adjust_saturation}
        return _jittered(check_image(x, "ColorJitter"), ranges, rng, out, adjust)

    def _arguments(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_ranges"}


def _range_of(what: str, amount: float) -> tuple[float, float]:
    """Return the ends of the factors of an amount; for hue those of the rotation."""
    return (-amount, amount) if what == "hue" else (max(0.0, 1.0 - amount), 1.0 + amount)


def _check_range(what: str, value: float | Sequence[float]) -> tuple[float, float] | None:
    """Return the range of the factors of a property; None if it is not changed."""
    if isinstance(value, Sequence):
        ends = tuple(map(float, value))
        if len(ends) != 2:
            raise ValueError(f"ColorJitter: {what} must be a number or a range of two, got {value!r}")
        low, high = ends
    else:
        low, high = _range_of(what, _check_amount(value, "ColorJitter", what))
    least, most = (-0.5, 0.5) if what == "hue" else (0.0, math.inf)
    if not least <= low <= high <= most or high == math.inf:
        raise ValueError(f"ColorJitter: {what} must be within {least} and {most}, got {value!r}")
    return None if low == high == (0.0 if what == "hue" else 1.0) else (low, high)


def _jittered(
    image: Array,
    ranges: Mapping[str, tuple[float, float]],
    rng: Rng,
    out: Array | None,
    adjust: Mapping[str, Any] = _ADJUST,
) -> Any:
    order = list(ranges)
    rng.shuffle(order)
    drawn = [(what, rng.uniform(*ranges[what])) for what in order]
    result = image
    for what, amount in drawn:
        # From the second change on the memory belongs to this call, and is changed in place.
        result = adjust[what](result, amount, out if result is image else result)
    return result


class RandomLighting(Transform):
    """Addition of ImageNet's principal colours with drawn weights (Krizhevsky et al., 2012). Three normal draws.

    On the scale 0 to 255, for uint8 and float32 alike.

    Args:
        alpha: standard deviation of the weights; 0.1 in the paper.

    Raises:
        ValueError: `alpha` is negative, or not finite.
    """

    in_place = True

    def __init__(self, alpha: float) -> None:
        self.alpha = _check_amount(alpha, type(self).__name__, "alpha")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        weights = np.array([rng.normal(0.0, self.alpha) for _ in range(3)])
        return adjust_lighting(x, weights, out)


class Grayscale(Transform):
    """Replacement of the colours by their luma. No draw.

    Args:
        num_output_channels: 1: (height, width, 1); 3: three equal channels.

    Raises:
        ValueError: it is neither 1 nor 3.
    """

    def __init__(self, num_output_channels: int = 1) -> None:
        if num_output_channels not in (1, 3):
            raise ValueError(f"Grayscale: num_output_channels must be 1 or 3, got {num_output_channels!r}")
        self.num_output_channels = num_output_channels

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Grayscale")
        if image.shape[2] == 1:
            return image if self.num_output_channels == 1 else np.repeat(image, 3, 2)
        if self.num_output_channels == 3:
            return to_gray(image, out)
        return np.ascontiguousarray(to_gray(image)[:, :, :1])

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        return replace(spec, shape=(*spec.shape[:2], self.num_output_channels))


class RandomGrayscale(Transform):
    """Replacement of the colours by their luma with probability `p`; 3 channels are kept. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    in_place = True

    def __init__(self, p: float = 0.1) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return to_gray(x, out) if rng.random() < self.p else x


class RandomHLS(Transform):
    """Shifts of hue, lightness and saturation by drawn amounts; uint8 (height, width, 3) RGB, shape and dtype kept.

    Each amount is a whole number in [-v, v]: ``2 * v * u - v``, rounded towards 0, where u is a uniform number plus
    four times another one, divided by 5. Draws: two for each, in the order hue, saturation, lightness.

    Args:
        hue: greatest shift, in steps of 2 degrees.
        saturation, lightness: greatest shift, on the scale 0 to 255.
    """

    in_place = True

    def __init__(self, hue: int = 0, saturation: int = 0, lightness: int = 0) -> None:
        self.hue, self.saturation, self.lightness = hue, saturation, lightness

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        hue, saturation, lightness = (
            _amount(most, rng) for most in (self.hue, self.saturation, self.lightness)
        )
        return shift_hls(x, hue, lightness, saturation, out)


def _amount(most: int, rng: Rng) -> int:
    first = rng.random()
    return int((first + 4 * rng.random()) / 5 * most * 2 - most)


_LEVELS = np.arange(256, dtype=np.uint8)


def _check_levels(x: Any, name: str) -> Array:
    image = check_image(x, name)
    if image.dtype != np.uint8:
        raise TypeError(f"{name} takes uint8, got {image.dtype}")
    return image


def _looked_up(image: Array, table: Array, out: Array | None) -> Array:
    """Return the image with each level replaced by that of a table (256,) or (256, channels)."""
    result = result_array(image, image.shape, image.dtype, out, in_place=True)
    if image.size:
        import cv2

        channels = image.shape[2]
        columns = np.broadcast_to(table.reshape(256, -1), (256, channels))
        cv2.LUT(image, np.ascontiguousarray(columns)[None], dst=result)
    return result


def invert(x: Any, out: Array | None = None) -> Array:
    """Compute ``255 - x``."""
    return _looked_up(_check_levels(x, "invert"), 255 - _LEVELS, out)


def posterize(x: Any, bits: int, out: Array | None = None) -> Array:
    """Keep the highest bits of each value.

    Args:
        x: the image.
        bits: how many, 0 to 8.
        out: as for `Transform.apply`.

    Raises:
        ValueError: `bits` is out of its range.
    """
    image = _check_levels(x, "posterize")
    if not 0 <= bits <= 8:
        raise ValueError(f"posterize: bits must be 0 to 8, got {bits!r}")
    return _looked_up(image, _LEVELS & np.uint8(256 - (1 << (8 - int(bits)))), out)


def solarize(x: Any, threshold: float, out: Array | None = None) -> Array:
    """Invert the values from `threshold` (0 to 255) on."""
    image = _check_levels(x, "solarize")
    # Compared in float32, as torch does.
    limit = np.float32(threshold)
    return _looked_up(image, np.where(limit <= _LEVELS, 255 - _LEVELS, _LEVELS).astype(np.uint8), out)


def autocontrast(x: Any, out: Array | None = None) -> Array:
    """Stretch the levels of each channel from its darkest and brightest value to 0 and 255; one level is kept."""
    image = _check_levels(x, "autocontrast")
    if not image.size:
        return image
    # Whole rows first, which is many times as fast as both axes at once.
    low = image.min(0).min(0).astype(np.float32)
    scale = (image.max(0).max(0) - low) * np.float32(1 / 255)
    flat = scale == 0
    low[flat], scale[flat] = 0, 1
    table = (_LEVELS[:, None].astype(np.float32) - low) / scale
    return _looked_up(image, np.clip(table, 0, 255).astype(np.uint8), out)


def equalize(x: Any, out: Array | None = None) -> Array:
    """Spread the levels of each channel so that all are about equally frequent.

    Rule (Pillow's and torchvision's): with n values below the brightest level and ``step = n // 255``, a level becomes
    ``(values below it + step // 2) // step``; a channel whose step is 0 is kept.
    """
    image = _check_levels(x, "equalize")
    if not image.size:
        return image
    tables = [
        _equalizing(np.bincount(image[:, :, channel].ravel(), minlength=256))
        for channel in range(image.shape[2])
    ]
    return _looked_up(image, np.stack(tables, 1), out)


def _equalizing(counts: Array) -> Array:
    step = int(counts.sum() - counts[np.flatnonzero(counts)[-1]]) // 255
    if not step:
        return _LEVELS
    below = np.concatenate([[0], np.cumsum(counts)[:-1]])
    table: Array = np.clip((below + step // 2) // step, 0, 255).astype(np.uint8)
    return table


class _RandomTone(Transform):
    """Base of the changes that are made with probability `p`. One draw."""

    in_place = True

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self._change(x, out) if rng.random() < self.p else x

    def _change(self, x: Any, out: Array | None) -> Array:
        raise NotImplementedError


class RandomInvert(_RandomTone):
    """`invert` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return invert(x, out)


class RandomAutocontrast(_RandomTone):
    """`autocontrast` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return autocontrast(x, out)


class RandomEqualize(_RandomTone):
    """`equalize` with probability `p`. uint8. One draw.

    Args:
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def _change(self, x: Any, out: Array | None) -> Array:
        return equalize(x, out)


class RandomPosterize(_RandomTone):
    """`posterize` with probability `p`. uint8. One draw.

    Args:
        bits: bits that are kept, 0 to 8.
        p: probability, 0 to 1.

    Raises:
        ValueError: `bits` is out of its range, or `p` is not a probability.
    """

    def __init__(self, bits: int, p: float = 0.5) -> None:
        super().__init__(p)
        if not 0 <= bits <= 8:
            raise ValueError(f"RandomPosterize: bits must be 0 to 8, got {bits!r}")
        self.bits = int(bits)

    def _change(self, x: Any, out: Array | None) -> Array:
        return posterize(x, self.bits, out)


class RandomSolarize(_RandomTone):
    """`solarize` with probability `p`. uint8. One draw.

    Args:
        threshold: values from here on are inverted, 0 to 255.
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
    """

    def __init__(self, threshold: float, p: float = 0.5) -> None:
        super().__init__(p)
        self.threshold = float(threshold)

    def _change(self, x: Any, out: Array | None) -> Array:
        return solarize(x, self.threshold, out)
