"""Command `aioloader index`: write the .idx of a record file, the indexes of the samples of shards, or crop indexes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.datasets.resolve import version_at
from aioloader.datasets.shard_dataset import fault_line
from aioloader.errors import SampleFormatError
from aioloader.formats.base import RECORD_SUFFIX, Format, in_words, usual_formats
from aioloader.foundation.validation import size_text
from aioloader.sample_index import cached_index, index_beside, load_index, shard_state, write_index
from aioloader.storage.urls import is_url, redact_url
from aioloader.tools.console import LateProgress, UsageError, failure_line, natural, read_progress

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.tools.crops import CropReport


_EPILOG = """\
{scanned} files: each one gets the index of its samples, NAME.samples next to it; that of a URL, or of a file in
a folder that cannot be written, is in the user's cache directory. An index that fits its file is kept. \
{complete} need no index.

With --crops: write the crop index of each record file, of each shard of another format and of each folder of images,
with which a random crop is decoded without the rest of the image. The images stay unchanged. An interrupted run is
continued by the same command; in an index that exists, entries that still fit are kept. Without
the compiled part of aioloader it takes a hundred times as long.

exit codes:
  0  the indexes are written, or were there
  1  a file is damaged, and gets no index; {repair}. With --crops:
     some images cannot be read, and are not in the index; if no image of a file can be read, it gets no index
  2  wrong usage, no such file, or an index cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    scanned, complete = _formats(scanned=True), _formats(scanned=False)
    parser.description = (
        f"Write the .idx of a {RECORD_SUFFIX} file with the keys 0, 1, 2, ... in its order. An old one "
        "is replaced."
    )
    parser.epilog = _EPILOG.format(
        scanned=in_words((each.name for each in scanned), "and"),
        complete="\nand ".join(
            f"{each.name} {'files' if each.has_shards else 'folders'}" for each in complete
        ),
        repair=f"`aioloader repair` copies the valid records of a {RECORD_SUFFIX} file",
    )
    names = in_words(each.name for each in scanned)
    others = [each.folder_text or f"a {each.name} file" for each in complete]
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help=f"a {RECORD_SUFFIX}, {names} file or its URL, a pattern or a folder of {names} files; with --crops also "
        f"{', '.join(others)}, or a folder of images or of {RECORD_SUFFIX} files",
    )
    parser.add_argument(
        "--out",
        metavar="PATH",
        help="the .idx to write, a path or URL (default: next to the file); with --crops the file to write, or a "
        f"directory (default: NAME.crops next to NAME{RECORD_SUFFIX}, images.crops in a folder, for URLs the user's "
        "cache)",
    )
    parser.add_argument("--crops", action="store_true", help="write crop indexes")
    parser.add_argument("--remake", action="store_true", help="make indexes or entries that fit again, too")
    parser.add_argument(
        "--json", action="store_true", help=f"print the report as JSON; not for a {RECORD_SUFFIX} file"
    )
    group = parser.add_argument_group("with --crops")
    group.add_argument("--image", metavar="NAME", help="field of the image, where samples have fields")
    group.add_argument(
        "--num-workers",
        type=natural,
        metavar="N",
        help="number of processes (default: one per core); 0: none",
    )


def _formats(*, scanned: bool) -> list[Format]:
    return [each for each in usual_formats() if each.has_fields and each.scanned is scanned]


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from recordio.__main__ import run_command

    if options.crops:
        return run_command(lambda: _crops(options))
    if options.num_workers is not None or options.image is not None:
        raise UsageError("--num-workers and --image can only be used with --crops")

    def work() -> int:
        from aioloader.formats.opening import recognize
        from aioloader.formats.shards import open_shards, shard_sets

        sets, others = shard_sets(options.files)
        if others and (options.json or options.remake):
            raise UsageError(f"--remake and --json cannot be used for the .idx of a {RECORD_SUFFIX} file")
        if options.out is not None and (sets or len(others) > 1):
            raise UsageError(f"--out can only be used with one {RECORD_SUFFIX} file, or with --crops")
        shards = [open_shards(each) for each in sets if each.format.has_fields]
        plain = [redact_url(path) for each in sets if not each.format.has_fields for path in each.paths]
        code = _samples(shards, plain, options) if sets else 0
        for path in others:
            if os.path.isdir(path):
                recognize(path)  # an error that describes a folder without a data set
                raise UsageError(
                    f"{path} is a folder: pass its {RECORD_SUFFIX} files, or use --crops to index images"
                )
            _idx(path, options.out)
        return code

    return run_command(work)


def _samples(sets: list[ShardDataset], plain: list[str], options: argparse.Namespace) -> int:
    from aioloader.observability.progress import ProgressBar

    reports = [SampleIndexReport(path) for path in plain]
    count = len(plain) + sum(len(dataset.paths) for dataset in sets)
    with ProgressBar("indexing", count, unit="shards") as bar:
        for dataset in sets:
            for report in index_all(dataset, remake=options.remake):
                reports.append(report)
                bar.update(len(reports))
    if options.json:
        print(json.dumps({"files": [report.facts() for report in reports]}, indent=2))
    else:
        _print_samples(reports)
    return int(any(not report.ok for report in reports))


def _print_samples(reports: list[SampleIndexReport]) -> None:
    for report in reports:
        if report.fault:
            print(report.fault, file=sys.stderr)
        if report.index:
            kept = "; it was made before, and fits" if report.kept else ""
            of = "" if report.index.startswith(report.path) else f" of {report.path}"
            print(f"{report.index}{of}: {report.samples:,} samples, {report.nbytes:,} bytes{kept}")
    needless = [report.path for report in reports if report.ok and not report.index]
    if needless:
        others = len(needless) - 1
        files = f"{needless[0]} and {others:,} other file{'s' * (others > 1)}" if others else needless[0]
        print(f"{files}: no index is needed, because the places of the samples are in the data set")


