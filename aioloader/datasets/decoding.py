"""Decoders of the file datasets: bytes to samples. They are small and are sent to each worker once."""

from __future__ import annotations

import math
import threading
from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from aioloader.abc import Decoder, FusedDecoder
from aioloader.crop_index import AUTO
from aioloader.datasets.resolve import decoder_of
from aioloader.errors import IncompleteItemError
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.formats import image_size
from aioloader.transforms.fused import NeededRegion, plan_of
from aioloader.transforms.lazy_image import LazyImageReader, Scratch

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.abc import ByteDataset
    from aioloader.crop_index.lookup import FolderCrops, RecordCrops
    from aioloader.datasets.stage import Stage
    from aioloader.foundation.types import Array, IntArray, ItemLocation, StageTimer
    from aioloader.rng import Rng

_local = threading.local()

_FLOAT16_MAX = 65504.0

PARTS = np.dtype([("first", np.int64), ("stop", np.int64), ("nbytes", np.int64)])
"""Extra of a record of which only parts may have been read: the first row of MCUs that was read and the one behind the
last, and the bytes of the whole record; zeros if it was read whole."""


def _scratch() -> Scratch:
    """Return this thread's pool of pixel buffers; new memory for every image would cost page faults."""
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = Scratch()
    return scratch


def decode_here(data: Any, *, flag: int, exif: str, max_pixels: int | None, path: str | None) -> Array:
    """Return a decoded image in the pixel buffers of this thread; see `aioloader.transforms.decode_image`."""
    return decode_image(data, flag=flag, exif=exif, max_pixels=max_pixels, scratch=_scratch(), path=path)


class ImageKeywords(TypedDict, total=False):
    """Keywords of every dataset of images, for type checkers; `ImageOptions` has their defaults."""

    exif: str
    max_pixels: int | None
    label_dtype: Any
    dct_scaling: bool
    crop_index: str | os.PathLike[str] | None
    cache: str | os.PathLike[str] | None
    cache_limit: int | str | None


class ShardKeywords(ImageKeywords, total=False):
    """Those of a dataset over shards."""

    flag: int


@dataclass(frozen=True, kw_only=True)
class ImageOptions:
    """Options of every dataset of images, checked before the first sample is read; see `ImageRecordDataset`.

    Raises:
        ValueError: an option is not allowed.
        TypeError: `flag` is a function.
    """

    flag: int = 1
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    label_dtype: Any = None
    dct_scaling: bool = False
    crop_index: str | os.PathLike[str] | None = AUTO
    cache: str | os.PathLike[str] | None = None
    cache_limit: int | str | None = None

    def __post_init__(self) -> None:
        if callable(self.flag):
            raise TypeError(
                "flag must be 1 (colour), 0 (grey) or -1 (as stored), got a function: use "
                "dataset.transform_first(transform), or dataset.transform(fn) for all fields"
            )
        if self.flag not in (0, 1, -1):
            raise ValueError(f"flag must be 1 (colour), 0 (grey) or -1 (as stored), got {self.flag!r}")
        if self.exif not in ("apply", "ignore"):
            raise ValueError(f"exif must be 'apply' or 'ignore', got {self.exif!r}")
        if self.max_pixels is not None and self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, or None for no limit, got {self.max_pixels!r}")
        if self.dtype is not None and self.dtype.kind not in "iuf":
            raise ValueError(f"label_dtype must be an integer or floating-point dtype, got {self.dtype}")

    @property
    def dtype(self) -> np.dtype[Any] | None:
        """Return `label_dtype` as a dtype, or None."""
        return None if self.label_dtype is None else np.dtype(self.label_dtype)

    @property
    def decoding(self) -> dict[str, Any]:
        """Return the options that all decoders of images have, by their names."""
        return {"flag": self.flag, "exif": self.exif, "max_pixels": self.max_pixels}


def check_labelled(label: str | None, what: str) -> bool:
    """Return True if samples have labels, by the option `label` of a dataset whose samples have no named fields.

    Raises:
        TypeError: it is the name of a field.
    """
    if label not in (AUTO, None):
        raise TypeError(
            f"{what} have no fields with names: label must be None (images alone) or {AUTO!r}, got {label!r}"
        )
    return label is not None


def label_value(value: float, dtype: np.dtype[Any]) -> Any:
    """Return a scalar label as a numpy scalar of `dtype`.

    Raises:
        ValueError: `dtype` cannot hold it.
    """
    if dtype.kind == "f":
        # Few labels are beyond the range of float16; only for them the range of `dtype` is looked up.
        if _FLOAT16_MAX < abs(value) < math.inf and abs(value) > float(np.finfo(dtype).max):
            raise _misfit(value, dtype)
        return dtype.type(value)
    bounds = np.iinfo(dtype)
    if bounds.min <= value <= bounds.max and float(value).is_integer():
        return dtype.type(int(value))
    raise _misfit(value, dtype)


