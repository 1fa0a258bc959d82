"""Encoded images of items of datasets: read by the dataset's own source, or made by the dataset."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import FetchingByteSource
from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.resolve import resolve
from aioloader.errors import ImageFetchError, ImageReferenceError
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from aioloader.foundation.threads import Threads

# Datasets that a caller makes for each request must not keep their files open for ever.
_MOST_OPEN = 16


class DatasetItems:
    """Reader of items.

    The source of each dataset is opened once, and stays open while it is one of the 16 used last.

    Args:
        threads: what blocks runs there.
    """

    def __init__(self, threads: Threads) -> None:
        self._threads = threads
        self._open: dict[int, _OpenDataset] = {}

    async def read(self, dataset: Any, index: int, name: str) -> bytes:
        """Return the encoded image of an item: its bytes where the dataset has them and no transforms, or its pixels.

        Raises:
            ImageReferenceError: there is no such item, or it is not an image.
            ImageFetchError: it cannot be read.
        """
        opened = self._open.pop(id(dataset), None)
        if opened is None:
            opened = _OpenDataset(dataset)
            while len(self._open) >= _MOST_OPEN:
                oldest = self._open.pop(next(iter(self._open)))
                await self._threads.run(oldest.close)
        self._open[id(dataset)] = opened
        return await self._threads.run_abandonable(opened.read, index, name, abandoned=_nothing)

    async def aclose(self) -> None:
        """Close all sources."""
        opened, self._open = list(self._open.values()), {}
        for each in opened:
            await self._threads.run(each.close)


class _OpenDataset:
    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset  # kept, so that its identity is not that of another one
        self._resolved = resolve(dataset)
        self._source: FetchingByteSource | None = None
        self._plain = not self._resolved.stages and isinstance(
            getattr(self._resolved.base, "decoder", None), ImageDecoder
        )

    def read(self, index: int, name: str) -> bytes:
        """Return the encoded image of an item; blocks."""
        if not 0 <= index < len(self._dataset):
            raise ImageReferenceError(name, f"the dataset has {len(self._dataset):,} items", kind="dataset")
        try:
            if self._plain:
                data = self._encoded(index)
                if data is not None:
                    return data
            return self._made(index, name)
        except ImageReferenceError:
            raise
        except Exception as error:
            reason = f"{type(error).__name__}: {error}"
            raise ImageFetchError(name, reason, kind="dataset") from error

    def _encoded(self, index: int) -> bytes | None:
        base, remap = self._resolved.base, self._resolved.remap
        place = np.asarray([index if remap is None else remap[index]], np.int64)
        if self._source is None:
            source = base.open_source()
            if not isinstance(source, FetchingByteSource):
                source.close()
                self._plain = False
                return None
            self._source = source
        plan, memory = self._source.fetch(base.spans(place))
        start, length = int(plan.start[0]), int(plan.length[0])
        extras = base.extras(place)
        body, *_ = base.decoder.parse(
            memory[start : start + length],
            None if extras is None else extras[0],
            base.location(int(place[0])),
        )
        return bytes(body)

    def _made(self, index: int, name: str) -> bytes:
        sample = self._dataset[index]
        image = sample[0] if isinstance(sample, tuple) else sample
        if isinstance(image, (bytes, bytearray, memoryview)):
            return bytes(image)
        array = np.asarray(image)
        try:
            return encode_raw(array)
        except ValueError as error:
            raise ImageReferenceError(name, f"the item is no image: {error}", kind="dataset") from None

    def close(self) -> None:
        source, self._source = self._source, None
        if source is not None:
            source.close()


def _nothing() -> None:
    pass
