"""`ImageDetIter`: batches of images with boxes.

A label is a flat row of numbers: A, the length of the header (2 or more, counting A and B); B, the numbers of an object
(5 or more); further header values; then the objects, each class, xmin, ymin, xmax, ymax in shares of the image's
extents, and further numbers.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.foundation.validation import require
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.image._sample_steps import SampleSteps, skipping
from aioloader.mxnet.image.create import augmenters
from aioloader.mxnet.image.det_augmenter import CreateDetAugmenter
from aioloader.mxnet.image.iterator import ImageIter
from aioloader.mxnet.io.augment import DetectionLabelError, ObjectLabel

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array

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
        self.check_data_shape(data_shape)
        self._creates = None if aug_list is not None else kwargs
        super().__init__(
            batch_size,
            data_shape,
            path_imgrec=path_imgrec,
            path_imglist=path_imglist,
            path_root=path_root,
            path_imgidx=path_imgidx,
            shuffle=shuffle,
            part_index=part_index,
            num_parts=num_parts,
            aug_list=augmenters(CreateDetAugmenter, data_shape, aug_list, kwargs),
            imglist=imglist,
            data_name=data_name,
            label_name=label_name,
            last_batch_handle=last_batch_handle,
            num_workers=num_workers,
            exif=exif,
            pad_counts_rolled=pad_counts_rolled,
            drop_remainder=drop_remainder,
            on_error=on_error,
            max_errors=max_errors,
        )
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
