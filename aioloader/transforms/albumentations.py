"""Adapter for compositions of albumentations, with the draws of the sample.

The package is an optional extra: ``pip install aioloader[albumentations]``. It is not imported here; the `Compose`
comes from the caller.
"""

from __future__ import annotations

import copy
import random
import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import DrawsFromRng, default_rng
from aioloader.transforms.base import check_image
from aioloader.transforms.boxes.base import PLACES, BoxTransform, as_boxes, refers_to_pixels
from aioloader.transforms.joint import shaped

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_FORMAT = "pascal_voc"
_MOVED = ("image", "images", "mask", "masks", "volume", "volumes", "mask3d", "masks3d")
_PARAMS = {"bboxes": "bbox_params=BboxParams(...)", "keypoints": "keypoint_params=KeypointParams(...)"}


class Albumentations(BoxTransform, DrawsFromRng):
    """An ``albumentations.Compose``, whose random numbers follow the sample's draws.

    So batches are the same for every number of workers, and an epoch can be repeated. One draw, which seeds all
    numbers of the composition; the same seed produces the same result only with the same versions of albumentations
    and numpy.

    A sample is one of these:

    - a dict: the composition is passed its fields, and returns them, by albumentations' names: "image", "mask",
      "masks", "bboxes", "keypoints", the names in its `additional_targets` and its `label_fields`. Formats are those of
      the composition. Fields that it does not know stay as they are.
    - a tuple (image, ...): elements with the image's height and width are masks, (height, width) or (height, width,
      channels), or several, (n, height, width). If the composition has `bbox_params`, the first other element are the
      boxes, (n, 4 + k); it needs ``BboxParams(format="pascal_voc")``, which is in pixels as boxes are here, and no
      ``label_fields``: further columns are kept. Other elements stay as they are.
    - an image.

    Args:
        compose: an ``albumentations.Compose``. It is not changed: every thread works with a copy, whose generators
            are set for each sample.
        keep: fields of dicts that stay as they are although they seem to refer to the image's pixels, as for
            `JointCompose`.

    Raises:
        TypeError: `compose` cannot be called, or has no ``set_random_state`` (albumentations before 2.0); or, when it
            is applied, a dict has no image, or masks are not arrays.
        ValueError: when it is applied, a field or element refers to the image's pixels and would not move with them, or
            the boxes of a tuple are in another format.
    """

    def __init__(self, compose: Any, keep: str | Sequence[str] = ()) -> None:
        if not callable(compose) or not hasattr(compose, "set_random_state"):
            raise TypeError(
                f"Albumentations takes an albumentations.Compose of release 2.0 or later, got {compose!r}"
            )
        self.compose = compose
        self.keep = (keep,) if isinstance(keep, str) else tuple(keep)
        self._copies = threading.local()
        processors = getattr(compose, "processors", {})
        self._boxes: Any = processors["bboxes"].params if "bboxes" in processors else None
        targets: Mapping[str, str] = getattr(compose, "additional_targets", None) or {}
        self._arrays = {*_MOVED, *(name for name, kind in targets.items() if kind in _MOVED)}
        self._moved = {*_MOVED, *processors, *targets}
        for processor in processors.values():
            self._moved.update(processor.params.label_fields or ())
        self._moved.difference_update(self.keep)
        # A strict composition refuses other fields; another one may have parts that read them.
        strict = getattr(compose, "strict", False)
        self._known = self._moved.union(compose.available_keys) if strict else None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_copies": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _copies=threading.local())

    def _copy(self) -> Any:
        """Return the composition of this thread: another thread would replace its generators while it runs."""
        found = getattr(self._copies, "compose", None)
        if found is None:
            found = self._copies.compose = copy.deepcopy(self.compose)
        return found

    def __call__(self, x: Any, boxes: Any = None, /, *rest: Any, rng: Rng | None = None) -> Any:
        """Return the transformed sample.

        Args:
            x: the image, (height, width, channels), or a dict; not altered.
            boxes, *rest: the other elements of a tuple; not altered.
            rng: source of the draws; None: see `aioloader.rng.default_rng`.
        """
        draws = default_rng() if rng is None else rng
        if isinstance(x, Mapping) or (boxes is None and not rest):
            return self.apply(x, draws)
        return self._apply_elements(x, (boxes, *rest), draws)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        if not isinstance(x, Mapping):
            return super().apply(x, rng, out)
        if "image" not in x:
            raise TypeError(
                f"Albumentations takes a dict with an image, as {{'image': ..., 'mask': ...}}, got the fields {list(x)}"
            )
        height, width = check_image(x["image"], "Albumentations", (2, 3)).shape[:2]
        for name, value in x.items():
            if name in self._moved or name in self.keep:
                continue
            if name not in PLACES and not refers_to_pixels(value, height, width):
                continue
            raise ValueError(
                f"Albumentations: {name!r} refers to the image's pixels, and this composition would not move it: "
                + (
                    f"create it with {_PARAMS[name]}"
                    if name in _PARAMS
                    else "use albumentations' names, 'mask', 'masks', 'bboxes', 'keypoints', or add it to the "
                    f"composition's additional_targets={{{name!r}: 'mask'}}"
                )
                + f"; if it is to stay, pass keep=({name!r},)"
            )
        known = x if self._known is None else self._known
        given = {
            name: value
            for name, value in x.items()
            if isinstance(name, str) and name in known and name not in self.keep
        }
        return {**x, **self._run(given, rng)}

    def _run(self, fields: Mapping[str, Any], rng: Rng) -> dict[str, Any]:
        """Return the fields that the composition returns; one draw."""
        for name in self._arrays.intersection(fields):
            _check_arrays(fields[name], repr(name))
        seed = rng.integers(1 << 63)
        compose = self._copy()
        # One stream for all parts. With a separate seed each, parts of the same kind would draw the same numbers.
        compose.set_random_state(np.random.default_rng(seed), random.Random(seed))
        made: dict[str, Any] = compose(**fields)
        for name, given in fields.items():
            # Without objects albumentations returns lists, or arrays of other columns.
            if isinstance(given, np.ndarray) and name in self._moved - self._arrays and not len(made[name]):
                made[name] = given[:0]
        return made

    def _apply_elements(self, image: Any, elements: tuple[Any, ...], rng: Rng) -> tuple[Any, ...]:
        size = check_image(image, "Albumentations", (2, 3)).shape[:2]
        found = list(elements)
        masks: dict[str, int] = {}
        others = []
        for place, value in enumerate(elements):
            if not refers_to_pixels(value, *size):
                others.append(place)
                continue
            name = _mask_name(value, size)
            if name in masks:
                raise ValueError(
                    f"Albumentations: the sample has two masks of one kind, elements {masks[name] + 1} and "
                    f"{place + 1}: make it a dict, and name them in the composition's additional_targets"
                )
            masks[name] = place
        fields = {name: elements[place] for name, place in masks.items()}
        boxes = elements[others[0]] if others else None
        if self._boxes is None:
            shape = shaped(boxes).shape
            if len(shape) == 2 and shape[1] >= 4 and shape[0]:
                raise ValueError(_NO_BOX_PARAMS)
            made = self._run({"image": image, **fields}, rng)
        else:
            given = as_boxes([] if boxes is None else boxes)
            made = self._run_with_boxes({"image": image, **fields}, given, rng)
            if others:
                found[others[0]] = made["bboxes"]
        for name, place in masks.items():
            found[place] = made[name]
        return (made["image"], *found)

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        if self._boxes is None:
            if len(boxes):
                raise ValueError(_NO_BOX_PARAMS)
            return self._run({"image": x}, rng)["image"], boxes
        made = self._run_with_boxes({"image": x}, boxes, rng)
        return made["image"], made["bboxes"]

    def _run_with_boxes(self, fields: dict[str, Any], boxes: Array, rng: Rng) -> dict[str, Any]:
        """Return the fields with boxes in pixels, in the dtype of `boxes`."""
        params = self._boxes
        if params.format != _FORMAT or params.label_fields:
            raise ValueError(
                f'Albumentations: boxes of a tuple are in pixels: use BboxParams(format="{_FORMAT}") and no '
                f"label_fields, got format {params.format!r} and label_fields {params.label_fields!r}; or make the "
                "sample a dict"
            )
        made = self._run({**fields, "bboxes": np.array(boxes, np.float32)}, rng)
        found = as_boxes(made["bboxes"])
        if not len(found):
            found = np.zeros((0, boxes.shape[1]), boxes.dtype)
        return {**made, "bboxes": found.astype(boxes.dtype, copy=False)}

    def _parts(self) -> Sequence[Any]:
        # Foreign code: it may keep a reference to its input.
        return (self.compose,)


