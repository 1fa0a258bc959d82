"""Random generators of a dataset and of its collate function: seeded for every sample in worker processes.

Samples are given to whichever worker is free. A generator that goes on from sample to sample would draw other numbers
from run to run, even one with a seed.
"""

from __future__ import annotations

import functools
import pickle
import random
import zlib
from contextlib import suppress
from types import FunctionType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from aioloader.rng import GLOBALS_DOMAIN, Rng

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_KINDS = (random.Random, np.random.Generator, np.random.RandomState, torch.Generator)
_ATOMS = (str, bytes, int, float, complex, bool, type(None), np.ndarray, torch.Tensor, type, ModuleType)
_MOST_OBJECTS = 20_000
_MOST_ELEMENTS = 1000


def find_generators(root: Any) -> list[Any]:
    """Return the random generators that an object refers to: in attributes, short containers, and globals of functions.

    Args:
        root: any object; at most 20,000 objects are looked at, and no container of more than 1000 elements.
    """
    found: list[Any] = []
    seen: dict[int, Any] = {}
    waiting = [root]
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop()
        if id(value) in seen or isinstance(value, _ATOMS):
            continue
        seen[id(value)] = value
        if isinstance(value, _KINDS):
            if not isinstance(value, random.SystemRandom):
                found.append(value)
        else:
            waiting += reversed(list(_referred(value)))
    return found


def _referred(value: Any) -> Iterator[Any]:
    if isinstance(value, (list, tuple, set, frozenset)):
        if len(value) <= _MOST_ELEMENTS:
            yield from value
    elif isinstance(value, dict):
        if len(value) <= _MOST_ELEMENTS:
            yield from value.values()
    elif isinstance(value, MethodType):
        yield value.__self__
        yield value.__func__
    elif isinstance(value, functools.partial):
        yield from (value.func, *value.args, *value.keywords.values())
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            try:
                yield cell.cell_contents
            except ValueError:  # not set yet
                continue
        for name in value.__code__.co_names:
            named = value.__globals__.get(name)
            if isinstance(named, _KINDS):
                yield named
    else:
        with suppress(AttributeError):
            yield from object.__getattribute__(
                value, "__dict__"
            ).values()  # without code of the object's class
        for kind in type(value).__mro__:
            yield from (member for member in vars(kind).values() if isinstance(member, FunctionType))


def _state(generator: Any) -> Any:
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.get_state().numpy().tobytes()


def _seed(generator: Any, word: int) -> None:
    if isinstance(generator, random.Random):
        generator.seed(word)
    elif isinstance(generator, torch.Generator):
        generator.manual_seed(word >> 1)
    elif isinstance(generator, np.random.Generator):
        bits: Any = generator.bit_generator
        bits.state = type(bits)(word).state
    else:
        made: Any = type(generator._bit_generator)(word)
        generator.set_state(made.state)


class OwnGenerators:
    """Generators of one dataset in a worker process.

    Their numbers follow from the state with which they were sent, and from epoch, index and position of the sample.

    Args:
        roots: the dataset and the functions, as they were sent.
    """

    def __init__(self, roots: Sequence[Any]) -> None:
        self._roots = roots
        self._sent = find_generators(roots)
        self._seeds = [zlib.crc32(pickle.dumps(_state(each))) for each in self._sent]
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
            _seed(generator, int(self._rng.words(place + 1)[place]))
