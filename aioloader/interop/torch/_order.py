"""Order of the samples: torch's samplers as a batch sampler of the engine, used when torch would use them.

And its state: the generators from which the order of the epoch was drawn, next to the engine's progress.
"""

from __future__ import annotations

import base64
import threading
from collections import deque
from itertools import islice
from numbers import Integral
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from aioloader.errors import ResumeError
from aioloader.interop.torch._items import Key
from aioloader.pipeline.plan import KeyedBatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.interop.torch._items import WorkerSetup
    from aioloader.loader.runtime import LoaderRuntime


STATE_VERSION = 1


def generators_of(loader: torch.utils.data.DataLoader) -> dict[str, torch.Generator]:
    """Return the generators that a loader and torch's samplers draw an order from, by their places."""
    found = {"loader": loader.generator if loader.generator is not None else torch.default_generator}
    batches = loader.batch_sampler
    for name, owner in (("sampler", loader.sampler), ("batches", getattr(batches, "sampler", None))):
        generator = getattr(owner, "generator", None)
        if isinstance(generator, torch.Generator) and all(generator is not each for each in found.values()):
            found[name] = generator
    return found


def all_generators(loader: torch.utils.data.DataLoader) -> dict[str, torch.Generator]:
    """Return the generators of the order, and torch's global one, which samples draw from in the script's process."""
    found = generators_of(loader)
    if all(each is not torch.default_generator for each in found.values()):
        found["global"] = torch.default_generator
    return found


def states_of(generators: dict[str, torch.Generator]) -> dict[str, Any]:
    """Return the states of some generators, uint8 tensors."""
    return {name: generator.get_state() for name, generator in generators.items()}


def encode(states: dict[str, Any]) -> dict[str, str]:
    """Return the states of generators as text."""
    return {name: base64.b64encode(state.numpy().tobytes()).decode() for name, state in states.items()}


def decode(generators: dict[str, torch.Generator], encoded: Any) -> dict[str, Any]:
    """Return the states of generators that a checkpoint holds, uint8 tensors that fit them; nothing is changed.

    Raises:
        ResumeError: they are corrupt, or of other generators.
    """
    if not isinstance(encoded, dict) or encoded.keys() != generators.keys():
        expected = sorted(generators)
        found = sorted(map(str, encoded)) if isinstance(encoded, dict) else type(encoded).__name__
        raise ResumeError(
            "generators", expected, found, "give the loader and its sampler a generator as before"
        )
    states = {}
    try:
        for name, text in encoded.items():
            data = bytearray(base64.b64decode(text, validate=True))
            states[name] = torch.frombuffer(data, dtype=torch.uint8)
            torch.Generator(generators[name].device).set_state(states[name])
    except (TypeError, ValueError, RuntimeError) as error:
        raise ResumeError(
            "generators", "states of torch.Generator", "something else", "the state is corrupt"
        ) from error
    return states


def restore(generators: dict[str, torch.Generator], states: dict[str, Any]) -> None:
    """Set generators to decoded states."""
    for name, state in states.items():
        generators[name].set_state(state)


def check(state: Any, parts: Sequence[str], batch_size: int | None) -> None:
    """Check the form of a state.

    Args:
        state: the state.
        parts: names of the entries that it must have.
        batch_size: the loader's batch size.

    Raises:
        ResumeError: it does not come from a torch loader, or from one with another batch size.
    """
    if not isinstance(state, dict):
        raise ResumeError("state", "a dict", type(state).__name__)
    if state.get("torch_version") != STATE_VERSION or any(name not in state for name in parts):
        raise ResumeError(
            "torch_version",
            STATE_VERSION,
            state.get("torch_version"),
            "pass a result of this class's state_dict()",
        )
    if state["batch_size"] != batch_size:
        raise ResumeError(
            "batch_size", batch_size, state["batch_size"], "batches are counted: use the same size"
        )


_HANDED_OVER = 2  # batches that the engine has finished and the caller has not requested


def prefetch(loader: torch.utils.data.DataLoader) -> int:
    """Return how many batches a loader prepares ahead of the caller."""
    batches: int = (loader.prefetch_factor or 1) * loader.num_workers
    return max(1, batches)


