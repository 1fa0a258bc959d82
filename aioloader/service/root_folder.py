"""Files inside one folder: nothing outside of it can be opened, also while links are changed. Blocking."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import unquote

import numpy as np

from aioloader.errors import ImageFetchError, ImageNotAllowedError, ImageReferenceError, ImageTooLargeError
from aioloader.service.web_urls import short_name
from aioloader.storage.local.descriptors import check_regular, read_into

if TYPE_CHECKING:
    from collections.abc import Hashable

_LINK = getattr(os, "O_NOFOLLOW", 0)
# O_PATH needs no permission to read a folder. Without O_NONBLOCK, a named pipe would block for ever.
_FOLDER = getattr(os, "O_PATH", os.O_RDONLY) | getattr(os, "O_DIRECTORY", 0) | _LINK
_FILE = (
    os.O_RDONLY
    | getattr(os, "O_NONBLOCK", 0)
    | getattr(os, "O_NOCTTY", 0)
    | getattr(os, "O_BINARY", 0)
    | _LINK
)
_LONGEST_PATH = 1 << 14
_CAN_WALK = os.open in os.supports_dir_fd


class FileBytes(NamedTuple):
    """Bytes of a file.

    Attributes:
        data: its first bytes, or all.
        key: path, times of the last changes, number and size of the file: identifies the content.
        complete: `data` are all bytes.
    """

    data: memoryview
    key: Hashable
    complete: bool


def path_of_reference(text: str) -> str:
    """Return the path of a reference: a ``file:`` URL without its escapes, and any other text as it is. Pure.

    Raises:
        ImageReferenceError: the URL names a host, or the path is too long, or has characters that no path has.
    """
    if len(text) > _LONGEST_PATH:
        raise ImageReferenceError(short_name(text), f"the path has {len(text):,} characters", kind="path")
    path = text
    if text[:5].lower() == "file:":
        path = text[5:]
        if path.startswith("//"):
            host, slash, rest = path[2:].partition("/")
            if host.lower() not in ("", "localhost"):
                raise ImageReferenceError(short_name(text), "a file:// URL must not name a host", kind="path")
            path = slash + rest
        path = unquote(path, errors="surrogateescape")
    try:
        valid = path and b"\0" not in os.fsencode(path)
    except UnicodeError:
        valid = False
    if not valid:
        reason = "it is empty, or has characters that no path has"
        raise ImageReferenceError(short_name(text), reason, kind="path")
    return path


class RootFolder:
    """Folder whose files may be read.

    A path is resolved first: links inside of the folder are followed, those that lead out are refused. Then each folder
    on the resolved path is opened from the one before, and no link is followed, so that a link that is put there
    meanwhile leads nowhere.

    Args:
        path: of the folder.
        max_bytes: most bytes of a file.
    """

    def __init__(self, path: str | os.PathLike[str], max_bytes: int) -> None:
        given = os.path.expanduser(os.fspath(path))
        # What the folder is later, also if the process changes its own; links in it are resolved when a file is read.
        self._given = given if os.path.isabs(given) else os.path.join(os.getcwd(), given)
        self._max_bytes = max_bytes

    def read(self, path: str, name: str, first: int | None = None) -> FileBytes:
        """Read a file.

        Args:
            path: absolute, or relative to the folder.
            name: names it in errors.
            first: read only that number of bytes; None: all.

        Raises:
            ImageNotAllowedError: it is outside of the folder.
            ImageFetchError: it cannot be read, or is not a regular file; the OSError is chained.
            ImageTooLargeError: it has too many bytes.
        """
        try:
            root = os.path.realpath(self._given)
            real = os.path.realpath(os.path.join(self._given, path))
            inside = _parts_below(root, real)
            if inside is None:
                raise ImageNotAllowedError(name, "it is outside of the folder that root= names", kind="path")
            fd = _open_below(root, inside)
        except ImageNotAllowedError:
            raise
        except (OSError, ValueError) as error:
            if isinstance(error, OSError) and error.errno == errno.ELOOP:
                # Links that lead to each other, or one that was put there after the path was resolved.
                raise ImageNotAllowedError(name, "it is a link that leads nowhere", kind="path") from error
            raise _unreadable(name, error) from error
        try:
            status = os.fstat(fd)
            nbytes = status.st_size
            # A file may be replaced by one with its size and time.
            version = (status.st_mtime_ns, status.st_ctime_ns, status.st_ino, nbytes)
            if nbytes > self._max_bytes:
                raise ImageTooLargeError(name, "bytes", self._max_bytes, nbytes, kind="path")
            # Not a bytearray, whose zeros would be written first, while no other thread runs.
            data = memoryview(np.empty(nbytes if first is None else min(first, nbytes), np.uint8).data)
            got = read_into(fd, data, 0)
        except OSError as error:
            raise _unreadable(name, error) from error
        finally:
            os.close(fd)
        if got < len(data):
            raise ImageFetchError(name, "the file shrank while it was read", kind="path")
        return FileBytes(data, ("path", real, *version), len(data) == nbytes)


def _unreadable(name: str, error: Exception) -> ImageFetchError:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return ImageFetchError(name, f"it cannot be read: {reason}", kind="path")


def _parts_below(root: str, real: str) -> list[str] | None:
    """Return the names on the way from a folder to a file; None if the file is not below the folder."""
    start = root if root.endswith(os.sep) else root + os.sep
    return real[len(start) :].split(os.sep) if real.startswith(start) else None


def _open_below(root: str, parts: list[str]) -> int:
    """Open a regular file, folder by folder, each from the one before; return its descriptor.

    No link is followed, so one that is put there after the path was resolved leads nowhere.

    Raises:
        OSError: a part is a link or does not exist, or the last one is not a regular file.
    """
    if not _CAN_WALK:  # Windows
        fd = os.open(os.path.join(root, *parts), _FILE)
    else:
        folder = os.open(root, _FOLDER & ~_LINK)
        try:
            for part in parts[:-1]:
                inner = os.open(part, _FOLDER, dir_fd=folder)
                os.close(folder)
                folder = inner
            fd = os.open(parts[-1], _FILE, dir_fd=folder)
        finally:
            os.close(folder)
    try:
        check_regular(os.fstat(fd), parts[-1])
    except BaseException:
        os.close(fd)
        raise
    return fd
