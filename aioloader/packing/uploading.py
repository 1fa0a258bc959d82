"""Packing to a URL: into a temporary folder first, and from there, when all is complete, to where it belongs."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioloader.storage.urls import is_url, locate, name_of, path_of, sibling

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.packing.report import PackReport

__all__ = ("to_urls",)

F = TypeVar("F", bound="Callable[..., PackReport]")


def to_urls(pack: F) -> F:
    """A function that packs to a path, as one that packs to a URL as well.

    Args:
        pack: takes source and place, and options.
    """

    plain: Callable[..., PackReport] = pack

    @functools.wraps(pack)
    def packs(source: Any, out: Any, **options: Any) -> PackReport:
        out = path_of(out)
        if not is_url(out):
            return plain(source, out, **options)
        if options.get("json") is not None:
            raise ValueError("where the files go to a URL the report does, too: json cannot be given")
        name = name_of(out)
        if not name:
            raise ValueError(f"{out!r} is no name of a file")
        locate(out)
        with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
            report = plain(source, Path(folder, name), **options)
            report.urls = _upload(Path(folder), out)
        return report

    return cast("F", packs)


def _upload(folder: Path, out: str) -> tuple[str, ...]:
    """Put all files of a folder beside a URL; gives their URLs, record files first."""
    from aioloader.storage.remote.upload import delete, upload

    files = sorted(folder.iterdir(), key=lambda path: (path.suffix != ".rec", path.name))
    urls = tuple(sibling(out, path.name) for path in files)
    # Without an .idx a reader scans, which is slow and right; with the old one it would be wrong.
    for path, url in zip(files, urls, strict=True):
        if path.suffix == ".idx":
            delete(url)
    for path, url in zip(files, urls, strict=True):
        upload(path, url)
    return urls
