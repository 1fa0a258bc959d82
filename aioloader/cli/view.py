"""Command `aioloader view`: show a dataset in a browser."""

from __future__ import annotations

import argparse
import sys
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from aioloader.cli.console import Commands, add_max_pixels, natural, positive, size_text, within

if TYPE_CHECKING:
    from aioloader.viewer.collection import Collection

_HOST = "127.0.0.1"


def add(commands: Commands) -> None:
    """Add the command's parser."""
    view = commands.add_parser(
        "view",
        help="show a dataset in a browser: images, fields, labels, boxes, damage, and the augmented samples",
        description="Serve a page with a dataset to the browser of this computer, or write it to files. Needs "
        "pip install 'aioloader[view]'. Ctrl-C stops the server, with exit code 0.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    view.add_argument(
        "path",
        metavar="PATH",
        help="a .rec, .tar, .tfrecord or .parquet file, a folder or pattern of them, an MDS folder, InsightFace's "
        "layout, or a folder with a sub-folder per class; or the URL of one",
    )
    view.add_argument(
        "--image", metavar="FIELD", help="name of the image, for formats whose samples have fields"
    )
    view.add_argument("--label", metavar="FIELD", help="name of the label, for these formats")
    view.add_argument(
        "--port", type=partial(within, 0, 65535), default=8765, metavar="N", help="port; 0: any free one"
    )
    view.add_argument("--host", type=_host, default=_HOST, metavar=_HOST, help="the only allowed value")
    view.add_argument("--no-browser", action="store_true", help="only print the address")
    view.add_argument(
        "--size", type=positive, default=224, metavar="PIXELS", help="side of the augmented samples"
    )
    view.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the loader")
    view.add_argument(
        "--transform",
        metavar="MODULE:NAME",
        help="a transform of yours, which is run to show its results",
    )
    view.add_argument(
        "--per-page",
        type=partial(within, 1, 500),
        default=48,
        metavar="N",
        help="records or samples per page",
    )
    add_max_pixels(view, "refuse images of more pixels than this")
    view.add_argument("--export", metavar="DIR", help="write the pages to files in a folder instead")
    view.add_argument(
        "--limit", type=positive, default=240, metavar="N", help="most records or samples to export"
    )
    view.set_defaults(command=_run)


def _host(text: str) -> str:
    if text != _HOST:
        raise argparse.ArgumentTypeError(
            f"only {_HOST}: anyone who can open the page sees your data. From another machine, forward the port: "
            "ssh -L 8765:127.0.0.1:8765 HOST"
        )
    return text


def _run(options: argparse.Namespace) -> int:
    from aioloader.viewer.opening import open_collection

    # First, so that a wrong path is reported even if the extra is not installed.
    opened = open_collection(
        options.path, image=options.image, label=options.label, max_pixels=options.max_pixels
    )
    with closing(opened) as collection:
        _check_installed(served=options.export is None)
        return _view(options, collection)


def _view(options: argparse.Namespace, collection: Collection) -> int:
    from aioloader.viewer.draws import named_transform
    from aioloader.viewer.site import Options

    name = options.transform
    view_options = Options(
        per_page=options.per_page,
        size=options.size,
        seed=options.seed,
        max_pixels=options.max_pixels,
        custom=None if name is None else (named_transform(name), name),
    )
    if options.export is not None:
        from aioloader.observability.progress import ProgressBar
        from aioloader.viewer.export import export

        with ProgressBar("writing", unit=f"{collection.noun}s") as bar:

            def tick(done: int, total: int) -> None:
                bar.set_total(total)
                bar.update(done)

            report = export(collection, view_options, options.export, limit=options.limit, tick=tick)
        print(
            f"{report.start}: {report.records:,} of {report.count:,} {collection.noun}s, {size_text(report.nbytes)}"
        )
        return 0
    from aioloader.viewer.serve import bound, serve

    listening = bound(options.port)

    def ready(address: str) -> None:
        with suppress(BrokenPipeError):  # nobody reads the output; the page can be opened all the same
            print(address, flush=True)
        print("aioloader: press Ctrl-C to stop", file=sys.stderr, flush=True)
        if not options.no_browser:
            _open_browser(address)

    serve(collection, view_options, listening, ready)
    return 0


def _open_browser(address: str) -> None:
    """Open the browser from another thread, because the server must not wait for it."""
    import threading
    import webbrowser

    threading.Thread(target=webbrowser.open, args=(address,), daemon=True).start()


def _check_installed(*, served: bool) -> None:
    from importlib.util import find_spec

    needed = ("jinja2", "starlette", "uvicorn") if served else ("jinja2",)
    missing = [name for name in needed if find_spec(name) is None]
    if missing:
        raise ValueError(f"`aioloader view` needs {', '.join(missing)}: pip install 'aioloader[view]'")
