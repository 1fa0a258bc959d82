"""Dataset over tars in WebDataset's layout, and the check of a whole tar: headers, end, and members of each sample."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import cached_property, partial
from operator import itemgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.abc import ByteSource
from aioloader.crop_index.lookup import AUTO
from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import field_names
from aioloader.datasets.files import opens_offline
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shard_tables import ShardTable, TextKeys
from aioloader.datasets.shards import record_files
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tar.fields import IMAGES, KEY, REASONS, TarFieldReader, compact_places, stored_places
from aioloader.formats.tar.header import BLOCK, find_header
from aioloader.formats.tar.index import KIND, scan_tar, tar_samples
from aioloader.formats.tar.members import TarChain, TarMembers
from aioloader.formats.tar.samples import OUTSIDE, SamplePieces, TarSamples, group_members
from aioloader.foundation.types import ReadPlan, Spans
from aioloader.foundation.validation import advises
from aioloader.storage.cache.unpacked import file_blocks
from aioloader.storage.layout import ALIGNMENT
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator
    from typing import Unpack

    from aioloader.abc import Decoder
    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.datasets.shard_tables import ShardTables
    from aioloader.formats.tar.samples import Pieces
    from aioloader.foundation.types import Array, IntArray, StorageStats
    from aioloader.sample_index import SampleIndex
    from aioloader.storage.remote.transport import Version


def check_tar(
    blocks: Iterable[bytes], path: str, nbytes: int, tick: Callable[[int], object] | None
) -> Generator[SampleFormatError, None, int]:
    """Read a tar once, and yield each fault of it; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    Behind a damaged header the next header is searched, so that faults further on are found, too.

    Args:
        blocks: of the whole file.
        path: of the file, for errors.
        nbytes: of the file.
        tick: called after each block with the number of bytes so far.
    """
    walk = _Walk(path, nbytes)
    reached = 0
    for block in blocks:
        reached += len(block)
        yield from walk.feed(block)
        if tick is not None:
            tick(reached)
    if reached < nbytes:
        yield SampleFormatError(
            "the file shrank while it was read",
            path=path,
            expected=f"{nbytes} bytes",
            found=f"{reached} bytes",
        )
    elif not nbytes:
        yield from walk.feed(b"")
    return (yield from _check_samples(walk.finish(), path))


class _Walk:
    """Walk along the headers of a tar that arrives in blocks. Holds little more than a block and the members so far.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
    """

    def __init__(self, path: str, nbytes: int) -> None:
        self._path = path
        self._nbytes = nbytes
        self._members = TarMembers()
        self._chain: TarChain | None = TarChain(path, nbytes)
        self._held = b""
        self._begin = 0  # place of the held bytes in the file
        self._searched = 0  # place from which on the next header is searched

    def feed(self, block: bytes) -> Iterator[SampleFormatError]:
        """Yield the faults of the headers in the bytes so far."""
        self._held += block
        while True:
            chain = self._chain
            if chain is None:
                if not self._search():
                    return
                continue
            end = self._begin + len(self._held)
            if not chain.done:
                if chain.at + chain.needs > end:
                    self._forget(min(chain.at, end))
                    return
                self._forget(chain.at)
                chain.take(self._held, self._begin)
                chain.check()  # now, while the bytes behind a fault are held
                continue
            if chain.fault is None:
                self._forget(end)
                return
            yield chain.fault
            self._members.join(chain.members)
            self._chain = None
            self._searched = chain.at + BLOCK

    def _search(self) -> bool:
        """Begin a chain at the next header in the held bytes, if there is one."""
        end = self._begin + len(self._held)
        self._forget(min(self._searched, end))
        if self._searched > end:
            return False
        place = find_header(self._held)
        if place is None:
            self._searched += len(self._held) // BLOCK * BLOCK
            self._forget(self._searched)
            return False
        self._forget(self._searched + place)
        self._chain = TarChain(self._path, self._nbytes, self._begin)
        return True

    def _forget(self, place: int) -> None:
        """Drop the held bytes up to a place in the file."""
        if place > self._begin:
            self._held = self._held[place - self._begin :]
            self._begin = place

    def finish(self) -> TarSamples:
        """Return the samples of all members."""
        if self._chain is not None:
            self._chain.check()
            self._members.join(self._chain.members)
            self._chain = None
        return group_members(self._members)


def _check_samples(samples: TarSamples, path: str) -> Generator[SampleFormatError, None, int]:
    """Yield the faults of the members of samples; return the number of samples without one."""
    seen: set[bytes] = set()
    valid = 0
    words = samples.extensions()
    text, begin = samples.key_text.tobytes(), 0
    bounds = samples.first.tolist()
    columns = (samples.extension.tolist(), samples.data.tolist(), samples.state.tolist())
    for row, end in enumerate(samples.key_ends.tolist()):
        key, begin = text[begin:end], end
        offset = int(samples.offset[row])
        name = key.decode("utf-8", "surrogateescape")
        faults: list[tuple[str, int]] = []
        if key in seen:
            faults.append(
                (
                    f"the sample {name!r} was there before: members of one sample that are not together are several "
                    "samples; pack the files again with `tar --sort=name`",
                    offset,
                )
            )
        seen.add(key)
        for number in range(bounds[row], bounds[row + 1]):
            extension, data, state = (column[number] for column in columns)
            if state in REASONS:
                field = words[extension].decode("utf-8", "surrogateescape")
                faults.append((f"the field {field!r} of the sample {name!r} {REASONS[state]}", data))
        for reason, at in faults:
            yield SampleFormatError(reason, path=path, offset=at, key=name)
        valid += not faults
    return valid


Failures = list[tuple[int, BaseException]]

_PLACES = "places"
_STORED = "stored"
_IMAGE = ";".join(IMAGES)
_LABEL = "cls;json"


@dataclass(frozen=True, eq=False, kw_only=True)
class _TarTable(ShardTable):
    """Samples of one tar.

    Attributes:
        samples: and their members.
    """

    samples: TarSamples

    def extensions(self) -> list[str]:
        """Return the extensions of all members."""
        return [word.decode("utf-8", "surrogateescape") for word in self.samples.extensions()]

    @property
    def read_length(self) -> IntArray:
        return self.samples.read_length

    @cached_property
    def pieces(self) -> SamplePieces | None:
        """Return the pieces of the samples with hard links; None if there are none."""
        return SamplePieces(self.samples) if len(self.samples.target) else None

    def extensions_of(self, row: int) -> list[str]:
        """Return the extensions of the members of a sample."""
        samples = self.samples
        begin, end = samples.first[row : row + 2].tolist()
        found = []
        for number in samples.extension[begin:end].tolist():
            start = int(samples.extension_ends[number - 1]) if number else 0
            word = samples.extension_text[start : int(samples.extension_ends[number])].tobytes()
            found.append(word.decode("utf-8", "surrogateescape"))
        return found


class TarDataset(ShardDataset):
    """Dataset over tars in WebDataset's layout: consecutive members with one key are a sample.

    The key is the path of a member up to the first dot of its last part; what is behind this dot, in lower case, is the
    name of the field: ``train/0001.seg.png`` is the field ``seg.png`` of the sample ``train/0001``.

    A sample is (image, label): the image uint8 (height, width, 3) RGB; the label int64 for whole numbers, float32 for
    others, and arrays. With `fields` a sample is a dict of fields, whose values the last part of their names decides:

    - images (jpg, jpeg, png, webp, avif, bmp, gif, jp2, tif, tiff, ppm, pgm, pbm, pnm) are decoded to such images;
    - json and jsn are parsed; txt, text and transcript are str; cls, cls2, index, inx, id and count are int64;
    - npy is an array; one of Python objects is refused, because unpickling runs code that the data contain;
    - all others are bytes; ``__key__`` is the key, a str.

    A name such as ``"jpg;png"`` is the first of these fields that a sample has.

    Where the members are is found once, by a scan of their headers; the index is kept in the user's cache directory or,
    by `aioloader index`, next to the tar. Tars that are compressed as a whole are refused. A hard link is read as the
    file in front of it that it refers to. Names of members are only names: nothing is extracted.

    Args:
        paths: a tar or its URL, a pattern such as ``train-*.tar``, or a list of them, in order.
        image: field of the image; None: the first of the extensions of images above that a sample has. With `fields`,
            the name or names of further fields that are images.
        label: field of the label; None: the samples are images alone. "auto": ``cls``, or else ``json`` if it is a
            number or a list of numbers.
        fields: names of the fields of samples that are dicts; None: the sample is (image, label).
        shuffle_shards: tars that are mixed at a time by a loader with ``shuffle=True``, which then begins with one of
            them while the samples of others are still being found at a URL; None: all samples are shuffled.
        flag, exif, max_pixels, label_dtype, dct_scaling, crop_index: see `ImageRecordDataset`.
        cache, cache_limit: see `RecordFileDataset`.

    Attributes:
        paths: the tars, or their URLs.

    Raises:
        FileNotFoundError: there is no such file, or no crop index at the path given.
        ValueError: an option is not allowed, or files and URLs are mixed.
        CropIndexError: the file given as `crop_index` is damaged, or is that of other data.
    """

    index_kind = KIND
    reads_to_find = True

    @opens_offline
    @advises({}, ImageOptions)
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
        *,
        image: str | Sequence[str] | None = None,
        label: str | None = AUTO,
        fields: str | Sequence[str] | None = None,
        shuffle_shards: int | None = None,
        **options: Unpack[ShardKeywords],
    ) -> None:
        images = (_IMAGE,) if image is None else field_names(image)
        if fields is None and len(images) > 1:
            raise ValueError(f"image must be the name of one field unless fields are given, got {image!r}")
        label = _LABEL if label == AUTO else label
        labels = () if label is None else (label,)
        asked = (images[0], *labels) if fields is None else field_names(fields)
        self._asked = asked
        self._are_fields_checked = False
        self._field_reader = TarFieldReader(tuple(dict.fromkeys((*asked, *labels))), frozenset(images))
        super().__init__(
            record_files(paths),
            image=images[0],
            label=label,
            fields=fields,
            shuffle_shards=shuffle_shards,
            **options,
        )

    # -- samples -------------------------------------------------------------------------------------------------------

    def _open_table(self, path: str, version: Version | None) -> _TarTable:
        samples = tar_samples(path, version, partial(self._tick, path), self._held)
        nbytes = os.stat(path).st_size if version is None else version.nbytes
        groups = self._field_reader.groups
        columns = {_PLACES: compact_places(samples, groups)}
        if len(samples.target):
            columns[_STORED] = stored_places(samples, groups)
        return _TarTable(
            path=path,
            nbytes=nbytes,
            offset=samples.offset,
            length=samples.length,
            keys=TextKeys(samples.key_text, samples.key_ends),
            columns=columns,
            samples=samples,
        )

    def _reader(self) -> TarFieldReader:
        return self._field_reader

    @property
    def decoder(self) -> Decoder[Any]:
        """Return the decoder.

        Raises:
            MissingFieldError: no sample has a field that was asked for; the error is a ValueError.
            SampleFormatError: no sample has all of these fields, because the members of samples are not together.
        """
        if not self._are_fields_checked:
            self._check_fields()
            self._are_fields_checked = True
        return super().decoder

    def _check_fields(self) -> None:
        """Raise unless a sample has each field, so that a loader does not skip every sample."""
        tables = self.known_tables
        tables.wait_for(1)
        if any(self._having_all(table.columns[_PLACES]).any() for table in tables.tables):
            return
        if not len(self.tables):
            return
        places = self.tables.column(_PLACES)
        path = redact_url(self.tables.tables[0].path)
        for name in self._asked:
            if name != KEY and not self._having(places, name).any():
                found = {word for table in self._tar_tables() for word in table.extensions()}
                raise MissingFieldError(name, sorted(found), path=path)
        raise SampleFormatError(
            f"no sample has all of the fields {', '.join(map(repr, self._asked))}, but each is in some: only "
            "members that follow one another are a sample. Pack the files again with `tar --sort=name`",
            path=path,
            key=self.tables.tables[0].keys.key_at(0) if len(self.tables.tables[0]) else None,
        )

    def _having(self, places: Array, name: str) -> Array:
        """Return which samples have a field, bool (n,)."""
        found: Array = (places[:, list(self._field_reader.columns(name)), 0] != -1).any(axis=1)
        return found

    def _having_all(self, places: Array) -> Array:
        """Return which samples have all fields that were asked for, bool (n,)."""
        found = np.ones(len(places), bool)
        for name in self._asked:
            found &= name == KEY or self._having(places, name)
        return found

    def _tar_tables(self) -> list[_TarTable]:
        return [table for table in self.tables.tables if isinstance(table, _TarTable)]

    def extras(self, indices: IntArray) -> Array:
        """Return the places of the fields in the samples; see `compact_places`."""
        return self.known_tables.column_at(_PLACES, indices)

    def open_source(self) -> ByteSource:
        tables, source = self.known_tables, super().open_source()
        pieces = _TablePieces(tables)
        if tables.complete and all(pieces[number] is None for number in range(len(pieces))):
            return source
        return LinkedByteSource(source, pieces)

    # -- labels --------------------------------------------------------------------------------------------------------

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Array | None]:
        """Return the spans of the labels alone, empty where a sample has none."""
        spans, places = self.spans(indices), self.extras(indices)
        # Of a sample with links the places in the file are others than in its bytes.
        stored = spans.offset[:, None] + places[:, :, 0]
        files, rows = self.tables.rows(indices)
        for number, table in enumerate(self.tables.tables):
            if _STORED in table.columns:
                here = files == number
                stored[here] = table.columns[_STORED][rows[here]]
        offset = spans.offset.copy()
        length = np.zeros(len(indices), np.int64)
        missing = np.ones(len(indices), bool)
        for column in self._field_reader.columns(self.label_field):
            here = missing & (places[:, column, 0] >= 0)
            offset[here], length[here] = stored[here, column], places[here, column, 1]
            places[here, column, 0] = 0
            missing &= places[:, column, 0] == -1
        return Spans(spans.file, offset, length), places

    def labels_at(self, indices: IntArray, source: ByteSource) -> list[Any]:
        """Return the label of each sample, or the error of a sample; see `ShardDataset.labels_at`."""
        found = super().labels_at(indices, source)
        for place, error in enumerate(found):
            if isinstance(error, MissingFieldError):
                # The bytes that were read do not show which fields there are.
                number, row = self.tables.locate(int(indices[place]))
                names = self._tar_tables()[number].extensions_of(row)
                found[place] = MissingFieldError(error.field, names, path=error.path, key=error.key)
        return found

    # -- commands ------------------------------------------------------------------------------------------------------

    def members_outside(self) -> dict[str, int]:
        """Return the numbers of the members that belong to no sample; see `ShardDataset.members_outside`."""
        counts = sum(
            (table.samples.outside for table in self._tar_tables()), np.zeros(len(OUTSIDE), np.int64)
        )
        return {name: count for name, count in zip(OUTSIDE.values(), counts.tolist(), strict=True) if count}

    def scan_shard(self, number: int, tick: Callable[[int], object] | None = None) -> SampleIndex:
        """Scan a tar for its samples; see `ShardDataset.scan_shard`."""
        return scan_tar(self.paths[number], self._versions[number], tick)

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole tar, and yield each fault; see `ShardDataset.check_shard`."""
        path, version = self.paths[number], self._versions[number]
        if version is None:
            nbytes, blocks = os.stat(path).st_size, file_blocks(path)
        else:
            from aioloader.storage.remote.opening import object_blocks

            nbytes, blocks = version.nbytes, object_blocks(path)
        with closing(blocks):
            return (yield from check_tar(blocks, redact_url(path), nbytes, tick))


