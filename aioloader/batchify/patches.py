"""Collation of images to the patches that a vision transformer reads, in the order of Qwen2-VL."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.allocation import new_array
from aioloader.batchify.fields import collate_fields
from aioloader.batchify.nesting import flatten_nested, offsets_of
from aioloader.batchify.stack import stack_leaves
from aioloader.errors import BatchDtypeError, BatchShapeError
from aioloader.foundation.patches import patch_grid, write_patches
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array, IntArray

_PIXELS, _GRID = "pixel_values", "image_grid_thw"
_CHANNELS = 3


@dataclass(frozen=True, slots=True, eq=False)
class PatchBatch:
    """Patches of the images of a batch, behind one another; the input of Qwen2-VL's vision transformer.

    The fields are numpy arrays, or tensors with the option ``output`` of a loader.

    Attributes:
        pixel_values: (patches, channels * temporal * patch * patch), of the images' dtype.
        image_grid_thw: int64 (images, 3), the patches of each image: in time, rows, columns.
        cu_seqlens: int32 (images + 1,), the first patch of each image, and the number of all patches.
        offsets: int64 (samples + 1,), the first image of each sample, and the number of all images.
    """

    pixel_values: Any
    image_grid_thw: Any
    cu_seqlens: Any
    offsets: Any

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.offsets) - 1


class Patches:
    """Collation of images of any size into a `PatchBatch`, without padding.

    Each field of a sample is collated separately. A field of images becomes a `PatchBatch`; it is an image, the result
    of a processor (a dict of "pixel_values" and "image_grid_thw", such as that of
    `aioloader.transforms.Qwen2VLImageProcessor`), or a list of these: the images of a prompt. Fields of other arrays
    and of numbers are stacked, all others become lists.

    Args:
        patch: side of a patch in pixels.
        merge: patches that a token joins in each direction.
        temporal: how often each image is repeated: the frames of a patch.

    Raises:
        ValueError: a number is below 1.
    """

    def __init__(self, patch: int = 14, merge: int = 2, temporal: int = 2) -> None:
        for name, value in (("patch", patch), ("merge", merge), ("temporal", temporal)):
            require(value >= 1, f"{name} must be at least 1, got {value}")
        self._patch = patch
        self._merge = merge
        self._temporal = temporal

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the shape of the result is not known before, so `out` must be None.

        Args:
            samples: images are uint8 or floating-point (height, width, channels); both extents are multiples of
                patch * merge.
            out: None.

        Raises:
            BatchShapeError: an extent is not such a multiple, numbers of channels or values of a patch differ, or lists
                of images are nested.
            BatchDtypeError: images have different dtypes.
            ValueError: samples differ in structure, or fields that are not images in shape.
        """
        require(out is None, "Patches() finds the size of its result itself, so it takes no out")
        return self.collate(samples, new_array)

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        return collate_fields(samples, _is_leaf, lambda values: self._field(values, allocate))

    def _field(self, values: list[Any], allocate: Allocate) -> Any:
        if not any(map(_is_image, values)):
            return stack_leaves(values)
        if not all(map(_is_image, values)):
            place = next(place for place, value in enumerate(values) if not _is_image(value))
            raise BatchShapeError(
                f"Patches() takes images (height, width, channels), uint8 or floating-point, results of a processor, "
                f"or lists of these; sample {place} has {_described(values[place])}, other samples have images",
                place=place,
                shape=getattr(values[place], "shape", None),
                expected="(height, width, channels)",
            )
        lists = any(isinstance(value, list) for value in values)
        nested = flatten_nested(values, 1 if lists else 0)
        images = [
            _Image(image, self, place) for image, place in zip(nested.arrays, nested.places, strict=True)
        ]
        width, dtype = self._check(images)
        patches = offsets_of([image.count for image in images])
        pixels = allocate((int(patches[-1]), width), dtype)
        for image, first, stop in zip(images, patches[:-1].tolist(), patches[1:].tolist(), strict=True):
            image.write(pixels[first:stop], self)
        grids = np.array([grid for image in images for grid in image.grids], np.int64).reshape(-1, 3)
        seqlens = offsets_of(grids.prod(axis=1)).astype(np.int32)
        return PatchBatch(pixels, grids, seqlens, _first_images(images, len(values)))

    def _check(self, images: list[_Image]) -> tuple[int, np.dtype[Any]]:
        """Return the values of a patch, and their dtype."""
        if not images:  # prompts without images
            return _CHANNELS * self._temporal * self._patch**2, np.dtype(np.float32)
        first = images[0]
        for image in images:
            if image.width != first.width:
                raise BatchShapeError(
                    f"patches of sample {first.place} have {first.width} values, those of sample {image.place} "
                    f"{image.width}: images of a batch must have equally many channels",
                    place=image.place,
                    shape=image.pixels.shape,
                    expected=f"{first.width} values in a patch",
                )
            if image.pixels.dtype != first.pixels.dtype:
                found, expected = str(image.pixels.dtype), str(first.pixels.dtype)
                raise BatchDtypeError(image.place, found, expected, function="Patches()")
        return first.width, first.pixels.dtype

    def grid_of(self, image: Array, place: int) -> tuple[int, int]:
        """Return the rows and columns of patches of an image.

        Raises:
            BatchShapeError: an extent is not a multiple of patch * merge.
        """
        try:
            return patch_grid(image.shape[0], image.shape[1], self._patch, self._merge)
        except ValueError as error:
            side = self._patch * self._merge
            raise BatchShapeError(
                f"sample {place}: {error}, by transforms.Qwen2VLImageProcessor() or a Resize, or pad it with "
                f"batchify.Pad(multiple_of={side})",
                place=place,
                shape=image.shape,
                expected=f"multiples of {side}",
            ) from None

    def values_of_a_patch(self, channels: int) -> int:
        """Return the number of values of a patch of an image of this number of channels."""
        return channels * self._temporal * self._patch**2

    def write(self, image: Array, out: Array) -> None:
        """Write the patches of an image."""
        write_patches(image, out, self._patch, self._merge, self._temporal)


