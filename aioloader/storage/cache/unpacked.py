"""Decompressed copies of the files of a data set, in a directory with a limit, shared by all processes that use it.

    DIR/unpacked-1/room, users          bytes taken, and the processes that make copies
    DIR/unpacked-1/<set>-<version>/     one folder for each version of a data set
        in-use                          locked by the processes that have the set open; contains its name
        <file>.data                     a decompressed file

The rules of `aioloader.storage.cache.disk_quota` decide on the space: to make some, sets that no process has open are
evicted, the least recently used first. The copies of a set that is open stay, because every epoch reads all of them.

No file in it is needed: the directory may be deleted while no process uses it.

Check of the bytes of a file, while they are read, by their number and their hash.

Decompression of files in blocks of a bounded size: a small file cannot fill the memory or the disk.
"""

from __future__ import annotations

import errno
import hashlib
import importlib
import io
import os
import sys
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, Generic, Protocol, TypeVar

import numpy as np

from aioloader.errors import MissingPackageError, SampleFormatError
from aioloader.foundation.opening import in_this_opening
from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import open_locked, open_regular
from aioloader.storage.urls import cache_name, redact_url
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence

    from aioloader.storage.cache.disk_quota import DiskQuota

# Each may have up to 32 MiB of blocks in memory.
_MADE_AT_A_TIME = 4
_SHOWN_NBYTES = 64 << 20
_LOCK_POLL_S = 0.1


class MadeFile(Protocol):
    """File that a `FileMaker` makes."""

    @property
    def path(self) -> Path:
        """Return its path."""
        ...

    @property
    def nbytes(self) -> int:
        """Return its size."""
        ...


F = TypeVar("F", bound=MadeFile)


class FileMaker(ABC, Generic[F]):
    """Maker of files of one kind, a few at a time; a file that exists is kept.

    Args:
        label: the files, for a progress bar.
        stop_at_error: make no further file after the first error.
    """

    def __init__(self, label: str, *, stop_at_error: bool = False) -> None:
        self._label = label
        self._stop_at_error = stop_at_error
        self._bar: ProgressBar | None = None
        self._written = 0
        self._counting = threading.Lock()
        self._stop = threading.Event()

    @abstractmethod
    def exists(self, file: F) -> bool:
        """Return whether a file is there and valid."""

    @abstractmethod
    def write(self, file: F, stream: BinaryIO) -> None:
        """Write a file, and call `advance` now and then.

        Args:
            file: that is made.
            stream: at the beginning of an empty file.

        Raises:
            OSError, ValueError: it cannot be made.
        """

    def check(self, file: F, path: Path) -> None:
        """Raise OSError or ValueError unless a complete file, which is still at `path`, is valid."""

    def advance(self, nbytes: int) -> None:
        """Count bytes that were written, for the progress bar.

        Raises:
            InterruptedError: the work is given up.
        """
        if self._stop.is_set():
            raise InterruptedError
        with self._counting:
            self._written += nbytes
            if self._bar is not None:
                self._bar.update(self._written >> 20)

    def make(self, files: Sequence[F]) -> list[OSError | ValueError | None]:
        """Make the files that do not exist yet.

        Returns:
            the error of each file; None for a valid one, and for those that are not made after the first error.
        """
        missing = {place: file for place, file in enumerate(files) if not self.exists(file)}
        errors: list[OSError | ValueError | None] = [None] * len(files)
        if not missing:
            return errors
        total = sum(file.nbytes for file in missing.values())
        if total > _SHOWN_NBYTES:
            self._bar = ProgressBar(self._label, total >> 20, unit="MiB")
        with ThreadPoolExecutor(_MADE_AT_A_TIME, "aioloader-files") as pool:
            try:
                make = in_this_opening(self._make_one)
                futures = {place: pool.submit(make, file) for place, file in missing.items()}
                for place, future in futures.items():
                    errors[place] = future.result()
                    if errors[place] is not None and self._stop_at_error:
                        self._stop.set()
                        pool.shutdown(wait=False, cancel_futures=True)
                        break
            except BaseException:  # Ctrl-C
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                if self._bar is not None:
                    self._bar.close()
        return errors

    def _make_one(self, file: F) -> OSError | ValueError | None:
        partial_file = file.path.with_name(f"{file.path.name}.partial")
        try:
            file.path.parent.mkdir(parents=True, exist_ok=True)
            while (fd := open_locked(partial_file)) is None:
                if self._stop.wait(_LOCK_POLL_S):
                    return None
            # The file gets its name, or is deleted, while it is locked: later another process may make the next one.
            with os.fdopen(fd, "r+b") as stream:
                try:
                    existed = self.exists(file)
                    if not existed:
                        stream.truncate(0)
                        self.write(file, stream)
                        stream.flush()
                        os.fsync(stream.fileno())
                        self.check(file, partial_file)
                except BaseException:
                    _close_where_needed(stream)
                    with suppress(OSError):
                        partial_file.unlink()
                    raise
                _close_where_needed(stream)
                if existed:
                    partial_file.unlink()
                else:
                    partial_file.replace(file.path)
        except (OSError, ValueError) as error:
            return error
        return None


