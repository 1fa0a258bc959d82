"""Files, folders and remote objects of command line arguments, and a progress bar for reading one."""

from __future__ import annotations

import glob
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioloader.datasets.shards import is_pattern, pinned_path, record_files
from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import check_regular
from aioloader.storage.urls import can_list, is_url, join, path_of, suffix_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.storage.remote.transport import Version

_SUFFIX = ".rec"
_MB = 1_000_000
_LEAST_NBYTES = 200 * _MB


def is_folder(path: str) -> bool:
    """Return whether a path is a folder; in a store that lists objects, a name, not a pattern, without the end .rec."""
    path = path_of(path)
    if is_url(path):
        return can_list(path) and not is_pattern(path) and suffix_of(path).lower() != _SUFFIX
    return os.path.isdir(path)


def version_at(path: str) -> Version | None:
    """Return the current version of an object, or None if the path is not a URL.

    Raises:
        OSError: there is no such object, or the request fails.
    """
    if not is_url(path):
        return None
    from aioloader.storage.remote.opening import describe

    return describe(path)


def record_files_at(path: str) -> list[str]:
    """Return the record files of a path: the file itself, or the files of a pattern or a folder, sorted by name.

    Returns:
        Paths; an empty list for a folder without record files.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
        OSError: listing object storage fails.
    """
    path = path_of(path)
    if is_folder(path):
        if not is_url(path):
            names = glob.glob(os.path.join(glob.escape(path), "*"))
            return sorted(name for name in names if os.path.splitext(name)[1].lower() == _SUFFIX)
        from aioloader.storage.remote.opening import list_folder

        root = pinned_path(path)
        return sorted(join(root, name) for name in list_folder(root).files if name.endswith(_SUFFIX))
    if is_url(path) or is_pattern(path) or os.path.exists(path):
        return list(record_files(path))
    raise FileNotFoundError(f"there is no file or folder {path!r}")


@contextmanager
def read_progress(label: str, path: str, passes: int = 1) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar while a file is read; small files get none.

    Args:
        label: name of the activity, a word or two.
        path: the file, or its URL; a missing file is left to the code that reads it.
        passes: number of times that the file is read.

    Yields:
        a function to be called with the number of bytes read so far, or None.

    Raises:
        OSError: it is not a regular file: reading a pipe would block, and a device has no end.
    """
    nbytes = 0
    version = version_at(path)
    if version is not None:
        nbytes = passes * version.nbytes
    elif os.path.exists(path) and not os.path.isdir(path):
        status = os.stat(path)
        check_regular(status, path)
        nbytes = passes * status.st_size
    if nbytes < _LEAST_NBYTES:
        yield None
        return
    with ProgressBar(label, -(-nbytes // _MB), unit="MB") as bar:
        yield lambda done: bar.update(-(-done // _MB))
