"""A chain of transforms and the decoder before it, compiled to one plan per sample.

Rule: the result, the draws and their order are those of decoding the whole image and applying one transform after the
other; only data that would be thrown away is not computed. A first crop is drawn before the pixels are decoded, so that
only its rectangle is decoded; resizing writes into the batch's row; flips happen there, in place; pixels become planes
of float32 in one pass. An unknown transform runs unchanged, with the transforms before and after it still fused.

A plan consists of a decode operation (`DecodeOp`), flips, and segments that follow. Unless foreign code comes later,
they write into the row, or, if a pass to float32 (`PixelTable`) follows, into memory that is used again.

The rectangle of an image that a chain needs is found from the image's extents and draws alone: the chain's own decode
operation is run with an image that has extents and no pixels, so the draws are those of its plan.

`Views` make several images from one decode: first every view draws the rectangle that it needs; then pixels are
decoded, for all of them together or for each one; then every view is finished in its place.
"""

from __future__ import annotations

from itertools import groupby
from time import perf_counter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import numpy as np

from aioloader.errors import DecodeError, IncompleteItemError
from aioloader.foundation.decodes import NO_CROP, NO_INDEX, NOT_JPEG, RAW
from aioloader.jpeg.cut import scale_for
from aioloader.rng import VIEW_DOMAIN, Rng
from aioloader.transforms.antialias import resize_antialiased
from aioloader.transforms.base import Compose, TransformCall, bind, is_native, works_in_place
from aioloader.transforms.geometry import (
    BorderedBox,
    Crop,
    CropResize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
)
from aioloader.transforms.interpolation import (
    CUBIC,
    FILTERED,
    LANCZOS,
    LINEAR,
    NEAREST,
    needed_range,
    resize_image,
    settle,
    settle_auto,
)
from aioloader.transforms.lazy_image import Scratch
from aioloader.transforms.planes import ToPlanes
from aioloader.transforms.tensor import Cast, Normalize, ToDtype, ToTensor
from aioloader.transforms.views import Views

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array, StageTimer
    from aioloader.transforms.geometry import Box
    from aioloader.transforms.lazy_image import LazyImage, LazyImageReader


_UINT8 = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)
# Interpolations that are one call of OpenCV, by the argument `antialias`.
_OPENCV = {
    None: (NEAREST, LINEAR, CUBIC, LANCZOS),
    False: (LINEAR, CUBIC, LANCZOS),
    True: (),
}
_FLIPS = (RandomHorizontalFlip, RandomVerticalFlip)

# Memory that a step may write to: none that is used again, the batch's row, or its own input.
_NOWHERE, _ROW, _INPUT = range(3)


class _Part(NamedTuple):
    """A transform of the chain and the number of its stage."""

    fn: Callable[..., Any]
    stage: int


class _Segment(NamedTuple):
    """Transforms of one stage that are run together, and the memory that they may write to."""

    step: TransformCall
    stage: int
    target: int


