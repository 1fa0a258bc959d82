"""Command `aioloader index`: write the .idx of a record file."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.cli.arguments import Commands

_EXIT_CODES = """\
exit codes:
  0  the index is written
  1  the file is damaged: nothing is written; `aioloader repair` copies its valid records
  2  wrong usage, no such file, or the index cannot be written
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    index = commands.add_parser(
        "index",
        help="write the .idx of a .rec file by scanning it",
        description="Write an .idx with the keys 0, 1, 2, ... in the order of the file. An existing one is replaced.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    index.add_argument("file", metavar="FILE", help="the .rec file, or its URL")
    index.add_argument(
        "--out", metavar="IDX", help="the .idx to write, a path or URL (default: next to the file)"
    )
    index.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.tools.paths import read_progress
    from aioloader.tools.rec2idx import write_index
    from recordio.__main__ import run_command

    def index() -> int:
        with read_progress("scanning", options.file) as tick:
            path, count = write_index(options.file, options.out, tick=tick)
        print(f"{path}: {count} records")
        return 0

    return run_command(index)
