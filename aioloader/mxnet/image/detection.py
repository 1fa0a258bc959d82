"""`mx.image.detection`, also `mx.image.det`: augmenters and the iterator for images with boxes.

Augmenters take labels (n, 5 + k): class, xmin, ymin, xmax, ymax in shares of the image's extents (0 to 1), and columns
that are passed along. `aioloader.transforms.boxes` computes the boxes; draws come from Python's `random`.

A stored label is a flat row of numbers: A, the length of the header (2 or more, counting A and B); B, the numbers of an
object (5 or more); further header values; then the objects, as rows of such labels.
"""

from __future__ import annotations

import logging
import numbers
import random
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import require
from aioloader.mxnet.base import MXNetError, UnusedOverrideError
from aioloader.mxnet.image._sample_steps import SampleSteps, skipping
from aioloader.mxnet.image.augmenter import (
    Augmenter,
    Described,
    ForceResizeAug,
    ResizeAug,
    augmenters,
    colours,
    normalised,
)
from aioloader.mxnet.image.decode import as_float, as_image, own
from aioloader.mxnet.image.iterator import ImageIter
from aioloader.mxnet.io.augment import DetectionLabelError, ObjectLabel
from aioloader.transforms.boxes.transforms import RandomExpand, RandomObjectCrop

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array
    from aioloader.transforms.boxes.base import BoxTransform

__all__ = (
    "CreateDetAugmenter",
    "CreateMultiRandCropAugmenter",
    "DetAugmenter",
    "DetBorrowAug",
    "DetHorizontalFlipAug",
    "DetRandomCropAug",
    "DetRandomPadAug",
    "DetRandomSelectAug",
    "DetectionLabelError",
    "ImageDetIter",
)


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


_LEAST_NUMBERS = 7
_log = logging.getLogger(__name__)


