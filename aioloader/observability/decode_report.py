"""Sentences about the ways in which images were decoded, and the gain of a crop index (pure)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from aioloader.foundation.decodes import (
    BAD_ENTRIES,
    COMPLAINT,
    CUT,
    EARLY_STOP,
    INDEXED,
    NEARLY_ALL,
    NO_CROP,
    NO_INDEX,
    NOT_IN_INDEX,
    NOT_JPEG,
    RAW,
    RECTANGLE,
    REFUSED,
    WAYS,
    WHOLE,
    WHOLE_ONLY,
)

if TYPE_CHECKING:
    from aioloader.metrics import Stats

_WAYS = {
    CUT: "cut by the crop index",
    RECTANGLE: "decoded as rectangles by libjpeg-turbo 3",
    EARLY_STOP: "stopped early, below the crop",
    WHOLE: "decoded whole",
    RAW: "stored as raw pixels",
}
_REASONS = {
    NO_CROP: "the first transform does not crop",
    NO_INDEX: "no crop index",
    NOT_IN_INDEX: "not in the crop index",
    NEARLY_ALL: "nearly all pixels needed",
    NOT_JPEG: "not a JPEG",
    WHOLE_ONLY: "a kind of JPEG that is always decoded whole",
    COMPLAINT: "the decoder complained about the part",
    **{reason: f"{reason} of the crop index" for reason in BAD_ENTRIES.values()},
    BAD_ENTRIES["of other bytes"]: "the entry belongs to other bytes",
}
# More reasons than this are not named.
_MOST_REASONS = 3
# A crop index that would save a smaller share of the decoding time than this is not recommended.
_LEAST_SAVED = 0.5
# Fitted to CPU times of crops of JPEGs of 0.05 to 3 megapixels, which the estimate meets within a tenth: the cost of a
# pixel that a rectangle only reads, as a share of a decoded one's; and the cost of a cut besides its pixels, in decoded
# pixels for each row of a square image.
_READ_ONLY_COST = 0.78
_CUT_COST = 110


def describe_decodes(stats: Stats) -> str:
    """Return a sentence that says how many images were decoded in which way, and why; empty if none was counted."""
    total = sum(stats.decodes.values())
    if not total:
        return ""
    parts = []
    for way in WAYS:
        reasons = {
            reason: count for (other, reason), count in stats.decodes.items() if other == way and count
        }
        if reasons:
            parts.append((sum(reasons.values()), _WAYS[way] + _because(reasons)))
    if len(parts) == 1:
        return f"{'The one image was' if total == 1 else f'All {total:,} images were'} {parts[0][1]}."
    counts = ", ".join(f"{count:,} {text}" for count, text in parts)
    return f"Of {total:,} images: {counts}."


def _because(reasons: dict[str, int]) -> str:
    """Return reasons in brackets, with their counts if there are several."""
    if INDEXED in reasons:
        return ""
    named = sorted(reasons.items(), key=lambda item: -item[1])
    if len(named) == 1:
        return f" ({_describe(named[0][0])})"
    texts = [f"{count:,}: {_describe(reason)}" for reason, count in named[:_MOST_REASONS]]
    rest = sum(count for _, count in named[_MOST_REASONS:])
    return f" ({'; '.join([*texts, f'{rest:,}: other reasons'] if rest else texts)})"


def _describe(reason: str) -> str:
    if reason.startswith(REFUSED):
        return f"no entry in the crop index{reason.removeprefix(REFUSED)}"
    return _REASONS.get(reason, reason)


def advise_crop_index(stats: Stats) -> str:
    """Return a sentence that recommends a crop index; empty if it would save less than half the decoding time."""
    saved = saved_by_index(stats)
    if saved < _LEAST_SAVED:
        return ""
    return f"A crop index (`aioloader index --crops PATH`) would save about {saved:.0%} of the decoding time."


def advise_partial_reads(stats: Stats) -> str:
    """Return a sentence that recommends a crop index for fetching less; empty if it would not.

    A loader with a cache fetches whole items.
    """
    without = sum(count for (_, reason), count in stats.decodes.items() if reason == NO_INDEX)
    most = 2 * without > sum(stats.decodes.values())
    if not most or not stats.measured_crops or not stats.requests or stats.hit_rate is not None:
        return ""
    return (
        "Of record files with a crop index (`aioloader index --crops`) a loader fetches only the rows that the crops "
        "need."
    )


def saved_by_index(stats: Stats) -> float:
    """Return the share of the decoding time that a crop index would save; negative if it would cost time.

    It is estimated from pixels. An early stop takes the time of all rows down to the end of the crop; a rectangle less
    where pixels are read only; a cut that of the crop, and some more for its rows.
    """
    total = sum(stats.decodes.values())
    without = {way: count for (way, reason), count in stats.decodes.items() if reason == NO_INDEX}
    images = sum(without.values())
    if not images or not stats.measured_crops:
        return 0.0
    crop, read = stats.crop_pixels / stats.measured_crops, stats.read_pixels / stats.measured_crops
    rectangles = without.get(RECTANGLE, 0) / images
    present = crop + (read - crop) * (1 - rectangles * (1 - _READ_ONLY_COST))
    return (1 - (crop + _CUT_COST * math.sqrt(read)) / present) * images / total
