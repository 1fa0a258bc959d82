"""Generators that foreign code draws from: seeded for every sample, or watched for draws without a seed.

Samples are given to whichever worker is free. A generator that goes on from sample to sample would draw other numbers
from run to run, even one with a seed.
"""

from __future__ import annotations

import functools
import pickle
import random
import sys
import threading
import warnings
import zlib
from contextlib import suppress
from types import CodeType, FunctionType, MemberDescriptorType, MethodType, ModuleType
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import GLOBALS_DOMAIN, OWN_GENERATORS_DOMAIN, DrawsFromRng, Rng

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SAMPLES_WATCHED = 16
_KINDS: tuple[type, ...] = (random.Random, np.random.Generator, np.random.RandomState)
_ATOMS: tuple[type, ...] = (str, bytes, int, float, complex, bool, type(None), np.ndarray, type, ModuleType)
_MOST_OBJECTS = 20_000
_MOST_ELEMENTS = 1000
# Of PCG64: the fraction of the golden ratio in 128 bits, which spreads a word over a state, and its usual increment.
_ODD = 0x9E3779B97F4A7C15F39CC0605CEDC835
_INCREMENT = 0x5851F42D4C957F2D14057B7EF767814F
_MASK = (1 << 128) - 1
_LIBRARY = "site-packages"


class ForeignRandomnessWarning(UserWarning):
    """Warning that a transform draws from a generator of Python or numpy where that is not reproducible.

    It is issued when the generators' state changes while samples are made. If other threads run, one of them may have
    changed it; the text then mentions this.
    """


class ForeignGenerators:
    """Random generators that foreign code draws from: the global ones, and those that its objects refer to.

    Args:
        seed: the loader's seed.
        seeded: seed them before every sample; otherwise watch the first samples, and warn of a draw.
        roots: the dataset and the functions that run; see `find_generators`.
    """

    def __init__(self, seed: int, seeded: bool, roots: Sequence[Any] = ()) -> None:
        self._seed = seed
        self._rng = Rng(seed) if seeded else None
        self._left = 0 if seeded else _SAMPLES_WATCHED
        self._changed_before = False
        self._own = find_generators(roots)

    def before(self, epoch: int, index: int, position: int, segment: int = 0) -> Any:
        """Prepare them for a sample; return their state for `after`.

        Args:
            epoch: number of the epoch.
            index, position: of the sample.
            segment: number of the async transforms that it has passed.
        """
        if self._rng is None:
            return self.state() if self._left else None
        self.seed(epoch, index, position, segment)
        return None

    def seed(self, epoch: int, index: int, position: int, segment: int = 0) -> None:
        """Seed them for a sample, if they are seeded at all; see `before`."""
        if self._rng is None:
            return
        # A separate stream: the draws of a sample's `rng` must not depend on whether this is done.
        self._rng.seek(self._seed, epoch, index, GLOBALS_DOMAIN, position=position)
        word = int(self._rng.words(segment + 1)[segment])
        random.seed(word)
        np.random.seed(word & 0xFFFFFFFF)
        torch = _torch()
        if torch is not None:
            torch.default_generator.manual_seed(
                word >> 1
            )  # `torch.initial_seed()` then fits int64, as torch's own
        if count := len(self._own):
            self._rng.seek(self._seed, epoch, index, OWN_GENERATORS_DOMAIN, position=position)
            words = self._rng.words((segment + 1) * count)[segment * count :].tolist()
            for generator, own in zip(self._own, words, strict=True):
                seed_generator(generator, own)

    def after(self, before: Any) -> None:
        """Warn, once in a process, if the sample drew numbers that depend on the order of work."""
        if before is None:
            return
        # Another thread may have drawn meanwhile, which cannot be distinguished from draws of the sample. A transform
        # that draws does it again and again, so one change alone is not a sign of it.
        self._left -= 1
        changed = self.state() != before
        if changed and self._changed_before:
            self._left = 0
            _warn()
        self._changed_before = changed

    def state(self) -> tuple[Any, ...]:
        """Return numbers that change when one of them is drawn from."""
        state: Any = np.random.get_state(legacy=False)
        known = hash(random.getstate()), state["state"]["pos"], int(state["state"]["key"][0])
        torch = _torch()
        drawn = 0 if torch is None else zlib.crc32(generator_state(torch.default_generator))
        return *known, drawn, *(zlib.crc32(pickle.dumps(generator_state(each))) for each in self._own)


def find_generators(roots: Sequence[Any]) -> list[Any]:
    """Return the random generators that objects refer to, except the global ones and those that follow a sample's rng.

    They are looked for in attributes, short containers, closures, and the globals that functions use. At most 20,000
    objects are looked at, and no container of more than 1000 elements.
    """
    kinds, _ = _kinds_and_atoms()
    found = (value for value in reachable(roots) if isinstance(value, kinds))
    return [value for value in found if not isinstance(value, random.SystemRandom)]


