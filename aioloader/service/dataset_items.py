"""Encoded images of items of datasets: read by the dataset's own source, or made by the dataset."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import FetchingByteSource
from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.resolve import resolve
from aioloader.errors import ImageFetchError, ImageReferenceError
from aioloader.transforms.pillow import encode_pillow, is_pillow_image
from aioloader.transforms.raw import raw_buffer

if TYPE_CHECKING:
    from aioloader.abc import ByteDataset, MapDataset
    from aioloader.foundation.threads import Threads
    from aioloader.foundation.types import IntArray

# Datasets that a caller makes for each request must not keep their files open for ever.
_MOST_OPEN = 16


class DatasetItems:
    """Reader of items. Used from one event loop.

    The source of each dataset is opened once, and stays open while it is one of the 16 used last, or an item of it is
    being read.

    Args:
        threads: what blocks runs there.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._open: dict[int, _OpenDataset] = {}

    async def read(self, dataset: MapDataset[Any], index: int, name: str) -> bytes | memoryview:
        """Return the encoded image of an item: its bytes where the dataset has them and no transforms, or its pixels.

        Raises:
            ImageReferenceError: there is no such item, or it is not an image.
            ImageFetchError: it cannot be read; the error of the dataset is chained.

        Cancellation returns at once; the thread ends the reading.
        """
        opened = self._open.pop(id(dataset), None) or _OpenDataset(dataset)
        self._open[id(dataset)] = opened  # the last one
        if len(self._open) > _MOST_OPEN:
            self._threads.start(self._open.pop(next(iter(self._open))).close)
        return await self._threads.run_abandonable(opened.read, index, name, abandoned=_nothing)

    async def aclose(self) -> None:
        """Close all sources, those in use when their items have been read."""
        opened, self._open = list(self._open.values()), {}
        for each in opened:
            await self._threads.run(each.close)


class _OpenDataset:
    """Dataset and its source. Used from threads."""

    def __init__(self, dataset: MapDataset[Any]) -> None:
        self._dataset = dataset  # kept, so that its identity is not that of another one
        self._lock = threading.Lock()
        self._users = 0
        self._closed = False
        self._base: ByteDataset[Any] | None = None
        self._decoder: ImageDecoder | None = None
        self._remap: IntArray | None = None
        self._source: FetchingByteSource | None = None

    def read(self, index: int, name: str) -> bytes | memoryview:
        """Return the encoded image of an item; blocks."""
        if not 0 <= index < len(self._dataset):
            reason = f"there is no item {index}: the dataset has {len(self._dataset):,} items"
            raise ImageReferenceError(name, reason, kind="dataset")
        try:
            source = self._enter()
            try:
                data = None if source is None else self._encoded(source, index)
            finally:
                self._leave()
            return self._made(index, name) if data is None else data
        except ImageReferenceError:
            raise
        except Exception as error:
            reason = f"it cannot be read: {type(error).__name__}: {error}"
            raise ImageFetchError(name, reason, kind="dataset") from error

    def _enter(self) -> FetchingByteSource | None:
        """Return the source, opened if necessary; None if the items are made by the dataset."""
        with self._lock:
            self._users += 1
            # A read that begins after `close` opens the source once more, and the last one that leaves closes it.
            if self._source is not None:
                return self._source
            resolved = resolve(self._dataset)
            if resolved.stages or resolved.base_kind != "bytes":
                return None
            base: ByteDataset[Any] = resolved.base
            decoder = base.decoder
            if not isinstance(decoder, ImageDecoder):
                return None
            source = base.open_source()
            if not isinstance(source, FetchingByteSource):
                source.close()
                return None
            self._base, self._decoder, self._remap = base, decoder, resolved.remap
            self._source = source
            return source

    def _leave(self) -> None:
        with self._lock:
            self._users -= 1
            self._close_unused()

    def _encoded(self, source: FetchingByteSource, index: int) -> bytes | None:
        base, decoder = self._base, self._decoder
        assert base is not None
        assert decoder is not None
        place = np.asarray([index if self._remap is None else self._remap[index]], np.int64)
        plan, memory = source.fetch(base.spans(place))
        if int(plan.start[0]) < 0:
            return None
        start, length = int(plan.start[0]), int(plan.length[0])
        extras = base.extras(place)
        extra = None if extras is None else extras[0]
        body, *_ = decoder.parse(memory[start : start + length], extra, base.location(int(place[0])))
        return bytes(body)

    def _made(self, index: int, name: str) -> bytes | memoryview:
        sample = self._dataset[index]
        image = sample[0] if isinstance(sample, tuple) else sample
        if isinstance(image, (bytes, bytearray, memoryview)):
            return bytes(image)
        try:
            return encode_pillow(image) if is_pillow_image(image) else raw_buffer(np.asarray(image))
        except (TypeError, ValueError) as error:
            raise ImageReferenceError(name, f"the item is not an image: {error}", kind="dataset") from None

    def close(self) -> None:
        """Close the source, once nobody reads from it."""
        with self._lock:
            self._closed = True
            self._close_unused()

    def _close_unused(self) -> None:
        if self._closed and not self._users and self._source is not None:
            self._source.close()
            self._source = None


def _nothing() -> None:
    pass
