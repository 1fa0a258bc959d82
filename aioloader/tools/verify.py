"""Command `aioloader verify`: check files, their indexes and their images."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.abc import Decoder
from aioloader.datasets.decoding import decode_here
from aioloader.datasets.fields import FieldKind, FieldReader, as_label, field_value
from aioloader.datasets.redecoded import own_extra
from aioloader.datasets.resolve import version_at
from aioloader.datasets.shards import files_of
from aioloader.errors import SampleFormatError
from aioloader.formats.base import RECORD_SUFFIX, format_of_name
from aioloader.formats.inspection import fetch_each
from aioloader.formats.opening import make_dataset
from aioloader.formats.recordio.inspect import ValidImages, ValidRecords
from aioloader.formats.shards import is_folder, open_shards, record_files_at, shard_sets
from aioloader.foundation.native import absence, native
from aioloader.storage.urls import name_of, redact_url
from aioloader.tools.console import LateProgress, UsageError, failure_line, natural, read_progress
from aioloader.tools.crops import check_index, images_of_folder, keyed, make_all
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.datasets.base import Dataset
    from aioloader.datasets.files import FileDataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.errors import SampleError
    from aioloader.formats.opening import Recognized
    from aioloader.foundation.types import Array, ItemLocation
    from aioloader.tools.crops import CropCheck


__all__ = (
    "ImageCheck",
    "ShardReport",
    "ValidImages",
    "add_arguments",
    "check",
    "check_samples",
    "check_shard",
    "run",
)

# Checking the entries of fewer images takes seconds at most, and needs no progress bar.
_MANY_IMAGES = 10_000


def check_entries(dataset: FileDataset, options: argparse.Namespace) -> CropCheck | None:
    """Check the crop index of a file or a folder, with a progress bar; return None if there is none.

    Args:
        dataset: see `check_index`.
        options: of the command.
    """
    rebuild = options.decode and native is not None
    with LateProgress("checking entries") as progress:
        return check_index(
            dataset,
            rebuild=rebuild,
            num_workers=options.num_workers,
            # Checksums run without the interpreter's lock; starting processes for each of many files takes longer.
            executor="thread",
            begin=lambda count: progress.begin(count if rebuild or count >= _MANY_IMAGES else 0),
            tick=progress.tick,
        )


def print_entries(checked: CropCheck, path: str, *, decode: bool) -> None:
    """Print the result of checking a crop index.

    Args:
        checked: the result.
        path: the file or folder that it belongs to.
        decode: the caller wanted the entries to be made again.
    """

    if checked.fault:
        print(f"{checked.path}: {checked.fault}", file=sys.stderr)
        return
    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    for count, what in (
        (checked.stale, "entries of other bytes, because the images were changed"),
        (checked.damaged, "damaged entries"),
        (checked.different, "entries that differ from those made again"),
        (checked.missing, "images that are not in the index"),
        (len(checked.errors), "images that could not be read"),
    ):
        if count:
            print(f"{checked.path}: {what}: {count:,}", file=sys.stderr)
    total = checked.entries + checked.stale + checked.damaged + checked.different
    fit = "all fit their images" if checked.entries == total else f"{checked.entries:,} fit their images"
    again = " and equal those made again" if checked.rebuilt else ""
    surplus = f"; {checked.surplus:,} of images that do not exist" if checked.surplus else ""
    print(
        f"{checked.path}: {total:,} entries, {fit}{again}; {checked.refused:,} images can have none{surplus}"
    )
    if decode and not checked.rebuilt:
        print(
            f"{checked.path}: the entries were not made again, which takes long without the compiled part: {absence}"
        )
    if checked.stale or checked.different or checked.damaged or checked.missing:
        # Without --remake, entries are kept while size and time of modification of the record file are the same.
        remake = " --remake" if checked.stale or checked.different else ""
        command = f"aioloader index --crops{remake} {shlex.quote(path)}"
        cost = "crops may have wrong pixels" if checked.different else "they cost speed only"
        print(f"{checked.path}: `{command}` makes the others again; until then {cost}")


def print_images(path: str, checked: ImageCheck) -> None:
    """Print the result of decoding the images of a file or folder."""

    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    if checked.images:
        damaged = f"{len(checked.errors):,} of them damaged" if checked.errors else "all valid"
        print(f"{path}: {checked.images:,} images decoded, {damaged}")
    else:
        print(f"{path}: contains no images")


def verify_shards(dataset: ShardDataset, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check shards, and print the faults unless the output is JSON.

    Args:
        dataset: over the shards.
        options: of the command.

    Returns:
        the report of each shard, as JSON values.
    """
    checked = [_structure(dataset, number, options) for number in range(len(dataset.paths))]
    is_empty = all(facts["ok"] and not facts["samples"] for facts in checked)
    fine, reasons = dataset.openable()
    for number in fine:
        _add_outside(dataset.only([number]), checked[number], options)
    if is_empty:  # no loader could deliver anything
        for facts in checked:
            reason = "there are no samples in the data set: check how the file was made"
            _print_error(f"{facts['path']}: {reason}", options)
            _add_problem(facts, reason)
        return checked
    for number, reason in reasons.items():
        # A fault that the structure does not show, such as an index without a column that the dataset needs.
        if checked[number]["ok"]:
            _add_problem(checked[number], reason)
            _print_error(reason, options)
    for number in fine:
        _add_entries(dataset.only([number]), checked[number]["path"], checked[number], options)
    if options.decode and fine:
        some = dataset.only(fine)
        with LateProgress("decoding") as progress:
            progress.begin(len(some))
            images = check_samples(some, num_workers=options.num_workers, tick=progress.tick)
        for number, path, found in zip(fine, some.paths, images, strict=True):
            _add_images(found, redact_url(path), checked[number], options)
    if options.decode:
        for number in reasons:
            text = "its images were not decoded, because its samples cannot be found"
            _print_error(f"{checked[number]['path']}: {text}", options)
    return checked


