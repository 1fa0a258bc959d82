"""Command `aioloader repair`: copy the valid records of a damaged record file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.cli.console import Commands

_EXIT_CODES = """\
exit codes:
  0  SRC is valid, and copied
  1  SRC or its index is damaged; every valid record is copied, and each fault is reported on standard error
  2  wrong usage, no such file, or the copy cannot be written
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    repair = commands.add_parser(
        "repair",
        help="copy the valid records of a damaged .rec file, with an .idx of their original keys",
        description="Copy every valid record of SRC to DST, and write an .idx next to it with the original keys. "
        "SRC is only read.\nA record whose key is unknown is in DST but not in its .idx. Without an .idx of SRC "
        "the keys are 0, 1, 2, ...",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    repair.add_argument("source", metavar="SRC", help="the .rec file, or its URL")
    repair.add_argument("destination", metavar="DST", help="the .rec file to write")
    repair.add_argument("--index", metavar="IDX", help="the .idx of SRC (default: the one next to it)")
    repair.add_argument("--json", action="store_true", help="print the report as JSON")
    repair.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.crop_index.layout import record_index
    from aioloader.storage.urls import redact_url
    from aioloader.tools.paths import read_progress
    from aioloader.tools.shards import recognize_shards
    from recordio import repair
    from recordio.__main__ import print_report, run_command

    def run() -> int:
        shards = recognize_shards(options.source)
        if shards is not None:
            raise ValueError(_no_repair(redact_url(options.source), shards.format.name))
        with read_progress("repairing", options.source, passes=2) as tick:
            report = repair(options.source, options.destination, options.index, tick=tick)
        if os.path.exists(record_index(options.source)):
            # Its entries are found by offset, and records after a gap have other offsets in the copy.
            command = f"aioloader index --crops {shlex.quote(options.destination)}"
            print(f"the crop index of SRC is not copied; `{command}` makes one of DST", file=sys.stderr)
        return print_report(report, options.json)

    return run_command(run)


def _no_repair(path: str, kind: str) -> str:
    """Return the text of the error for files of another format."""
    name = shlex.quote(path)
    return (
        f"only .rec files can be repaired, and {path} has the format {kind}: copy the file again if its source exists. "
        f"`aioloader verify --decode {name}` lists all damage, a loader with on_error='skip' reads the other samples, "
        f"and `aioloader pack --on-error skip {name} OUT` writes those images to a .rec file"
    )
