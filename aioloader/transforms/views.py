"""Several views of one image, as SimCLR, DINO and repeated augmentation need them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import check_sync
from aioloader.rng import VIEW_DOMAIN, Rng
from aioloader.transforms.base import BindingTransform, bind, whole_numbers

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.foundation.types import Array


class Views(BindingTransform):
    """Several views of one image: ``Views({"global": (t1, 2), "local": (t2, 8)})``. It is decoded once for all.

    The result is a dict with an array (n, ...) for each group, so that a batch is a dict of arrays (batch, n, ...);
    with `as_list` it is a list of all views, in the order of the groups, and a batch is a list of arrays (batch, ...).
    The batch's memory holds the views of each image behind one another, and each view is written to its place.

    Draws: one word of the sample's stream. View number n, counted over all groups from 0, draws from its own stream,
    ``Rng(word, 0, n, VIEW_DOMAIN)``: what one view draws changes no other one.

    Used by itself as the transform of a dataset of images, it decodes the rectangle around all crops. If a crop index
    is there, and the crops together are smaller than that rectangle, each crop is decoded separately. The values
    are the same in any case, except that `dct_scaling` has no effect.

    Args:
        groups: name of each group, its transform (a callable of an image), and its number of views. All views of a
            group must have the same shape, unless `as_list` is given.
        as_list: the result is a list of all views.

    Raises:
        ValueError: there are no groups, or a number of views is not at least 1.
        TypeError: a transform cannot be called, or is async.
    """

    def __init__(
        self, groups: Mapping[str, tuple[Callable[..., Any], int]], *, as_list: bool = False
    ) -> None:
        if not groups:
            raise ValueError("Views needs at least one group, as in Views({'global': (transform, 2)})")
        given: Mapping[str, Any] = groups
        for name, group in given.items():
            pair = isinstance(group, (tuple, list)) and len(group) == 2
            if not pair or whole_numbers(group[1], 1) < (1,):
                raise ValueError(
                    f"Views: the value of {name!r} must be (transform, number of views), at least 1, got {group!r}"
                )
            check_sync(group[0], "Views")
        self.groups = {name: (transform, int(count)) for name, (transform, count) in groups.items()}
        self.as_list = bool(as_list)
        self._bind()

    def _bind(self) -> None:
        self._bound = [bind(transform) for transform, count in self.groups.values() for _ in range(count)]

    @property
    def leaves(self) -> int:
        """Return the number of arrays in the result."""
        return len(self._bound) if self.as_list else len(self.groups)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        word = rng.word()
        return self.collect(
            [call(x, Rng(word, 0, number, VIEW_DOMAIN), None) for number, call in enumerate(self._bound)]
        )

    def collect(self, views: Sequence[Any]) -> Any:
        """Return the result that is made of all views.

        Raises:
            ValueError: views of a group differ in shape.
        """
        if self.as_list:
            return list(views)
        result, first = {}, 0
        for name, (_, count) in self.groups.items():
            arrays = [np.asarray(view) for view in views[first : first + count]]
            self.check(name, arrays)
            result[name] = np.stack(arrays)
            first += count
        return result

    @staticmethod
    def check(name: str, arrays: Sequence[Array]) -> None:
        """Raise ValueError if views of a group differ in shape or dtype."""
        for number, array in enumerate(arrays):
            if array.shape != arrays[0].shape or array.dtype != arrays[0].dtype:
                raise ValueError(
                    f"Views: views of a group must be alike, but of {name!r} view 0 is {arrays[0].dtype} "
                    f"{arrays[0].shape} and view {number} is {array.dtype} {array.shape}; pass as_list=True, or let "
                    "the transform end with a size"
                )

    def _parts(self) -> Sequence[Any]:
        return [transform for transform, _ in self.groups.values()]
