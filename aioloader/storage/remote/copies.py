"""Copies of whole objects in local files.

Blocking, as opening a dataset is. Several processes of a machine make a copy once: one of them holds a lock of the
partial file, and the others wait for it.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.locked_files import open_locked
from aioloader.storage.remote.openers import BlockingObject, Stream
from aioloader.storage.remote.request_merging import MOST_BYTES
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from aioloader.storage.remote.transport import Version

# Each has up to 32 MiB of blocks in memory.
_COPIED_AT_A_TIME = 4
_MOST_OF_FREE_SPACE = 1 / 2
_SHOWN_NBYTES = 64 << 20
_LOCK_POLL_S = 0.1


@dataclass(frozen=True)
class ObjectCopy:
    """Copy of an object.

    Attributes:
        url: the object.
        version: its version.
        path: the copy.
    """

    url: str
    version: Version
    path: Path


class Copier:
    """Maker of copies of objects of one kind, a few at a time; a copy that exists and passes the check is kept.

    Args:
        label: the copies, for a progress bar.
        check_begin: called with the first block of an object, up to 8 MiB; raises OSError or ValueError if the object
            is not of this kind, so that the rest is not fetched.
        check: called with the path of a complete copy; raises the same errors.
    """

    def __init__(
        self, label: str, *, check_begin: Callable[[bytes], object], check: Callable[[Path], object]
    ) -> None:
        self._label = label
        self._check_begin = check_begin
        self._check = check
        self._bar: ProgressBar | None = None
        self._fetched = 0
        self._counting = threading.Lock()
        self._stop = threading.Event()

    def make(self, copies: Sequence[ObjectCopy]) -> list[OSError | ValueError | None]:
        """Make the copies that do not exist yet.

        Returns:
            the error of each copy; None for a valid one.
        """
        missing = {place: copy for place, copy in enumerate(copies) if not self._exists(copy)}
        errors: list[OSError | ValueError | None] = [None] * len(copies)
        if not missing:
            return errors
        total = sum(copy.version.nbytes for copy in missing.values())
        if total > _SHOWN_NBYTES:
            self._bar = ProgressBar(self._label, total >> 20, unit="MiB")
        with ThreadPoolExecutor(_COPIED_AT_A_TIME, "aioloader-copy") as pool:
            try:
                futures = {place: pool.submit(self._make_one, copy) for place, copy in missing.items()}
                for place, future in futures.items():
                    errors[place] = future.result()
            except BaseException:  # Ctrl-C
                self._stop.set()
                pool.shutdown(wait=False, cancel_futures=True)
                raise
            finally:
                if self._bar is not None:
                    self._bar.close()
        return errors

    def _exists(self, copy: ObjectCopy) -> bool:
        if copy.version.tag is None:  # the server does not identify versions
            return False
        try:
            self._check(copy.path)
        except (OSError, ValueError):
            return False
        return True

    def _make_one(self, copy: ObjectCopy) -> OSError | ValueError | None:
        partial_file = copy.path.with_name(f"{copy.path.name}.partial")
        try:
            copy.path.parent.mkdir(parents=True, exist_ok=True)
            while (fd := open_locked(partial_file)) is None:
                if self._stop.wait(_LOCK_POLL_S):
                    return None
            # The file gets its name, or is deleted, while it is locked: later another process may make the next one.
            with os.fdopen(fd, "r+b") as file:
                try:
                    existed = self._exists(copy)
                    if not existed:
                        self._write(copy, file)
                        self._check(partial_file)
                except BaseException:
                    _close_where_needed(file)
                    with suppress(OSError):
                        partial_file.unlink()
                    raise
                _close_where_needed(file)
                if existed:
                    partial_file.unlink()
                else:
                    partial_file.replace(copy.path)
        except (OSError, ValueError) as error:
            return error
        return None

    def _write(self, copy: ObjectCopy, file: BinaryIO) -> None:
        """Write the object to a file, and sync it."""
        folder, nbytes = copy.path.parent, copy.version.nbytes
        free = shutil.disk_usage(folder).free
        if nbytes > _MOST_OF_FREE_SPACE * free:
            raise OSError(
                errno.ENOSPC,
                f"a copy of {redact_url(copy.url)} takes {nbytes:,} of {free:,} free bytes; set AIOLOADER_CACHE_DIR to "
                "a directory with more space",
                str(folder),
            )
        file.truncate(0)
        with closing(BlockingObject(copy.url)) as source, closing(Stream(source)) as stream:
            for at in range(0, stream.size(), MOST_BYTES):
                if self._stop.is_set():
                    raise InterruptedError
                (block,) = stream.read_ranges([(at, MOST_BYTES)])
                if at == 0:
                    self._check_begin(block)
                file.write(block)
                self._advance(len(block))
        file.flush()
        os.fsync(file.fileno())

    def _advance(self, nbytes: int) -> None:
        with self._counting:
            self._fetched += nbytes
            if self._bar is not None:
                self._bar.update(self._fetched >> 20)


def _close_where_needed(file: BinaryIO) -> None:
    """Close a file, and give up its lock, where an open one cannot be renamed or deleted."""
    if os.name == "nt":
        file.close()
