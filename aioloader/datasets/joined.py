"""Several datasets, one behind the other, as one byte dataset: items, reads and decoding.

Partial reads of several joined datasets: each part leaves out what it knows that its samples do not need.

Decoder of the items of several joined datasets: each item is made as its own part makes it.

The items of several datasets, one behind the other, as one byte dataset.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import (
    ByteDataset,
    Decoder,
    FusedDecoder,
    MapDataset,
    PartialReads,
)
from aioloader.datasets.decoding import PARTS
from aioloader.datasets.resolve import Resolved, resolve
from aioloader.foundation.types import Array, IntArray, ItemLocation, PartialItems, Spans
from aioloader.rng import current_rng, default_rng
from aioloader.samplers.blocks import BlockShuffleSampler, join_blocks
from aioloader.storage.joined import FileNumbers, JoinedByteSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    import aioloader.abc
    from aioloader.abc import ByteSource
    from aioloader.foundation.types import StageTimer
    from aioloader.rng import Rng


class JoinedReads(PartialReads):
    """Finder of the parts of items that samples need.

    Args:
        finders: of each dataset; None for one whose items are read whole.
        numbers: of their files.
    """

    def __init__(self, finders: Sequence[PartialReads | None], numbers: FileNumbers) -> None:
        self._finders = tuple(finders)
        self._numbers = numbers

    async def narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        """Leave out what the samples do not need; see `PartialReads.narrow`."""
        parts = self._numbers.parts_of(spans.file)
        length, gaps = spans.length.copy(), np.zeros((len(spans), 2), np.int64)
        extras = np.zeros(len(spans), PARTS)
        found = False
        for part in np.unique(parts).tolist():
            finder = self._finders[part]
            if finder is None:
                continue
            places = np.flatnonzero(parts == part)
            own = Spans(
                spans.file[places] - self._numbers.start(part), spans.offset[places], spans.length[places]
            )
            narrowed = await finder.narrow(own, index[places], epoch[places], position[places])
            if narrowed is None or narrowed.spans.gaps is None:
                continue
            found = True
            length[places], gaps[places] = narrowed.spans.length, narrowed.spans.gaps
            extras[places] = narrowed.extras
        return PartialItems(Spans(spans.file, spans.offset, length, gaps), extras) if found else None

    def exclude(self, file: int, offset: int) -> None:
        """Read an item whole from now on."""
        part, number = self._numbers.locate(file)
        finder = self._finders[part]
        if finder is not None:
            finder.exclude(number, offset)

    def close(self) -> None:
        """End threads; may be called twice."""
        for finder in self._finders:
            if finder is not None:
                finder.close()


@dataclass(frozen=True)
class ItemDecoder(Decoder[Any]):
    """Decoder of an item without bytes: it asks the dataset for the item, whose index is the item's extra.

    Attributes:
        dataset: any object with items.
    """

    foreign = True
    shareable = False

    dataset: MapDataset[Any]

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        return self.dataset[int(extra)]


@dataclass(frozen=True, eq=False)
class PartDecoder:
    """Maker of the items of one part.

    Attributes:
        decoder: makes an item.
        stages: transforms of this part alone, which follow it.
        field: name of the part's extras in those of the joined dataset; None: it has none.
        paths: its files if they are known and few, for errors.
    """

    decoder: Decoder[Any]
    stages: tuple[aioloader.abc.Stage, ...]
    field: str | None
    paths: tuple[str, ...]

    def extra(self, extra: Any) -> Any:
        """Return the extra of an item of this part."""
        if extra is None or extra.dtype == PARTS or self.field is None:
            # Of items that are read in parts: only the part's own decoder understands what they lack.
            return extra if extra is not None and extra.dtype == PARTS else None
        return extra[self.field]

    def located(self, location: ItemLocation, number: int) -> ItemLocation:
        """Return the location with the path of the file."""
        known = location.path is None and number < len(self.paths)
        return location._replace(path=self.paths[number]) if known else location


@dataclass(frozen=True, eq=False)
class JoinedDecoder(Decoder[Any]):
    """Decoder of the items of several datasets.

    Attributes:
        parts: the makers of the items of each.
        numbers: of their files.
    """

    parts: tuple[PartDecoder, ...]
    numbers: FileNumbers

    @property
    def dct_scaling(self) -> bool:  # type: ignore[override]  # known from its parts
        return any(part.decoder.dct_scaling for part in self.parts)

    @property
    def foreign(self) -> bool:
        return any(
            part.decoder.foreign or not all(stage.native for stage in part.stages) for part in self.parts
        )

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        """Make a sample; the transforms of its part draw from this thread's generator."""
        part = self.parts[int(extra["part"])]
        sample = part.decoder(data, part.extra(extra), location)
        for stage in part.stages:
            sample = stage.apply(sample, default_rng())
        return sample

    def fuse(self, stages: Sequence[aioloader.abc.Stage]) -> FusedParts:
        """Return the decoders of the parts, each fused with the stages as far as it can be."""
        return FusedParts(self, stages)


