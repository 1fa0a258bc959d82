"""Command `aioloader index`: write the .idx of a record file, or crop indexes."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from aioloader.cli.arguments import natural

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.cli.arguments import Commands
    from aioloader.tools.crops import CropReport

_EXIT_CODES = """\
With --crops: write the crop index of each record file and of each folder of images, with which a random crop is
decoded without the rest of the image. The images stay unchanged. An interrupted run is continued by the same command;
in an index that exists, entries that still fit are kept. Needs numba: pip install 'aioloader[crops]'.

exit codes:
  0  the index is written
  1  the file is damaged: nothing is written; `aioloader repair` copies its valid records. With --crops: some images
     cannot be read, and are not in the index; if none can be read, nothing is written
  2  wrong usage, no such file, or the index cannot be written
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    index = commands.add_parser(
        "index",
        help="write the .idx of a .rec file by scanning it, or with --crops an index for decoding crops",
        description="Write an .idx with the keys 0, 1, 2, ... in the order of the file. An existing one is replaced.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    index.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="the .rec file, or its URL; with --crops also several, patterns, and folders of images",
    )
    index.add_argument(
        "--out",
        metavar="PATH",
        help="the .idx to write, a path or URL (default: next to the file); with --crops the file to write, or a "
        "directory (default: NAME.crops next to NAME.rec, images.crops in a folder, for URLs the user's cache)",
    )
    index.add_argument("--crops", action="store_true", help="write crop indexes")
    group = index.add_argument_group("with --crops")
    group.add_argument(
        "--num-workers",
        type=natural,
        metavar="N",
        help="number of processes (default: one per core); 0: none",
    )
    group.add_argument("--remake", action="store_true", help="make all entries again")
    group.add_argument("--json", action="store_true", help="print the report as JSON")
    index.set_defaults(command=lambda options: _run(options, index))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from recordio.__main__ import run_command

    if options.crops:
        return run_command(lambda: _crops(options, parser))
    if len(options.files) > 1 or options.json or options.remake or options.num_workers is not None:
        parser.error("several files, --num-workers, --remake and --json can only be used with --crops")
    return run_command(lambda: _idx(options.files[0], options.out))


def _idx(path: str, out: str | None) -> int:
    from aioloader.tools.paths import read_progress
    from aioloader.tools.rec2idx import write_index

    with read_progress("scanning", path) as tick:
        written, count = write_index(path, out, tick=tick)
    print(f"{written}: {count} records")
    return 0


def _crops(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from aioloader.cli.failures import failure_line
    from aioloader.cli.progress import LateProgress
    from aioloader.tools.crops import index_crops

    with LateProgress("indexing") as progress:
        try:
            reports = index_crops(
                options.files,
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
            for error in report.errors:
                print(failure_line(error, report.path), file=sys.stderr)
            for line in _lines(report):
                print(line)
    return int(any(report.errors for report in reports))


def _lines(report: CropReport) -> Iterator[str]:
    if not report.written:
        yield f"{report.crops}: not written, because none of the {len(report.errors):,} images could be read"
        return
    indexed = f"{report.indexed:,} of {report.images:,} images"
    if report.jpeg_nbytes:
        indexed += f", {report.nbytes / 1e6:,.1f} MB, {report.share:.1%} of these images"
    if report.kept:
        indexed += f"; {report.kept:,} were done before"
    yield f"{report.crops}: {indexed}"
    for reason, count in report.refused.items():
        yield f"  {count:,} without an entry: {reason}"
    if report.errors:
        yield f"  {len(report.errors):,} could not be read"
