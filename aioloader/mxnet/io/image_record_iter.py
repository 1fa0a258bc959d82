"""`ImageRecordIter` and its variants: arguments to a dataset, transforms and a loader.

Batches of a record iterator: passes of `aioloader.DataLoader`, with the padding rows counted.

`ImageDetRecordIter`: images with objects in boxes.
"""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.formats.recordio.dataset import begins_with_a_record
from aioloader.foundation.host_limits import available_cores
from aioloader.loader.options import error_limits
from aioloader.mxnet.base import MXNetError, TooManyFailedError
from aioloader.mxnet.io.augment import (
    DetectionAugment,
    LabelPadError,
    augmentation,
    check_augmentation,
    check_interpolation,
    without_randomness,
)
from aioloader.mxnet.io.backend_iter import Batches, Description, Loaded, MXDataIter, filled
from aioloader.mxnet.io.file_iters import files_of, local_paths
from aioloader.mxnet.io.image_records import ImageRecordRows, ImageRecords, LabelList
from aioloader.mxnet.io.iterator import whole_number
from aioloader.mxnet.io.parameters import (
    DETECTION_PARAMETERS,
    IMAGE_PARAMETERS,
    INT8_PARAMETERS,
    RANGES,
    UINT8_PARAMETERS,
    MissingParameterError,
    documented,
    idle_here,
    idle_in_detection,
    read_parameters,
)
from aioloader.mxnet.io.schedule import RecordSchedule, part_of
from aioloader.mxnet.ndarray.ndarray import from_numpy
from aioloader.mxnet.ndarray_file import load, save
from aioloader.storage.urls import is_url
from aioloader.transforms.interpolation import RANDOM
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aioloader.abc import MapDataset
    from aioloader.foundation.types import Array


class ImageRecordError(SampleError, MXNetError):
    """Error of a record that cannot be read, decoded or augmented; see `aioloader.SampleError`. An MXNetError too."""


# Errors of the loader, and the classes that make them MXNet's errors too.
_NAMES: tuple[tuple[type[Exception], type[MXNetError]], ...] = (
    (SampleError, ImageRecordError),
    (TooManyErrorsError, TooManyFailedError),
)


