"""Mean image of a record iterator (`mean_img`): read from a file in MXNet's format, or computed and written there."""

from __future__ import annotations

import os
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray_file import load, save
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array
    from aioloader.mxnet.io.backend_iter import Batches


def mean_image(path: str, shape: tuple[int, ...], make: Callable[[], Batches]) -> Array:
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
