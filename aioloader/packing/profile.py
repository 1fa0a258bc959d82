"""Colour profile (ICC) of a JPEG, copied to a re-encoded JPEG of the same image.

Rule: a profile is stored in APP2 segments, in several if it is large (ICC.1, annex B.4). It is valid only for the
colour space of the pixels: of a CMYK image that was converted to RGB, only an RGB profile may be copied. Pure.
"""

from __future__ import annotations

_NAME = b"ICC_PROFILE\0"
_RGB_AT = len(_NAME) + 2 + 16  # number and count of the part, then the profile's own field


def icc_segments(data: bytes) -> bytes:
    """Return the segments of a JPEG that contain its RGB profile, unchanged; b"" if there are none.

    Args:
        data: an image; for other formats than JPEG the result is b"".
    """
    found = []
    place = 2
    while data[:2] == b"\xff\xd8" and place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if marker == 0xDA or end < place + 4 or end > len(data):
            break
        if marker == 0xE2 and data.startswith(_NAME, place + 4):
            found.append(data[place:end])
        place = end
    if not found or found[0][4 + _RGB_AT : 4 + _RGB_AT + 4] != b"RGB ":
        return b""
    return b"".join(found)


def insert_segments(jpeg: bytes, segments: bytes) -> bytes:
    """Insert segments into a JPEG after its JFIF segment.

    Args:
        jpeg: the JPEG; encoders write an APP0 segment first.
        segments: whole segments, markers included.
    """
    place = 4 + int.from_bytes(jpeg[4:6], "big") if jpeg[2:4] == b"\xff\xe0" else 2
    return jpeg[:place] + segments + jpeg[place:]
