"""Command `aioloader repair`: copy the valid records of a damaged record file."""

from __future__ import annotations

import argparse
import os
import shlex
import sys

from aioloader.formats.base import RECORD_SUFFIX

_EXIT_CODES = """\
exit codes:
  0  SRC is valid, and copied
  1  SRC or its index is damaged; every valid record is copied, and each fault is reported on standard error
  2  wrong usage, no such file, or the copy cannot be written
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Copy every valid record of SRC to DST, and write an .idx next to it with the original keys. "
        "SRC is only read.\nA record whose key is unknown is in DST but not in its .idx. Without an .idx of SRC "
        "the keys are 0, 1, 2, ..."
    )
    parser.epilog = _EXIT_CODES
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("source", metavar="SRC", help=f"the {RECORD_SUFFIX} file, or its URL")
    parser.add_argument("destination", metavar="DST", help=f"the {RECORD_SUFFIX} file to write")
    parser.add_argument("--index", metavar="IDX", help="the .idx of SRC (default: the one next to it)")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from aioloader.crop_index.layout import record_index
    from aioloader.formats.shards import recognize_shards
    from aioloader.storage.urls import redact_url
    from aioloader.tools.console import read_progress
    from recordio import repair
    from recordio.__main__ import print_report, run_command

    def work() -> int:
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

    return run_command(work)


def _no_repair(path: str, kind: str) -> str:
    """Return the text of the error for files of another format."""
    name = shlex.quote(path)
    return (
        f"only {RECORD_SUFFIX} files can be repaired, and {path} has the format {kind}: copy the file again if its "
        f"source exists. "
        f"`aioloader verify --decode {name}` lists all damage, a loader with on_error='skip' reads the other samples, "
        f"and `aioloader pack --on-error skip {name} OUT` writes those images to a {RECORD_SUFFIX} file"
    )
