"""Descriptions of a data iterator's batches, and the batches themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

__all__ = ("DataBatch", "DataDesc")


class _NameAndShape(NamedTuple):
    name: str
    shape: tuple[int, ...]


class DataDesc(_NameAndShape):
    """Name and shape of one array of a batch; equal to, and unpacked like, ``(name, shape)``.

    Args:
        name: name of this input in the network.
        shape: extents, including that of the batch.
        dtype: type of the elements.
        layout: meaning of the axes; "N" is the axis of the batch.

    Attributes:
        name, shape, dtype, layout: as given.
    """

    dtype: Any
    layout: str | None

    def __new__(
        cls,
        name: str,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike = np.float32,
        layout: str | None = "NCHW",
    ) -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype = dtype
        self.layout = layout
        return self

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Return the axis of the batch, the position of "N": 0 without a layout, -1 without an "N"."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Iterable[tuple[str, tuple[int, ...]]],
        types: Iterable[tuple[str, Any]] | None = None,
    ) -> list[DataDesc]:
        """Return descriptions made from (name, shape) pairs and, unless None, (name, dtype) pairs."""
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        dtypes = dict(types)
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


class DataBatch:
    """One batch, with plain attributes; any object with `data`, `label` and `pad` can take its place.

    Args:
        data: list or tuple of arrays.
        label: list or tuple of arrays, or None.
        pad: number of rows at the end that are padding; None: unknown.
        index: ids of the rows, or None.
        bucket_key: key of the bucket, for networks of several lengths.
        provide_data, provide_label: descriptions of this batch, where they vary between batches.

    Raises:
        AssertionError: `data` or `label` is not a list or tuple (a ValueError too).
    """

    def __init__(
        self,
        data: Sequence[Any],
        label: Sequence[Any] | None = None,
        pad: int | None = None,
        index: Any = None,
        bucket_key: Any = None,
        provide_data: Sequence[DataDesc] | None = None,
        provide_label: Sequence[DataDesc] | None = None,
    ) -> None:
        if data is not None:
            require(isinstance(data, list | tuple), "Data must be list of NDArrays")
        if label is not None:
            require(isinstance(label, list | tuple), "Label must be list of NDArrays")
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.bucket_key = bucket_key
        self.provide_data = provide_data
        self.provide_label = provide_label

    def __str__(self) -> str:
        data = [array.shape for array in self.data]
        label = [array.shape for array in self.label] if self.label else None
        return f"DataBatch: data shapes: {data} label shapes: {label}"