class ImageBatches(Batches):
    """Batches of an `MXDataIter`, produced by `aioloader.DataLoader`.

    Args:
        loader: loader of the batches of `schedule`; its samples are (data, label, id, is padding), see `ImageRecords`.
        schedule: the rows of each batch.
        data_desc, label_desc: shape, including that of the batch, and dtype.
        replaces: a record that fails is replaced by another one.
    """

    def __init__(
        self,
        loader: aioloader.DataLoader[Any],
        schedule: RecordSchedule,
        data_desc: Description,
        label_desc: Description,
        *,
        replaces: bool,
    ) -> None:
        self.batch_size = data_desc[0][0]
        self.data_desc = data_desc
        self.label_desc = label_desc
        self._loader = loader
        self._schedule = schedule
        self._replaces = replaces
        self._pass_number = 0
        self._place = self._here()
        self._passed_over = 0
        self._batches: Iterator[Any] | None = None
        self._over = False
        # Batches of the current pass that were not given yet; more if records that failed are left out.
        self._left = 0

    @property
    def errors(self) -> Sequence[SampleError]:
        """Return the errors of the records that failed so far."""
        return self._loader.errors

    def next(self) -> Loaded | None:
        """Return the next batch of this pass; None at its end, and after an error until `reset`.

        Raises:
            MXNetError: a record failed, or too many.
        """
        if self._batches is None and not self._over:
            self._begin()
        if self._batches is None:
            return None
        try:
            data, label, index, filling = next(self._batches)
        except StopIteration:
            self._end()
            self._schedule.advance()
            return None
        except Exception as error:
            self._end()
            self._schedule.rewind()
            for known, named in _NAMES:
                if isinstance(error, known):
                    # The same object under its MXNet class: attributes, notes and traceback stay.
                    error.__class__ = named
            raise
        if self._replaces:  # a row and its replacement may differ in being padding, so the schedule counts
            pad = self._schedule.pad(len(self._schedule) - self._left)
        else:
            pad = int(np.count_nonzero(filling)) + self.batch_size - len(data)
        self._left -= 1
        data, label = (from_numpy(filled(array, self.batch_size)) for array in (data, label))
        taken = self._passed_over + self._loader.receipt().stop
        return Loaded(data, label, pad, index, taken)

    def reset(self) -> None:
        """Begin the next pass, or return to the first record if this pass has not reached its end."""
        if self._batches is not None:
            self._end()
            if self._left > 0:
                self._schedule.rewind()
            else:
                self._schedule.advance()
        self._over = False
        self._begin()

    def identity(self) -> dict[str, Any]:
        state = self._loader.state_dict()
        return {**self._schedule.identity(), "seed": state["seed"], "fingerprint": state["fingerprint"]}

    def place(self) -> dict[str, int]:
        return self._place

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        number = whole_number(place, "pass", 0, 1 << 62)
        self._schedule.go_to(place, taken)
        self._end()
        self._pass_number = number
        self._place = self._here()
        if taken and not len(self._schedule):  # behind the last batch
            self._schedule.advance()
            self._pass_number += 1
            return
        self._over = False
        self._begin()

    def _here(self) -> dict[str, int]:
        return {**self._schedule.place(), "pass": self._pass_number}

    def close(self) -> None:
        """Stop the workers; garbage collection of the loader does so too. May be called twice."""
        self._end()
        self._loader.close()

    def _begin(self) -> None:
        if not len(self._schedule):
            self._over = True
            return
        self._place = self._here()
        self._passed_over = self._schedule.passed_over
        self._left = len(self._schedule)
        self._loader.set_epoch(self._pass_number)
        self._pass_number += 1
        self._batches = iter(self._loader)

    def _end(self) -> None:
        """Deliver nothing more until `reset`."""
        self._batches = None
        self._over = True


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

    def iterator(
        self,
        augmented: Callable[[Mapping[str, Any], Array | None, str], MapDataset[Any]],
        certain: Mapping[str, Any],
        label_shape: tuple[int, ...],
        dtype: str = "float32",
    ) -> MXDataIter:
        """Return the iterator; before that, compute the mean image if the arguments ask for it.

        Args:
            augmented: function of the iterator's arguments, the mean image (None for none) and the dtype of the images
                that returns `records` with their augmentation.
            certain: the iterator's arguments with everything random turned off.
            label_shape: shape of the labels of one image.
            dtype: of the images.
        """
        values = self._values
        label_desc = (values["batch_size"], *label_shape), np.dtype(np.float32)
        mean = None
        if values["mean_img"] and dtype != "uint8":
            mean = _mean_image(
                values["mean_img"],
                values["data_shape"],
                lambda: self._single_pass(augmented(certain, None, "float32"), label_desc),
            )
        seed, drawn = values["seed"] % _SEEDS, values.get("seed_aug")
        order = (seed + values["part_index"] * _APART) % _SEEDS if values["shuffle"] else None
        batches = self._batches(
            augmented(values, mean, dtype),
            RecordSchedule(self._part, values["batch_size"], values["round_batch"], order),
            dtype,
            label_desc,
            seed=seed if drawn is None else drawn % _SEEDS,
            on_error=values["on_error"],
        )
        return MXDataIter(batches, values["data_name"], values["label_name"])

    def _single_pass(self, dataset: MapDataset[Any], label_desc: Description) -> ImageBatches:
        """Return the batches of one pass in the order of the file, each record once."""
        part = self._part._replace(longest=self._part.length)
        schedule = RecordSchedule(part, self._values["batch_size"], False)
        # No record is replaced by another one here: a mean would count it twice.
        on_error = "raise" if self._values["on_error"] == "raise" else "skip"
        return self._batches(dataset, schedule, "float32", label_desc, seed=0, on_error=on_error)

    def _batches(
        self,
        dataset: MapDataset[Any],
        schedule: RecordSchedule,
        dtype: str,
        label_desc: Description,
        *,
        seed: int,
        on_error: str,
    ) -> ImageBatches:
        values = self._values
        inline = values["executor"] == "inline"
        loader: aioloader.DataLoader[Any] = aioloader.DataLoader(
            dataset,
            batch_sampler=schedule,
            num_workers=0 if inline else min(values["preprocess_threads"], available_cores()),
            executor=values["executor"],
            prefetch=max(1, values["prefetch_buffer"]),
            seed=seed,
            on_error=on_error,
            **(error_limits(values["max_errors"]) if on_error != "raise" else {}),
        )
        data_desc = (values["batch_size"], *values["data_shape"]), np.dtype(dtype)
        return ImageBatches(loader, schedule, data_desc, label_desc, replaces=on_error == "replace")


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


