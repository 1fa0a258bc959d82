"""Images that were made, kept by key up to a number of bytes. Pure; never waits."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Hashable


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
