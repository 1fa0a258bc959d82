"""Random draws that depend only on (seed, epoch, index, position).

Rule (docs/design.md, "Order and randomness"): the words are those of Philox 4x64-10 (Salmon et al., "Parallel random
numbers: as easy as 1, 2, 3", 2011), whose stream numpy keeps stable. Everything drawn from the words is defined
here, because numpy does not promise its distributions across versions. Key words: (seed, position). Counter words:
(block, epoch, index, domain).
"""

from __future__ import annotations

import itertools
import math
import os
import threading
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from aioloader.foundation.native import native

if TYPE_CHECKING:
    from collections.abc import MutableSequence, Sequence

__all__ = (
    "AWAITED_DOMAIN",
    "BATCH_DOMAIN",
    "CHOICE_DOMAIN",
    "GLOBALS_DOMAIN",
    "LATER_DOMAIN",
    "ORDER_DOMAIN",
    "OWN_GENERATORS_DOMAIN",
    "SAMPLE_DOMAIN",
    "TURN_DOMAIN",
    "VIEW_DOMAIN",
    "DrawsFromRng",
    "Rng",
    "current_rng",
    "default_rng",
    "seed_default_rng",
)

T = TypeVar("T")

SAMPLE_DOMAIN = 0
ORDER_DOMAIN = 1
GLOBALS_DOMAIN = 2
CHOICE_DOMAIN = 3
TURN_DOMAIN = 4
# A batch draws as index 0, at the position of its first sample.
BATCH_DOMAIN = 5
# A view draws with a word of its sample's stream as the seed, and its number as the index.
VIEW_DOMAIN = 6
OWN_GENERATORS_DOMAIN = 7
# In a chain with async transforms, the n-th of them (from 0) draws from AWAITED_DOMAIN + n, and the transforms after
# the n-th group of them (from 1) draw in a worker from LATER_DOMAIN + n.
AWAITED_DOMAIN = 1 << 32
LATER_DOMAIN = 1 << 33

_MASK = 0xFFFFFFFFFFFFFFFF
_BLOCK = 8
_WORDS_OF_A_BLOCK = 4  # Philox 4x64
_TO_UNIT = 2.0**-53


