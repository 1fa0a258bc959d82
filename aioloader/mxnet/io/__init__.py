"""`mx.io`: data iterators.

- `desc`, `iterator`: the contract
- `ndarray_iter`: arrays in memory
- `csv_iter`, `libsvm_iter`, `mnist_iter`: files that MXNet reads in C++; `backend_iter`, `rounds`, `parameters` and
  `uris` are what these have in common
- `wrappers`: iterators round others
"""

from __future__ import annotations

from aioloader.mxnet.io.backend_iter import MXDataIter
from aioloader.mxnet.io.csv_iter import CSVIter
from aioloader.mxnet.io.desc import DataBatch, DataDesc
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.io.libsvm_iter import LibSVMIter
from aioloader.mxnet.io.mnist_iter import MNISTIter
from aioloader.mxnet.io.ndarray_iter import NDArrayIter
from aioloader.mxnet.io.parameters import UnknownParameterWarning
from aioloader.mxnet.io.wrappers import PrefetchingIter, ResizeIter

__all__ = (
    "CSVIter",
    "DataBatch",
    "DataDesc",
    "DataIter",
    "LibSVMIter",
    "MNISTIter",
    "MXDataIter",
    "NDArrayIter",
    "PrefetchingIter",
    "ResizeIter",
    "UnknownParameterWarning",
)
