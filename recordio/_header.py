"""Image record header: IRHeader, pack, unpack.

The rule (docs/format.md, "Image record header"): 24 bytes little endian (flag, label, id, id2); a flag of n > 0 means
that n float32 labels follow, and then the body. Pure: no input or output.
"""

from __future__ import annotations

import numbers
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from recordio.errors import HeaderError, PayloadTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from recordio._framing import BytesLike

_B = TypeVar("_B", bytes, bytearray, memoryview)

_FORMAT = struct.Struct("<IfQQ")
_SIZE = _FORMAT.size
_unpack_from = _FORMAT.unpack_from
_LABEL_DTYPE = np.dtype("<f4")


class IRHeader(NamedTuple):
    """Header of an image record.

    Attributes:
        flag: Number of float32 labels that follow the header; 0 for one scalar label.
        label: Scalar label, or a float32 array of shape (flag,). `pack` accepts any nesting.
        id: Record id, 0 to 2**64 - 1.
        id2: Upper half of a 128-bit id, normally 0.
    """

    flag: int
    label: Any
    id: int
    id2: int


def pack(header: IRHeader | Sequence[Any], s: BytesLike) -> bytes:
    """Prepend a header to a body.

    Args:
        header: `IRHeader` or any sequence of four. With a number as label the stored flag is always 0; any other label
            is flattened to float32 and the flag is its size.
        s: Body, bytes-like.

    Returns:
        The payload for a writer.

    Raises:
        HeaderError: id or id2 do not fit in 64 unsigned bits, or a label does not fit in a float32; it is also a
            `struct.error`.
        PayloadTypeError: `s` is not bytes-like.
    """
    flag, label, id_, id2 = header
    labels = b""
    if isinstance(label, numbers.Number):
        flag = 0
    else:
        array = np.asarray(label, dtype=_LABEL_DTYPE)
        flag, label, labels = array.size, 0.0, array.tobytes()
    try:
        head = _FORMAT.pack(flag, label, id_, id2)
    except (struct.error, OverflowError, TypeError) as error:
        raise HeaderError(
            f"cannot pack IRHeader(flag={flag!r}, label={label!r}, id={id_!r}, id2={id2!r}): {error}"
        ) from error
    try:
        return b"".join((head, labels, s))
    except TypeError as error:
        raise PayloadTypeError(f"the body of a record must be bytes-like, not {type(s).__name__}") from error


def unpack(s: _B) -> tuple[IRHeader, _B]:
    """Split a payload into its header and body.

    Args:
        s: Payload written by `pack`.

    Returns:
        `(header, body)`. The body is a slice of the same kind as `s`, so a memoryview is not copied. The label is a
        float if the flag is 0, else a read-only float32 view of `s`, shape (flag,).

    Raises:
        HeaderError: `s` is shorter than 24 bytes (also a `struct.error`) or than its flag requires (also a
            `ValueError`).
    """
    if isinstance(s, memoryview):
        s = s if s.format == "B" and s.ndim == 1 else s.cast("B")
    size = len(s)
    if size < _SIZE:
        raise HeaderError(
            f"unpack requires a buffer of {_SIZE} bytes, this payload has {size}; "
            "it was not written by recordio.pack"
        )
    flag, label, id_, id2 = _unpack_from(s)
    if flag == 0:
        return IRHeader(0, label, id_, id2), s[_SIZE:]
    end = _SIZE + 4 * flag
    if end > size:
        raise HeaderError(
            f"buffer is smaller than requested size: the header announces {flag} labels, {end} "
            f"bytes in all, and the payload has {size}; it was not written by recordio.pack"
        )
    labels = np.frombuffer(s, dtype=_LABEL_DTYPE, count=flag, offset=_SIZE)
    labels.flags.writeable = False
    return IRHeader(flag, labels, id_, id2), s[end:]