def _close_where_needed(file: BinaryIO) -> None:
    """Close a file, and give up its lock, where an open one cannot be renamed or deleted."""
    if os.name == "nt":
        file.close()


class FileCheck:
    """Check of bytes by their number, and by the first of their hashes that this Python can calculate.

    Args:
        hashes: name of an algorithm to the hexadecimal digest.

    Attributes:
        nbytes: number of bytes so far.
    """

    def __init__(self, hashes: Mapping[str, str]) -> None:
        self.nbytes = 0
        self._digest: Any = None
        for name, expected in hashes.items():
            # Those with a digest of any length need the length.
            if name in hashlib.algorithms_available and not name.startswith("shake"):
                with suppress(ValueError):
                    self._digest = hashlib.new(name, usedforsecurity=False)
                    self._name, self._expected = name, expected.lower()
                    break

    def add(self, block: bytes) -> None:
        """Add bytes."""
        self.nbytes += len(block)
        if self._digest is not None:
            self._digest.update(block)

    def require(self, nbytes: int, path: str, what: str) -> None:
        """Raise SampleFormatError unless number and hash of all bytes are those of the index.

        Args:
            nbytes: that there should be.
            path: of the file, for errors.
            what: the file, for errors.
        """
        if self.nbytes != nbytes:
            raise SampleFormatError(
                f"{what} does not have the size that index.json says; copy it again",
                path=path,
                expected=f"{nbytes} bytes",
                found=self.nbytes,
            )
        if self._digest is not None and self._digest.hexdigest() != self._expected:
            raise SampleFormatError(
                f"{what} does not have the hash {self._name} that index.json says; copy it again",
                path=path,
                expected=self._expected,
                found=self._digest.hexdigest(),
            )


_UNPACKED_NBYTES: Final = 1 << 20
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


def decompressed(stream: BlockStream, codec: str, nbytes: int, *, extra: str) -> Iterator[bytes]:
    """Yield the bytes of a compressed file, in blocks of about a megabyte.

    Args:
        stream: the compressed bytes, to the end.
        codec: "br", "bz2", "gz", "snappy" (without frames) or "zstd".
        nbytes: number of bytes that the file must have. For snappy, which needs them, and all compressed bytes, in
            memory.
        extra: of aioloader that installs the package that decompresses them.

    Raises:
        DecompressionError: the bytes are damaged, are cut short, or have another number.
        MissingPackageError: the package that decompresses them is not installed.
        OSError: they cannot be read.
    """
    done = 0
    try:
        for block in _CODECS[codec](stream, nbytes, extra):
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
    while block := source.read(_UNPACKED_NBYTES):
        yield block


def _gunzip(stream: BlockStream, nbytes: int, extra: str) -> Iterator[bytes]:
    import gzip

    # It takes a short read for the end.
    with io.BufferedReader(stream) as whole, gzip.GzipFile(fileobj=whole) as source:
        yield from _in_blocks(source)


def _bunzip2(stream: BlockStream, nbytes: int, extra: str) -> Iterator[bytes]:
    import bz2

    with bz2.BZ2File(stream) as source:
        yield from _in_blocks(source)


def _unzstd(stream: BlockStream, nbytes: int, extra: str) -> Iterator[bytes]:
    # Windows of more than 128 MiB are refused by default.
    decompressor = _library("zstd", extra).ZstdDecompressor()
    with decompressor.stream_reader(stream, read_across_frames=True, closefd=False) as source:
        yield from _in_blocks(source)