class DetSampleSteps(SampleSteps):
    """Steps from an encoded image and its label to a row of both.

    Attributes:
        label_shape: (objects, numbers of an object) of a row of labels.
    """

    _fields: ClassVar[tuple[str, ...]] = (*SampleSteps._fields, "label_shape")

    label_shape: tuple[int, int]

    def augmentation_transform(self, data: Any, label: Any) -> tuple[Any, Any]:  # type: ignore[override]  # boxes come with the image, as in MXNet
        """Apply all augmenters to image and boxes."""
        for augmenter in self.auglist:
            data, label = augmenter(data, label)
        return data, label

    def _parse_label(self, label: Any) -> Array:
        """Return the objects of a label that have an area: (n, numbers of an object).

        Raises:
            DetectionLabelError: there is none, or the label has another layout.
        """
        values = np.asarray(label, np.float32).ravel()
        if values.size < _LEAST_NUMBERS:
            raise DetectionLabelError("Label shape is invalid", values.size)
        objects: Array = ObjectLabel(values).objects
        if not len(objects):
            raise DetectionLabelError("Encounter sample with no valid label", values.size)
        return objects

    def _check_valid_label(self, label: Array) -> None:
        """Refuse the label that augmenters produced.

        Raises:
            MXNetError: it has no object with an area.
        """
        if label.ndim != 2 or label.shape[1] < 5:
            raise MXNetError(f"Label with shape (1+, 5+) required, {label.shape} received.")
        sound = (label[:, 0] >= 0) & (label[:, 3] > label[:, 1]) & (label[:, 4] > label[:, 2])
        if not sound.any():
            raise MXNetError("Invalid label occurs: no object with an area is left")

    def make(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        image = self._checked(encoded)
        with skipping():
            objects = self._parse_label(label)
        data, changed = self.augmentation_transform(image, objects)
        boxes = np.asarray(changed)
        with skipping():
            self._check_valid_label(boxes)
        return self._data_row(self.postprocess_data(data)), self._objects(boxes)

    def _objects(self, boxes: Array) -> Array:
        count, width = self.label_shape
        if len(boxes) > count or boxes.shape[1] != width:
            raise ValueError(
                f"the label has {len(boxes)} objects of {boxes.shape[1]} numbers, but label_shape is "
                f"{self.label_shape}; call reshape(label_shape=...)"
            )
        row = np.full(self.label_shape, -1, np.float32)
        row[: len(boxes)] = boxes
        return row


class ImageDetIter(DetSampleSteps, ImageIter):
    """Iterator over batches of images with boxes: labels are (batch_size, objects, numbers of an object).

    The number of objects is that of the image with most of them; rows without an object are -1. The constructor reads
    all labels once. An image of which augmenters leave no object is left out, which is logged, and the next one takes
    its place. Everything else is as in `ImageIter`.

    Args:
        batch_size, data_shape, path_imgrec, path_imglist, path_root, path_imgidx, shuffle: see `ImageIter`.
        part_index, num_parts, imglist, data_name, label_name, last_batch_handle: see `ImageIter`.
        aug_list: `DetAugmenter`s; None: those that `CreateDetAugmenter` makes from `kwargs`.
        num_workers, exif, pad_counts_rolled, drop_remainder, on_error, max_errors: see `ImageIter`.
        **kwargs: arguments of `CreateDetAugmenter`; together with `aug_list` they have no effect, which is warned
            about.

    Attributes:
        label_shape: (objects, numbers of an object).

    Raises:
        DetectionLabelError: the label of an image has another layout, or has no box (a RuntimeError and ValueError);
            with `on_error` "skip" or "replace" that image fails.
    """

    _steps: ClassVar[type[SampleSteps]] = DetSampleSteps

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "label",
        last_batch_handle: str = "pad",
        *,
        num_workers: int | None = 0,
        exif: str = "apply",
        pad_counts_rolled: bool = True,
        drop_remainder: bool = False,
        on_error: str = "raise",
        max_errors: float | None = None,
        **kwargs: Any,
    ) -> None:
        given = dict(locals())  # MXNet's arguments, which the base class takes by the same names
        for name in ("self", "__class__", "aug_list", "kwargs"):
            del given[name]
        self.check_data_shape(data_shape)
        self._creates = None if aug_list is not None else kwargs
        super().__init__(**given, aug_list=augmenters(CreateDetAugmenter, data_shape, aug_list, kwargs))
        self._label_name = label_name
        self._set_label_shape(self._estimate_label_shape())

    def _set_label_shape(self, shape: Sequence[int]) -> None:
        self.label_shape = (int(shape[0]), int(shape[1]))
        self.provide_label = [(self._label_name, (self.batch_size, *self.label_shape))]

    def _all_labels(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, label) of every image of a pass; images that fail here are reported when their batch is made."""
        # Shuffled before and after, as in MXNet: orders are then the same after the same seed.
        self.reset()
        if self._reads:
            for sample in self._samples():
                if sample is not None:
                    yield self._last_location().key, sample[0]
            self._failures.noted.clear()
        else:
            for row in self._rows():
                try:
                    label = self._dataset.label(row)
                except Exception:
                    if self._failures.on_error == "raise":
                        raise
                    continue
                yield self._dataset.keys[row], label
        self.reset()

    def _estimate_label_shape(self) -> tuple[int, int]:
        """Return (largest number of objects of an image, numbers of an object)."""
        count, width = 1, 0
        for key, label in self._all_labels():
            note = f"image with the key {key!r}"
            try:
                objects = self._parse_label(label)
            except DetectionLabelError as error:
                if self._failures.on_error != "raise":
                    continue
                error.add_note(note)
                raise
            if width and objects.shape[1] != width:
                reason = f"its objects have {objects.shape[1]} numbers, those of other images {width}"
                different = DetectionLabelError(reason, np.size(label))
                different.add_note(note)
                raise different
            width = objects.shape[1]
            count = max(count, len(objects))
        return count, width or 5

    def check_label_shape(self, label_shape: Sequence[int]) -> None:
        """Refuse a new shape of labels.

        Raises:
            ValueError: it has fewer objects than an image has, or other objects.
        """
        if len(label_shape) != 2:
            raise ValueError("label_shape should have length 2")
        if label_shape[0] < self.label_shape[0]:
            raise ValueError(
                f"Attempts to reduce label count from {self.label_shape[0]} to {label_shape[0]}, not allowed."
            )
        if label_shape[1] != self.label_shape[1]:
            raise ValueError(
                f"label_shape object width inconsistent: {self.label_shape[1]} vs {label_shape[1]}."
            )

    def reshape(
        self, data_shape: Sequence[int] | None = None, label_shape: Sequence[int] | None = None
    ) -> None:
        """Change the shape of the data from now on.

        Args:
            data_shape: (3, height, width); augmenters that the caller did not pass are created again for it.
            label_shape: (objects, numbers of an object); not fewer objects than now.

        Raises:
            ValueError: a shape is not allowed.
        """
        if label_shape is not None:
            self.check_label_shape(label_shape)
        if data_shape is not None:
            self.check_data_shape(data_shape)
            self.data_shape = tuple(int(extent) for extent in data_shape)
            self.provide_data = [(self.provide_data[0][0], (self.batch_size, *self.data_shape))]
            if self._creates is not None:
                self.auglist = CreateDetAugmenter(self.data_shape, **self._creates)
        if label_shape is not None:
            self._set_label_shape(label_shape)
        # Workers have the old shapes.
        self.close()

    def sync_label_shape(self, it: ImageDetIter, verbose: bool = False) -> ImageDetIter:
        """Set the larger number of objects of this and another iterator, say for training and validation, in both.

        Args:
            it: the other one.
            verbose: log the changes.

        Returns:
            `it`.

        Raises:
            ValueError: it is not an `ImageDetIter`, or has other objects (an AssertionError too).
        """
        require(isinstance(it, ImageDetIter), f"Synchronize with invalid iterator: {type(it).__name__}")
        require(
            self.label_shape[1] == it.label_shape[1],
            f"object width mismatch: {self.label_shape[1]} and {it.label_shape[1]}",
        )
        shape = (max(self.label_shape[0], it.label_shape[0]), self.label_shape[1])
        for each in (self, it):
            if each.label_shape != shape:
                if verbose:
                    _log.info("label_shape is changed from %s to %s", each.label_shape, shape)
                each.reshape(label_shape=shape)
        return it