class ImagePlan:
    """The work that makes the image of a sample; one per thread.

    Args:
        reader: opens the encoded image.
        stages: (name, callable) of every stage; the callables take an image, as in `Dataset.transform_first`.
        lend: no foreign code gets the image after these stages.

    Attributes:
        crops: only a part of each image is decoded, so that entries of a crop index are of use.
        leaves: number of arrays in the result: 1.
    """

    leaves = 1

    def __init__(
        self, reader: LazyImageReader, stages: Sequence[tuple[str, Callable[..., Any]]], lend: bool = True
    ) -> None:
        self._reader = reader
        self._names = [f"transform:{name}" for name, _ in stages]
        parts = [_Part(fn, number) for number, (_, chain) in enumerate(stages) for fn in flat_chain(chain)]
        self._decode_op, length = choose_decode_op([part.fn for part in parts], reader.scratch)
        self.crops = self._decode_op.crops
        self._finishes = type(self._decode_op) is not DecodeOp
        # The time of `DecodeOp.finish` counts for the stage of its last transform.
        self._stage = parts[max(0, length - 1)].stage if parts else 0
        end = length
        while end < len(parts) and type(parts[end].fn) in _FLIPS and parts[end].stage == self._stage:
            end += 1
        self._flips = tuple((part.fn.p, part.fn) for part in parts[length:end] if isinstance(part.fn, _FLIPS))
        rest = parts[end:]
        self._segments, self._target = _segments(rest, lend)
        if not length and not all(works_in_place(part.fn) for part in rest):
            # The whole image in the row would only be in the way of the result.
            self._target = _NOWHERE if self._target == _ROW else self._target
        # A view of borrowed memory must not reach foreign code, which may keep it.
        self._copies = not (lend and all(is_native(part.fn) for part in rest))

    def __call__(
        self,
        data: Any,
        path: str | None,
        rng: Rng,
        out: Array | None,
        timer: StageTimer,
        *,
        entry: Any = NO_INDEX,
        rows: tuple[int, int] | None = None,
    ) -> Any:
        """Decode and transform an image.

        Args:
            data: the encoded image, bytes or a flat memoryview of bytes.
            path: file that the data is from, for errors.
            rng: the sample's draws.
            out: array that the result may be written to if it has exactly that shape and dtype.
            timer: records the stage in progress, the time of each stage, and in which way the image was decoded.
            entry: entry of a crop index, see `LazyImageReader.open`.
            rows: `data` is the part of a JPEG with these rows, see `LazyImageReader.open_part`; None: it is all of it.

        Returns:
            the image; `out` itself if it was used. It may be a view of `data`, or of memory that the plan uses
            again once the view is deleted.

        Raises:
            DecodeError: as `decode_image`.
            IncompleteItemError: the part of a JPEG is not enough; nothing was transformed yet.
        """
        begin = perf_counter()
        reader = self._reader
        reader.timer = timer
        if rows is None:
            image = reader.open(data, path, entry=entry if self.crops else NO_CROP)
            if not timer.measured_images:
                reader.measure(data, image.height, image.width)
        else:
            image = reader.open_part(data, path, entry=entry, rows=rows)
        x = self.decode(image, rng, out)
        timer.decode_s += perf_counter() - begin
        return self.finish(x, image, rng, out, timer)

    def filler(
        self, items: list[Any], words: list[list[int]], rows: Array, rng: Rng, timer: StageTimer
    ) -> Callable[[int, int], bool] | None:
        """Return a function that makes usual images in their rows, with few calls; None if the plan makes no such.

        Usual are JPEGs of known headers that fill their row, of a plan that only flips, and JPEGs and raw images whose
        crop is resized to the row. The result, draws and counters are those of `__call__`, whose calls cost as much as
        a tenth of decoding a small image.

        Args:
            items: the encoded images; None for those that the function is not called for.
            words: of each image, those that are drawn ahead; or an empty list.
            rows: rows of a batch, (n, ...).
            rng: the draws; at the beginning of a sample's when the function is called.
            timer: as for `__call__`.

        Returns:
            the function of the number of an image and that of its row. It returns False for an image that `__call__`
            must be called for, with the draws from their beginning.
        """
        if (
            self._segments
            or self._place(rows) is None
            or not rows.shape[3:] == (3,) == (self._reader.channels,)
        ):
            return None
        if type(self._decode_op) is DecodeOp:
            return self._decode_filler(items, rows, self._flipper(rng, timer), timer)
        if self._decode_op.row == rows.shape[1:]:
            begin = perf_counter()
            crops = self._decode_op.draw_crops(items, words, self._reader.max_pixels) if words else []
            timer.decode_s += perf_counter() - begin
            return self._crop_filler(items, crops, rows, self._flipper(rng, timer), rng, timer)
        return None

    def _flipper(self, rng: Rng, timer: StageTimer) -> Callable[[Array], None]:
        """Return a function that flips an image in its place."""
        import cv2

        draw, flip, name = rng.random, cv2.flip, self._names[self._stage] if self._flips else ""
        flips = [(p, each.axis) for p, each in self._flips]

        def finish(image: Array) -> None:
            for p, axis in flips:
                if draw() < p:
                    timer.stage = name
                    flip(image, axis, dst=image)

        return finish

    def _decode_filler(
        self, items: list[Any], rows: Array, flip: Callable[[Array], None], timer: StageTimer
    ) -> Callable[[int, int], bool]:
        find, decode = self._reader.known.find, self._reader.decode_into
        stage, staged = self._stage, bool(self._names)
        height, width = rows.shape[1:3]
        self._reader.timer = timer
        self._reader.measure(None, height, width)

        def fill(number: int, row: int) -> bool:
            begin = perf_counter()
            data = items[number]
            header = find(data)
            if header is None:
                return False
            frame, orientation = header
            if orientation != 1 or frame.height != height or frame.width != width:
                return False
            out: Array = rows[row]
            if not decode(data, out, stops_early=not frame.restart_interval):
                return False
            timer.uncropped += 1
            now = perf_counter()
            timer.decode_s += now - begin
            if staged:
                flip(out)
                timer.transforms[stage] += perf_counter() - now
            return True

        return fill

    def _crop_filler(
        self,
        items: list[Any],
        crops: list[Any],
        rows: Array,
        flip: Callable[[Array], None],
        rng: Rng,
        timer: StageTimer,
    ) -> Callable[[int, int], bool]:
        reader, decode_op, stage = self._reader, self._decode_op, self._stage
        raw, jpeg, name = reader.raw, reader.jpeg, self._names[stage]
        resize, skip, decodes, seconds = decode_op.resize, rng.skip, timer.decodes[RAW], timer.transforms

        def fill(number: int, row: int) -> bool:
            begin = perf_counter()
            data = items[number]
            if crops and crops[number] is not None:
                first, height, width, stride, used = crops[number]
                timer.stage = name
                decodes[NOT_JPEG] += 1
                skip(used)
                place: Array = rows[row]
                resize(np.ndarray((height, width, 3), np.uint8, data, first, (stride, 3, 1)), place)
                flip(place)
                seconds[stage] += perf_counter() - begin
                return True
            image, pixels = None, raw(data)
            try:
                if pixels is not None:
                    region = decode_op.cut(pixels, rng)
                else:
                    reader.timer = timer
                    image = jpeg(data)
                    region = None if image is None else decode_op.decode(image, rng, None)
            except DecodeError:  # `__call__` raises it with the file's name
                return False
            if region is None:
                return False
            now = perf_counter()
            timer.decode_s += now - begin
            timer.stage = name
            out: Array = rows[row]
            if image is None:
                decodes[NOT_JPEG] += 1
                resize(region, out)
            elif (made := decode_op.finish(region, rng, out)) is not out:
                out[...] = made
            flip(out)
            seconds[stage] += perf_counter() - now
            return True

        return fill

    def decode(self, image: LazyImage, rng: Rng, out: Array | None) -> Any:
        """Draw what decides on the pixels that are needed, and decode them; `finish` does the rest."""
        return self._decode_op.decode(image, rng, self._place(out))

    def _place(self, out: Array | None) -> Array | None:
        """Return the array if pixels may be written to it."""
        fits = self._target == _ROW and out is not None and out.dtype == _UINT8 and out.flags.carray
        return out if fits else None

    def finish(
        self, x: Any, image: LazyImage | _Shared, rng: Rng, out: Array | None, timer: StageTimer
    ) -> Any:
        """Return the image that follows from the pixels.

        Args:
            x: the result of `decode`.
            image: the image that they are from.
            rng, out, timer: as for `__call__`.
        """
        decode_op, target, place = self._decode_op, self._target, self._place(out)
        now = perf_counter()
        if not self._names:
            return x.copy() if image.borrowed and self._copies else x
        begin, stage = now, self._stage
        timer.stage = self._names[stage]
        if target == _INPUT and decode_op.size is not None:
            height, width = decode_op.size
            place = self._reader.scratch.take(height * width * image.channels)
            place = place.reshape(height, width, image.channels)
        if self._finishes:
            x = decode_op.finish(x, rng, place)
        owned = not image.borrowed or x is place or x.base is None
        for p, flip in self._flips:
            if rng.random() < p:
                flipped = place if place is not None and place.shape == x.shape else x if owned else None
                x = flip.flip(x) if flipped is None else flip.flip_into(x, flipped)
                owned = True
        if self._copies and not owned:
            x = x.copy()
        for segment in self._segments:
            if segment.stage != stage:
                now = perf_counter()
                timer.transforms[stage] += now - begin
                begin, stage = now, segment.stage
                timer.stage = self._names[stage]
            if segment.target == _ROW:
                x = segment.step(x, rng, out)
            else:
                x = segment.step(x, rng, x if segment.target == _INPUT and owned else None)
        timer.transforms[stage] += perf_counter() - begin
        return x


