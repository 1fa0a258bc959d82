"""A chain of transforms and the decoder before it, compiled to one plan per sample.

Rule: the result, the draws and their order are those of decoding the whole image and applying one transform after the
other; only what is thrown away is not made. A first crop is drawn before the pixels are decoded, so that only its
rectangle is; resizing writes into the batch's row; flips happen there, in place; pixels become planes of float32 in
one pass. What is not known runs as it is, with what is before and after it still fused.

A plan has a head (`transforms.decode_ops`), flips, and segments that follow. While nothing foreign comes later
they write into the row, or, where a pass to float32 follows, into memory that is used again.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.transforms.base import Step, Transform, bind, is_native
from aioloader.transforms.compose import Compose
from aioloader.transforms.decode_ops import head_of
from aioloader.transforms.geometry import RandomFlipLeftRight, RandomFlipTopBottom
from aioloader.transforms.table import PixelTable, table_length

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, StageTimer
    from aioloader.rng import Rng
    from aioloader.transforms.lazy_image import LazyImageReader

__all__ = ("ImagePlan",)

_UINT8 = np.dtype(np.uint8)
_FLIPS = (RandomFlipLeftRight, RandomFlipTopBottom)

# Where a step may write: nowhere that is used again, the batch's row, or over its own input.
_NOWHERE, _ROW, _INPUT = range(3)


class _Part(NamedTuple):
    """A transform of the chain and the number of its stage."""

    fn: Callable[..., Any]
    stage: int


class _Segment(NamedTuple):
    """Transforms of one stage that are run together, and where they may write."""

    step: Step
    stage: int
    target: int


class ImagePlan:
    """Makes the image of a sample; one per thread.

    Args:
        reader: opens the encoded image.
        stages: (name, callable) of every stage; the callables take an image, as in `Dataset.transform_first`.
        lend: nothing foreign is done to the image after these stages.
    """

    def __init__(
        self, reader: LazyImageReader, stages: Sequence[tuple[str, Callable[..., Any]]], lend: bool = True
    ) -> None:
        self._reader = reader
        self._names = [f"transform:{name}" for name, _ in stages]
        parts = [_Part(fn, number) for number, (_, whole) in enumerate(stages) for fn in _flat(whole)]
        self._head, length = head_of([part.fn for part in parts], reader.scratch)
        # What the head leaves to be done is done in the stage of its last transform.
        self._stage = parts[max(0, length - 1)].stage if parts else 0
        end = length
        while end < len(parts) and type(parts[end].fn) in _FLIPS and parts[end].stage == self._stage:
            end += 1
        self._flips = tuple((part.fn.p, part.fn) for part in parts[length:end] if isinstance(part.fn, _FLIPS))
        rest = parts[end:]
        self._segments, self._target = _segments(rest, lend)
        if not length and not all(_in_place(part.fn) for part in rest):
            # The whole picture would lie in the row only to be in the way of what is made of it.
            self._target = _NOWHERE if self._target == _ROW else self._target
        # A view of borrowed memory must not reach foreign code, which may keep it.
        self._copies = not (lend and all(is_native(part.fn) for part in rest))

    def __call__(self, data: Any, path: str | None, rng: Rng, out: Array | None, trace: StageTimer) -> Any:
        """Decode and transform an image.

        Args:
            data: the encoded image, bytes or a flat memoryview of bytes.
            path: file that the data is from, for errors.
            rng: the sample's draws.
            out: where the result may be written if it has exactly that shape and dtype.
            trace: told what goes on and how long it took.

        Returns:
            the image; `out` itself if it was used. It may be a view of `data`, or of memory that the plan uses
            again once the view is gone.

        Raises:
            DecodeError: as `decode_image`.
        """
        begin = perf_counter()
        head, target = self._head, self._target
        picture = self._reader.open(data, path)
        place = None
        if target == _ROW and out is not None and out.dtype == _UINT8 and out.flags.carray:
            place = out
        x = head.decode(picture, rng, place)
        now = perf_counter()
        trace.decode_s += now - begin
        if not self._names:
            return x.copy() if picture.borrowed and self._copies else x
        begin, stage = now, self._stage
        trace.stage = self._names[stage]
        if target == _INPUT and head.size is not None:
            width, height = head.size
            place = self._reader.scratch.take(height * width * picture.channels)
            place = place.reshape(height, width, picture.channels)
        x = head.finish(x, rng, place)
        owned = not picture.borrowed or x is place or x.base is None
        for p, flip in self._flips:
            if rng.random() < p:
                turned = place if place is not None and place.shape == x.shape else x if owned else None
                x = flip.flip(x) if turned is None else flip.flip_into(x, turned)
                owned = True
        if self._copies and not owned:
            x = x.copy()
        for segment in self._segments:
            if segment.stage != stage:
                now = perf_counter()
                trace.transforms[stage] += now - begin
                begin, stage = now, segment.stage
                trace.stage = self._names[stage]
            if segment.target == _ROW:
                x = segment.step(x, rng, out)
            else:
                x = segment.step(x, rng, x if segment.target == _INPUT and owned else None)
        trace.transforms[stage] += perf_counter() - begin
        return x


def _in_place(fn: Callable[..., Any]) -> bool:
    return isinstance(fn, Transform) and fn.in_place and is_native(fn)


def _flat(fn: Callable[..., Any]) -> list[Callable[..., Any]]:
    """The transforms that a chain is made of."""
    if type(fn) is Compose:
        return [inner for part in fn.transforms for inner in _flat(part)]
    return [fn]


def _segments(parts: Sequence[_Part], lend: bool) -> tuple[list[_Segment], int]:
    """Put what follows the head together; says also where the head may write."""
    native = [is_native(part.fn) for part in parts]

    def target(stop: int) -> int:
        return _ROW if lend and all(native[stop:]) else _NOWHERE

    place, length = _find_table(parts)
    segments = []
    if not length:
        place = len(parts)
    before = _INPUT if length and all(native[:place]) else None
    for start, stop in _runs(parts, 0, place):
        step = _step(parts[start:stop])
        segments.append(_Segment(step, parts[start].stage, target(stop) if before is None else before))
    if length:
        after = place + length
        table = PixelTable([part.fn for part in parts[place:after]])
        segments.append(_Segment(table, parts[place].stage, target(after)))
        for start, stop in _runs(parts, after, len(parts)):
            segments.append(_Segment(_step(parts[start:stop]), parts[start].stage, target(stop)))
    return segments, target(0) if before is None else before


def _find_table(parts: Sequence[_Part]) -> tuple[int, int]:
    """(place, number) of the first transforms that a `PixelTable` can stand for; a number of 0 if there are none."""
    for place, part in enumerate(parts):
        same = [other.fn for other in parts[place:] if other.stage == part.stage]
        length = table_length(same)
        if length:
            return place, length
    return 0, 0


def _runs(parts: Sequence[_Part], start: int, stop: int) -> list[tuple[int, int]]:
    """Stretches of one stage each."""
    runs = []
    while start < stop:
        end = start
        while end < stop and parts[end].stage == parts[start].stage:
            end += 1
        runs.append((start, end))
        start = end
    return runs


def _step(parts: Sequence[_Part]) -> Step:
    if len(parts) == 1:
        return bind(parts[0].fn)
    return Compose([part.fn for part in parts]).apply
