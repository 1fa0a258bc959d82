"""Augmenters of an image and the boxes in it. `aioloader.transforms.boxes` computes the boxes.

Labels are (n, 5 + k): class, xmin, ymin, xmax, ymax in shares of the image's extents (0 to 1), and columns that are
passed along. Draws come from Python's `random`.
"""

from __future__ import annotations

import numbers
import random
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.caller import warn_caller
from aioloader.foundation.validation import require
from aioloader.mxnet.base import UnusedOverrideError
from aioloader.mxnet.image._arrays import as_float, as_image, own
from aioloader.mxnet.image.augmenter import Augmenter, Described, ForceResizeAug, ResizeAug
from aioloader.mxnet.image.create import colours, normalised
from aioloader.transforms.boxes.transforms import RandomExpand, RandomObjectCrop

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.transforms.boxes.base import BoxTransform


class _PythonDraws:
    """Python's `random` under the names of `aioloader.Rng`."""

    @staticmethod
    def uniform(low: float = 0.0, high: float = 1.0) -> float:
        return random.uniform(low, high)

    @staticmethod
    def integers(low: int, high: int | None = None) -> int:
        return random.randrange(low) if high is None else random.randrange(low, high)


_DRAWS: Any = _PythonDraws()


def _as_label(label: Any, name: str) -> Array:
    rows = as_float(label)
    if rows.ndim != 2 or rows.shape[1] < 5:
        raise ValueError(
            f"{name} takes labels (n, 5 or more): class, xmin, ymin, xmax, ymax, got shape {rows.shape}"
        )
    return rows


class DetAugmenter(Described):
    """Base of augmenters of (image, label), which never alter their input.

    Args:
        **kwargs: its arguments, for `dumps`.
    """

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        """Return the changed image and label.

        Args:
            src: (height, width, channels).
            label: (n, 5 + k).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__")


class DetBorrowAug(DetAugmenter):
    """Augmenter of images that moves no pixel to another share of the extents, such as a resize or colours.

    Args:
        augmenter: an `Augmenter`.

    Raises:
        TypeError: it is not one.
    """

    def __init__(self, augmenter: Augmenter) -> None:
        if not isinstance(augmenter, Augmenter):
            raise TypeError(f"Borrowing from invalid Augmenter: {augmenter!r}")
        super().__init__()
        self.augmenter = augmenter

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), self.augmenter.dumps()]

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        """Return the changed image, and the label unchanged."""
        return self.augmenter(src), label

    def __repr__(self) -> str:
        return f"DetBorrowAug({self.augmenter!r})"


class DetRandomSelectAug(DetAugmenter):
    """One of several augmenters, drawn for each image.

    Args:
        aug_list: `DetAugmenter`s, or one of them. Empty: the image stays unchanged.
        skip_prob: probability that none is applied.

    Raises:
        ValueError: an element of the list is not a `DetAugmenter`.
    """

    def __init__(self, aug_list: Sequence[DetAugmenter] | DetAugmenter, skip_prob: float = 0) -> None:
        given: Any = aug_list
        found: list[DetAugmenter] = list(given) if isinstance(given, list | tuple) else [given]
        if not all(isinstance(part, DetAugmenter) for part in found):
            raise ValueError("Allow DetAugmenter in list only")
        super().__init__(skip_prob=skip_prob)
        self.aug_list = found
        self.skip_prob = skip_prob if found else 1

    def dumps(self) -> Any:
        return [type(self).__name__.lower(), [part.dumps() for part in self.aug_list]]

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        """Apply a random one of the augmenters to image and label."""
        if random.random() < self.skip_prob:
            return src, label
        return random.choice(self.aug_list)(src, label)

    def __repr__(self) -> str:
        return f"DetRandomSelectAug({self.aug_list!r}, skip_prob={self.skip_prob})"


class DetHorizontalFlipAug(DetAugmenter):
    """Random exchange of left and right with probability `p`.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any, label: Any) -> tuple[Any, Any]:
        """Return image and label, mirrored or unchanged."""
        if random.random() >= self.p:
            return src, label
        rows = _as_label(label, "DetHorizontalFlipAug")
        boxes = rows.copy()
        self._flip_label(boxes)
        return own(as_image(src, "DetHorizontalFlipAug")[:, ::-1], src), boxes

    def _flip_label(self, label: Any) -> None:
        """Mirror boxes in place."""
        label[:, (1, 3)] = 1.0 - label[:, (3, 1)]