def flat_chain(fn: Callable[..., Any]) -> list[Callable[..., Any]]:
    """List the transforms of a chain."""
    if type(fn) is Compose:
        return [inner for part in fn.transforms for inner in flat_chain(part)]
    return [fn]


def _segments(parts: Sequence[_Part], lend: bool) -> tuple[list[_Segment], int]:
    """Divide the transforms after the flips into segments; return them, and the memory for the decode operation."""
    native = [is_native(part.fn) for part in parts]

    def target(stop: int) -> int:
        return _ROW if lend and all(native[stop:]) else _NOWHERE

    table = _find_table(parts)
    # A table writes to other memory than it reads, so the steps before it may write over their input.
    over_input = bool(table) and all(native[: table.start])
    segments = []
    runs = groupby(enumerate(parts), lambda item: (item[1].stage, item[0] in table))
    for (stage, in_table), run in runs:
        places, run_parts = zip(*run, strict=True)
        chain = [part.fn for part in run_parts]
        step = PixelTable(chain) if in_table else bind(chain[0] if len(chain) == 1 else Compose(chain))
        stop = places[-1] + 1
        memory = _INPUT if over_input and stop <= table.start else target(stop)
        segments.append(_Segment(step, stage, memory))
    return segments, _INPUT if over_input else target(0)


