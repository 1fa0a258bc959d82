"""Checks of crop indexes and images, as `aioloader verify` runs and prints them."""

from __future__ import annotations

import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from aioloader.tools.crop_check import CropCheck
    from aioloader.tools.verify import ImageCheck

# Checking the entries of fewer images takes seconds at most, and needs no progress bar.
_MANY_IMAGES = 10_000


def check_entries(check: Callable[..., CropCheck | None], options: argparse.Namespace) -> CropCheck | None:
    """Check a crop index, with a progress bar; return None if there is none.

    Args:
        check: one of the functions of `aioloader.tools.crop_check`, with the data but without options.
        options: of the command.
    """
    from aioloader.cli.progress import LateProgress
    from aioloader.crop_index.building import can_build

    rebuild = options.decode and can_build()
    with LateProgress("checking entries") as progress:
        return check(
            rebuild=rebuild,
            num_workers=options.num_workers,
            # Checksums run without the interpreter's lock; starting processes for each of many files takes longer.
            executor="thread",
            begin=lambda count: progress.begin(count if rebuild or count >= _MANY_IMAGES else 0),
            tick=progress.tick,
        )


def print_entries(checked: CropCheck, path: str, *, decode: bool) -> None:
    """Print the result of checking a crop index.

    Args:
        checked: the result.
        path: the file or folder that it belongs to.
        decode: the caller wanted the entries to be made again.
    """
    from aioloader.cli.failures import failure_line

    if checked.fault:
        print(f"{checked.path}: {checked.fault}", file=sys.stderr)
        return
    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    for count, what in (
        (checked.stale, "entries of other bytes, because the images were changed"),
        (checked.damaged, "damaged entries"),
        (checked.different, "entries that differ from those made again"),
        (checked.missing, "images that are not in the index"),
        (len(checked.errors), "images that could not be read"),
    ):
        if count:
            print(f"{checked.path}: {what}: {count:,}", file=sys.stderr)
    total = checked.entries + checked.stale + checked.damaged + checked.different
    fit = "all fit their images" if checked.entries == total else f"{checked.entries:,} fit their images"
    again = " and equal those made again" if checked.rebuilt else ""
    surplus = f"; {checked.surplus:,} of images that do not exist" if checked.surplus else ""
    print(
        f"{checked.path}: {total:,} entries, {fit}{again}; {checked.refused:,} images can have none{surplus}"
    )
    if decode and not checked.rebuilt:
        print(
            f"{checked.path}: the entries were not made again: this needs numba (pip install 'aioloader[crops]')"
        )
    if checked.stale or checked.different or checked.damaged or checked.missing:
        # Without --remake, entries are kept while size and time of modification of the record file are the same.
        remake = " --remake" if checked.stale or checked.different else ""
        command = f"aioloader index --crops{remake} {shlex.quote(path)}"
        cost = "crops may have wrong pixels" if checked.different else "they cost speed only"
        print(f"{checked.path}: `{command}` makes the others again; until then {cost}")


def print_images(path: str, checked: ImageCheck) -> None:
    """Print the result of decoding the images of a file or folder."""
    from aioloader.cli.failures import failure_line

    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    if checked.images:
        damaged = f"{len(checked.errors):,} of them damaged" if checked.errors else "all valid"
        print(f"{path}: {checked.images:,} images decoded, {damaged}")
    else:
        print(f"{path}: contains no images")
