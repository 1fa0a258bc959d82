"""Augmenters of `mx.image`, the functions that they apply, and `CreateAugmenter`, which lists the usual ones.

Images are (height, width, channels), RGB. Draws come from Python's `random`, those of `LightingAug` and `random_rotate`
from `numpy.random`, in MXNet's order, so that a call after ``random.seed(0)`` makes MXNet's choices: of a rectangle x
before y. Changes of colours turn whole numbers into float32, and do not clip to 0..255; rotation takes and returns
float32, channels first.
"""

from __future__ import annotations

import json
import math
import numbers
import random
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import require
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon_geometry import rotate
from aioloader.mxnet.gluon_geometry import scale_down as _scale_down
from aioloader.mxnet.image.decode import as_float, as_image, given, own
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy
from aioloader.transforms.interpolation import AREA, AUTO, CUBIC, LINEAR, RANDOM, resize_image
from aioloader.transforms.padding import place_on_canvas

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array

    Box: TypeAlias = tuple[int, int, int, int]


class Described:
    """Base of augmenters of images and of images with labels, which can describe themselves.

    Args:
        **kwargs: the arguments, for `dumps`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def dumps(self) -> Any:
        """Return name and arguments as JSON text: ``["resizeaug", {"size": 30, "interp": 2}]``.

        Augmenters made from others return a list of their name and the others' results.
        """
        return json.dumps([type(self).__name__.lower(), self._kwargs], default=_plain)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._kwargs.items())})"
        )


class Augmenter(Described):
    """Base of augmenters, which take an image (height, width, channels), return one, and never alter their input.

    Args:
        **kwargs: its arguments, for `dumps`.
    """

    def __call__(self, src: Any) -> Any:
        """Return the changed image.

        Args:
            src: (height, width, channels).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__")


