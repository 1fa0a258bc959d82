"""Decoder of the items of several joined datasets: each item is made as its own part makes it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import Decoder, FusableDecoder, FusedDecoder, MapDataset
from aioloader.datasets.decoding import PARTS, ImageDecoder
from aioloader.rng import current_rng, default_rng

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Stage
    from aioloader.foundation.types import Array, ItemLocation, StageTimer
    from aioloader.rng import Rng
    from aioloader.storage.joined import FileNumbers


@dataclass(frozen=True)
class ItemDecoder:
    """Decoder of an item without bytes: it asks the dataset for the item, whose index is the item's extra.

    Attributes:
        dataset: any object with items.
    """

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
    stages: tuple[Stage, ...]
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
class JoinedDecoder:
    """Decoder of the items of several datasets.

    Attributes:
        parts: the makers of the items of each.
        numbers: of their files.
    """

    parts: tuple[PartDecoder, ...]
    numbers: FileNumbers

    @property
    def foreign(self) -> bool:
        """Return True if code of the caller runs in it, which may draw from global random generators."""
        return any(
            isinstance(part.decoder, ItemDecoder) or not all(stage.native for stage in part.stages)
            for part in self.parts
        )

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        """Make a sample; the transforms of its part draw from this thread's generator."""
        part = self.parts[int(extra["part"])]
        sample = part.decoder(data, part.extra(extra), location)
        for stage in part.stages:
            sample = stage.apply(sample, default_rng())
        return sample

    def fuse(self, stages: Sequence[Stage]) -> FusedParts:
        """Return the decoders of the parts, each fused with the stages as far as it can be."""
        return FusedParts(self, stages)


class FusedParts:
    """Decoder of the items of several datasets that also runs the stages that one of them can be fused with.

    Args:
        joined: the decoder.
        stages: all stages of the loader.

    Attributes:
        stages: number of stages that run here.
        leaves: number of arrays that an image becomes, if that is the same for all parts; otherwise 1.
    """

    def __init__(self, joined: JoinedDecoder, stages: Sequence[Stage]) -> None:
        self._numbers = joined.numbers
        self._parts = joined.parts
        self._fused: list[FusedDecoder[Any] | None] = []
        for part in joined.parts:
            all_stages = (*part.stages, *stages)
            decoder = part.decoder
            self._fused.append(decoder.fuse(all_stages) if isinstance(decoder, FusableDecoder) else None)
        self.stages = max(
            (
                0 if fused is None else max(0, fused.stages - len(part.stages))
                for part, fused in zip(joined.parts, self._fused, strict=True)
            ),
            default=0,
        )
        self._then = tuple(stages[: self.stages])
        arrays = {1 if fused is None else fused.leaves for fused in self._fused}
        self.leaves = arrays.pop() if len(arrays) == 1 else 1

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
        part, fused = self._parts[place], self._fused[place]
        if number is not None:
            location = part.located(location, number)
        of_part = part.extra(extra)
        stages = (*part.stages, *self._then)
        # The part counts its own stages first; the time of those is a part of decoding.
        spent, trace.transforms = trace.transforms, [0.0] * (len(part.stages) + len(trace.transforms))
        try:
            if fused is None:
                begin = perf_counter()
                token = current_rng.set(rng)
                try:
                    sample = part.decoder(data, of_part, location)
                finally:
                    current_rng.reset(token)
                trace.decode_s += perf_counter() - begin
                done = 0
            else:
                done = fused.stages
                row = out if done == len(stages) and fused.leaves == self.leaves else None
                sample = fused(data, of_part, location, rng=rng, out=row, trace=trace, file=number)
            for stage in stages[done:]:
                begin = perf_counter()
                trace.stage = f"transform:{stage.name}"
                sample = stage.apply(sample, rng)
                trace.transforms[done] += perf_counter() - begin
                done += 1
        finally:
            own, trace.transforms = trace.transforms, spent
            trace.decode_s += sum(own[: len(part.stages)])
            for step, seconds in enumerate(own[len(part.stages) :]):
                spent[step] += seconds
        return sample


def common_decoder(decoders: Sequence[Decoder[Any]]) -> Decoder[Any] | None:
    """Return the one decoder that makes the items of all parts, and knows no files; None if there is none."""
    first = decoders[0]
    if isinstance(first, ItemDecoder):
        return None
    for decoder in decoders:
        if isinstance(decoder, ImageDecoder) and decoder.crops is not None:
            return None
        if decoder != first:
            return None
    return first


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
