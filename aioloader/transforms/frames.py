"""Number of frames or pages of an encoded image, from its structure; nothing is decoded. Pure.

Rule: counting goes forward only, never behind the data or beyond the number that is asked for, and makes no more steps
than reading a header (`aioloader.transforms.formats`), so that hostile data cannot make it long.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

from aioloader.errors import DecodeError
from aioloader.transforms.formats import QUICK_STEPS, LongHeaderError, most_steps

if TYPE_CHECKING:
    from collections.abc import Iterator


def count_frames(data: Any, kind: str, most: int, *, quick: bool = False) -> int:
    """Count the frames of an image, or the pages of a TIFF.

    Args:
        data: the encoded image, a buffer of bytes whose header was read. Frames behind its end are not counted.
        kind: its format, as `aioloader.transforms.formats.read_header` names it.
        most: counting ends beyond this number, at least 1.
        quick: take 1 ms at most.

    Raises:
        LongHeaderError: it would take longer, with `quick`.
        DecodeError: it has very many blocks of a few bytes.

    Returns:
        1 to `most` + 1; 1 for formats without several frames, and where the structure is damaged at the start. The
        animation header of a PNG states the number, which is returned without a limit.
    """
    counters = {"gif": _gif, "webp": _webp, "tiff": _tiff}
    view = memoryview(data)
    if kind == "png":
        return max(1, _png(view))
    if kind not in counters:
        return 1
    count = 0
    limit = QUICK_STEPS if quick else most_steps(len(view))
    try:
        for step, is_frame in enumerate(counters[kind](view)):
            count += is_frame
            if count > most:
                break
            if step > limit:
                if quick:
                    raise LongHeaderError
                raise DecodeError(
                    "its frames have very many blocks of a few bytes", format=kind, nbytes=len(view)
                )
    except (struct.error, IndexError):  # the data ends here
        pass
    return max(1, count)


def _gif(view: memoryview) -> Iterator[bool]:
    """Iterate over the blocks: True for an image descriptor (GIF89a, 20)."""
    place = 13 + _table_nbytes(view[10])
    while True:
        block = view[place]
        yield block == 0x2C
        if block == 0x2C:
            place += 10 + _table_nbytes(view[place + 9]) + 1
        elif block == 0x21:
            place += 2
        else:  # the trailer, or damage
            return
        while size := view[place]:
            yield False
            place += 1 + size
        place += 1


def _table_nbytes(flags: int) -> int:
    return 3 << ((flags & 7) + 1) if flags & 0x80 else 0


def _webp(view: memoryview) -> Iterator[bool]:
    """Iterate over the chunks: True for a frame (RIFF; WebP container, ANMF)."""
    place = 12
    while place + 8 <= len(view):
        yield bytes(view[place : place + 4]) == b"ANMF"
        (size,) = struct.unpack_from("<I", view, place + 4)
        place += 8 + size + (size & 1)


def _tiff(view: memoryview) -> Iterator[bool]:
    """Iterate over the directories (TIFF 6.0, section 2; BigTIFF)."""
    order = "<" if view[0] == 0x49 else ">"
    big = view[2 if order == "<" else 3] == 43
    count_code, entry, link = ("Q", 20, "Q") if big else ("H", 12, "I")
    (place,) = struct.unpack_from(order + link, view, 8 if big else 4)
    seen: set[int] = set()
    while place and place not in seen:
        seen.add(place)
        (entries,) = struct.unpack_from(order + count_code, view, place)
        yield True
        (place,) = struct.unpack_from(
            order + link, view, place + struct.calcsize(order + count_code) + entry * entries
        )


def _png(view: memoryview) -> int:
    """Return the number in the animation header (APNG, acTL), which comes before the pixels; 0 if there is none."""
    place = 8
    while place + 12 <= len(view):
        (size,) = struct.unpack_from(">I", view, place)
        kind = bytes(view[place + 4 : place + 8])
        if kind == b"acTL" and size >= 4:
            return int(struct.unpack_from(">I", view, place + 8)[0])
        if kind in (b"IDAT", b"IEND"):
            return 0
        place += 12 + size
    return 0
