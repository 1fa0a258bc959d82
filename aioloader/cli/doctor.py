"""Command `aioloader doctor`: report problems of this machine for loading."""

from __future__ import annotations

import argparse
import json

from aioloader.cli.console import Commands, real


def add(commands: Commands) -> None:
    """Add the command's parser."""
    doctor = commands.add_parser(
        "doctor",
        help="check this machine: cores, memory, limits, libraries, decoding speed; with advice",
        description="Check this machine and this Python: cores, memory, limits, libraries and their vector "
        "instructions, and how fast JPEGs are decoded. Prints each problem, why it matters, and what to do.",
        epilog="exit codes: 0: no problems, 1: problems were found, 2: wrong usage",
    )
    doctor.add_argument("--json", action="store_true", help="print a JSON object")
    doctor.add_argument(
        "--seconds",
        type=_duration,
        default=1.0,
        metavar="S",
        help="approximate duration of the decoding benchmark; 0: none (1)",
    )
    doctor.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.tools.doctor import diagnosis_text, examine

    diagnosis = examine(options.seconds)
    print(json.dumps(diagnosis.as_json(), indent=2) if options.json else diagnosis_text(diagnosis))
    return 0 if diagnosis.ok else 1


def _duration(text: str) -> float:
    value = real(text)
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600")
    return value
