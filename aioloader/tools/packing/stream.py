"""Images read and encoded by the loader, in any of its executors, and given in order.

The dataset's sample is the encoded image; the loader keeps the order, holds a few batches ahead and supervises the
workers. Files are read by the byte source, so a slow disk is asked ahead of the encoders.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._types import Array, Facts, Spans
from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import IndexedView
from aioloader.datasets.files import FileDataset
from aioloader.datasets.folder import whole_files
from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.storage.local import LocalByteSource
from aioloader.sync import DataLoader
from aioloader.tools.encoding import Encoded

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioloader._types import IntArray
    from aioloader.tools.packing.sources import Source

__all__ = ("encoded_in_order",)

# So many bytes of files make a batch: less, and handing it over costs more than the work in it.
_BATCH_NBYTES = 1 << 20
_MOST_IN_BATCH = 32
# A worker may be at one image for long: a rewritten progressive JPEG of a gigapixel, a file on a sleeping disk.
_TIMEOUT_S = 3600.0


@dataclass(frozen=True)
class _EncodeFile:
    """Bytes of a file to (number of the image, encoded image)."""

    encode: Callable[[bytes], Encoded | bytes]

    def __call__(self, data: memoryview, extra: Any, facts: Facts) -> tuple[int, Encoded]:
        """See `Decoder`."""
        made = self.encode(bytes(data))
        return int(extra), made if isinstance(made, Encoded) else Encoded(made, len(data))


class _Files(FileDataset):
    """Files, each encoded."""

    def __init__(self, paths: Sequence[str], encode: Callable[[bytes], Encoded | bytes]) -> None:
        super().__init__()
        self._paths = paths
        self._decoder = _EncodeFile(encode)

    def __len__(self) -> int:
        return len(self._paths)

    @property
    def decoder(self) -> _EncodeFile:
        """See `ByteDataset.decoder`."""
        return self._decoder

    def open_source(self) -> LocalByteSource:
        """See `ByteDataset.open_source`."""
        return LocalByteSource(self._paths, whole_files=True)

    def spans(self, indices: IntArray) -> Spans:
        """See `ByteDataset.spans`."""
        return whole_files(indices)

    def extras(self, indices: IntArray) -> Array:
        """The number of each image; see `ByteDataset.extras`."""
        return indices

    def facts(self, index: int) -> Facts:
        """See `ByteDataset.facts`."""
        return Facts(None, self._paths[index], None)


@dataclass(frozen=True)
class _EncodePixels:
    """(Pixels, number of the image) to (number of the image, encoded image)."""

    encode: Callable[[Array, int], Encoded]

    def __call__(self, image: Array, number: Any) -> tuple[int, Encoded]:
        # A copy: encoding may alter it.
        return int(number), self.encode(image.copy(), image.nbytes)


def encoded_in_order(
    source: Source,
    order: IntArray,
    encode: Any,
    *,
    workers: int,
    executor: Any,
    mean_nbytes: int,
    on_error: str,
    most_errors: int | None = None,
) -> Generator[tuple[int, Encoded | SampleError]]:
    """The images of a source, encoded.

    Args:
        source: the images.
        order: int64 (n,), the number of the image at each place; none stands twice.
        encode: what is done to the bytes of a file; of images in memory its method ``of_pixels`` is used.
        workers: how many encode at a time.
        executor: "thread", "process", "inline" or an executor.
        mean_nbytes: bytes of an image, about.
        on_error: "raise": the first image that fails is the last thing given, and some before it may be missing.
        most_errors: nothing is given any more once more than so many have failed; None: any number may.

    Yields:
        place in `order`, and the image or why there is none.
    """
    dataset: Any
    if source.images is None:
        dataset = _Files(source.paths, encode)
    else:
        numbers = np.arange(len(source.images), dtype=np.int64)
        dataset = ArrayDataset(source.images, numbers).transform(_EncodePixels(encode.of_pixels))
    batch = int(min(_MOST_IN_BATCH, max(1, _BATCH_NBYTES // max(1, mean_nbytes))))
    loader: DataLoader[list[tuple[int, Encoded]]] = DataLoader(
        IndexedView(dataset, order),
        batch,
        batchify_fn=list,
        num_workers=workers,
        executor=executor,
        timeout=_TIMEOUT_S,
        on_error="raise" if on_error == "raise" else "skip",
        max_errors=None if on_error == "raise" else most_errors,
    )
    with loader:
        place = taken = 0
        failed: dict[int, SampleError] = {}
        batches = iter(loader)
        while True:
            try:
                images = next(batches, None)
            except SampleError as error:
                yield _position(error), error
                return
            except TooManyErrorsError:
                images = None
            for number, image in images or ():
                while order[place] != number:  # it has failed
                    if place not in failed:
                        errors = loader.errors
                        failed |= {_position(each): each for each in errors[taken:]}
                        taken = len(errors)
                    yield place, failed.pop(place)
                    place += 1
                yield place, image
                place += 1
            if images is None:
                break
        failed |= {_position(each): each for each in loader.errors[taken:]}
        for place in sorted(failed):
            yield place, failed[place]


def _position(error: SampleError) -> int:
    assert error.position is not None
    return error.position
