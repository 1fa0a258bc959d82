"""How far the caller has got: epoch numbers, positions consumed, and the state that resumes (pure).

A batch is consumed when it is handed out. Epoch numbers are given when an iterator is made.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("STATE_VERSION", "Place", "Progress")

STATE_VERSION = 1


class Place:
    """A place in the stream of epochs.

    Attributes:
        epoch: epoch number.
        consumed: stream positions (batches, with a batch sampler) handed out of it.
        carry: what rollover brought into it, or None.
    """

    __slots__ = ("carry", "consumed", "epoch")

    def __init__(self, epoch: int = 0, consumed: int = 0, carry: Any = None) -> None:
        self.epoch = epoch
        self.consumed = consumed
        self.carry = carry


class Progress:
    """The progress of one loader.

    Args:
        identity: gives the entries that a state must share with the loader: fingerprint, length, unit,
            order_version.
        seed: the loader's seed.
    """

    def __init__(self, identity: Callable[[], dict[str, Any]], seed: int) -> None:
        self._identity = identity
        self.seed = seed
        self.next = Place()
        self.current: Place | None = None

    def begin(self) -> Place:
        """A new pass: where it starts. Leaving it early drops its carry and goes on with the epoch after it."""
        place = self.next
        self.current = Place(place.epoch, place.consumed, place.carry)
        self.next = Place(place.epoch + 1)
        return self.current

    def finish(self, place: Place, carry: Any) -> None:
        """A pass was exhausted."""
        if self.current is place:
            self.current = None
            if self.next.epoch == place.epoch + 1:
                self.next.carry = carry

    def set_epoch(self, epoch: int) -> None:
        """The next pass is that epoch; what was carried over is dropped unless it is the next one anyway."""
        if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or epoch < 0:
            raise ValueError(f"epoch must be a whole number of at least 0, got {epoch!r}")
        carry = self.next.carry if epoch == self.next.epoch else None
        self.next = Place(int(epoch), 0, carry)
        self.current = None

    def state(self) -> dict[str, Any]:
        """The state to resume from: a JSON object."""
        place = self.current or self.next
        return {
            "version": STATE_VERSION,
            **self._identity(),
            "seed": self.seed,
            "epoch": place.epoch,
            "consumed": place.consumed,
            "carry": place.carry,
        }

    def load(self, state: dict[str, Any]) -> int:
        """Take a state up; gives its seed.

        Raises:
            ResumeError: it is damaged, or belongs to another dataset or another way of sampling.
        """
        if not isinstance(state, dict):
            raise ResumeError("state", "a dict", type(state).__name__)
        for name, expected in {"version": STATE_VERSION, **self._identity()}.items():
            if state.get(name) != expected:
                raise ResumeError(name, expected, state.get(name), _ADVICE.get(name, ""))
        numbers = {}
        for name in ("seed", "epoch", "consumed"):
            value = state.get(name)
            if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**64:
                raise ResumeError(name, "a whole number of at least 0", value)
            numbers[name] = value
        self.next = Place(numbers["epoch"], numbers["consumed"], self._carry(state.get("carry")))
        self.current = None
        return numbers["seed"]

    def _carry(self, carry: Any) -> Any:
        def number(value: Any) -> bool:
            return isinstance(value, int) and not isinstance(value, bool) and value >= 0

        if carry is None:
            return None
        good = isinstance(carry, (list, tuple)) and (
            (len(carry) == 2 and all(map(number, carry)))
            or all(
                isinstance(pair, (list, tuple)) and len(pair) == 2 and all(map(number, pair))
                for pair in carry
            )
        )
        if not good:
            raise ResumeError("carry", "positions carried over", carry)
        return [list(pair) if isinstance(pair, (list, tuple)) else pair for pair in carry]


_ADVICE = {
    "version": "it was written by another version of aioloader",
    "order_version": "the order of samples has changed between the two versions of aioloader",
    "fingerprint": "it was written for other data",
    "length": "it was written for another dataset",
    "unit": "it was written by a loader that samples in another way (sampler or batch_sampler)",
}
