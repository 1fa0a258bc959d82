"""`ImageRecordIter` and its variants: arguments to a dataset, transforms and a loader."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.record import begins_with_a_record
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.augment import augmentation, check_augmentation, without_randomness
from aioloader.mxnet.io.backend_iter import Description, MXDataIter
from aioloader.mxnet.io.image_batches import ImageBatches
from aioloader.mxnet.io.image_records import ImageRecordRows, ImageRecords, LabelList
from aioloader.mxnet.io.mean_image import mean_image
from aioloader.mxnet.io.parameters import MissingParameterError, described, read_parameters
from aioloader.mxnet.io.record_parameters import (
    IMAGE_PARAMETERS,
    INT8_PARAMETERS,
    UINT8_PARAMETERS,
    idle_here,
)
from aioloader.mxnet.io.schedule import RecordSchedule, part_of
from aioloader.mxnet.io.uris import files_of, local_paths
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.abc import MapDataset

_SEEDS = 1 << 64
# An odd number: parts with one seed have different orders, so that not always the same records meet in a step.
_APART = 0x9E3779B97F4A7C15
_PATHS = ("path_imgrec", "path_imgidx")


def joined_paths(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments, with lists of paths joined as MXNet writes them."""
    return {
        name: ";".join(map(os.fspath, value)) if name in _PATHS and isinstance(value, list | tuple) else value
        for name, value in given.items()
    }


class RecordSource:
    """Input of a record iterator: files, part, labels and order.

    Args:
        values: the iterator's arguments by name.
        label_width: labels of every record; None: any number.

    Raises:
        MXNetError: files are missing or damaged, or an argument is wrong.
    """

    def __init__(self, values: Mapping[str, Any], label_width: int | None) -> None:
        if values["part_index"] >= values["num_parts"]:
            raise MXNetError(
                "invalid input parameter for InputSplit::Create: "
                f"part_index {values['part_index']} must be below num_parts {values['num_parts']}"
            )
        self._values = values
        self.labels = LabelList(values["path_imglist"], label_width) if values["path_imglist"] else None
        decoder = ImageRecordRows(
            channels=values["data_shape"][0],
            label_width=label_width,
            labels=self.labels,
            exif=values["exif"],
            max_pixels=values["max_pixels"],
            dct_scaling=values.get("dct_scaling", False),
        )
        paths = _record_files(values["path_imgrec"])
        index = values.get("path_imgidx")
        indexes = _files(index) if index else []
        if indexes and len(indexes) != len(paths):
            raise MXNetError(
                f"path_imgidx names {len(indexes)} files, path_imgrec {len(paths)}: give one index for each, in the "
                "same order, or none"
            )
        self.records = ImageRecords(paths, indexes, decoder)
        self._part = part_of(self.records.total, values["num_parts"], values["part_index"])

    def batches(
        self, dataset: MapDataset[Any], data_desc: Description, label_desc: Description
    ) -> ImageBatches:
        """Return the batches of the iterator itself.

        Args:
            dataset: `records`, transformed.
            data_desc, label_desc: shape and dtype of the arrays of a batch.
        """
        values = self._values
        seed = values["seed"] % _SEEDS
        drawn = values.get("seed_aug")
        order = (seed + values["part_index"] * _APART) % _SEEDS if values["shuffle"] else None
        schedule = RecordSchedule(self._part, values["batch_size"], values["round_batch"], order)
        seed = seed if drawn is None else drawn % _SEEDS
        return self._load(dataset, schedule, data_desc, label_desc, seed=seed, on_error=values["on_error"])

    def single_pass(
        self, dataset: MapDataset[Any], data_desc: Description, label_desc: Description
    ) -> ImageBatches:
        """Return the batches of one pass in the order of the file, each record once."""
        part = self._part._replace(longest=self._part.length)
        # No record is replaced by another one here: a mean would count it twice.
        on_error = "raise" if self._values["on_error"] == "raise" else "skip"
        schedule = RecordSchedule(part, self._values["batch_size"], False)
        return self._load(dataset, schedule, data_desc, label_desc, seed=0, on_error=on_error)

    def _load(
        self,
        dataset: MapDataset[Any],
        schedule: RecordSchedule,
        data_desc: Description,
        label_desc: Description,
        *,
        seed: int,
        on_error: str,
    ) -> ImageBatches:
        values = self._values
        return ImageBatches(
            dataset,
            schedule,
            data_desc,
            label_desc,
            seed=seed,
            threads=values["preprocess_threads"],
            prefetch=values["prefetch_buffer"],
            executor=values["executor"],
            on_error=on_error,
            max_errors=values["max_errors"],
        )


