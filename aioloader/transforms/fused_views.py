"""Views of an image from one decode: the plan that `Views` compiles to, one per thread.

Rule: the views are those that the transform returns for the whole image, draw for draw and bit for bit. First every
view draws the rectangle that it needs; then pixels are decoded, for all of them together or for each one; then every
view is finished in its place.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import IncompleteItemError
from aioloader.foundation.decodes import NO_CROP, NO_INDEX
from aioloader.rng import VIEW_DOMAIN, Rng
from aioloader.transforms.base import is_native
from aioloader.transforms.fused import ImagePlan, Outline, flat_chain
from aioloader.transforms.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, StageTimer
    from aioloader.transforms.geometry import Box
    from aioloader.transforms.lazy_image import LazyImage, LazyImageReader

# What a separate crop costs apart from its pixels, in pixels.
_CUT_PIXELS = 12_000


class ViewsPlan:
    """The work that makes the views of a sample.

    Args:
        reader: opens the encoded image.
        views: the transform.
        name: of its stage.
        lend: no foreign code gets the views after that.

    Attributes:
        crops: a part of each image is enough, so that entries of a crop index are of use.
        leaves: number of arrays in the result.
    """

    def __init__(self, reader: LazyImageReader, views: Views, name: str, lend: bool = True) -> None:
        self._reader = reader
        self._views = views
        self._plans = [
            ImagePlan(reader, [(name, transform)], lend)
            for transform, count in views.groups.values()
            for _ in range(count)
        ]
        self._rngs = [Rng(0) for _ in self._plans]
        self._stage = f"transform:{name}"
        self._lends = lend and is_native(views)
        self.crops = all(plan.crops for plan in self._plans)
        self.leaves = views.leaves

    def __call__(
        self,
        data: Any,
        path: str | None,
        rng: Rng,
        out: Sequence[Array] | None,
        timer: StageTimer,
        *,
        entry: Any = NO_INDEX,
        rows: tuple[int, int] | None = None,
    ) -> Any:
        """Decode an image and make its views; as `ImagePlan`, but `out` has an array for each leaf of the result."""
        if rows is not None:
            raise IncompleteItemError("several crops are needed")
        begin = perf_counter()
        self._reader.timer = timer
        image = self._reader.open(data, path, entry=entry if self.crops else NO_CROP)
        word = rng.word()
        boxes: list[Any] = []  # None: all of the image
        for number, plan in enumerate(self._plans):
            self._rngs[number].seek(word, 0, number, VIEW_DOMAIN)
            wanted: Any = Outline(image.height, image.width, False)
            plan.decode(wanted, self._rngs[number], None)
            boxes.append(wanted.requested[0] if wanted.requested and not wanted.at_its_place else None)
        frame, pixels = self._decode(image, boxes, indexed=self.crops and type(entry) is not str)
        timer.decode_s += perf_counter() - begin
        timer.stage = self._stage

        def view(number: int, place: Array | None) -> Any:
            plan, box = self._plans[number], boxes[number]
            x: Any
            if pixels is None:
                begun = perf_counter()
                x = image.region(box)
                timer.decode_s += perf_counter() - begun
            elif box is None:
                x = pixels[:]
            else:
                left, top, width, height = box[0] - frame[0], box[1] - frame[1], box[2], box[3]
                x = pixels[top : top + height, left : left + width]
            # Other views read the same pixels: none of them may be altered.
            shared = _Shared(image)
            return plan.finish(x, shared, self._rngs[number], place, timer)  # type: ignore[arg-type]

        if not self._lends:
            return self._views.collect([np.array(view(number, None)) for number in range(len(self._plans))])
        if self._views.as_list:
            return [
                _settled(view(number, place), place)
                for number, place in enumerate([None] * len(self._plans) if out is None else out)
            ]
        return self._groups(view, out)

    def _groups(self, view: Callable[[int, Array | None], Any], out: Sequence[Array] | None) -> Any:
        """Return the groups, each view made in its place."""
        result, first = {}, 0
        for group, (name, (_, count)) in enumerate(self._views.groups.items()):
            target = None if out is None else out[group]
            if target is not None and (target.ndim < 1 or len(target) != count):
                target = None
            for number in range(count):
                place = None if target is None else target[number]
                made = view(first + number, place)
                if target is None or (
                    not number and (made.shape != target.shape[1:] or made.dtype != target.dtype)
                ):
                    target = np.empty((count, *made.shape), made.dtype)
                if made is not place:
                    self._views.check(name, [target[0], made])
                    target[number] = made
            result[name] = target
            first += count
        return result

    def _decode(
        self, image: LazyImage, boxes: Sequence[Box | None], *, indexed: bool
    ) -> tuple[Box, Array | None]:
        """Decode what all views need.

        Returns:
            the rectangle that was decoded, and its pixels; None if each view is to be decoded separately.
        """
        needed = [box for box in boxes if box is not None]
        if len(needed) < len(boxes):
            return (0, 0, image.width, image.height), image.pixels()
        left, top = min(box[0] for box in needed), min(box[1] for box in needed)
        right = max(box[0] + box[2] for box in needed)
        bottom = max(box[1] + box[3] for box in needed)
        frame = left, top, right - left, bottom - top
        # Without an index a crop costs all that is above it too, so that the lowest one costs as much as all.
        separate = sum(box[2] * box[3] + _CUT_PIXELS for box in needed)
        if indexed and separate < frame[2] * frame[3]:
            return frame, None
        return frame, image.region(frame)


class _Shared:
    """An image whose pixels several views read, so that each view copies them before it alters them."""

    borrowed = True

    def __init__(self, image: LazyImage) -> None:
        self.channels = image.channels


def _settled(view: Any, place: Array | None) -> Any:
    """Return a view that nothing else refers to, in its place if it fits."""
    if view is place:
        return view
    if place is not None and view.shape == place.shape and view.dtype == place.dtype:
        place[...] = view
        return place
    return np.array(view)


def plan_of(
    reader: LazyImageReader, stages: Sequence[tuple[str, Callable[..., Any]]], lend: bool = True
) -> ImagePlan | ViewsPlan:
    """Return the plan for the stages that take the image; see `ImagePlan`."""
    if len(stages) == 1:
        name, fn = stages[0]
        chain = flat_chain(fn)
        if len(chain) == 1 and type(chain[0]) is Views:
            return ViewsPlan(reader, chain[0], name, lend)
    return ImagePlan(reader, stages, lend)