def _in_pixels(augmenter: _Proposing, transform: BoxTransform, src: Any, label: Any) -> tuple[Any, Any]:
    """Apply a transform of image and boxes, which counts in pixels and has the class behind the box."""
    name = type(augmenter).__name__
    image, rows = as_image(src, name), _as_label(label, name)
    # Double precision, so that a box that ends at the edge of the image still does so afterwards.
    extents = np.array([image.shape[1], image.shape[0]] * 2, np.float64)
    boxes = np.concatenate((rows[:, 1:5] * extents, rows[:, :1], rows[:, 5:]), axis=1)
    made, found = transform.apply_boxes(image, boxes, _DRAWS)
    if made is image:
        return src, label
    shares = found[:, :4] / np.array([made.shape[1], made.shape[0]] * 2, np.float64)
    return own(made, src), np.concatenate((found[:, 4:5], shares, found[:, 5:]), axis=1).astype(rows.dtype)


def _pair(value: Any) -> tuple[float, float]:
    """Return (least, greatest); a single number is both."""
    pair: tuple[Any, ...] = ()
    if isinstance(value, numbers.Real):
        pair = value, value
    elif isinstance(value, tuple | list | np.ndarray):
        pair = tuple(value)
    if len(pair) != 2:
        raise ValueError(f"a range is (least, greatest), or one number for both, got {value!r}")
    return pair[0], pair[1]


class _Proposing(DetAugmenter):
    """Augmenter that draws a rectangle; without effect, and warned about, where its ranges allow none.

    Its arguments are attributes and may be assigned.

    Raises:
        UnusedOverrideError: a derived class overrides a step of MXNet's algorithm.
    """

    # Steps of MXNet's algorithm, which `aioloader.transforms.boxes` does not have.
    _steps_of_mxnet: ClassVar[tuple[str, ...]]
    _made: BoxTransform | None = None
    enabled = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        for step in self._steps_of_mxnet:
            if step in dir(type(self)):
                raise UnusedOverrideError(type(self).__name__, step, "__call__")
        vars(self).update(arguments)  # in MXNet they are attributes
        try:
            self._made = self._transform()
        except ValueError as error:
            self.enabled = False
            warn_caller(f"Skip {type(self).__name__}: {error}", UserWarning)

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name not in ("_made", "enabled"):
            self._made = None

    def _transform(self) -> BoxTransform:
        """Return the transform that the attributes describe.

        Raises:
            ValueError: they allow no rectangle.
        """
        raise NotImplementedError

    def __call__(self, src: Any, label: Any) -> tuple[Array, Array]:
        """Return image and label, changed, or unchanged if no attempt succeeds."""
        if not self.enabled:
            return src, label
        if self._made is None:
            self._made = self._transform()
        return _in_pixels(self, self._made, src, label)


class DetRandomCropAug(_Proposing):
    """A random rectangle that shows enough of the objects; see `aioloader.transforms.boxes.RandomObjectCrop`.

    Args:
        min_object_covered: share of a touched box that has to be inside, exclusive.
        aspect_ratio_range: (least, greatest) width/height; a single number is both.
        area_range: (least, greatest) share of the image's area; a single number is both.
        min_eject_coverage: a box stays if more than this share of its area is inside.
        max_attempts: number of rectangles to draw.
    """

    _steps_of_mxnet = (
        *("_calculate_areas", "_check_satisfy_constraints", "_intersect", "_random_crop_proposal"),
        "_update_labels",
    )
    min_object_covered: float
    aspect_ratio_range: Any
    area_range: Any
    min_eject_coverage: float
    max_attempts: int

    def __init__(
        self,
        min_object_covered: float = 0.1,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (0.05, 1.0),
        min_eject_coverage: float = 0.3,
        max_attempts: int = 50,
    ) -> None:
        super().__init__(
            min_object_covered=min_object_covered,
            aspect_ratio_range=_pair(aspect_ratio_range),
            area_range=_pair(area_range),
            min_eject_coverage=min_eject_coverage,
            max_attempts=max_attempts,
        )

    def _transform(self) -> BoxTransform:
        least, greatest = _pair(self.area_range)
        return RandomObjectCrop(
            self.min_object_covered,
            _pair(self.aspect_ratio_range),
            (max(0.0, least), greatest),
            self.min_eject_coverage,
            self.max_attempts,
        )


class DetRandomPadAug(_Proposing):
    """A larger canvas of random size around the image; see `aioloader.transforms.boxes.RandomExpand`.

    Args:
        aspect_ratio_range: (least, greatest) width/height of the canvas; a single number is both.
        area_range: (least, greatest) area of the canvas, in areas of the image; a single number is both.
        max_attempts: number of canvases to draw.
        pad_val: value of added pixels: one number, or one per channel.
    """

    _steps_of_mxnet = ("_random_pad_proposal", "_update_labels")
    aspect_ratio_range: Any
    area_range: Any
    max_attempts: int
    pad_val: Any

    def __init__(
        self,
        aspect_ratio_range: Any = (0.75, 1.33),
        area_range: Any = (1.0, 3.0),
        max_attempts: int = 50,
        pad_val: Any = (128, 128, 128),
    ) -> None:
        super().__init__(
            aspect_ratio_range=_pair(aspect_ratio_range),
            area_range=_pair(area_range),
            max_attempts=max_attempts,
            pad_val=pad_val,
        )

    def _transform(self) -> BoxTransform:
        least, greatest = _pair(self.area_range)
        if greatest <= 1:
            raise ValueError(f"area_range must allow more than the image's own area, got {(least, greatest)}")
        ratios = _pair(self.aspect_ratio_range)
        return RandomExpand(ratios, (max(1.0, least), greatest), self.max_attempts, self.pad_val)


