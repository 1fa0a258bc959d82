"""Adapter for compositions of albumentations, with the draws of the sample.

The package is an optional extra: ``pip install aioloader[albumentations]``. It is not imported here; the `Compose`
comes from the caller.
"""

from __future__ import annotations

import copy
import random
import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.boxes.base import BoxTransform
from aioloader.transforms.boxes.geometry import as_boxes

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_FORMAT = "pascal_voc"


class Albumentations(BoxTransform):
    """An ``albumentations.Compose``, whose random numbers follow the sample's draws.

    So batches are the same for every number of workers, and an epoch can be repeated. One draw, which seeds all
    numbers of the composition; the same seed produces the same result only with the same versions of albumentations
    and numpy.

    With boxes the composition needs ``bbox_params=BboxParams(format="pascal_voc")``, which is in pixels as boxes are
    here, and no ``label_fields``: further columns of the boxes are kept.

    Args:
        compose: an ``albumentations.Compose``. It is not changed: every thread works with a copy, whose generators
            are set for each sample.

    Raises:
        TypeError: `compose` cannot be called, or has no ``set_random_state`` (albumentations before 2.0).
        ValueError: its boxes are in another format.
    """

    def __init__(self, compose: Any) -> None:
        if not callable(compose) or not hasattr(compose, "set_random_state"):
            raise TypeError(
                f"Albumentations takes an albumentations.Compose of release 2.0 or later, got {compose!r}"
            )
        self.compose = compose
        self._copies = threading.local()
        boxes = getattr(compose, "processors", {}).get("bboxes")
        self._takes_boxes = boxes is not None
        if boxes is not None and (boxes.params.format != _FORMAT or boxes.params.label_fields):
            raise ValueError(
                f'Albumentations: boxes are in pixels here: use BboxParams(format="{_FORMAT}") and no label_fields, '
                f"got format {boxes.params.format!r} and label_fields {boxes.params.label_fields!r}"
            )

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

    def apply_boxes(self, x: Any, boxes: Array, rng: Rng) -> tuple[Any, Array]:
        if len(boxes) and not self._takes_boxes:
            raise ValueError(
                "Albumentations: this composition does not transform boxes: create it with "
                f'bbox_params=BboxParams(format="{_FORMAT}")'
            )
        seed = rng.integers(1 << 63)
        compose = self._copy()
        # One stream for all parts. With a separate seed each, parts of the same kind would draw the same numbers.
        compose.set_random_state(np.random.default_rng(seed), random.Random(seed))
        if not self._takes_boxes:
            return compose(image=x)["image"], boxes
        made = compose(image=x, bboxes=np.array(boxes, np.float32))
        found = as_boxes(made["bboxes"])
        if not len(found):
            found = np.zeros((0, boxes.shape[1]), boxes.dtype)
        return made["image"], found.astype(boxes.dtype, copy=False)

    def _parts(self) -> Sequence[Any]:
        # Foreign code: it may keep a reference to its input.
        return (self.compose,)
