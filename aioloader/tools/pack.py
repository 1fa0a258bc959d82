"""Packs a folder of images into one RecordIO file, byte for byte as they are.

OUT.rec holds the records, OUT.idx their offsets by key, OUT.lst one line "key <tab> label <tab> path" per record. All
three are written beside their places under other names and renamed when they are complete, so a file named .rec is
never half-written.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import recordio

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("EXTENSIONS", "PackReport", "list_images", "pack")

EXTENSIONS = frozenset({".bmp", ".jpeg", ".jpg", ".png", ".webp"})


@dataclass(frozen=True, slots=True)
class PackReport:
    """What was packed.

    Attributes:
        rec, idx, lst: the files written.
        records: number of records.
        nbytes: size of the .rec in bytes.
        classes: names of the classes; a record's label is the place of its class in here.
    """

    rec: Path
    idx: Path
    lst: Path
    records: int
    nbytes: int
    classes: tuple[str, ...]


def list_images(source: str | os.PathLike[str]) -> tuple[tuple[str, ...], list[tuple[Path, int]]]:
    """Find the images of a folder, in a fixed order: classes by name, then files by path.

    Each sub-folder that holds images, at any depth, is a class. Images outside of sub-folders are taken only where
    there are no classes, with label 0.

    Returns:
        the names of the classes, and (path, label) of every image.

    Raises:
        NotADirectoryError: `source` is not a folder.
        ValueError: it holds no images.
    """
    root = Path(source)
    if not root.is_dir():
        raise NotADirectoryError(f"there is no folder {str(root)!r}")
    folders = sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith("."))
    found = {folder.name: sorted(_images_in(folder)) for folder in folders}
    classes = tuple(name for name, images in found.items() if images)
    items = [(path, label) for label, name in enumerate(classes) for path in found[name]]
    if not items:
        items = [(path, 0) for path in sorted(root.iterdir()) if _is_image(path)]
    if not items:
        raise ValueError(f"there are no images ({', '.join(sorted(EXTENSIONS))}) in {str(root)!r}")
    return classes, items


def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Pack a folder of images; existing files of these names are replaced.

    Args:
        source: folder with one sub-folder per class (see `list_images`).
        out: the .rec file to write; ".rec" is added if it is missing. The .idx and .lst lie beside it.
        tick: called with the number of records written so far, after each.

    Returns:
        what was packed.

    Raises:
        NotADirectoryError, ValueError: as `list_images`.
        OSError: a file cannot be read or written; what stood there before still does.
    """
    rec = Path(out)
    if rec.suffix != ".rec":
        rec = rec.with_name(rec.name + ".rec")
    classes, items = list_images(source)
    rec.parent.mkdir(parents=True, exist_ok=True)
    places = [rec, rec.with_suffix(".idx"), rec.with_suffix(".lst")]
    drafts = [path.with_name(f"{path.name}.{os.getpid()}.partial") for path in places]
    try:
        root = Path(source)
        with (
            recordio.RecordWriter(drafts[0], index=drafts[1]) as writer,
            open(drafts[2], "w", encoding="utf-8", newline="\n") as lines,
        ):
            for key, (path, label) in enumerate(items):
                header = recordio.IRHeader(0, float(label), key, 0)
                writer.write(recordio.pack(header, path.read_bytes()), key)
                lines.write(f"{key}\t{label:.6f}\t{path.relative_to(root).as_posix()}\n")
                if tick is not None:
                    tick(key + 1)
        nbytes = drafts[0].stat().st_size
        _publish(drafts, places)
    finally:
        for draft in drafts:
            draft.unlink(missing_ok=True)
    return PackReport(rec, places[1], places[2], len(items), nbytes, classes)


def _is_image(path: Path) -> bool:
    return path.suffix.lower() in EXTENSIONS and not path.name.startswith(".") and path.is_file()


def _images_in(folder: Path) -> Iterator[Path]:
    return (path for path in folder.rglob("*") if _is_image(path))


def _publish(drafts: list[Path], places: list[Path]) -> None:
    """Put complete files in their places, so that no moment shows a .rec with another file's index."""
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
