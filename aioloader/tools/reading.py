"""A progress bar over the bytes of a file that is read from its beginning to its end."""

from __future__ import annotations

import os
from contextlib import contextmanager
from typing import TYPE_CHECKING

from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import check_regular
from aioloader.tools.places import version_at

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("reading",)

_MB = 1_000_000
_SOON_READ = 200 * _MB


@contextmanager
def reading(label: str, path: str, passes: int = 1) -> Iterator[Callable[[int], None] | None]:
    """Show how far the reading of a file has got; files that are soon read get no bar.

    Args:
        label: what is going on, a word or two.
        path: the file, or its URL; that there is none is told by whoever reads it.
        passes: how often its bytes are counted.

    Yields:
        What is to be called with the number of bytes done so far, or None.

    Raises:
        OSError: it is no regular file: a pipe would be waited for, a device has no end.
    """
    nbytes = 0
    version = version_at(path)
    if version is not None:
        nbytes = passes * version.nbytes
    elif os.path.exists(path) and not os.path.isdir(path):
        status = os.stat(path)
        check_regular(status, path)
        nbytes = passes * status.st_size
    if nbytes < _SOON_READ:
        yield None
        return
    with ProgressBar(label, -(-nbytes // _MB), unit="MB") as bar:
        yield lambda done: bar.update(-(-done // _MB))
