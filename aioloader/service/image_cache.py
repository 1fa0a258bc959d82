"""Images that were made, kept by key up to a number of bytes. Pure; never waits."""

from __future__ import annotations

import dataclasses
import sys
import types
from collections import OrderedDict, deque
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.transforms.pillow import is_pillow_image

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterable

_WITHOUT_PARTS = frozenset((str, bytes, bytearray, int, float, bool, complex, types.NoneType))
_CONTAINERS = (list, tuple, set, frozenset, deque)
_NOT_ITS_OWN = (type, types.ModuleType, types.FunctionType, types.MethodType)
# Pillow stores pixels of three bands in four bytes.
_PIXEL_NBYTES = {"1": 1, "L": 1, "P": 1}


def nbytes_of(value: Any) -> int:
    """Return the bytes of a value: arrays, tensors, images of Pillow, texts, and all else with what is in it.

    Of an object whose own code fails it is more than any cache keeps.
    """
    seen: dict[int, Any] = {}
    left = [value]
    nbytes = 0
    while left:
        each = left.pop()
        if id(each) not in seen and not isinstance(each, _NOT_ITS_OWN):
            seen[id(each)] = each
            try:
                own, parts = _parts(each)
            except Exception:
                return sys.maxsize
            nbytes += own
            left += parts
    return nbytes


def _parts(value: Any) -> tuple[int, Iterable[Any]]:
    """Return the bytes of a value without those of its parts, and the parts."""
    if isinstance(value, np.ndarray):
        return value.nbytes, value.ravel().tolist() if value.dtype.hasobject else ()
    if type(value) in _WITHOUT_PARTS:
        return sys.getsizeof(value), ()
    if is_pillow_image(value):
        return value.width * value.height * _PIXEL_NBYTES.get(value.mode, 4), ()
    own = sys.getsizeof(value)
    if isinstance(value, Mapping):
        return own, (*value.keys(), *value.values())
    if isinstance(value, _CONTAINERS):
        return own, value
    if dataclasses.is_dataclass(value):
        return own, [getattr(value, each.name) for each in dataclasses.fields(value)]
    given = getattr(value, "nbytes", None)  # of a tensor, or an array of JAX
    if isinstance(given, int):
        return given, ()
    try:
        return own, vars(value).values()
    except TypeError:
        return own, ()


class ImageCache:
    """Images by key; the one used least recently is dropped first.

    An image's arrays are in slab memory (small ones in separate memory); callers get views of them. What is dropped
    stays valid where a caller holds it.

    Args:
        limit_nbytes: most bytes of all images together; 0: nothing is kept. An image that is larger is not kept.

    Attributes:
        nbytes: bytes of the images in it.
        hits, misses: number of lookups that found an image, and that did not.
        evictions: number of images that were dropped for others.
    """

    def __init__(self, limit_nbytes: int) -> None:
        self.limit_nbytes = limit_nbytes
        self._images: OrderedDict[Hashable, tuple[Any, int]] = OrderedDict()
        self.nbytes = 0
        self.hits = 0
        self.misses = 0
        self.evictions = 0

    def __len__(self) -> int:
        return len(self._images)

    @property
    def enabled(self) -> bool:
        """Return True if images are kept."""
        return self.limit_nbytes > 0

    def get(self, key: Hashable) -> tuple[Any] | None:
        """Return the image of a key in a tuple, as an image may be None; None if it is not there."""
        found = self._images.get(key)
        if found is None:
            self.misses += 1
            return None
        self._images.move_to_end(key)
        self.hits += 1
        return (found[0],)

    def put(self, key: Hashable, image: Any, nbytes: int) -> None:
        """Keep an image of `nbytes` bytes, and drop others for it."""
        if nbytes > self.limit_nbytes:
            return
        old = self._images.pop(key, None)
        if old is not None:
            self.nbytes -= old[1]
        self._images[key] = image, nbytes
        self.nbytes += nbytes
        while self.nbytes > self.limit_nbytes:
            self.drop_oldest()

    def drop_oldest(self) -> bool:
        """Drop the image used least recently; return False if there is none."""
        if not self._images:
            return False
        _, (_, nbytes) = self._images.popitem(last=False)
        self.nbytes -= nbytes
        self.evictions += 1
        return True

    def clear(self) -> None:
        """Drop all images."""
        self._images.clear()
        self.nbytes = 0