def _misfit(value: object, dtype: np.dtype[Any]) -> ValueError:
    larger = "float64" if dtype.kind == "f" and dtype.itemsize >= 4 else "float32"
    return ValueError(
        f"the label {value} does not fit label_dtype {dtype}, which was passed or derived from the first labels: "
        f"pass label_dtype={larger!r} to the dataset"
    )


def label_vector(values: Array, dtype: np.dtype[Any]) -> Array:
    """Return an array of labels in `dtype`, always a copy.

    Raises:
        ValueError: `dtype` cannot hold one of them.
    """
    if dtype == values.dtype:
        # A copy, because the values are in memory that is reused.
        return np.array(values)
    with np.errstate(over="ignore", invalid="ignore"):
        if dtype.kind == "f":
            result: Array = values.astype(dtype)
            fits = np.isfinite(result) | ~np.isfinite(values)
        else:
            bounds = np.iinfo(dtype)
            exact = values.astype(np.float64)
            fits = (exact == np.trunc(exact)) & (exact >= bounds.min) & (exact < float(bounds.max) + 1.0)
            result = np.where(fits, values, 0).astype(dtype)
    if not fits.all():
        raise _misfit(values[~fits][0], dtype)
    return result


@dataclass(frozen=True)
class ImageDecoder(Decoder[Any]):
    """Base class of decoders to (image, label).

    Attributes:
        flag, exif, max_pixels: see `aioloader.transforms.decode_image`.
        dct_scaling: see `LazyImageReader`; used only by the fused decoder.
        crops: crop indexes of the files, or None; used only by the fused decoder.
        labelled: the sample is (image, label); False: the image alone.
    """

    flag: int = 1
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    dct_scaling: bool = field(default=False, kw_only=True)
    crops: RecordCrops | FolderCrops | None = field(default=None, kw_only=True, compare=False, repr=False)
    labelled: bool = field(default=True, kw_only=True)

    @property
    def shareable(self) -> bool:
        return self.crops is None

    def as_images(self) -> ImageDecoder:
        return self

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        """Return the image, as `decode_image`, and the label."""
        body, label = self.parse(data, extra, location)
        image = decode_here(
            body, flag=self.flag, exif=self.exif, max_pixels=self.max_pixels, path=location.path
        )
        return (image, label) if self.labelled else image

    def fuse(self, stages: Sequence[Stage]) -> FusedImages | None:
        """Return one decoder for the decoding and the stages that take the image; see `FusedDecoder`.

        Returns None for a derived class that decodes in another way.
        """
        if type(self).__call__ is not ImageDecoder.__call__ or self.flag == -1:
            return None
        reader = LazyImageReader(
            self.flag, exif=self.exif, max_pixels=self.max_pixels, dct_scaling=self.dct_scaling
        )
        return FusedImages(
            reader,
            stages,
            self.parse,
            self.crops,
            parse_many=self.parse_many,
            parse_part=self.parse_part,
            alone=not self.labelled,
        )

    def needed_region(self, stages: Sequence[Stage]) -> NeededRegion | None:
        """Return the finder of the rectangle that the fused decoder for these stages decodes; None without a crop."""
        if type(self).__call__ is not ImageDecoder.__call__ or self.flag == -1:
            return None
        fused = takewhile(lambda stage: stage.first, stages)
        region = NeededRegion([stage.fn for stage in fused], shrinks=self.dct_scaling)
        return region if region.crops else None

    def parse_many(
        self, data: memoryview, start: IntArray, length: IntArray
    ) -> tuple[list[memoryview | None], list[Array]]:
        """Return the results of `parse` for many items, None for an item that needs `parse`; see `FusedDecoder`."""
        return [], []

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        """Return the encoded image and the label."""
        raise NotImplementedError

    def parse_part(self, data: memoryview, nbytes: int) -> tuple[Any, Any]:
        """Return the part of the encoded image, and the label, of an item of which only parts were read.

        Args:
            data: its beginning, and the parts of the image, one behind the other.
            nbytes: bytes of the whole item.

        Raises:
            IncompleteItemError: the item has to be read whole.
        """
        raise IncompleteItemError("its parts cannot be parsed")

    def head_parser(self) -> Callable[[memoryview, int], Any] | None:
        """Return what finds the beginning of the encoded image in that of an item; None: items are to be read whole.

        It is called with the beginning of an item and the bytes of the whole item, and raises what `parse_part` raises.
        """
        return None


def parser_of(dataset: ByteDataset[Any]) -> ImageDecoder:
    """Return the decoder of a dataset, whose `parse` returns encoded images.

    Raises:
        TypeError: it has no such method.
    """
    decoder: ImageDecoder | None = decoder_of(dataset).as_images()
    if decoder is None:
        raise TypeError(
            f"the decoder of {type(dataset).__name__} is no ImageDecoder: it returns no encoded images"
        )
    return decoder