def _plain(value: Any) -> Any:
    """Return arrays and scalars of numpy, which JSON lacks, as lists and numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


class SequentialAug(Augmenter):
    """Augmenters one after the other.

    Args:
        ts: callables that take an image.
    """

    def __init__(self, ts: Sequence[Callable[[Any], Any]]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> Any:
        return [
            type(self).__name__.lower(),
            [part.dumps() for part in self.ts if isinstance(part, Augmenter)],
        ]

    def __call__(self, src: Any) -> Any:
        """Apply all of them to the image."""
        for part in self.ts:
            src = part(src)
        return src

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ts!r})"


class RandomOrderAug(SequentialAug):
    """Augmenters in an order that is drawn again for every image.

    Args:
        ts: callables that take an image.
    """

    def __call__(self, src: Any) -> Any:
        """Apply all of them to the image."""
        # A copy is shuffled: if each order built on the one before, it would depend on the images that came before.
        order = list(self.ts)
        random.shuffle(order)
        for part in order:
            src = part(src)
        return src


class _OfSize(Augmenter):
    """Base of augmenters with a size of their result."""

    def __init__(self, size: Any, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp


class ResizeAug(_OfSize):
    """`resize_short`.

    Args:
        size: pixels of the shorter side.
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the resized image."""
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(_OfSize):
    """Resizing to a size, regardless of the proportions.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the resized image."""
        return imresize(src, self.size[0], self.size[1], self.interp)


class RandomCropAug(_OfSize):
    """`random_crop`.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """`random_size_crop`.

    Args:
        size: (width, height).
        area: (least, greatest) share of the image's area; a single number a means (a, 1).
        ratio: (least, greatest) width/height.
        interp: as for `imresize`.
        min_area: the old name of `area`.

    Raises:
        TypeError: `area` is missing.
    """

    def __init__(
        self,
        size: tuple[int, int],
        area: float | Sequence[float] | None = None,
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interp: int = 2,
        *,
        min_area: float | None = None,
    ) -> None:
        area = area if min_area is None else min_area
        if area is None:
            raise TypeError(
                "RandomSizedCropAug() needs area, the (least, greatest) share of the image's area"
            )
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size = size
        self.area = area
        self.ratio = ratio
        self.interp = interp

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(_OfSize):
    """`center_crop`.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Random exchange of left and right with probability `p`.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        """Return the image, mirrored or unchanged."""
        if random.random() < self.p:
            return own(as_image(src, "HorizontalFlipAug")[:, ::-1], src)
        return src


class CastAug(Augmenter):
    """Another dtype.

    Args:
        typ: anything that `numpy.dtype` takes.
    """

    def __init__(self, typ: Any = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> NDArray:
        """Return the image as `typ`."""
        return from_numpy(np.asarray(src).astype(self.typ))


_LUMA = np.array([0.299, 0.587, 0.114], np.float32)
# RGB to YIQ and back, in MXNet's figures.
_TO_YIQ = np.array([[0.299, 0.587, 0.114], [0.596, -0.274, -0.321], [0.211, -0.523, 0.311]])
_FROM_YIQ = np.array([[1.0, 0.956, 0.621], [1.0, -0.272, -0.647], [1.0, -1.107, 1.705]])
_GRAY = np.array([0.21, 0.72, 0.07], np.float32)


def color_normalize(src: Any, mean: Any, std: Any = None) -> NDArray:
    """Return ``(src - mean) / std``, a new array.

    Args:
        src: (height, width, channels); whole numbers become float32.
        mean, std: one number, one per channel, or None to omit that part.
    """
    image = as_float(src)
    if mean is not None:
        image = image - np.asarray(mean, image.dtype)
    if std is not None:
        image = image / np.asarray(std, image.dtype)
    return own(image, src)


def _luma(image: Array, weights: Any) -> Array:
    luma: Array = image @ np.asarray(weights, image.dtype).ravel()
    return luma


def _factor(amount: float) -> float:
    """Draw uniformly from [1 - amount, 1 + amount)."""
    return 1.0 + random.uniform(-amount, amount)


class BrightnessJitterAug(Augmenter):
    """Multiplication by a random factor.

    Args:
        brightness: the factor is uniform in [1 - brightness, 1 + brightness].
    """

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness=brightness)
        self.brightness = brightness

    def __call__(self, src: Any) -> NDArray:
        """Return the brighter or darker image."""
        image = as_float(src)
        return from_numpy(image * image.dtype.type(_factor(self.brightness)))


class ContrastJitterAug(Augmenter):
    """Stretch by a random factor around the mean luma of the image.

    Args:
        contrast: the factor is uniform in [1 - contrast, 1 + contrast].
    """

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast=contrast)
        self.contrast = contrast
        self.coef: Any = from_numpy(_LUMA[None, None].copy())

    def __call__(self, src: Any) -> NDArray:
        """Return the image with more or less contrast."""
        image, factor = as_float(src), _factor(self.contrast)
        mean = float(_luma(image, self.coef).mean(dtype=np.float64))
        return from_numpy(image * image.dtype.type(factor) + image.dtype.type((1.0 - factor) * mean))


class SaturationJitterAug(Augmenter):
    """Stretch of every pixel by a random factor around its own luma.

    Args:
        saturation: the factor is uniform in [1 - saturation, 1 + saturation].
    """

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation=saturation)
        self.saturation = saturation
        self.coef: Any = from_numpy(_LUMA[None, None].copy())

    def __call__(self, src: Any) -> NDArray:
        """Return the image with stronger or weaker colours."""
        image, factor = as_float(src), _factor(self.saturation)
        kind = image.dtype.type
        return from_numpy(image * kind(factor) + _luma(image, self.coef)[..., None] * kind(1.0 - factor))


class HueJitterAug(Augmenter):
    """Turn of the hue in YIQ.

    Args:
        hue: the turn is uniform in [-hue, hue], in half circles.
    """

    def __init__(self, hue: float) -> None:
        super().__init__(hue=hue)
        self.hue = hue
        self.tyiq, self.ityiq = _TO_YIQ, _FROM_YIQ

    def __call__(self, src: Any) -> NDArray:
        """Return the image with turned colours."""
        angle = random.uniform(-self.hue, self.hue) * math.pi
        cosine, sine = math.cos(angle), math.sin(angle)
        turn = np.array([[1.0, 0.0, 0.0], [0.0, cosine, -sine], [0.0, sine, cosine]])
        image = as_float(src)
        return from_numpy(image @ (self.ityiq @ turn @ self.tyiq).T.astype(image.dtype))


class ColorJitterAug(RandomOrderAug):
    """Brightness, contrast and saturation by random amounts, in a random order; amounts of 0 are omitted.

    Args:
        brightness, contrast, saturation: see the augmenters of these names.
    """

    def __init__(self, brightness: float, contrast: float, saturation: float) -> None:
        parts: list[Augmenter] = []
        if brightness > 0:
            parts.append(BrightnessJitterAug(brightness))
        if contrast > 0:
            parts.append(ContrastJitterAug(contrast))
        if saturation > 0:
            parts.append(SaturationJitterAug(saturation))
        super().__init__(parts)


class LightingAug(Augmenter):
    """Addition of the principal colours of a set of images with random weights (Krizhevsky et al., 2012).

    Args:
        alphastd: standard deviation of the weights.
        eigval: (3,) eigenvalues.
        eigvec: (3, 3) eigenvectors, in columns.
    """

    def __init__(self, alphastd: float, eigval: Any, eigvec: Any) -> None:
        super().__init__(alphastd=alphastd, eigval=eigval, eigvec=eigvec)
        self.alphastd = alphastd
        self.eigval = eigval
        self.eigvec = eigvec

    def __call__(self, src: Any) -> NDArray:
        """Return the image in another light."""
        weights = np.random.normal(0.0, self.alphastd, 3)
        image = as_float(src)
        offset = (np.asarray(self.eigvec) * weights) @ np.asarray(self.eigval)
        return from_numpy(image + offset.astype(image.dtype))


class ColorNormalizeAug(Augmenter):
    """`color_normalize`.

    Args:
        mean, std: one number, one per channel, or None.
    """

    def __init__(self, mean: Any, std: Any) -> None:
        super().__init__(mean=mean, std=std)
        self.mean = mean
        self.std = std

    def __call__(self, src: Any) -> NDArray:
        """Return the normalised image."""
        return color_normalize(src, self.mean, self.std)


class RandomGrayAug(Augmenter):
    """Random replacement of the colours by grey, 0.21 R + 0.72 G + 0.07 B, with probability `p`; 3 channels stay.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p
        self.mat: Any = from_numpy(np.repeat(_GRAY[:, None], 3, axis=1))

    def __call__(self, src: Any) -> Any:
        """Return the image, grey or unchanged."""
        if random.random() < self.p:
            image = as_float(src)
            return from_numpy(image @ np.asarray(self.mat, image.dtype))
        return src


