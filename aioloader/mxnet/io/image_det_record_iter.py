"""`ImageDetRecordIter`: images with objects in boxes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.augment import check_interpolation
from aioloader.mxnet.io.det_augment import DetectionAugment
from aioloader.mxnet.io.det_boxes import LabelPadError
from aioloader.mxnet.io.image_record_iter import RecordSource, joined_paths
from aioloader.mxnet.io.parameters import documented, read_parameters
from aioloader.mxnet.io.record_parameters import DETECTION_PARAMETERS, RANGES, idle_in_detection
from aioloader.transforms.interpolation import RANDOM

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.abc import MapDataset
    from aioloader.foundation.types import Array
    from aioloader.mxnet.io.backend_iter import MXDataIter

_IN_FRONT = 4
"""Numbers before a label: channels, height and width of the image, length of the label."""


@documented(DETECTION_PARAMETERS)
def ImageDetRecordIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the images and objects of .rec files, for detection.

    A record's label is flat: header width, object width, more header values, then for each object class, left, top,
    right, bottom and more values, edges as shares of the image's extents. Objects whose box has no area are left out; a
    record without objects is valid too. The label of a row is channels, height and width of the image in it, the number
    of values that follow, the label after augmentation, and padding. An image that is smaller than data_shape is in its
    upper left corner.

    Takes keyword arguments only, each also as text. Unknown ones are warned about (``strict=True``: refused), and so
    are those without effect here.

    Each image goes through resize, colours, mirror, pad, crop, the final size and normalisation, in this order.

    Returns:
        an iterator of `DataBatch`: data float32 (batch_size, channels, height, width), labels float32 (batch_size,
        4 + n).

    Raises:
        MissingParameterError: a required argument is missing (an MXNetError and a ValueError).
        LabelPadError: a label is wider than label_pad_width (an MXNetError and a ValueError).
        MXNetError: an argument is wrong, or a file is missing or damaged.
        ImageRecordError: a record cannot be read, decoded or augmented; the error names it (an MXNetError), and its
            cause may be a `DetectionLabelError`. Those of the first batch are raised at once, others while iterating.
        TooManyFailedError: more records failed than `max_errors` (an MXNetError).
    """
    given = joined_paths(kwargs)
    values = read_parameters("ImageDetRecordIter", DETECTION_PARAMETERS, args, given, idle_in_detection)
    values = _checked(values)
    width = values["label_width"] if values["label_width"] > 0 else None
    source = RecordSource(values, width)
    needed = _widest(source, width)
    padded = values["label_pad_width"]
    if padded <= 0:
        padded = needed
    if padded < needed:
        raise LabelPadError(padded, needed)

    def augmented(values: Mapping[str, Any], mean: Array | None, dtype: str) -> MapDataset[Any]:
        return source.records.transform(DetectionAugment(values, padded, mean))

    return source.iterator(augmented, _without_randomness(values), (_IN_FRONT + padded,))


def _without_randomness(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with everything random turned off."""
    certain = {name: 0.0 if name.endswith("_prob") else value for name, value in values.items()}
    if certain["inter_method"] == RANDOM:
        certain["inter_method"] = 1
    return certain


def _checked(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, those of the crop samplers with one value for each sampler."""
    channels, height, width = values["data_shape"]
    if channels not in (1, 3) or not height or not width:
        raise MXNetError(
            f"Invalid output shape [{channels},{height},{width}]: data_shape is (channels, height, width) with 1 or 3 "
            "channels"
        )
    check_interpolation(values["inter_method"])
    shifts = [name for name in ("hue", "saturation", "illumination") if values[f"random_{name}_prob"] > 0]
    if shifts and channels != 3:
        raise MXNetError(
            f"random_{shifts[0]}_prob: only images of 3 channels can be changed so, not of {channels}"
        )
    count = values["num_crop_sampler"]
    checked = dict(values)
    for name in ("max_crop_trials", *(f"{side}_{name}" for name in RANGES for side in ("min", "max"))):
        given = values[name]
        if len(given) not in (1, count):
            raise MXNetError(
                f"{name} has {len(given)} values for num_crop_sampler={count}: give one value, or one for each sampler"
            )
        checked[name] = given if len(given) == count else given[:1] * count
    for name in RANGES:
        for least, greatest in zip(checked[f"min_{name}"], checked[f"max_{name}"], strict=True):
            if least > greatest:
                raise MXNetError(f"min_{name} {least:g} is more than max_{name} {greatest:g}")
    return checked


def _widest(source: RecordSource, width: int | None) -> int:
    """Return the number of values of the widest label in the files, so that all parts agree."""
    if width is not None:
        return width
    if source.labels is not None:
        return source.labels.widest
    return source.records.widest_label()
