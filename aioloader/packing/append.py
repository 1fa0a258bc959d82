"""Record file that new records are appended to: what it has, and how the classes of the new images are numbered.

The new file is a copy of the old one, continued under a partial name, and replaces it when it is complete. So the old
file is valid at any moment, and an interrupted run is resumed like any other.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.packing.fields_file import fields_place
from aioloader.packing.journal import begun_arguments
from aioloader.packing.report import class_names
from recordio import Index
from recordio._partial_files import partial_path

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from aioloader.packing.report import Packed
    from aioloader.packing.sources import Source

_COPIED_NBYTES = 64 << 20


@dataclass(frozen=True)
class Existing:
    """Contents of a record file before new records are appended to it.

    Attributes:
        records: number of its records.
        nbytes: its size.
        next_key: the key of the first new record.
        index: hash of its index.
        listed: it has a list.
        classes: names of its classes, by label; empty if they have none.
    """

    records: int
    nbytes: int
    next_key: int
    index: str
    listed: bool
    classes: tuple[str, ...]

    def as_option(self) -> dict[str, Any]:
        """Return the facts that an interrupted run is resumed by, as JSON values."""
        return {
            "records": self.records,
            "bytes": self.nbytes,
            "next_key": self.next_key,
            "index": self.index,
            "listed": self.listed,
            "classes": list(self.classes),
        }


def existing(output: Packed, journal: Path, source: Source) -> Existing:
    """Return what the file of an output has.

    Args:
        output: the output.
        journal: of an interrupted run. If that run was about to rename its files, the answer is what it found.
        source: the new images.

    Raises:
        FileNotFoundError: there is no such file, or it has no index.
        ValueError: its index does not fit, has keys that are not numbers, or keys that the source has too.
    """
    begun = begun_arguments(journal, publishing=True).get("append")
    if isinstance(begun, dict):
        return Existing(
            begun["records"],
            begun["bytes"],
            begun["next_key"],
            begun["index"],
            begun["listed"],
            tuple(begun["classes"]),
        )
    assert output.idx is not None
    assert output.lst is not None
    if not output.rec.exists():
        raise FileNotFoundError(f"there is no {output.rec} to append to: leave out append (--append)")
    if not output.idx.exists():
        raise FileNotFoundError(
            f"{output.rec} has no index {output.idx.name}, which has its keys: make one with `aioloader repair` or "
            "`python -m aioloader.tools.rec2idx`"
        )
    index = Index.open(output.idx, cache=False)
    nbytes = output.rec.stat().st_size
    index.spans(nbytes)  # raises if it is that of a longer file
    keys: Any = np.asarray(index.keys)
    if keys.dtype.kind not in "iu":
        raise ValueError(
            f"the keys of {output.idx} are not all numbers, so new ones cannot go on from them: pack into another file"
        )
    known = set(keys.tolist())
    for number in range(len(source.items)):
        key = source.items[number].key
        if key is not None and key in known:
            raise ValueError(
                f"{output.rec} has a record with the key {key} already: give the new image another id"
            )
    names = class_names(output.rec)
    return Existing(
        len(index),
        nbytes,
        int(keys.max(initial=-1)) + 1,
        hashlib.sha256(output.idx.read_bytes()).hexdigest()[:16],
        output.lst.exists(),
        tuple(names[label] for label in sorted(names)) if sorted(names) == list(range(len(names))) else (),
    )


def number_classes(source: Source, old: Existing, rec: Path) -> None:
    """Give the classes of new images the labels that they have in the old file, and new classes the labels behind.

    Args:
        source: the new images; changed.
        old: what the file has.
        rec: the file, for errors.

    Raises:
        ValueError: the classes of the two cannot be compared, or the labels of the new ones cannot be changed.
    """
    if not source.classes:
        source.classes = old.classes
        return
    if not old.classes:
        raise ValueError(
            f"the classes of {rec} have no names, so it is not known which labels the new images' classes "
            f"({', '.join(source.classes[:5])}) have there: pack a list of labels and paths"
        )
    merged = (*old.classes, *(name for name in source.classes if name not in old.classes))
    if merged[: len(source.classes)] != source.classes:
        if source.samples is not None:
            raise ValueError(
                f"the labels of the new samples are those of the classes {', '.join(source.classes[:5])}, and those of "
                f"{rec} of {', '.join(old.classes[:5])}: pack the samples into another file"
            )
        labels = [(float(merged.index(name)),) for name in source.classes]
        source.items = [item._replace(labels=labels[int(item.labels[0])]) for item in source.items]
    source.classes = merged


def check_files(output: Packed, *, fields: bool) -> None:
    """Raise if the file has further files that the new records would have to be in, or the other way round.

    Raises:
        ValueError: it has.
    """
    place = fields_place(output.rec)
    if place.exists() != fields:
        has = "has" if place.exists() else "has no"
        raise ValueError(
            f"{output.rec} {has} fields of its samples ({place.name}): pass fields (--fields) when appending if, and "
            "only if, they were passed before"
        )


def continued(output: Packed, old: Existing) -> None:
    """Make an output continue a file; its positions are those of the new images."""
    output.records = output.kept = old.records
    output.next_key = old.next_key
    output.kept_nbytes = old.nbytes
    if not old.listed:
        output.lst = None  # a list of the new records only would be wrong


def copy_old(places: Sequence[Path], nbytes: int) -> None:
    """Copy the old files to their partial names.

    Args:
        places: the files, the record file first.
        nbytes: of the record file.

    Raises:
        OSError: a file cannot be read or written, or the record file has another size now.
    """
    for place in places:
        _copy(place, partial_path(place))
    found = partial_path(places[0]).stat().st_size
    if found != nbytes:
        raise OSError(f"{places[0]} has changed: it had {nbytes} bytes, and now {found}")


def _copy(source: Path, target: Path) -> None:
    """Copy a file; by sharing its blocks where the file system can."""
    if not hasattr(os, "copy_file_range"):
        shutil.copyfile(source, target)
        return
    with open(source, "rb") as old, open(target, "wb") as new:
        try:
            while os.copy_file_range(old.fileno(), new.fileno(), _COPIED_NBYTES):
                pass
        except OSError:
            old.seek(0)
            new.seek(0)
            new.truncate()
            shutil.copyfileobj(old, new, 1 << 20)
