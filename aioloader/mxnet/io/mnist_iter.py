"""`MNISTIter`: batches of the files of MNIST."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.idx import read_idx
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.backend_iter import ArrayBatches, MXDataIter
from aioloader.mxnet.io.parameters import COMMON, Parameter, read_parameters

if TYPE_CHECKING:
    from aioloader.foundation.types import Array

_PARAMETERS = {
    **COMMON,
    "image": Parameter("string", "./train-images-idx3-ubyte"),
    "label": Parameter("string", "./train-labels-idx1-ubyte"),
    "batch_size": Parameter("int", 128, low=1),
    "data_shape": Parameter("string", None),  # the files say it; many scripts give it all the same
    "shuffle": Parameter("boolean", True),
    "flat": Parameter("boolean", False),
    "seed": Parameter("int", 0),
    "silent": Parameter("boolean", False),
    "num_parts": Parameter("int", 1, low=1),
    "part_index": Parameter("int", 0, low=0),
}


def MNISTIter(*args: Any, **kwargs: Any) -> MXDataIter:
    """Return batches of MNIST's files: float32 images, pixel / 256, and float32 labels; an incomplete batch is dropped.

    Takes keyword arguments only; unknown ones are warned about (``strict=True``: refused).

    Args:
        image, label: IDX files, gzipped if their name ends in ".gz". If a file does not exist, the one with ".gz"
            appended is used.
        batch_size: rows of a batch.
        shuffle: put the rows in a random order, the same in every pass. It depends on `seed`, but is not MXNet's order
            of that seed.
        flat: return images of shape (784,) instead of (1, 28, 28).
        seed: seed of the order.
        num_parts, part_index: load only one of `num_parts` equal parts of the file, by number from 0.
        data_name, label_name: names of the two inputs in the network.
        data_shape, silent, round_batch, dtype, prefetch_buffer, ctx: accepted; without effect.

    Raises:
        MXNetError: an argument is wrong; a file is missing or not in MNIST's format, or the two do not fit together.
    """
    values = read_parameters("MNISTIter", _PARAMETERS, args, kwargs)
    images, labels = _read(values["image"], 3), _read(values["label"], 1)
    if len(images) != len(labels):
        raise MXNetError(
            f"there are {len(images)} images and {len(labels)} labels; the files do not belong together"
        )
    parts, part = values["num_parts"], values["part_index"]
    if part >= parts:
        raise MXNetError(f"part_index {part} must be below num_parts {parts}")
    first, last = int(len(images) / parts * part), int(len(images) / parts * (part + 1))
    images, labels = images[first:last], labels[first:last]
    order = np.arange(len(images))
    if values["shuffle"]:
        order = np.random.Generator(np.random.PCG64(values["seed"] & 0xFFFFFFFF)).permutation(order)
    height, width = images.shape[1:]
    shape = (height * width,) if values["flat"] else (1, height, width)

    def convert(pixels: Array, digits: Array) -> tuple[Array, Array]:
        scaled = pixels.astype(np.float32) * np.float32(1 / 256)
        return scaled.reshape(len(pixels), *shape), digits

    size = values["batch_size"]
    whole = order[: len(order) // size * size]
    batches = ArrayBatches(
        images, labels.astype(np.float32), batch_size=size, first=first, order=whole, convert=convert
    )
    return MXDataIter(batches, values["data_name"], values["label_name"])


def _read(path: str, axes: int) -> Array:
    try:
        return read_idx(path, axes)
    except FileNotFoundError:
        try:
            return read_idx(f"{path}.gz", axes)
        except FileNotFoundError as error:
            raise MXNetError(
                f"{path} does not exist; MNIST's files are not downloaded, put it there"
            ) from error
    except ValueError as error:
        raise MXNetError(str(error)) from error