class _LinkedReads(NamedTuple):
    """Reads of a batch with samples that contain links.

    Attributes:
        plan: of the spans, those of samples in pieces without bytes; and of all pieces, behind them.
        items: place in the batch, number of the file, and pieces of each sample in pieces.
        owners: place in the batch of the sample of each span in `plan`.
    """

    plan: ReadPlan
    items: list[tuple[int, int, Pieces]]
    owners: list[int]


class _TablePieces(Sequence["SamplePieces | None"]):
    """Pieces of the samples of each file.

    Args:
        tables: of the files, those of tars; more of them may become known.
    """

    def __init__(self, tables: ShardTables) -> None:
        self._tables = tables

    def __len__(self) -> int:
        return len(self._tables.tables)

    def __getitem__(self, number: Any) -> Any:
        table: Any = self._tables.table(number)
        return table.pieces


class LinkedByteSource(ByteSource):
    """Byte source of tars whose samples contain links: the pieces of these are read like items and copied to one place.

    A sample in pieces has a span of the bytes of all of them, by which it is known.

    Args:
        source: reads the files; closed with this one.
        pieces: of the samples of each file; None for a file without links.
    """

    def __init__(self, source: ByteSource, pieces: Sequence[SamplePieces | None]) -> None:
        self.paths = source.paths
        self.samples_ahead, self.fetches, self.blocks = source.samples_ahead, source.fetches, source.blocks
        self._source = source
        self._pieces = pieces

    def set_timeout(self, seconds: float) -> None:
        self._source.set_timeout(seconds)

    def stats(self) -> StorageStats | None:
        return self._source.stats()

    def close(self) -> None:
        self._source.close()

    def _apart(self, spans: Spans) -> tuple[Spans, list[tuple[int, int, Pieces]]]:
        """Return the spans to read, and the samples in pieces; see `_LinkedReads`."""
        items = []
        for number in np.unique(spans.file).tolist():
            file = self._pieces[number]
            if file is not None:
                here = np.flatnonzero(spans.file == number)
                found = file.find(spans.offset[here], spans.length[here])
                items += [(int(here[place]), number, pieces) for place, pieces in found]
        length = spans.length.copy()
        length[[place for place, _, _ in items]] = 0
        rows = [(number, at, nbytes) for _, number, pieces in items for _, at, nbytes in pieces]
        columns = (spans.file, spans.offset, length), np.array(rows, np.int64).reshape(-1, 3).T
        return Spans(*(np.concatenate(both) for both in zip(*columns, strict=True))), items

    def _whole(self, spans: Spans, plan: ReadPlan, items: list[tuple[int, int, Pieces]]) -> ReadPlan:
        """Return the plan of a batch from that of its items and pieces: room for whole items is behind these."""
        n, end = len(spans), plan.nbytes
        owners = [*range(n), *(place for place, _, pieces in items for _ in pieces)]
        failures = {owners[place]: error for place, error in plan.failures}
        start, length = plan.start[:n].copy(), plan.length[:n].copy()
        for place, _, _ in items:
            start[place] = -1
            if place not in failures:
                start[place], length[place] = -(-end // ALIGNMENT) * ALIGNMENT, spans.length[place]
                end = int(start[place] + length[place])
        return ReadPlan(end, start, length, _LinkedReads(plan, items, owners), sorted(failures.items()))

    def _finish(self, plan: ReadPlan, failures: Failures, out: memoryview) -> Failures:
        """Put the pieces that were read together; return the failures of items."""
        reads: _LinkedReads = plan.reads
        failed = {reads.owners[place]: error for place, error in failures}
        begins = iter(reads.plan.start[len(plan.start) :].tolist())
        for place, number, pieces in reads.items:
            sources = [next(begins) for _ in pieces]
            file, start = self._pieces[number], int(plan.start[place])
            if file is None or start < 0 or place in failed:
                continue
            item = out[start : start + int(plan.length[place])]
            for (at, _, nbytes), begin in zip(pieces, sources, strict=True):
                item[at : at + nbytes] = out[begin : begin + nbytes]
            file.finish(item, pieces)
        return sorted(failed.items(), key=itemgetter(0))

    async def plan(self, spans: Spans) -> ReadPlan:
        apart, items = self._apart(spans)
        return self._whole(spans, await self._source.plan(apart), items)

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        return self._finish(plan, await self._source.read(plan.reads.plan, out), out)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        apart, items = self._apart(spans)
        return self._whole(spans, self._source.plan_blocking(apart), items)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> Failures:
        return self._finish(plan, self._source.read_blocking(plan.reads.plan, out), out)