def _unbrotli(stream: BlockStream, nbytes: int, extra: str) -> Iterator[bytes]:
    decompressor = _library("br", extra).Decompressor()
    while not decompressor.is_finished():
        # Output that was held back comes before further input is accepted.
        ready = decompressor.can_accept_more_data()
        block = stream.read(_INPUT_NBYTES) or b"" if ready else b""
        yield decompressor.process(block, output_buffer_limit=_UNPACKED_NBYTES)
        if ready and not block:
            return  # cut short: the bytes are counted
    if stream.read(1):
        raise DecompressionError("bytes follow the end of the compressed data")


def _unsnappy(stream: BlockStream, nbytes: int, extra: str) -> Iterator[bytes]:
    library = _library("snappy", extra).snappy
    data = stream.read()
    announced = library.decompress_raw_len(data)
    if announced != nbytes:
        raise DecompressionError(f"it has {announced} bytes, and should have {nbytes}")
    yield bytes(library.decompress_raw(data, output_len=nbytes))


_CODECS: Final = {"br": _unbrotli, "bz2": _bunzip2, "gz": _gunzip, "snappy": _unsnappy, "zstd": _unzstd}


def _library(codec: str, extra: str) -> Any:
    """Return the package that decompresses a format."""
    name = _PACKAGES[codec]
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(name, extra=extra, what=f"decompressing {codec!r} needs") from error


_LAYOUT: Final = "unpacked-1"
_BLOCK_NBYTES: Final = 1 << 20
_SUFFIX: Final = ".data"  # by which `DiskQuota` finds what it may evict


@dataclass(frozen=True)
class PackedFile:
    """Compressed file of a data set.

    Attributes:
        path: the file, or its URL.
        state: text that changes whenever its bytes change.
        nbytes: its size.
        codec: see `aioloader.storage.cache.unpacked.decompressed`; None: it is not compressed, and is copied.
        unpacked_nbytes: size of the decompressed file.
        hashes: name of an algorithm to the hexadecimal digest of the decompressed file.
        packed_hashes: the same for the compressed file.
        extra: of aioloader that installs what decompresses it.
    """

    path: str
    state: str
    nbytes: int
    codec: str | None
    unpacked_nbytes: int
    hashes: Mapping[str, str]
    packed_hashes: Mapping[str, str]
    extra: str

    @property
    def name(self) -> str:
        """Return the name of its decompressed copy."""
        text = f"{cache_name(self.path)}\0{self.state}\0{self.unpacked_nbytes}"
        return hashlib.blake2b(text.encode("utf-8", "surrogateescape"), digest_size=16).hexdigest() + _SUFFIX


@dataclass(frozen=True)
class _Copy:
    """Decompressed copy; see `aioloader.storage.cache.unpacked.MadeFile`."""

    packed: PackedFile
    path: Path

    @property
    def nbytes(self) -> int:
        return self.packed.unpacked_nbytes