def find_classes(roots: Sequence[Any]) -> set[type]:
    """Return the classes that objects are of, or refer to; they are looked for as generators are."""
    return {value if isinstance(value, type) else type(value) for value in reachable(roots)}


def reachable(roots: Sequence[Any]) -> Iterator[Any]:
    """Iterate over objects and what they refer to, see `find_generators`; over generators only as such."""
    kinds, atoms = _kinds_and_atoms()
    seen: dict[int, Any] = {id(each): each for each in _global_generators()}
    waiting: list[Any] = list(reversed(roots))
    while waiting and len(seen) < _MOST_OBJECTS:
        value = waiting.pop()
        if isinstance(value, type):
            yield value
        if id(value) in seen or isinstance(value, atoms):
            continue
        seen[id(value)] = value
        yield value
        if not isinstance(value, (*kinds, DrawsFromRng)):
            waiting += reversed(list(_referred(value, kinds)))


def _torch() -> Any:
    """Return torch if it is imported: only code that has imported it can draw from its generators."""
    torch = sys.modules.get("torch")
    return torch if hasattr(torch, "default_generator") else None  # it may just be being imported


def _global_generators() -> Iterator[Any]:
    hidden: Any = (random.random, np.random.random)  # methods of the global generators
    for method in hidden:
        yield method.__self__
    torch = _torch()
    if torch is not None:
        yield torch.default_generator


def _kinds_and_atoms() -> tuple[tuple[type, ...], tuple[type, ...]]:
    """Return the classes of generators, and those of objects that refer to none."""
    torch = _torch()
    kinds, atoms = _KINDS, _ATOMS
    if torch is not None:
        kinds, atoms = (*kinds, torch.Generator), (*atoms, torch.Tensor)
    return kinds, atoms


def _referred(value: Any, kinds: tuple[type, ...]) -> Iterator[Any]:
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
            with suppress(ValueError):  # not set yet
                yield cell.cell_contents
        library = _is_of_library(value.__code__.co_filename)
        for named in _globals_of(value.__code__, value.__globals__):
            # What a function of a library uses is not the caller's.
            if isinstance(named, kinds) or not library:
                yield named
    else:
        with suppress(AttributeError):
            yield from object.__getattribute__(
                value, "__dict__"
            ).values()  # without code of the object's class
        for kind in type(value).__mro__:
            for member in vars(kind).values():
                if isinstance(member, FunctionType):
                    yield member
                elif isinstance(member, MemberDescriptorType):  # of __slots__
                    with suppress(AttributeError):  # not set yet
                        yield member.__get__(value)


def _globals_of(code: CodeType, names: Mapping[str, Any]) -> Iterator[Any]:
    """Iterate over the globals that code uses, and over those of the caller's modules among them."""
    for name in code.co_names:
        value = names.get(name)
        if isinstance(value, ModuleType):
            if not _is_of_library(vars(value).get("__file__") or _LIBRARY):
                yield from (vars(value).get(other) for other in code.co_names)
        else:
            yield value
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from _globals_of(inner, names)


@functools.cache
def _is_of_library(path: str) -> bool:
    """Return True if a file is of Python or of an installed package."""
    import sysconfig  # costs a worker milliseconds, and few need it

    folders = tuple(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return path.startswith(folders) or _LIBRARY in path


def generator_state(generator: Any) -> Any:
    """Return the state of a generator, which can be pickled."""
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    if isinstance(generator, np.random.RandomState):
        return generator.get_state(legacy=False)
    return generator.get_state().numpy().tobytes()  # torch's


def seed_generator(generator: Any, word: int) -> None:
    """Seed a generator with a word of 64 bits."""
    if isinstance(generator, random.Random):
        generator.seed(word)
    elif isinstance(generator, np.random.Generator):
        bits: Any = generator.bit_generator
        if type(bits) is np.random.PCG64:  # that of `default_rng`: 1.5 µs, and the general way 25 µs
            state: Any = {"state": word * _ODD & _MASK, "inc": _INCREMENT}
            bits.state = {"bit_generator": "PCG64", "state": state, "has_uint32": 0, "uinteger": 0}
        else:
            bits.state = type(bits)(word).state
    elif isinstance(generator, np.random.RandomState):
        made: Any = type(generator._bit_generator)(word)
        generator.set_state(made.state)
    else:  # torch's
        generator.manual_seed(word >> 1)


_warned = threading.Lock()


def _warn() -> None:
    if _warned.acquire(blocking=False):
        alone = threading.active_count() == 1
        warnings.warn(
            ("a" if alone else "probably a")
            + " transform or dataset draws from a random generator that this executor does not seed, so its numbers "
            "depend on the order of work. Use executor='process', or take a parameter named rng"
            + (
                ""
                if alone
                else ". If another thread of this program draws from it, and no transform does, ignore this warning"
            ),
            ForeignRandomnessWarning,
            stacklevel=2,
        )