def _find_table(parts: Sequence[_Part]) -> range:
    """Return the places of the first transforms that a `PixelTable` can replace; an empty range if there are none."""
    for place, part in enumerate(parts):
        length = table_length([other.fn for other in parts[place:] if other.stage == part.stage])
        if length:
            return range(place, place + length)
    return range(len(parts), len(parts))


class DecodeOp:
    """The first operation of a plan, for which not all pixels have to be decoded; one per thread.

    Rule: `decode` draws the values that it needs and decodes the pixels, `finish` does the rest; together they are
    equal to the transforms that they replace, draw for draw and bit for bit. An operation keeps its draws from
    `decode` to `finish`. This base class decodes the whole image, straight to the memory of the result.

    Attributes:
        size: (height, width) of the result; None before `decode` if it depends on the image, or is the image's.
        crops: it decodes only a part of most images.
        row: shape of the results that `cut` and `resize` can make; None: of none.
    """

    size: tuple[int, int] | None = None
    crops = False
    row: tuple[int, ...] | None = None

    def decode(self, image: LazyImage, rng: Rng, out: Array | None) -> Array:
        """Decode the pixels that are needed.

        Args:
            image: the image.
            rng: the sample's draws.
            out: array that they may be written to if nothing is left to be done with them, uint8; None for none.

        Raises:
            DecodeError: as `decode_image`.
        """
        if out is not None and out.shape == (image.height, image.width, image.channels):
            return image.pixels(out)
        return image.pixels()

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        """Do the rest of the operation; return a result that may be `pixels`, or in `out`."""
        return pixels

    def draw_crops(self, images: list[Any], words: list[list[int]], most: int | None) -> list[Any]:
        """Draw what `resize` can finish; see `Crop.draw_crops`. An empty list if it draws nothing."""
        return []

    def cut(self, pixels: Array, rng: Rng) -> Array | None:
        """Return what `decode` returns for an image of these pixels, RGB, if `resize` can finish it; else None."""
        return None

    def resize(self, region: Array, out: Array) -> None:
        """Do what `finish` does after `cut`; `out` has the shape `row`."""