def _get_interp_method(interp: int, sizes: Sequence[int] = ()) -> int:
    """Return the number of an interpolation, 0 to 4.

    Args:
        interp: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos; 9 chooses by `sizes`; 10 draws one of 0 to 4 from
            Python's `random`.
        sizes: (old height, old width, new height, new width). With 9: bicubic if both grow, area if both shrink, else
            bilinear; bicubic without sizes.

    Raises:
        ValueError: another number, or not four sizes.
    """
    if interp == AUTO:
        if not sizes:
            return CUBIC
        if len(sizes) != 4:
            raise ValueError(
                f"sizes must be (old height, old width, new height, new width), got {tuple(sizes)!r}"
            )
        old_height, old_width, height, width = sizes
        if height > old_height and width > old_width:
            return CUBIC
        return AREA if height < old_height and width < old_width else LINEAR
    if interp == RANDOM:
        return random.randint(0, 4)
    if interp not in (0, 1, 2, 3, 4):
        raise ValueError(f"Unknown interp method {interp}")
    return int(interp)


def resized(image: Array, size: tuple[int, int], interp: int) -> Array:
    """Resize a plain image to (width, height); return the image itself if it has that size."""
    width, height = int(size[0]), int(size[1])
    code = _get_interp_method(interp, (*image.shape[:2], height, width))
    return resize_image(image, (height, width), code)


def imresize(src: Any, w: int, h: int, interp: int = 1, out: NDArray | None = None) -> NDArray:
    """Resize to exactly w x h pixels.

    Args:
        src: (height, width, channels).
        w, h: new extents in pixels.
        interp: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 auto, 10 random.
        out: an array of the result's shape to write it to.

    Returns:
        A new array of the same dtype.

    Raises:
        ValueError: the interpolation is unknown, or there are no pixels.
    """
    image = as_image(src, "imresize")
    result = resized(image, (w, h), interp)
    return own(result, src) if out is None else given(result, out)


