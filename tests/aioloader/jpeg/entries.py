"""Golden JPEGs with their entries of a crop index, and the comparison of a cut with a full decode."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import simplejpeg

from aioloader import jpeg
from aioloader.foundation.native import native
from aioloader.jpeg import crop_scan, crop_window
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.jpeg.crop_window import cut_by_entry, read_head, row_bytes
from aioloader.jpeg.huffman import NotIndexableError
from tests.aioloader.jpeg.samples import KINDS, encode, frame_of

GOLDEN = Path(__file__).parents[2] / "data" / "crops"


def golden_images() -> dict[str, bytes]:
    """Return one JPEG of each kind, and some with restart markers after one and two rows of MCUs."""
    images = {kind: encode(131, 93, kind, quality=80) for kind in KINDS}
    for kind in ("444", "420"):
        columns = frame_of(images[kind]).mcus_per_row
        images[f"{kind}-rows"] = encode(131, 93, kind, columns, quality=80)
        images[f"{kind}-rows2"] = encode(131, 93, kind, 2 * columns, quality=80)
    return images


def golden() -> list[tuple[str, bytes, bytes]]:
    """Return (name, JPEG, entry) of each golden file."""
    return [
        (path.stem, path.read_bytes(), path.with_suffix(".entry").read_bytes())
        for path in sorted(GOLDEN.glob("*.jpg"))
    ]


def in_c_and_python(function: Callable[[], Any]) -> Any:
    """Return what a function returns, after a check that it does the same with and without the compiled part."""
    outcomes: list[tuple[Any, Any]] = []
    ways = [(crop_window.join_parts_in_python, crop_scan.scan_mcus_in_python)]
    if native is not None:
        ways.append((native.join_parts, native.scan_mcus))
    for join, scan in ways:
        with (
            mock.patch.object(crop_window, "join_parts", join),
            mock.patch.object(crop_scan, "scan_mcus", scan),
        ):
            try:
                outcomes.append((function(), None))
            except (CropEntryError, NotIndexableError) as error:
                outcomes.append((type(error), error))
    (result, error), *others = outcomes
    for other, reason in others:
        assert other == result
        assert str(reason) == str(error)
    if error is not None:
        raise error
    return result


def part_of(data: bytes, entry: bytes, rows: tuple[int, int]) -> bytes:
    """Return the headers of a JPEG, and the bytes that its entry names for some rows."""
    head = read_head(entry)
    begin, end = row_bytes(entry, head, rows)
    return data[: head.scan_start] + data[head.scan_start + begin : head.scan_start + end]


def decoded(data: Any, size: tuple[int, int], scale: int = 1) -> Any:
    """Decode a JPEG of (width, height) strictly, at a part of its size."""
    columns, rows = (jpeg.scaled_size(extent, scale) for extent in size)
    image = simplejpeg.decode_jpeg(
        data,
        "GRAY" if frame_of(data).components == 1 else "RGB",
        strict=True,
        min_factor=scale,
        min_height=rows if scale > 1 else 0,
        min_width=columns if scale > 1 else 0,
    )
    assert image.shape[:2] == (rows, columns)
    return image


def compare(
    data: bytes, entry: Any, box: tuple[int, int, int, int], image: Any, scale: int = 1
) -> jpeg.Cut | None:
    """Decode a cut by its entry strictly and compare the box with a full decode; return the cut."""
    check_entry(entry, data)
    cut = cut_by_entry(data, frame_of(data), entry, box, scale=scale)
    if cut is None:
        return None
    assert not cut.stops_early
    part = decoded(cut.data, (cut.width, cut.height), scale)
    x, y, width, height = box
    rows = slice(y // scale, -(-(y + height) // scale))
    columns = slice(x // scale, -(-(x + width) // scale))
    wanted = image[rows, columns]
    top, left = cut.top // scale, cut.left // scale
    found = part[rows.start - top : rows.stop - top, columns.start - left : columns.stop - left]
    assert np.array_equal(found, wanted), f"other pixels in {box}"
    return cut
