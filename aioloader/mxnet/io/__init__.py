"""`mx.io`: data iterators.

- `iterator`: the contract
- `ndarray_iter`: arrays in memory
- `file_iters`: files of rows that MXNet reads in C++: CSV, LibSVM, MNIST; `backend_iter`, `schedule` and
  `parameters` are the common parts of these and of the record iterators
- `image_record_iter`: images in .rec files, with or without boxes, loaded by `aioloader.DataLoader`.
  `record_parameters` declares the arguments, `augment` builds transforms from them and moves boxes; `image_records` is
  the dataset, also with the labels of a list, `schedule` computes the order
- `wrappers`: iterators around other iterators
"""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.base import TooManyFailedError
from aioloader.mxnet.io.augment import DetectionLabelError, LabelPadError
from aioloader.mxnet.io.backend_iter import MXDataIter
from aioloader.mxnet.io.file_iters import CSVIter, LibSVMIter, MNISTIter
from aioloader.mxnet.io.image_record_iter import (
    ImageDetRecordIter,
    ImageRecordError,
    ImageRecordInt8Iter,
    ImageRecordIter,
    ImageRecordUInt8Iter,
)
from aioloader.mxnet.io.image_records import MissingLabelError
from aioloader.mxnet.io.iterator import DataBatch, DataDesc, DataIter
from aioloader.mxnet.io.ndarray_iter import NDArrayIter
from aioloader.mxnet.io.ndarray_iter import _has_instance as _has_instance
from aioloader.mxnet.io.ndarray_iter import _init_data as _init_data
from aioloader.mxnet.io.parameters import (
    MissingParameterError,
    UnknownParameterWarning,
    UnusedParameterWarning,
)
from aioloader.mxnet.io.wrappers import PrefetchingIter, ResizeIter
from aioloader.mxnet.outside import module_elsewhere

__all__ = (
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "DetectionLabelError",
    "ImageDetRecordIter",
    "ImageRecordError",
    "ImageRecordInt8Iter",
    "ImageRecordIter",
    "ImageRecordIter_v1",
    "ImageRecordUInt8Iter",
    "ImageRecordUInt8Iter_v1",
    "LabelPadError",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "MissingLabelError",
    "MissingParameterError",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "TooManyFailedError",
    "UnknownParameterWarning",
    "UnusedParameterWarning",
)


def __getattr__(name: str) -> Any:
    return module_elsewhere(__name__, name)


# MXNet 1 keeps its first implementations under these names.
ImageRecordIter_v1 = ImageRecordIter
ImageRecordUInt8Iter_v1 = ImageRecordUInt8Iter
