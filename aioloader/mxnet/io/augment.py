"""Augmentation of `ImageRecordIter` as transforms of `aioloader.transforms`.

Order (MXNet's): resize, affine, pad, crop, colour jitter, hue/lightness/saturation, principal colours, mirror,
normalisation. Steps that the arguments do not request are omitted, so that the loader can fuse the remaining ones with
decoding.

Labels of detection records: objects with boxes, which change together with their image. Pure.

Layout, flat float32: header width A >= 2 (A and B count), object width B >= 5, more header values, then the objects:
class, left, top, right, bottom, more values; edges are shares of the image's extents. Objects whose box has no area, or
infinite edges, are left out. A rectangle here is (x, y, width, height) in the same shares.

Augmentation of `ImageDetRecordIter`: an image and its boxes, one step after the other.

Order (MXNet's): resize, colours, mirror, pad, crop, the final size, normalisation. Every step with a probability draws
once to decide whether it happens, regardless of its probability.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon_geometry import Resize
from aioloader.mxnet.io.record_geometry import AreaCrop, Border, RandomAffine, SquareCrop, WindowCrop
from aioloader.rng import Rng, default_rng
from aioloader.transforms.base import Compose
from aioloader.transforms.color import FreeColorJitter, RandomHLS, RandomLighting, shift_hls
from aioloader.transforms.geometry import RandomHorizontalFlip
from aioloader.transforms.interpolation import RANDOM, resize_image, settle
from aioloader.transforms.planes import ToPlanes

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.transforms.base import Transform


if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

# Wider objects are refused; a label without any object can claim any width.
_WIDTHS = 1 << 31


class DetectionLabelError(MXNetError, ValueError):
    """Error raised when a record's label is not a detection label. A ValueError too.

    Args:
        reason: the defect, in words.
        width: number of values of the label.

    Attributes:
        reason, width: as given.
    """

    def __init__(self, reason: str, width: int) -> None:
        super().__init__(
            f"{reason} (the label has {width} numbers; a detection label is: header width, object width, more header "
            "values, then for each object class, left, top, right, bottom and more values)"
        )
        self.reason = reason
        self.width = width


class LabelPadError(MXNetError, ValueError):
    """Error raised when a label is wider than `label_pad_width`. A ValueError too.

    Args:
        width: the given width.
        needed: number of values of the widest label.

    Attributes:
        width, needed: as given.
    """

    def __init__(self, width: int, needed: int) -> None:
        super().__init__(
            f"label_pad_width: {width} smaller than estimated width: {needed}; give {needed} or more, or 0 for what is "
            "needed"
        )
        self.width = width
        self.needed = needed


class Rect(NamedTuple):
    """Rectangle, in shares of the image's extents."""

    x: float
    y: float
    width: float
    height: float


class CropLimits(NamedTuple):
    """Conditions that a crop must satisfy for at least one object, each (least, greatest).

    Attributes:
        overlap: intersection over union with the object's box.
        sample_coverage: share of the crop that the box covers.
        object_coverage: share of the box that is inside the crop.
    """

    overlap: tuple[float, float]
    sample_coverage: tuple[float, float]
    object_coverage: tuple[float, float]


