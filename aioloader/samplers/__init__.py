"""Samplers: the indices of an epoch and their order. Gluon's classes, most of them computed instead of stored,
and some for training sets.

A sampler that has a method ``indices`` can compute any range of any epoch in constant memory; the loaders then shard
and resume by arithmetic, without iterating over the indices before. Every sampler can be pickled.
"""

from aioloader.samplers.base import Sampler
from aioloader.samplers.batch import BatchSampler
from aioloader.samplers.classes import ClassBalancedSampler, PKSampler
from aioloader.samplers.mixing import MixingSampler
from aioloader.samplers.order import FilterSampler, IntervalSampler, RandomSampler, SequentialSampler
from aioloader.samplers.weighted import WeightedRandomSampler

__all__ = (
    "BatchSampler",
    "ClassBalancedSampler",
    "FilterSampler",
    "IntervalSampler",
    "MixingSampler",
    "PKSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
    "WeightedRandomSampler",
)
