"""Base of both loaders: everything that does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import SampleError, error_report
from aioloader.explain import explain
from aioloader.foundation.error_log import ErrorLog
from aioloader.foundation.validation import takes
from aioloader.loader.options import LoaderOptions
from aioloader.loader.runtime import LoaderRuntime

if TYPE_CHECKING:
    from aioloader.metrics import Stats
    from aioloader.receipts import Receipt


OF_TORCH = {
    "persistent_workers": "workers live as long as the loader; leave it out",
    "prefetch_factor": "pass prefetch=, the number of batches in total, where torch counts those of each worker",
    "generator": "pass seed=, a number, from which the order and all draws follow",
    "worker_init_fn": "workers have no state to initialise: leave it out if it seeds generators, which workers do for "
    "every sample; what else it sets, set in the dataset or in a transform when it is first called",
    "multiprocessing_context": "pass executor='process', 'thread' or 'inline'",
    "pin_memory_device": "pass device='cuda', to which batches are copied from pinned memory",
    "snapshot_every_n_steps": "a state counts the batches that were received, after every one; leave it out",
}
"""Arguments of torch's loaders that these do not have, and what to use instead."""


class BaseLoader:
    """Base of `AsyncDataLoader` and `DataLoader`: their signature, which is the same, and what does not wait."""

    @takes(LoaderOptions, OF_TORCH)
    def __init__(self, options: LoaderOptions) -> None:
        self._dataset = options.dataset
        self._given = options
        self._errors = ErrorLog()
        self._runtime = LoaderRuntime(options.dataset, options, self._errors)
        self._set_up()

    def _set_up(self) -> None:
        """Make what a subclass needs in addition."""

    def __len__(self) -> int:
        """Return the number of batches that the next epoch delivers to this rank; of a resumed epoch, its rest.

        Raises:
            TypeError: the dataset is an `aioloader.IterableDataset`.
        """
        return len(self._runtime.planner)

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch.

        If it is the epoch of a state that was just loaded, that epoch is resumed; any other one begins at its start.
        """
        self._runtime.planner.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint as a JSON object: it records the batches that you received, not those prefetched.

        After ``break`` it is the position that was reached, until the next epoch begins. With ``on_error="skip"`` and
        several ranks, an `UnevenStepsWarning` says once that this rank is further than the others after as many
        batches, because all samples of a batch failed.

        Raises:
            NotResumableError: the dataset is an `aioloader.IterableDataset` whose source has no state.
        """
        return self._runtime.planner.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: the next iteration delivers the rest of its epoch.

        The number of workers, the executor, the batch size and the shard may differ; the remaining samples are split
        again. The seed of the state replaces the loader's `seed`, for this epoch and all later ones.

        Raises:
            ResumeError: the state is corrupt, or belongs to other data or another way of sampling; or the loader has
                begun an epoch already, and its seed is another.
        """
        self._runtime.load_state(state)

    def receipt(self) -> Receipt:
        """Return the receipt of the samples that the latest epoch has delivered to this rank so far.

        The receipts of all ranks add up to that of the epoch, regardless of the numbers of ranks before and after a
        resume; `check_receipt` proves it.
        """
        return self._runtime.receipt()

    def check_receipt(self, receipt: Receipt | int) -> None:
        """Prove that the samples of a receipt are exactly those of the epoch's order, none missing, none twice.

        It computes the order again, in this thread; any loader of the same data, sampler and seed can do so.

        Args:
            receipt: those of all ranks, added up: ``sum(receipts)``.

        Raises:
            ReceiptError: samples are missing, or came more than once.
            TypeError: the order comes from a sampler or a batch sampler that cannot compute it again; or `receipt` is
                0, the sum of no receipts.
        """
        if isinstance(receipt, int):
            raise TypeError(
                f"check_receipt needs a receipt, got {receipt!r}, which is the sum of no receipts"
            )
        self._runtime.planner.check_receipt(receipt)

    def stats(self) -> Stats:
        """Return a snapshot of the loader's counters."""
        return self._runtime.stats()

    def explain(self) -> str:
        """Return lines that name the bottleneck, and a list that says what to change and how much that would gain.

        The first line names the limit: storage, decode, the transform with its name, the consumer, the workers, or
        memory. See `aioloader.explain`.
        """
        return explain(self.stats())

    @property
    def dataset(self) -> Any:
        """Return the dataset that was passed."""
        return self._dataset

    @property
    def batch_size(self) -> int | None:
        """Return the number of samples of a batch; None with a batch sampler."""
        return self._given.batch_size

    @property
    def sampler(self) -> Any:
        """Return the sampler that was passed, or None."""
        return self._given.sampler

    @property
    def batch_sampler(self) -> Any:
        """Return the batch sampler that was passed, or None."""
        return self._given.batch_sampler

    @property
    def num_workers(self) -> int:
        """Return the number of workers, or their maximum if it is measured; 0: there are none."""
        return self._given.workers

    @property
    def drop_last(self) -> bool:
        """Return True if an incomplete last batch is left out."""
        return self._given.last_batch == "discard"

    @property
    def closed(self) -> bool:
        """Return True if the loader was closed, and delivers no more."""
        return self._runtime.closed

    @property
    def errors(self) -> list[SampleError]:
        """Return the samples that failed so far, in the order of delivery."""
        return list(self._errors)

    def error_report(self) -> dict[str, Any]:
        """Return a report of the samples that failed so far, as a JSON object.

        Returns:
            ``count``; ``by_reason``: how many samples failed of each type of cause, most first; ``errors``: one object
            for each, see `aioloader.SampleError.facts`.
        """
        return error_report(self._errors)
