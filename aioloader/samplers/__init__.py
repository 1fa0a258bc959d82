"""Samplers: the indices of an epoch and their order. Gluon's classes, most of them computed instead of stored,
and some for training sets.

A sampler that has a method ``indices`` can compute any range of any epoch in constant memory; the loaders then shard
and resume by arithmetic, without iterating over the indices before. Every sampler can be pickled.

`epoch_order` computes the order of an epoch, `basic` has the samplers that treat all indices alike, `blocks` the one
for data that are read in blocks, `training` those that draw by weight, class or set, and `batches` those of batches
within a budget, of like items, or of one variant, such as an image size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.samplers.basic import BatchSampler as BatchSampler
    from aioloader.samplers.basic import FilterSampler as FilterSampler
    from aioloader.samplers.basic import IntervalSampler as IntervalSampler
    from aioloader.samplers.basic import RandomSampler as RandomSampler
    from aioloader.samplers.basic import Sampler as Sampler
    from aioloader.samplers.basic import SequentialSampler as SequentialSampler
    from aioloader.samplers.batches import BucketBatchSampler as BucketBatchSampler
    from aioloader.samplers.batches import BudgetBatchSampler as BudgetBatchSampler
    from aioloader.samplers.batches import VariantBatchSampler as VariantBatchSampler
    from aioloader.samplers.batches import aspect_shapes as aspect_shapes
    from aioloader.samplers.batches import nearest_shape as nearest_shape
    from aioloader.samplers.blocks import BlockShuffleSampler as BlockShuffleSampler
    from aioloader.samplers.training import ClassBalancedSampler as ClassBalancedSampler
    from aioloader.samplers.training import MixingSampler as MixingSampler
    from aioloader.samplers.training import PKSampler as PKSampler
    from aioloader.samplers.training import WeightedRandomSampler as WeightedRandomSampler

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.samplers.basic": (
            "BatchSampler FilterSampler IntervalSampler RandomSampler Sampler SequentialSampler"
        ),
        "aioloader.samplers.blocks": "BlockShuffleSampler",
        "aioloader.samplers.batches": (
            "BucketBatchSampler BudgetBatchSampler VariantBatchSampler aspect_shapes nearest_shape"
        ),
        "aioloader.samplers.training": "ClassBalancedSampler MixingSampler PKSampler WeightedRandomSampler",
    },
)
