"""Collation of arrays of any shapes: their values behind one another in one array.

Nested lists of arrays, such as the images of prompts: flattened, with the parts of every list counted. Pure.

Collation of images to the patches that a vision transformer reads, in the order of Qwen2-VL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.fields import collate_fields
from aioloader.batchify.stack import is_numeric, new_array, stack_leaves
from aioloader.errors import BatchDtypeError, BatchShapeError
from aioloader.foundation.patches import patch_grid, write_patches
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array, IntArray


_NUMBERS = (bool, int, float, complex, np.number, np.bool_)
_LISTS = (list, tuple)


def is_list(value: Any) -> bool:
    """Return whether a value is a list, and not a field of a sample that has parts."""
    return type(value) is list


def holds_numbers(value: Any) -> bool:
    """Return whether a value is an array, a number, or a nested list of them only; an empty list is."""
    if isinstance(value, _LISTS):
        return all(map(holds_numbers, value))
    return is_numeric(value)


def least_levels(value: Any) -> int:
    """Return how many levels of lists a value has above its arrays; a list of numbers is an array itself.

    An empty list may be an array or a list of arrays: then it is the smallest number possible.
    """
    if not isinstance(value, _LISTS) or not value or all(isinstance(part, _NUMBERS) for part in value):
        return 0
    return 1 + max(map(least_levels, value))


@dataclass(slots=True)
class Nested:
    """The arrays of nested lists.

    Attributes:
        arrays: the arrays of all samples, in order.
        places: the sample of each array.
        nesting: int64 (lists of the level + 1,) for each level from the outermost: the first part of each list, a list
            of the next level or an array, and the number of all parts.
    """

    arrays: list[Any] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    nesting: tuple[IntArray, ...] = ()


def flatten_nested(values: Sequence[Any], levels: int | None) -> Nested:
    """Flatten the nested lists of samples.

    Args:
        values: of each sample: an array or a list of numbers below `levels` levels of lists.
        levels: the levels; None: those of the deepest sample.

    Raises:
        BatchShapeError: a sample has another number of levels.
    """
    if levels is None:
        levels = max(map(least_levels, values), default=0)
    found = Nested()
    counts: list[list[int]] = [[] for _ in range(levels)]

    def visit(value: Any, level: int, place: int) -> None:
        if level == levels:
            if isinstance(value, _LISTS) and least_levels(value) > 0:
                raise _uneven(place, levels, "more")
            found.arrays.append(value)
            found.places.append(place)
        elif not isinstance(value, _LISTS):
            raise _uneven(place, levels, "fewer")
        else:
            counts[level].append(len(value))
            for part in value:
                visit(part, level + 1, place)

    for place, value in enumerate(values):
        visit(value, 0, place)
    found.nesting = tuple(offsets_of(each) for each in counts)
    return found


def offsets_of(counts: Sequence[int]) -> IntArray:
    """Return where each part begins, and the end of the last one; int64 (len(counts) + 1,)."""
    offsets = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=offsets[1:])
    return offsets


def _uneven(place: int, levels: int, than: str) -> BatchShapeError:
    return BatchShapeError(
        f"sample {place} has {than} than {levels} levels of lists above its arrays; the samples of a batch must have "
        "equally many: put a single array into a list, or pass levels=",
        place=place,
        expected=f"{levels} levels",
    )


@dataclass(frozen=True, slots=True, eq=False)
class RaggedBatch:
    """Batch of arrays of different shapes, or of nested lists of them.

    The fields are numpy arrays, or tensors with the option ``output`` of a loader. ``batch[i]`` is a view of `values`.

    Attributes:
        values: the values of all arrays behind one another: (values,), or (rows, ...) where the arrays differ in their
            first axis only (``Ragged(rows=True)``).
        offsets: int64 (arrays + 1,), the first value (or row) of each array, and the number of all.
        shapes: int64 (arrays, axes), the shape of each array.
        nesting: int64 (lists + 1,) for each level of lists, from the outermost: the first part of each list, and the
            number of all parts; empty if each sample is one array. With one level, ``nesting[0]`` are the first arrays
            of the samples.
    """

    values: Any
    offsets: Any
    shapes: Any
    nesting: tuple[Any, ...] = ()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.nesting[0] if self.nesting else self.offsets) - 1

    def __getitem__(self, index: int) -> Any:
        """Return sample `index`: a view with its shape, or nested lists of views; negative ones count from the end.

        Raises:
            IndexError: there is no such sample.
        """
        length = len(self)
        if not -length <= index < length:
            raise IndexError(f"index {index} is out of range: this batch has {length} samples")
        return self._part(index % length, 0)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the samples."""
        return (self._part(place, 0) for place in range(len(self)))

    def to_list(self) -> list[Any]:
        """Return the samples as a list of views."""
        return list(self)

    def _part(self, place: int, level: int) -> Any:
        if level < len(self.nesting):
            first, stop = (int(each) for each in self.nesting[level][place : place + 2])
            return [self._part(part, level + 1) for part in range(first, stop)]
        first, stop = (int(each) for each in self.offsets[place : place + 2])
        return self.values[first:stop].reshape(tuple(int(extent) for extent in self.shapes[place]))