def CreateMultiRandCropAugmenter(
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 1.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    skip_prob: float = 0,
) -> DetRandomSelectAug:
    """Return a random choice between several `DetRandomCropAug`, drawn for each image.

    Args:
        min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts: as for `DetRandomCropAug`;
            a list has one value for each of them, anything else (a tuple too) is the value for all.
        skip_prob: probability that the image is not cropped.

    Raises:
        ValueError: lists of different lengths (an AssertionError too).
    """
    given = (min_object_covered, aspect_ratio_range, area_range, min_eject_coverage, max_attempts)
    lists = [value if isinstance(value, list) else [value] for value in given]
    count = max(map(len, lists))
    require(
        all(len(values) in (1, count) for values in lists),
        f"lists must have one length, or one value for all, got {[len(values) for values in lists]}",
    )
    aligned = [values * count if len(values) == 1 else values for values in lists]
    return DetRandomSelectAug([DetRandomCropAug(*row) for row in zip(*aligned, strict=True)], skip_prob)


def CreateDetAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: float = 0,
    rand_pad: float = 0,
    rand_gray: float = 0,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    pca_noise: float = 0,
    hue: float = 0,
    inter_method: int = 2,
    min_object_covered: Any = 0.1,
    aspect_ratio_range: Any = (0.75, 1.33),
    area_range: Any = (0.05, 3.0),
    min_eject_coverage: Any = 0.3,
    max_attempts: Any = 50,
    pad_val: Any = (127, 127, 127),
) -> list[DetAugmenter]:
    """Return augmenters: resize, crop, mirror, pad, resize to `data_shape`, cast to float32, colours, normalise.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: pixels of the shorter side before all other steps; 0: do not resize.
        rand_crop, rand_pad: probability of a crop and of a larger canvas; 0: never.
        rand_gray: probability of `RandomGrayAug`.
        rand_mirror: exchange left and right with probability 0.5.
        mean, std: True for ImageNet's, or 1 or 3 numbers; None: no normalisation.
        brightness, contrast, saturation, pca_noise, hue: amounts of the augmenters of these names; 0: without.
        inter_method: as for `imresize`.
        min_object_covered, min_eject_coverage: see `CreateMultiRandCropAugmenter`.
        aspect_ratio_range, max_attempts: the same, also for the canvas.
        area_range: the same; the greatest is that of the canvas too.
        pad_val: see `DetRandomPadAug`.
    """
    found: list[DetAugmenter] = []
    if resize > 0:
        found.append(DetBorrowAug(ResizeAug(resize, inter_method)))
    if rand_crop > 0:
        found.append(
            CreateMultiRandCropAugmenter(
                min_object_covered,
                aspect_ratio_range,
                area_range,
                min_eject_coverage=min_eject_coverage,
                max_attempts=max_attempts,
                skip_prob=1 - rand_crop,
            )
        )
    if rand_mirror:
        found.append(DetHorizontalFlipAug(0.5))
    if rand_pad > 0:
        pad = DetRandomPadAug(
            _widest(aspect_ratio_range), (1.0, _widest(area_range)[1]), _most(max_attempts), pad_val
        )
        found.append(DetRandomSelectAug([pad], 1 - rand_pad))
    size = (int(data_shape[2]), int(data_shape[1]))
    borrowed = [
        ForceResizeAug(size, inter_method),
        *colours(brightness, contrast, saturation, hue, pca_noise, rand_gray),
        *normalised(mean, std, np.float64),
    ]
    return [*found, *map(DetBorrowAug, borrowed)]


def _widest(ranges: Any) -> tuple[float, float]:
    """Return the range that contains all ranges of a list; a single number is both of its ends."""
    pairs = [
        pair if isinstance(pair, tuple | list) else (pair, pair)
        for pair in (ranges if isinstance(ranges, list) and not _is_pair(ranges) else [ranges])
    ]
    return min(low for low, _ in pairs), max(high for _, high in pairs)


def _is_pair(value: list[Any]) -> bool:
    return len(value) == 2 and not any(isinstance(part, tuple | list) for part in value)


def _most(attempts: Any) -> int:
    return max(attempts) if isinstance(attempts, list) else int(attempts)
