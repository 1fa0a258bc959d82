"""`mx.gluon.data`: datasets, samplers, batchify functions and the loader."""

from aioloader.mxnet.gluon.data import batchify, dataloader, dataset, sampler, vision
from aioloader.mxnet.gluon.data.dataloader import DataLoader
from aioloader.mxnet.gluon.data.dataset import ArrayDataset, Dataset, RecordFileDataset, SimpleDataset
from aioloader.mxnet.gluon.data.sampler import (
    BatchSampler,
    FilterSampler,
    IntervalSampler,
    RandomSampler,
    Sampler,
    SequentialSampler,
)

__all__ = (
    "ArrayDataset",
    "BatchSampler",
    "DataLoader",
    "Dataset",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "RecordFileDataset",
    "Sampler",
    "SequentialSampler",
    "SimpleDataset",
    "batchify",
    "dataloader",
    "dataset",
    "sampler",
    "vision",
)
