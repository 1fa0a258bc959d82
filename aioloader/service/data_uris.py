"""``data:`` URIs (RFC 2397): their bytes, within limits. Pure."""

from __future__ import annotations

import re
from binascii import a2b_base64
from time import sleep
from urllib.parse import unquote_to_bytes

from aioloader.errors import ImageReferenceError, ImageTooLargeError
from aioloader.service.web_urls import short_name

# Encoded images contain few escapes, if any. Removing them takes a hundred bytes of memory for each.
_MOST_ESCAPES = 1 << 16
_LONGEST_TYPE = 256
_PIECE = 1 << 19  # characters; a multiple of four
# The interpreter keeps a thread for 5 ms unless it waits for something.
_YIELD_S = 5e-5
_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


def most_characters(nbytes: int) -> int:
    """Return how many characters a URI with `nbytes` bytes can have."""
    return len("data:") + _LONGEST_TYPE + 1 + -(-nbytes // 3) * 4 + 2 * _MOST_ESCAPES


def decode_data_uri(uri: str, name: str, max_bytes: int) -> bytearray:
    """Return the bytes of a ``data:`` URI.

    Args:
        uri: the text, beginning with "data:" in any case.
        name: names it in errors.
        max_bytes: most bytes that it may have.

    Raises:
        ImageReferenceError: it is malformed, or its type is not that of an image.
        ImageTooLargeError: it has more bytes.
    """
    start = len("data:")
    comma = uri.find(",", start, start + _LONGEST_TYPE + 1)
    if comma < 0:
        raise ImageReferenceError(name, "it has no comma behind its type, and so no data", kind="data")
    kind, *options = (word.strip() for word in uri[start:comma].lower().split(";"))
    if kind and not kind.startswith("image/") and kind != "application/octet-stream":
        raise ImageReferenceError(name, f"its type is {short_name(kind)!r}, not an image", kind="data")
    start = comma + 1
    if not uri.isascii():
        raise ImageReferenceError(name, "it has characters that are not ASCII", kind="data")
    # Looking for one is several times as fast as counting them, and no other thread runs meanwhile.
    escapes = uri.count("%", start) if uri.find("%", start) >= 0 else 0
    if escapes > _MOST_ESCAPES:
        reason = (
            f"it has {escapes:,} escaped characters, and {_MOST_ESCAPES:,} are allowed: encode it as base64"
        )
        raise ImageReferenceError(name, reason, kind="data")
    if escapes:
        if _ESCAPE.search(uri, start):
            raise ImageReferenceError(name, "it has a % that is not followed by two digits", kind="data")
        uri, start = unquote_to_bytes(uri[start:]).decode("latin-1"), 0
    if options and options[-1] == "base64":
        try:
            data = _decode_base64(uri, start)
        except ValueError as error:
            raise ImageReferenceError(name, f"its data are not base64: {error}", kind="data") from None
    else:
        data = bytearray(uri[start:], "latin-1")
    if len(data) > max_bytes:
        raise ImageTooLargeError(name, "bytes", max_bytes, len(data), kind="data")
    return data


def _decode_base64(text: str, start: int) -> bytearray:
    """Decode base64 from a place in a text on, in pieces; between them other threads run.

    Raises:
        ValueError: it is not base64, or has no padding.
    """
    data = bytearray()
    for place in range(start, len(text), _PIECE):
        piece = a2b_base64(text[place : place + _PIECE], strict_mode=True)
        data += piece
        if len(piece) * 4 != _PIECE * 3 and place + _PIECE < len(text):
            raise ValueError("padding before the end")
        if place:
            sleep(_YIELD_S)
    return data