class ObjectLabel:
    """Label of one image.

    Args:
        values: float32 (n,), in the layout above.

    Attributes:
        header: float32 (A,).
        objects: float32 (count, B), those with an area.

    Raises:
        DetectionLabelError: it does not have that layout.
    """

    def __init__(self, values: Floats) -> None:
        size = len(values)
        if size < 2:
            raise DetectionLabelError("Not enough label packed in img_list or rec file", size)
        header, width = float(values[0]), float(values[1])
        if not (header.is_integer() and 2 <= header <= size):
            raise DetectionLabelError(
                f"the header width must be a number from 2 to {size}, not {header:g}", size
            )
        if not (width.is_integer() and 5 <= width < _WIDTHS):
            raise DetectionLabelError(f"the object width must be a number from 5 on, not {width:g}", size)
        start, step = int(header), int(width)
        if (size - start) % step:
            raise DetectionLabelError(
                f"{size - start} numbers behind the header are not a multiple of the object width {step}",
                size,
            )
        self.header = values[:start].copy()
        objects = values[start:].reshape(-1, step)
        self.objects = objects[_has_area(objects)]

    def values(self) -> Floats:
        """Return the current label, flat."""
        return np.concatenate((self.header, self.objects.ravel()))

    def mirror(self) -> None:
        """Exchange left and right."""
        left = self.objects[:, 1].copy()
        self.objects[:, 1] = 1 - self.objects[:, 3]
        self.objects[:, 3] = 1 - left

    def frame(self, rect: Rect) -> None:
        """Replace the image by the rectangle `rect` of it, which may reach beyond it; boxes end at its edges."""
        self.objects = _framed(self.objects, rect)

    def crop(
        self, rect: Rect, limits: CropLimits, emit: str, emit_overlap: float, cut: Rect | None = None
    ) -> bool:
        """Crop, if the rectangle satisfies the limits and keeps an object; else change nothing and return False.

        Args:
            rect: inside the image.
            limits: see `CropLimits`. An image without objects satisfies any.
            emit: objects that stay: "center": those whose centre is in the rectangle; "overlap": those of which it
                shows more than a share.
            emit_overlap: that share.
            cut: the part that is cut from the image, `rect` in whole pixels; None for `rect` itself.
        """
        if not len(self.objects):
            return True
        area = rect.width * rect.height
        # Values may be NaN, and mirroring can round an area to 0: no share of it satisfies a limit.
        with np.errstate(invalid="ignore"):
            objects = self.objects.astype(np.float64)  # in which no area is so small that it becomes 0
            shared, areas = _intersection(objects, rect), _areas(objects)
            share = shared / areas
        measured = (
            (limits.overlap, shared / (areas + area - shared)),
            (limits.sample_coverage, shared / area),
            (limits.object_coverage, share),
        )
        fits = np.ones(len(self.objects), bool)
        for (least, greatest), found in measured:
            if least > 0.0 or greatest < 1.0:
                fits &= (found >= least) & (found <= greatest)
        if not fits.any():
            return False
        if emit == "center":
            x, y = (objects[:, 1] + objects[:, 3]) / 2, (objects[:, 2] + objects[:, 4]) / 2
            stays = (rect.x <= x) & (x < rect.x + rect.width) & (rect.y <= y) & (y < rect.y + rect.height)
        else:
            stays = share > emit_overlap
        left = _framed(self.objects[stays], rect if cut is None else cut)
        left = left[_has_area(left)]
        if not len(left):
            return False
        self.objects = left
        return True


def _framed(objects: Floats, rect: Rect) -> Floats:
    origin, extent = np.array([rect.x, rect.y], np.float32), np.array([rect.width, rect.height], np.float32)
    framed = objects.copy()
    with np.errstate(over="ignore"):  # an edge far outside may become infinite
        framed[:, 1:3] = np.maximum(0, (objects[:, 1:3] - origin) / extent)
        framed[:, 3:5] = np.minimum(1, (objects[:, 3:5] - origin) / extent)
    return framed


def _has_area(objects: Floats) -> Any:
    """Return a mask of the boxes with an area; a box with infinite edges has none."""
    finite = np.isfinite(objects[:, 1:5]).all(axis=1)
    return finite & (objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])


def _areas(objects: Any) -> Any:
    return (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])


def _intersection(objects: Any, rect: Rect) -> Any:
    width = np.minimum(objects[:, 3], rect.x + rect.width) - np.maximum(objects[:, 1], rect.x)
    height = np.minimum(objects[:, 4], rect.y + rect.height) - np.maximum(objects[:, 2], rect.y)
    return np.maximum(width, 0) * np.maximum(height, 0)


_NO_LIMIT = 1e10
# A ratio of 0 would flatten the image to nothing.
_LEAST_RATIO = 0.01
_INTERPOLATIONS = (0, 1, 2, 3, 4, 9, RANDOM)


