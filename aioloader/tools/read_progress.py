"""Progress bar over the bytes of a file that is read from beginning to end."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import check_regular
from aioloader.tools.paths import version_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

_MB = 1_000_000
_LEAST_NBYTES = 200 * _MB


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
