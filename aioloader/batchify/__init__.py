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

from aioloader.foundation.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.batchify.compose import Compose, Group
    from aioloader.batchify.pad import Pad, PaddedBatch
    from aioloader.batchify.ragged import PatchBatch, Patches, Ragged, RaggedBatch
    from aioloader.batchify.stack import Append, AsList, Stack, default_batchify_fn, stack_leaves

__all__ = (
    "Append",
    "AsList",
    "Compose",
    "Group",
    "Pad",
    "PaddedBatch",
    "PatchBatch",
    "Patches",
    "Ragged",
    "RaggedBatch",
    "Stack",
    "default_batchify_fn",
    "stack_leaves",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aioloader.batchify.stack": "Append AsList Stack default_batchify_fn stack_leaves",
        "aioloader.batchify.compose": "Compose Group",
        "aioloader.batchify.pad": "Pad PaddedBatch",
        "aioloader.batchify.ragged": "PatchBatch Patches Ragged RaggedBatch",
    },
)
