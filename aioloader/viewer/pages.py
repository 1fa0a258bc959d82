"""HTML pages, rendered by templates that escape all values."""

from __future__ import annotations

import math
import os
from bisect import bisect_left
from typing import TYPE_CHECKING, Any

from aioloader.formats.collection import DAMAGED, EMPTY, FOREIGN, IMAGE, Box, Record
from aioloader.formats.sample_fields import name_text, printable
from aioloader.foundation.version import __version__
from aioloader.storage.urls import is_url, name_of
from aioloader.viewer.rendering import label_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.viewer.draws import Draw, Pipeline
    from aioloader.viewer.site import Listing, ServerLinks, Shown, Site, StaticLinks

LABELS_PER_PAGE = 500
STATIC_FILES = {"view.css": "text/css", "icon.svg": "image/svg+xml"}
"""Media types of the files that all pages use."""
_WORDS = {IMAGE: "", DAMAGED: "damaged", FOREIGN: "no image", EMPTY: "no image"}
_MOST_LABELS_SHOWN = 64
_REFRESH_S = 2
# A menu of more files is a burden for the browser; a file is then chosen by its number.
_MOST_FILES = 300


def static_file(name: str) -> bytes:
    """Read one of `STATIC_FILES`."""
    from importlib.resources import files

    return files("aioloader.viewer").joinpath("static", name).read_bytes()


class Pages:
    """Renderer of the pages of a site. The templates are read here once; rendering does not access a disk.

    Args:
        site: the site.
        links: addresses of all pages and images.

    Raises:
        ModuleNotFoundError: Jinja is not installed.
    """

    def __init__(self, site: Site, links: ServerLinks | StaticLinks) -> None:
        from jinja2 import Environment, PackageLoader, StrictUndefined

        environment = Environment(
            loader=PackageLoader("aioloader.viewer", "templates"),
            autoescape=True,
            undefined=StrictUndefined,
            # Names, and errors that contain them, come from many places; one byte that is not UTF-8 would end the page.
            finalize=lambda value: printable(value) if type(value) is str else value,
            trim_blocks=True,
            lstrip_blocks=True,
        )
        collection = site.collection
        path = collection.path
        if not is_url(path):
            path = os.path.abspath(os.path.expanduser(path))
        environment.globals.update(
            links=links,
            title=printable(name_of(path.rstrip("/")) or collection.path),
            path=printable(path),
            version=__version__,
            label_text=label_text,
            label_words=site.label_words,
            label_name=collection.label_name,
            kind_words=_WORDS,
            noun=collection.noun,
            most_files=_MOST_FILES,
            outlines=_outlines,
        )
        environment.filters["grouped"] = _grouped
        environment.tests["finite"] = math.isfinite  # other labels do not occur in addresses
        environment.filters["nbytes"] = _nbytes
        self._site = site
        self._templates = {
            name: environment.get_template(f"{name}.html") for name in ("grid", "record", "labels", "message")
        }

    def _render(self, name: str, **values: Any) -> str:
        site = self._site
        common = {
            "kind": site.collection.kind,
            "count": site.collection.count,
            "known": site.collection.known,
            "problems": [*site.collection.problems, *([site.failure] if site.failure else [])],
            "files": site.collection.file_names(),
            "no_labels": site.collection.no_labels,
            "refresh": 0,
            "label": "",
            "key": "",
            "here": name,
        }
        text: str = self._templates[name].render({**common, **values})
        return text

    def grid(self, listing: Listing, shown: Sequence[Shown], number: int, label: float | None) -> str:
        """Render a page of records.

        Args:
            listing: all records of the list.
            shown: the records of this page.
            number: number of the page, from 1.
            label: the label that all listed records have; None for a list of all records.
        """
        total = len(listing.positions)
        pages = max(1, math.ceil(total / self._site.options.per_page))
        looked, of = listing.looked_at
        return self._render(
            "grid",
            shown=shown,
            places=[self._place(each.record) for each in shown],
            number=number,
            pages=pages,
            total=total,
            complete=listing.complete,
            first=(number - 1) * self._site.options.per_page + 1,
            label="" if label is None else label_text(label),
            label_title="" if label is None else self._site.label_words(label),
            progress=(looked, of) if looked < of else None,
            refresh=_REFRESH_S if looked < of or not listing.complete else 0,
        )

    def record(
        self, shown: Shown, listing: Listing, *, view: Pipeline | None, draws: Sequence[Draw], epoch: int
    ) -> str:
        """Render the page of one record.

        Args:
            shown: the record with its large image.
            listing: all records, for links to its neighbours.
            view: the chosen chain; None for the stored image.
            draws: results of this chain.
            epoch: epoch of the first result.
        """
        record = shown.record
        before, after, page = _neighbours(listing, record.position, self._site.options.per_page)
        return self._render(
            "record",
            shown=shown,
            record=record,
            facts=_facts(record, self._site),
            labels_shown=record.labels[:_MOST_LABELS_SHOWN],
            labels_left=max(0, len(record.labels) - _MOST_LABELS_SHOWN),
            before=before,
            after=after,
            page=page,
            pipelines=self._site.draws.pipelines(record),
            view=view,
            draws=draws,
            epoch=epoch,
            step=max(1, len(draws)),
            seed=self._site.options.seed,
            key=record.location.key,
        )

    def _place(self, record: Record) -> list[str]:
        """Return the shard and the offset of a sample, for its tile; nothing for other records."""
        if self._site.collection.noun == "record":
            return []
        _, path, at = record.location
        offset = [] if at is None else [f"byte {_grouped(at)}"]
        return [name_text(name_of(path or "")), *offset]

    def labels(self, counts: Sequence[tuple[float, int]], number: int, looked_at: tuple[int, int]) -> str:
        """Render a page of the list of labels.

        Args:
            counts: (label, number of records) of all labels.
            number: number of the page, from 1.
            looked_at: number of records whose labels are known, and number of all records.
        """
        done = looked_at[0] >= looked_at[1]
        part = counts[(number - 1) * LABELS_PER_PAGE : number * LABELS_PER_PAGE]
        return self._render(
            "labels",
            counts=part,
            most=max((count for _, count in part), default=1),
            total=len(counts),
            number=number,
            pages=max(1, math.ceil(len(counts) / LABELS_PER_PAGE)),
            progress=None if done else looked_at,
            refresh=0 if done else _REFRESH_S,
        )

    def message(self, heading: str, text: str, *, refresh: bool = False) -> str:
        """Render a page with only a message."""
        return self._render("message", heading=heading, text=text, refresh=_REFRESH_S if refresh else 0)


