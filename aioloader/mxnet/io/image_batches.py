"""Batches of a record iterator: passes of the engine's loader, with rows that fill up counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import SampleError
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.backend_iter import Loaded, filled
from aioloader.mxnet.ndarray import from_numpy
from aioloader.options import available_cores

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.mxnet.io.backend_iter import Description
    from aioloader.mxnet.io.passes import Passes

__all__ = ("ImageBatches", "ImageRecordError")


class ImageRecordError(SampleError, MXNetError):
    """A record cannot be read, decoded or augmented; see `aioloader.SampleError`. An MXNetError too."""


class ImageBatches:
    """The batches of an `MXDataIter`, made by `aioloader.DataLoader`.

    Args:
        dataset: samples (data, label, id, whether it only fills up); see `ImageRecords`.
        passes: which rows each batch has.
        data_desc, label_desc: shape, that of the batch included, and dtype.
        seed: of everything that transforms draw, 0 <= seed < 2**64.
        threads: workers, at most; no more than there are cores.
        prefetch: batches on their way at a time.
        executor: "process", "thread" or "inline".
        on_error: "raise", or "skip" for batches without the records that failed.
    """

    def __init__(
        self,
        dataset: Any,
        passes: Passes,
        data_desc: Description,
        label_desc: Description,
        *,
        seed: int = 0,
        threads: int = 4,
        prefetch: int = 4,
        executor: str = "process",
        on_error: str = "raise",
    ) -> None:
        import aioloader

        self.batch_size = data_desc[0][0]
        self.data_desc = data_desc
        self.label_desc = label_desc
        self._passes = passes
        self._pass_number = 0
        self._batches: Iterator[Any] | None = None
        self._over = False
        # Batches of the current pass that were not given yet; more if records that failed are left out.
        self._left = 0
        self._loader: aioloader.DataLoader[Any] = aioloader.DataLoader(
            dataset,
            batch_sampler=passes,
            num_workers=0 if executor == "inline" else min(threads, available_cores()),
            executor=executor,
            prefetch=prefetch,
            seed=seed,
            on_error=on_error,
        )

    @property
    def errors(self) -> Sequence[Exception]:
        """With "skip", the records that were left out so far."""
        return self._loader.errors

    def next(self) -> Loaded | None:
        """The next batch of this pass; None at its end, and after an error until `reset`.

        Raises:
            MXNetError: a record failed.
        """
        if self._batches is None and not self._over:
            self._begin()
        if self._batches is None:
            return None
        try:
            data, label, index, filling = next(self._batches)
        except StopIteration:
            self._end()
            self._passes.advance()
            return None
        except Exception as error:
            self._end()
            self._passes.rewind()
            if isinstance(error, SampleError):
                # The same object under its MXNet class: attributes, notes and traceback stay.
                error.__class__ = ImageRecordError
            raise
        self._left -= 1
        pad = int(np.count_nonzero(filling)) + self.batch_size - len(data)
        data, label = (from_numpy(filled(array, self.batch_size)) for array in (data, label))
        return Loaded(data, label, pad, index)

    def reset(self) -> None:
        """Begin the next pass, or go back to the first record if this one has not come to its end."""
        if self._batches is not None:
            self._end()
            if self._left > 0:
                self._passes.rewind()
            else:
                self._passes.advance()
        self._over = False
        self._begin()

    def close(self) -> None:
        """End the workers; a loader that is collected does so by itself. May be called twice."""
        self._end()
        self._loader.close()

    def _begin(self) -> None:
        if not len(self._passes):
            self._over = True
            return
        self._left = len(self._passes)
        self._loader.set_epoch(self._pass_number)
        self._pass_number += 1
        self._batches = iter(self._loader)

    def _end(self) -> None:
        """There is nothing more until `reset`."""
        self._batches = None
        self._over = True