@dataclass(frozen=True)
class ImageFileDecoder(ImageDecoder):
    """Decoder of an image file to (image, label).

    The label is the item's extra, or a field of it (see `aioloader.crop_index.lookup`).
    """

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        label = extra["label"] if type(extra) is np.void else extra
        # A row of labels may be a view of memory that is reused.
        return data, label.copy() if isinstance(label, np.ndarray) else label

    def head_parser(self) -> Callable[[memoryview, int], Any] | None:
        return (lambda data, nbytes: data) if type(self).parse is ImageFileDecoder.parse else None


class FusedImages(FusedDecoder[Any]):
    """Decoder that also runs the stages that take the image; see `FusedDecoder`.

    Args:
        reader: opens the images.
        stages: all stages of the loader.
        parse: returns the encoded image of an item, and the other elements of its sample.
        crops: crop indexes of the files, or None.
        parse_many: returns the same of many items, see `FusedDecoder`; None: `parse` is called for each item.
        parse_part: returns the same of an item of which only parts were read (its extra is one of `PARTS`), see
            `ImageDecoder.parse_part`; None: all items are read whole.
        alone: the sample is the image without the other elements.

    Attributes:
        stages: number of stages that run here: all stages before the first one that takes more than the image.
        leaves: number of arrays that the image becomes.
    """

    def __init__(
        self,
        reader: LazyImageReader,
        stages: Sequence[Stage],
        parse: Callable[..., tuple[Any, ...]],
        crops: RecordCrops | FolderCrops | None = None,
        *,
        parse_many: Callable[..., tuple[list[Any], list[Array]]] | None = None,
        parse_part: Callable[..., tuple[Any, ...]] | None = None,
        alone: bool = False,
    ) -> None:
        self._alone = alone
        self.stages = next((n for n, stage in enumerate(stages) if not stage.first), len(stages))
        self._looks = [] if alone else [stage for stage in stages[: self.stages] if not stage.looked]
        self._parse = parse
        self._parse_many = parse_many
        self._parse_part = parse_part
        plan = plan_of(
            reader,
            [(stage.name, stage.fn) for stage in stages[: self.stages]],
            lend=all(stage.native for stage in stages[self.stages :]),
        )
        self.leaves = plan.leaves
        self._plan = plan
        # The method: calling the object costs three times as much.
        self._make_image: Any = plan.__call__
        self._crops = crops if plan.crops else None
        self.parses_many = parse_many is not None
        self._bad_entries = reader.bad_entries

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Any,
        trace: StageTimer,
        file: int | None = None,
    ) -> Any:
        if type(extra) is np.void and extra.dtype == PARTS and extra["stop"]:
            return self._make_part(data, extra, location, rng=rng, out=out, trace=trace, file=file)
        parsed = self._parse(data, extra, location)
        if self._looks:
            self._look_at(*parsed)
        return self.make(parsed, extra, location, rng=rng, out=out, trace=trace, file=file)

    def _look_at(self, body: Any, *others: Any) -> None:
        """Warn at the first sample if other elements, such as masks, stay behind; see `Stage.look_at`."""
        stages, self._looks = self._looks, []
        if any(isinstance(value, np.ndarray) and value.ndim > 1 for value in others):
            shape = image_size(body)[1:]
            for stage in stages:
                if stage.look_at(shape, others):
                    return

    def _make_part(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Any,
        trace: StageTimer,
        file: int | None,
    ) -> Any:
        """Make the sample of an item of which only some parts were read."""
        if self._crops is None or self._parse_part is None:
            raise IncompleteItemError("there is no crop index, or nothing that reads parts")
        first, stop, nbytes = extra.item()
        parsed = self._parse_part(data, nbytes)
        entry = self._crops.entry(None, file, location.offset)
        image = self._make_image(parsed[0], location.path, rng, out, trace, entry=entry, rows=(first, stop))
        return image if self._alone else (image, *parsed[1:])

    def parse_many(
        self, data: memoryview, start: IntArray, length: IntArray
    ) -> tuple[list[memoryview | None], list[Array]]:
        return ([], []) if self._parse_many is None else self._parse_many(data, start, length)

    def filler(
        self, items: list[Any], words: list[list[int]], rows: Array, rng: Rng, trace: StageTimer
    ) -> Callable[[int, int], bool] | None:
        if self._alone or self._crops is not None:  # entries are looked up for each item
            return None
        return self._plan.filler(items, words, rows, rng, trace)

    def make(
        self,
        parsed: tuple[Any, ...],
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Any,
        trace: StageTimer,
        file: int | None = None,
    ) -> Any:
        if self._crops is None:
            image = self._make_image(parsed[0], location.path, rng, out, trace)
        else:
            entry = self._crops.entry(extra, file, location.offset)
            image = self._make_image(parsed[0], location.path, rng, out, trace, entry=entry)
            if self._bad_entries:
                trace.bad_entries[self._crops.path(file)] += self._bad_entries.total()
                self._bad_entries.clear()
        return image if self._alone else (image, *parsed[1:])