def scale_down(src_size: tuple[int, int], size: tuple[int, int]) -> tuple[int, int]:
    """Return the largest (width, height) of the shape of `size`, and no larger than it, that fits into `src_size`.

    Args:
        src_size: available (width, height), in pixels.
        size: requested (width, height), in pixels.
    """
    width, height = _scale_down(*src_size, size)
    # A requested extent of 0 stays 0.
    return min(width, int(size[0])), min(height, int(size[1]))


def resize_short(src: Any, size: int, interp: int = 2) -> NDArray:
    """Resize so that the shorter side has `size` pixels, the longer one in proportion, rounded down.

    Args:
        src: (height, width, channels).
        size: pixels.
        interp: as for `imresize`.
    """
    height, width = as_image(src, "resize_short").shape[:2]
    if height > width:
        new = size, size * height // width
    else:
        new = size * width // height, size
    return imresize(src, *new, interp=interp)


_TRIES = 10


def fixed_crop(
    src: Any, x0: int, y0: int, w: int, h: int, size: tuple[int, int] | None = None, interp: int = 2
) -> NDArray:
    """Return a given rectangle, resized if `size` is another size.

    Args:
        src: (height, width, channels).
        x0, y0: left and top edge in pixels.
        w, h: extents in pixels; the rectangle must be inside the image.
        size: (width, height) of the result; None: as cut.
        interp: as for `imresize`.

    Returns:
        A new array.

    Raises:
        ValueError: the rectangle is not inside the image.
    """
    image = as_image(src, "fixed_crop")
    rows, columns = image.shape[:2]
    if not (0 <= x0 < x0 + w <= columns and 0 <= y0 < y0 + h <= rows):
        raise ValueError(
            f"fixed_crop: the rectangle x0={x0}, y0={y0}, {w} x {h} does not lie inside an image of width "
            f"{columns} and height {rows}"
        )
    crop = image[y0 : y0 + h, x0 : x0 + w]
    if size is not None and (size[0], size[1]) != (w, h):
        crop = resized(crop, size, interp)
    return own(crop, src)


def random_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """Return a rectangle at a random place; the largest one of that shape, enlarged, where the image is too small.

    Args:
        src: (height, width, channels).
        size: (width, height).
        interp: as for `imresize`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).
    """
    rows, columns = as_image(src, "random_crop").shape[:2]
    width, height = scale_down((columns, rows), size)
    x, y = random.randint(0, columns - width), random.randint(0, rows - height)
    return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)


def center_crop(src: Any, size: tuple[int, int], interp: int = 2) -> tuple[NDArray, Box]:
    """Return the middle of the image; if that is too small, the largest middle of the shape, enlarged to `size`.

    Args:
        src: (height, width, channels).
        size: (width, height).
        interp: as for `imresize`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).
    """
    rows, columns = as_image(src, "center_crop").shape[:2]
    width, height = scale_down((columns, rows), size)
    x, y = (columns - width) // 2, (rows - height) // 2
    return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)


def random_size_crop(
    src: Any,
    size: tuple[int, int],
    area: float | Sequence[float] | None = None,
    ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
    interp: int = 2,
    *,
    min_area: float | None = None,
) -> tuple[NDArray, Box]:
    """Return a rectangle of random area, shape and place, resized to `size`; the middle, if ten attempts do not fit.

    Args:
        src: (height, width, channels).
        size: (width, height) of the result.
        area: (least, greatest) share of the image's area, drawn uniformly; a single number a means (a, 1).
        ratio: (least, greatest) width/height, drawn uniformly on a logarithmic scale.
        interp: as for `imresize`.
        min_area: the old name of `area`.

    Returns:
        The crop, a new array, and its place in `src` as (x, y, width, height).

    Raises:
        TypeError: `area` is missing.
        ValueError: a range is empty or not positive.
    """
    share: Any = area if min_area is None else min_area
    if share is None:
        raise TypeError("random_size_crop() needs area, the (least, greatest) share of the image's area")
    least, greatest = _range((share, 1.0) if isinstance(share, numbers.Real) else share, "area")
    low, high = map(math.log, _range(ratio, "ratio"))
    rows, columns = as_image(src, "random_size_crop").shape[:2]
    for _ in range(_TRIES):
        pixels = random.uniform(least, greatest) * (rows * columns)
        shape = math.exp(random.uniform(low, high))
        width, height = round(math.sqrt(pixels * shape)), round(math.sqrt(pixels / shape))
        if 0 < width <= columns and 0 < height <= rows:
            x, y = random.randint(0, columns - width), random.randint(0, rows - height)
            return fixed_crop(src, x, y, width, height, size=size, interp=interp), (x, y, width, height)
    return center_crop(src, size, interp)