def check_augmentation(values: Mapping[str, Any]) -> None:
    """Refuse arguments that contradict each other, before anything is read.

    Raises:
        MXNetError: names the arguments and the remedy.
    """
    channels, height, width = values["data_shape"]
    if channels not in (1, 3, 4) or not height or not width:
        raise MXNetError(
            f"Invalid output shape [{channels},{height},{width}]: data_shape is (channels, height, width) with 1, 3 or "
            "4 channels"
        )
    check_interpolation(values["inter_method"])
    colours = ("brightness", "contrast", "saturation", "random_h", "random_s", "random_l", "pca_noise")
    coloured = [name for name in colours if values.get(name)]
    if coloured and channels != 3:
        raise MXNetError(
            f"{', '.join(coloured)}: only images of 3 channels can be changed so, not of {channels}"
        )
    if values["min_aspect_ratio"] is not None and not values["max_aspect_ratio"]:
        raise MXNetError(
            f"min_aspect_ratio={values['min_aspect_ratio']:g} is given without max_aspect_ratio: give both, the least "
            "and the greatest factor"
        )
    sizes = values["max_crop_size"], values["min_crop_size"]
    if sizes != (-1, -1) and not 1 <= sizes[1] <= sizes[0]:
        raise MXNetError(
            f"max_crop_size={sizes[0]} and min_crop_size={sizes[1]}: give both, with "
            "1 <= min_crop_size <= max_crop_size"
        )
    if values["random_resized_crop"]:
        if _scale(values) != (1.0, 1.0) or sizes != (-1, -1) or values["rand_crop"]:
            raise MXNetError(
                "Setting random_resized_crop to true conflicts with min_random_scale, max_random_scale, "
                "min_crop_size, max_crop_size, and rand_crop: leave these at their defaults"
            )
        if min(values["min_random_area"], values["max_random_area"]) <= 0:
            raise MXNetError("min_random_area and max_random_area must be more than 0")
    for name in ("std_r", "std_g", "std_b", "std_a"):
        if values[name] == 0:
            raise MXNetError(f"{name} must not be 0: pixels are divided by it")
    if _scale(values)[0] <= 0:
        raise MXNetError("min_random_scale and max_random_scale must be more than 0")


def check_interpolation(method: int) -> None:
    """Refuse an unknown `inter_method`.

    Raises:
        MXNetError: it is unknown.
    """
    if method not in _INTERPOLATIONS:
        raise MXNetError(
            f"invalid inter_method {method}: valid values are {', '.join(map(str, _INTERPOLATIONS))}"
        )


