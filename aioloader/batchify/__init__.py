"""Functions that make one batch from many samples: Gluon's classes on numpy, and batches of samples of any shape.

Samples are split by field (tuples, lists, dicts, named tuples, dataclasses), each field is collated separately, and the
batch has the samples' structure: tuples of images and labels become a tuple of an image batch and a label batch. Every
one of Gluon's functions takes ``out``, arrays of the batch's structure to write into, if the result is arrays.

`Compose` changes the batch after it was collated, by transforms for batches such as `aioloader.transforms.MixUp`. A
function with a parameter ``rng`` is passed the draws of its batch (`aioloader.abc.Batchify`).

Samples of different shapes: `Ragged` puts their values behind one another, `Pad` makes them equally large, and
`Patches` cuts images into the patches that vision transformers read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.batchify.compose import Compose as Compose
    from aioloader.batchify.compose import Group as Group
    from aioloader.batchify.pad import Pad as Pad
    from aioloader.batchify.pad import PaddedBatch as PaddedBatch
    from aioloader.batchify.ragged import PatchBatch as PatchBatch
    from aioloader.batchify.ragged import Patches as Patches
    from aioloader.batchify.ragged import Ragged as Ragged
    from aioloader.batchify.ragged import RaggedBatch as RaggedBatch
    from aioloader.batchify.stack import Append as Append
    from aioloader.batchify.stack import AsList as AsList
    from aioloader.batchify.stack import Stack as Stack
    from aioloader.batchify.stack import default_batchify_fn as default_batchify_fn
    from aioloader.batchify.stack import stack_leaves as stack_leaves

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.batchify.stack": "Append AsList Stack default_batchify_fn stack_leaves",
        "aioloader.batchify.compose": "Compose Group",
        "aioloader.batchify.pad": "Pad PaddedBatch",
        "aioloader.batchify.ragged": "PatchBatch Patches Ragged RaggedBatch",
    },
)
