"""Reading within a limit: a compressed file of a megabyte can stand for a gigabyte, and a header announce anything."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("MOST_NBYTES", "Bounded", "Readable", "read_up_to")

MOST_NBYTES = 1 << 31
"""Most bytes of one file of arrays, unpacked: forty times as many as MNIST has."""

_PIECE = 1 << 20


class Readable(Protocol):
    """What has a method `read`."""

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end."""
        ...


def read_up_to(file: Readable, most: int) -> bytes:
    """The bytes of a file, or the first `most` of them. Memory is taken as they come, not as they are announced."""
    return b"".join(_pieces(file, most))


def _pieces(file: Readable, most: int) -> Iterator[bytes]:
    while most > 0 and (piece := file.read(min(most, _PIECE))):
        yield piece
        most -= len(piece)


_MOST_VAIN_READS = 1000


class Bounded:
    """A stream that refuses to give more than so many bytes, or to be asked for ever behind its end.

    Args:
        file: the stream.
        most: bytes.
        path: named in the error.
    """

    def __init__(self, file: Readable, most: int, path: str) -> None:
        self._file = file
        self._most = most
        self._left = most
        self._path = path
        self._vain = 0

    def read(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end.

        Raises:
            ValueError: there are more than allowed; or the end was reached long ago, and whoever reads does not notice.
        """
        # One more than allowed tells whether there are more.
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        self._vain += not data
        if self._vain > _MOST_VAIN_READS:
            raise ValueError(f"{self._path} is damaged: it ends too early")
        if self._left < 0:
            raise ValueError(
                f"{self._path} has more than {self._most} bytes when unpacked; so many are not read"
            )
        return data