class _DecodeCrop(DecodeOp):
    """A drawn crop: decode its rectangle only, and resize it."""

    crops = True

    def __init__(self, crop: Crop) -> None:
        import cv2

        self._draw = crop.box
        self._draw_many = crop.draw_crops
        self._fit = crop.fit
        self._box: Box = (0, 0, 0, 0)
        # Error of the draw, which `finish` raises: it belongs to the stage of the crop.
        self._error: ValueError | None = None
        self.size = self._size = crop.size
        self._code = crop.code
        # `resize` then does the same as `resize_image` for colour and a fixed interpolation, without its checks.
        plain = type(crop).fit is Crop.fit and self._code in _OPENCV[crop.antialias]
        filtered = type(crop) is RandomResizedCrop and crop.antialias and self._code in FILTERED
        self.row = (*crop.size, 3) if plain or filtered else None
        self._resize = cv2.resize
        self._kernel = FILTERED[self._code] if filtered else ""

    def decode(self, image: LazyImage, rng: Rng, out: Array | None) -> Array:
        try:
            self._box = box = self._draw(image.height, image.width, rng)
        except ValueError as error:
            self._error = error
            return image.pixels()
        self._error = None
        # Of a box that gets a border, each pixel is one of the result.
        shrinks = image.shrinks and not isinstance(box, BorderedBox)
        return image.region(box, scale_for(box[2:], self._size[::-1]) if shrinks else 1)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        if self._error is not None:
            raise self._error
        if (
            out is not None
            and out.shape == self.row
            and pixels.shape[2] == 3
            and pixels.shape != self.row
            and not isinstance(self._box, BorderedBox)
        ):
            self.resize(pixels, out)
            return out
        return self._fit(pixels, self._box, rng, out)

    def draw_crops(self, images: list[Any], words: list[list[int]], most: int | None) -> list[Any]:
        return self._draw_many(images, words, most)

    def cut(self, pixels: Array, rng: Rng) -> Array | None:
        rows, columns, _ = pixels.shape
        try:
            x, y, width, height = box = self._draw(rows, columns, rng)
        except ValueError:
            return None
        if isinstance(box, BorderedBox) or (height, width) == self._size:
            return None
        return pixels[y : y + height, x : x + width]

    def resize(self, region: Array, out: Array) -> None:
        if self._kernel:
            resize_antialiased(region, self._size, out, kernel=self._kernel)
        else:
            self._resize(region, self._size[::-1], dst=out, interpolation=self._code)


class _DecodeRectangle(DecodeOp):
    """A fixed rectangle: decode it only, and resize it if requested."""

    crops = True

    def __init__(self, crop: CropResize) -> None:
        self._crop = crop
        self.size = crop.size
        self._inside = False

    def decode(self, image: LazyImage, rng: Rng, out: Array | None) -> Array:
        crop = self._crop
        self._inside = crop.fits(image.height, image.width)
        if not self._inside:
            return image.pixels()
        size = crop.size if image.shrinks else None
        shrink = 1 if size is None else scale_for((crop.height, crop.width), size)
        return image.region((crop.left, crop.top, crop.width, crop.height), shrink)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        crop = self._crop
        if not self._inside:
            return cast("Array", crop.apply(pixels, rng, out))  # it raises the error
        return crop.fit(pixels, rng, out)


