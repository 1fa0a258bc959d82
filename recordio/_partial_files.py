"""Files that are written under another name and renamed when they are complete.

So a reader never finds an incomplete file, and never a .rec with the index of another file.
"""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

_NO_SPACE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def partial_path(path: Path, tag: object = "") -> Path:
    """Return the name under which a file is written.

    Args:
        path: Final name of the file.
        tag: Distinguishes several writers of one file; without it a later process finds the file that an earlier one
            wrote.
    """
    return path.with_name(f"{path.name}.{tag}.partial" if tag else f"{path.name}.partial")


@contextmanager
def published(
    *paths: str | os.PathLike[str], remove: Iterable[str | os.PathLike[str]] = ()
) -> Iterator[tuple[Path, ...]]:
    """Return the names to write files under; at the end of the block, sync the files and rename them.

    After an error in the block the old files are unchanged, and no partial file is left.

    Args:
        paths: Final names of the files, all in one folder; a .rec comes first.
        remove: Old files to delete before the new ones get their names.

    Raises:
        OSError: A file cannot be written, synced or renamed; the error names the final name.
    """
    targets = [Path(path) for path in paths]
    partials = tuple(partial_path(target, os.getpid()) for target in targets)
    try:
        yield partials
        for partial in partials:
            sync(partial)
        publish(targets, os.getpid(), remove=remove)
    except OSError as error:
        failed = None if error.filename is None else Path(error.filename)
        if failed not in partials and error.errno not in _NO_SPACE:
            raise
        # The error of a full disk has no file name.
        path = targets[partials.index(failed)] if failed in partials else targets[0]
        raise type(error)(error.errno, f"cannot be written: {error.strerror}", str(path)) from error
    finally:
        for partial in partials:
            with suppress(OSError):
                partial.unlink()


def publish(
    paths: Sequence[Path], tag: object = "", *, remove: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Give complete files their final names. A file without a partial one was renamed by an earlier, interrupted call.

    Args:
        paths: Final names, all in one folder; each .rec comes before the files that belong to it. Their partial files
            are synced.
        tag: As for `partial_path`.
        remove: Old files to delete first.
    """
    waiting = [(partial_path(path, tag), path) for path in paths]
    waiting = [(partial, path) for partial, path in waiting if partial.exists()]
    # Without an .idx a reader scans, which is slow and correct; with the old one it would be wrong.
    for path in [Path(path) for path in remove] + [path for _, path in waiting]:
        if path != paths[0] and path.suffix != ".rec":
            path.unlink(missing_ok=True)
    for partial, path in waiting:
        partial.replace(path)
    with suppress(OSError):  # not every system can sync a folder
        sync(paths[0].parent)


def sync(path: Path) -> None:
    """Ensure that the content of a file, or the names in a folder, survive a loss of power.

    Raises:
        OSError: It cannot be synced.
    """
    fd = os.open(path, os.O_RDONLY if path.is_dir() else os.O_RDWR)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
