"""Images for measurements: the caller's folder, or drawn images."""

from __future__ import annotations

import tempfile
from pathlib import Path

import recordio
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import list_images

JPEG_EXTENSIONS = (".jpeg", ".jpg")


def load_jpegs(folder: str | Path | None) -> list[bytes]:
    """Read every JPEG file of a folder and its sub-folders, sorted by path; with None, draw 120 images.

    Raises:
        SystemExit: the folder has no JPEG files.
    """
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(folder) if folder else draw_folder(Path(scratch, "drawn"), count=120)
        paths = [path for path, _ in list_images(root)[1] if path.suffix.lower() in JPEG_EXTENSIONS]
        if not paths:
            raise SystemExit(f"{root} contains no JPEG files")
        return [path.read_bytes() for path in paths]


def write_rec(path: Path, jpegs: list[bytes], repeat: int) -> None:
    """Write the same files `repeat` times, with an index; the label of each is its number among the files."""
    with recordio.RecordWriter(path, index=True) as writer:
        for key, jpeg in enumerate(jpegs * repeat):
            writer.write(recordio.pack(recordio.IRHeader(0, float(key % len(jpegs)), key, 0), jpeg), key)


def lay_out(jpegs: list[bytes], folder: Path, repeat: int, classes: int = 10) -> Path:
    """Write the images as ``folder/<class>/<name>.jpg``; return the folder."""
    for number, jpeg in enumerate(jpegs * repeat):
        path = folder / f"class{number % classes}" / f"{number:06}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(jpeg)
    return folder