class _DecodeResized(DecodeOp):
    """A resize of the whole image, and then a crop if one follows, for which not all of it need be decoded."""

    def __init__(self, resize: Resize, crop: Crop | None, scratch: Scratch) -> None:
        self._resize = resize
        self._crop = crop
        self.crops = crop is not None
        self._scratch = scratch
        self.size = None if crop is None else crop.size
        # Draws and results of `decode`: (height, width) of the resized image, the crop in it, the interpolation.
        self._resized = (0, 0)
        self._box: Box = (0, 0, 0, 0)
        self._error: ValueError | None = None
        self._code = 0

    def decode(self, image: LazyImage, rng: Rng, out: Array | None) -> Array:
        height, width = image.height, image.width
        self._resized = rows, columns = self._resize.target(height, width)
        shrink = scale_for((height, width), self._resized) if image.shrinks else 1
        self._code = code = settle_auto(settle(self._resize.code, rng), self._resized, (height, width))
        if self._crop is None:
            self.size = self._resized
            return image.frame((0, 0, width, height), shrink) if shrink > 1 else image.pixels()
        try:
            self._box = x, y, w, h = self._crop.box(rows, columns, rng)
        except ValueError as error:
            self._error = error
            return image.pixels()
        self._error = None
        antialias = self._resize.antialias
        left, right = needed_range(x, x + w, columns, width, code, antialias=antialias, shrink=shrink)
        top, bottom = needed_range(y, y + h, rows, height, code, antialias=antialias, shrink=shrink)
        return image.frame((left, top, right - left, bottom - top), shrink)

    def finish(self, pixels: Array, rng: Rng, out: Array | None) -> Array:
        if self._error is not None:
            raise self._error
        crop, antialias = self._crop, self._resize.antialias
        if crop is None:
            return resize_image(pixels, self._resized, self._code, out, antialias=antialias)
        (height, width), channels = self._resized, pixels.shape[2]
        if self._code not in _OPENCV[antialias]:
            x, y, w, h = self._box
            # The crop is made at its place if the window is all of it.
            place = out if (h, w) == crop.size else None
            part = resize_image(
                pixels, self._resized, self._code, place, antialias=antialias, window=(y, x, h, w)
            )
            return crop.fit(part, self._box, rng, out)
        place = self._scratch.take(height * width * channels).reshape(height, width, channels)
        made = resize_image(pixels, self._resized, self._code, place, antialias=antialias)
        return crop.cut(made, self._box, rng, out)


def choose_decode_op(transforms: Sequence[Callable[..., Any]], scratch: Scratch) -> tuple[DecodeOp, int]:
    """Choose the decode operation of a chain.

    Args:
        transforms: the chain, as a flat list.
        scratch: pool for intermediate results.

    Returns:
        (operation, number of the transforms that it replaces).
    """
    first, second = [*transforms[:2], None, None][:2]
    reads = _reads(first)
    if reads == "crop":
        return _DecodeCrop(cast("Crop", first)), 1
    if reads == "rectangle":
        return _DecodeRectangle(cast("CropResize", first)), 1
    if reads == "resize":
        crop = cast("Crop", second) if _reads(second) == "crop" else None
        return _DecodeResized(cast("Resize", first), crop, scratch), 1 if crop is None else 2
    return DecodeOp(), 0


def _reads(fn: Any) -> str | None:
    return fn._reads if is_native(fn) else None


def table_length(transforms: Sequence[Callable[..., Any]]) -> int:
    """Return the number of transforms, from the first on, that a `PixelTable` can replace; 0 if none."""
    length = 0
    for place, fn in enumerate(transforms):
        if not length and (
            type(fn) is ToTensor or (type(fn) is ToPlanes and fn.fixed and fn.dtype == _FLOAT32)
        ):
            length = place + 1
        elif (type(fn) is Cast or type(fn) is ToDtype) and fn.dtype == _FLOAT32:
            length += length > 0
        elif type(fn) is Normalize and length:
            length += 1
        else:
            break
    return length


