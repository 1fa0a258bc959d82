"""Console of the commands: shared arguments, lines about failures, a progress bar, sizes.

Command line arguments: an option that several commands have, and types that parse a word or describe its problem.

Lines about images that could not be read or decoded.

Progress bar of work whose amount is known only once it has been prepared.

Sizes in the output of commands.
"""

from __future__ import annotations

import argparse
import os
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from aioloader.datasets.resolve import version_at
from aioloader.observability.progress import ProgressBar
from aioloader.storage.local.descriptors import check_regular

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.errors import SampleError


class UsageError(Exception):
    """Error raised when arguments of a command do not fit each other; the command line prints its usage."""


def arguments(options: argparse.Namespace, *others: str) -> dict[str, Any]:
    """Return the values of a command's options by name, without the command's own name and the `others`."""
    return {name: value for name, value in vars(options).items() if name not in ("command", *others)}


def add_max_pixels(parser: argparse._ActionsContainer, text: str) -> None:
    """Add the option for the largest number of pixels; its value is None if there is no limit."""
    parser.add_argument(
        "--max-pixels", type=_pixel_limit, default=178_956_970, metavar="N", help=f"{text}; 0: no limit"
    )


def natural(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def positive(text: str) -> int:
    number = natural(text)
    if not number:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def within(low: int, high: int, text: str) -> int:
    number = natural(text)
    if not low <= number <= high:
        raise argparse.ArgumentTypeError(f"must be {low} to {high}")
    return number


def _pixel_limit(text: str) -> int | None:
    return natural(text) or None


def real(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def seconds(text: str) -> float:
    value = real(text)
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return value


def share(text: str) -> float:
    value = real(text)
    if not 0 < value < 1:
        raise argparse.ArgumentTypeError("must be between 0 and 1")
    return value


def error_limit(text: str) -> float:
    from aioloader.loader.options import check_max_errors

    try:
        limit = int(text) if text.strip().isdigit() else float(text)
        check_max_errors(limit)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of images nor a share less than 1"
        ) from None
    return limit


def failure_line(error: SampleError, path: str) -> str:
    """Return a line with the place of a failed image, and the reason.

    Args:
        error: its error.
        path: the data set, for an error without a path.
    """
    place = error.path or path
    if error.offset is not None:
        key = "no key" if error.key is None else f"key {error.key!r}"
        place += f": byte {error.offset}, {key}"
    elif error.key is not None:
        place += f": key {error.key!r}"
    return f"{place}: {_without_place(error.reason, error.path)}"


def _without_place(reason: str, path: str | None) -> str:
    """Return the type of an error and its text without the place at its beginning: "PATH: " or "PATH, byte 7: "."""
    kind, _, text = reason.partition(": ")
    if not path or not text.startswith((f"{path}: ", f"{path}, byte ")):
        return reason
    return f"{kind}: {text[len(path) :].partition(': ')[2]}"


class LateProgress:
    """Progress bars of the parts of some work, one after the other, as a context manager.

    Args:
        label: the work, in a word or two.
    """

    def __init__(self, label: str) -> None:
        self._label = label
        self._bar: ProgressBar | None = None

    def __enter__(self) -> LateProgress:
        return self

    def __exit__(self, *error: object) -> None:
        self._close()

    def begin(self, count: int) -> None:
        """Show the bar of the next part, which has `count` images; nothing if it has none."""

        self._close()
        self._bar = ProgressBar(self._label, count) if count else None

    def tick(self, done: int) -> None:
        """Show the number of images of this part that are done."""
        if self._bar is not None:
            self._bar.update(done)

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.close()
            self._bar = None


_MB = 1_000_000
_LEAST_NBYTES = 200 * _MB


@contextmanager
def read_progress(label: str, path: str, passes: int = 1) -> Iterator[Callable[[int], None] | None]:
    """Show a progress bar while a file is read; small files get none.

    Args:
        label: name of the activity, a word or two.
        path: the file, or its URL; a missing file is left to the code that reads it.
        passes: number of times that the file is read.

    Yields:
        a function to be called with the number of bytes read so far, or None.

    Raises:
        OSError: it is not a regular file: reading a pipe would block, and a device has no end.
    """
    nbytes = 0
    version = version_at(path)
    if version is not None:
        nbytes = passes * version.nbytes
    elif os.path.exists(path) and not os.path.isdir(path):
        status = os.stat(path)
        check_regular(status, path)
        nbytes = passes * status.st_size
    if nbytes < _LEAST_NBYTES:
        yield None
        return
    with ProgressBar(label, -(-nbytes // _MB), unit="MB") as bar:
        yield lambda done: bar.update(-(-done // _MB))
