"""Command `aioloader view`: show a dataset in a browser."""

from __future__ import annotations

import argparse
import os
import sys
from contextlib import closing, suppress
from functools import partial
from typing import TYPE_CHECKING

from aioloader.errors import UnknownFormatError
from aioloader.formats.base import files_text, folders_text, image_folder
from aioloader.formats.image_files import has_loose_images
from aioloader.formats.opening import make_dataset, recognize
from aioloader.foundation.validation import size_text
from aioloader.storage.urls import is_url, path_of
from aioloader.tools.console import add_max_pixels, natural, positive, within
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.viewer.shard_samples import ShardSamples

if TYPE_CHECKING:
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.formats.collection import Collection


_HOST = "127.0.0.1"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Serve a page with a dataset to the browser of this computer, or write it to files. Needs "
        "pip install 'aioloader[view]'. Ctrl-C stops the server, with exit code 0."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "path",
        metavar="PATH",
        help=f"{files_text()}, a folder or pattern of them, {', '.join(folders_text()[:-1])}, or a folder with a "
        "sub-folder per class; or the URL of one",
    )
    parser.add_argument(
        "--image", metavar="FIELD", help="name of the image, for formats whose samples have fields"
    )
    parser.add_argument("--label", metavar="FIELD", help="name of the label, for these formats")
    parser.add_argument(
        "--port", type=partial(within, 0, 65535), default=8765, metavar="N", help="port; 0: any free one"
    )
    parser.add_argument("--host", type=_host, default=_HOST, metavar=_HOST, help="the only allowed value")
    parser.add_argument("--no-browser", action="store_true", help="only print the address")
    parser.add_argument(
        "--size", type=positive, default=224, metavar="PIXELS", help="side of the augmented samples"
    )
    parser.add_argument("--seed", type=natural, default=0, metavar="N", help="seed of the loader")
    parser.add_argument(
        "--transform",
        metavar="MODULE:NAME",
        help="a transform of yours, which is run to show its results",
    )
    parser.add_argument(
        "--per-page",
        type=partial(within, 1, 500),
        default=48,
        metavar="N",
        help="records or samples per page",
    )
    add_max_pixels(parser, "refuse images of more pixels than this")
    parser.add_argument("--export", metavar="DIR", help="write the pages to files in a folder instead")
    parser.add_argument(
        "--limit", type=positive, default=240, metavar="N", help="most records or samples to export"
    )


def _host(text: str) -> str:
    if text != _HOST:
        raise argparse.ArgumentTypeError(
            f"only {_HOST}: anyone who can open the page sees your data. From another machine, forward the port: "
            "ssh -L 8765:127.0.0.1:8765 HOST"
        )
    return text


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""

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
    from aioloader.viewer.app import bound, serve

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


def open_collection(
    path: str | os.PathLike[str],
    *,
    image: str | None = None,
    label: str | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
) -> Collection:
    """Open a dataset of any format; slow steps are left to `load`.

    Args:
        path: as for `aioloader.open_dataset`; files of a pattern or a folder are displayed in the order of their
            names. Or a folder with images only.
        image, label: names of the fields of the image and its label, for formats whose samples have fields; None: the
            default of the format.
        max_pixels: larger images are refused before they are decoded; None for no limit.

    Raises:
        FileNotFoundError: the file or folder does not exist.
        OSError: the file or folder cannot be read.
        TypeError: `image` or `label` is given, and samples of this format have no fields.
        ValueError: the path is not one of these kinds.
    """
    path = path_of(path)
    names = {name: value for name, value in (("image", image), ("label", label)) if value is not None}
    try:
        found = recognize(path)
    except UnknownFormatError:
        if names or is_url(path) or not os.path.isdir(path) or not has_loose_images(path):
            raise
        return image_folder().collection((path,), path=path, max_pixels=max_pixels, labelled=False)
    if not (names or found.format.has_fields):
        return found.format.collection(found.paths, path=path, max_pixels=max_pixels)
    dataset = make_dataset(found, {"max_pixels": max_pixels, "crop_index": None, **names})
    shards: ShardDataset | None = dataset.as_shards()
    if shards is None:
        raise TypeError(f"{path!r} is read by {type(dataset).__name__}, whose samples have no named fields")
    return ShardSamples(shards, path=path, kind=found.format.name, max_pixels=max_pixels)
