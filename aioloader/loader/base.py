"""What both faces of a loader share: everything that does not wait."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import error_report
from aioloader.explain import explain

if TYPE_CHECKING:
    from aioloader.errors import SampleError
    from aioloader.foundation.error_log import ErrorLog
    from aioloader.loader.runtime import LoaderRuntime
    from aioloader.metrics import Stats
    from aioloader.receipts import Receipt

__all__ = ("BaseLoader",)


class BaseLoader:
    """Base of `AsyncDataLoader` and `DataLoader`."""

    _runtime: LoaderRuntime
    _errors: ErrorLog

    def __len__(self) -> int:
        """Number of batches that the next pass delivers to this rank; of a resumed epoch, those that are left.

        Raises:
            TypeError: the dataset is an `aioloader.IterableDataset`.
        """
        return len(self._runtime.order)

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the number of the next pass.

        The epoch of a state that was just loaded is resumed all the same; any other one begins at its start.
        """
        self._runtime.order.progress.set_epoch(epoch)

    def state_dict(self) -> dict[str, Any]:
        """Where the caller is, as a JSON object: all batches handed out so far are consumed.

        After ``break`` it is the place reached, until the next pass begins.

        Raises:
            NotResumableError: the dataset is an `aioloader.IterableDataset` whose source has no state.
        """
        return self._runtime.order.state()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the next pass delivers what was left of that epoch.

        Another number of workers, executor, batch size or shard is allowed; what remains is split anew.

        Raises:
            ResumeError: the state is damaged, or belongs to other data or another way of sampling.
        """
        self._runtime.load_state(state)

    def receipt(self) -> Receipt:
        """What the pass begun last has delivered to this rank so far.

        The receipts of all ranks add up to that of the epoch, whatever the numbers of ranks before and after a
        resume; `check_receipt` proves it.
        """
        return self._runtime.receipt()

    def check_receipt(self, receipt: Receipt) -> None:
        """Prove that the samples of a receipt are exactly those of the epoch's order, none missing, none twice.

        The order is computed anew for it, in this thread; any loader of the same data, sampler and seed can do so.

        Args:
            receipt: those of all ranks, added up: ``sum(receipts)``.

        Raises:
            ReceiptError: samples are missing, or came more than once.
            TypeError: the order comes from a batch sampler, or from a sampler that cannot tell it again.
        """
        self._runtime.order.check_receipt(receipt)

    def stats(self) -> Stats:
        """A snapshot of the loader's counters."""
        return self._runtime.stats()

    def explain(self) -> str:
        """What limits the loader, what to change, and how much that would give, in one paragraph.

        Its first sentence names the limit: storage, decode, the transform with its name, the consumer, the workers, or
        memory. See `aioloader.explain`.
        """
        return explain(self.stats())

    @property
    def closed(self) -> bool:
        """Whether the loader was closed, and delivers no more."""
        return self._runtime.closed

    @property
    def errors(self) -> list[SampleError]:
        """Every sample that failed so far, in the order of delivery."""
        return list(self._errors)

    def error_report(self) -> dict[str, Any]:
        """Every sample that failed so far, as a JSON object.

        Returns:
            ``count``; ``by_reason``: how many samples failed of each type of cause, most first; ``errors``: one object
            for each, see `aioloader.SampleError.facts`.
        """
        return error_report(self._errors)
