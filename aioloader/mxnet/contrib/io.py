"""`mx.contrib.io`: a Gluon loader as a data iterator."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aioloader.foundation.protocols import implements
from aioloader.mxnet.gluon.data.dataloader import DataLoader
from aioloader.mxnet.io.backend_iter import filled
from aioloader.mxnet.io.iterator import DataDesc, DataIter, HasState, inner_state
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable

__all__ = ("DataLoaderIter",)


class DataLoaderIter(DataIter):
    """Data iterator over the batches of a loader of (data, label) pairs.

    A batch that is shorter than the first is padded with zeros, which `pad` counts.

    Args:
        loader: a loader with at least one batch, such as `gluon.data.DataLoader`. Its first batch is loaded at once.
        data_name, label_name: names of the two inputs in the network.
        dtype: type that both are converted to.

    Raises:
        ValueError: the loader has no batch.
    """

    def __init__(
        self,
        loader: Iterable[Any],
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: npt.DTypeLike = "float32",
    ) -> None:
        self._loader = loader
        # The first batch is loaded before anybody takes it.
        self._before = inner_state(loader) if implements(loader, HasState) else None
        self._iter: Any = iter(loader)
        first = next(self._iter, None)
        if first is None:
            raise ValueError("the loader has no batch, so that its shapes are not known")
        self._ahead: Any = first
        self._current_batch: Any = None
        self.dtype = dtype
        data, label = map(np.asarray, first)
        # The first batch may have lost samples that failed; a caller's batch sampler may not define its rows.
        full = len(data)
        if isinstance(loader, DataLoader) and loader.errors:
            full = max(full, int(getattr(loader._batch_sampler, "batch_size", 0)))
        super().__init__(full)
        self.provide_data = [DataDesc(data_name, (self.batch_size, *data.shape[1:]), dtype)]
        self.provide_label = [DataDesc(label_name, (self.batch_size, *label.shape[1:]), dtype)]

    def reset(self) -> None:
        """Begin the next pass of the loader; directly after `load_state_dict`, continue the pass that was begun."""
        self._iter = iter(self._loader)
        self._ahead = self._current_batch = None

    def state_dict(self) -> Any:
        """Return the loader's own state, one batch earlier while its first batch is only loaded.

        Raises:
            NotImplementedError: the loader has none: that of `mx.gluon.data` draws its order from `numpy.random`. An
                `aioloader.DataLoader` has one.
        """
        state = inner_state(self._loader)
        return self._before if self._ahead is not None else state

    def load_state_dict(self, state: Any) -> None:
        """Continue where `state` was taken; see `aioloader.DataLoader.load_state_dict`."""
        resumable: Any = self._loader
        resumable.load_state_dict(state)
        self._iter = self._ahead = self._current_batch = None

    def iter_next(self) -> bool:
        """Move to the next batch; return False at the end, until `reset`."""
        if self._iter is None:
            self._iter = iter(self._loader)
        self._current_batch = next(self._iter, None) if self._ahead is None else self._ahead
        self._ahead = None
        return self._current_batch is not None

    def getdata(self) -> list[NDArray]:
        """Return the data of the current batch."""
        return [self._filled(self._current_batch[0])]

    def getlabel(self) -> list[NDArray]:
        """Return the labels of the current batch."""
        return [self._filled(self._current_batch[1])]

    def _filled(self, rows: Any) -> NDArray:
        return from_numpy(filled(np.array(rows, self.dtype), self.batch_size))

    def getpad(self) -> int:
        """Return the number of rows at the end of the current batch that are zeros."""
        return self.batch_size - len(self._current_batch[0])
