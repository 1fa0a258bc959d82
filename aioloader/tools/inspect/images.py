"""Formats and decoding times of a sample of images, decoded as by a loader."""

from __future__ import annotations

from collections import Counter
from time import thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.jpeg import read_frame
from aioloader.jpeg.frame import SOF2
from aioloader.tools.inspect.crops import may_be_indexed
from aioloader.tools.inspect.report import Images, sizes_of
from aioloader.transforms.decode import decode_image
from aioloader.transforms.formats import read_header
from aioloader.transforms.lazy_image import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_ENOUGH_S = 0.02
_MOST_ROUNDS = 5


def images_in(
    sample: Iterable[tuple[object, Any]],
    *,
    max_pixels: int | None,
    tick: Callable[[int], Any] | None = None,
) -> Images:
    """Examine and decode images.

    Args:
        sample: name (a key, or a path) and encoded image of each; an exception in place of an image that cannot be
            read.
        max_pixels: larger images count as damaged; None for no limit.
        tick: called with the number of images done so far.
    """
    looked_at = progressive = indexable = turned = 0
    formats: Counter[str] = Counter()
    widths, heights, seconds = [], [], []
    damaged: list[tuple[Any, str]] = []
    scratch = Scratch()
    for name, data in sample:
        looked_at += 1
        try:
            if isinstance(data, Exception):
                raise data
            data = memoryview(data)
            header = read_header(data)
            seconds.append(_decode_seconds(data, max_pixels, scratch))
        except (OSError, ValueError, EOFError) as error:
            # Without the advice that some of this package's errors add: advice is given once for all images.
            text = getattr(error, "message", "") or str(error)
            damaged.append((name, " ".join(text.split())))
        else:
            formats[header.format] += 1
            widths.append(header.width)
            heights.append(header.height)
            if header.format == "jpeg":
                progressive += is_progressive(data)
                indexable += may_be_indexed(data)
            turned += (header.orientation or 1) != 1
        if tick is not None:
            tick(looked_at)
    jpegs = max(1, formats["jpeg"])
    mean = float(np.mean(seconds)) if seconds else None
    return Images(
        looked_at=looked_at,
        formats=dict(formats.most_common()),
        width=sizes_of(np.array(widths)),
        height=sizes_of(np.array(heights)),
        progressive=progressive / jpegs,
        indexable=indexable / jpegs,
        turned=turned / max(1, len(widths)),
        decode_us=None if mean is None else mean * 1e6,
        images_per_s=None if not mean else 1 / mean,
        damaged=damaged,
    )


def _decode_seconds(data: Any, max_pixels: int | None, scratch: Scratch) -> float:
    """Measure the CPU seconds to decode an image; of a small image, the minimum of a few repetitions."""
    least, total = float("inf"), 0.0
    for _ in range(_MOST_ROUNDS):
        begun = thread_time()
        decode_image(data, max_pixels=max_pixels, scratch=scratch)
        took = thread_time() - begun
        least, total = min(least, took), total + took
        if total > _ENOUGH_S:
            break
    return least


def is_progressive(data: Any) -> bool:
    """Return whether a JPEG is progressive, by its frame header.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    if read_frame(data) is not None:
        return False
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == SOF2:
            return True
        if marker == 0xFF:
            place += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            place += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return False
        else:
            place += 2 + max(2, data[place + 2] << 8 | data[place + 3])
    return False
