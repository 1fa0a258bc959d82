"""Wire format of protobuf: integers, lengths and unknown fields. Pure.

The source is protobuf's guide "Encoding". A message is a sequence of fields; a field is a tag (its number and its wire
type, in one integer of variable length) and a value. The functions take places in the bytes, and return the place
behind what they read. They raise `MessageFault` where the message is damaged, and IndexError where the bytes end
although the message goes on, so that a caller with a part of a message can read more of it.
"""

from __future__ import annotations

from typing import Final

VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5
"""Wire types."""

FIELD_1: Final = 1 << 3 | BYTES
FIELD_2: Final = 2 << 3 | BYTES
FIELD_3: Final = 3 << 3 | BYTES
"""Tags of fields whose value is bytes: also text, another message, and packed numbers."""

_MOST_DEPTH: Final = 100
_SHIFTS: Final = tuple(range(7, 70, 7))
_OF_64_BITS: Final = (1 << 64) - 1


class MessageFault(ValueError):
    """Error raised for bytes that are not the message expected, or a damaged one.

    Attributes:
        reason: the fault, in words.
        at: where in the bytes.
        expected, found: what should be there, and what is; None where the fault is of another kind.
    """

    def __init__(self, reason: str, at: int, expected: object = None, found: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.expected = expected
        self.found = found


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return an integer of variable length, of 64 bits, and the place behind it.

    Raises:
        MessageFault: it ends behind `end`, or has more than 10 bytes.
        IndexError: `data` ends before that.
    """
    if at >= end:
        raise MessageFault("a field ends behind its message", at)
    value = data[at]
    if value < 128:
        return value, at + 1
    for shift in _SHIFTS:
        at += 1
        if at >= end:
            raise MessageFault("a field ends behind its message", at)
        byte = data[at]
        value += byte - 1 << shift  # and without the upper bit of the byte before
        if byte < 128:
            return value & _OF_64_BITS, at + 1
    raise MessageFault("an integer has more than 10 bytes", at)


def extent(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the end of a field with a length, and its beginning; raise as `varint`."""
    nbytes, begin = varint(data, at, end)
    return begin + nbytes, begin


def skip_field(data: bytes | memoryview, at: int, end: int) -> int:
    """Return the place behind a field that is not known, with all fields in it.

    Raises:
        MessageFault: it ends behind `end`, or is not a field.
        IndexError: `data` ends before that is known.
    """
    groups: list[int] = []
    begin = at
    while True:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not number or tag >> 32:
            raise MessageFault("a field has an invalid number", begin, found=number)
        if wire == VARINT:
            _, at = varint(data, at, end)
        elif wire == FIXED64:
            at += 8
        elif wire == BYTES:
            at, _ = extent(data, at, end)
        elif wire == FIXED32:
            at += 4
        elif wire == GROUP:
            groups.append(number)
            if len(groups) > _MOST_DEPTH:
                raise MessageFault("groups are nested too deeply", begin, f"at most {_MOST_DEPTH}", "more")
        elif wire != END_GROUP:
            raise MessageFault("a field has an invalid type", begin, found=wire)
        elif not groups or groups.pop() != number:
            raise MessageFault("a group ends that has not begun", begin, found=number)
        if at > end:
            raise MessageFault("a field ends behind its message", begin)
        if not groups:
            return at