_NO_BOX_PARAMS = (
    "Albumentations: this composition does not transform boxes: create it with "
    f'bbox_params=BboxParams(format="{_FORMAT}")'
)


def _check_arrays(value: Any, name: str) -> None:
    """Raise TypeError if masks or images are not arrays, which albumentations refuses in other words."""
    for part in value if isinstance(value, (list, tuple)) else (value,):
        if part is not None and not isinstance(part, np.ndarray):
            raise TypeError(
                f"Albumentations: {name} must be a numpy array, or several, but has a {type(part).__name__}: pass "
                "np.asarray(...) of it"
            )


def _mask_name(value: Any, size: tuple[int, ...]) -> str:
    """Return albumentations' name for the masks that an element of a tuple is.

    Raises:
        ValueError: it is something else.
    """
    if isinstance(value, (list, tuple)):
        return "masks"
    _check_arrays(value, "an element of the sample")
    shape = getattr(value, "shape", ())
    if shape[:2] == size and len(shape) <= 3:
        return "mask"
    if shape[1:3] == size:
        return "masks"
    raise ValueError(
        f"Albumentations: an element of the sample, a {type(value).__name__}, refers to the image's pixels and is no "
        "mask (height, width), (height, width, channels) or (n, height, width): make the sample a dict with "
        "albumentations' names"
    )