def _neighbours(listing: Listing, position: int, per_page: int) -> tuple[int | None, int | None, int]:
    """Return the positions of the records before and after one, and the number of its page."""
    positions = listing.positions
    place = bisect_left(positions, position)
    inside = place < len(positions) and int(positions[place]) == position
    before = int(positions[place - 1]) if place > 0 else None
    after_place = place + 1 if inside else place
    after = int(positions[after_place]) if after_place < len(positions) else None
    return before, after, min(place, max(0, len(positions) - 1)) // per_page + 1


def _facts(record: Record, site: Site) -> list[tuple[str, str]]:
    """Return the names and values of all facts of a record except its labels."""
    facts = [("key", str(record.location.key))]
    index = site.collection.index(record.position)
    if index is not None:
        facts.append(("index", _grouped(index)))
    names = site.collection.file_names()
    if names:
        name = "file" if site.collection.noun == "record" else "shard"
        facts.append((name, names[site.collection.file_of(record.position)]))
    if record.location.offset is not None:
        facts.append(("offset", f"{_grouped(record.location.offset)} bytes"))
    if record.sample_nbytes is not None:
        nbytes = record.sample_nbytes
        facts.append(("sample", f"{_grouped(nbytes)} bytes ({_nbytes(nbytes)})"))
    if record.header is not None:
        flag, number, second = record.header
        words = "one label" if flag == 0 else f"{flag:,} labels"
        facts += [("flag", f"{flag} ({words})"), ("id", str(number)), ("id2", str(second))]
    if record.nbytes:
        text = f"({_nbytes(record.nbytes)})"
        if record.sample_nbytes is None:
            facts.append(("bytes", f"{_grouped(record.nbytes)} {text}"))
        else:
            facts.append(("image", f"{_grouped(record.nbytes)} bytes {text}"))
    if record.image is not None:
        kind, height, width, orientation = record.image
        facts.append(("format", kind.upper() if kind != "raw" else "raw pixels"))
        if width:
            facts.append(("dimensions", f"{width:,} \u00d7 {height:,} pixels"))
        if orientation not in (None, 1):
            facts.append(("EXIF", f"orientation {orientation}, displayed upright"))
    if record.boxes:
        facts.append(("boxes", str(len(record.boxes))))
    if record.text_label:
        facts.append(("label", record.text_label))
    return facts


def _outlines(boxes: Sequence[Box], width: int, height: int) -> list[dict[str, Any]]:
    """Convert boxes to the pixels of an image, to be drawn over it."""
    found = []
    for box in boxes:
        left, top = box.left * width, box.top * height
        found.append(
            {
                "x": round(left, 2),
                "y": round(top, 2),
                "width": round(max(0.0, box.right * width - left), 2),
                "height": round(max(0.0, box.bottom * height - top), 2),
                "label": label_text(box.label),
            }
        )
    return found


def _grouped(number: int) -> str:
    return f"{number:,}".replace(",", "\u202f")


def _nbytes(number: int) -> str:
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{value:.3g} {unit}"
