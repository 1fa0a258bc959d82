"""Content of the pages, computed in threads and cached. The event loop only waits for the threads.

One pool of threads reads; one makes small images and one the others, for which no page waits long. A separate thread
finds all records and, after the first request for labels, reads the headers.

Addresses of pages and images, on the server and in an export. No code here performs I/O.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import anyio
import numpy as np

from aioloader.formats.collection import IMAGE, Collection, Contents, LabelChunk, NoSuchRecordError, Record
from aioloader.formats.sample_fields import printable
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.lru_cache import LRUCache
from aioloader.foundation.threads import Threads
from aioloader.viewer.draws import Draw, Draws
from aioloader.viewer.rendering import ImageRenderer, RenderedImage, fitted, label_text, parse_label

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Sequence

    from anyio.abc import TaskGroup

    from aioloader.formats.collection import Collection
    from aioloader.formats.sample_fields import SampleField
    from aioloader.foundation.types import Array, IntArray


class ServerLinks:
    """Addresses of the server's routes.

    Args:
        token: part of the addresses of images, so that a browser does not display those of another session.

    Attributes:
        static: the pages are files without a server, so forms cannot work.
    """

    static = False

    def __init__(self, token: str) -> None:
        self._token = token

    def style(self) -> str:
        """Return the address of the style sheet."""
        return f"/view.css?v={self._token}"

    def icon(self) -> str:
        """Return the address of the icon."""
        return f"/icon.svg?v={self._token}"

    def page(self, number: int, label: str = "") -> str:
        """Return the address of a page of records, from 1; with `label`, of the records with this label."""
        query = {"label": label} if label else {}
        if number != 1:
            query["page"] = str(number)
        return f"/?{urlencode(query)}" if query else "/"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        """Return the address of a record; with `view`, as augmented by this chain from an epoch on."""
        query = {"at": str(position)}
        if view:
            query["view"] = view
        if epoch:
            query["epoch"] = str(epoch)
        return f"/?{urlencode(query)}"

    def labels(self, number: int = 1) -> str:
        """Return the address of a page of the list of labels, from 1."""
        return "/labels" if number == 1 else f"/labels?page={number}"

    def thumb(self, position: int) -> str:
        """Return the address of the small image."""
        return f"/thumb/{position}?v={self._token}"

    def image(self, position: int) -> str:
        """Return the address of the large image."""
        return f"/image/{position}?v={self._token}"

    def further(self, position: int, number: int) -> str:
        """Return the address of an image in the fields of a sample."""
        return f"/image/{position}?{urlencode({'number': number, 'v': self._token})}"

    def original(self, position: int, field: int | None = None) -> str:
        """Return the address of the stored bytes: of the image, or of one field of a sample."""
        return f"/original/{position}" if field is None else f"/original/{position}?field={field}"

    def draw(self, position: int, view: str, epoch: int) -> str:
        """Return the address of the result of a chain in an epoch."""
        return f"/draw/{position}?{urlencode({'view': view, 'epoch': epoch, 'v': self._token})}"


class StaticLinks:
    """Names of the files of an export, all in one folder; the same methods as `ServerLinks`.

    An empty name means that the page does not exist: no link is displayed.

    Args:
        positions: positions of the exported records.

    Attributes:
        suffixes: extensions of the written images, by name without extension.
    """

    static = True

    def __init__(self, positions: set[int]) -> None:
        self.suffixes: dict[str, str] = {}
        self._positions = positions

    def style(self) -> str:
        return "view.css"

    def icon(self) -> str:
        return "icon.svg"

    def page(self, number: int, label: str = "") -> str:
        if label:
            return f"label-{label}.html" if number == 1 else f"label-{label}-page-{number}.html"
        return "index.html" if number == 1 else f"page-{number}.html"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        if position not in self._positions or epoch:
            return ""
        return f"record-{position}-{view}.html" if view else f"record-{position}.html"

    def labels(self, number: int = 1) -> str:
        return "labels.html" if number == 1 else f"labels-page-{number}.html"

    def _image_file(self, name: str) -> str:
        return name + self.suffixes.get(name, ".jpg")

    def thumb(self, position: int) -> str:
        return self._image_file(f"pictures/{position}-thumb")

    def image(self, position: int) -> str:
        return self._image_file(f"pictures/{position}")

    def further(self, position: int, number: int) -> str:
        return self._image_file(f"pictures/{position}-image-{number}")

    def original(self, position: int, field: int | None = None) -> str:
        return ""

    def draw(self, position: int, view: str, epoch: int) -> str:
        return self._image_file(f"pictures/{position}-{view}-{epoch}")


# EXIF orientations from here on swap height and width.
_FIRST_TURNED = 5
THUMB_SIDE = 320
IMAGE_SIDE = 1280
FURTHER_SIDE = 480
_CACHE_NBYTES = 96 << 20
_RECORD_NBYTES = 1024
_TOGETHER = 4
PATIENCE_S = 3.0
_FIRST_PAGE_S = 2.0
# How long a page waits for its images; the others come into it when they are made.
_IMAGES_S = 1.0
_MADE_LATER = "it takes long to make; load this page again in a moment"

Key = TypeVar("Key", bound="Hashable")
Value = TypeVar("Value", bound="Shown | Draw")


class StillReadingError(Exception):
    """Error raised when the requested records are still being read, or augmented; try again later."""


class NoLabelsError(Exception):
    """Error raised when the labels of all records are not read; its text is the reason."""


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the display.

    Attributes:
        per_page: records per page.
        size: side of augmented images in pixels.
        seed: seed of the loader.
        draws: number of augmented images per page.
        max_pixels: larger images are refused before they are decoded; None for no limit.
        custom: the user's transform and its name.
        exact: keep every pixel's value of augmented images; False: encode them as JPEGs, which are smaller.
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
    """Record and its rendered image; without an image, `record.problem` states the reason.

    Attributes:
        record: the record.
        image: its image.
        fields: the fields of a sample; only for the page of one sample.
        further: the images in these fields, by their numbers: rendered, or the reason why not; "" for `main`.
        main: number of the image in `further` that `image` displays; None if it is none of them.
        fields_left: number of fields that are not in `fields`.
        later: (width, height) of the image that is still being made, or None.
    """

    record: Record
    image: RenderedImage | None
    fields: tuple[SampleField, ...] = ()
    further: tuple[RenderedImage | str, ...] = ()
    main: int | None = None
    fields_left: int = 0
    later: tuple[int, int] | None = None

    @property
    def size(self) -> tuple[int, int] | None:
        """Return width and height of its image, also of one that is still being made; None without an image."""
        return self.later if self.image is None else (self.image.width, self.image.height)

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes in the cache, in bytes, approximately."""
        images = [self.image, *self.further]
        texts = sum(len(field.text) + len(field.problem) for field in self.fields)
        return (
            _RECORD_NBYTES * (1 + len(self.fields))
            + 4 * texts
            + sum(len(image.content) for image in images if isinstance(image, RenderedImage))
        )


