"""What the pages show, made in threads and kept for a while. The event loop only waits here.

One pool of threads reads and decodes; a thread of its own finds all records and, when labels are first asked for, reads
the headers.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.threads import Threads
from aioloader.viewer.cache import Cache
from aioloader.viewer.collection import NoSuchRecordError
from aioloader.viewer.draws import Draw, Draws
from aioloader.viewer.labels import Labels
from aioloader.viewer.pictures import Picture, Pictures
from aioloader.viewer.records import label_text, parse_label

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from anyio.abc import TaskGroup

    from aioloader.foundation.types import IntArray
    from aioloader.viewer.collection import Collection, Contents
    from aioloader.viewer.records import Record

__all__ = ("Listing", "Options", "Shown", "Site", "StillReadingError", "etag")

THUMB_SIDE = 320
IMAGE_SIDE = 1280
_CACHE_NBYTES = 96 << 20
_RECORD_NBYTES = 1024
_TOGETHER = 4
_PATIENCE_S = 3.0
_FIRST_PAGE_S = 2.0


class StillReadingError(Exception):
    """What is asked for is not known yet; it is being read, and asking again helps."""


@dataclass(frozen=True, slots=True)
class Options:
    """How a dataset is shown.

    Attributes:
        per_page: records of a page.
        size: side of pictures as the trainer sees them, pixels.
        seed: of the loader that they are of.
        draws: how many of them a page shows.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        custom: a transform of the user's, and what it is called.
        exact: pictures as the trainer sees them keep every pixel's value; False: they are JPEGs, which are smaller.
    """

    per_page: int = 48
    size: int = 224
    seed: int = 0
    draws: int = 8
    max_pixels: int | None = None
    custom: tuple[Callable[..., Any], str] | None = None
    exact: bool = True


@dataclass(frozen=True, slots=True)
class Shown:
    """A record and its picture; None if there is none, which `record.problem` explains."""

    record: Record
    picture: Picture | None


@dataclass(frozen=True, slots=True)
class Listing:
    """Some of all records, in order.

    Attributes:
        positions: of them, as far as they are known.
        complete: they are all known.
        looked_at: records whose labels were looked at so far, of how many; equal if that is done or not needed.
    """

    positions: Sequence[int] | IntArray
    complete: bool
    looked_at: tuple[int, int] = (0, 0)


def etag(picture: Picture) -> str:
    """A name for a picture's bytes."""
    return f'"{hashlib.sha256(picture.content).hexdigest()[:24]}"'


