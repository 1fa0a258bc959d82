"""What was packed: in Python, and as a JSON object that stays the same for the same images and options."""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioloader.errors import error_report
from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from aioloader.errors import SampleError
    from aioloader.packing.encoding import Encoded

__all__ = ("PackReport", "Packed", "as_json", "class_names", "is_report")

_KIND = "aioloader pack"
_VERSION = 1
# A report that is read for its names only.
_MOST_READ_NBYTES = 64 << 20
_MOST_NAMES_TRIED = 8
_MOST_LABEL = 1 << 24


@dataclass(slots=True)
class Packed:
    """One record file.

    Attributes:
        rec: its place.
        idx, lst: those of its index and its list; None: it has none.
        part: name of its part ("train", ...), or "".
        shard: its number among the shards of the part, or None.
        records: how many it has.
        nbytes: its size.
    """

    rec: Path
    idx: Path | None
    lst: Path | None
    part: str = ""
    shard: int | None = None
    records: int = 0
    nbytes: int = 0


@dataclass(slots=True)
class PackReport:
    """What was packed.

    Attributes:
        files: the record files, in order.
        classes: names of the classes; a record's label is the place of its class in here. None where labels came
            without names.
        labels: how many records have each label, by label; those with several labels are not counted.
        json: the file that has all this, or None.
        source_nbytes: bytes of the images before.
        image_nbytes: bytes of the images now.
        resized: how many were made smaller.
        cropped: how many were cut to their middle square.
        anew: how many were decoded and encoded again.
        tiled: how many are tiled JPEGs.
        kept: how many stay as they are although something else was asked for, by reason (see `Encoded.kept`).
        errors: every image that failed, those that were replaced too; `index` is its place in the source.
        outside: how many images lie outside of the classes' folders, where there are classes; they are not packed.
        empty: names of sub-folders that hold no images. They are no classes, so later ones have smaller numbers.
        urls: where all files are that were written, record files first, if that is not this machine; the places above
            are those that they had here until then.
        others: names of shards beside these that an earlier packing divided into another number of files. A pattern
            such as OUT-*.rec reads them too.
    """

    files: tuple[Packed, ...]
    classes: tuple[str, ...]
    labels: dict[float, int] = field(default_factory=dict)
    json: Path | None = None
    source_nbytes: int = 0
    image_nbytes: int = 0
    resized: int = 0
    cropped: int = 0
    anew: int = 0
    tiled: int = 0
    kept: dict[str, int] = field(default_factory=dict)
    errors: list[SampleError] = field(default_factory=list)
    outside: int = 0
    empty: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def rec(self) -> Path:
        """The first record file."""
        return self.files[0].rec

    @property
    def idx(self) -> Path:
        """The index of the first record file."""
        place = self.files[0].idx
        assert place is not None
        return place

    @property
    def lst(self) -> Path:
        """The list of the first record file."""
        place = self.files[0].lst
        assert place is not None
        return place

    @property
    def records(self) -> int:
        """Number of records in all files."""
        return sum(file.records for file in self.files)

    @property
    def nbytes(self) -> int:
        """Size of all record files."""
        return sum(file.nbytes for file in self.files)

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """(path, reason) of images that were left out."""
        return [(str(error.path), error.reason) for error in self.errors if error.replaced_by is None]

    @property
    def replaced(self) -> int:
        """How many images failed and another one stands in their place."""
        return sum(error.replaced_by is not None for error in self.errors)

    def error_report(self) -> dict[str, Any]:
        """Every image that failed, as a JSON object; see `aioloader.DataLoader.error_report`."""
        return error_report(self.errors)

    def count(self, image: Encoded) -> None:
        """One more image is in a file."""
        self.source_nbytes += image.source_nbytes
        self.image_nbytes += len(image.data)
        self.resized += image.resized
        self.cropped += image.cropped
        self.anew += image.anew
        self.tiled += image.tiled
        if image.kept:
            self.kept[image.kept] = self.kept.get(image.kept, 0) + 1

    @property
    def counts(self) -> dict[str, Any]:
        """All counts of `count`, as JSON has them."""
        return {name: getattr(self, name) for name in _COUNTS}

    def restore(self, counts: Mapping[str, Any]) -> None:
        """Take counts up again that `counts` gave."""
        for name in _COUNTS:
            setattr(self, name, counts[name])


