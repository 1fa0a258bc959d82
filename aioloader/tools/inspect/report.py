"""What `inspect` tells of a data set, as plain values; and how numbers become such values. Pure."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array

__all__ = ("Images", "Inspection", "Labels", "Sizes", "labels_of", "sizes_of")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Some numbers summed up.

    Attributes:
        smallest, median, mean, largest: of all numbers.
    """

    smallest: float
    median: float
    mean: float
    largest: float


@dataclass(frozen=True, slots=True)
class Labels:
    """Scalar labels, counted.

    Attributes:
        classes: how many different ones there are.
        smallest, largest: the least and the greatest label.
        most, fewest: (label, how many have it) of the class with most and with fewest images.
        whole: all are whole numbers, as those of classes are.
        absent: whole numbers between the smallest and the largest that no image has.
        counts: how many images have which label, in ascending order of the labels.
    """

    classes: int
    smallest: float
    largest: float
    most: tuple[float, int]
    fewest: tuple[float, int]
    whole: bool
    absent: int
    counts: dict[float, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Images:
    """A sample of images, looked into and decoded.

    Attributes:
        looked_at: images of the sample.
        formats: how many are of which format; damaged ones are not counted.
        width, height: in pixels, as stored.
        tiled: share of JPEGs whose crops are decoded alone (`aioloader pack --tile`).
        progressive: share of JPEGs that are progressive, which take two to three times as long.
        turned: share of images that their EXIF data turns or mirrors.
        decode_us: microseconds of CPU time to decode a whole image, in one thread of this machine; the mean.
        images_per_s: images that one core decodes in a second.
        damaged: (key or path, reason) of images that cannot be decoded.
    """

    looked_at: int
    formats: dict[str, int]
    width: Sizes | None
    height: Sizes | None
    tiled: float
    progressive: float
    turned: float
    decode_us: float | None
    images_per_s: float | None
    damaged: list[tuple[Any, str]]


@dataclass(frozen=True, slots=True)
class Inspection:
    """What a data set is.

    Attributes:
        path: what was asked for.
        kind: "empty", "plain records", "packed images", "packed images with label vectors", "InsightFace", "detection",
            "image folder", "image list", "IDX files", "CIFAR files" or "image".
        files: files that it consists of, indexes left out.
        nbytes: bytes of these files.
        records: records of record files, else images.
        images_in_all: how many images there are; None where only a sample could tell.
        headers: records whose headers were looked at; None where there are none. Sizes and labels are theirs.
        indexed: whether all record files have an .idx; None for others.
        sizes: bytes of a record's payload, or of an image's file.
        labels: scalar labels; None if there are none.
        label_widths: how many records have label vectors of which width; 1 stands for a scalar label.
        images: of a sample; None where there are no images.
        details: what only this kind has; see docs/tools.md.
        damage: what was seen to be wrong, in words. Much is not seen without `aioloader verify`.
        advice: what would make it faster, or safer.
    """

    path: str
    kind: str
    files: int
    nbytes: int
    records: int
    images_in_all: int | None = None
    headers: int | None = None
    indexed: bool | None = None
    sizes: Sizes | None = None
    labels: Labels | None = None
    label_widths: dict[int, int] = field(default_factory=dict)
    images: Images | None = None
    details: dict[str, Any] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """All of it in values that JSON has."""
        facts = asdict(self)
        if self.labels is not None:
            facts["labels"]["counts"] = [
                [_plain(label), count] for label, count in self.labels.counts.items()
            ]
            for name in ("smallest", "largest"):
                facts["labels"][name] = _plain(facts["labels"][name])
        return facts


def _plain(label: float) -> float:
    return int(label) if label.is_integer() else label


def sizes_of(values: Array) -> Sizes | None:
    """The sum of some numbers; None of none.

    Args:
        values: (n,).
    """
    if not len(values):
        return None
    return Sizes(
        float(np.min(values)), float(np.median(values)), float(np.mean(values)), float(np.max(values))
    )


def labels_of(counts: Mapping[float, int]) -> Labels | None:
    """Scalar labels from how many images have each; None if there are none. NaN and infinities must not be among them.

    Args:
        counts: images of each label.
    """
    if not counts:
        return None
    ordered = dict(sorted(counts.items()))
    found = list(ordered)
    whole = all(label.is_integer() for label in found)
    most = max(found, key=lambda label: ordered[label])
    fewest = min(found, key=lambda label: ordered[label])
    span = int(found[-1] - found[0]) + 1 if whole else len(found)
    return Labels(
        len(found),
        found[0],
        found[-1],
        (most, ordered[most]),
        (fewest, ordered[fewest]),
        whole,
        span - len(found),
        ordered,
    )
