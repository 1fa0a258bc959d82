"""Files that this machine makes once, such as copies of objects: whole ones or none, and one process makes each.

Blocking, as opening a dataset is. One process holds a lock of the partial file, and the others wait for it.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, BinaryIO, Generic, Protocol, TypeVar

from aioloader.foundation.opening import in_this_opening
from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.locked_files import open_locked

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

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
