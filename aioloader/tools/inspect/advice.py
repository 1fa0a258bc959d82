"""Advice to load a data set faster or more safely: rules over an `Inspection`. Pure."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.tools.inspect.report import CropIndexes, Images, Inspection

_MANY_FILES = 1000
_LARGE = 480  # pixels of the shorter side above which training at 224 decodes far more than it needs
_SMALL = 64
_WORTH_CROPPING = 256  # pixels of the shorter side; crops of smaller images leave out little
_MOST = 0.5
_UNEVEN = 10
_SHARE = 0.1


def advice_for(found: Inspection, *, numba: bool = True) -> Iterator[str]:
    """Yield advice on a data set, most urgent first.

    Args:
        found: the inspection of the data set.
        numba: whether it is installed, which makes crop indexes.
    """
    path = shlex.quote(redact_url(found.path))  # a query may be a signature
    images = found.images
    is_folder = found.kind == "image folder"
    is_shards = found.fields is not None
    if found.damage or (images is not None and images.damaged):
        check = f"`aioloader verify --decode {path}` lists all damage"
        save = "" if is_folder or is_shards else ", `aioloader repair SRC DST` copies the valid records"
        skips = "" if found.unreadable else "; a loader with on_error='skip' skips damaged samples"
        yield f"{check}{save}{skips}"
    if found.details.get("shard_faults"):
        yield "check that these are all shards of one set, and only those: a pattern reads every file that matches it"
    if found.indexed is False and found.records:
        yield "write the missing .idx with `aioloader index FILE`: without it a file is scanned when it is first opened"
    indexes = found.sample_indexes
    if indexes is not None and (indexes.missing or indexes.stale) and not found.unreadable:
        yield (
            f"write the indexes of the shards with `aioloader index {path}`: without one a shard is scanned when it is "
            "first opened, on each machine"
        )
    if is_folder and found.records >= _MANY_FILES:
        yield (
            f"pack it (`aioloader pack {path} OUT`): {found.records:,} small files are slow to list and to read, above "
            "all on network and spinning disks"
        )
    if images is not None:
        yield from _for_images(images)
        install = "" if numba else "`pip install 'aioloader[crops]'`, then "
        if found.crop_indexes is not None and found.crop_indexes.faults:
            yield f"make the crop index that cannot be used again ({install}`aioloader index --crops {path}`)"
        elif _wants_crop_index(images, found.crop_indexes):
            yield (
                f"for random crops make a crop index ({install}`aioloader index --crops {path}`): a crop is then "
                "decoded without the rest of the image, with the same pixels, and the images stay unchanged"
            )
    labels = found.labels
    if labels is not None and labels.whole and labels.classes > 1:
        most, fewest = labels.most[1], labels.fewest[1]
        if most >= _UNEVEN * fewest:
            yield (
                f"the classes are uneven, from {fewest:,} to {most:,} images: "
                "aioloader.samplers.ClassBalancedSampler draws them equally often"
            )


def _wants_crop_index(images: Images, indexes: CropIndexes | None) -> bool:
    if indexes is None or indexes.files or images.width is None or images.height is None:
        return False
    jpegs = images.formats.get("jpeg", 0) / max(1, sum(images.formats.values()))
    shorter = min(images.width.median, images.height.median)
    return shorter >= _WORTH_CROPPING and jpegs * images.indexable > _MOST


def _for_images(images: Images) -> Iterator[str]:
    if images.width is None or images.height is None:
        return
    shorter = min(images.width.median, images.height.median)
    jpegs = images.formats.get("jpeg", 0)
    share = jpegs / max(1, sum(images.formats.values()))
    raw = images.formats.get("raw", 0)
    if shorter > _LARGE and not raw:
        part = (_LARGE / shorter) ** 2
        yield (
            f"make images smaller if you train at about 224 pixels: with `aioloader pack --resize {_LARGE}` they have "
            f"about {part:.0%} of the pixels, and take about {part:.0%} of the time"
        )
    if jpegs and images.progressive > _SHARE:
        yield (
            f"{images.progressive:.0%} of the JPEGs are progressive, which take two to three times as long: "
            "`jpegtran -copy all -optimize` rewrites a file as a baseline JPEG, pixels unchanged"
        )
    if images.formats and share + raw / sum(images.formats.values()) < 1 - _SHARE:
        yield (
            f"{1 - share:.0%} of the images are not JPEGs, and slower to decode: `aioloader pack --resize PIXELS` "
            "encodes the images that it resizes as JPEGs, `--encoding raw` needs no decoder"
        )
    if shorter <= _SMALL and not raw:
        yield (
            "images as small as these are read faster as pixels: `aioloader pack --encoding raw` stores pixels, which "
            "need no decoding but several times the bytes"
        )
