"""Writing of the .idx of a local or remote record file by scanning it."""

from __future__ import annotations

import os
import tempfile
from typing import TYPE_CHECKING

from aioloader.storage.urls import beside, is_url, name_of, redact_url
from recordio import RecordIOError, build_index

if TYPE_CHECKING:
    from collections.abc import Callable


def write_index(
    path: str, out: str | None = None, *, tick: Callable[[int], object] | None = None
) -> tuple[str, int]:
    """Write an .idx with the keys 0, 1, 2, ... in the order of the file; an old one is replaced.

    Args:
        path: the .rec file, or its URL, of which only the records' headers are read.
        out: the .idx, a path or URL; None: next to the file.
        tick: called regularly with the number of bytes scanned so far.

    Returns:
        the path of the index, and its number of records.

    Raises:
        OSError: the file cannot be read, or the index cannot be written.
        RecordIOError: the file is damaged, or would be overwritten; nothing is written.
    """
    target = beside(path, ".idx") if out is None else out
    if target == path:
        raise RecordIOError(f"the index would overwrite {redact_url(path)}; choose another name")
    if is_url(path):
        from aioloader.storage.remote import register

        register()
    if not is_url(target):
        return target, len(build_index(path, target, tick=tick))
    from aioloader.storage.remote.upload import upload

    with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
        local = os.path.join(folder, name_of(target))
        index = build_index(path, local, tick=tick)
        upload(local, target)
    return redact_url(target), len(index)