class UnpackedFiles:
    """Decompressed copies of the files of a data set. Picklable; used from any thread.

    They stay in the directory while this object exists in any process.

    Args:
        name: of the data set, its folder or URL.
        version: text that changes with its contents; copies of other versions are deleted.
        directory: of the copies; None: the user's cache directory.
        limit_nbytes: most bytes of all copies of all data sets in the directory.
        read: yields the bytes of a file at a path, or its URL.
    """

    def __init__(
        self,
        name: str,
        version: str,
        *,
        directory: str | os.PathLike[str] | None,
        limit_nbytes: int,
        read: Callable[[str], Generator[bytes]],
    ) -> None:
        self._name = name
        self._version = version
        place = cache_directory() if directory is None else directory
        self._root = os.path.join(os.path.abspath(os.path.expanduser(os.fspath(place))), _LAYOUT)
        self._limit = limit_nbytes
        self._read = read
        self._lock = threading.Lock()
        self._in_use = -1

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None, "_in_use": -1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def __del__(self) -> None:
        self.close()

    def close(self) -> None:
        """Let the copies be evicted, unless another process has the data set open; may be called twice."""
        fd, self._in_use = self.__dict__.get("_in_use", -1), -1
        if fd >= 0:
            with suppress(OSError):
                os.utime(fd)  # used until now
            os.close(fd)

    def make(self, files: Sequence[PackedFile]) -> list[str]:
        """Return the path of the copy of each file; make those that do not exist yet. Blocking, with a progress bar.

        Args:
            files: of the data set.

        Raises:
            SampleFormatError: a file is damaged, or does not have the size or the hash that it should have.
            MissingPackageError: the package that decompresses them is not installed.
            OSError: a file cannot be read, or the copies take more space than there is.
        """
        if sys.platform == "win32":
            raise OSError("compressed shards need file locks of POSIX; decompress them here")
        from aioloader.storage.cache.disk_quota import DiskQuota, name_key, object_folder

        name = object_folder(self._name, self._version)
        folder = Path(self._root, name)
        copies = [_Copy(file, folder / file.name) for file in files]
        with self._lock:
            if self._in_use < 0 or not all(map(_exists, copies)):
                with closing(DiskQuota(self._root, self._limit)) as quota:
                    # From here on the copies cannot be evicted.
                    if self._in_use < 0:
                        self._in_use = quota.open_object(
                            str(folder), os.fsencode(redact_url(self._name))[:200] + b"\n"
                        )
                    quota.drop_versions(name_key(self._name), name)
                    self._make(copies, quota)
        return [str(copy.path) for copy in copies]

    def _make(self, copies: Sequence[_Copy], quota: DiskQuota) -> None:
        total = sum(copy.nbytes for copy in copies)
        if total > self._limit:
            raise self._no_space(total, f"the limit is {self._limit:,}")
        for error in _Unpacker(self._read, quota, self._no_space).make(copies):
            if error is not None:
                raise error

    def _no_space(self, nbytes: int, why: str) -> OSError:
        return OSError(
            errno.ENOSPC,
            f"the decompressed shards of {redact_url(self._name)} take {nbytes:,} bytes, and {why}: pass "
            "cache='DIR', a directory with enough space, and cache_limit='SIZE' to the dataset",
            self._root,
        )


class _Unpacker(FileMaker[_Copy]):
    """Maker of decompressed copies.

    Args:
        read: yields the bytes of a file at a path, or its URL.
        quota: of the directory.
        no_space: returns the error for a number of bytes for which there is no space, and the reason.
    """

    def __init__(
        self,
        read: Callable[[str], Generator[bytes]],
        quota: DiskQuota,
        no_space: Callable[[int, str], OSError],
    ) -> None:
        super().__init__("decompressed shards", stop_at_error=True)
        self._read = read
        self._quota = quota
        self._no_space = no_space

    def exists(self, file: _Copy) -> bool:
        return _exists(file)

    def write(self, file: _Copy, stream: BinaryIO) -> None:
        nbytes = file.nbytes
        if not self._quota.take(np.array([nbytes])).all():
            raise self._no_space(nbytes, "so much is not free within the limit, or on the disk")
        try:
            self._write(file.packed, stream)
        except BaseException:
            self._quota.release(nbytes)
            raise

    def _write(self, packed: PackedFile, stream: BinaryIO) -> None:
        own, of_packed = FileCheck(packed.hashes), FileCheck(packed.packed_hashes)
        with closing(self._read(packed.path)) as blocks, BlockStream(blocks, of_packed.add) as source:
            try:
                if packed.codec is None:
                    unpacked = iter(lambda: source.read(_BLOCK_NBYTES) or b"", b"")
                else:
                    unpacked = decompressed(source, packed.codec, packed.unpacked_nbytes, extra=packed.extra)
                for block in unpacked:
                    own.add(block)
                    if own.nbytes > packed.unpacked_nbytes:
                        break
                    stream.write(block)
                    self.advance(len(block))
            except DecompressionError as error:
                raise SampleFormatError(
                    f"the shard cannot be decompressed: {error}; copy it again", path=redact_url(packed.path)
                ) from None
        path = redact_url(packed.path)
        own.require(packed.unpacked_nbytes, path, "the decompressed shard")
        of_packed.require(packed.nbytes, path, "the compressed shard")


def _exists(copy: _Copy) -> bool:
    try:
        return copy.path.stat().st_size == copy.nbytes
    except OSError:
        return False


def file_blocks(path: str) -> Generator[bytes]:
    """Yield the bytes of a local file in blocks of a megabyte.

    Raises:
        OSError: it cannot be read.
    """
    with open(open_regular(path), "rb", buffering=0) as file:
        while block := file.read(_BLOCK_NBYTES):
            yield block
