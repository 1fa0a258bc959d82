"""`aioloader pack`: a folder of images into a .rec file."""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING

from aioloader.commands.arguments import error_limit, natural, positive

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.commands import Commands
    from aioloader.errors import SampleError
    from aioloader.tools.pack import PackReport

__all__ = ("add",)


def add(commands: Commands) -> None:
    """Say what arguments it takes."""
    pack = commands.add_parser(
        "pack",
        help="pack a folder of images into a .rec file",
        description="Pack a folder with one sub-folder per class into OUT.rec, OUT.idx and OUT.lst: in sorted order, "
        "and byte for byte where nothing else is asked for.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    pack.add_argument("source", metavar="SRC", help="the folder")
    pack.add_argument(
        "out", metavar="OUT", help="the .rec file to write, with or without its ending, or its URL"
    )
    pack.add_argument("--shuffle", action="store_true", help="mix the records")
    pack.add_argument("--seed", type=natural, default=0, metavar="N", help="of the shuffled order")
    pack.add_argument(
        "--tile",
        action="store_true",
        help="rewrite JPEGs, pixels unchanged, so that a crop can be decoded without the rest; needs jpegtran",
    )
    pack.add_argument(
        "--encoding",
        choices=("keep", "raw"),
        default="keep",
        help="raw: pixels instead of JPEG; read without a decoder, several times as large",
    )
    pack.add_argument(
        "--resize",
        type=positive,
        metavar="PIXELS",
        help="make images smaller whose shorter side is longer than this; they become JPEGs unless raw",
    )
    pack.add_argument("--quality", type=positive, default=95, metavar="N", help="of those JPEGs, 1 to 100")
    pack.add_argument(
        "--num-workers", type=positive, metavar="N", help="threads that encode; without it one per core"
    )
    pack.add_argument(
        "--on-error",
        choices=("raise", "skip", "replace"),
        default="raise",
        help="images that cannot be read or are damaged: skip leaves them out, replace puts the next sound one "
        "in their place; both name them",
    )
    pack.add_argument(
        "--max-errors",
        type=error_limit,
        metavar="N",
        help="how many may fail before packing is given up; less than 1: which share of them",
    )
    pack.add_argument("--error-report", metavar="JSON", help="file to write what failed to")
    pack.add_argument(
        "--max-pixels",
        type=natural,
        default=178_956_970,
        metavar="N",
        help="refuse images of more pixels than this, as the datasets do by default; 0: no limit",
    )
    pack.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.errors import TooManyErrorsError
    from aioloader.progress_bar import ProgressBar
    from aioloader.tools.pack import list_images, pack

    with ProgressBar("packing", len(list_images(options.source)[1])) as bar:
        try:
            report = pack(
                options.source,
                options.out,
                shuffle=options.shuffle,
                seed=options.seed,
                encoding=options.encoding,
                tile=options.tile,
                resize=options.resize,
                quality=options.quality,
                num_workers=options.num_workers,
                on_error=options.on_error,
                max_errors=options.max_errors,
                max_pixels=options.max_pixels or None,
                tick=bar.update,
            )
        except TooManyErrorsError as error:
            _write_errors(options.error_report, error.errors)
            raise
    for failed in report.errors:
        done = "left out" if failed.replaced_by is None else "replaced"
        print(f"aioloader: {done} {failed.path}: {failed.reason}", file=sys.stderr)
    _write_errors(options.error_report, report.errors)
    print(
        f"{report.rec}: {report.records:,} records of {len(report.classes) or 1} classes, {report.nbytes / 1e6:,.1f} MB"
    )
    for line in _pack_details(report, options.tile):
        print(line)
    return 0


def _write_errors(path: str | None, errors: Sequence[SampleError]) -> None:
    from aioloader.errors import error_report

    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(error_report(errors), file, indent=2)
            file.write("\n")


def _pack_details(report: PackReport, tile: bool) -> Iterator[str]:
    """What was done to the images, one line each; nothing where all stay as they are."""
    if report.resized:
        yield f"{report.resized:,} made smaller"
    if tile:
        yield f"{report.tiled:,} tiled"
    for reason, count in report.kept.items():
        yield f"{count:,} left as they were: {reason}"
    if report.image_nbytes != report.source_nbytes:
        change = report.image_nbytes / report.source_nbytes - 1
        yield (
            f"images: {report.source_nbytes / 1e6:,.1f} MB before, {report.image_nbytes / 1e6:,.1f} MB now "
            f"({change:+.1%})"
        )
    if report.skipped:
        yield f"{len(report.skipped):,} left out"
    if report.replaced:
        yield f"{report.replaced:,} replaced by the next sound image"
    if report.outside:
        yield f"{report.outside:,} outside of the classes' folders, and therefore not packed"
    if report.empty:
        yield f"{len(report.empty):,} folders without images are no classes: {', '.join(report.empty[:5])}"