class Rng:
    """Draws of one sample. A worker keeps one and moves it from sample to sample with `seek`.

    Args:
        seed: 0 <= seed < 2**64.
        epoch: 0 <= epoch < 2**64.
        index: place in the dataset, 0 <= index < 2**64.
        domain: distinguishes uses with the same seed, epoch, index and position.
        position: place in the epoch's order, 0 <= position < 2**64: an item that comes several times in an epoch draws
            other numbers each time.
    """

    __slots__ = ("_bits", "_block", "_next", "_place", "_state", "_words")

    def __init__(
        self, seed: int, epoch: int = 0, index: int = 0, domain: int = SAMPLE_DOMAIN, *, position: int = 0
    ) -> None:
        self._bits = np.random.Philox(key=0)
        # Tuples where numpy's own state has arrays, which it reads item by item: setting it takes half the time.
        self._state: Any = {
            "bit_generator": "Philox",
            "state": {},
            "buffer": (0,) * _WORDS_OF_A_BLOCK,
            "buffer_pos": _WORDS_OF_A_BLOCK,
            "has_uint32": 0,
            "uinteger": 0,
        }
        self.seek(seed, epoch, index, domain, position=position)

    def seek(
        self,
        seed: int,
        epoch: int,
        index: int,
        domain: int = SAMPLE_DOMAIN,
        *,
        position: int = 0,
        words: Sequence[int] = (),
    ) -> None:
        """Move to the start of the stream of (seed, epoch, index, position) in a domain.

        Args:
            seed, epoch, index, domain, position: as for `Rng`.
            words: the first words of the stream as drawn by `ahead`, or none.
        """
        self._place: tuple[int, int, int, int, int] | None = (seed, epoch, index, domain, position)
        # Block of the generator at which it continues once it is set.
        self._block = len(words) // _WORDS_OF_A_BLOCK
        self._words = words
        self._next = 0

    def ahead(self, seed: int, places: npt.NDArray[np.int64]) -> list[list[int]]:
        """Draw the first words of many streams, for `seek`: cheaper together than each at its first draw.

        Call `seek` before the next draw of this object.

        Args:
            seed: the seed of all.
            places: int64 (n, 3), (epoch, index, position) of each.

        Returns:
            the words of each stream.
        """
        if native is not None:
            words = np.empty((len(places), _BLOCK), np.uint64)
            native.draw_words(seed, np.ascontiguousarray(places), words)
            return words.tolist()
        found = []
        for epoch, index, position in places.tolist():
            self._place, self._block = (seed, epoch, index, SAMPLE_DOMAIN, position), 0
            found.append(self._raw(_BLOCK).tolist())
        return found

    @property
    def drew(self) -> bool:
        """Return True if anything was drawn since `seek`."""
        return self._next > 0 or self._place is None

    def skip(self, count: int) -> None:
        """Pass the next `count` words; they are among those drawn ahead, which `seek` got."""
        self._next += count

    def _raw(self, n: int) -> npt.NDArray[np.uint64]:
        if self._place is not None:
            # The generator is set at the first draw only: many samples draw nothing.
            seed, epoch, index, domain, position = self._place
            self._state["state"] = {"counter": (self._block, epoch, index, domain), "key": (seed, position)}
            self._bits.state = self._state
            self._place = None
        words: npt.NDArray[np.uint64] = self._bits.random_raw(n)
        return words

    def _word(self) -> int:
        if self._next == len(self._words):
            self._words = self._raw(_BLOCK).tolist()
            self._next = 0
        word = self._words[self._next]
        self._next += 1
        return word

    def words(self, n: int) -> npt.NDArray[np.uint64]:
        """Draw the next n words of the stream, uint64 (n,). Words already buffered are skipped."""
        if not self.drew:
            self._block = 0  # the words drawn ahead have not been used
        self._words = ()
        self._next = 0
        return self._raw(n)

    def random(self) -> float:
        """Draw a number uniform in [0, 1), a multiple of 2**-53."""
        place = self._next
        if place == len(self._words):
            return (self._word() >> 11) * _TO_UNIT
        self._next = place + 1
        return (self._words[place] >> 11) * _TO_UNIT

    def uniform(self, low: float = 0.0, high: float = 1.0) -> float:
        """Draw a number uniform in [low, high)."""
        return low + (high - low) * self.random()

    def integers(self, low: int, high: int | None = None) -> int:
        """Draw an integer uniform in [low, high), or in [0, low) when `high` is None; no bias.

        Source: Lemire, "Fast random integer generation in an interval", 2019.

        Raises:
            ValueError: the range is empty.
        """
        if high is None:
            low, high = 0, low
        n = high - low
        if n <= 0 or n > _MASK:
            raise ValueError(f"integers() needs low < high < low + 2**64, got [{low}, {high})")
        product = self._word() * n
        if product & _MASK < n:
            threshold = (_MASK + 1 - n) % n
            while product & _MASK < threshold:
                product = self._word() * n
        return low + (product >> 64)

    def normal(self, loc: float = 0.0, scale: float = 1.0) -> float:
        """Draw a normal number with mean `loc` and standard deviation `scale` (Box and Muller, 1958)."""
        radius = math.sqrt(-2.0 * math.log(1.0 - self.random()))
        return loc + scale * radius * math.cos(2.0 * math.pi * self.random())

    def word(self) -> int:
        """Draw a whole number uniform in [0, 2**64), the next word of the stream."""
        return self._word()

    def beta(self, a: float, b: float) -> float:
        """Draw a number of the beta distribution.

        Args:
            a, b: parameters of the distribution, above 0.
        """
        return self.dirichlet((a, b))[0]

    def dirichlet(self, alphas: Sequence[float]) -> list[float]:
        """Draw shares of the Dirichlet distribution; their sum is 1.

        Args:
            alphas: parameters of the distribution, above 0; at least one.
        """
        # Logarithms, because numbers of the gamma distribution for a small parameter are often too small for a float.
        logs = [self._log_gamma(alpha) for alpha in alphas]
        most = max(logs)
        parts = [math.exp(log - most) for log in logs]
        total = sum(parts)
        return [part / total for part in parts]

    def _log_gamma(self, shape: float) -> float:
        """Draw the logarithm of a number of the gamma distribution (Marsaglia and Tsang, 2000)."""
        if shape < 1.0:
            return self._log_gamma(shape + 1.0) + math.log(1.0 - self.random()) / shape
        d = shape - 1.0 / 3.0
        c = 1.0 / math.sqrt(9.0 * d)
        while True:
            x = self.normal()
            v = (1.0 + c * x) ** 3
            if v > 0.0 and math.log(1.0 - self.random()) < 0.5 * x * x + d - d * v + d * math.log(v):
                return math.log(d) + math.log(v)

    def shuffle(self, items: MutableSequence[Any]) -> None:
        """Shuffle in place (Fisher and Yates)."""
        for last in range(len(items) - 1, 0, -1):
            other = self.integers(last + 1)
            items[last], items[other] = items[other], items[last]

    def permutation(self, n: int) -> list[int]:
        """Return a random order of range(n)."""
        order = list(range(n))
        self.shuffle(order)
        return order

    def choice(self, items: Sequence[T]) -> T:
        """Draw one element of a non-empty sequence, uniformly."""
        return items[self.integers(len(items))]


class DrawsFromRng:
    """Base of objects that set the generators in them from the sample's `Rng`, so that nobody else has to."""


current_rng: ContextVar[Rng | None] = ContextVar("aioloader.current_rng", default=None)
"""Draws of the sample, or of the batch, for which foreign code is running: a transform, dataset or batchify function.

Set where such code is called, and reset when it returns: what it calls without `rng` then draws from them.
"""

_local = threading.local()
_default_seed: int | None = None
_default_seeded = 0
_threads_seen = itertools.count()


def default_rng() -> Rng:
    """Return the draws for a transform that is called without `rng`.

    While a loader's foreign transform, dataset or batchify function runs, they are those of its sample or batch.
    Elsewhere they are one stream per thread, seeded by the system.
    """
    current = current_rng.get()
    if current is not None:
        return current
    rng: Rng | None = getattr(_local, "rng", None)
    if rng is None or _local.pid != os.getpid() or _local.seeded != _default_seeded:
        _local.pid, _local.seeded = os.getpid(), _default_seeded
        if _default_seed is None:
            rng = _local.rng = Rng(int.from_bytes(os.urandom(8), "little"))
        else:
            rng = _local.rng = Rng(_default_seed, next(_threads_seen))
    return rng


def seed_default_rng(seed: int) -> None:
    """Seed `default_rng`, in all threads.

    The first thread that draws afterwards has the first stream, and so on.

    Args:
        seed: 0 <= seed < 2**64.
    """
    global _default_seed, _default_seeded, _threads_seen
    _default_seed = seed
    _threads_seen = itertools.count()
    _default_seeded += 1
