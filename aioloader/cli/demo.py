"""Command `aioloader demo`: stream, measure and draw."""

from __future__ import annotations

import argparse
import shlex
from typing import TYPE_CHECKING

from aioloader.cli.console import Commands, natural, positive

if TYPE_CHECKING:
    from aioloader.tools.demo import DemoReport


def add(commands: Commands) -> None:
    """Add the command's parser."""
    demo = commands.add_parser(
        "demo",
        help="stream images through workers, measure, and draw a batch; downloads nothing",
        description="Stream two epochs of training batches inside an async function, measure, and draw one batch.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    demo.add_argument(
        "--path", metavar="PATH", help="a .rec file, or a folder of images; without it images are drawn"
    )
    demo.add_argument("--images", type=positive, default=500, metavar="N", help="number of images to draw")
    demo.add_argument("--batch-size", type=positive, default=64, metavar="N", help="images per batch")
    demo.add_argument("--epochs", type=positive, default=2, metavar="N", help="number of epochs")
    demo.add_argument("--size", type=positive, default=224, metavar="PIXELS", help="side of the crops")
    demo.add_argument(
        "--num-workers", type=natural, metavar="N", help="number of workers; without it one per core"
    )
    demo.add_argument(
        "--executor", choices=("process", "thread", "inline"), default="process", help="where to decode"
    )
    demo.add_argument(
        "--out", default="aioloader-sheet.png", metavar="PNG", help="image file to draw the batch to"
    )
    demo.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from aioloader.tools.demo import demo

    arguments = {name: value for name, value in vars(options).items() if name != "command"}
    report = demo(**arguments)
    _print_demo(report, options.executor)
    print(_next_steps(options.path))
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
        f"event loop: a task scheduled every millisecond ran {lag.p50_ms:.2f} ms late at the median, "
        f"{lag.p99_ms:.2f} ms at the 99th percentile ({lag.ticks:,} ticks)"
    )
    print(f"\n{report.explanation}")
    if report.sheet is not None:
        print(f"\nA batch to look at: {report.sheet}")


def _next_steps(path: str | None) -> str:
    """Return the commands and lines to try next, on the caller's own data."""
    own = "PATH" if path is None else shlex.quote(path)
    literal = '"PATH"' if path is None else repr(path)
    asked = (
        ""
        if path is not None
        else " (PATH: a folder of images, a .rec file, tar, TFRecord, Parquet or MDS files)"
    )
    return f"""
Next, with your own data{asked}:

    aioloader inspect {own}    describes it and suggests changes that make loading faster
    aioloader bench {own}      measures executors and numbers of workers on it

    import aioloader

    with aioloader.images({literal}, size=224, batch_size=64, blocking=True) as loader:
        for images, labels in loader: ...        # for tensors: output="torch"

In an async function it is `async with` and `async for`, without blocking=True.

`aioloader --help` lists all commands, `python -m pydoc aioloader.images` the arguments of `images`.{_guides()}"""


def _guides() -> str:
    """Return a line with the address of the guides, which the package's metadata has if the project has a site."""
    from importlib import metadata

    try:
        addresses = metadata.metadata("aioloader").get_all("Project-URL") or []
    except metadata.PackageNotFoundError:  # a checkout that is not installed
        addresses = []
    known: dict[str, str] = dict(address.split(", ", 1) for address in addresses)
    address = known.get("Documentation")
    return f"\nGuides: {address}" if address else ""


def _workers(count: int, executor: str) -> str:
    plural = "" if count == 1 else "es" if executor == "process" else "s"
    return f"by {count} worker {executor}{plural}"
