"""Command line: `aioloader COMMAND ...` and `python -m aioloader COMMAND ...`.

Results go to standard output, messages to standard error. A command that fails prints one line with the remedy.

Each command is one module of this package with a function ``add(commands)``. It adds the command's parser and sets its
default ``command`` to the function that runs it, which takes the parsed arguments and returns the exit code. The work
of a command is in `aioloader.tools`, imported when the command runs, so that help prints at once.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from typing import TYPE_CHECKING

from aioloader.errors import MissingPackageError
from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("COMMANDS", "main")

COMMANDS = ("demo", "bench", "pack", "index", "verify", "repair", "inspect", "view", "doctor")
"""Names of the modules, in the order of the help."""

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
    options = _parser().parse_args(sys.argv[1:] if argv is None else list(argv))
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


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="aioloader",
        description="Load images for training, inside your own event loop.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"aioloader {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)

    for command in COMMANDS:
        importlib.import_module(f"aioloader.cli.{command}").add(commands)
    return parser
