"""Functions that make one batch from many samples: Gluon's classes on numpy, and batches of samples of any shape.

Samples are split by field (tuples, lists, dicts, named tuples, dataclasses), each field is collated separately, and the
batch has the samples' structure: tuples of images and labels become a tuple of an image batch and a label batch. Every
function of Gluon takes ``out``, arrays of the batch's structure to write into, if the result is arrays.

`Stack` needs samples of one shape. `Pad` makes them equal, `Ragged` puts their values behind one another, and `Patches`
cuts images into the patches of vision transformers.
"""

from aioloader.batchify.grouping import Append, AsList, Group
from aioloader.batchify.pad import Pad
from aioloader.batchify.patches import PatchBatch, Patches
from aioloader.batchify.ragged import Ragged, RaggedBatch
from aioloader.batchify.stack import Stack, default_batchify_fn, stack_leaves

__all__ = (
    "Append",
    "AsList",
    "Group",
    "Pad",
    "PatchBatch",
    "Patches",
    "Ragged",
    "RaggedBatch",
    "Stack",
    "default_batchify_fn",
    "stack_leaves",
)