@dataclass(frozen=True, slots=True)
class Listing:
    """List of some records in order.

    Attributes:
        positions: the positions that are known so far.
        complete: all positions are known.
        looked_at: (number of records whose labels have been read, number of all records); the two are equal when all
            labels have been read or none are needed.
    """

    positions: Sequence[int] | IntArray
    complete: bool
    looked_at: tuple[int, int] = (0, 0)


class _Making:
    """A value that is being made: once `done`, `value` is there, or the `error` that making it raised."""

    def __init__(self) -> None:
        self.done = anyio.Event()
        self.value: Any = None
        self.error: Exception | None = None


class Cache(LRUCache["Hashable", Any]):
    """Cache that makes the values that it does not have. Only the thread of the event loop uses it.

    Args:
        limit: most bytes of all values together.
    """

    def __init__(self, limit: int) -> None:
        super().__init__(limit)
        self._making: dict[Hashable, _Making] = {}

    async def all(
        self, keys: Sequence[Key], make: Callable[[Key], Value], threads: Threads, tasks: TaskGroup | None
    ) -> list[Value]:
        """Return the values of some keys, after making the missing ones in threads, a few at a time.

        What is being made already is waited for; what nobody waits for any more is made nevertheless, in a task of the
        group; None: while the caller waits.
        """
        found: dict[Key, Any] = {key: self.get(key) for key in keys}
        missing = [key for key, value in found.items() if value is None]
        begun = {key: self._making.setdefault(key, _Making()) for key in missing if key not in self._making}
        waiting = {key: self._making[key] for key in missing}

        async def some(part: Sequence[Key]) -> None:
            try:
                values = await threads.run_abandonable(lambda: list(map(make, part)), abandoned=lambda: None)
            except Exception as error:
                values = []
                for key in part:
                    begun[key].error = error
            finally:
                for key in part:
                    del self._making[key]
            for key, value in zip(part, values, strict=False):
                begun[key].value = value
                self.put(key, value, value.nbytes)
            for key in part:
                begun[key].done.set()

        async with anyio.create_task_group() as own:
            parts = list(begun)
            for start in range(0, len(parts), _TOGETHER):
                (tasks or own).start_soon(some, parts[start : start + _TOGETHER])
            for key, making in waiting.items():
                await making.done.wait()
                found[key] = making.value
        for making in waiting.values():
            if making.error is not None:
                raise making.error
        return [found[key] for key in keys]