class _Image:
    """Image of a batch, or the result of a processor.

    Attributes:
        place: of its sample.
        pixels: the image, or its patches.
        grids: int (time, rows, columns) of patches; a result of a processor may have several images.
        count: number of patches.
        width: values of a patch.
    """

    __slots__ = ("_made", "count", "grids", "pixels", "place", "width")

    def __init__(self, value: Any, patches: Patches, place: int) -> None:
        self.place = place
        self._made = isinstance(value, Mapping)
        if self._made:
            self.pixels = np.asarray(value[_PIXELS])
            self.grids = np.asarray(value[_GRID]).reshape(-1, 3).tolist()
            self.count = sum(time * rows * columns for time, rows, columns in self.grids)
            if self.pixels.ndim != 2 or len(self.pixels) != self.count:
                raise BatchShapeError(
                    f"sample {place} has {_PIXELS} of shape {self.pixels.shape} and {_GRID} {self.grids}, which are "
                    f"{self.count} patches: the result of the processor contradicts itself",
                    place=place,
                    shape=self.pixels.shape,
                    expected=f"({self.count}, values of a patch)",
                )
            self.width = self.pixels.shape[1]
        else:
            self.pixels = np.asarray(value)
            rows, columns = patches.grid_of(self.pixels, place)
            self.grids = [[1, rows, columns]]
            self.count = rows * columns
            self.width = patches.values_of_a_patch(self.pixels.shape[2])

    def write(self, out: Array, patches: Patches) -> None:
        if self._made:
            out[...] = self.pixels
        else:
            patches.write(self.pixels, out)


def _first_images(images: list[_Image], samples: int) -> IntArray:
    counts = [0] * samples
    for image in images:
        counts[image.place] += len(image.grids)
    return offsets_of(counts)


def _is_leaf(value: Any) -> bool:
    return type(value) is list or _is_result(value)


def _is_result(value: Any) -> bool:
    return isinstance(value, Mapping) and set(value) == {_PIXELS, _GRID}


def _is_image(value: Any) -> bool:
    """Return whether a value is an image, the result of a processor, or a list of these."""
    if type(value) is list:
        return all(map(_is_image, value))
    if _is_result(value):
        return True
    shape, dtype = getattr(value, "shape", ()), str(getattr(value, "dtype", ""))
    return len(shape) == 3 and dtype.rpartition(".")[2].startswith(("uint8", "float", "bfloat"))


def _described(value: Any) -> str:
    shape = getattr(value, "shape", None)
    if shape is None:
        return f"a {type(value).__name__}"
    return f"an array of shape {tuple(shape)} and dtype {getattr(value, 'dtype', '?')}"
