"""Report of packing, in Python and as a JSON object that is the same for the same images and options.

Errors of packing, and how those of images are reported, when they end packing, and how the journal stores them.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from aioloader.errors import (
    DecodeError,
    LoaderError,
    MissingFieldError,
    SampleError,
    SampleFormatError,
    TooManyErrorsError,
    error_report,
    over_budget,
)
from aioloader.formats.packed_files import PACK_KIND
from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from aioloader.packing.encoding import Encoded
    from aioloader.packing.sources import Source


_JOURNALLED = ("index", "position", "key", "path", "stage")


class PackError(LoaderError, ValueError):
    """Error raised when an image cannot be packed; the cause is chained.

    Attributes:
        path: its file.
        reason: the cause in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot pack {path}: {reason}")
        self.path = path
        self.reason = reason


class PackBusyError(LoaderError, BlockingIOError):
    """Error raised when another process is packing into the same files.

    Attributes:
        out: path of the output of both, without its extension.
        pid: the other process, or None where it is not known.
    """

    def __init__(self, out: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{who} is packing into {out}; wait until it ends, or choose another name")
        self.out = out
        self.pid = pid


def failure_of(source: Source, number: int, position: int, cause: BaseException) -> SampleError:
    """Return the error that reports a failed image.

    Args:
        source: the source of the image.
        number: its number in the source.
        position: its position in the packing order.
        cause: the original exception.
    """
    stage, reason = "encode", str(cause)
    if isinstance(cause, OSError):
        stage = "read"
    elif isinstance(cause, PackError):
        reason = cause.reason
    elif isinstance(cause, SampleFormatError):
        facts = "" if cause.expected is None else f" (expected {cause.expected}, found {cause.found})"
        reason = f"{cause.reason}{facts}"
    elif isinstance(cause, MissingFieldError):
        reason = (
            f"it has no field {cause.field!r}, but {', '.join(cause.found) or 'none'}: choose others with image, label "
            "and fields (--image, --label, --fields); no_label (--no-label) packs all images with the label 0"
        )
    failed = SampleError(
        reason,
        dataset="pack",
        index=number,
        position=position,
        key=source.item(number).key,
        path=source.place(number),
        stage=stage,
    )
    failed.__cause__ = cause
    return failed


def as_raised(failed: SampleError) -> BaseException:
    """Return the exception that ends packing: the original `OSError`, or a `PackError` that names the file."""
    cause = failed.__cause__
    if isinstance(cause, (OSError, PackError)):
        return cause
    error = PackError(str(failed.path), failed.reason)
    error.__cause__ = cause
    return error


def check_errors(limit: float | None, errors: Sequence[SampleError], done: int, at_end: bool = False) -> None:
    """Raise an error if more images failed than are allowed.

    Args:
        limit: largest number or share of failed images; None: no limit.
        errors: errors of the failed images.
        done: number of images processed.
        at_end: whether all images are processed.

    Raises:
        TooManyErrorsError: more did; its `errors` has them.
    """
    too_many = over_budget(limit, len(errors), len(errors), done, at_end)
    if too_many is not None:
        last = errors[-1]
        error = TooManyErrorsError(too_many.max_errors, len(errors), too_many.samples, f"the last: {last}")
        error.errors = tuple(errors)
        raise error from last


def record_of(error: SampleError) -> dict[str, Any]:
    """Return an error as JSON values; `recorded` is the inverse."""
    cause = error.__cause__
    kept: dict[str, Any] = {name: getattr(error, name) for name in ("reason", *_JOURNALLED)}
    kept["by"] = error.replaced_by
    if isinstance(cause, DecodeError):
        kept["cause"] = ["decode", cause.reason, cause.format, cause.nbytes]
    elif isinstance(cause, OSError) and cause.errno is not None:
        kept["cause"] = ["system", cause.errno, cause.strerror, cause.filename]
    else:
        kept["cause"] = ["other", type(cause).__name__]
    return kept


def recorded(kept: Mapping[str, Any]) -> SampleError:
    """Return the error that `record_of` converted; of a cause of a rare type only the type's name is restored."""
    error = SampleError(kept["reason"], dataset="pack", **{name: kept[name] for name in _JOURNALLED})
    error.replaced_by = kept["by"]
    kind, *facts = kept["cause"]
    cause: BaseException
    if kind == "decode":
        cause = DecodeError(facts[0], format=facts[1], nbytes=facts[2])
    elif kind == "system":
        cause = OSError(*facts)
    else:
        cause = type(str(facts[0]), (PackError,), {})(kept["path"] or "", kept["reason"])
    error.__cause__ = cause
    return error


_VERSION = 1


@dataclass(slots=True)
class Packed:
    """Record file of a packing job.

    Attributes:
        rec: its path.
        idx, lst: paths of its index and its list; None: not written.
        crops: path of its crop index; None: not written.
        fields: path of the file with other fields of its samples; None: not written.
        part: name of its part ("train", ...), or "".
        shard: its number among the shards of the part, or None.
        records: number of its records so far.
        nbytes: its size.
        start, stop: positions of its images in the packing order; `stop` is exclusive.
        kept: records of the old file that it continues.
        kept_nbytes: size of that file; 0: it is a new one.
        next_key: key of its first new record.
    """

    rec: Path
    idx: Path | None
    lst: Path | None
    part: str = ""
    shard: int | None = None
    records: int = 0
    nbytes: int = 0
    start: int = 0
    stop: int = 0
    crops: Path | None = None
    fields: Path | None = None
    kept: int = 0
    kept_nbytes: int = 0
    next_key: int = 0

    @property
    def places(self) -> tuple[Path, ...]:
        """Return the paths of the record file, its index, its list, its crop index and its file of fields."""
        places = (self.rec, self.idx, self.lst, self.crops, self.fields)
        return tuple(place for place in places if place is not None)


@dataclass(slots=True)
class PackReport:
    """Result of packing.

    Attributes:
        files: the record files, in order.
        classes: names of the classes; a record's label is the index of its class here. Empty if the labels have no
            names.
        labels: number of records of each label; records with several labels are not counted, and more than 100,000
            different labels of samples are not.
        json: path of the report in JSON, or None.
        source_nbytes: size of the images before packing.
        image_nbytes: size of the images in the records.
        resized: number of images that were scaled down.
        cropped: number of images that were cropped to their middle square.
        reencoded: number of images that were decoded and encoded again.
        indexed: number of images that have an entry in a crop index.
        index_nbytes: size of these entries in bytes.
        unindexed: number of images that have none in it, by reason.
        errors: errors of all failed images, including those that were replaced; `index` is the index in the source.
        outside: number of images outside the classes' folders, if there are classes; they are not packed.
        empty: names of classes without images, which have their numbers nevertheless.
        left_out: number of the other entries of the folder that were not read, by reason, such as "of type .txt".
        urls: URLs of all files that were uploaded, record files first; the paths above are then those of the temporary
            files before the upload.
        others: names of shards in the same folder from an earlier packing into another number of files. A pattern such
            as OUT-* matches them too.
        old_indexes: crop indexes of the earlier files of these names, which do not fit the new ones.
        old_fields: the same for their files of fields.
        not_in_train: of each part next to OUT_train the labels (whole numbers) that no record of OUT_train has; parts
            without such labels are left out.
    """

    files: tuple[Packed, ...]
    classes: tuple[str, ...]
    labels: dict[float, int] = field(default_factory=dict)
    json: Path | None = None
    source_nbytes: int = 0
    image_nbytes: int = 0
    resized: int = 0
    cropped: int = 0
    reencoded: int = 0
    indexed: int = 0
    index_nbytes: int = 0
    unindexed: dict[str, int] = field(default_factory=dict)
    errors: list[SampleError] = field(default_factory=list)
    outside: int = 0
    empty: tuple[str, ...] = ()
    left_out: dict[str, int] = field(default_factory=dict)
    urls: tuple[str, ...] = ()
    others: tuple[str, ...] = ()
    old_indexes: tuple[Path, ...] = ()
    old_fields: tuple[Path, ...] = ()
    not_in_train: dict[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def rec(self) -> Path:
        """Return the path of the first record file."""
        return self.files[0].rec

    @property
    def idx(self) -> Path:
        """Return the path of the first record file's index."""
        place = self.files[0].idx
        assert place is not None
        return place

    @property
    def lst(self) -> Path:
        """Return the path of the first record file's list."""
        place = self.files[0].lst
        assert place is not None
        return place

    @property
    def records(self) -> int:
        """Return the number of records in all files."""
        return sum(file.records for file in self.files)

    @property
    def nbytes(self) -> int:
        """Return the total size of the record files in bytes."""
        return sum(file.nbytes for file in self.files)

    @property
    def skipped(self) -> list[tuple[str, str]]:
        """Return (path, reason) of each image that was left out."""
        return [(str(error.path), error.reason) for error in self.errors if error.replaced_by is None]

    @property
    def replaced(self) -> int:
        """Return the number of failed images that were replaced by another one."""
        return sum(error.replaced_by is not None for error in self.errors)

    def error_report(self) -> dict[str, Any]:
        """Return the errors of all failed images as a JSON object; see `aioloader.DataLoader.error_report`."""
        return error_report(self.errors)

    def count(self, image: Encoded) -> None:
        """Add an image that was written to the counts."""
        self.source_nbytes += image.source_nbytes
        self.image_nbytes += len(image.data)
        self.resized += image.resized
        self.cropped += image.cropped
        self.reencoded += image.reencoded
        if isinstance(image.entry, str):
            self.unindexed[image.entry] = self.unindexed.get(image.entry, 0) + 1
        elif image.entry is not None:
            self.indexed += 1
            self.index_nbytes += len(image.entry)

    @property
    def counts(self) -> dict[str, Any]:
        """Return the counts that `count` updates, as JSON values."""
        return {name: getattr(self, name) for name in _COUNTS}

    def restore(self, counts: Mapping[str, Any]) -> None:
        """Set the counts to values that `counts` returned."""
        for name in _COUNTS:
            setattr(self, name, counts[name])


_COUNTS = (
    *("source_nbytes", "image_nbytes", "resized", "cropped", "reencoded"),
    *("indexed", "index_nbytes", "unindexed"),
)


def as_json(report: PackReport, source: Mapping[str, Any], options: Mapping[str, Any]) -> str:
    """Return the report as JSON text; the page Packing describes every entry.

    Args:
        report: the report.
        source: description of the source.
        options: options that determine the bytes of the result.
    """
    failed = report.error_report()
    value = {
        "kind": PACK_KIND,
        "version": _VERSION,
        "aioloader": __version__,
        "source": dict(source),
        "options": dict(options),
        "files": [
            {
                "rec": file.rec.name,
                "idx": None if file.idx is None else file.idx.name,
                "lst": None if file.lst is None else file.lst.name,
                **({} if file.crops is None else {"crops": file.crops.name}),
                **({} if file.fields is None else {"fields": file.fields.name}),
                "part": file.part or None,
                "shard": file.shard,
                "records": file.records,
                **({"appended": file.records - file.kept} if file.kept_nbytes else {}),
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
            "encoded_anew": report.reencoded,
            **_index_counts(report),
            "left_out": len(report.skipped),
            "replaced": report.replaced,
            "outside_of_classes": report.outside,
        },
        "folders_without_images": list(report.empty),
        "not_read": report.left_out,
        "failed": failed["count"],
        "failed_by_reason": failed["by_reason"],
        "failures": failed["errors"],
    }
    # Names that are not valid Unicode become escapes of surrogates, which JSON readers accept.
    return json.dumps(value, indent=2) + "\n"


def _index_counts(report: PackReport) -> dict[str, Any]:
    if not (report.indexed or report.unindexed):
        return {}
    return {"in_crop_index": report.indexed, "not_in_crop_index": report.unindexed}


def _classes(report: PackReport) -> list[dict[str, Any]]:
    labels = {float(number): 0 for number in range(len(report.classes))} | report.labels
    found = []
    for label in sorted(labels, key=lambda label: (label != label, label)):
        whole = label.is_integer()
        name = report.classes[int(label)] if whole and 0 <= label < len(report.classes) else None
        plain = int(label) if whole else label if math.isfinite(label) else str(label)  # JSON has no NaN
        found.append({"label": plain, "name": name, "records": labels[label]})
    return found