class FusedParts(FusedDecoder[Any]):
    """Decoder of the items of several datasets that also runs the stages that one of them can be fused with.

    Args:
        joined: the decoder.
        stages: all stages of the loader.

    Attributes:
        stages: number of stages that run here.
        leaves: number of arrays that an image becomes, if that is the same for all parts; otherwise 1.
    """

    def __init__(self, joined: JoinedDecoder, stages: Sequence[aioloader.abc.Stage]) -> None:
        self._numbers = joined.numbers
        self._parts = joined.parts
        fused = [part.decoder.fuse((*part.stages, *stages)) for part in joined.parts]
        self.stages = max(
            (
                0 if each is None else max(0, each.stages - len(part.stages))
                for part, each in zip(joined.parts, fused, strict=True)
            ),
            default=0,
        )
        arrays = {1 if each is None else each.leaves for each in fused}
        self.leaves = arrays.pop() if len(arrays) == 1 else 1
        self._chains = [
            ItemChain(
                part.decoder, each, (*part.stages, *stages[: self.stages]), len(part.stages), self.leaves
            )
            for part, each in zip(joined.parts, fused, strict=True)
        ]

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
        file: int | None = None,
    ) -> Any:
        if file is None:
            place, number = int(extra["part"]), None
        else:
            place, number = self._numbers.locate(file)
        part = self._parts[place]
        if number is not None:
            location = part.located(location, number)
        return self._chains[place].make((data, part.extra(extra), location), rng, out, trace, number)


@dataclass(frozen=True)
class ItemChain:
    """The way of an item from its bytes through the stages of its dataset and some of the loader.

    Attributes:
        decoder: of the dataset.
        fused: the decoder with some of the stages; None if it cannot be fused.
        stages: those of the dataset, and some of the loader.
        below: how many of them are those of the dataset, whose time is a part of decoding.
        leaves: number of arrays that an image has to become to be written to `out`.
    """

    decoder: Decoder[Any]
    fused: FusedDecoder[Any] | None
    stages: Sequence[aioloader.abc.Stage]
    below: int
    leaves: int

    def make(
        self,
        given: tuple[memoryview, Any, ItemLocation],
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
        file: int | None,
    ) -> Any:
        """Return an item as its dataset makes it, with the stages applied.

        Args:
            given: see `Decoder`.
            rng, out, trace, file: see `FusedDecoder`.
        """
        spent, trace.transforms = trace.transforms, [0.0] * (self.below + len(trace.transforms))
        done = 0
        try:
            if self.fused is None:
                begin = perf_counter()
                token = current_rng.set(rng)
                try:
                    sample = self.decoder(*given)
                finally:
                    current_rng.reset(token)
                trace.decode_s += perf_counter() - begin
            else:
                done = self.fused.stages
                row = out if done == len(self.stages) and self.fused.leaves == self.leaves else None
                sample = self.fused(*given, rng=rng, out=row, trace=trace, file=file)
            for stage in self.stages[done:]:
                begin = perf_counter()
                trace.stage = f"transform:{stage.name}"
                sample = stage.apply(sample, rng)
                trace.transforms[done] += perf_counter() - begin
                done += 1
        finally:
            own, trace.transforms = trace.transforms, spent
            trace.decode_s += sum(own[: self.below])
            for step, seconds in enumerate(own[self.below :]):
                spent[step] += seconds
        return sample


