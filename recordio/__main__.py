"""Command line: `python -m recordio verify|index|dump FILE` and `repair SRC DST`."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING, Any

from recordio._image import unpack
from recordio._reader import RecordReader
from recordio._verify import Report, build_index, repair, verify
from recordio.errors import CorruptIndexError, CorruptRecordError, HeaderError, RecordIOError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

OK, DAMAGED, USAGE, INTERRUPTED = 0, 1, 2, 130

EXIT_CODES = """\
exit codes:
  0  the file is valid, or the command did everything requested
  1  the file or its index is damaged (each fault is named on standard error); `repair` has written a copy nevertheless
  2  wrong usage, no such file, or the result cannot be written
  130  interrupted (Ctrl-C); no incomplete file is left
"""


def _parser(program: str) -> argparse.ArgumentParser:
    layout: Any = {"epilog": EXIT_CODES, "formatter_class": argparse.RawDescriptionHelpFormatter}
    parser = argparse.ArgumentParser(
        prog=program, description="Check, index, list and repair RecordIO files (.rec, .idx).", **layout
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        return commands.add_parser(name, help=summary, description=summary, **layout)

    command = add("verify", "read the whole file and report every fault")
    command.add_argument("file", metavar="FILE")
    command.add_argument("--index", help="the .idx to check (default: the one next to the file)")
    command.add_argument("--json", action="store_true", help="print the result as JSON")

    command = add("index", "write an .idx with the keys 0, 1, 2, ... in file order")
    command.add_argument("file", metavar="FILE")
    command.add_argument("--out", help="the .idx to write (default: next to the file)")

    command = add("dump", "list the records: position, key, offset, bytes, image header if any")
    command.add_argument("file", metavar="FILE")
    command.add_argument("--index", help="the .idx to use (default: the one next to the file)")
    command.add_argument("--limit", type=int, help="stop after this many records")

    command = add("repair", "copy every readable record to a new file, with an .idx")
    command.add_argument("source", metavar="SRC")
    command.add_argument("destination", metavar="DST")
    command.add_argument("--index", help="the .idx of SRC (default: the one next to it)")
    command.add_argument("--json", action="store_true", help="print the result as JSON")
    return parser


def _print_error(text: str) -> None:
    sys.stderr.write(text + "\n")


def print_report(report: Report, as_json: bool) -> int:
    """Print a report: every fault on standard error and a summary on standard output, or JSON there.

    Returns:
        Exit code.
    """
    if as_json:
        sys.stdout.write(json.dumps(report.facts(), indent=2) + "\n")
    else:
        for problem in report.problems:
            _print_error(f"{report.path}: {problem}")
        sys.stdout.write("".join(f"{line}\n" for line in report.summary()))
    return OK if report.ok else DAMAGED


def _dump(file: str, index: str | None, limit: int | None) -> None:
    with RecordReader(file, index) as reader:
        count = len(reader) if limit is None else max(0, min(limit, len(reader)))
        sys.stdout.write("position\tkey\toffset\tbytes\tflag\tlabel\tid\tid2\n")
        for position in range(count):
            payload = reader[position]
            try:
                header, _ = unpack(payload)
            except HeaderError:
                columns = "-\t-\t-\t-"
            else:
                label = header.label if header.flag == 0 else header.label.tolist()
                columns = f"{header.flag}\t{label}\t{header.id}\t{header.id2}"
            key, offset = reader.index.key_at(position), int(reader.offsets[position])
            sys.stdout.write(f"{position}\t{key}\t{offset}\t{len(payload)}\t{columns}\n")


def _run(options: argparse.Namespace) -> int:
    match options.command:
        case "verify":
            return print_report(verify(options.file, options.index), options.json)
        case "index":
            index = build_index(options.file, options.out)
            sys.stdout.write(f"{index.path}: {len(index)} records\n")
        case "dump":
            _dump(options.file, options.index, options.limit)
        case _:
            return print_report(repair(options.source, options.destination, options.index), options.json)
    return OK


def main(arguments: Sequence[str] | None = None, *, program: str = "python -m recordio") -> int:
    """Run the command line.

    Args:
        arguments: Arguments without the program's name; None: those of this process.
        program: Name of the program in help and usage messages.

    Returns:
        Exit code: 0 valid, 1 damaged, 2 no such file or not writable, 130 interrupted. Wrong usage raises
        SystemExit(2), as argparse does.
    """
    options = _parser(program).parse_args(arguments)
    try:
        return run_command(lambda: _run(options))
    except KeyboardInterrupt:
        _print_error("interrupted")
        return INTERRUPTED


def run_command(command: Callable[[], int]) -> int:
    """Run a command and return its exit code; print an error of the package to standard error and return its code."""
    try:
        code = command()
        sys.stdout.flush()
        return code
    except (CorruptRecordError, CorruptIndexError) as error:
        _print_error(str(error))
        return DAMAGED
    except BrokenPipeError:
        # The reader of our output ended, for example `head`. The file is not damaged.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return OK
    except (RecordIOError, OSError) as error:
        path = error.filename if isinstance(error, OSError) else None
        _print_error(f"{path}: {error}" if path and str(path) not in str(error) else str(error))
        return USAGE


if __name__ == "__main__":
    raise SystemExit(main())
