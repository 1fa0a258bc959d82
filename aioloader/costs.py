"""`image_costs` and `image_sizes`: what the headers of a dataset's images say, without decoding any."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from aioloader.abc import SizedProcessor
from aioloader.datasets.resolve import resolve
from aioloader.errors import DecodeError, IncompleteItemError, SampleError
from aioloader.foundation.protocols import implements
from aioloader.foundation.types import WHOLE_FILE, Spans
from aioloader.transforms.formats import orientation_may_follow, read_header

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.abc import ByteDataset, ByteSource, MapDataset
    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.foundation.types import IntArray
    from aioloader.transforms.formats import ImageHeader

__all__ = ("image_costs", "image_sizes")

# Bytes that are read of each image at first: headers with a colour profile and a thumbnail fit mostly.
_HEAD_NBYTES = 16 << 10
_TOGETHER = 1024
# EXIF orientations from here on swap height and width.
_FIRST_TURNED = 5


def image_costs(
    dataset: MapDataset[Any],
    cost: SizedProcessor | Callable[[int, int], int],
    *,
    damaged: int | None = None,
) -> IntArray:
    """Return the cost of each image of a dataset, for `aioloader.samplers.BudgetBatchSampler`.

    Nothing is decoded. Of record files and folders, the first 16 KiB of each image are read, and whole images where
    that is not enough; of other formats whole samples are read. Blocking: in an async
    program call it in a thread. Transforms of the dataset are not applied: the extents are those of the image before
    them.

    Args:
        dataset: of images and labels from files, or a view of one.
        cost: a processor that announces its result, whose tokens are the cost, such as
            `aioloader.transforms.Qwen2VLImageProcessor`; or a function of (height, width) in pixels that returns a
            whole number. Extents are upright where the dataset applies EXIF orientations.
        damaged: cost of images whose header cannot be read, or whose extents `cost` refuses with a ValueError; None:
            raise the error.

    Returns:
        int64 (n,), in the order of the dataset.

    Raises:
        SampleError: an image cannot be read, has a damaged header or extents that `cost` refuses; the cause is chained.
        TypeError: the samples of this dataset are not images from files, or a cost is not a whole number.
    """
    resolved = resolve(dataset)
    if resolved.joined_parts is not None:
        costs = np.concatenate([image_costs(part, cost, damaged=damaged) for part in resolved.joined_parts])
        return costs if resolved.remap is None else costs[resolved.remap]
    count = _counting(cost)
    with _Headers(dataset) as headers:
        found = np.empty(len(dataset), np.int64)
        known: dict[tuple[int, int], int] = {}
        for index, extents in enumerate(headers):
            try:
                if isinstance(extents, Exception):
                    raise extents
                if extents not in known:
                    known[extents] = operator.index(count(*extents))
                found[index] = known[extents]
            except (OSError, ValueError, EOFError) as error:
                if damaged is None:
                    raise headers.error_of(index, error) from error
                found[index] = damaged
        return found


def image_sizes(dataset: MapDataset[Any], *, damaged: tuple[int, int] | None = None) -> IntArray:
    """Return the height and width of each image of a dataset, from their headers; nothing is decoded.

    What is read, and what it costs, is as for `image_costs`.

    Args:
        dataset: of images and labels from files, or a view of one.
        damaged: (height, width) of images whose header cannot be read; None: raise the error.

    Returns:
        int64 (n, 2), (height, width) in pixels, in the order of the dataset; upright where the dataset applies EXIF
        orientations.

    Raises:
        SampleError: an image cannot be read, or has a damaged header; the cause is chained.
        TypeError: the samples of this dataset are not images from files.
    """
    resolved = resolve(dataset)
    if resolved.joined_parts is not None:
        sizes = np.concatenate([image_sizes(part, damaged=damaged) for part in resolved.joined_parts])
        return sizes if resolved.remap is None else sizes[resolved.remap]
    with _Headers(dataset) as headers:
        found = np.empty((len(dataset), 2), np.int64)
        for index, extents in enumerate(headers):
            if isinstance(extents, Exception):
                if damaged is None or not isinstance(extents, (OSError, ValueError, EOFError)):
                    raise headers.error_of(index, extents) from extents
                found[index] = damaged
            else:
                found[index] = extents
        return found


def _counting(cost: SizedProcessor | Callable[[int, int], int]) -> Callable[[int, int], int]:
    if not implements(cost, SizedProcessor):
        return cast("Callable[[int, int], int]", cost)
    processor = cost

    def tokens(height: int, width: int) -> int:
        return processor.spec(height, width).num_tokens

    return tokens


class _Headers:
    """Headers of the images of a dataset: iterating yields (height, width), or the error of an image."""

    def __init__(self, dataset: MapDataset[Any]) -> None:
        resolved = resolve(dataset)
        self._name = type(dataset).__name__
        self._count = len(dataset)
        decoder = resolved.decoder.as_images() if resolved.base_kind == "bytes" else None
        if decoder is None:
            raise TypeError(
                f"the samples of {self._name} are not images and labels from files, so their headers cannot be read: "
                "pass an array of your own with the cost of each sample to BudgetBatchSampler"
            )
        self._base: ByteDataset[Any] = resolved.base
        self._decoder: ImageDecoder = decoder
        self._remap = resolved.remap
        source = resolved.open_source()
        if not source.fetches:
            source.close()
            raise TypeError(f"the byte source of {self._name} lacks fetch(), see aioloader.abc.ByteSource")
        self._source: ByteSource = source
        self._parse_head = decoder.head_parser()
        # The beginnings of items; None where items are read whole.
        self._heads = None if self._parse_head is None else source.ranges()

    def __enter__(self) -> _Headers:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()
        if self._heads is not None:
            self._heads.close()

    def error_of(self, index: int, error: Exception) -> SampleError:
        """Return the error of an image."""
        key, path, offset = self._base.location(self._place(index))
        stage = "fetch" if isinstance(error, (OSError, EOFError)) else "decode"
        return SampleError(
            f"{type(error).__name__}: {error}",
            dataset=self._name,
            index=index,
            stage=stage,
            key=key,
            path=path,
            offset=offset,
        )

    def _place(self, index: int) -> int:
        return index if self._remap is None else int(self._remap[index])

    def __iter__(self) -> Iterator[tuple[int, int] | Exception]:
        for start in range(0, self._count, _TOGETHER):
            stop = min(start + _TOGETHER, self._count)
            places = (
                np.arange(start, stop, dtype=np.int64) if self._remap is None else self._remap[start:stop]
            )
            heads = self._read_heads(places)
            for number, place in enumerate(places.tolist()):
                extents = None if heads is None else self._extents_of_head(heads[number], place)
                yield extents or self._extents_of_item(place)

    def _read_heads(self, places: IntArray) -> list[tuple[memoryview, int]] | None:
        """Return the beginning of each item, and the bytes of the item; None if one cannot be read like this."""
        if self._heads is None:
            return None
        spans = self._base.spans(places)
        whole = spans.length == WHOLE_FILE
        nbytes = spans.length.copy()
        for number in np.flatnonzero(whole).tolist():
            nbytes[number] = self._base.file_nbytes(int(places[number]))
        length = np.minimum(nbytes, _HEAD_NBYTES)
        length[length < 0] = _HEAD_NBYTES
        try:
            plan, data = self._heads.fetch(Spans(spans.file, spans.offset, length))
        except (OSError, ValueError, EOFError):
            return None  # each item is read whole, and shows its own error
        rows = zip(plan.start.tolist(), plan.length.tolist(), nbytes.tolist(), strict=True)
        return [(data[start : start + size].toreadonly(), total) for start, size, total in rows]

    def _extents_of_head(self, head: tuple[memoryview, int], place: int) -> tuple[int, int] | None:
        """Return the extents of an image from its beginning; None if more of it is needed."""
        data, nbytes = head
        assert self._parse_head is not None
        try:
            body = self._parse_head(data, nbytes)
            header = read_header(body)
        except (IncompleteItemError, DecodeError, ValueError):
            return None
        exif = self._decoder.exif
        if exif == "apply" and len(data) != nbytes and orientation_may_follow(body, header):
            return None
        return _upright(header, exif)

    def _extents_of_item(self, place: int) -> tuple[int, int] | Exception:
        """Return the extents of an image that is read whole."""
        places = np.array([place], np.int64)
        try:
            plan, memory = self._source.fetch(self._base.spans(places))
            start = int(plan.start[0])
            extras = self._base.extras(places)
            item = memory[start : start + int(plan.length[0])].toreadonly()
            body, _ = self._decoder.parse(
                item, None if extras is None else extras[0], self._base.location(place)
            )
            return _upright(read_header(body), self._decoder.exif)
        except (OSError, ValueError, EOFError) as error:
            return error


def _upright(header: ImageHeader, exif: str) -> tuple[int, int]:
    if exif == "apply" and (header.orientation or 1) >= _FIRST_TURNED:
        return header.width, header.height
    return header.height, header.width