def common_decoder(decoders: Sequence[Decoder[Any]]) -> Decoder[Any] | None:
    """Return the one decoder that makes the items of all parts, and knows no files; None if there is none."""
    first = decoders[0]
    return first if all(each.shareable and each == first for each in decoders) else None


def joined_extras(parts: Sequence[Array | None]) -> tuple[list[str | None], np.dtype[Any]]:
    """Return the name of the field of each part's extras, and the dtype of an item's extra: its part, and the fields.

    Extras of one dtype and shape share a field.

    Args:
        parts: some extras of each part, or None.
    """
    names: dict[tuple[str, tuple[int, ...]], str] = {}
    columns: list[tuple[Any, ...]] = [("part", np.int64)]
    fields: list[str | None] = []
    for extras in parts:
        if extras is None:
            fields.append(None)
            continue
        key = repr(extras.dtype), extras.shape[1:]
        if key not in names:
            names[key] = f"extra{len(names)}"
            columns.append((names[key], extras.dtype, extras.shape[1:]))
        fields.append(names[key])
    return fields, np.dtype(columns)


_FEW_PATHS = 64


@dataclass(frozen=True, eq=False)
class _Part:
    """One dataset of several, decomposed.

    Attributes:
        dataset: as it was given.
        resolved: its base, index map and stages.
        stages: transforms that are not those of all parts.
        start: index of its first sample.
        length: number of its samples.
    """

    dataset: MapDataset[Any]
    resolved: Resolved
    stages: tuple[aioloader.abc.Stage, ...]
    start: int
    length: int

    @property
    def in_bytes(self) -> bool:
        """Return True if the core reads the bytes of its items."""
        return self.resolved.base_kind == "bytes"

    def places(self, indices: IntArray) -> IntArray:
        """Return the indices in the base of some of its samples."""
        remap = self.resolved.remap
        return indices if remap is None else remap[indices]


