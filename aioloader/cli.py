"""The command line: `aioloader COMMAND ...` and `python -m aioloader COMMAND ...`.

Results go to standard output, messages to standard error. A command that fails says so in one line, with what to do.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import TYPE_CHECKING

from aioloader._version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.errors import SampleError
    from aioloader.tools.demo import DemoReport
    from aioloader.tools.pack import PackReport

__all__ = ("main",)

_EXIT_CODES = """\
exit codes:
  0    done
  1    it failed: a file is damaged, a sample cannot be read, a result cannot be written, ...
  2    wrong usage, or there is no such file or folder
  130  interrupted (Ctrl-C)

environment:
  NO_COLOR            no colours
  AIOLOADER_TRACEBACK show Python's traceback when a command fails
  AIOLOADER_TURBOJPEG path of the libjpeg-turbo 3 that crops are decoded with; empty: none
"""

# Commands of the file format itself: its own command line does them.
_FORMAT_COMMANDS = {
    "index": "write the .idx of a .rec file by scanning it",
    "verify": "check the structure of a .rec file, and its .idx",
    "repair": "copy the good records of a damaged .rec file",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        the exit code; see ``--help``.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if words and words[0] in _FORMAT_COMMANDS:
        return _guarded(lambda: _format_command(words))
    options = _parser().parse_args(words)
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
        # The reader of our output has left (`| head`): not our failure, and nobody to tell.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except Exception as error:
        if os.environ.get("AIOLOADER_TRACEBACK"):
            raise
        text = " ".join(str(error).split()) or type(error).__name__
        # Such errors say what is wrong with the input; any other may be our own mistake.
        hint = "" if isinstance(error, (OSError, ValueError)) else " (AIOLOADER_TRACEBACK=1 shows where)"
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

    demo = commands.add_parser(
        "demo",
        help="stream images through workers, measure, and draw a batch; downloads nothing",
        description="Stream two epochs of training batches inside an async function, measure, and draw one batch.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument(
        "--path", metavar="PATH", help="a .rec file, or a folder of images; without it they are drawn"
    )
    demo.add_argument("--images", type=_positive, default=500, metavar="N", help="how many images to draw")
    demo.add_argument("--batch-size", type=_positive, default=64, metavar="N", help="images of a batch")
    demo.add_argument("--epochs", type=_positive, default=2, metavar="N", help="passes over the data")
    demo.add_argument("--size", type=_positive, default=224, metavar="PIXELS", help="side of the crops")
    demo.add_argument("--num-workers", type=_natural, metavar="N", help="workers; without it one per core")
    demo.add_argument(
        "--executor", choices=("process", "thread", "inline"), default="process", help="where to decode"
    )
    demo.add_argument("--out", default="aioloader-sheet.png", metavar="PNG", help="where to draw the batch")
    demo.set_defaults(command=_demo)

    bench = commands.add_parser(
        "bench",
        help="measure loading of your own files: which executor, how many workers, what is left to gain",
        description="Measure loading of a .rec file or a folder with each executor and some numbers of workers, beside "
        "a bare decode loop on the same files.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    bench.add_argument("path", metavar="PATH", help="a .rec file, or a folder with one sub-folder per class")
    bench.add_argument("--size", type=_positive, default=224, metavar="PIXELS", help="side of the images")
    bench.add_argument("--batch-size", type=_positive, default=64, metavar="N", help="images of a batch")
    bench.add_argument("--eval", action="store_true", help="centre crops in order, as for validation")
    bench.add_argument("--rounds", type=_positive, default=3, metavar="N", help="turns of the best settings")
    bench.add_argument(
        "--seconds", type=_seconds, default=2.0, metavar="S", help="that a turn is counted for"
    )
    bench.set_defaults(command=_bench)

    pack = commands.add_parser(
        "pack",
        help="pack a folder of images into a .rec file",
        description="Pack a folder with one sub-folder per class into OUT.rec, OUT.idx and OUT.lst: in sorted order, "
        "and byte for byte where nothing else is asked for.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    pack.add_argument("source", metavar="SRC", help="the folder")
    pack.add_argument("out", metavar="OUT", help="the .rec file to write, with or without its ending")
    pack.add_argument("--shuffle", action="store_true", help="mix the records")
    pack.add_argument("--seed", type=_natural, default=0, metavar="N", help="of the shuffled order")
    pack.add_argument(
        "--tile",
        action="store_true",
        help="rewrite JPEGs, pixels unchanged, so that a crop can be decoded without the rest; needs jpegtran",
    )
    pack.add_argument(
        "--encoding",
        choices=("keep", "raw"),
        default="keep",
        help="raw: pixels instead of JPEG; read without a decoder, several times as large",
    )
    pack.add_argument(
        "--resize",
        type=_positive,
        metavar="PIXELS",
        help="make images smaller whose shorter side is longer than this; they become JPEGs unless raw",
    )
    pack.add_argument("--quality", type=_positive, default=95, metavar="N", help="of those JPEGs, 1 to 100")
    pack.add_argument(
        "--num-workers", type=_positive, metavar="N", help="threads that encode; without it one per core"
    )
    pack.add_argument(
        "--on-error",
        choices=("raise", "skip", "replace"),
        default="raise",
        help="images that cannot be read or are damaged: skip leaves them out, replace puts the next sound one "
        "in their place; both name them",
    )
    pack.add_argument(
        "--max-errors",
        type=_error_limit,
        metavar="N",
        help="how many may fail before packing is given up; less than 1: which share of them",
    )
    pack.add_argument("--error-report", metavar="JSON", help="file to write what failed to")
    pack.add_argument(
        "--max-pixels",
        type=_natural,
        default=178_956_970,
        metavar="N",
        help="refuse images of more pixels than this, as the datasets do by default; 0: no limit",
    )
    pack.set_defaults(command=_pack)

    for name, text in _FORMAT_COMMANDS.items():
        commands.add_parser(name, help=text, add_help=False)
    return parser


def _positive(text: str) -> int:
    number = _natural(text)
    if not number:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError("must be more than 0")
    return seconds


def _error_limit(text: str) -> float:
    from aioloader.options import check_max_errors

    try:
        limit = int(text) if text.strip().isdigit() else float(text)
        check_max_errors(limit)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of images nor a share less than 1"
        ) from None
    return limit


def _natural(text: str) -> int:
    try:
        number = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None
    if number < 0:
        raise argparse.ArgumentTypeError("must not be negative")
    return number


def _format_command(words: list[str]) -> int:
    from recordio.__main__ import main as recordio_main

    return recordio_main(words, program="aioloader")


def _pack(options: argparse.Namespace) -> int:
    from aioloader.errors import TooManyErrorsError
    from aioloader.progress_bar import ProgressBar
    from aioloader.tools.pack import list_images, pack

    with ProgressBar("packing", len(list_images(options.source)[1])) as bar:
        try:
            report = pack(
                options.source,
                options.out,
                shuffle=options.shuffle,
                seed=options.seed,
                encoding=options.encoding,
                tile=options.tile,
                resize=options.resize,
                quality=options.quality,
                num_workers=options.num_workers,
                on_error=options.on_error,
                max_errors=options.max_errors,
                max_pixels=options.max_pixels or None,
                tick=bar.update,
            )
        except TooManyErrorsError as error:
            _write_errors(options.error_report, error.errors)
            raise
    for failed in report.errors:
        done = "left out" if failed.replaced_by is None else "replaced"
        print(f"aioloader: {done} {failed.path}: {failed.reason}", file=sys.stderr)
    _write_errors(options.error_report, report.errors)
    print(
        f"{report.rec}: {report.records:,} records of {len(report.classes) or 1} classes, {report.nbytes / 1e6:,.1f} MB"
    )
    for line in _pack_details(report, options.tile):
        print(line)
    return 0


def _write_errors(path: str | None, errors: Sequence[SampleError]) -> None:
    from aioloader.errors import error_report

    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(error_report(errors), file, indent=2)
            file.write("\n")


def _pack_details(report: PackReport, tile: bool) -> Iterator[str]:
    """What was done to the images, one line each; nothing where all stay as they are."""
    if report.resized:
        yield f"{report.resized:,} made smaller"
    if tile:
        yield f"{report.tiled:,} tiled"
    for reason, count in report.kept.items():
        yield f"{count:,} left as they were: {reason}"
    if report.image_nbytes != report.source_nbytes:
        change = report.image_nbytes / report.source_nbytes - 1
        yield (
            f"images: {report.source_nbytes / 1e6:,.1f} MB before, {report.image_nbytes / 1e6:,.1f} MB now "
            f"({change:+.1%})"
        )
    if report.skipped:
        yield f"{len(report.skipped):,} left out"
    if report.replaced:
        yield f"{report.replaced:,} replaced by the next sound image"
    if report.outside:
        yield f"{report.outside:,} outside of the classes' folders, and therefore not packed"
    if report.empty:
        yield f"{len(report.empty):,} folders without images are no classes: {', '.join(report.empty[:5])}"


def _bench(options: argparse.Namespace) -> int:
    from aioloader.options import available_cores
    from aioloader.progress_bar import ProgressBar
    from aioloader.tools.bench import bench, bench_table, default_settings, existing, turns

    path = existing(options.path)
    settings = default_settings(available_cores())
    with ProgressBar("measuring", turns(options.rounds, settings), unit="turns") as bar:
        report = bench(
            path,
            size=options.size,
            batch_size=options.batch_size,
            train=not options.eval,
            seconds=options.seconds,
            rounds=options.rounds,
            settings=settings,
            tick=bar.update,
        )
    print(bench_table(report))
    return 0


def _demo(options: argparse.Namespace) -> int:
    from aioloader.tools.demo import demo

    report = demo(
        options.path,
        images=options.images,
        batch_size=options.batch_size,
        epochs=options.epochs,
        size=options.size,
        num_workers=options.num_workers,
        executor=options.executor,
        out=options.out,
    )
    _print_demo(report, options.executor)
    return 0


def _print_demo(report: DemoReport, executor: str) -> None:
    height, width, channels = report.shape or (0, 0, 0)
    where = "in the loop itself" if executor == "inline" else _workers(report.workers, executor)
    total = sum(epoch.images for epoch in report.epochs)
    print(
        f"\n{total:,} images, cropped and flipped at random to {width} x {height} x {channels}, made {where}.\n"
    )
    for number, epoch in enumerate(report.epochs):
        print(
            f"epoch {number}: {epoch.images:,} images in {epoch.seconds:.2f} s, {epoch.images_per_s:,.0f} images/s; "
            f"first batch after {epoch.first_batch_s * 1e3:,.0f} ms"
        )
    lag = report.lag
    print(
        f"event loop: a task beside it that wants to run every millisecond ran {lag.p50_ms:.2f} ms late at the median, "
        f"{lag.p99_ms:.2f} ms at the 99th percentile ({lag.ticks:,} ticks)"
    )
    print(f"\n{report.explanation}")
    if report.sheet is not None:
        print(f"\nA batch to look at: {report.sheet}")


def _workers(count: int, executor: str) -> str:
    plural = "" if count == 1 else "es" if executor == "process" else "s"
    return f"by {count} worker {executor}{plural}"