def _range(pair: Any, name: str) -> tuple[float, float]:
    try:
        least, greatest = map(float, pair)
    except (TypeError, ValueError):
        least, greatest = math.nan, math.nan
    if not 0 < least <= greatest:
        raise ValueError(f"random_size_crop: {name} must be (least, greatest), both positive, got {pair!r}")
    return least, greatest


# OpenCV's numbers of borders, and numpy's names for them. 0 is a constant.
_MODES: dict[int, Any] = {1: "edge", 2: "symmetric", 3: "wrap", 4: "reflect"}
_ISOLATED = 16  # OpenCV's "do not look outside of a part of an image", which an array never does


def copyMakeBorder(
    src: Any,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Sequence[float] = (),
    out: NDArray | None = None,
) -> NDArray:
    """Return the image with a border around it.

    Args:
        src: (height, width, channels).
        top, bot, left, right: pixels to add.
        type: 0: constant; 1: the edge repeated; 2: mirrored, the edge included (ba|abc|cb); 3: the opposite side;
            4: mirrored at the edge (cb|abc|ba).
        value: of a constant border, for all channels.
        values: of a constant border, one per channel or one for all; before `value`.
        out: an array of the result's shape to write it to.

    Returns:
        A new array of the same dtype.

    Raises:
        MXNetError: the type is unknown.
        ValueError: a border is negative, or the values do not fit the channels.
    """
    image = as_image(src, "copyMakeBorder")
    if min(top, bot, left, right) < 0:
        raise ValueError(f"copyMakeBorder: borders must be >= 0, got {(top, bot, left, right)}")
    kind = int(type) & ~_ISOLATED
    height, width, channels = image.shape
    if kind == 0:
        # OpenCV always has four values, regardless of the number of channels.
        fill = np.ravel(values if np.size(values) else value)[:channels]
        rows, columns = top + height + bot, left + width + right
        result = place_on_canvas(image, height=rows, width=columns, left=left, top=top, value=fill)
    elif kind in _MODES:
        result = np.pad(image, ((top, bot), (left, right), (0, 0)), _MODES[kind])
    else:
        raise MXNetError(f"copyMakeBorder: unknown border type {type}; it must be 0, 1, 2, 3 or 4")
    return given(result, out)


def _check(src: Any, zoom_in: bool, zoom_out: bool) -> Array:
    if zoom_in and zoom_out:
        raise ValueError("`zoom_in` and `zoom_out` cannot be both True")
    if not isinstance(src, np.ndarray) or src.dtype != np.float32:
        raise TypeError("Only `float32` images are supported by this function")
    if src.ndim not in (3, 4):
        raise ValueError("Only 3D and 4D are supported by this function")
    return np.asarray(src)


def imrotate(src: Any, rotation_degrees: Any, zoom_in: bool = False, zoom_out: bool = False) -> NDArray:
    """Rotate around the centre, counter-clockwise; bilinear, zero outside, the same extents.

    Args:
        src: float32 (channels, height, width), or (n, channels, height, width).
        rotation_degrees: one number; for n images also one for each.
        zoom_in: enlarge until no outside pixel is visible.
        zoom_out: shrink until the whole image is visible.

    Raises:
        TypeError: the dtype is another one, or one image has several angles.
        ValueError: both zooms, another number of axes, or another number of angles than images.
    """
    images = _check(src, zoom_in, zoom_out)
    if images.ndim == 3:
        if not isinstance(rotation_degrees, numbers.Real):
            raise TypeError(
                f"When a single image is passed the rotation angle is required to be a scalar, got {rotation_degrees!r}"
            )
        return from_numpy(rotate(images, float(rotation_degrees), zoom_in, zoom_out))
    angles = np.asarray(rotation_degrees, np.float64)
    if angles.ndim == 0:
        angles = np.full(len(images), angles)
    if angles.shape != (len(images),):
        raise ValueError(
            f"The number of images must be equal to the number of rotation angles: {len(images)} and {angles.size}"
        )
    result = np.empty_like(images)
    for image, angle, place in zip(images, angles.tolist(), result, strict=True):
        rotate(image, angle, zoom_in, zoom_out, place)
    return from_numpy(result)


