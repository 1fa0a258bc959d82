"""Decoders of records: framed bytes to payloads, and to images and labels."""

from __future__ import annotations

import mmap
import operator
import struct
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import Decoder
from aioloader.datasets.decoding import ImageDecoder, label_value, label_vector
from aioloader.errors import IncompleteItemError
from aioloader.foundation.native import native
from recordio import MAGIC, extract, payload_spans, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array, IntArray, ItemLocation

RECORD_FIELDS = struct.Struct("<IIIfQQ")
"""Part head (magic, flag and length), then the image header (number of labels, label, two ids)."""
_WORDS_OF_FIELDS = np.arange(RECORD_FIELDS.size // 4)

_LABEL = struct.Struct("<f")
# Bytes of payloads that are gathered together: longer ones do not stay in the processor's cache.
_MOST_TOGETHER = 1 << 10


@dataclass(frozen=True)
class RecordDecoder(Decoder[bytes]):
    """Decoder of framed bytes to a record's payload."""

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> bytes:
        return bytes(extract(data, path=location.path, offset=location.offset or 0))

    def many(self, memory: memoryview | mmap.mmap, start: IntArray, length: IntArray) -> list[bytes | None]:
        """Return the payloads of records, None for those stored in several parts; see `Decoder.many`."""
        payloads: list[bytes | None]
        if native is not None:
            payloads = native.copy_payloads(memory, np.ascontiguousarray(start), np.ascontiguousarray(length))
            return payloads
        view = memoryview(memory)
        begin, end = payload_spans(view, start, length)
        sizes = set(map(operator.sub, end, begin))
        if len(sizes) == 1 and 0 < (nbytes := sizes.pop()) <= _MOST_TOGETHER:
            # Payloads of one size take 0.4 to 0.9 of the time as items of one array.
            items = np.ndarray((len(view) - nbytes) // 4 + 1, f"V{nbytes}", view, strides=4)
            payloads = items[start + (begin[0] - start[0]) >> 2].tolist()
            return payloads
        if type(memory) is mmap.mmap:
            return [memory[low:high] or None for low, high in zip(begin, end, strict=True)]
        return [bytes(view[low:high]) or None for low, high in zip(begin, end, strict=True)]


@dataclass(frozen=True)
class ImageRecordDecoder(ImageDecoder):
    """Decoder of a record to (image, label).

    Attributes:
        scalar_dtype: numpy name of the dtype of scalar labels.
        vector_dtype: numpy name of the dtype of label arrays.
        first_label: if a record has several labels, the first one is the label, a scalar.
    """

    scalar_dtype: str = "int64"
    vector_dtype: str = "float32"
    first_label: bool = False

    @cached_property
    def _fast_labels(self) -> tuple[Any, int, int, bool]:
        """Return the scalar type, its smallest and largest integer, and True if it is a float that every label fits."""
        dtype = np.dtype(self.scalar_dtype)
        if dtype.kind == "f":  # float16 cannot hold every label
            return dtype.type, 1, 0, dtype.itemsize >= 4
        bounds = np.iinfo(dtype)
        return dtype.type, int(bounds.min), int(bounds.max), False

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        nbytes = len(data)
        if nbytes >= 32:
            scalar, least, greatest, floating = self._fast_labels
            magic, word, flag, value, _, _ = RECORD_FIELDS.unpack_from(data)
            begin = 32
            # Fast path for a record in one part with one label that fits.
            if magic == MAGIC and 24 <= word < 1 << 29 and (word + 11) & -4 <= nbytes:
                if flag and self.first_label and 24 + 4 * flag <= word:
                    (value,) = _LABEL.unpack_from(data, begin)
                    begin += 4 * flag
                    flag = 0
                if flag == 0:
                    if floating:
                        return data[begin : 8 + word], scalar(value)
                    if value.is_integer() and least <= value <= greatest:
                        return data[begin : 8 + word], scalar(int(value))
        payload: Any = extract(data, path=location.path, offset=location.offset or 0)
        header, body = unpack(payload)
        if header.flag and not self.first_label:
            return body, label_vector(header.label, np.dtype(self.vector_dtype))
        label = float(header.label[0]) if header.flag else header.label
        return body, label_value(label, np.dtype(self.scalar_dtype))

    def parse_part(self, data: memoryview, nbytes: int) -> tuple[Any, Any]:
        if type(self).parse is not ImageRecordDecoder.parse or len(data) < RECORD_FIELDS.size:
            return super().parse_part(data, nbytes)
        magic, word, flag, value, _, _ = RECORD_FIELDS.unpack_from(data)
        begin = RECORD_FIELDS.size + 4 * flag
        if magic != MAGIC or word >= 1 << 29 or word + 11 & -4 != nbytes or begin > len(data):
            raise IncompleteItemError("its head is not that of one record in one part")
        if flag and not self.first_label:
            labels = np.frombuffer(data[RECORD_FIELDS.size : begin], "<f4")
            return data[begin:], label_vector(labels, np.dtype(self.vector_dtype))
        if flag:
            (value,) = _LABEL.unpack_from(data, RECORD_FIELDS.size)
        return data[begin:], label_value(value, np.dtype(self.scalar_dtype))

    def head_parser(self) -> Callable[[memoryview, int], Any] | None:
        # A derived class may parse in another way.
        usual = type(self).parse is ImageRecordDecoder.parse
        return (lambda data, nbytes: self.parse_part(data, nbytes)[0]) if usual else None

    def parse_many(
        self, data: memoryview, start: IntArray, length: IntArray
    ) -> tuple[list[memoryview | None], list[Array]]:
        # A derived class may parse in another way.
        if type(self).parse is not ImageRecordDecoder.parse:
            return [], []
        inside = (start & 3 == 0) & (length >= RECORD_FIELDS.size) & (start + length <= len(data))
        if not inside.any():
            return [], []
        words = np.frombuffer(data, "<u4", len(data) // 4)
        heads = words[np.where(inside, start >> 2, 0)[:, None] + _WORDS_OF_FIELDS]
        size, flag = heads[:, 1].astype(np.int64), heads[:, 2].astype(np.int64)
        # As in `parse`: records in one part with one label that fits. Of a length that an index has wrong, the file's
        # reader finds the right one.
        fit = inside & (heads[:, 0] == MAGIC) & (size >= 24) & (size < 1 << 29) & (size + 11 & -4 == length)
        begin, value = start + RECORD_FIELDS.size, heads.view("<f4")[:, 3]
        if self.first_label:
            several = fit & (flag > 0) & (24 + 4 * flag <= size)
            value = np.where(several, words.view("<f4")[np.where(several, begin >> 2, 0)], value)
            begin = begin + np.where(several, 4 * flag, 0)
            fit &= several | (flag == 0)
        else:
            fit &= flag == 0
        scalar, least, greatest, floating = self._fast_labels
        if floating:
            fit &= ~np.isnan(value)  # the conversion of `parse` may change their bits
            labels = value.astype(scalar)
        else:
            wide = np.where(np.isfinite(value), value, 0.5).astype(np.float64)
            fit &= (wide == np.floor(wide)) & (wide >= least) & (wide < float(greatest + 1))
            labels = np.where(fit, wide, 0.0).astype(scalar)
        places = zip(fit.tolist(), begin.tolist(), (start + 8 + size).tolist(), strict=True)
        return [data[low:high] if usual else None for usual, low, high in places], [labels]