def _files(uri: str) -> list[str]:
    """Return the paths of local files, and URLs unchanged."""
    return [file for path in local_paths(uri) for file in ([path] if is_url(path) else files_of(path))]


def _record_files(uri: str) -> list[str]:
    """Return the paths of record files; of a folder only those that are record files."""
    paths = local_paths(uri)
    if not paths:
        raise MissingParameterError("path_imgrec", "string")
    found: list[str] = []
    for path in paths:
        files = _files(path)
        found += [file for file in files if begins_with_a_record(file)] if os.path.isdir(path) else files
    if not found:
        raise MXNetError(f"Cannot find any record files in {uri}")
    return found


def _make(values: Mapping[str, Any], dtype: str) -> MXDataIter:
    check_augmentation(values)
    width, size = values["label_width"], values["batch_size"]
    source = RecordSource(values, width)
    shape = values["data_shape"]
    data_desc = (size, *shape), np.dtype(dtype)
    label_desc = (size,) if width == 1 else (size, width), np.dtype(np.float32)
    mean = None
    if values["mean_img"] and dtype != "uint8":

        def pass_without_mean() -> ImageBatches:
            chain = augmentation(without_randomness(values))
            dataset = source.records.transform_first(chain)
            return source.single_pass(dataset, ((size, *shape), np.dtype(np.float32)), label_desc)

        mean = mean_image(values["mean_img"], shape, pass_without_mean)
    dataset = source.records.transform_first(augmentation(values, mean, dtype))
    batches = source.batches(dataset, data_desc, label_desc)
    return MXDataIter(batches, values["data_name"], values["label_name"])


def ImageRecordIter(*args: Any, **kwargs: Any) -> MXDataIter:
    values = read_parameters("ImageRecordIter", IMAGE_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, values["dtype"] or "float32")


def ImageRecordUInt8Iter(*args: Any, **kwargs: Any) -> MXDataIter:
    values = read_parameters("ImageRecordUInt8Iter", UINT8_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, "uint8")


def ImageRecordInt8Iter(*args: Any, **kwargs: Any) -> MXDataIter:
    values = read_parameters("ImageRecordInt8Iter", INT8_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, "int8")


_KEYWORDS = """Takes keyword arguments only, each also as text. Unknown ones are warned about (``strict=True``:
refused), and so are those without effect here."""

_END = """Each image goes through resize, turning, scaling and shearing in one step, pad, crop, colours, mirror and
normalisation, in this order. Without any of these arguments a row is the middle of the image; an image that is
smaller than data_shape is enlarged.

Returns:
    an iterator of `DataBatch`: data (batch_size, channels, height, width), labels float32, `pad` rows of padding at the
    end, and `index`, the ids of the records. Its `close()` stops the workers; garbage collection does so too.

Raises:
    MissingParameterError: a required argument is missing (an MXNetError and a ValueError).
    MXNetError: an argument is wrong, or a file is missing or damaged.
    ImageRecordError: a record cannot be read, decoded or augmented; the error names it (an MXNetError). Those of the
        first batch are raised at once, others while iterating.
    TooManyFailedError: more records failed than `max_errors` (an MXNetError).
"""

ImageRecordIter.__doc__ = described(
    f"""Batches of the images and labels of .rec files, decoded and augmented by `aioloader.DataLoader`.

{_KEYWORDS}""",
    IMAGE_PARAMETERS,
    _END,
)
ImageRecordUInt8Iter.__doc__ = described(
    f"""`ImageRecordIter` with images of uint8, without normalisation.

{_KEYWORDS}""",
    UINT8_PARAMETERS,
    _END,
)
ImageRecordInt8Iter.__doc__ = described(
    f"""`ImageRecordIter` with images of int8: the pixels minus the mean, saturated.

{_KEYWORDS}""",
    INT8_PARAMETERS,
    _END,
)
