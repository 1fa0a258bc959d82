"""Augmented images of a record: the results of a loader's transforms in some epochs."""

from __future__ import annotations

import importlib
import os
import sys
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.stage import Stage
from aioloader.formats.collection import IMAGE, Box, Record
from aioloader.foundation.types import Array, StageTimer
from aioloader.loader.images import image_chain
from aioloader.rng import Rng
from aioloader.transforms import boxes as box_transforms
from aioloader.transforms.base import as_transform
from aioloader.viewer.rendering import RenderedImage, as_file, box_table

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import FusedDecoder
    from aioloader.formats.collection import Collection, Contents


_DRAW_NBYTES = 1024


@dataclass(frozen=True, slots=True)
class Pipeline:
    """Chain of transforms that the user can choose.

    Attributes:
        name: name in addresses.
        title, about: texts to be displayed.
        stage: the transforms.
        random: whether the result depends on the epoch.
    """

    name: str
    title: str
    about: str
    stage: Stage
    random: bool = True

    @property
    def takes_boxes(self) -> bool:
        """Return whether the chain transforms boxes with their image."""
        return not self.stage.first


@dataclass(frozen=True, slots=True)
class Draw:
    """Result of a chain for an image in one epoch.

    Attributes:
        epoch: the epoch.
        image: the rendered result; None if the chain failed.
        boxes: the remaining objects.
        shape, dtype: shape and dtype of the array that the chain returned.
        note: how the array was converted for display, or "".
        problem: description of the error if `image` is None, or "".
    """

    epoch: int
    image: RenderedImage | None
    boxes: tuple[Box, ...] = ()
    shape: tuple[int, ...] = ()
    dtype: str = ""
    note: str = ""
    problem: str = ""

    @property
    def nbytes(self) -> int:
        """Return the memory that it takes in the cache, in bytes, approximately."""
        return _DRAW_NBYTES + (len(self.image.content) if self.image else 0)


def named_transform(name: str) -> Callable[..., Any]:
    """Import the transform ``module:name``; the module may be in the current folder.

    Raises:
        ValueError: the module or the name does not exist, or the object cannot be called.
    """
    module_name, _, attribute = name.partition(":")
    if not module_name or not attribute:
        raise ValueError(f"--transform takes module:name, such as training:augment, got {name!r}")
    here = os.getcwd()
    if here not in sys.path and "" not in sys.path:
        sys.path.insert(0, here)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ValueError(f"--transform {name}: {error}; {here} is searched too") from error
    for part in attribute.split("."):
        found = getattr(found, part, None)
        if found is None:
            raise ValueError(f"--transform {name}: the module {module_name} has no {attribute}")
    if isinstance(found, type):
        found = found()
    if not callable(found):
        raise ValueError(f"--transform {name}: {type(found).__name__} cannot be called")
    result: Callable[..., Any] = found
    return result


class _ThreadState(threading.local):
    """Fused decoders of one thread, by name of the chain."""

    def __init__(self) -> None:
        self.fused: dict[str, FusedDecoder[Any] | None] = {}


