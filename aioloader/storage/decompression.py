"""Decompression of files in blocks of a bounded size: a small file cannot fill the memory or the disk."""

from __future__ import annotations

import importlib
import io
from typing import TYPE_CHECKING, Any, Final

from aioloader.errors import MissingPackageError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_BLOCK_NBYTES: Final = 1 << 20
# Of what Brotli reads at a time.
_INPUT_NBYTES: Final = 1 << 16
_PACKAGES: Final = {"br": "brotli", "snappy": "cramjam", "zstd": "zstandard"}


class DecompressionError(ValueError):
    """Error raised for bytes that cannot be decompressed: damaged, cut short, or larger than announced."""


class BlockStream(io.RawIOBase):
    """Binary stream over blocks, for decompressors that read from a file. It cannot seek.

    Args:
        blocks: of bytes.
        seen: called with each block.

    Attributes:
        error: the exception of `blocks`, or None; decompressors may replace it by another one.
    """

    def __init__(self, blocks: Iterator[bytes], seen: Callable[[bytes], object]) -> None:
        super().__init__()
        self._blocks = blocks
        self._seen = seen
        self._block = memoryview(b"")
        self.error: Exception | None = None

    def readable(self) -> bool:
        """Return True."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Copy some of the next bytes; return their number, 0 at the end."""
        while not len(self._block):
            try:
                block = next(self._blocks, None)
            except Exception as error:
                self.error = error
                raise
            if block is None:
                return 0
            self._seen(block)
            self._block = memoryview(block)
        count = min(len(buffer), len(self._block))
        buffer[:count] = self._block[:count]
        self._block = self._block[count:]
        return count


def decompressed(stream: BlockStream, codec: str, nbytes: int) -> Iterator[bytes]:
    """Yield the bytes of a compressed file, in blocks of about a megabyte.

    Args:
        stream: the compressed bytes, to the end.
        codec: "br", "bz2", "gz", "snappy" (without frames) or "zstd".
        nbytes: number of bytes that the file must have. For snappy, which needs them, and all compressed bytes, in
            memory.

    Raises:
        DecompressionError: the bytes are damaged, are cut short, or have another number.
        MissingPackageError: the package that decompresses them is not installed.
        OSError: they cannot be read.
    """
    done = 0
    try:
        for block in _CODECS[codec](stream, nbytes):
            done += len(block)
            if done > nbytes:
                raise DecompressionError(f"it has more than the {nbytes} bytes that it should have")
            yield block
    except (ImportError, DecompressionError):
        raise
    except Exception as error:
        # Each library has other errors for damage; some are OSError.
        if stream.error is not None:
            raise stream.error from None
        raise DecompressionError(f"it is damaged: {error}") from None
    if done < nbytes:
        raise DecompressionError(f"it ends after {done} of the {nbytes} bytes that it should have")


def _in_blocks(source: Any) -> Iterator[bytes]:
    while block := source.read(_BLOCK_NBYTES):
        yield block


def _gunzip(stream: BlockStream, nbytes: int) -> Iterator[bytes]:
    import gzip

    # It takes a short read for the end.
    with io.BufferedReader(stream) as whole, gzip.GzipFile(fileobj=whole) as source:
        yield from _in_blocks(source)


def _bunzip2(stream: BlockStream, nbytes: int) -> Iterator[bytes]:
    import bz2

    with bz2.BZ2File(stream) as source:
        yield from _in_blocks(source)


def _unzstd(stream: BlockStream, nbytes: int) -> Iterator[bytes]:
    # Windows of more than 128 MiB are refused by default.
    decompressor = _library("zstd").ZstdDecompressor()
    with decompressor.stream_reader(stream, read_across_frames=True, closefd=False) as source:
        yield from _in_blocks(source)


def _unbrotli(stream: BlockStream, nbytes: int) -> Iterator[bytes]:
    decompressor = _library("br").Decompressor()
    while not decompressor.is_finished():
        # Output that was held back comes before further input is accepted.
        ready = decompressor.can_accept_more_data()
        block = stream.read(_INPUT_NBYTES) or b"" if ready else b""
        yield decompressor.process(block, output_buffer_limit=_BLOCK_NBYTES)
        if ready and not block:
            return  # cut short: the bytes are counted
    if stream.read(1):
        raise DecompressionError("bytes follow the end of the compressed data")


def _unsnappy(stream: BlockStream, nbytes: int) -> Iterator[bytes]:
    library = _library("snappy").snappy
    data = stream.read()
    announced = library.decompress_raw_len(data)
    if announced != nbytes:
        raise DecompressionError(f"it has {announced} bytes, and should have {nbytes}")
    yield bytes(library.decompress_raw(data, output_len=nbytes))


_CODECS: Final = {"br": _unbrotli, "bz2": _bunzip2, "gz": _gunzip, "snappy": _unsnappy, "zstd": _unzstd}


def _library(codec: str) -> Any:
    """Return the package that decompresses a format."""
    name = _PACKAGES[codec]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(name, extra="mds", what=f"decompressing {codec!r} needs") from error
