"""Command `aioloader count`: print the number of samples of a data set."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.description = "Print the number of samples of a data set."
    parser.add_argument("source", metavar="PATH", help="the data set, a path, pattern or URL")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from aioloader.formats.opening import open_dataset

    print(len(open_dataset(options.source)))
    return 0