class PixelTable:
    """Some casts, `ToTensor` or `ToPlanes`, and casts and normalisations after it, in one pass by a table.

    Rule: the result of `ToTensor`, `Normalize`, `Cast` and a `ToPlanes` without draws for a pixel depends only on its
    value and channel, so the 256 results of each channel are computed once, by these transforms themselves. The result
    is theirs bit for bit, without temporaries.

    Args:
        transforms: as many as `table_length` returned.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self._chain = Compose(transforms)
        self._tables: dict[int, list[Array] | None] = {}
        self._planes: list[Array] = []

    def __call__(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """Apply the transforms; see `Transform.apply`."""
        if type(x) is not np.ndarray or x.dtype != _UINT8 or x.ndim != 3 or not x.size:
            return self._chain.apply(x, rng, out)
        height, width, channels = x.shape
        tables = self._tables[channels] if channels in self._tables else self._prepare(channels)
        if tables is None:
            return self._chain.apply(x, rng, out)
        if (
            out is None
            or out.dtype != _FLOAT32
            or out.shape != (channels, height, width)
            or not out.flags.c_contiguous
        ):
            out = np.empty((channels, height, width), _FLOAT32)
        import cv2

        if channels == 1:
            cv2.LUT(x[:, :, 0], tables[0], dst=out[0])
            return out
        planes = self._planes
        if len(planes) != channels or planes[0].shape != (height, width):
            planes = self._planes = [np.empty((height, width), _UINT8) for _ in range(channels)]
        # Splitting first: looking up interleaved pixels takes twice as long.
        cv2.split(x, planes)
        for place, plane in enumerate(planes):
            cv2.LUT(plane, tables[place], dst=out[place])
        return out

    def _prepare(self, channels: int) -> list[Array] | None:
        """Compute the tables for a number of channels; None if the transforms refuse it."""
        tables = None
        if 1 <= channels <= 4:
            values = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], channels, axis=2)
            try:
                made = self._chain.apply(values, Rng(0))
            except (TypeError, ValueError):
                made = None  # the transforms will raise the error when they are applied
            if made is not None and made.shape == (channels, 256, 1) and made.dtype == _FLOAT32:
                tables = [np.ascontiguousarray(plane[:, 0]) for plane in made]
        self._tables[channels] = tables
        return tables


_NO_PIXELS: Final = np.empty((0, 0, 3), np.uint8)


class NeededRegion:
    """Finder of the rectangle that a chain needs; used by one thread.

    Args:
        chains: callables that take the image, as the stages of an `ImagePlan`.
        shrinks: JPEGs may be shrunk while they are decoded.

    Attributes:
        crops: the chain needs only a part of most images.
    """

    def __init__(self, chains: Sequence[Callable[..., Any]], *, shrinks: bool) -> None:
        transforms = [fn for chain in chains for fn in flat_chain(chain)]
        self._decode_op, _ = choose_decode_op(transforms, Scratch())
        self._shrinks = shrinks
        self.crops = self._decode_op.crops

    def find(self, height: int, width: int, rng: Rng) -> tuple[Box, int] | None:
        """Return the rectangle, and the part of its size at which it is decoded.

        Args:
            height, width: extents of the upright image in pixels.
            rng: the sample's draws.

        Returns:
            ((x, y, width, height), 1, 2, 4 or 8); None for all of the image, and if the chain raises an error for it.
        """
        outline = Outline(height, width, self._shrinks)
        try:
            self._decode_op.decode(cast("LazyImage", outline), rng, None)
        except Exception:  # a worker will raise the same error
            return None
        return outline.requested


class Outline:
    """Image without pixels, which notes the rectangle that is requested.

    Attributes:
        requested: (the rectangle, by how much it may shrink); None: all of the image.
        at_its_place: the rectangle is requested as a part of an array with the image's extents.
    """

    borrowed = at_its_place = False
    channels = 3
    requested: tuple[Box, int] | None = None

    def __init__(self, height: int, width: int, shrinks: bool) -> None:
        self.height = height
        self.width = width
        self.shrinks = shrinks

    def pixels(self, out: Array | None = None) -> Array:
        return _NO_PIXELS

    def region(self, box: Box, shrink: int = 1) -> Array:
        self.requested = box, shrink
        return _NO_PIXELS

    def frame(self, box: Box, shrink: int = 1) -> Array:
        self.at_its_place = True
        return self.region(box, shrink)


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
        if not timer.measured_images:
            self._reader.measure(data, image.height, image.width)
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
            return plan.finish(x, shared, self._rngs[number], place, timer)

        if not self._lends:
            return self._views.collect([np.array(view(number, None)) for number in range(len(self._plans))])
        if self._views.as_list:
            return [
                _settled(view(number, place), place)
                for number, place in enumerate([None] * len(self._plans) if out is None else out)
            ]
        return self._groups(view, out)

    def filler(
        self, items: list[Any], words: list[list[int]], rows: Array, rng: Rng, timer: StageTimer
    ) -> None:
        """Return None, see `ImagePlan.filler`: views are made in several rows."""

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