class Draws:
    """Renderer of augmented images; usable in any thread.

    Args:
        collection: the collection of the records.
        size: side of the images in pixels.
        seed: seed of the loader.
        custom: the user's transform and its name, or None.
        exact: keep every pixel's value.
    """

    def __init__(
        self,
        collection: Collection,
        *,
        size: int,
        seed: int,
        custom: tuple[Callable[..., Any], str] | None,
        exact: bool,
    ) -> None:
        self._exact = exact
        self._seed = seed
        self._collection = collection
        self._local = _ThreadState()
        self._pipelines = {each.name: each for each in _presets(size)}
        if custom is not None:
            transform, name = custom
            stage = Stage(transform, first=not as_transform(transform)._takes_boxes)
            about = f"the transform {name} of the command line"
            self._pipelines["custom"] = Pipeline("custom", name, about, stage)

    @property
    def names(self) -> set[str]:
        """Return the names of all chains, regardless of the record."""
        return set(self._pipelines)

    def pipelines(self, record: Record) -> list[Pipeline]:
        """Return the chains for a record, the most suitable first; none if a loader does not deliver the record."""
        if record.kind != IMAGE or self._collection.index(record.position) is None:
            return []
        fitting = [
            each
            for each in self._pipelines.values()
            if record.boxes or not each.takes_boxes or each.name == "custom"
        ]
        return sorted(
            fitting, key=lambda each: (each.name != "custom", bool(record.boxes) != each.takes_boxes)
        )

    def pipeline(self, name: str, record: Record) -> Pipeline | None:
        """Return the chain with a name, if it fits the record."""
        return next((each for each in self.pipelines(record) if each.name == name), None)

    def make(self, contents: Contents, pipeline: Pipeline, epoch: int) -> Draw:
        """Render the image that a loader delivers for the record in an epoch that is not shuffled."""
        record = contents.record
        index = self._collection.index(record.position)
        assert index is not None
        rng = Rng(self._seed, epoch, index, position=index)
        try:
            image, table = self._sample(contents, pipeline, rng)
            pixels, note = as_pixels(image)
        except Exception as error:  # the chain may be the user's
            return Draw(epoch, None, problem=f"{type(error).__name__}: {error}")
        height, width = pixels.shape[:2]
        boxes = tuple(
            Box(float(row[4]), row[0] / width, row[1] / height, row[2] / width, row[3] / height)
            for row in table.tolist()
        )
        shape = tuple(np.shape(image))
        return Draw(
            epoch,
            as_file(pixels, exact=self._exact),
            boxes=boxes,
            shape=shape,
            dtype=str(getattr(image, "dtype", "")),
            note=note,
        )

    def _sample(self, contents: Contents, pipeline: Pipeline, rng: Rng) -> tuple[Any, Array]:
        decoder = self._collection.decoder
        record = contents.record
        location = record.location
        stage = pipeline.stage
        if pipeline.takes_boxes:
            image = decoder(contents.data, contents.extra, location)[0]
            table = box_table(record.boxes, image.shape[1], image.shape[0])
            image, table, *_ = stage.apply((image, table), rng)
            return image, np.asarray(table, np.float64).reshape(-1, np.shape(table)[-1])[:, :5]
        fused = self._fused(pipeline)
        if fused is None:
            sample = stage.apply(decoder(contents.data, contents.extra, location), rng)
        else:
            sample = fused(
                contents.data, contents.extra, location, rng=rng, out=None, trace=StageTimer([0.0])
            )
        return sample[0], np.empty((0, 5))

    def _fused(self, pipeline: Pipeline) -> FusedDecoder[Any] | None:
        """Return the fused decoder and chain, as workers use it, one for each thread; None if it cannot be fused."""
        held = self._local.fused
        if pipeline.name not in held:
            held[pipeline.name] = self._collection.decoder.fuse([pipeline.stage])
        return held[pipeline.name]


def _presets(size: int) -> Sequence[Pipeline]:
    crop = box_transforms.Compose(
        [
            box_transforms.RandomObjectCrop(min_object_covered=0.3),
            box_transforms.RandomHorizontalFlip(),
            box_transforms.Resize((size, size)),
        ]
    )
    expand = box_transforms.Compose(
        [box_transforms.RandomExpand(area_range=(1, 4), value=127), *crop.transforms]
    )
    return (
        Pipeline(
            "train",
            "training",
            f"aioloader.images(..., size={size}): a random resized crop and a random flip",
            Stage(image_chain(size, train=True), first=True),
        ),
        Pipeline(
            "eval",
            "evaluation",
            f"aioloader.images(..., size={size}, train=False): resized, the centre cropped",
            Stage(image_chain(size, train=False), first=True),
            random=False,
        ),
        Pipeline(
            "boxes",
            "training with boxes",
            f"boxes.RandomObjectCrop, boxes.RandomHorizontalFlip, boxes.Resize to {size}",
            Stage(crop, first=False),
        ),
        Pipeline(
            "expand",
            "the same with borders",
            f"boxes.RandomExpand before boxes.RandomObjectCrop, boxes.RandomHorizontalFlip, boxes.Resize to {size}",
            Stage(expand, first=False),
        ),
    )


def as_pixels(image: Any) -> tuple[Array, str]:
    """Convert the result of a chain to pixels to be displayed.

    Args:
        image: (height, width, 1 or 3), (height, width) or (1 or 3, height, width), numbers.

    Returns:
        uint8 (height, width, 1 or 3), and a description of the conversion, or "".

    Raises:
        ValueError: the array has another shape, or no pixels.
    """
    array = np.asarray(image)
    if array.ndim == 2:
        array = array[..., None]
    if array.ndim != 3 or not array.size or array.dtype.kind not in "buif":
        raise ValueError(f"the chain returned {array.dtype} {array.shape}, which is not an image")
    notes = []
    if array.shape[2] not in (1, 3):
        if array.shape[0] not in (1, 3):
            raise ValueError(f"the chain returned an array of shape {array.shape}, which is not an image")
        array = array.transpose(1, 2, 0)
        notes.append("channels first")
    if array.dtype == np.uint8:
        return np.ascontiguousarray(array), ", ".join(notes)
    values = np.nan_to_num(array.astype(np.float64))
    low, high = float(values.min()), float(values.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    notes.append(f"values {low:.3g} to {high:.3g} displayed as black to white")
    values = (values - low) * (255.0 / (high - low) if high > low else 0.0)
    return np.ascontiguousarray(np.rint(values).astype(np.uint8)), ", ".join(notes)
