"""Small data sets in the layouts that GluonCV, InsightFace and MXNet's examples read."""

from __future__ import annotations

import json
import pickle
from io import BytesIO
from typing import TYPE_CHECKING, Any

import numpy as np
from PIL import Image

import recordio

if TYPE_CHECKING:
    from pathlib import Path

VOC_CLASSES = ("dog", "cat", "person")
ANNOTATION = """\
<annotation><size><width>{width}</width><height>{height}</height><depth>3</depth></size>{objects}</annotation>
"""
OBJECT = """\
<object><name>{name}</name><difficult>{difficult}</difficult>
<bndbox><xmin>{0}</xmin><ymin>{1}</ymin><xmax>{2}</xmax><ymax>{3}</ymax></bndbox></object>
"""


def picture(number: int, width: int, height: int) -> np.ndarray[Any, Any]:
    """Return a smooth image with some noise, another one for each number."""
    rng = np.random.default_rng(number)
    coarse = Image.fromarray(rng.integers(0, 256, (5, 6, 3), dtype=np.uint8))
    smooth = np.asarray(coarse.resize((width, height), Image.Resampling.BICUBIC)).astype(int)
    return (smooth + rng.integers(-8, 9, smooth.shape)).clip(0, 255).astype(np.uint8)


def encoded(number: int, width: int, height: int, kind: str = "JPEG") -> bytes:
    """Return an encoded `picture`."""
    file = BytesIO()
    Image.fromarray(picture(number, width, height)).save(file, kind, quality=95)
    return file.getvalue()


def size(number: int) -> tuple[int, int]:
    """Return width and height of a photograph of a set."""
    return 96 + 13 * (number % 4), 80 + 17 * (number % 3)


