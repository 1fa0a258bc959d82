"""Check of a dataset that decodes every image in parallel and reports the damaged ones.

The images are read by an ordinary loader that skips failed samples; its errors are the result. Of a record file it
reads the valid records that `recordio.verify` found, by offset and length, so that damage to the file or its index
hides none of them.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets import ImageFolderDataset, ImageRecordDataset
from aioloader.formats.recordio.heads import read_heads
from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans
from aioloader.loader.sync_loader import DataLoader
from aioloader.tools.paths import record_files_at
from aioloader.tools.samples import evenly
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header

if TYPE_CHECKING:
    from collections.abc import Callable

    import recordio
    from aioloader.abc import FetchingByteSource
    from aioloader.datasets.base import Dataset
    from aioloader.errors import SampleError

_LOOKED_AT = 64
_BATCH = 64
_LABEL = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Result of decoding all images.

    Attributes:
        images: number of images that were decoded, damaged ones included.
        errors: errors of the damaged images, in the order of the file: key, offset and path, and the reason.
    """

    images: int
    errors: list[SampleError] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"images": self.images, "image_errors": [error.facts() for error in self.errors]}


class ValidImages(ImageRecordDataset):
    """Dataset of the images in the valid records of a file.

    Args:
        report: result of `recordio.verify` for the file.
        path: path of the file, if it is a URL: reports do not contain the signature of a URL.
        max_pixels: see `ImageRecordDataset`.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        report: recordio.Report,
        path: str | None = None,
        *,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> None:
        super().__init__(path or report.path, max_pixels=max_pixels, label_dtype="float32", crop_index=None)
        self._report = report
        self._numbers = self._find_images()

    def __len__(self) -> int:
        return len(self._numbers)

    def spans(self, indices: IntArray) -> Spans:
        chosen = self._numbers[indices]
        offset, length = self._report.offsets[chosen], self._report.lengths[chosen]
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def location(self, index: int) -> ItemLocation:
        number = int(self._numbers[index])
        return ItemLocation(self._report.key_at(number), self._report.path, int(self._report.offsets[number]))

    def _find_images(self) -> IntArray:
        """Find the valid records with images: in a file of images, all but those with only a header.

        Returns:
            int64 (n,), numbers of records in the order of the file; empty if the records do not contain images.
        """
        report = self._report
        chosen = evenly(report.records, _LOOKED_AT)
        source = self.open_source()
        try:
            if not any(_is_image(source, self._framed(number)) for number in chosen.tolist()):
                return chosen[:0]
        finally:
            source.close()
        heads = read_heads(self._path, report.offsets, version=self._versions[0])
        # Such records refer to ranges of others; see `aioloader.formats.recordio.heads`.
        return np.flatnonzero(~(heads.bare & (heads.flag == 2))).astype(np.int64)

    def _framed(self, number: int) -> Spans:
        one = slice(number, number + 1)
        return Spans(np.zeros(1, np.int64), self._report.offsets[one], self._report.lengths[one])


class ImageFolder(ImageFolderDataset):
    """Dataset of all images of a folder, which does not warn of other files in the folder: see `left_out`.

    Args:
        path: the folder.
        max_pixels: see `ImageFolderDataset`.

    Raises:
        FileNotFoundError: there is no such folder.
    """

    def __init__(self, path: str, *, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            super().__init__(path, max_pixels=max_pixels, crop_index=None, label=None)


def _check_label(image: Array, label: Any = 0) -> np.uint8:
    """Raise an error if the label of a decoded image is not finite."""
    if not np.isfinite(label).all():
        raise ValueError(f"the label {label} is not a finite number")
    return np.uint8(0)


def _is_image(source: FetchingByteSource, spans: Spans) -> bool:
    import recordio

    try:
        plan, data = source.fetch(spans)
        start = int(plan.start[0])
        payload: Any = recordio.extract(data[start : start + int(plan.length[0])])
        read_header(recordio.unpack(payload)[1])
    except (ValueError, EOFError):  # not an image record, or a damaged one
        return False
    return True


def check(
    dataset: Dataset,
    *,
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> ImageCheck:
    """Decode every image of a dataset, and check its label.

    Args:
        dataset: dataset of images and labels, such as `ValidImages`.
        num_workers: workers of the loader; None: one per core.
        executor: "process", "thread" or "inline".
        tick: called with the number of images done so far.

    Raises:
        ValueError: an option is not allowed.
    """
    errors = decode_all(
        dataset.transform(_check_label), num_workers=num_workers, executor=executor, tick=tick
    )
    return ImageCheck(len(dataset), errors)


def decode_all(
    dataset: Dataset,
    *,
    num_workers: int | None,
    executor: str,
    tick: Callable[[int], Any] | None,
    add: Callable[[Array], object] | None = None,
) -> list[SampleError]:
    """Make every sample of a dataset once.

    Args:
        dataset: its samples are integers.
        num_workers, executor, tick: as for `check`.
        add: called with each batch, (n,); valid during the call only.

    Returns:
        the errors of the samples that could not be made, in the order of the dataset.

    Raises:
        ValueError: an option is not allowed.
    """
    count = len(dataset)
    if not count:
        return []
    done = 0
    loader: DataLoader[Array]
    batch: Array
    with DataLoader(dataset, _BATCH, num_workers=num_workers, executor=executor, on_error="skip") as loader:
        for batch in loader:
            done += len(batch)
            if add is not None:
                add(batch)
            if tick is not None:
                tick(done + loader.stats().skipped)
        errors = loader.errors
    if tick is not None:
        tick(count)
    return sorted(errors, key=lambda error: error.index)


def find_files(words: list[str]) -> list[str]:
    """Resolve arguments of a command line to record files and folders.

    Args:
        words: paths or URLs, patterns such as "shard-*.rec", and folders; a folder with .rec files means those files.

    Returns:
        Paths without repetitions; those of a pattern or a folder sorted by name.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
    """
    found: list[str] = []
    for word in words:
        path = os.path.expanduser(word)
        found += record_files_at(path) or [path]
    return list(dict.fromkeys(found))