def _structure(dataset: ShardDataset, number: int, options: argparse.Namespace) -> dict[str, Any]:
    path = dataset.paths[number]
    with read_progress("reading", path) as tick:
        report = check_shard(dataset, number, tick=tick)
    if not options.json:
        for line in report.lines():
            print(line, file=sys.stderr)
        print(report.summary())
    return report.facts()


def _add_outside(dataset: ShardDataset, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Add the numbers of the members that belong to no sample, in the only shard of a dataset."""
    outside = dataset.members_outside()
    if outside:
        facts["members_outside"] = outside
        if not options.json:
            words = ", ".join(f"{name} {count:,}" for name, count in outside.items())
            print(f"{facts['path']}: members that belong to no sample: {words}")


def _add_problem(facts: dict[str, Any], reason: str) -> None:
    """Make a fault that concerns the whole file the only one of a shard."""
    problem = dict.fromkeys(("offset", "key", "expected", "found")) | {"message": reason}
    facts |= {"ok": False, "problems": [problem]}


def _add_entries(dataset: FileDataset, path: str, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Check the crop index of the only file of a dataset, or of a folder, and add the result."""
    found = check_entries(dataset, options)
    if found is not None:
        facts |= {"crop_index": found.facts(), "ok": facts["ok"] and found.ok}
        if not options.json:
            print_entries(found, path, decode=options.decode)


def _add_images(found: ImageCheck, path: str, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Add the result of decoding the images of a file or folder."""
    facts |= {**found.facts(), "ok": facts["ok"] and not found.errors}
    if not options.json:
        print_images(path, found)


def _print_error(text: str, options: argparse.Namespace) -> None:
    if not options.json:
        print(text, file=sys.stderr)


_EXIT_CODES = """\
exit codes:
  0  everything is valid
  1  a file, its index or an image is damaged, the crop index next to it does not fit its images, or a set of shards
     has no samples; each fault is reported on standard error
  2  wrong usage, or there is no such file
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Read whole files and report every fault of them and their indexes. Most formats have no "
        "checksum of the\ncontents, so damage inside an image is found only with --decode."
    )
    parser.epilog = _EXIT_CODES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a file of any format or its URL, a pattern of files, a folder of them, or a folder of images (with "
        "--decode)",
    )
    parser.add_argument("--image", metavar="NAME", help="field of the image, where samples have fields")
    parser.add_argument("--label", metavar="NAME", help="field of the label")
    parser.add_argument(
        "--index",
        metavar="IDX",
        help=f"the .idx of the only {RECORD_SUFFIX} file (default: the one next to it)",
    )
    parser.add_argument(
        "--decode",
        action="store_true",
        help="decode every image, and check its label; make the entries of a crop index again, and compare them "
        "(with the compiled part)",
    )
    parser.add_argument(
        "--num-workers",
        type=natural,
        metavar="N",
        help="number of decoding processes; without it one per core; 0: none",
    )
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from aioloader.crop_index.layout import folder_index
    from aioloader.formats.opening import format_at, recognize
    from recordio.__main__ import run_command

    def work() -> int:
        sets, words = shard_sets(options.files)
        files = find_files(words)
        if options.index is not None and (len(files) != 1 or sets):
            raise UsageError(f"--index can only be used with one {RECORD_SUFFIX} file")
        for path in files:
            if not is_folder(path) and format_of_name(name_of(path)) is None:
                format_at(path)  # an error that names the known formats if it is of none of them
            if is_folder(path) and not options.decode and not os.path.exists(folder_index(path)):
                recognize(path)  # an error that describes the folder if there are no images in it
                raise UsageError(f"{path} is a folder of images; use --decode to check them")
        for each in sets:
            if not (each.format.has_fields or options.decode):
                text = f"has the format {each.format.name}; use --decode to check its images"
                raise UsageError(f"{redact_url(each.paths[0])} {text}")
        checked = [facts for each in sets for facts in _verify_set(each, options)]
        checked += [_verify(path, options) for path in files]
        ok = all(facts["ok"] for facts in checked)
        if options.json:
            print(json.dumps({"ok": ok, "files": checked}, indent=2))
        return int(not ok)

    return run_command(work)


def _verify(path: str, options: argparse.Namespace) -> dict[str, Any]:
    """Check one file or folder, and print the faults unless the output is JSON; return the report as JSON values."""
    from aioloader.formats.opening import recognize
    from recordio import verify
    from recordio.__main__ import print_report

    name = redact_url(path)
    facts = {"path": name, "ok": True}
    folder = images_of_folder(path) if is_folder(path) else None
    if folder is None:
        with read_progress("reading", path) as tick:
            report = verify(path, options.index, tick=tick)
        facts = report.facts()
        if not options.json:
            print_report(report, as_json=False)
    dataset: FileDataset = ValidRecords(report, path) if folder is None else folder
    _add_entries(dataset, name, facts, options)
    if not options.decode:
        return facts
    if folder is None:
        dataset = ValidImages(report, path)
    else:
        if not len(folder):
            recognize(path)  # an error that describes the folder
        facts["not_read"] = folder.left_out
        if folder.left_out and not options.json:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in folder.left_out.items())
            print(f"{name}: not read: {counts}")
    _decode(dataset, name, facts, options)
    return facts


