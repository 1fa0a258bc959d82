"""Collation of images to the patches of vision transformers, all images behind one another."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.nesting import flatten_levels
from aioloader.foundation.patches import patch_grid, write_patches
from aioloader.foundation.validation import at_least

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array


@dataclass(frozen=True)
class PatchBatch:
    """Patches of the images of several samples, behind one another, in the order of Qwen2-VL.

    Attributes:
        pixel_values: (patches, channels x temporal x patch x patch).
        image_grid_thw: int64 (images, 3), the number of patches of each image: in time, rows, columns.
        cu_seqlens: int32 (images + 1,), the first patch of each image, and the number of all.
        owners: int64 (images,), the sample of each image.
        prompts: the prompts of an image service's `pack`; None in a loader.
        num_tokens: patches of all images after merging.
    """

    pixel_values: Any
    image_grid_thw: Any
    cu_seqlens: Any
    owners: Any
    prompts: Any = None
    num_tokens: int = 0


class Patches:
    """Collation of images to a `PatchBatch`, in a worker, with one copy of each value.

    Args:
        patch: side of a patch in pixels.
        merge: patches that the model merges, in each direction.
        temporal: how often an image is repeated in time.

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(self, patch: int = 14, merge: int = 2, temporal: int = 2) -> None:
        for name, number in (("patch", patch), ("merge", merge), ("temporal", temporal)):
            at_least(name, number, 1)
        self._patch = patch
        self._merge = merge
        self._temporal = temporal

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate.

        Args:
            samples: images (height, width, channels) whose sides are multiples of patch x merge, or lists of them; or
                tuples whose first field is one, and whose other fields are stacked.
            out: must be None.

        Returns:
            a `PatchBatch`, or a tuple of it and the other fields.

        Raises:
            ValueError: an image cannot be cut into patches, or images have different dtypes or channels.
        """
        from aioloader.batchify.stack import stack_leaves

        if out is not None:
            raise ValueError("Patches() makes arrays of sizes that nobody knows before, so it takes no out")
        if not len(samples):
            raise ValueError("there are no samples to collate")
        if isinstance(samples[0], tuple):
            first, *others = zip(*samples, strict=True)
            return (self._batch(first), *(stack_leaves(list(field)) for field in others))
        return self._batch(samples)

    def _batch(self, samples: Sequence[Any]) -> PatchBatch:
        nested = [sample if isinstance(sample, (list, tuple)) else [sample] for sample in samples]
        found, (offsets, *deeper) = flatten_levels(nested)
        if deeper:
            raise ValueError("Patches() takes images, or lists of images; these lists are nested deeper")
        images: list[Array] = [np.asarray(image) for image in found]
        kinds = {(str(image.dtype), image.shape[2:]) for image in images}
        if len(kinds) > 1 or any(image.ndim != 3 for image in images):
            shapes = sorted({f"{image.dtype} {image.shape}" for image in images})[:4]
            raise ValueError(
                "Patches() takes images (height, width, channels) of one dtype and number of channels, got "
                f"{'; '.join(shapes)}"
            )
        grids = [patch_grid(image.shape[0], image.shape[1], self._patch, self._merge) for image in images]
        ends = np.cumsum([0, *(rows * columns for rows, columns in grids)])
        channels = images[0].shape[2] if images else 3
        width = channels * self._temporal * self._patch**2
        values = np.empty((int(ends[-1]), width), images[0].dtype if images else np.float32)
        for image, first, last in zip(images, ends, ends[1:], strict=False):
            write_patches(image, values[first:last], self._patch, self._merge, self._temporal)
        return PatchBatch(
            values,
            np.array([(1, *grid) for grid in grids], np.int64).reshape(-1, 3),
            ends.astype(np.int32),
            np.repeat(np.arange(len(nested)), np.diff(offsets)),
            num_tokens=len(values) // self._merge**2,
        )