def boxes(number: int) -> list[tuple[int, int, int, int]]:
    """Return the corners of the objects of a photograph, 1 to 3."""
    width, height = size(number)
    return [
        (5 + 7 * each + number, 8 + 3 * each, width // 2 + 10 * each, height // 2 + 9 * each)
        for each in range(1 + number % 3)
    ]


def image_folder(root: Path) -> None:
    """Write an ImageNet-like set, train and val."""
    for part in ("train", "val"):
        for label, name in enumerate(("n01", "n02", "n03")):
            folder = root / part / name
            folder.mkdir(parents=True)
            for number in range(3):
                data = encoded(10 * label + number, *size(label + number))
                (folder / f"{number}.jpg").write_bytes(data)


def voc(root: Path) -> None:
    """Write a PASCAL VOC set of six photographs, with masks."""
    base = root / "VOC2007"
    for name in (
        "Annotations",
        "JPEGImages",
        "ImageSets/Main",
        "ImageSets/Segmentation",
        "SegmentationClass",
    ):
        (base / name).mkdir(parents=True)
    names = [f"{number:06}" for number in range(6)]
    for number, name in enumerate(names):
        width, height = size(number)
        objects = "".join(
            OBJECT.format(*box, name=VOC_CLASSES[place % 3], difficult=place % 2)
            for place, box in enumerate(boxes(number))
        )
        (base / "Annotations" / f"{name}.xml").write_text(
            ANNOTATION.format(width=width, height=height, objects=objects)
        )
        (base / "JPEGImages" / f"{name}.jpg").write_bytes(encoded(number, width, height))
        mask = np.zeros((height, width), np.uint8)
        for place, (left, top, right, bottom) in enumerate(boxes(number)):
            mask[top:bottom, left:right] = 1 + place
        image = Image.fromarray(mask, "P")
        image.putpalette([value for each in range(256) for value in (each, each, each)])
        image.save(base / "SegmentationClass" / f"{name}.png")
    for group in ("Main/trainval.txt", "Main/test.txt", "Segmentation/train.txt", "Segmentation/val.txt"):
        (base / "ImageSets" / group).write_text("\n".join(names) + "\n")


def coco(root: Path) -> None:
    """Write a COCO set of six photographs, whose categories are `VOC_CLASSES`."""
    (root / "annotations").mkdir(parents=True)
    (root / "val2017").mkdir()
    categories = [{"id": 3 + 4 * place, "name": name} for place, name in enumerate(VOC_CLASSES)]
    annotations = []
    for number in range(6):
        width, height = size(number)
        (root / "val2017" / f"{number:012}.jpg").write_bytes(encoded(number, width, height))
        for left, top, right, bottom in boxes(number):
            box = [left, top, right - left, bottom - top]
            corners = [left, top, right, top, right, bottom, left, bottom]
            annotations.append(
                {
                    "id": len(annotations) + 1,
                    "image_id": number,
                    "category_id": categories[len(annotations) % 3]["id"],
                    "bbox": box,
                    "area": box[2] * box[3],
                    "iscrowd": 0,
                    "segmentation": [corners],
                }
            )
    images = [
        {
            "id": number,
            "file_name": f"{number:012}.jpg",
            "width": size(number)[0],
            "height": size(number)[1],
            "coco_url": f"http://images.cocodataset.org/val2017/{number:012}.jpg",
        }
        for number in range(6)
    ]
    text = json.dumps({"images": images, "annotations": annotations, "categories": categories})
    (root / "annotations" / "instances_val2017.json").write_text(text)


def open_records(prefix: Path) -> recordio.MXIndexedRecordIO:
    """Return a writer of records with an index."""
    return recordio.MXIndexedRecordIO(f"{prefix}.idx", f"{prefix}.rec", "w")


def records(root: Path) -> None:
    """Write record files: detection labels (det), one label each (cls), faces by identity (faces/train)."""
    root.mkdir(parents=True, exist_ok=True)
    with open_records(root / "det") as writer, open(root / "det.lst", "w") as lines:
        for number in range(6):
            width, height = size(number)
            label = [4.0, 5.0, float(width), float(height)]
            for place, (left, top, right, bottom) in enumerate(boxes(number)):
                label += [float(place), left / width, top / height, right / width, bottom / height]
            writer.write_idx(number, recordio.pack((0, label, number, 0), encoded(number, width, height)))
            numbers = "\t".join(f"{each:.6f}" for each in label)
            lines.write(f"{number}\t{numbers}\tVOC2007/JPEGImages/{number:06}.jpg\n")
    with open_records(root / "cls") as writer:
        for number in range(10):
            packed = recordio.pack((0, float(number % 4), number, 0), encoded(number, 40, 36, "PNG"))
            writer.write_idx(number, packed)
    faces(root / "faces")


def faces(root: Path) -> None:
    """Write InsightFace's train.rec: images by identity, behind a header of their ranges; and a set of pairs."""
    root.mkdir(parents=True)
    identities = ((1, 4), (4, 6), (6, 11))
    with open_records(root / "train") as writer:
        first = identities[-1][1]
        header = (2, [float(first), float(first + len(identities))], 0, 0)
        writer.write_idx(0, recordio.pack(header, b""))
        for identity, (start, stop) in enumerate(identities):
            for number in range(start, stop):
                label = (0, [float(identity), 1.0], number, 0)
                writer.write_idx(number, recordio.pack(label, encoded(number, 112, 112)))
        for identity, ends in enumerate(identities):
            number = first + identity
            writer.write_idx(number, recordio.pack((2, [float(each) for each in ends], number, 0), b""))
    (root / "property").write_text("3,112,112")
    bins = [encoded(number, 112 if number % 2 else 128, 112 if number % 2 else 128) for number in range(8)]
    (root / "pairs.bin").write_bytes(pickle.dumps((bins, [True, False, True, False]), protocol=2))
    with open(root / "list.lst", "w") as lines:
        for number in range(6):
            path = root / f"{number}.jpg"
            path.write_bytes(encoded(number, 112, 112))
            lines.write(f"1\t{path}\t{number // 2}\n")


def make(root: Path) -> None:
    """Write all sets into an empty folder."""
    image_folder(root / "imagenet")
    voc(root / "voc")
    coco(root / "coco")
    records(root / "records")
