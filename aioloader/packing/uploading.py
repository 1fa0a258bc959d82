"""Packing to a URL: the files are written to a temporary folder and uploaded when all are complete."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioloader.storage.urls import is_url, locate, name_of, path_of, sibling

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aioloader.packing.report import PackReport

F = TypeVar("F", bound="Callable[..., PackReport]")


def to_urls(pack: F) -> F:
    """Extend a function that packs to a path, so that it also packs to a URL.

    Args:
        pack: takes the source, the output and options.
    """

    plain: Callable[..., PackReport] = pack

    @functools.wraps(pack)
    def packs(source: object, out: str | os.PathLike[str], **options: Any) -> PackReport:
        path = path_of(out)
        if not is_url(path):
            return plain(source, path, **options)
        if options.get("json") is not None:
            raise ValueError("the report of files at a URL is uploaded next to them: leave out json")
        name = name_of(path)
        if not name:
            raise ValueError(f"{path!r} does not end in a file's name")
        locate(path)
        with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
            report = plain(source, Path(folder, name), **options)
            report.urls = _upload(Path(folder), path)
        return report

    return cast("F", packs)


def _upload(folder: Path, out: str) -> tuple[str, ...]:
    """Upload all files of a folder next to a URL; return their URLs, record files first."""
    from aioloader.storage.remote.upload import delete, upload

    files = sorted(folder.iterdir(), key=lambda path: (path.suffix != ".rec", path.name))
    urls = tuple(sibling(out, path.name) for path in files)
    # Without an .idx a reader scans the file, which is slow but correct; an outdated .idx would be wrong.
    for path, url in zip(files, urls, strict=True):
        if path.suffix == ".idx":
            delete(url)
    for path, url in zip(files, urls, strict=True):
        upload(path, url)
    return urls