class Ragged:
    """Collation of arrays that differ in shape, into a `RaggedBatch`: nothing is padded.

    Each field of a sample is collated separately. A field of arrays becomes a `RaggedBatch`, and so does a field of
    lists: a list of numbers is an array, and a list of arrays or lists is nested, such as the images of a prompt. So a
    list is never split into fields, but tuples, dicts and dataclasses are. Fields of single numbers are stacked, all
    others become lists.

    Args:
        rows: the arrays differ in their first axis only, and are put together along it: `values` is (rows, ...).
            False: any axis may differ, and `values` has one axis.
        levels: levels of lists above the arrays of a field; None: those of the deepest sample of the batch. Pass it
            where a batch may have no arrays at all, such as prompts without images. Fields of single numbers or text
            are not affected.
        dtype: of the values; None: that of the arrays, which must be the same. Empty lists have none.

    Raises:
        ValueError: `levels` is negative.
    """

    def __init__(self, rows: bool | None = None, levels: int | None = None, *, dtype: Any = None) -> None:
        require(levels is None or levels >= 0, f"levels must not be negative, got {levels}")
        self._rows = bool(rows)
        self._levels = levels
        self._dtype: np.dtype[Any] | None = None if dtype is None else np.dtype(dtype)

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the shape of the result is not known before, so `out` must be None.

        Raises:
            BatchDtypeError: the arrays of a field have different dtypes.
            BatchShapeError: their numbers of axes differ, their nesting does, or with `rows` the axes after the first.
            TypeError: values cannot be converted to `dtype`.
            ValueError: samples differ in structure.
        """
        require(out is None, "Ragged() finds the size of its result itself, so it takes no out")
        return self.collate(samples, new_array)

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        return collate_fields(samples, is_list, lambda values: self._field(values, allocate))

    def _field(self, values: list[Any], allocate: Allocate) -> Any:
        if not all(map(holds_numbers, values)):
            return list(values)
        if not any(map(_has_axes, values)):
            return stack_leaves(values)
        nested = flatten_nested(values, self._levels)
        arrays, dtype = arrays_of(nested, self._dtype, "Ragged()")
        axes = max((array.ndim for array in arrays), default=1)
        shapes = np.array([array.shape for array in arrays], np.int64).reshape(len(arrays), axes)
        rest: tuple[int, ...] = ()
        counts = shapes.prod(axis=1)
        if self._rows:
            rest = self._common_rest(nested, arrays)
            counts = shapes[:, 0] if axes else counts
        offsets = offsets_of(counts)
        result = allocate((int(offsets[-1]), *rest), dtype)
        for array, first, stop in zip(arrays, offsets[:-1].tolist(), offsets[1:].tolist(), strict=True):
            np.copyto(result[first:stop].reshape(array.shape), array, casting="same_kind")
        return RaggedBatch(result, offsets, shapes, nested.nesting)

    @staticmethod
    def _common_rest(nested: Nested, arrays: list[Array]) -> tuple[int, ...]:
        """Return the shape of a row; raise if arrays with values differ in it."""
        kept = [number for number, array in enumerate(arrays) if array.shape[0] or array.ndim > 1]
        rest = arrays[kept[0]].shape[1:] if kept else ()
        for number in kept:
            if arrays[number].shape[1:] != rest:
                place = nested.places[number]
                raise BatchShapeError(
                    f"with rows=True arrays differ in their first axis only: rows of sample "
                    f"{nested.places[kept[0]]} have shape {rest}, rows of sample {place} {arrays[number].shape[1:]}; "
                    "use Ragged() without rows",
                    place=place,
                    shape=arrays[number].shape,
                    expected=f"(rows, {', '.join(map(str, rest))})",
                )
        return rest


def _has_axes(value: Any) -> bool:
    return isinstance(value, list) or len(getattr(value, "shape", ())) > 0


def arrays_of(
    nested: Nested, dtype: np.dtype[Any] | None, function: str
) -> tuple[list[Array], np.dtype[Any]]:
    """Return the arrays of one number of axes and one dtype, and the dtype.

    Args:
        nested: the values.
        dtype: to convert to; None: they must agree. Arrays of no list with numbers determine it: float64.
        function: named in errors.

    Raises:
        BatchDtypeError, BatchShapeError: they do not agree.
        ValueError: a value is not an array of numbers.
    """
    arrays: list[Array] = []
    first: int | None = None  # the first that has a dtype and axes: an empty list has none
    for number, value in enumerate(nested.arrays):
        array, place = np.asarray(value), nested.places[number]
        arrays.append(array)
        if isinstance(value, (list, tuple)) and not array.size:
            continue
        if array.dtype.kind not in "biufc" or array.ndim == 0:
            kind = "no axes" if array.ndim == 0 else f"dtype {array.dtype}"
            raise ValueError(f"{function} takes arrays and lists of numbers; sample {place} has {kind}")
        if first is None:
            first = number
            continue
        before = arrays[first]
        if array.ndim != before.ndim:
            raise BatchShapeError(
                f"{function} takes arrays with equally many axes: sample {nested.places[first]} has shape "
                f"{before.shape}, sample {place} has shape {array.shape}",
                place=place,
                shape=array.shape,
                expected=f"{before.ndim} axes",
            )
        if dtype is None and array.dtype != before.dtype:
            raise BatchDtypeError(place, str(array.dtype), str(before.dtype), function=function)
    if first is None:
        return arrays, dtype or np.dtype(np.float64)
    found = dtype or arrays[first].dtype
    empty = (0, *arrays[first].shape[1:])
    for number, value in enumerate(nested.arrays):
        if isinstance(value, (list, tuple)) and not arrays[number].size:
            arrays[number] = np.empty(empty, found)
    return arrays, found


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