def _mean_image(path: str, shape: tuple[int, ...], make: Callable[[], Batches]) -> Array:
    """Return the mean image in a file; compute and write it if the file does not exist.

    Args:
        path: the file.
        shape: (channels, height, width) that it must have.
        make: returns the batches of one pass over the images to average; they are closed.

    Returns:
        float32.

    Raises:
        MXNetError: the file does not have this format or shape, or cannot be written; there are no images.
    """
    if not os.path.exists(path):
        folder = os.path.dirname(os.path.abspath(path))
        if not os.access(folder, os.W_OK):  # known before the pass, which may be long
            raise MXNetError(f"the mean image {path} cannot be written: {folder} is not a writable folder")
        with closing(make()) as batches:
            mean = _mean(batches)
        try:
            with published(path) as (partial,):
                save(partial, {"mean_img": mean})
        except OSError as error:
            raise MXNetError(f"the mean image {path}: {error.strerror}") from error
        return mean
    found = load(path)
    arrays = list(found.values()) if isinstance(found, dict) else found
    if len(arrays) != 1:
        raise MXNetError(f"{path} is not a mean image: it holds {len(arrays)} arrays, not one")
    stored: Array = np.asarray(arrays[0])
    if stored.shape != shape:
        raise MXNetError(
            f"the mean image {path} has shape {stored.shape}, but data_shape is {shape}; delete it to have it "
            "computed again, or give another mean_img"
        )
    return stored.astype(np.float32)


def _mean(batches: Batches) -> Array:
    total = np.zeros(batches.data_desc[0][1:], np.float64)
    count = 0
    while (batch := batches.next()) is not None:
        rows = np.asarray(batch.data)[: batches.batch_size - batch.pad]
        total += rows.sum(axis=0, dtype=np.float64)
        count += len(rows)
    if not count:
        raise MXNetError("there are no records to make a mean image of")
    return (total / count).astype(np.float32)


def _make(values: Mapping[str, Any], dtype: str) -> MXDataIter:
    check_augmentation(values)
    width = values["label_width"]
    source = RecordSource(values, width)

    def augmented(values: Mapping[str, Any], mean: Array | None, dtype: str) -> MapDataset[Any]:
        return source.records.transform_first(augmentation(values, mean, dtype))

    return source.iterator(augmented, without_randomness(values), () if width == 1 else (width,), dtype)


@documented(IMAGE_PARAMETERS)
def ImageRecordIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the images and labels of record files, decoded and augmented by `aioloader.DataLoader`.

    Takes keyword arguments only, each also as text. Unknown ones are warned about (``strict=True``: refused), and so
    are those without effect here.

    Each image goes through resize, turning, scaling and shearing in one step, pad, crop, colours, mirror and
    normalisation, in this order. Without any of these arguments a row is the middle of the image; an image that is
    smaller than data_shape is enlarged.

    Returns:
        an iterator of `DataBatch`: data (batch_size, channels, height, width), labels float32, `pad` rows of padding at
        the end, and `index`, the ids of the records. Its `close()` stops the workers; garbage collection does so too.

    Raises:
        MissingParameterError: a required argument is missing (an MXNetError and a ValueError).
        MXNetError: an argument is wrong, or a file is missing or damaged.
        ImageRecordError: a record cannot be read, decoded or augmented; the error names it (an MXNetError). Those of
            the first batch are raised at once, others while iterating.
        TooManyFailedError: more records failed than `max_errors` (an MXNetError).
    """
    values = read_parameters("ImageRecordIter", IMAGE_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, values["dtype"] or "float32")


@documented(UINT8_PARAMETERS)
def ImageRecordUInt8Iter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return the batches of `ImageRecordIter` with images of uint8, without normalisation.

    Takes keyword arguments only, each also as text. Unknown ones are warned about (``strict=True``: refused), and so
    are those without effect here.

    Returns:
        an iterator of `DataBatch`; the order of the steps, the batches and the errors are those of `ImageRecordIter`.
    """
    values = read_parameters("ImageRecordUInt8Iter", UINT8_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, "uint8")


@documented(INT8_PARAMETERS)
def ImageRecordInt8Iter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return the batches of `ImageRecordIter` with images of int8: the pixels minus the mean, saturated.

    Takes keyword arguments only, each also as text. Unknown ones are warned about (``strict=True``: refused), and so
    are those without effect here.

    Returns:
        an iterator of `DataBatch`; the order of the steps, the batches and the errors are those of `ImageRecordIter`.
    """
    values = read_parameters("ImageRecordInt8Iter", INT8_PARAMETERS, args, joined_paths(kwargs), idle_here)
    return _make(values, "int8")


_IN_FRONT = 4
"""Numbers before a label: channels, height and width of the image, length of the label."""


@documented(DETECTION_PARAMETERS)
def ImageDetRecordIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of the images and objects of record files, for detection.

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