class IndexLists:
    """Lists of torch's samplers as the engine takes them.

    Args:
        length: see `Order`.
        single: the sampler yields single indices, not lists.
    """

    def __init__(self, length: int | None, *, single: bool) -> None:
        self._length = length
        self._single = single

    def __call__(self, indices: Any) -> Any:
        """Return the indices of a batch, or its keys where the dataset is asked for other objects."""
        given = [indices] if self._single else list(indices)
        if not given:
            raise ValueError("the batch sampler returned an empty batch: skip empty batches")
        try:
            numbers = np.asarray([index.__index__() for index in given], np.int64)
        except (AttributeError, TypeError, OverflowError):
            if self._length is None:
                raise TypeError(
                    f"the sampler returned {indices!r}, but this dataset is read in batches, for which indices must be "
                    "whole numbers: wrap it in a torch.utils.data.Dataset of yours that takes such indices"
                ) from None
        else:
            if self._length is None or (numbers.min() >= 0 and numbers.max() < self._length):
                return numbers
        keys = np.empty(len(given), object)
        for place, index in enumerate(given):
            keys[place] = Key(index)
        return KeyedBatch(np.asarray([self._number(index) for index in given], np.int64), keys)

    def _number(self, index: Any) -> int:
        """Return the index for reports and draws of a sample that the dataset is asked for by any object."""
        assert self._length is not None
        parts: Any = index if isinstance(index, (tuple, list)) else (index,)
        for part in parts:
            if type(part) is not bool and isinstance(part, Integral) and 0 <= int(part) < self._length:
                return int(part)
        return 0


class Order:
    """Batch sampler over torch's samplers, which draws random numbers in the order in which torch draws them.

    Args:
        loader: the loader.
        setup: receives the seed of the workers.
        length: number of samples of a dataset that can be asked for any object; None: only for its indices.

    Attributes:
        start: states of the generators at the start of the latest epoch.
        begun: an epoch has begun, and so the workers have a seed.
        begun_before: the same at the start of the latest epoch.
    """

    def __init__(self, loader: torch.utils.data.DataLoader, setup: WorkerSetup, length: int | None) -> None:
        self._lists = loader._index_sampler
        self._checked = IndexLists(length, single=not loader._auto_collation)
        self._generator = loader.generator
        self._generators = generators_of(loader)
        self._all_generators = all_generators(loader)
        self.start: dict[str, Any] = {}
        self.begun_before = False
        self._reached: tuple[int, dict[str, Any]] | None = None
        self._ahead = loader.num_workers and prefetch(loader) + _HANDED_OVER
        self._kept = loader.persistent_workers
        self._setup = setup
        self.begun = False
        self.batch_size = loader.batch_size
        self.latest: DrawnAhead | None = None
        self.runtime: Callable[[], LoaderRuntime | None] = lambda: None

    def __len__(self) -> int:
        return len(self._lists)

    def __iter__(self) -> Iterator[Any]:
        self.start = states_of(self._generators)
        self.begun_before = self.begun
        # Torch draws its random numbers in this order, so the order of the samples is torch's.
        lists = iter(self._lists)
        if not (self.begun and self._kept):
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=self._generator).item())
        if not self.begun:
            self.begun = True
            self._setup.seed = seed
            runtime = self.runtime()
            assert runtime is not None
            runtime.planner.seed = seed
        batches: Iterator[Any] = map(self._checked, lists)
        if self._reached is not None:
            batches = self._continued(batches, *self._reached)
            self._reached = None
        if self._ahead:
            batches = self.latest = DrawnAhead(batches, self._ahead)
        return batches

    def resume(self, seed: int, begun: bool, reached: tuple[int, dict[str, Any]] | None) -> None:
        """Go on as another loader.

        Args:
            seed: seed of its workers.
            begun: its first epoch is over.
            reached: number of batches that it has delivered of the epoch, and states of the generators after them, if
                its samples draw from them, too.
        """
        self._setup.seed = seed
        self.begun = begun
        self._reached = reached

    def _continued(self, batches: Iterator[Any], taken: int, states: dict[str, Any]) -> Iterator[Any]:
        """Iterate over the lists; those that were delivered are drawn again, but their samples are not made."""
        yield from islice(batches, taken)
        restore(self._all_generators, states)
        yield from batches


class DrawnAhead:
    """Iterator over the lists of a sampler that uses the sampler in the caller's thread, when torch does.

    The engine asks for lists in another thread, but samplers draw from the script's generators, and may depend on
    what the training loop has done. So the caller draws about as many as torch's loader does: a few at the start of the
    epoch, and one more for each batch that it takes.

    Args:
        lists: the sampler's lists.
        ahead: how many to draw now.
    """

    def __init__(self, lists: Iterator[Any], ahead: int) -> None:
        self._lists = lists
        self._drawn: deque[Any] = deque()
        self._error: Exception | None = None
        self._lock = threading.Lock()
        for _ in range(ahead):
            self.draw()

    def draw(self) -> None:
        """Draw one more list, unless the sampler has ended. Its error is raised in the place of the list."""
        with self._lock:
            if self._error is None:
                try:
                    self._drawn.append(next(self._lists))
                except StopIteration:
                    # A new one: the traceback of the other refers to the caller's frames, and so to the loader.
                    self._error = StopIteration()
                except Exception as error:
                    self._error = error

    def __iter__(self) -> DrawnAhead:
        return self

    def __next__(self) -> Any:
        if not self._drawn:
            self.draw()  # the engine is ahead of the caller
        if self._drawn:
            return self._drawn.popleft()
        error, self._error = self._error, StopIteration()
        assert error is not None
        try:
            raise error
        finally:
            del error  # breaks the cycle error -> traceback -> frame -> error