def _verify_set(found: Recognized, options: argparse.Namespace) -> list[dict[str, Any]]:
    """Check the files of a data set as its format reads them; return the report of each."""
    if found.format.has_fields:
        return verify_shards(open_shards(found, image=options.image, label=options.label), options)
    checked = []
    for path in found.paths:
        dataset = make_dataset(replace(found, paths=(path,)), {})
        name = redact_url(path)
        facts: dict[str, Any] = {"path": name, "ok": True}
        _add_entries(dataset, name, facts, options)
        _decode(dataset, name, facts, options)
        checked.append(facts)
    return checked


def _decode(dataset: FileDataset, path: str, facts: dict[str, Any], options: argparse.Namespace) -> None:
    """Decode the images of a file or folder, and add the result."""
    with LateProgress("decoding") as progress:
        progress.begin(len(dataset))
        checked = check(dataset, num_workers=options.num_workers, tick=progress.tick)
    _add_images(checked, path, facts, options)


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Result of decoding all images.

    Attributes:
        images: number of images that were decoded, damaged ones included.
        errors: errors of the damaged images, in the order of the file: key, offset and path, and the reason.
    """

    images: int
    errors: list[SampleError] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"images": self.images, "image_errors": [error.facts() for error in self.errors]}


def _check_label(image: Array, label: Any = 0) -> np.uint8:
    """Raise an error if the label of a decoded image is not finite."""
    if not np.isfinite(label).all():
        raise ValueError(f"the label {label} is not a finite number")
    return np.uint8(0)


def check(
    dataset: Dataset,
    *,
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> ImageCheck:
    """Decode every image of a dataset, and check its label.

    Args:
        dataset: dataset of images and labels, such as `ValidImages`.
        num_workers: workers of the loader; None: one per core.
        executor: "process", "fork", "thread" or "inline".
        tick: called with the number of images done so far.

    Raises:
        ValueError: an option is not allowed.
    """
    errors = make_all(dataset.transform(_check_label), num_workers=num_workers, executor=executor, tick=tick)
    return ImageCheck(len(dataset), errors)


def find_files(words: list[str]) -> list[str]:
    """Resolve arguments of a command line to record files and folders.

    Args:
        words: paths or URLs, patterns, and folders; a folder with record files means those files.

    Returns:
        Paths without repetitions; those of a pattern or a folder sorted by name.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
    """
    found: list[str] = []
    for word in words:
        path = os.path.expanduser(word)
        found += record_files_at(path) or [path]
    return list(dict.fromkeys(found))


_MOST_FAULTS = 1000
_LOOKED_AT = 16
# A sample of the check is one number: that of the shard, and in these lowest bits that of the images.
_COUNT_BITS = 20
_MOST_IMAGES = (1 << _COUNT_BITS) - 1


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Result of checking the structure of a shard.

    Attributes:
        path: the shard.
        samples: number of samples without a fault.
        nbytes: size of the shard.
        faults: the first faults, in the order in which they were found.
        further: number of further faults.
    """

    path: str
    samples: int
    nbytes: int
    faults: list[SampleFormatError] = field(default_factory=list)
    further: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the shard is valid."""
        return not self.faults

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "path": self.path,
            "ok": self.ok,
            "samples": self.samples,
            "size": self.nbytes,
            "problems": [_fault_facts(fault) for fault in self.faults],
            "further_problems": self.further,
        }

    def lines(self) -> list[str]:
        """Return a line for each fault."""
        lines = [str(fault) if fault.path else f"{self.path}: {fault}" for fault in self.faults]
        if self.further:
            lines.append(f"{self.path}: {self.further:,} further problems")
        return lines

    def summary(self) -> str:
        """Return the result in a line."""
        count = len(self.faults) + self.further
        valid = "valid" if self.samples else "valid, but empty"
        state = valid if self.ok else f"{count:,} problem{'s' if count > 1 else ''}"
        return f"{self.path}: {self.samples:,} samples, {self.nbytes:,} bytes, {state}"


def _fault_facts(fault: SampleFormatError) -> dict[str, Any]:
    return {
        "offset": fault.offset,
        "key": None if fault.key is None else str(fault.key),
        "message": fault.reason,
        "expected": None if fault.expected is None else str(fault.expected),
        "found": None if fault.found is None else str(fault.found),
    }


def check_shard(
    dataset: ShardDataset, number: int, *, tick: Callable[[int], object] | None = None
) -> ShardReport:
    """Read a whole shard and report its faults. Bounded in memory: of many faults the first ones are kept.

    Args:
        dataset: over the shard.
        number: of the shard.
        tick: called now and then with the number of bytes read so far.

    Raises:
        OSError: the shard is there, and cannot be read.
        ValueError: shards of this format cannot be checked.
    """
    path = dataset.paths[number]
    try:
        version = version_at(path)
        nbytes = sum(map(os.path.getsize, files_of(path))) if version is None else version.nbytes
    except FileNotFoundError:
        missing = SampleFormatError("the data set names this file, and it is missing", path=redact_url(path))
        return ShardReport(redact_url(path), 0, 0, [missing])
    faults: list[SampleFormatError] = []
    further = 0
    checking = dataset.check_shard(number, tick)
    while True:
        try:
            fault = next(checking)
        except StopIteration as stop:
            samples: int = stop.value
            return ShardReport(redact_url(path), samples, nbytes, faults, further)
        if len(faults) < _MOST_FAULTS:
            faults.append(fault)
        else:
            further += 1


class _Sample(NamedTuple):
    """Arguments of a `FieldReader`.

    Attributes:
        data: the bytes of the sample.
        extra: its row of the extras of the dataset, or None.
        location: of the sample, for errors.
    """

    data: memoryview
    extra: Any
    location: ItemLocation

    def value(self, reader: FieldReader, name: str) -> Any:
        """Return a field, see `FieldReader.read`."""
        (value,) = reader.read(self.data, self.extra, self.location, (name,))
        return value

    def check_image(self, reader: FieldReader, name: str) -> None:
        """Check that a field is one image, as a loader of images and labels needs it.

        Raises:
            ValueError: the sample has no such field, or the field has several values or none.
        """
        value = self.value(reader, name)
        if isinstance(value, list):
            raise SampleFormatError(
                f"the field {name!r} has not one image as those of the first samples: `aioloader.images` refuses the "
                "sample; a dataset with fields=(...) has lists of images",
                path=self.location.path,
                offset=self.location.offset,
                key=self.location.key,
                expected="1 image",
                found=f"{len(value)} images",
            )

    def label(self, reader: FieldReader, name: str) -> Any:
        """Return a field as a label.

        Raises:
            ValueError: the sample has no such field, or it is neither a number nor numbers.
        """
        value = field_value(self.value(reader, name), reader.kind(name), name, self.location)
        return as_label(value, None, name, self.location)


@dataclass(frozen=True)
class _EveryField(Decoder[Any]):
    """Decoder of a sample to numbers of its shard and of its images, which are all decoded, as is every other field.

    Attributes:
        reader: of the fields.
        image: name of a field that must be one image in each sample; None: there is none.
        label: name of a field that each sample must have, and that must be a finite number, or numbers; None: there is
            none.
        max_pixels: see `aioloader.transforms.decode_image`.
    """

    reader: FieldReader
    image: str | None
    label: str | None
    max_pixels: int | None

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> np.int64:
        own = own_extra(extra)
        sample = _Sample(data, own, location)
        if self.image is not None:
            sample.check_image(self.reader, self.image)
        if self.label is not None:
            label = sample.label(self.reader, self.label)
            if not np.isfinite(label).all():
                raise ValueError(f"the label {label} is not a finite number")
        names = self.reader.names(data, own, location)
        images = 0
        for name, value in zip(names, self.reader.read(data, own, location, names), strict=True):
            kind = self.reader.kind(name)
            if kind is FieldKind.IMAGE:
                images += self._decode(value, location)
                continue
            field_value(value, kind, name, location)
        return np.int64(int(extra["file"]) << _COUNT_BITS | min(images, _MOST_IMAGES))

    def _decode(self, value: Any, location: ItemLocation) -> int:
        if isinstance(value, np.ndarray):  # stored as pixels
            return 1
        if isinstance(value, list):
            return sum(self._decode(each, location) for each in value)
        decode_here(value, flag=1, exif="apply", max_pixels=self.max_pixels, path=location.path)
        return 1


def check_samples(
    dataset: ShardDataset,
    *,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> list[ImageCheck]:
    """Decode every image and every other field of all samples, and check the labels.

    A field that the dataset's options name as image or label must be in every sample if it is in one of the first: one
    image, and as label a number, or numbers. A field that has several images in each of the first is not checked so.

    Args:
        dataset: over shards whose samples can be found.
        max_pixels: larger images count as damaged; None for no limit.
        num_workers: workers of the loader; None: one per core.
        executor: "process", "fork", "thread" or "inline".
        tick: called with the number of samples done so far.

    Returns:
        the result for each shard; a damaged sample counts as one image.

    Raises:
        OSError, SampleFormatError: the samples of a shard cannot be found.
    """
    dataset = dataset.with_all_fields()
    image, label = dataset.image_field, dataset.label_field
    has_images = _is_in_first(dataset, lambda reader, sample: sample.check_image(reader, image))
    has_labels = _is_in_first(dataset, lambda reader, sample: sample.label(reader, label))
    decoder = _EveryField(
        dataset.reader, image if has_images else None, label if has_labels else None, max_pixels
    )
    counts = np.zeros(len(dataset.paths), np.int64)

    def add(batch: Array) -> None:
        np.add.at(counts, batch >> _COUNT_BITS, batch & _MOST_IMAGES)

    images = keyed(dataset, decoder)
    errors = make_all(images, num_workers=num_workers, executor=executor, tick=tick, add=add)
    of_shard: list[list[SampleError]] = [[] for _ in dataset.paths]
    for error in errors:
        of_shard[dataset.tables.locate(error.index)[0]].append(error)
    return [
        ImageCheck(count + len(some), some) for count, some in zip(counts.tolist(), of_shard, strict=True)
    ]


def _is_in_first(dataset: ShardDataset, read: Callable[[FieldReader, _Sample], object]) -> bool:
    """Return whether a value can be read from one of the first samples."""
    numbers = np.arange(min(_LOOKED_AT, len(dataset)))
    extras = dataset.extras(numbers)
    reader = dataset.reader
    for number, data in enumerate(fetch_each(dataset, numbers)):
        if isinstance(data, BaseException):  # the check of all samples reports it
            continue
        try:
            read(reader, _Sample(data, None if extras is None else extras[number], dataset.location(number)))
        except (ValueError, EOFError):
            continue
        return True
    return False