def random_rotate(
    src: Any, angle_limits: Sequence[float], zoom_in: bool = False, zoom_out: bool = False
) -> NDArray:
    """Rotate by a random angle, of n images each by its own; see `imrotate`. Draws from `numpy.random`.

    Args:
        src: as for `imrotate`.
        angle_limits: (least, greatest) angle in degrees, drawn uniformly.
        zoom_in, zoom_out: as for `imrotate`.
    """
    images = _check(src, zoom_in, zoom_out)
    least, greatest = angle_limits
    if images.ndim == 3:
        return imrotate(src, float(np.random.uniform(least, greatest)), zoom_in, zoom_out)
    return imrotate(src, np.random.uniform(least, greatest, len(images)), zoom_in, zoom_out)


# ImageNet's pixels on the scale 0 to 255: mean, standard deviation, principal colours.
_MEAN = (123.68, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)
_EIGENVALUES = (55.46, 4.794, 1.148)
_EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


def colours(
    brightness: float, contrast: float, saturation: float, hue: float, pca_noise: float, rand_gray: float
) -> list[Augmenter]:
    """Return the augmenters that cast to float32 and change colours, in MXNet's order; see `CreateAugmenter`."""
    found: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        found.append(LightingAug(pca_noise, np.array(_EIGENVALUES), np.array(_EIGENVECTORS)))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    return found


def normalised(mean: Any, std: Any, dtype: Any = np.float32) -> list[Augmenter]:
    """Return the augmenter that normalises, or none.

    Args:
        mean, std: see `CreateAugmenter`.
        dtype: of ImageNet's mean and standard deviation, as `dumps` shows them.

    Raises:
        ValueError: a mean or standard deviation has another form (an AssertionError too).
    """
    means, deviations = _per_channel(mean, _MEAN, "mean", dtype), _per_channel(std, _STD, "std", dtype)
    return [] if means is None and deviations is None else [ColorNormalizeAug(means, deviations)]


def _per_channel(value: Any, default: Sequence[float], name: str, dtype: Any) -> Any:
    """Return a mean or standard deviation as an array of 1 or 3 numbers; None if it is omitted."""
    if value is None or value is False:
        return None
    array = np.array(default, dtype) if value is True else np.array(value)
    require(
        array.shape in ((1,), (3,)), f"{name} must be True, None or 1 or 3 numbers, got shape {array.shape}"
    )
    return array


def CreateAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """Return a list of augmenters: resize, crop, mirror, cast to float32, colours, normalise.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: pixels of the shorter side before cropping; 0: do not resize.
        rand_crop: crop at a random place instead of the middle.
        rand_resize: crop 0.08 to 1 of the area, width/height 3/4 to 4/3; needs `rand_crop`.
        rand_mirror: exchange left and right with probability 0.5.
        mean, std: True for ImageNet's, or 1 or 3 numbers; None: no normalisation.
        brightness, contrast, saturation, hue, pca_noise: amounts of the augmenters of these names; 0: without.
        rand_gray: probability of `RandomGrayAug`.
        inter_method: as for `imresize`.

    Raises:
        ValueError: `rand_resize` without `rand_crop`, or a malformed mean (an AssertionError too).
    """
    size = (int(data_shape[2]), int(data_shape[1]))
    found: list[Augmenter] = []
    if resize > 0:
        found.append(ResizeAug(resize, inter_method))
    if rand_resize:
        require(rand_crop, "rand_resize crops at a random place: give rand_crop=True too")
        found.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    elif rand_crop:
        found.append(RandomCropAug(size, inter_method))
    else:
        found.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    found += colours(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    return found + normalised(mean, std)


def augmenters(
    create: Callable[..., Sequence[Any]],
    data_shape: Sequence[int],
    aug_list: Sequence[Any] | None,
    options: dict[str, Any],
) -> Sequence[Any]:
    """Return the augmenters that an iterator was given, or else those that `create` makes from its options."""
    if aug_list is None:
        return create(data_shape, **options)
    if options:
        warn_caller(
            f"{', '.join(options)}: without effect, because aug_list says what is done to the images",
            UserWarning,
        )
    return aug_list
