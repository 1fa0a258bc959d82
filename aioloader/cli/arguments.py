"""Command line arguments: an option that several commands have, and types that parse a word or describe its problem."""

from __future__ import annotations

import argparse
from typing import TypeAlias

Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


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
