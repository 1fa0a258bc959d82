"""Command `aioloader index`: write the .idx of a record file, the indexes of the samples of shards, or crop indexes."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from aioloader.cli.console import natural, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.cli.console import Commands
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.tools.crops import CropReport
    from aioloader.tools.sample_indexes import SampleIndexReport

_EXIT_CODES = """\
tar and TFRecord files: each one gets the index of its samples, NAME.samples next to it; that of a URL, or of a file in
a folder that cannot be written, is in the user's cache directory. An index that fits its file is kept. Parquet files
and MDS folders need no index.

With --crops: write the crop index of each record file, of each shard of another format and of each folder of images,
with which a random crop is decoded without the rest of the image. The images stay unchanged. An interrupted run is
continued by the same command; in an index that exists, entries that still fit are kept. Needs numba:
pip install 'aioloader[crops]'.

exit codes:
  0  the indexes are written, or were there
  1  a file is damaged, and gets no index; `aioloader repair` copies the valid records of a .rec file. With --crops:
     some images cannot be read, and are not in the index; if no image of a file can be read, it gets no index
  2  wrong usage, no such file, or an index cannot be written
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    index = commands.add_parser(
        "index",
        help="write the .idx of a .rec file or the indexes of tar and TFRecord files by scanning them, or with --crops "
        "indexes for decoding crops",
        description="Write the .idx of a .rec file with the keys 0, 1, 2, ... in its order. An old one is replaced.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    index.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a .rec, tar or TFRecord file or its URL, a pattern or a folder of tar or TFRecord files; with --crops "
        "also a Parquet file, an MDS folder, or a folder of images or of .rec files",
    )
    index.add_argument(
        "--out",
        metavar="PATH",
        help="the .idx to write, a path or URL (default: next to the file); with --crops the file to write, or a "
        "directory (default: NAME.crops next to NAME.rec, images.crops in a folder, for URLs the user's cache)",
    )
    index.add_argument("--crops", action="store_true", help="write crop indexes")
    index.add_argument("--remake", action="store_true", help="make indexes or entries that fit again, too")
    index.add_argument("--json", action="store_true", help="print the report as JSON; not for a .rec file")
    group = index.add_argument_group("with --crops")
    group.add_argument("--image", metavar="NAME", help="field of the image, where samples have fields")
    group.add_argument(
        "--num-workers",
        type=natural,
        metavar="N",
        help="number of processes (default: one per core); 0: none",
    )
    index.set_defaults(command=lambda options: _run(options, index))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from recordio.__main__ import run_command

    if options.crops:
        return run_command(lambda: _crops(options, parser))
    if options.num_workers is not None or options.image is not None:
        parser.error("--num-workers and --image can only be used with --crops")

    def run() -> int:
        from aioloader.formats.opening import recognize
        from aioloader.tools.shards import shard_sets

        sets, others = shard_sets(options.files)
        if others and (options.json or options.remake):
            parser.error("--remake and --json cannot be used for the .idx of a .rec file")
        if options.out is not None and (sets or len(others) > 1):
            parser.error("--out can only be used with one .rec file, or with --crops")
        code = _samples(sets, options) if sets else 0
        for path in others:
            if os.path.isdir(path):
                recognize(path)  # an error that describes a folder without a data set
                parser.error(f"{path} is a folder: pass its .rec files, or use --crops to index images")
            _idx(path, options.out)
        return code

    return run_command(run)


def _samples(sets: list[ShardDataset], options: argparse.Namespace) -> int:
    from aioloader.observability.progress import ProgressBar
    from aioloader.tools.sample_indexes import index_all

    reports = []
    count = sum(len(dataset.paths) for dataset in sets)
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
    from aioloader.tools.paths import read_progress
    from aioloader.tools.rec2idx import write_index

    with read_progress("scanning", path) as tick:
        written, count = write_index(path, out, tick=tick)
    print(f"{written}: {count} records")


def _crops(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from aioloader.cli.console import LateProgress, failure_line
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
            parser.error(str(fault))
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
    from aioloader.storage.urls import is_url

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
