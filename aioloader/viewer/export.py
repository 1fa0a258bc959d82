"""Export of the pages to files that can be opened without a server: links are relative, and all images are included.

All files are written to a temporary folder next to the target, which is renamed when it is complete. A target folder
that contains anything other than an earlier export is not changed.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from aioloader.foundation.version import __version__
from aioloader.viewer.pages import LABELS_PER_PAGE, STATIC_FILES, Pages, static_file
from aioloader.viewer.rendering import label_text
from aioloader.viewer.site import Listing, Options, Shown, Site, StaticLinks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.formats.collection import Collection
    from aioloader.viewer.draws import Draw
    from aioloader.viewer.rendering import RenderedImage

MARK = ".aioloader-view.json"
_DRAWS = 4


@dataclass(frozen=True, slots=True)
class ExportReport:
    """Result of an export.

    Attributes:
        start: path of the first page.
        records: number of exported records.
        count: number of records of the dataset.
        nbytes: total size of the files.
    """

    start: str
    records: int
    count: int
    nbytes: int


def export(
    collection: Collection,
    options: Options,
    folder: str | os.PathLike[str],
    *,
    limit: int,
    tick: Callable[[int, int], None] | None = None,
) -> ExportReport:
    """Write the pages of the first records.

    Args:
        collection: the dataset; closed at the end.
        options: options of the display.
        folder: the target folder: missing, empty, or an earlier export, which is replaced.
        limit: largest number of records.
        tick: called with the number of records written so far, and the number of all records to be written.

    Raises:
        FileExistsError: the folder has other content, or it is a file.
        OSError: a file cannot be read or written.
        ValueError: the records cannot be found.
    """
    target = Path(os.path.abspath(folder))
    _check_place(target)
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.parent / f".{target.name}.{secrets.token_hex(4)}.partial"
    partial.mkdir()  # with the permissions of an ordinary folder, unlike tempfile.mkdtemp
    site = Site(collection, replace(options, exact=False))
    try:
        records, count = anyio.run(_write, site, partial, limit, tick)
        nbytes = sum(path.stat().st_size for path in partial.rglob("*") if path.is_file())
        mark = {"made by": f"aioloader {__version__}", "records": records, "of": count}
        (partial / MARK).write_text(json.dumps(mark, indent=2) + "\n", encoding="utf-8")
        _put_in_place(partial, target)
    finally:
        site.close()
        shutil.rmtree(partial, ignore_errors=True)
    return ExportReport(str(target / "index.html"), records, count, nbytes)


def _check_place(target: Path) -> None:
    if target.is_symlink() or (target.exists() and not target.is_dir()):
        raise FileExistsError(f"{target} is not a folder; choose a new folder")
    if target.is_dir() and any(target.iterdir()) and not (target / MARK).is_file():
        raise FileExistsError(
            f"{target} contains files that are not an earlier export; choose an empty or new folder"
        )


def _put_in_place(partial: Path, target: Path) -> None:
    _check_place(target)
    if not target.exists():
        partial.rename(target)
        return
    former = Path(tempfile.mkdtemp(prefix=f".{target.name}.", suffix=".former", dir=target.parent))
    try:
        target.rename(former / target.name)
        try:
            partial.rename(target)
        except OSError:
            (former / target.name).rename(target)
            raise
    finally:
        shutil.rmtree(former, ignore_errors=True)


async def _write(
    site: Site, folder: Path, limit: int, tick: Callable[[int, int], None] | None
) -> tuple[int, int]:
    await site.load()
    if site.failure:
        raise ValueError(site.failure)
    writer = _Writer(site, folder, limit, tick)
    await writer.write()
    return len(writer.positions), len(site.collection.listing())


class _Writer:
    """Writer of the pages of a loaded site."""

    def __init__(self, site: Site, folder: Path, limit: int, tick: Callable[[int, int], None] | None) -> None:
        self._site = site
        self._folder = folder
        self._tick = tick
        self.positions = [int(place) for place in site.collection.listing()[:limit]]
        self._links = StaticLinks(set(self.positions))
        self._pages = Pages(site, self._links)

    async def write(self) -> None:
        """Write everything."""
        await anyio.to_thread.run_sync(self._prepare)
        per_page = self._site.options.per_page
        by_label: dict[float, list[Shown]] = {}
        everything = Listing(self.positions, True)
        for start in range(0, max(1, len(self.positions)), per_page):
            part = self.positions[start : start + per_page]
            shown = await self._site.thumbs(part)
            for each in shown:
                await self._write_image(f"pictures/{each.record.position}-thumb", each.image)
                for label in _labels_of(each):
                    by_label.setdefault(label, []).append(each)
            number = start // per_page + 1
            await self._text(self._links.page(number), self._pages.grid(everything, shown, number, None))
            for place, each in enumerate(shown, start):
                await self._record(each.record.position, everything)
                if self._tick is not None:
                    self._tick(place + 1, len(self.positions))
        await self._label_pages(by_label)

    def _prepare(self) -> None:
        (self._folder / "pictures").mkdir()
        for name in STATIC_FILES:
            (self._folder / name).write_bytes(static_file(name))

    async def _record(self, position: int, everything: Listing) -> None:
        shown = await self._site.image(position)
        await self._write_image(f"pictures/{position}", shown.image)
        for number, image in enumerate(shown.further):
            if not isinstance(image, str):
                await self._write_image(f"pictures/{position}-image-{number}", image)
        for view in (None, *self._site.draws.pipelines(shown.record)):
            draws: Sequence[Draw] = ()
            if view is not None:
                draws = await self._site.drawn(position, view.name, range(_DRAWS if view.random else 1))
                for draw in draws:
                    await self._write_image(f"pictures/{position}-{view.name}-{draw.epoch}", draw.image)
            text = self._pages.record(shown, everything, view=view, draws=draws, epoch=0)
            await self._text(self._links.record(position, view.name if view else ""), text)

    async def _label_pages(self, by_label: dict[float, list[Shown]]) -> None:
        labels = sorted(by_label)
        per_page = self._site.options.per_page
        for label in labels:
            having = by_label[label]
            listing = Listing([each.record.position for each in having], True)
            for start in range(0, len(having), per_page):
                number = start // per_page + 1
                text = self._pages.grid(listing, having[start : start + per_page], number, label)
                await self._text(self._links.page(number, label_text(label)), text)
        counts = [(label, len(by_label[label])) for label in labels]
        for start in range(0, max(1, len(counts)), LABELS_PER_PAGE):
            number = start // LABELS_PER_PAGE + 1
            done = (len(self.positions), len(self.positions))
            await self._text(self._links.labels(number), self._pages.labels(counts, number, done))

    async def _write_image(self, name: str, image: RenderedImage | None) -> None:
        if image is None:
            return
        suffix = ".png" if image.media_type == "image/png" else ".jpg"
        self._links.suffixes[name] = suffix
        await anyio.to_thread.run_sync((self._folder / f"{name}{suffix}").write_bytes, image.content)

    async def _text(self, name: str, text: str) -> None:
        path = self._folder / name
        await anyio.to_thread.run_sync(lambda: path.write_text(text, encoding="utf-8"))


def _labels_of(shown: Shown) -> set[float]:
    record = shown.record
    if record.boxes:
        return {box.label for box in record.boxes}
    return {label for label in record.labels if label == label}
