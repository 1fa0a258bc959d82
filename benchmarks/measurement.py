"""Command line and turns of a measurement, which is a function from options to rows of figures.

Standard library only, and Python 3.8: a side of a comparison may run in the environment of a contender.
"""

from __future__ import annotations

import argparse
import asyncio
import inspect
import os
import re
import sys
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.figures import plain_tables, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import TypeVar

    from benchmarks.figures import Row

    K = TypeVar("K")
    T = TypeVar("T")


_KINDS = {"int": int, "float": float, "str": str, "Path": Path}


def run(measure: Callable[..., Any], **smoke: Any) -> list[Row]:
    """Run a measurement from the command line: print its rows as tables, write them as ``--json FILE`` says.

    Args:
        measure: returns rows, or a coroutine of rows. Each of its arguments is an option, which the line in its
            docstring explains; the default of `data` is the variable AIOLOADER_BENCH_DATA.
        smoke: values in place of options with ``--smoke``, a check that it runs.
    """
    parser = parser_of(measure)
    parser.add_argument("--smoke", action="store_true", help="a check that it runs, not a measurement")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    options = vars(parser.parse_args())
    path = options.pop("json")
    path = path and path.absolute()
    found = measure(**{**options, **smoke} if options.pop("smoke") else options)
    rows: list[Row] = list((asyncio.run(found) if inspect.iscoroutine(found) else found) or ())
    print("\n".join(plain_tables(rows)), end="\n" if rows else "")
    write_figures(path, rows)
    return rows


def parser_of(taker: Callable[..., Any]) -> argparse.ArgumentParser:
    """Return a parser with an option for each argument of a function, or of a dataclass.

    Its default is that of the argument, and the line that explains it that of the docstring; the default of `data` is
    the variable AIOLOADER_BENCH_DATA. Parsed options have the names of the arguments.
    """
    module = sys.modules[taker.__module__]
    name = Path(str(module.__file__)).stem
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks" if name == "__main__" else f"python -m benchmarks.{name}",
        description=module.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    helps = dict(re.findall(r"^ +(\w+): (.+)", taker.__doc__ or "", re.MULTILINE))
    for name, parameter in inspect.signature(taker).parameters.items():
        kind, default = parameter.annotation.partition(" | ")[0], parameter.default
        text = helps.get(name, "").replace("%", "%%")
        many = re.match(r"(?:list|Sequence)\[(\w+)\]", kind)
        options: dict[str, Any] = {"dest": name, "default": default, "help": text}
        if kind == "bool":
            options["action"] = "store_true"
        else:
            options.update(type=_KINDS[many[1] if many else kind], nargs="+" if many else None)
            options["help"] += f" ({default})" if default not in (None, ()) else ""
        if name == "data":
            options["default"] = os.environ.get("AIOLOADER_BENCH_DATA")
            options["help"] = "folder of JPEG files; default: AIOLOADER_BENCH_DATA, else drawn images"
        parser.add_argument(f"--{name.rstrip('_').replace('_', '-')}", **options)
    return parser


def in_turns(ways: Mapping[K, Callable[[], T]], rounds: int, warm: int = 1) -> dict[K, list[T]]:
    """Call all ways in each round, in reversed order in every other one; return what each found.

    Args:
        ways: by name.
        rounds: their number.
        warm: rounds before them that do not count: they start workers and fill caches.
    """
    found: dict[K, list[T]] = {name: [] for name in ways}
    for number in range(-warm, rounds):
        if rounds > 1:
            print(f"round {number + 1} of {rounds}", file=sys.stderr)
        for name in list(ways)[:: -1 if number % 2 else 1]:
            value = ways[name]()
            if number >= 0:
                found[name].append(value)
    return found


def taken(take: Callable[[], int]) -> tuple[float, float]:
    """Return samples/s of a call that returns how many it took, and CPU seconds a sample of this process's tree."""
    from aioloader.tools.bench import cpu_seconds

    used, begin = cpu_seconds(os.getpid()) or 0.0, perf_counter()
    count = take()
    seconds = perf_counter() - begin
    return count / seconds, ((cpu_seconds(os.getpid()) or 0.0) - used) / count


def seconds_of(
    call: Callable[[], object], clock: Callable[[], float] = perf_counter, calls: int = 1
) -> float:
    """Return the seconds that a call takes: the mean of some in a row."""
    begin = clock()
    for _ in range(calls):
        call()
    return (clock() - begin) / calls
