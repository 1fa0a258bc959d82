"""Command line: `aioloader COMMAND ...` and `python -m aioloader COMMAND ...`.

Results go to standard output, messages to standard error. A command that fails prints one line with the remedy.

Each command is one module of `aioloader.tools` with the functions ``add_arguments(parser)`` and ``run(options)``, which
returns the exit code. It is imported when the command is named, so that the list of commands prints at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from functools import partial
from typing import TYPE_CHECKING

from aioloader.errors import MissingPackageError
from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

__all__ = ("COMMANDS", "main")

COMMANDS = {
    "demo": "stream images through workers, measure, and draw a batch; downloads nothing",
    "bench": "measure loading of your files with each executor and several numbers of workers",
    "pack": "pack images into {record} files",
    "index": "write the .idx of a {record} file or the indexes of {scanned} files by scanning them, or with --crops "
    "indexes for decoding crops",
    "verify": "check the files of a data set, and with --decode every image",
    "repair": "copy the valid records of a damaged {record} file, with an .idx of their original keys",
    "inspect": "describe a data set: records, labels, images, how fast they decode, and how to load it faster",
    "view": "show a dataset in a browser: images, fields, labels, boxes, damage, and the augmented samples",
    "doctor": "check this machine: cores, memory, limits, libraries, decoding speed; with advice",
}
"""Names of the modules and lines of the help, in its order; the words in braces are those of `help_words`."""

_EXIT_CODES = """\
exit codes:
  0    done
  1    it failed: a file is damaged, a sample cannot be read, a result cannot be written, ...
  2    wrong usage, or there is no such file or folder
  130  interrupted (Ctrl-C)

environment:
  NO_COLOR            no colours
  AIOLOADER_TRACEBACK show Python's traceback when a command fails
  AIOLOADER_TURBOJPEG path of the libjpeg-turbo 3 that decodes crops; empty: none
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        the exit code; see ``--help``.
    """
    words = sys.argv[1:] if argv is None else list(argv)
    named = next((word for word in words if word in COMMANDS), None)
    options = _parser(() if named is None else (named,)).parse_args(words)
    command: Callable[[argparse.Namespace], int] = options.command
    return _guarded(lambda: command(options))


def _guarded(command: Callable[[], int]) -> int:
    try:
        code = command()
        sys.stdout.flush()
        return code
    except KeyboardInterrupt:
        print("aioloader: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:
        # The reader of the output has exited (`| head`): this is not a failure.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("AIOLOADER_TRACEBACK"):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        # These errors describe a problem of the input or of the installation; any other may be a bug of aioloader.
        known = isinstance(error, (OSError, ValueError, MissingPackageError))
        hint = "" if known else " (AIOLOADER_TRACEBACK=1 shows where)"
        print(f"aioloader: error: {text}{hint}", file=sys.stderr)
        return 2 if isinstance(error, (FileNotFoundError, NotADirectoryError)) else 1


def _parser(names: Collection[str] = COMMANDS) -> argparse.ArgumentParser:
    """Return the parser of all commands, with the arguments of some.

    Args:
        names: of these commands; the modules of the others are not imported.
    """
    from aioloader.formats.base import help_words

    parser = argparse.ArgumentParser(
        prog="aioloader",
        description="Load images for training, inside your own event loop.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"aioloader {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    words = help_words()
    for name, text in COMMANDS.items():
        command = commands.add_parser(name, help=text.format(**words))
        if name in names:
            module = importlib.import_module(f"aioloader.tools.{name}")
            module.add_arguments(command)
            command.set_defaults(command=partial(_checked, module.run, command))
    return parser


def _checked(
    run: Callable[[argparse.Namespace], int], parser: argparse.ArgumentParser, options: argparse.Namespace
) -> int:
    """Run a command; if its arguments do not fit each other, print its usage and exit."""
    from aioloader.tools.console import UsageError

    try:
        return run(options)
    except UsageError as error:
        parser.error(str(error))
