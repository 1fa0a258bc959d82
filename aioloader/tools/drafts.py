"""Files that are written under other names and get their places when they are complete.

So there is never half of a file, and never a .rec with another file's index.
"""

from __future__ import annotations

import os
import tempfile
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader.storage.urls import is_url, name_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("published",)


@contextmanager
def published(*places: str | os.PathLike[str]) -> Iterator[tuple[Path, ...]]:
    """Names to write files under; at the end of the block they are synced and put in their places.

    Args:
        places: where the files are to be, all in one folder; a .rec comes first. Or URLs of objects: the files are
            then written to a temporary folder, and uploaded from there.

    Raises:
        OSError: they cannot be synced or renamed, or not be uploaded.

    After an error in the block what stood in the places before still does, and nothing else is left.
    """
    if any(isinstance(place, str) and is_url(place) for place in places):
        with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
            uploads = tuple(Path(folder, name_of(str(place))) for place in places)
            yield uploads
            _upload(uploads, [str(place) for place in places])
        return
    targets = [Path(place) for place in places]
    drafts = tuple(target.with_name(f"{target.name}.{os.getpid()}.partial") for target in targets)
    try:
        yield drafts
        _publish(drafts, targets)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)


def _upload(drafts: Sequence[Path], urls: Sequence[str]) -> None:
    from aioloader.storage.remote.upload import delete, upload

    for url in urls[1:]:
        delete(url)
    for draft, url in zip(drafts, urls, strict=True):
        upload(draft, url)


def _publish(drafts: Sequence[Path], places: Sequence[Path]) -> None:
    for draft in drafts:
        with open(draft, "rb+") as file:
            os.fsync(file.fileno())
    # Without an .idx a reader scans, which is slow and right; with the old one it would be wrong.
    for place in places[1:]:
        place.unlink(missing_ok=True)
    for draft, place in zip(drafts, places, strict=True):
        draft.replace(place)
    with suppress(OSError):  # not every system can sync a folder
        folder = os.open(places[0].parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
