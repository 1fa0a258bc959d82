"""Reads with a size limit: a compressed megabyte can unpack to a gigabyte, and a header can announce any size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

MOST_NBYTES = 1 << 31
"""Largest unpacked size in bytes of one file of arrays: forty times that of MNIST."""

_PIECE = 1 << 20


class Readable(Protocol):
    """Object with `read(size)`."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


def read_up_to(file: Readable, most: int) -> bytes:
    """Return the bytes of a file, at most the first `most`; memory grows with the bytes read, not those announced."""
    return b"".join(_pieces(file, most))


def _pieces(file: Readable, most: int) -> Iterator[bytes]:
    while most > 0 and (piece := file.read(min(most, _PIECE))):
        yield piece
        most -= len(piece)


_MOST_VAIN_READS = 1000


class Bounded:
    """Stream that limits the bytes read from another stream, and the number of reads past its end.

    Args:
        file: the other stream.
        most: limit in bytes.
        path: path of the file, for the error.
    """

    def __init__(self, file: Readable, most: int, path: str) -> None:
        self._file = file
        self._most = most
        self._left = most
        self._path = path
        self._vain = 0

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            ValueError: the stream has more bytes than allowed; or the caller reads on and on past the end.
        """
        # One byte more than allowed shows whether the limit is exceeded.
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        self._vain += not data
        if self._vain > _MOST_VAIN_READS:
            raise ValueError(f"{self._path} is damaged: it ends too early")
        if self._left < 0:
            raise ValueError(
                f"{self._path} has more than {self._most} bytes when unpacked, which is the limit"
            )
        return data
