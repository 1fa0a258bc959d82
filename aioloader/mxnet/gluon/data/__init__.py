"""`mx.gluon.data`: datasets, samplers, batchify functions and the loader."""

from aioloader.mxnet.base import exported as _exported
from aioloader.mxnet.gluon.data import batchify as batchify
from aioloader.mxnet.gluon.data import dataloader as dataloader
from aioloader.mxnet.gluon.data import dataset as dataset
from aioloader.mxnet.gluon.data import sampler as sampler
from aioloader.mxnet.gluon.data import vision as vision
from aioloader.mxnet.gluon.data.dataloader import DataLoader as DataLoader
from aioloader.mxnet.gluon.data.dataset import ArrayDataset as ArrayDataset
from aioloader.mxnet.gluon.data.dataset import Dataset as Dataset
from aioloader.mxnet.gluon.data.dataset import RecordFileDataset as RecordFileDataset
from aioloader.mxnet.gluon.data.dataset import SimpleDataset as SimpleDataset
from aioloader.mxnet.gluon.data.sampler import BatchSampler as BatchSampler
from aioloader.mxnet.gluon.data.sampler import FilterSampler as FilterSampler
from aioloader.mxnet.gluon.data.sampler import IntervalSampler as IntervalSampler
from aioloader.mxnet.gluon.data.sampler import RandomSampler as RandomSampler
from aioloader.mxnet.gluon.data.sampler import Sampler as Sampler
from aioloader.mxnet.gluon.data.sampler import SequentialSampler as SequentialSampler

__all__ = _exported(globals(), "batchify", "dataloader", "dataset", "sampler", "vision")