def without_randomness(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with everything random turned off: no jitter, no random mirror, crops in the middle."""
    off: dict[str, Any] = dict.fromkeys(
        (
            *("rand_crop", "random_resized_crop", "rand_mirror", "max_rotate_angle", "max_shear_ratio"),
            *("max_aspect_ratio", "brightness", "contrast", "saturation", "pca_noise"),
            *("random_h", "random_s", "random_l", "max_random_contrast", "max_random_illumination"),
        ),
        0,
    )
    # A range with only one value is not random.
    scale, ratio, angles = _scale(values), _ratio(values), values["rotate_list"]
    if scale[0] != scale[1]:
        off |= {"min_random_scale": 1.0, "max_random_scale": 1.0}
    if ratio[0] == ratio[1]:
        off["max_aspect_ratio"] = values["max_aspect_ratio"]
    else:
        off["min_aspect_ratio"] = None
    if angles is not None and len(angles) > 1:
        off["rotate_list"] = None
    if values["inter_method"] == RANDOM:
        off["inter_method"] = 1
    return {**values, **off, "min_crop_size": values["max_crop_size"]}


def augmentation(values: Mapping[str, Any], mean: Array | None = None, dtype: str = "float32") -> Compose:
    """Return the transform of an image, uint8 (height, width, channels), to a row of a batch.

    Args:
        values: arguments by name, checked.
        mean: mean image, float32 (channels, height, width), subtracted before mirroring; or None.
        dtype: of the row: "float32", "uint8" or "int8".
    """
    interpolation = values["inter_method"]
    parts: list[Transform] = []
    if values["resize"] > 0:
        parts.append(Resize(values["resize"], True, interpolation))
    if _warps(values):
        parts.append(_affine(values))
    if values["pad"] > 0:
        parts.append(Border(values["pad"], values["fill_value"]))
    parts.append(_crop(values))
    jitter = [values[name] for name in ("brightness", "contrast", "saturation")]
    if any(jitter):
        parts.append(FreeColorJitter(*jitter))
    if values["random_h"] or values["random_s"] or values["random_l"]:
        parts.append(RandomHLS(values["random_h"], values["random_s"], values["random_l"]))
    if values["pca_noise"]:
        parts.append(RandomLighting(values["pca_noise"]))
    mirror = 1.0 if values["mirror"] else 0.5 if values["rand_mirror"] else 0.0
    amounts = {
        "std": [values[f"std_{c}"] for c in "rgba"],
        "scale": values["scale"],
        "contrast": values["max_random_contrast"],
        "illumination": values["max_random_illumination"],
    }
    if mean is not None and dtype != "uint8":
        parts.append(ToPlanes(mean, mirror=mirror, dtype=dtype, **amounts))
        return Compose(parts)
    if mirror:
        parts.append(RandomHorizontalFlip(mirror))
    plain = dtype != "float32"
    means = [values[f"mean_{c}"] for c in "rgba"]
    parts.append(ToPlanes(means, dtype=dtype) if plain else ToPlanes(means, **amounts))
    return Compose(parts)


def _scale(values: Mapping[str, Any]) -> tuple[float, float]:
    ends = values["min_random_scale"], values["max_random_scale"]
    return min(ends), max(ends)


def _ratio(values: Mapping[str, Any]) -> tuple[float, float]:
    if values["min_aspect_ratio"] is None:
        ends = 1 - values["max_aspect_ratio"], 1 + values["max_aspect_ratio"]
    else:
        ends = values["min_aspect_ratio"], values["max_aspect_ratio"]
    return max(_LEAST_RATIO, min(ends)), max(_LEAST_RATIO, *ends)


def _warps(values: Mapping[str, Any]) -> bool:
    return bool(
        values["max_rotate_angle"] > 0
        or values["max_shear_ratio"] > 0
        or values["rotate"] > 0
        or values["rotate_list"]
        or _scale(values) != (1.0, 1.0)
        or (_ratio(values) != (1.0, 1.0) and not values["random_resized_crop"])
        or values["max_img_size"] != _NO_LIMIT
        or values["min_img_size"] != 0
    )


def _affine(values: Mapping[str, Any]) -> RandomAffine:
    angles = values["rotate_list"] or ((values["rotate"],) if values["rotate"] > 0 else ())
    area_crop = values["random_resized_crop"]
    return RandomAffine(
        shear=max(0.0, values["max_shear_ratio"]),
        max_angle=max(0, values["max_rotate_angle"]),
        angles=angles,
        scale=(1.0, 1.0) if area_crop else _scale(values),
        ratio=(1.0, 1.0) if area_crop else _ratio(values),
        extents=(values["min_img_size"], values["max_img_size"]),
        fill=values["fill_value"],
        interpolation=values["inter_method"],
    )


def _crop(values: Mapping[str, Any]) -> WindowCrop:
    _, height, width = values["data_shape"]
    size, interpolation = (width, height), values["inter_method"]
    if values["random_resized_crop"]:
        area = values["min_random_area"], values["max_random_area"]
        area, ratio = (min(area), max(area)), _ratio(values)
        if area != (1.0, 1.0) or ratio != (1.0, 1.0):
            return AreaCrop(size, area, ratio, interpolation)
    if values["max_crop_size"] != -1:
        sides = values["min_crop_size"], values["max_crop_size"]
        return SquareCrop(size, sides, values["rand_crop"], interpolation)
    return WindowCrop(size, values["rand_crop"], interpolation)


# A canvas that is hardly larger than the image does not justify padding.
_LEAST_PADDING = 1.05
_LIMITS = ("overlaps", "sample_coverages", "object_coverages")


class DetectionAugment:
    """Transform of (image, label, ...) of a record to the delivered values; the rest of the sample is kept.

    Args:
        values: the iterator's arguments by name; tuples of the crop samplers are `num_crop_sampler` long.
        label_width: numbers of a padded label, without the four in front.
        mean: mean image, float32 (channels, height, width), or None.
    """

    def __init__(self, values: Mapping[str, Any], label_width: int, mean: Array | None = None) -> None:
        self._values = dict(values)
        self._label_width = label_width
        self._channels, self._height, self._width = values["data_shape"]
        self._interpolation = values["inter_method"]
        self._resize = (
            None if values["resize"] <= 0 else Resize(values["resize"], True, values["inter_method"])
        )
        self._flip = RandomHorizontalFlip(1.0)
        self._std = np.array([values[f"std_{c}"] or 1.0 for c in "rgba"], np.float32)
        means = [values[f"mean_{c}"] for c in "rgba"] if mean is None else mean
        self._finish = ToPlanes(means, scale=values["scale"])

    def __call__(self, image: Array, label: Array, *rest: Any, rng: Rng | None = None) -> tuple[Any, ...]:
        """Return the planes, float32 (channels, height, width), and the label row, float32 (4 + label_width,).

        Args:
            image: uint8 (height, width, channels); not altered.
            label: float32 (n,), see `ObjectLabel`.
            rest: passed on unchanged.
            rng: the sample's draws; None for a stream of this thread.
        """
        draws = default_rng() if rng is None else rng
        boxes = ObjectLabel(label)
        x = image if self._resize is None else self._resize.apply(image, draws)
        x = self._colours(x, draws)
        if self._happens("rand_mirror_prob", draws):
            x = self._flip.flip(x)
            boxes.mirror()
        x = self._pad(x, boxes, draws)
        x = self._crop(x, boxes, draws)
        x = self._sized(x, draws)
        return self._planes(x, draws), self._row(x, boxes), *rest

    def _happens(self, name: str, rng: Rng) -> bool:
        return rng.random() < float(self._values[name])

    def _colours(self, x: Array, rng: Rng) -> Array:
        shifts = []
        for name in ("hue", "saturation", "illumination"):
            most = self._values[f"max_random_{name}"]
            happens = self._happens(f"random_{name}_prob", rng)
            shifts.append(rng.integers(-most, most + 1) if happens else 0)
        happens = self._happens("random_contrast_prob", rng)
        most = self._values["max_random_contrast"]
        contrast = rng.uniform(-most, most) if happens else 0.0
        hue, saturation, light = shifts
        if hue or saturation or light:
            x = shift_hls(x, hue, light, saturation)
        if contrast:
            import cv2

            factor = np.float32(1 + contrast)
            x = cv2.LUT(x, np.clip(np.rint(np.arange(256) * factor), 0, 255).astype(np.uint8)).reshape(
                x.shape
            )
        return x

    def _pad(self, x: Array, boxes: ObjectLabel, rng: Rng) -> Array:
        if not self._happens("rand_pad_prob", rng):
            return x
        scale = rng.uniform(1.0, self._values["max_pad_scale"])
        left, top = rng.uniform(0.0, scale - 1), rng.uniform(0.0, scale - 1)
        if scale < _LEAST_PADDING:
            return x
        rows, columns, channels = x.shape
        result = np.full(
            (_nearest(scale * rows), _nearest(scale * columns), channels),
            self._values["fill_value"],
            np.uint8,
        )
        # The boxes follow the pixels, which are at whole places.
        column, row = _nearest(left * columns), _nearest(top * rows)
        result[row : row + rows, column : column + columns] = x
        height, width = result.shape[:2]
        boxes.frame(Rect(-column / columns, -row / rows, width / columns, height / rows))
        return result

    def _crop(self, x: Array, boxes: ObjectLabel, rng: Rng) -> Array:
        if not self._happens("rand_crop_prob", rng):
            return x
        values = self._values
        for number in rng.permutation(values["num_crop_sampler"]):
            limits = CropLimits(
                *(
                    (values[f"min_crop_{name}"][number], values[f"max_crop_{name}"][number])
                    for name in _LIMITS
                )
            )
            for _ in range(values["max_crop_trials"][number]):
                rect = self._crop_box(x.shape[1] / x.shape[0], number, rng)
                left, top, width, height = _in_pixels(rect, x.shape[1], x.shape[0])
                if not (width and height):
                    continue
                rows, columns = x.shape[:2]
                cut = Rect(left / columns, top / rows, width / columns, height / rows)
                if boxes.crop(rect, limits, values["crop_emit_mode"], values["emit_overlap_thresh"], cut):
                    return x[top : top + height, left : left + width]
        return x

    def _crop_box(self, shape: float, number: int, rng: Rng) -> Rect:
        """Return a rectangle of random scale, width/height and place.

        Args:
            shape: width/height of the image.
            number: of the crop sampler.
            rng: four draws.
        """
        values = self._values
        scale = rng.uniform(values["min_crop_scales"][number], values["max_crop_scales"][number]) + 1e-12
        least = max(values["min_crop_aspect_ratios"][number] / shape, scale * scale)
        greatest = min(values["max_crop_aspect_ratios"][number] / shape, 1 / (scale * scale))
        ratio = math.sqrt(rng.random() * (greatest - least) + least)
        width, height = min(1.0, scale * ratio), min(1.0, scale / ratio)
        return Rect(rng.random() * (1 - width), rng.random() * (1 - height), width, height)

    def _sized(self, x: Array, rng: Rng) -> Array:
        rows, columns = x.shape[:2]
        mode = self._values["resize_mode"]
        width, height = self._width, self._height
        if mode == "shrink" and rows <= height and columns <= width:
            return x
        if mode != "force":
            ratio = min(np.float32(height) / np.float32(rows), np.float32(width) / np.float32(columns))
            width = min(width, max(1, int(ratio * np.float32(columns))))
            height = min(height, max(1, int(ratio * np.float32(rows))))
        return resize_image(x, (height, width), settle(self._interpolation, rng))

    def _planes(self, x: Array, rng: Rng) -> Array:
        rows, columns, channels = x.shape
        if (rows, columns) != (self._height, self._width):
            whole = np.zeros((self._height, self._width, channels), np.uint8)
            whole[:rows, :columns] = x
            x = whole
        planes: Array = self._finish.apply(x, rng)
        # This order differs in the last bit from that of `ImageRecordIter`.
        if (self._std != 1).any():
            planes /= self._std[:channels, None, None]
        return planes

    def _row(self, x: Array, boxes: ObjectLabel) -> Array:
        label = boxes.values()
        if len(label) > self._label_width:
            raise LabelPadError(self._label_width, len(label))
        row = np.full(4 + self._label_width, self._values["label_pad_value"], np.float32)
        row[:4] = self._channels, x.shape[0], x.shape[1], len(label)
        row[4 : 4 + len(label)] = label
        return row


def _in_pixels(rect: Rect, columns: int, rows: int) -> tuple[int, int, int, int]:
    """Return (x, y, width, height) in whole pixels; an extent may be 0."""
    left, top = _nearest(rect.x * columns), _nearest(rect.y * rows)
    right, bottom = _nearest((rect.x + rect.width) * columns), _nearest((rect.y + rect.height) * rows)
    return left, top, right - left, bottom - top


def _nearest(value: float) -> int:
    # The same for all fractions, unlike `round`, so that a box that fits before fits afterwards.
    return math.floor(value + 0.5)