class Site:
    """A collection with everything that is shown of it.

    Args:
        collection: closed by `close`.
        options: how it is shown.

    Attributes:
        collection, options: as given.
        failure: why not all records could be found; empty if they were, or are still looked for.
    """

    def __init__(self, collection: Collection, options: Options) -> None:
        self.collection = collection
        self.options = options
        self.failure = ""
        custom, custom_name = options.custom or (None, "")
        self.draws = Draws(
            collection,
            size=options.size,
            seed=options.seed,
            custom=custom,
            custom_name=custom_name,
            exact=options.exact,
        )
        self._pictures = Pictures(options.max_pixels)
        self._cache = Cache(_CACHE_NBYTES)
        self._threads = Threads(available_cores(), "aioloader-view")
        self._reader = Threads(1, "aioloader-view-reader")
        self._ready = anyio.Event()
        self._wanted = anyio.Event()
        self._labels: Labels | None = None
        self._labels_moved = anyio.Event()
        self._counts: list[tuple[float, int]] | None = None
        self._tasks: TaskGroup | None = None

    def close(self) -> None:
        """End the threads and close the files; not in an event loop, because it waits for what they do."""
        self._threads.close()
        self._reader.close()
        self.collection.close()

    def start(self, tasks: TaskGroup) -> None:
        """Begin to find all records, in a task of the group."""
        self._tasks = tasks
        tasks.start_soon(self._load)

    async def _load(self) -> None:
        # The first page needs the first records only: it is made before this takes a core from it.
        with anyio.move_on_after(_FIRST_PAGE_S):
            await self._wanted.wait()
        try:
            # Searching a large file takes minutes, for which nobody waits who wants to leave.
            await self._reader.run_abandonable(self.collection.load, abandoned=lambda: None)
        except (OSError, ValueError) as error:
            self.failure = " ".join(str(error).split())
        finally:
            self._ready.set()

    @property
    def loading(self) -> bool:
        """Whether records are still being found."""
        return not self._ready.is_set()

    async def loaded(self) -> None:
        """Wait until all records are found, or that has failed."""
        self._wanted.set()
        await self._ready.wait()

    async def _know(self, stop: int) -> None:
        """Wait a while for records up to one to be known.

        Raises:
            StillReadingError: it took too long.
        """
        if self.collection.known >= stop:
            return
        self._wanted.set()
        with anyio.move_on_after(_PATIENCE_S):
            await self._ready.wait()
        if self.loading:
            raise StillReadingError

    # -- which records

    async def everything(self, stop: int) -> Listing:
        """All records; up to `stop` of them are known then, if there are so many."""
        await self._know(stop)
        return Listing(self.collection.listing(), not self.loading)

    async def labelled(self, label: float) -> Listing:
        """The records with a label, as far as they are known: the first ones after a short while."""
        labels = await self._reading_labels()
        found = await self._threads.run(labels.matches, label)
        return Listing(found, labels.complete, (labels.done, labels.count))

    def label_of(self, text: str) -> float:
        """The label that a text names: a number, or the name of a class.

        Links have numbers, so that of a class counts before another class's name that is a number too.

        Raises:
            ValueError: neither.
        """
        named = self.collection.label_of_name(text)
        if named is None:
            return parse_label(text)
        try:
            label = parse_label(text)
        except ValueError:
            return named
        return label if self.collection.label_name(label) else named

    async def label_counts(self) -> tuple[list[tuple[float, int]], tuple[int, int]]:
        """(label, records with it) of all labels, and how many records were looked at, of how many."""
        labels = await self._reading_labels()
        if self._counts is None:
            counts = await self._threads.run(labels.counts)
            if not labels.complete:
                return counts, (labels.done, labels.count)
            self._counts = counts
        return self._counts, (labels.count, labels.count)

    async def _reading_labels(self) -> Labels:
        """The labels, of which some are known, or all after a short while."""
        if self._labels is None:
            await self._know(1 << 62)
            assert self._tasks is not None
            if self._labels is None:
                self._labels = Labels(self.collection, self.collection.known)
                self._tasks.start_soon(self._read_labels, self._labels)
        labels = self._labels
        with anyio.move_on_after(_PATIENCE_S / 6):
            while not labels.complete:
                await self._labels_moved.wait()
        return labels

    async def _read_labels(self, labels: Labels) -> None:
        while not labels.complete:
            try:
                labels.add(await self._reader.run(labels.read))
            except (OSError, ValueError) as error:
                self.failure = f"the labels cannot be read: {' '.join(str(error).split())}"
                labels.count = labels.done
            moved, self._labels_moved = self._labels_moved, anyio.Event()
            moved.set()

    async def find(self, key: str, file: int | None) -> int:
        """The position of the record with a key.

        Raises:
            NoSuchRecordError: there is none.
            StillReadingError: it is not known yet.
        """
        await self._know(1 << 62)
        return await self._reader.run(self.collection.find, key, file)

    # -- what they look like

    async def thumbs(self, positions: Sequence[int]) -> list[Shown]:
        """The records at some positions with their small pictures; raises as `image`."""
        for position in positions:
            await self._check(position)
        shown = await self._shown(positions, THUMB_SIDE)
        self._wanted.set()
        return shown

    async def image(self, position: int) -> Shown:
        """A record with its large picture.

        Raises:
            NoSuchRecordError: there is no such record.
            StillReadingError: it is not known yet.
        """
        await self._check(position)
        return (await self._shown([position], IMAGE_SIDE))[0]

    async def thumb(self, position: int) -> Shown:
        """A record with its small picture; raises as `image`."""
        await self._check(position)
        return (await self._shown([position], THUMB_SIDE))[0]

    async def contents(self, position: int) -> Contents:
        """A record with its bytes; raises as `image`."""
        await self._check(position)
        return await self._threads.run(self.collection.read, position)

    async def _check(self, position: int) -> None:
        await self._know(position + 1)
        if not 0 <= position < self.collection.known:
            raise NoSuchRecordError(
                f"there is no record number {position:,}: there are {self.collection.known:,}"
            )

    async def _shown(self, positions: Sequence[int], side: int) -> list[Shown]:
        found: dict[int, Shown] = {}
        missing = []
        for position in positions:
            held = self._cache.get((side, position))
            if held is None:
                missing.append(position)
            else:
                found[position] = held

        async def some(part: Sequence[int]) -> None:
            for shown in await self._threads.run(self._make, part, side):
                found[shown.record.position] = shown
                self._keep((side, shown.record.position), shown, shown.picture)

        async with anyio.create_task_group() as tasks:
            for start in range(0, len(missing), _TOGETHER):
                tasks.start_soon(some, missing[start : start + _TOGETHER])
        return [found[position] for position in positions]

    def _make(self, positions: Sequence[int], side: int) -> list[Shown]:
        return [Shown(*self._pictures.make(self.collection.read(position), side)) for position in positions]

    def _keep(self, key: Any, value: Any, picture: Picture | None) -> None:
        self._cache.put(key, value, _RECORD_NBYTES + (len(picture.content) if picture else 0))

    async def drawn(self, position: int, view: str, epochs: Sequence[int]) -> list[Draw]:
        """What the chain named `view` makes of a record in some epochs.

        Raises:
            NoSuchRecordError: there is no such record, or no such chain for it.
            StillReadingError: it is not known yet.
        """
        found = {epoch: self._cache.get((view, position, epoch)) for epoch in epochs}
        missing = [epoch for epoch, draw in found.items() if draw is None]
        if missing:
            contents = await self.contents(position)
            pipeline = self.draws.pipeline(view, contents.record)
            if pipeline is None:
                raise NoSuchRecordError(f"there is no chain named {view[:40]!r} for this record")
            if contents.data is None:
                raise NoSuchRecordError(f"this record cannot be read: {contents.record.problem}")

            async def some(part: Sequence[int]) -> None:
                for epoch in part:
                    make = partial(self.draws.make, contents, pipeline, epoch)
                    draw = found[epoch] = await self._threads.run(make)
                    self._keep((view, position, epoch), draw, draw.picture)

            async with anyio.create_task_group() as tasks:
                for start in range(0, len(missing), _TOGETHER):
                    tasks.start_soon(some, missing[start : start + _TOGETHER])
        return [found[epoch] for epoch in epochs]

    def label_words(self, label: float) -> str:
        """A label with the name of its class."""
        name = self.collection.label_name(label)
        return f"{label_text(label)} {name}" if name else label_text(label)
