"""Ways in which an image is decoded, and reasons why it is not cut by a crop index: the keys of `Stats.decodes`.

`aioloader.transforms.lazy_image` counts by them.
"""

from __future__ import annotations

from typing import Final

CUT: Final = "cut"
"""Way: cut by its entry of a crop index."""
RECTANGLE: Final = "rectangle"
"""Way: the rectangle decoder of libjpeg-turbo 3 left out the pixels around the crop; rows below it are not read."""
EARLY_STOP: Final = "early stop"
"""Way: decoding ended below the crop, and all pixels above that were decoded."""
WHOLE: Final = "whole"
"""Way: decoded whole."""
RAW: Final = "raw"
"""Way: stored as raw pixels, which are not decoded."""
WAYS: Final = (CUT, RECTANGLE, EARLY_STOP, WHOLE, RAW)

INDEXED: Final = "indexed"
"""The reason of every image that was cut."""
NO_CROP: Final = "no crop"
"""Reason: the first transform does not crop, so all of the image is needed."""
NO_INDEX: Final = "no index"
"""Reason: there is no crop index of its file, or it cannot be read."""
NOT_IN_INDEX: Final = "not in index"
"""Reason: the crop index does not have the image."""
REFUSED: Final = "refused"
"""Reason: an entry of the image could not be made; a colon and the index's reason follow."""
BAD_ENTRIES: Final = {
    "damaged": "damaged entry",
    "of another version": "entry of another version",
    "of other bytes": "entry of other bytes",
}
"""Reasons: the entry was not used, by the reason of its `CropEntryError`."""
NEARLY_ALL: Final = "nearly all needed"
"""Reason: the crop is so large that a cut would save nothing."""
NOT_JPEG: Final = "not a JPEG"
"""Reason: the image has another format."""
WHOLE_ONLY: Final = "decoded whole only"
"""Reason: a JPEG of a kind that is decoded whole, such as a progressive one; see `aioloader.jpeg.read_frame`."""
COMPLAINT: Final = "complaint"
"""Reason: the decoder complained about the part, so the whole file was decoded."""


def refused(reason: str) -> str:
    """Return the reason of an image that a crop index refused.

    Args:
        reason: as stored in the index.
    """
    return f"{REFUSED}: {' '.join(reason.split())}"


def kind_of(reason: str) -> str:
    """Return a reason without what the index says: one of the constants of this module, or a value of `BAD_ENTRIES`."""
    return REFUSED if reason.startswith(REFUSED) else reason
