"""Record files and folders of the golden JPEGs, with crop indexes of their golden entries."""

from __future__ import annotations

from pathlib import Path

import recordio
from aioloader.crop_index.layout import FOLDER, RECORDS, folder_key
from aioloader.crop_index.writer import CropIndexWriter
from tests.aioloader.jpeg.entries import golden

IMAGES = golden()
"""(name, JPEG, entry) of each image."""


def write_record_files(folder: Path) -> list[Path]:
    """Write two record files of the golden images with their indexes."""
    paths = []
    for part in range(2):
        path = folder / f"part-{part}.rec"
        images = IMAGES[part::2]
        with recordio.RecordWriter(path) as writer:
            for number, (_, data, _) in enumerate(images):
                writer.write(recordio.pack(recordio.IRHeader(0, part, number, 0), data), number)
        crops = CropIndexWriter(path.with_suffix(".crops"), kind=RECORDS)
        for (_, data, entry), offset in zip(
            images, recordio.Index.open(path.with_suffix(".idx")).offsets.tolist(), strict=True
        ):
            crops.put(offset, len(data), entry)
        crops.finish()
        paths.append(path)
    return paths


def write_image_folder(root: Path) -> Path:
    """Write the golden images to three sub-folders, and the index of the folder."""
    crops = CropIndexWriter(root / "images.crops", kind=FOLDER)
    for number, (name, data, entry) in enumerate(IMAGES):
        path = root / f"class{number % 3}" / f"{name}.jpg"
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
        crops.put(folder_key(path.relative_to(root).as_posix()), len(data), entry)
    crops.finish()
    return root


def spoil_entries(folder: Path) -> None:
    """Exchange the entries of all images, as if the images had been replaced."""
    for path in folder.rglob("*.crops"):
        data = path.read_bytes()
        for _, _, entry in IMAGES:
            data = data.replace(entry, entry[:-1] + bytes((entry[-1] ^ 1,)))
        path.write_bytes(data)
