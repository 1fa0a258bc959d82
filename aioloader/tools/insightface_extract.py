"""Extraction of the images of a training set in InsightFace's layout to files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import recordio
from aioloader.datasets import InsightFaceDataset
from aioloader.errors import DecodeError
from aioloader.transforms import image_size

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator

_AT_ONCE = 256
_SUFFIXES = {"jpeg": ".jpg", "tiff": ".tif"}


def extract_faces(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tick: Callable[[int], object] | None = None,
) -> int:
    """Write the images of a set to files ``OUT/<label>/<key>.jpg``, with unchanged bytes.

    Args:
        source: folder or .rec file of the set; see `InsightFaceDataset`.
        out: folder to write to, which must be empty or missing. All labels are written with the same number of digits,
            so that the sub-folders, sorted by name, have the same labels again.
        tick: called after each block with the number of images written so far.

    Returns:
        number of images.

    Raises:
        FileExistsError: there is something in `out`.
        NotADirectoryError: it is a file.
        ValueError: the set is damaged.
        OSError: a file cannot be read or written.
    """
    dataset = InsightFaceDataset(source)
    labels = dataset.labels()
    folder = output_folder(out)
    if any(folder.iterdir()):
        raise FileExistsError(f"{str(folder)!r} is not empty: choose another folder")
    digits = len(str(int(labels.max()))) if len(labels) else 1
    made: set[int] = set()
    for number, (key, body) in enumerate(_bodies(dataset)):
        label = int(labels[number])
        place = folder / f"{label:0{digits}d}"
        if label not in made:
            place.mkdir()
            made.add(label)
        (place / f"{key:08d}{_suffix(body)}").write_bytes(body)
        if tick is not None and ((number + 1) % _AT_ONCE == 0 or number + 1 == len(dataset)):
            tick(number + 1)
    return len(dataset)


def output_folder(out: str | os.PathLike[str]) -> Path:
    """Return the folder to write to, and create it if it is missing.

    Raises:
        NotADirectoryError: it is a file.
        OSError: it cannot be created.
    """
    folder = Path(out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(f"{str(folder)!r} is a file: choose a folder to write to") from None
    return folder


def _bodies(dataset: InsightFaceDataset) -> Iterator[tuple[int, memoryview]]:
    """Yield the key and the encoded image of every sample."""
    source = dataset.open_source()
    try:
        for begin in range(0, len(dataset), _AT_ONCE):
            indices = np.arange(begin, min(begin + _AT_ONCE, len(dataset)), dtype=np.int64)
            plan, data = source.fetch(dataset.spans(indices))
            for index, start, length in zip(
                indices.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True
            ):
                location = dataset.location(index)
                payload: Any = recordio.extract(
                    data[start : start + length], path=location.path, offset=location.offset or 0
                )
                yield int(str(location.key)), memoryview(recordio.unpack(payload)[1])
    finally:
        source.close()


def _suffix(body: memoryview) -> str:
    try:
        name = image_size(body)[0]
    except DecodeError:
        return ".bin"
    return _SUFFIXES.get(name, f".{name}")
