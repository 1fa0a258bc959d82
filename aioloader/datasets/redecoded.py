"""Dataset of the items of another dataset, as another decoder makes them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.files import FileDataset

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from aioloader.abc import ByteSource, Decoder
    from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans

_OWN = "own"


class RedecodedDataset(FileDataset):
    """Items of another dataset, as another decoder makes them.

    Args:
        dataset: the items.
        decoder: makes the samples. The extra that it gets is a row of `columns`, see `own_extra`.
        columns: returns numbers of some items by name, (n,) each.
    """

    def __init__(
        self,
        dataset: FileDataset,
        decoder: Decoder[Any],
        columns: Callable[[IntArray], Mapping[str, Array]],
    ) -> None:
        super().__init__()
        self._dataset = dataset
        self._decoder = decoder
        self._columns = columns

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def decoder(self) -> Decoder[Any]:
        return self._decoder

    def open_source(self) -> ByteSource:
        return self._dataset.open_source()

    @property
    def reads_ahead(self) -> bool:
        return self._dataset.reads_ahead

    def spans(self, indices: IntArray) -> Spans:
        return self._dataset.spans(indices)

    def extras(self, indices: IntArray) -> Array:
        """Return the columns, and the extras of the items if they have any."""
        columns = dict(self._columns(indices))
        own = self._dataset.extras(indices)
        if own is not None:
            columns[_OWN] = own
        extras = np.empty(
            len(indices), [(name, each.dtype, each.shape[1:]) for name, each in columns.items()]
        )
        for name, each in columns.items():
            extras[name] = each
        return extras

    def location(self, index: int) -> ItemLocation:
        found: ItemLocation = self._dataset.location(index)
        return found

    def file_nbytes(self, index: int) -> int:
        return self._dataset.file_nbytes(index)


def own_extra(extra: Any) -> Any:
    """Return the extra that an item has in the other dataset; None without one."""
    return extra[_OWN] if _OWN in extra.dtype.names else None