class JoinedItems(ByteDataset[Any]):
    """Byte dataset over the bases of several datasets: what a loader sees of a `ConcatDataset`.

    Items of a part that is not a byte dataset have no bytes: a worker asks the part for them.

    Args:
        parts: the datasets, none of which is empty.
        name: name of the joined dataset, for errors.

    Attributes:
        joined_parts: the datasets.

    Raises:
        TypeError: a part has an async transform that the others do not have.
    """

    def __init__(self, parts: Sequence[MapDataset[Any]], name: str) -> None:
        self._name = name
        self.joined_parts = tuple(parts)
        resolved = [resolve(part) for part in self.joined_parts]
        stages = [each.stages for each in resolved]
        same = all(_same_stages(each, stages[0]) for each in stages)
        self.shared_stages: tuple[Any, ...] = stages[0] if stages and same else ()
        lengths = [len(part) for part in self.joined_parts]
        starts = np.cumsum([0, *lengths]).tolist()
        self._parts = [
            _Part(part, each, () if same else each.stages, start, length)
            for part, each, start, length in zip(
                self.joined_parts, resolved, starts[:-1], lengths, strict=True
            )
        ]
        for part in self._parts:
            for stage in part.stages:
                if stage.is_async:
                    raise TypeError(
                        f"{stage.name} is async and is a transform of one part of a ConcatDataset only: apply it to "
                        "the ConcatDataset"
                    )
        self._length = int(starts[-1])
        self._starts = np.asarray(starts[:-1], np.int64)
        widths = [each.files for each in resolved]
        self.files = sum(widths)
        self._numbers = FileNumbers(np.cumsum([0, *widths])[:-1].tolist())
        self._paths: list[tuple[str, ...]] = [()] * len(self._parts)
        self._reads_parts = [False] * len(self._parts)
        self._source: JoinedByteSource | None = None

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        """Return the sample, without the transforms that all parts share."""
        indices = np.array([operator.index(index)], np.int64)
        if self._source is None:
            self._source = self.open_source()
        plan, data = self._source.fetch(self.spans(indices))
        start, extras = int(plan.start[0]), self.extras(indices)
        framed = data[start : start + int(plan.length[0])].toreadonly()
        return self.decoder(framed, None if extras is None else extras[0], self.location(int(indices[0])))

    def _locate(self, index: int) -> tuple[_Part, int]:
        """Return the part of a sample, and its index in the part's base."""
        number = int(np.searchsorted(self._starts, index, side="right")) - 1
        part = self._parts[number]
        return part, int(part.places(np.array([index - part.start]))[0])

    def _split(self, indices: IntArray) -> list[tuple[int, IntArray, IntArray]]:
        """Return for each part of some samples its number, their places in `indices`, and their indices in its base."""
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        found = []
        for number in np.unique(numbers).tolist():
            part = self._parts[number]
            where = np.flatnonzero(numbers == number)
            found.append((number, where, part.places(indices[where] - part.start)))
        return found

    @property
    def display_name(self) -> str:
        """Return the name of the joined dataset."""
        return self._name

    # -- as a byte dataset -------------------------------------------------------------------------------------------

    @property
    def reads_ahead(self) -> bool:
        """Return True if reads of a part wait so long that several batches should be in flight."""
        return any(part.resolved.reads_ahead for part in self._parts if part.in_bytes)

    def open_source(self) -> JoinedByteSource:
        """Return a separate byte source over those of the parts."""
        sources: list[ByteSource | None] = []
        try:
            sources.extend(part.resolved.open_source() if part.in_bytes else None for part in self._parts)
        except BaseException:
            for source in sources:
                if source is not None:
                    source.close()
            raise
        # A loader asks for the decoder and the partial reads after it has opened the source.
        self._reads_parts = [each is not None and each.reads_parts for each in sources]
        files = [() if each is None else each.paths for each in sources]
        if sum(map(len, files)) <= _FEW_PATHS:
            self._paths = [tuple(map(str, paths)) for paths in files]
        return JoinedByteSource(sources, self._numbers)

    def spans(self, indices: IntArray) -> Spans:
        return self._spans(indices, whole=False)

    def whole_spans(self, indices: IntArray) -> Spans:
        return self._spans(indices, whole=True)

    def _spans(self, indices: IntArray, *, whole: bool) -> Spans:
        n = len(indices)
        file, offset, length = (np.zeros(n, np.int64) for _ in range(3))
        for number, where, places in self._split(indices):
            start = self._numbers.start(number)
            if not self._parts[number].in_bytes:
                file[where], offset[where] = start, places
                continue
            base = self._parts[number].resolved.base
            own = base.whole_spans(places) if whole else base.spans(places)
            file[where], offset[where], length[where] = own.file + start, own.offset, own.length
        return Spans(file, offset, length)

    def _extras_of(self, number: int, places: IntArray) -> Array | None:
        part = self._parts[number]
        found: Array | None = part.resolved.base.extras(places) if part.in_bytes else places
        return found

    @cached_property
    def _layout(self) -> tuple[list[str | None], np.dtype[Any]]:
        samples: list[Array | None] = []
        for number, part in enumerate(self._parts):
            if part.in_bytes:
                _ = part.resolved.base.decoder  # it opens a crop index, whose keys are extras
            first = part.places(np.zeros(min(1, part.length), np.int64))
            samples.append(self._extras_of(number, first))
        return joined_extras(samples)

    @cached_property
    def _common(self) -> Decoder[Any] | None:
        """Return the decoder of all parts if they are all alike."""
        if not all(part.in_bytes and not part.stages for part in self._parts):
            return None
        fields, _ = self._layout
        decoder = common_decoder([part.resolved.decoder for part in self._parts])
        return decoder if len(set(fields)) == 1 else None

    def extras(self, indices: IntArray) -> Array | None:
        fields, dtype = self._layout
        if self._common is not None:
            if fields[0] is None:
                return None
            column = dtype.fields
            assert column is not None
            plain = np.zeros(len(indices), column[fields[0]][0])
            for number, where, places in self._split(indices):
                plain[where] = self._extras_of(number, places)
            return plain
        found = np.zeros(len(indices), dtype)
        for number, where, places in self._split(indices):
            found["part"][where] = number
            field = fields[number]
            if field is not None:
                found[field][where] = self._extras_of(number, places)
        return found

    @property
    def decoder(self) -> Decoder[Any]:
        if self._common is not None:
            return self._common
        fields, _ = self._layout
        return JoinedDecoder(
            tuple(
                PartDecoder(
                    part.resolved.decoder if part.in_bytes else ItemDecoder(part.resolved.base),
                    part.stages,
                    field,
                    paths,
                )
                for part, field, paths in zip(self._parts, fields, self._paths, strict=True)
            ),
            self._numbers,
        )

    def location(self, index: int) -> ItemLocation:
        """Return key, path and offset of an item in its part; of a part without files the part and the index."""
        part, place = self._locate(index)
        if part.in_bytes:
            found: ItemLocation = part.resolved.base.location(place)
            return found
        number = self._parts.index(part)
        return ItemLocation(f"item {place} of part {number} ({type(part.resolved.base).__name__})")

    def file_nbytes(self, index: int) -> int:
        """Return the size in bytes of the file that contains an item; -1 if it is unknown."""
        part, place = self._locate(index)
        return part.resolved.base.file_nbytes(place) if part.in_bytes else -1

    def partial_reads(self, stages: Sequence[aioloader.abc.Stage], seed: int) -> PartialReads | None:
        """Return the finder of the parts of items that samples need; None if all items are read whole."""
        fields, _ = self._layout
        if any(field is not None for field in fields):
            return None  # what is left out would take the place of these numbers
        finders = []
        for part, reads_parts in zip(self._parts, self._reads_parts, strict=True):
            base = part.resolved.base
            finder = None
            if part.in_bytes:
                # Also for a source that reads whole items: it fetches crop indexes, which decoders use.
                finder = base.partial_reads((*part.stages, *stages), seed)
            if finder is not None and not reads_parts:
                finder.close()
                finder = None
            finders.append(finder)
        return JoinedReads(finders, self._numbers) if any(each is not None for each in finders) else None

    def shuffle_sampler(self, indices: IntArray | None) -> BlockShuffleSampler | None:
        """Return the order of shuffled epochs if a part proposes one; see `aioloader.abc.ByteDataset`."""
        if indices is None:
            indices = np.arange(self._length, dtype=np.int64)
        numbers = np.searchsorted(self._starts, indices, side="right") - 1
        proposed: list[tuple[IntArray, BlockShuffleSampler | None]] = []
        for number, part in enumerate(self._parts):
            where = np.flatnonzero(numbers == number).astype(np.int64)
            if not len(where):
                continue
            base, order = part.resolved.base, None
            if part.in_bytes:
                order = base.shuffle_sampler(part.places(indices[where] - part.start))
            proposed.append((where, order if isinstance(order, BlockShuffleSampler) else None))
        return join_blocks(proposed)


def _same_stages(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return True if two chains are of the same transforms."""
    return len(some) == len(others) and all(
        one is other
        or (one.fn is other.fn and one.first == other.first and one.concurrency == other.concurrency)
        for one, other in zip(some, others, strict=True)
    )