class Site:
    """Content of all pages of a collection.

    Args:
        collection: the collection; closed by `close`.
        options: options of the display.

    Attributes:
        collection, options: the arguments.
        failure: the reason if records could not be found or labels could not be read; empty otherwise.
    """

    def __init__(self, collection: Collection, options: Options) -> None:
        self.collection = collection
        self.options = options
        self.failure = ""
        self.draws = Draws(
            collection, size=options.size, seed=options.seed, custom=options.custom, exact=options.exact
        )
        self._renderer = ImageRenderer(options.max_pixels)
        self._cache = Cache(_CACHE_NBYTES)
        self._threads = Threads(available_cores(), "aioloader-view")
        self._makers = {
            THUMB_SIDE: Threads(available_cores(), "aioloader-view-thumbs"),
            IMAGE_SIDE: Threads(available_cores(), "aioloader-view-images"),
        }
        self._reader = Threads(1, "aioloader-view-reader")
        self._ready = anyio.Event()
        self._wanted = anyio.Event()
        self._labels: Labels | None = None
        self._labels_moved = anyio.Event()
        self._counts: list[tuple[float, int]] | None = None
        self._tasks: TaskGroup | None = None

    def close(self) -> None:
        """Stop the threads and close the files; blocks until they are done, so do not call it in an event loop."""
        self._threads.close()
        for makers in self._makers.values():
            makers.close()
        self._reader.close()
        self.collection.close()

    def start(self, tasks: TaskGroup) -> None:
        """Start finding all records in a task of the group."""
        self._tasks = tasks
        tasks.start_soon(self._load_later)

    async def _load_later(self) -> None:
        # The first page needs only the first records: it is rendered before this search occupies a core.
        with anyio.move_on_after(_FIRST_PAGE_S):
            await self._wanted.wait()
        await self.load()

    async def load(self) -> None:
        """Find all records; if that fails, set `failure`."""
        try:
            # Scanning a large file takes minutes; Ctrl-C must not wait for it.
            await self._reader.run_abandonable(self.collection.load, abandoned=lambda: None)
        except (OSError, ValueError) as error:
            self.failure = printable(" ".join(str(error).split()))
        finally:
            self._ready.set()

    @property
    def loading(self) -> bool:
        """Return whether records are still being found."""
        return not self._ready.is_set()

    async def loaded(self) -> None:
        """Wait until all records are found, or finding them has failed."""
        self._wanted.set()
        await self._ready.wait()

    async def _know(self, stop: int, *, least: int | None = None) -> None:
        """Wait until the records before `stop` are known, `PATIENCE_S` seconds at most.

        Args:
            stop: end of the positions.
            least: fewer that are enough after this time; None: `stop`.

        Raises:
            StillReadingError: they are not known after this time.
        """
        if self.collection.known >= stop:
            return
        self._wanted.set()
        with anyio.move_on_after(PATIENCE_S):
            await self._ready.wait()
        if self.loading and self.collection.known < (stop if least is None else least):
            raise StillReadingError

    # -- lists of records

    async def everything(self, stop: int, *, least: int | None = None) -> Listing:
        """List all records, after waiting until the first `stop` of them are known, or `least` after some seconds."""
        await self._know(stop, least=least)
        return Listing(self.collection.listing(), not self.loading)

    async def labelled(self, label: float) -> Listing:
        """List the records with a label that have been found so far, after a short wait for more labels.

        Raises:
            NoLabelsError: the labels of this dataset are not read.
            StillReadingError: the records are still being found.
        """
        labels = await self._reading_labels()
        found = await self._threads.run(labels.matches, label)
        return Listing(found, labels.complete, (labels.done, labels.count))

    def label_of(self, text: str) -> float:
        """Parse a label: a number, or the name of a class.

        Links contain numbers, so the number of a class takes precedence over a class whose name is a number.

        Raises:
            ValueError: it is neither.
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
        """Return (label, number of records) pairs of all labels, and `Listing.looked_at`; raises as `labelled`."""
        labels = await self._reading_labels()
        if self._counts is None:
            counts = await self._threads.run(labels.counts)
            if not labels.complete:
                return counts, (labels.done, labels.count)
            self._counts = counts
        return self._counts, (labels.count, labels.count)

    async def _reading_labels(self) -> Labels:
        """Return the index of labels, after a short wait for more labels."""
        if self._labels is None:
            await self._know(1 << 62)
            if self.collection.no_labels:
                raise NoLabelsError(self.collection.no_labels)
            assert self._tasks is not None
            if self._labels is None:
                self._labels = Labels(self.collection, self.collection.known)
                self._tasks.start_soon(self._read_labels, self._labels)
        labels = self._labels
        with anyio.move_on_after(PATIENCE_S / 6):
            while not labels.complete:
                await self._labels_moved.wait()
        return labels

    async def _read_labels(self, labels: Labels) -> None:
        while not labels.complete:
            try:
                labels.add(await self._reader.run(labels.read))
            except (OSError, ValueError) as error:
                reason = printable(" ".join(str(error).split()))
                self.failure = f"the labels cannot be read: {reason}"
                labels.count = labels.done
            moved, self._labels_moved = self._labels_moved, anyio.Event()
            moved.set()

    async def find(self, key: str, file: int | None) -> int:
        """Find the position of the record with a key.

        Raises:
            NoSuchRecordError: no record has this key.
            StillReadingError: the records are still being found.
        """
        await self._know(1 << 62)
        return await self._reader.run(self.collection.find, key, file)

    # -- images of records

    async def thumbs(self, positions: Sequence[int]) -> list[Shown]:
        """Render the small images of the records at some positions; raises as `image`."""
        for position in positions:
            await self._check(position)
        shown = await self._shown(positions, THUMB_SIDE)
        self._wanted.set()
        return shown

    async def page(self, positions: Sequence[int]) -> list[Shown]:
        """Return the small images as `thumbs` does, but those that take long as records whose images come later."""
        with anyio.move_on_after(_IMAGES_S):
            return await self.thumbs(positions)
        found: dict[int, Any] = {position: self._cache.get((THUMB_SIDE, position)) for position in positions}
        missing = [position for position, shown in found.items() if shown is None]

        def read() -> list[Shown]:
            return [_later(self.collection.read(position).record, THUMB_SIDE) for position in missing]

        found.update(zip(missing, await self._threads.run(read), strict=True))
        self._wanted.set()
        return [found[position] for position in positions]

    async def record(self, position: int) -> Shown:
        """Return a record as `image` does, or one whose images come later if that takes long; raises as `image`."""
        await self._check(position)
        with anyio.move_on_after(_IMAGES_S):
            return await self.image(position)

        def read() -> Shown:
            contents = self.collection.read(position)
            found = self.collection.fields(contents)
            further = ("" if number == found.main else _MADE_LATER for number in range(len(found.images)))
            shown = _later(contents.record, IMAGE_SIDE)
            return replace(
                shown, fields=found.fields, further=tuple(further), main=found.main, fields_left=found.left
            )

        return await self._threads.run(read)

    async def image(self, position: int) -> Shown:
        """Render the large image of a record.

        Raises:
            NoSuchRecordError: there is no record at this position.
            StillReadingError: the record has not been found yet.
        """
        await self._check(position)
        return (await self._shown([position], IMAGE_SIDE))[0]

    async def field_bytes(self, position: int, number: int) -> Any:
        """Return the stored bytes of a field of a sample.

        Raises:
            NoSuchRecordError: there is no sample at this position, or no such field, or it is not a stretch of bytes.
            StillReadingError: the sample has not been found yet.
        """
        contents = await self.contents(position)
        try:
            return await self._threads.run(self.collection.field_bytes, contents, number)
        except ValueError as error:
            raise NoSuchRecordError(f"this field cannot be read: {error}") from None

    async def contents(self, position: int) -> Contents:
        """Read a record with its bytes; raises as `image`."""
        await self._check(position)
        return await self._threads.run(self.collection.read, position)

    async def _check(self, position: int) -> None:
        await self._know(position + 1)
        if not 0 <= position < self.collection.known:
            raise NoSuchRecordError(
                f"there is no record number {position:,}: the dataset has {self.collection.known:,}"
            )

    async def _shown(self, positions: Sequence[int], side: int) -> list[Shown]:
        return await self._cache.all(
            [(side, position) for position in positions],
            lambda key: self._make(key[1], side),
            self._makers[side],
            self._tasks,
        )

    def _make(self, position: int, side: int) -> Shown:
        contents = self.collection.read(position)
        record, image = self._renderer.make(contents, side)
        if side < IMAGE_SIDE:
            return Shown(record, image)
        found = self.collection.fields(contents)
        further = tuple(
            "" if number == found.main else self._renderer.further(body, FURTHER_SIDE)
            for number, body in enumerate(found.images)
        )
        return Shown(record, image, found.fields, further, found.main, found.left)

    async def drawn(self, position: int, view: str, epochs: Sequence[int]) -> list[Draw]:
        """Render the results of the chain named `view` for a record in some epochs.

        Raises:
            NoSuchRecordError: there is no record at this position, or no chain with this name for it.
            StillReadingError: the record has not been found yet.
        """
        keys = [(view, position, epoch) for epoch in epochs]
        held: list[Any] = [self._cache.get(key) for key in keys]
        if None not in held:
            return held
        contents = await self.contents(position)
        pipeline = self.draws.pipeline(view, contents.record)
        if pipeline is None:
            raise NoSuchRecordError(f"there is no chain named {view[:40]!r} for this record")
        if contents.data is None:
            raise NoSuchRecordError(f"this record cannot be read: {contents.record.problem}")
        makers = self._makers[IMAGE_SIDE]
        return await self._cache.all(
            keys, lambda key: self.draws.make(contents, pipeline, key[2]), makers, self._tasks
        )

    def label_words(self, label: float) -> str:
        """Format a label with the name of its class."""
        name = self.collection.label_name(label)
        return f"{label_text(label)} {name}" if name else label_text(label)


def _later(record: Record, side: int) -> Shown:
    """Return a record whose image is still being made, with the sizes that it will have."""
    if record.kind != IMAGE or record.image is None:
        return Shown(record, None)
    width, height = record.size
    if (record.image.orientation or 1) >= _FIRST_TURNED:
        width, height = height, width
    upright = replace(record, image=record.image._replace(width=width, height=height))
    return Shown(upright, None, later=fitted(height, width, side)[::-1])


CHUNK = 4096


class Labels:
    """Labels of a loaded collection. Call `read`, `matches` and `counts` in a thread.

    Args:
        collection: the collection.
        count: number of its records.

    Attributes:
        count: number of all records.
        done: number of records whose labels are known.
    """

    def __init__(self, collection: Collection, count: int) -> None:
        self.count = count
        self.done = 0
        self._collection = collection
        self._first = np.full(count, np.nan, np.float32)
        self._owners: list[IntArray] = []
        self._values: list[Array] = []

    @property
    def complete(self) -> bool:
        """Return whether all labels are known."""
        return self.done >= self.count

    def read(self) -> LabelChunk:
        """Read the labels of the next records, without adding them.

        Raises:
            OSError: they cannot be read.
        """
        return self._collection.label_chunk(self.done, min(self.count, self.done + CHUNK))

    def add(self, chunk: LabelChunk) -> None:
        """Add the result of `read`."""
        stop = self.done + len(chunk.first)
        self._first[self.done : stop] = chunk.first
        if len(chunk.owners):
            self._owners.append(chunk.owners + self.done)
            self._values.append(chunk.values)
        self.done = stop

    def matches(self, label: float) -> IntArray:
        """Return the positions, known so far, of the records with a label, ascending."""
        wanted = np.float32(label)
        done, owners, values = self.done, self._owners[:], self._values[:]
        found: IntArray = np.flatnonzero(self._first[:done] == wanted)
        several = [owner[value == wanted] for owner, value in zip(owners, values, strict=True)]
        return np.unique(np.concatenate([found, *several])) if several else found

    def counts(self) -> list[tuple[float, int]]:
        """Return (label, number of records) pairs, sorted by label, of the records read so far."""
        done, owners, values = self.done, self._owners[:], self._values[:]
        first = self._first[:done]
        found, counts = np.unique(first[~np.isnan(first)], return_counts=True)
        total = dict(zip(found.tolist(), counts.tolist(), strict=True))
        if owners:
            pairs = np.stack(
                [np.concatenate(values).astype(np.float64), np.concatenate(owners).astype(np.float64)]
            )
            again, counts = np.unique(np.unique(pairs, axis=1)[0], return_counts=True)
            for label, count in zip(again.tolist(), counts.tolist(), strict=True):
                total[label] = total.get(label, 0) + count
        return sorted(total.items())