_COUNTS = ("source_nbytes", "image_nbytes", "resized", "cropped", "anew", "tiled", "kept")


def as_json(report: PackReport, source: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """The report as text; docs/packing.md tells every entry.

    Args:
        source: what was packed.
        options: what decided over the bytes of the result.
    """
    failed = report.error_report()
    value = {
        "kind": _KIND,
        "version": _VERSION,
        "aioloader": __version__,
        "source": dict(source),
        "options": dict(options),
        "files": [
            {
                "rec": file.rec.name,
                "idx": None if file.idx is None else file.idx.name,
                "lst": None if file.lst is None else file.lst.name,
                "part": file.part or None,
                "shard": file.shard,
                "records": file.records,
                "bytes": file.nbytes,
            }
            for file in report.files
        ],
        "records": report.records,
        "bytes": {
            "records": report.nbytes,
            "images": report.image_nbytes,
            "images_before": report.source_nbytes,
        },
        "classes": _classes(report),
        "counts": {
            "resized": report.resized,
            "cropped": report.cropped,
            "encoded_anew": report.anew,
            "tiled": report.tiled,
            "left_as_they_were": report.kept,
            "left_out": len(report.skipped),
            "replaced": report.replaced,
            "outside_of_classes": report.outside,
        },
        "folders_without_images": list(report.empty),
        "failed": failed["count"],
        "failed_by_reason": failed["by_reason"],
        "failures": failed["errors"],
    }
    # Names that are no text become escapes of their own, which JSON readers take.
    return json.dumps(value, indent=2) + "\n"


def _classes(report: PackReport) -> list[dict[str, Any]]:
    labels = {float(number): 0 for number in range(len(report.classes))} | report.labels
    found = []
    for label in sorted(labels, key=lambda label: (label != label, label)):
        whole = label.is_integer()
        name = report.classes[int(label)] if whole and 0 <= label < len(report.classes) else None
        plain = int(label) if whole else label if math.isfinite(label) else str(label)  # JSON has no NaN
        found.append({"label": plain, "name": name, "records": labels[label]})
    return found


def is_report(place: Path) -> bool:
    """Whether a file is a report of a packing."""
    return _read(place) is not None


def _read(place: Path) -> dict[str, Any] | None:
    try:
        value = json.loads(place.read_bytes())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("kind") == _KIND else None


def class_names(rec: Path) -> dict[float, str]:
    """The names of a record file's classes, by label, from the report that its packing left beside it.

    Empty where there is no report that names the file, or it knows no names. One that was given another name than
    that of the output is not found.
    """
    # OUT.json belongs to OUT.rec, OUT_train.rec, OUT-00000-of-00004.rec and OUT_train-00000-of-00004.rec.
    ends = [len(rec.stem), *(each.start() for each in re.finditer("[-_]", rec.stem))]
    for end in sorted(ends, reverse=True)[:_MOST_NAMES_TRIED]:
        place = rec.with_name(f"{rec.stem[:end]}.json")
        try:
            value = _read(place) if place.is_file() and place.stat().st_size <= _MOST_READ_NBYTES else None
        except OSError:
            continue
        if value is not None and rec.name in [each.get("rec") for each in _objects(value, "files")]:
            return {
                float(each["label"]): each["name"]
                for each in _objects(value, "classes")
                if isinstance(each.get("label"), int) and isinstance(each.get("name"), str)
                if abs(each["label"]) < _MOST_LABEL
            }
    return {}


def _objects(value: dict[str, Any], name: str) -> list[dict[str, Any]]:
    found = value.get(name)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
