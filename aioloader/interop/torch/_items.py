"""A torch dataset as a dataset of this project: what runs in its worker processes, and what they are told."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
import torch.utils.data
from torch.utils.data import StackDataset, Subset, TensorDataset
from torch.utils.data._utils import collate as torch_collate
from torch.utils.data._utils import worker as torch_worker

from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import Dataset, IndexedView
from aioloader.datasets.resolve import resolve
from aioloader.executors.process.worker import own_slot
from aioloader.interop.torch._samples import worker_stack

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Crew", "Items", "WorkerStage", "known_dataset", "reads_batches")


class Crew:
    """What torch's worker processes are told when they begin: once in each process.

    Args:
        dataset: what `torch.utils.data.get_worker_info` gives as its dataset.
        workers: how many worker processes there are.
        worker_init_fn: called with the worker's number, or None.

    Attributes:
        seed: that of worker 0; those of the others follow it.
    """

    def __init__(self, dataset: Any, workers: int, worker_init_fn: Callable[[int], object] | None) -> None:
        self._dataset = dataset
        self._workers = workers
        self._init = worker_init_fn
        self.seed = 0
        self._begun = False

    def begin(self) -> None:
        """Make this process a worker of torch, if it is a worker of ours."""
        if self._begun:
            return
        slot = own_slot()
        if slot is not None:
            torch.set_num_threads(1)
            torch_worker._worker_info = torch_worker.WorkerInfo(
                id=slot, num_workers=self._workers, seed=self.seed + slot, dataset=self._dataset
            )
            how = torch_collate.default_collate_fn_map
            if how.get(torch.Tensor) is torch_collate.collate_tensor_fn:
                how[torch.Tensor] = worker_stack
            if self._init is not None:
                self._init(slot)
        self._begun = True


class Items:
    """A torch dataset whose samples have rows.

    Args:
        dataset: has ``__getitem__``.
        crew: what a worker process does first.
        keep: what is made of a sample; None: a sample is its index, and the collate function reads the batch.

    Attributes:
        display_name: name of the dataset's class, for errors.
    """

    def __init__(self, dataset: Any, crew: Crew, keep: Callable[[Any], Any] | None) -> None:
        self.display_name = type(dataset).__name__
        self._dataset = dataset
        self._crew = crew
        self._begun = False
        self._keep = keep

    def __len__(self) -> int:
        """Number of samples; where the dataset cannot tell, so many that the sampler alone decides."""
        return len(self._dataset) if hasattr(self._dataset, "__len__") else sys.maxsize

    def __getitem__(self, index: int) -> Any:
        """A sample."""
        if not self._begun:
            self._crew.begin()
            self._begun = True
        return index if self._keep is None else self._keep(self._dataset[index])


class WorkerStage:
    """A transform that changes nothing: it makes its process a worker of torch."""

    def __init__(self, crew: Crew) -> None:
        self._crew = crew

    def __call__(self, *sample: Any) -> Any:
        """The sample as it is."""
        self._crew.begin()
        return sample if len(sample) > 1 else sample[0]


def reads_batches(dataset: Any) -> bool:
    """Whether a dataset gives the samples of a batch together (``__getitems__``), as torch's loader asks it to."""
    if type(dataset) is Subset:
        return reads_batches(dataset.dataset)
    if type(dataset) is StackDataset:
        parts = dataset.datasets
        return any(map(reads_batches, parts.values() if isinstance(parts, dict) else parts))
    return not isinstance(dataset, Dataset) and callable(getattr(dataset, "__getitems__", None))


def known_dataset(dataset: Any, tensors: bool) -> Any:
    """The dataset in a form that is read without torch's one sample after the other; None where there is none.

    That are datasets of this project, torch's TensorDataset of tensors in memory, and torch's Subset of these.

    Args:
        dataset: any.
        tensors: arrays will do where its samples are tensors.
    """
    if type(dataset) is Subset:
        parent = known_dataset(dataset.dataset, tensors)
        if parent is None:
            return None
        indices = np.asarray([int(index) for index in dataset.indices], np.int64)
        inside = not len(indices) or 0 <= indices.min() <= indices.max() < len(parent)
        return IndexedView(parent, indices) if inside else None
    if type(dataset) is TensorDataset and tensors:
        try:
            return ArrayDataset(*[tensor.numpy() for tensor in dataset.tensors])
        except (TypeError, RuntimeError):  # on a device, with a gradient, of a dtype that numpy does not have
            return None
    if isinstance(dataset, torch.utils.data.Dataset) or not hasattr(dataset, "__len__"):
        return None
    return dataset if resolve(dataset).base_kind != "foreign" else None
