"""File objects for pyarrow that have only some ranges of a file."""

from __future__ import annotations

import bisect
import io
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


# Fewer, larger reads for code that reads in small steps.
_READ_NBYTES = 8 << 20


class RangeFile(io.RawIOBase):
    """Seekable file of which some ranges are known. Used by one thread at a time.

    Args:
        name: of the file, for errors.
        nbytes: size of the file.
        ranges: (offset, bytes) of each range; they do not overlap.
        fetch: reads bytes that are in no range, from (offset, length); None: reading them is an error.

    Attributes:
        name: as given.
        complete: all bytes that are needed are in memory.
    """

    def __init__(
        self,
        name: str,
        nbytes: int,
        ranges: Sequence[tuple[int, memoryview]],
        fetch: Callable[[int, int], memoryview] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._nbytes = nbytes
        self._ranges = sorted(ranges, key=lambda each: each[0])
        self._offsets = [offset for offset, _ in self._ranges]
        self._fetch = fetch
        self.complete = fetch is None
        self._fetched: tuple[int, memoryview] = (0, memoryview(b""))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = (0, self._at, self._nbytes)[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        """Return the size of the file."""
        return self._nbytes

    def read(self, size: int | None = -1, /) -> bytes:
        """Return bytes from here on: fewer than `size` only at the end of the file.

        Raises:
            OSError: they are in no range that is known.
        """
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1, /) -> memoryview:
        """Return the same as `read`, without a copy where that is possible; pyarrow calls it."""
        left = max(0, self._nbytes - self._at)
        length = left if size is None or size < 0 else min(size, left)
        found = self._known(self._at, length) if length else memoryview(b"")
        self._at += len(found)
        return found

    def _known(self, offset: int, length: int) -> memoryview:
        place = bisect.bisect_right(self._offsets, offset) - 1
        if place >= 0:
            begin, data = self._ranges[place]
            inside = data[offset - begin : offset - begin + length]
            if len(inside) == length:
                return inside
        if self._fetch is None:
            raise OSError(
                f"{self.name}: bytes {offset} to {offset + length - 1} are needed, which are outside of the column "
                "chunks that the footer names"
            )
        begin, data = self._fetched
        if not begin <= offset <= offset + length <= begin + len(data):
            ahead = min(max(length, _READ_NBYTES), self._nbytes - offset)
            self._fetched = begin, data = offset, self._fetch(offset, ahead)
        return data[offset - begin : offset - begin + length]


# Numbers of fields and of values in parquet.thrift.
_TYPE, _DECODED, _STORED = 1, 2, 3
_DATA, _DICTIONARY, _DATA_V2 = 5, 7, 8
_VALUES, _ENCODING, _ENCODING_V2 = 1, 2, 4
_DICTIONARY_PAGE: Final = 2
_DELTA_BYTE_ARRAY: Final = 7

# Types of the compact protocol.
_STOP, _TRUE, _FALSE, _BYTE = 0, 1, 2, 3
_INTS: Final = (4, 5, 6)
_DOUBLE, _BINARY, _LIST, _SET, _MAP, _STRUCT = 7, 8, 9, 10, 11, 12

_MOST_PAGES: Final = 1 << 16
_MOST_DEPTH: Final = 16
_MOST_FIELDS: Final = 1 << 12
_VARINT_BYTES: Final = 10


class PageSizes(NamedTuple):
    """Sizes that the pages of one column chunk announce.

    Attributes:
        decoded: bytes of all pages after decompression, with their headers.
        values: number of values in the data pages.
        largest_value: bytes that one value may take although it is stored in a few bits: those of the dictionary, or
            of the largest page whose values repeat parts of others; 0 if each value is stored whole.
    """

    decoded: int
    values: int
    largest_value: int


class PageHeader(NamedTuple):
    """Header of one page.

    Attributes:
        nbytes: size of the header.
        dictionary: the page is a dictionary.
        decoded: bytes of the page after decompression.
        stored: bytes of the page in the file, behind the header.
        values: number of values of a data page; 0 for any other page.
        encoding: of the values; -1 where the header has none.
    """

    nbytes: int
    dictionary: bool
    decoded: int
    stored: int
    values: int
    encoding: int

    @property
    def repeats(self) -> bool:
        """Return True if values of the page repeat the beginnings of others."""
        return self.encoding == _DELTA_BYTE_ARRAY


def chunk_sizes(data: memoryview, values: int) -> PageSizes:
    """Return the sizes that the pages of a column chunk announce.

    Args:
        data: the bytes of the chunk.
        values: number of values according to the footer; pages behind them are not examined, as no reader needs them.

    Raises:
        ValueError: a header is damaged, a page ends behind the chunk, or there are more than 65,536 pages.
    """
    at = decoded = found = largest = 0
    for _ in range(_MOST_PAGES):
        if at >= len(data) or (found and found >= values):
            return PageSizes(decoded, found, largest)
        header = read_header(data, at)
        at += header.nbytes
        if not 0 <= header.stored <= len(data) - at:
            raise ValueError(f"a page of {header.stored} bytes ends behind its column chunk")
        at += header.stored
        decoded += header.nbytes + header.decoded
        found += header.values
        if header.dictionary or header.repeats:
            largest = max(largest, header.decoded)
    raise ValueError(f"a column chunk has more than {_MOST_PAGES} pages")


def read_header(data: memoryview, at: int = 0) -> PageHeader:
    """Parse the header of a page.

    Args:
        data: contains it.
        at: where it begins.

    Raises:
        ValueError: it is damaged.
    """
    reader = _CompactReader(data, at)
    kind = stored = decoded = values = 0
    encoding = -1
    for field, wire in reader.fields():
        if field in (_TYPE, _DECODED, _STORED):
            number = reader.integer(wire)
            if field == _TYPE:
                kind = number
            elif field == _DECODED:
                decoded = number
            else:
                stored = number
        elif field in (_DATA, _DATA_V2) and wire == _STRUCT:
            of_encoding = _ENCODING if field == _DATA else _ENCODING_V2
            for inner, inner_wire in reader.fields():
                if inner == _VALUES:
                    values = reader.integer(inner_wire)
                elif inner == of_encoding:
                    encoding = reader.integer(inner_wire)
                else:
                    reader.skip(inner_wire)
        else:
            reader.skip(wire)
    if not (0 <= decoded < 1 << 31 and 0 <= stored < 1 << 31 and 0 <= values < 1 << 31):
        raise ValueError(
            f"the header of a page announces {stored} bytes that become {decoded}, and {values} values"
        )
    return PageHeader(reader.at - at, kind == _DICTIONARY_PAGE, decoded, stored, values, encoding)


class _CompactReader:
    """Reader of values in Thrift's compact protocol.

    Args:
        data: contains them.
        at: where the first one begins.

    Attributes:
        at: where the next one begins.
    """

    def __init__(self, data: memoryview, at: int) -> None:
        self._data = data
        self.at = at
        self._left = _MOST_FIELDS  # fields and elements; bounds the time for one header

    def fields(self) -> _Fields:
        """Return an iterator over number and type of the fields of a struct; read or skip each before the next."""
        return _Fields(self)

    def byte(self) -> int:
        """Return the next byte."""
        if self.at >= len(self._data):
            raise ValueError("the header of a page ends behind its column chunk")
        self.at += 1
        return self._data[self.at - 1]

    def varint(self) -> int:
        """Return an unsigned number of up to 64 bits."""
        value = 0
        for place in range(_VARINT_BYTES):
            byte = self.byte()
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise ValueError("a number in the header of a page does not end")

    def integer(self, wire: int) -> int:
        """Return a signed number (zigzag)."""
        if wire not in _INTS:
            raise ValueError(f"the header of a page has type {wire} in place of a number")
        value = self.varint()
        return value >> 1 ^ -(value & 1)

    def count(self) -> None:
        """Count a field or an element; raise ValueError if there are too many."""
        self._left -= 1
        if self._left < 0:
            raise ValueError("the header of a page is too large")

    def skip(self, wire: int, depth: int = 0) -> None:
        """Skip a value."""
        if depth > _MOST_DEPTH:
            raise ValueError("the header of a page is nested too deeply")
        if wire in (_TRUE, _FALSE):
            return
        if wire in _INTS:
            self.varint()
        elif wire == _BYTE:
            self.byte()
        elif wire == _DOUBLE:
            self._advance(8)
        elif wire == _BINARY:
            self._advance(self.varint())
        elif wire == _STRUCT:
            for _, inner in self.fields():
                self.skip(inner, depth + 1)
        elif wire in (_LIST, _SET):
            head = self.byte()
            count = self.varint() if head >> 4 == 15 else head >> 4
            self._skip_elements(count, (head & 15,), depth)
        elif wire == _MAP:
            count = self.varint()
            kinds = self.byte() if count else 0
            self._skip_elements(count, (kinds >> 4, kinds & 15), depth)
        else:
            raise ValueError(f"the header of a page has a value of unknown type {wire}")

    def _skip_elements(self, count: int, wires: tuple[int, ...], depth: int) -> None:
        for _ in range(count):
            for wire in wires:
                self.count()
                # An element that is true or false takes a byte; a field has it in its type.
                self.skip(_BYTE if wire in (_TRUE, _FALSE) else wire, depth + 1)

    def _advance(self, nbytes: int) -> None:
        if nbytes > len(self._data) - self.at:
            raise ValueError("the header of a page ends behind its column chunk")
        self.at += nbytes


class _Fields:
    """Iterator over number and type of the fields of a struct."""

    def __init__(self, reader: _CompactReader) -> None:
        self._reader = reader
        self._number = 0

    def __iter__(self) -> _Fields:
        return self

    def __next__(self) -> tuple[int, int]:
        reader = self._reader
        head = reader.byte()
        if head == _STOP:
            raise StopIteration
        reader.count()
        if head >> 4:
            self._number += head >> 4
        else:
            number = reader.varint()
            self._number = number >> 1 ^ -(number & 1)
        return self._number, head & 15
