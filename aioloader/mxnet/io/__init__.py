"""`mx.io`: data iterators.

- `desc`, `iterator`: the contract
- `ndarray_iter`: arrays in memory
- `csv_iter`, `libsvm_iter`, `mnist_iter`: files that MXNet reads in C++; `backend_iter`, `rounds`, `parameters` and
  `uris` are what these have in common
- `image_record_iter`, `image_det_record_iter`: images in .rec files, loaded by the engine. `record_parameters`,
  `image_parameters` and `det_parameters` have their arguments, `augment` and `det_augment` make transforms of them,
  `det_boxes` moves boxes; `image_records` and `label_list` are the dataset, `alpha_image` decodes what has an alpha
  channel, `passes` is the order, `image_batches` the loader, `mean_image` the mean image
- `wrappers`: iterators round others
"""

from __future__ import annotations

from aioloader.mxnet.io.backend_iter import MXDataIter
from aioloader.mxnet.io.csv_iter import CSVIter
from aioloader.mxnet.io.desc import DataBatch, DataDesc
from aioloader.mxnet.io.det_boxes import DetectionLabelError, LabelPadError
from aioloader.mxnet.io.image_batches import ImageRecordError
from aioloader.mxnet.io.image_det_record_iter import ImageDetRecordIter
from aioloader.mxnet.io.image_record_iter import ImageRecordInt8Iter, ImageRecordIter, ImageRecordUInt8Iter
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.io.label_list import MissingLabelError
from aioloader.mxnet.io.libsvm_iter import LibSVMIter
from aioloader.mxnet.io.mnist_iter import MNISTIter
from aioloader.mxnet.io.ndarray_iter import NDArrayIter
from aioloader.mxnet.io.parameters import (
    MissingParameterError,
    UnknownParameterWarning,
    UnusedParameterWarning,
)
from aioloader.mxnet.io.wrappers import PrefetchingIter, ResizeIter

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
    "UnknownParameterWarning",
    "UnusedParameterWarning",
)

# MXNet 1 keeps its first implementations under these names.
ImageRecordIter_v1 = ImageRecordIter
ImageRecordUInt8Iter_v1 = ImageRecordUInt8Iter