def _idx(path: str, out: str | None) -> None:
    from aioloader.tools.rec2idx import write_index

    with read_progress("scanning", path) as tick:
        written, count = write_index(path, out, tick=tick)
    print(f"{written}: {count} records")


def _crops(options: argparse.Namespace) -> int:
    from aioloader.tools.crops import index_crops

    with LateProgress("indexing") as progress:
        try:
            reports = index_crops(
                options.files,
                image=options.image,
                out=options.out,
                num_workers=options.num_workers,
                remake=options.remake,
                begin=progress.begin,
                tick=progress.tick,
            )
        except ValueError as fault:
            if type(fault) is not ValueError:
                raise  # derived classes are errors of files, and this one is that of options
            raise UsageError(str(fault)) from None
        except KeyboardInterrupt:
            print("aioloader: run the same command again to continue", file=sys.stderr)
            raise
    if options.json:
        print(json.dumps({"files": [report.facts() for report in reports]}, indent=2))
    else:
        for report in reports:
            if report.fault:
                print(report.fault, file=sys.stderr)
            for error in report.errors:
                print(failure_line(error, report.path), file=sys.stderr)
            for line in _lines(report):
                print(line)
    return int(not all(report.ok for report in reports))


def _lines(report: CropReport) -> Iterator[str]:

    if report.fault:
        return
    if not report.written:
        yield f"{report.crops}: not written, because none of the {len(report.errors):,} images could be read"
        return
    indexed = f"{report.indexed:,} of {report.images:,} images"
    if report.jpeg_nbytes:
        indexed += f", {size_text(report.nbytes)}, {report.share:.1%} of these images"
    if report.kept:
        indexed += f"; {report.kept:,} were done before"
    of = f" of {report.path}" if is_url(report.path) else ""
    yield f"{report.crops}{of}: {indexed}"
    for reason, count in report.refused.items():
        yield f"  {count:,} without an entry: {reason}"
    if report.errors:
        yield f"  {len(report.errors):,} could not be read"


# Scans of remote shards wait for the network; those of local ones compute.
_REMOTE_SCANS = 16


@dataclass(frozen=True, slots=True)
class SampleIndexReport:
    """Result of making the index of one shard.

    Attributes:
        path: the shard.
        index: the index; "" if there is none.
        samples: number of samples in it.
        nbytes: its size.
        kept: there was one that fits, and it stays as it is.
        ok: there is an index, or none is needed.
        fault: why there is none, or why it is not next to the shard; "" otherwise.
    """

    path: str
    index: str = ""
    samples: int = 0
    nbytes: int = 0
    kept: bool = False
    ok: bool = True
    fault: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def index_all(dataset: ShardDataset, *, remake: bool = False) -> Iterator[SampleIndexReport]:
    """Make the indexes of all shards of a dataset, and yield the reports in order.

    Args:
        dataset: the dataset.
        remake: see `index_samples`.

    Raises:
        OSError: as for `index_samples`.
    """
    workers = _REMOTE_SCANS if dataset.reads_ahead else 1
    with ThreadPoolExecutor(workers, "aioloader-scan") as pool:
        yield from pool.map(
            lambda number: index_samples(dataset, number, remake=remake), range(len(dataset.paths))
        )


def index_samples(dataset: ShardDataset, number: int, *, remake: bool = False) -> SampleIndexReport:
    """Make the index of a shard: next to it, or of a URL, or in a folder that cannot be written, in the user's cache.

    Args:
        dataset: over the shard.
        number: of the shard.
        remake: make an index that fits again, too.

    Returns:
        the report; that of a damaged shard, or of one that needs no index, has none. One that cannot be opened is
        not `ok`.

    Raises:
        OSError: the shard cannot be read, or no index can be written.
    """
    path = dataset.paths[number]
    name = redact_url(path)
    if dataset.index_kind is None:
        reasons = {} if dataset.opens_whole else dataset.only([number]).openable()[1]
        fault = next(iter(reasons.values()), "")
        return SampleIndexReport(name, ok=not fault, fault=fault)
    version = version_at(path)
    before = shard_state(path, version)
    if before is None:
        text = "the server does not identify the version of this object, so no index of it is kept"
        return SampleIndexReport(name, ok=False, fault=f"{name}: {text}")
    places = [cached_index(path)] if is_url(path) else [index_beside(path), cached_index(path)]
    if not remake and load_index(path, before, dataset.index_kind, places[:1]) is not None:
        return _report(dataset, number, places[0], kept=True)
    try:
        index = dataset.scan_shard(number)
    except SampleFormatError as error:
        return SampleIndexReport(name, ok=False, fault=fault_line(name, error))
    if version is None and shard_state(path) != before:
        return SampleIndexReport(name, ok=False, fault=f"{name}: the file changed while it was read")
    fault = ""
    for place in places:
        try:
            write_index(place, index, before)
        except OSError as error:
            if place == places[-1]:
                raise
            fault = f"{name}: {place} cannot be written: {error.strerror}"
        else:
            break
    return _report(dataset, number, place, fault=fault)


def _report(
    dataset: ShardDataset, number: int, place: str, *, kept: bool = False, fault: str = ""
) -> SampleIndexReport:
    samples = len(dataset.only([number]))  # read as a loader reads it
    name = redact_url(dataset.paths[number])
    return SampleIndexReport(name, place, samples, os.path.getsize(place), kept=kept, fault=fault)
