"""Files that are written under other names and get their places when they are complete.

So there is never half of a file, and never a .rec with another file's index.
"""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

__all__ = ("partial_path", "publish", "published", "sync")


def partial_path(place: Path, tag: object = "") -> Path:
    """The name that a file is written under.

    Args:
        place: where it is to be.
        tag: tells writers of one file apart; without it a later process finds what an earlier one wrote.
    """
    return place.with_name(f"{place.name}.{tag}.partial" if tag else f"{place.name}.partial")


@contextmanager
def published(*places: str | os.PathLike[str]) -> Iterator[tuple[Path, ...]]:
    """Names to write files under; at the end of the block they are synced and put in their places.

    Args:
        places: where the files are to be, all in one folder; a .rec comes first.

    Raises:
        OSError: they cannot be synced or renamed.

    After an error in the block what stood in the places before still does, and nothing else is left.
    """
    targets = [Path(place) for place in places]
    partial_files = tuple(partial_path(target, os.getpid()) for target in targets)
    try:
        yield partial_files
        for draft in partial_files:
            sync(draft)
        publish(targets, os.getpid())
    finally:
        for draft in partial_files:
            draft.unlink(missing_ok=True)


def publish(places: Sequence[Path], tag: object = "") -> None:
    """Put files in their places. One without a draft has its place already: an earlier call was cut off.

    Args:
        places: where they are to be, all in one folder; each .rec comes before what lies beside it. Their drafts are
            synced.
        tag: see `partial_path`.
    """
    waiting = [(partial_path(place, tag), place) for place in places]
    waiting = [(draft, place) for draft, place in waiting if draft.exists()]
    # Without an .idx a reader scans, which is slow and right; with the old one it would be wrong.
    for _, place in waiting:
        if place != places[0] and place.suffix != ".rec":
            place.unlink(missing_ok=True)
    for draft, place in waiting:
        draft.replace(place)
    with suppress(OSError):  # not every system can sync a folder
        sync(places[0].parent)


def sync(path: Path) -> None:
    """See that what was written to a file, or the names in a folder, outlive a loss of power.

    Raises:
        OSError: it cannot be synced.
    """
    fd = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
