"""Torch datasets as datasets of this project, and the set-up of their worker processes.

Random generators of a dataset and of its collate function: seeded for every sample in worker processes.

Settings of the script that torch's forked workers inherit, for workers that are new interpreters.
"""

from __future__ import annotations

import pickle
import reprlib
import sys
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import cloudpickle
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
from aioloader.foundation.error_log import add_note
from aioloader.foundation.foreign_generators import find_generators, generator_state, seed_generator
from aioloader.interop.torch._samples import worker_stack
from aioloader.rng import GLOBALS_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import MapDataset


class OwnGenerators:
    """Generators of one dataset in a worker process.

    Their numbers follow from the state with which they were sent, and from epoch, index and position of the sample.

    Args:
        roots: the dataset and the functions, as they were sent.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self._roots = roots
        self._sent = find_generators(roots)
        self._seeds = [zlib.crc32(pickle.dumps(generator_state(each))) for each in self._sent]
        self._all = list(zip(self._sent, self._seeds, strict=True))
        self._rng = Rng(0)

    def take_new(self, seed: int) -> None:
        """Take the generators that the worker's set-up has made, which get `seed`."""
        known = {id(each) for each in self._sent}
        new = [each for each in find_generators(self._roots) if id(each) not in known]
        self._all += [(each, seed) for each in new]

    def seed(self, epoch: int, index: int, position: int) -> None:
        """Seed them for a sample."""
        for place, (generator, seed) in enumerate(self._all):
            self._rng.seek(seed, epoch, index, GLOBALS_DOMAIN, position=position)
            seed_generator(generator, int(self._rng.words(place + 1)[place]))


# Attributes of modules that a script sets, if it has imported the module.
_FLAGS = (
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    ("PIL.ImageFile", "MAXBLOCK"),
    ("PIL.Image", "MAX_IMAGE_PIXELS"),
)


def _flags() -> dict[tuple[str, str], Any]:
    return {
        (module, name): getattr(sys.modules[module], name)
        for module, name in _FLAGS
        if hasattr(sys.modules.get(module), name)
    }


def current_settings() -> tuple[Any, ...]:
    """Return the settings whose changes need new workers: torch's default dtype, Pillow's flags, numpy's errors."""
    return torch.get_default_dtype(), _flags(), np.geterr()


def _sendable_filters() -> list[tuple[Any, ...]]:
    found = []
    for action, message, category, module, line in warnings.filters:
        each = action, _pattern(message), category, _pattern(module), line
        try:
            cloudpickle.dumps(each)
        except Exception:  # a category of the script's can be anything
            continue
        found.append(each)
    return found


def _pattern(text: Any) -> str:
    return "" if text is None else str(getattr(text, "pattern", text))


class ScriptSettings:
    """Settings of this process. In a worker process they are set when they are unpickled.

    They are `current_settings`, and the filters of warnings, of the thread that makes this object and at that moment.
    """

    def __init__(self) -> None:
        self._state = {"settings": current_settings(), "filters": _sendable_filters()}

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._state = state
        if own_slot() is None:
            return
        dtype, flags, errors = state["settings"]
        torch.set_default_dtype(dtype)
        np.seterr(**errors)
        for (module, name), value in flags.items():
            setattr(__import__(module, fromlist=["_"]), name, value)
        warnings.resetwarnings()
        for action, message, category, module, line in reversed(state["filters"]):
            warnings.filterwarnings(action, message, category, module, line)


_ATOMS = frozenset([str, bytes, int, float, bool, type(None)])


class Key:
    """Object of any class that a sampler returned as an index.

    Args:
        value: the object.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __reduce__(self) -> tuple[Any, ...]:
        value = self.value
        if all(type(each) in _ATOMS for each in (value if type(value) is tuple else (value,))):
            return Key, (value,)
        return _loaded_key, (cloudpickle.dumps(value, protocol=5),)


def _loaded_key(blob: bytes) -> Key:
    return Key(pickle.loads(blob))


class WorkerSetup:
    """Set-up of a worker process as torch's loader does it, once in each process.

    Args:
        dataset: dataset for `torch.utils.data.get_worker_info`.
        workers: number of worker processes.
        worker_init_fn: called with the worker's number, or None.

    Attributes:
        seed: seed of worker 0; worker i has seed + i.
    """

    def __init__(self, dataset: object, workers: int, worker_init_fn: Callable[[int], object] | None) -> None:
        self._dataset = dataset
        self._workers = workers
        self._init = worker_init_fn
        self._settings = ScriptSettings()
        self.seed = 0
        self._begun = False

    def begin(self) -> None:
        """Set up this process as a torch worker, if it is a worker process of the executor."""
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
    """Torch dataset whose samples are encoded as rows.

    Args:
        dataset: has ``__getitem__``.
        setup: set-up of the worker process, done before the first sample.
        keep: encodes a sample; None: a sample is its index, and the collate function reads the batch.
        collate_fn: the collate function.

    Attributes:
        display_name: name of the dataset's class, for errors.
    """

    def __init__(
        self,
        dataset: MapDataset[Any],
        setup: WorkerSetup,
        keep: Callable[[Any], Any] | None,
        collate_fn: Callable[[Any], Any],
    ) -> None:
        self.display_name = type(dataset).__name__
        self._dataset = dataset
        self._setup = setup
        self._keep = keep
        self._collate_fn = collate_fn
        self._generators: OwnGenerators | None = None

    def __len__(self) -> int:
        """Return the number of samples; `sys.maxsize` if it is unknown, so that the sampler decides."""
        return len(self._dataset) if hasattr(self._dataset, "__len__") else sys.maxsize

    def seed_generators(self, epoch: int, index: int, position: int) -> None:
        """Seed the dataset's own generators for a sample; see `aioloader.abc.MapDataset`."""
        if own_slot() is None:
            return  # in the script's process they go on from sample to sample, as with torch
        if self._generators is None:
            self._generators = OwnGenerators([self._dataset, self._collate_fn])
            self._setup.begin()
            self._generators.take_new(self._setup.seed)
        self._generators.seed(epoch, index, position)

    def __getitem__(self, index: int | Key) -> Any:
        self._setup.begin()
        if isinstance(index, Key):
            try:
                return self._sample(index.value)
            except Exception as error:
                add_note(error, f"the sampler returned the index {reprlib.repr(index.value)}")
                raise
        return self._sample(index)

    def _sample(self, index: Any) -> Any:
        return index if self._keep is None else self._keep(self._dataset[index])


def set_up_worker(setup: WorkerSetup, *sample: Any) -> Any:
    """Set up this process as a torch worker, and return the sample unchanged: a transform, with `setup` bound."""
    setup.begin()
    return sample if len(sample) > 1 else sample[0]


def reads_batches(dataset: Any) -> bool:  # a caller's dataset, of any class
    """Return True if a dataset reads the samples of a batch together (``__getitems__``), for torch's loader."""
    if type(dataset) is Subset:
        return reads_batches(dataset.dataset)
    if type(dataset) is StackDataset:
        parts = dataset.datasets
        return any(map(reads_batches, parts.values() if isinstance(parts, dict) else parts))
    return not isinstance(dataset, Dataset) and callable(getattr(dataset, "__getitems__", None))


def known_dataset(dataset: Any, tensors: bool) -> MapDataset[Any] | None:  # of any class
    """Return the dataset in a form that this project reads in batches; None if there is no such form.

    Supported are datasets of this project, torch's TensorDataset of tensors in memory, and torch's Subset of these.

    Args:
        dataset: any dataset.
        tensors: True if samples may be arrays instead of tensors.
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
