"""Images for measurements: the caller's folder, or drawn images."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import list_images

if TYPE_CHECKING:
    import argparse

JPEG_EXTENSIONS = (".jpeg", ".jpg")


def add_data_option(parser: argparse.ArgumentParser) -> None:
    """Add ``--data FOLDER``, with AIOLOADER_BENCH_DATA as its default."""
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        default=os.environ.get("AIOLOADER_BENCH_DATA"),
        help="folder of JPEG files; default: AIOLOADER_BENCH_DATA, else 120 drawn images",
    )


def load_jpegs(folder: str | None, scratch: str) -> list[bytes]:
    """Read every JPEG file of a folder, sorted by path.

    Args:
        folder: searched with its sub-folders; None: draw 120 images in `scratch`.
        scratch: a folder for drawn images.

    Raises:
        SystemExit: the folder has no JPEG files.
    """
    root = Path(folder) if folder else draw_folder(Path(scratch, "drawn"), count=120)
    found = [path.read_bytes() for path, _ in list_images(root)[1] if path.suffix.lower() in JPEG_EXTENSIONS]
    if not found:
        raise SystemExit(f"{root} contains no JPEG files")
    return found
