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

from aioloader.mxnet.base import TooManyFailedError as TooManyFailedError
from aioloader.mxnet.base import exported as _exported
from aioloader.mxnet.io.augment import DetectionLabelError as DetectionLabelError
from aioloader.mxnet.io.augment import LabelPadError as LabelPadError
from aioloader.mxnet.io.backend_iter import MXDataIter as MXDataIter
from aioloader.mxnet.io.file_iters import CSVIter as CSVIter
from aioloader.mxnet.io.file_iters import LibSVMIter as LibSVMIter
from aioloader.mxnet.io.file_iters import MNISTIter as MNISTIter
from aioloader.mxnet.io.image_record_iter import ImageDetRecordIter as ImageDetRecordIter
from aioloader.mxnet.io.image_record_iter import ImageRecordError as ImageRecordError
from aioloader.mxnet.io.image_record_iter import ImageRecordInt8Iter as ImageRecordInt8Iter
from aioloader.mxnet.io.image_record_iter import ImageRecordIter as ImageRecordIter
from aioloader.mxnet.io.image_record_iter import ImageRecordUInt8Iter as ImageRecordUInt8Iter
from aioloader.mxnet.io.image_records import MissingLabelError as MissingLabelError
from aioloader.mxnet.io.iterator import DataBatch as DataBatch
from aioloader.mxnet.io.iterator import DataDesc as DataDesc
from aioloader.mxnet.io.iterator import DataIter as DataIter
from aioloader.mxnet.io.ndarray_iter import NDArrayIter as NDArrayIter
from aioloader.mxnet.io.ndarray_iter import _has_instance as _has_instance
from aioloader.mxnet.io.ndarray_iter import _init_data as _init_data
from aioloader.mxnet.io.parameters import MissingParameterError as MissingParameterError
from aioloader.mxnet.io.parameters import UnknownParameterWarning as UnknownParameterWarning
from aioloader.mxnet.io.parameters import UnusedParameterWarning as UnusedParameterWarning
from aioloader.mxnet.io.wrappers import PrefetchingIter as PrefetchingIter
from aioloader.mxnet.io.wrappers import ResizeIter as ResizeIter
from aioloader.mxnet.outside import module_elsewhere as _module_elsewhere


def __getattr__(name: str) -> Any:
    return _module_elsewhere(__name__, name)


# MXNet 1 keeps its first implementations under these names.
ImageRecordIter_v1 = ImageRecordIter
ImageRecordUInt8Iter_v1 = ImageRecordUInt8Iter

__all__ = _exported(globals())
