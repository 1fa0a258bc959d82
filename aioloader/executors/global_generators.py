"""Global generators of Python, numpy and torch: seeded for every sample, or watched for draws without a seed."""

from __future__ import annotations

import random
import sys
import threading
import warnings
from typing import Any

import numpy as np

from aioloader.rng import GLOBALS_DOMAIN, Rng

_SAMPLES_WATCHED = 16


class ForeignRandomnessWarning(UserWarning):
    """Warning that a transform draws from a global generator of Python or numpy where that is not reproducible.

    It is issued when the generators' state changes while samples are made. If other threads run, one of them may have
    changed it; the text then mentions this.
    """


class GlobalGenerators:
    """The global generators before and after each sample.

    Args:
        seed: the loader's seed.
        seeded: seed them before every sample; otherwise watch the first samples, and warn of a draw.
    """

    def __init__(self, seed: int, seeded: bool) -> None:
        self._seed = seed
        self._rng = Rng(seed) if seeded else None
        self._left = 0 if seeded else _SAMPLES_WATCHED
        self._changed_before = False

    def before(self, epoch: int, index: int, position: int, segment: int = 0) -> Any:
        """Prepare them for a sample; return their state for `after`.

        Args:
            epoch: number of the epoch.
            index, position: of the sample.
            segment: number of the async transforms that it has passed.
        """
        if self._rng is None:
            return _state() if self._left else None
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
        torch = sys.modules.get("torch")  # only code that has imported it can draw from its generator
        if torch is not None and hasattr(torch, "default_generator"):
            torch.default_generator.manual_seed(
                word >> 1
            )  # `torch.initial_seed()` then fits int64, as torch's own

    def after(self, before: Any) -> None:
        """Warn, once in a process, if the sample drew numbers that depend on the order of work."""
        if before is None:
            return
        # Another thread may have drawn meanwhile, which cannot be distinguished from draws of the sample. A transform
        # that draws does it again and again, so one change alone is not a sign of it.
        self._left -= 1
        changed = _state() != before
        if changed and self._changed_before:
            self._left = 0
            _warn()
        self._changed_before = changed


def _state() -> tuple[Any, Any]:
    state: Any = np.random.get_state(legacy=False)
    return hash(random.getstate()), (state["state"]["pos"], int(state["state"]["key"][0]))


_warned = threading.Lock()


def _warn() -> None:
    if _warned.acquire(blocking=False):
        alone = threading.active_count() == 1
        warnings.warn(
            ("a" if alone else "probably a")
            + " transform or dataset draws from a global generator of Python or numpy; in this executor its numbers "
            "depend on the order of work. Use executor='process', or take a parameter named rng"
            + (
                ""
                if alone
                else ". If another thread of this program draws from it, and no transform does, ignore this warning"
            ),
            ForeignRandomnessWarning,
            stacklevel=2,
        )
