"""Writer of TFRecord files and of `tf.train.Example` messages for tests, in usual and in unusual forms."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

import numpy as np

from aioloader.formats.tfrecord.framing import length_crcs

_TABLE: list[int] = []
for _byte in range(256):
    for _ in range(8):
        _byte = _byte >> 1 ^ (0x82F63B78 if _byte & 1 else 0)
    _TABLE.append(_byte)


def masked_crc(data: bytes) -> int:
    """Return the masked CRC-32C of bytes, by the table of RFC 3720, appendix B.4."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ _TABLE[(crc ^ byte) & 255]
    crc ^= 0xFFFFFFFF
    return ((crc >> 15 | crc << 17) + 0xA282EAD8) & 0xFFFFFFFF


# -- messages --------------------------------------------------------------------------------------------------------


def varint(value: int, nbytes: int = 1) -> bytes:
    """Return an integer of variable length.

    Args:
        value: negative ones take ten bytes.
        nbytes: least length; more than are needed are zeros.
    """
    value &= (1 << 64) - 1
    parts = bytearray()
    while value > 127 or len(parts) < nbytes - 1:
        parts.append(value & 127 | 128)
        value >>= 7
    parts.append(value)
    return bytes(parts)


def field(number: int, content: bytes) -> bytes:
    """Return a field with a length."""
    return varint(number << 3 | 2) + varint(len(content)) + content


def bytes_list(*values: bytes) -> bytes:
    """Return a `Feature` of bytes."""
    return field(1, b"".join(field(1, value) for value in values))


def float_list(*values: float, packed: bool = True) -> bytes:
    """Return a `Feature` of floats."""
    parts = [struct.pack("<f", value) for value in values]
    return field(2, field(1, b"".join(parts)) if packed else b"".join(b"\x0d" + part for part in parts))


def int64_list(*values: int, packed: bool = True) -> bytes:
    """Return a `Feature` of integers."""
    parts = [varint(value) for value in values]
    return field(3, field(1, b"".join(parts)) if packed else b"".join(b"\x08" + part for part in parts))


def entry(name: str | bytes, feature: bytes) -> bytes:
    """Return an entry of a `Features` message."""
    key = name.encode() if isinstance(name, str) else name
    return field(1, field(1, key) + field(2, feature))


def example(features: Mapping[str, bytes]) -> bytes:
    """Return an `Example` with some `Feature` messages."""
    return field(1, b"".join(entry(name, feature) for name, feature in features.items()))


def image_example(image: bytes, label: int) -> bytes:
    """Return an `Example` with the features that TFRecord files of ImageNet usually have."""
    return example(
        {
            "image/height": int64_list(6),
            "image/filename": bytes_list(b"name.png"),
            "image/encoded": bytes_list(image),
            "image/class/label": int64_list(label),
        }
    )


# -- files -----------------------------------------------------------------------------------------------------------


def record(payload: bytes) -> bytes:
    """Return a record: a payload in its frame."""
    length = struct.pack("<Q", len(payload))
    return length + struct.pack("<I", masked_crc(length)) + payload + struct.pack("<I", masked_crc(payload))


def write_records(path: Path, payloads: Iterable[bytes]) -> Path:
    """Write a file of records."""
    path.write_bytes(b"".join(map(record, payloads)))
    return path


def write_index(path: Path, lengths: Sequence[int]) -> Path:
    """Write a text index as tfrecord2idx does.

    Args:
        path: of the index.
        lengths: bytes of the records, with head and CRC.
    """
    offsets = np.cumsum([0, *lengths])
    path.write_text("".join(f"{at} {size}\n" for at, size in zip(offsets, lengths, strict=False)))
    return path


def many_records(payload: bytes, count: int) -> bytes:
    """Return the same record many times."""
    head = struct.pack("<QI", len(payload), int(length_crcs(np.array([len(payload)], np.uint64))[0]))
    return (head + payload + struct.pack("<I", masked_crc(payload))) * count
