"""Copies of whole objects in local files; see `aioloader.storage.made_files`."""

from __future__ import annotations

import errno
import shutil
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, BinaryIO

from aioloader.storage.made_files import FileMaker
from aioloader.storage.remote.openers import object_blocks
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from aioloader.storage.remote.transport import Version

_MOST_OF_FREE_SPACE = 1 / 2


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

    @property
    def nbytes(self) -> int:
        """Return its size."""
        return self.version.nbytes


class Copier(FileMaker[ObjectCopy]):
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
        super().__init__(label)
        self._check_begin = check_begin
        self._check = check

    def exists(self, file: ObjectCopy) -> bool:
        if file.version.tag is None:  # the server does not identify versions
            return False
        try:
            self._check(file.path)
        except (OSError, ValueError):
            return False
        return True

    def check(self, file: ObjectCopy, path: Path) -> None:
        self._check(path)

    def write(self, file: ObjectCopy, stream: BinaryIO) -> None:
        folder, nbytes = file.path.parent, file.nbytes
        free = shutil.disk_usage(folder).free
        if nbytes > _MOST_OF_FREE_SPACE * free:
            raise OSError(
                errno.ENOSPC,
                f"a copy of {redact_url(file.url)} takes {nbytes:,} of {free:,} free bytes; set AIOLOADER_CACHE_DIR to "
                "a directory with more space",
                str(folder),
            )
        with closing(object_blocks(file.url)) as blocks:
            for number, block in enumerate(blocks):
                if number == 0:
                    self._check_begin(block)
                stream.write(block)
                self.advance(len(block))
