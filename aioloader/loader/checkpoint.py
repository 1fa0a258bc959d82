"""Progress of the caller: epoch numbers, consumed positions, and the state to resume from (pure).

A batch is consumed when it is delivered. An iterator receives its epoch number when it is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from aioloader.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

STATE_VERSION = 1
_EPOCHS = 2**62
# More positions than any batches leave over, and few enough to be counted in 64 bits.
_MOST_CARRIED = 2**48


@dataclass(slots=True, eq=False)
class EpochCursor:
    """Position in the stream of epochs.

    Attributes:
        epoch: epoch number.
        consumed: stream positions (batches, with a batch sampler) of it that were delivered.
        carry: the samples that rollover brought into it, or None.
        source_state: state of the source of an iterable dataset, or None.
        taken: batches behind `consumed` that were delivered, each by the position of its end.
        empty: batches in it that the caller did not get, because all their samples failed.
    """

    epoch: int = 0
    consumed: int = 0
    carry: Any = None
    source_state: Any = None
    taken: Sequence[int] = ()
    empty: int = 0


class CheckpointState:
    """Progress of one loader.

    Args:
        identity: returns the entries that a state must share with the loader: fingerprint, length, unit, order,
            order_version.
        seed: the loader's seed.
        extent: returns how many positions (batches, with a batch sampler) an epoch has without a carry; None if that
            is not known.
        cut: returns what decides where batches begin and end: their size, the rank and the world size.
    """

    def __init__(
        self,
        identity: Callable[[], dict[str, Any]],
        seed: int,
        extent: Callable[[], int | None],
        cut: Callable[[], list[int]],
    ) -> None:
        self._cut = cut
        self._identity = identity
        self._extent = extent
        self.seed = seed
        self.next = EpochCursor()
        self.current: EpochCursor | None = None

    def begin(self) -> EpochCursor:
        """Begin an epoch and return its cursor. If it is left early, its carry is dropped and the next one follows."""
        place = self.next
        self.current = replace(place)
        self.next = EpochCursor(place.epoch + 1)
        return self.current

    def finish(self, place: EpochCursor, carry: Any) -> None:
        """Record that an epoch was exhausted."""
        if self.current is place:
            self.current = None
            if self.next.epoch == place.epoch + 1:
                self.next.carry = carry

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch; if it is the next one anyway, nothing changes."""
        if isinstance(epoch, bool) or not hasattr(epoch, "__index__") or not 0 <= epoch < _EPOCHS:
            raise ValueError(f"epoch must be a whole number from 0 to {_EPOCHS - 1}, got {epoch!r}")
        if epoch != self.next.epoch:
            self.next = EpochCursor(int(epoch))
        self.current = None

    def state(self) -> dict[str, Any]:
        """Return the state to resume from: a JSON object."""
        place = self.current or self.next
        source = {} if place.source_state is None else {"source": place.source_state}
        taken = {"taken": list(place.taken), "cut": self._cut()} if place.taken else {}
        return {
            "version": STATE_VERSION,
            **self._identity(),
            "seed": self.seed,
            "epoch": place.epoch,
            "consumed": place.consumed,
            "carry": place.carry,
            **source,
            **taken,
        }

    def load(self, state: dict[str, Any], fixed: bool = False) -> None:
        """Load a state, with its seed; a state that is refused changes nothing.

        Args:
            state: a result of `state`.
            fixed: the seed cannot be changed any more.

        Raises:
            ResumeError: it is corrupt, or belongs to another dataset or another way of sampling.
        """
        if not isinstance(state, dict):
            raise ResumeError("state", "a dict", type(state).__name__)
        if "version" not in state:
            raise ResumeError("version", STATE_VERSION, None, "it is not a state of a loader")
        for name, expected in {"version": STATE_VERSION, **self._identity()}.items():
            if state.get(name) != expected:
                raise ResumeError(name, expected, state.get(name), _ADVICE.get(name, ""))
        seed = _number("seed", state.get("seed"), 2**64)
        epoch = _number("epoch", state.get("epoch"), _EPOCHS)
        if "carry" not in state:
            raise ResumeError("carry", "an entry, if only None", None, "the state is corrupt")
        carry = state["carry"]
        carried = 0
        extent = self._extent()
        if carry is not None:
            carry, carried = _carry(carry, state["unit"], epoch, state["length"], extent)
        most = 2**63 if extent is None else extent + carried + 1
        consumed = _number("consumed", state.get("consumed"), most)
        if fixed and seed != self.seed:
            raise ResumeError("seed", self.seed, seed, "load the state before the first iteration")
        taken = state.get("taken", [])
        if not isinstance(taken, (list, tuple)) or not all(
            _is_number(end, consumed + 1, most) for end in taken
        ):
            raise ResumeError("taken", "positions behind the consumed ones", taken, "the state is corrupt")
        if taken and state.get("cut") != self._cut():
            raise ResumeError(
                "cut",
                self._cut(),
                state.get("cut"),
                "batches were taken out of order: resume with the same batch size, rank and world size",
            )
        self.seed = seed
        self.next = EpochCursor(epoch, consumed, carry, state.get("source"), list(taken))
        self.current = None


def _number(name: str, value: Any, end: int) -> int:
    if not _is_number(value, 0, end):
        raise ResumeError(name, f"a whole number from 0 to {end - 1}", value, "the state is corrupt")
    return int(value)


def _is_number(value: Any, low: int, end: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and low <= value < end


def _carry(carry: Any, unit: str, epoch: int, length: int, extent: int | None) -> tuple[list[Any], int]:
    """Return a valid carry, and the number of positions in it.

    By position it is [epoch, position in it] of the first sample left over; else it is [index, epoch, position in it]
    of each sample.

    Raises:
        ResumeError: the carry is not valid.
    """
    if isinstance(carry, (list, tuple)):
        if unit.startswith("positions") and extent is not None and len(carry) == 2:
            first, place = carry
            if _is_number(first, 0, epoch) and _is_number(place, 0, extent):
                carried = (epoch - first) * extent - place
                if carried < _MOST_CARRIED:
                    return [first, place], carried
        if unit.startswith("samples") and carry:
            left = [list(each) for each in carry if isinstance(each, (list, tuple)) and len(each) == 3]
            if len(left) == len(carry) and all(
                _is_number(index, -length, length)
                and _is_number(of, 0, epoch)
                and _is_number(place, 0, 1 << 62)
                for index, of, place in left
            ):
                return left, len(left)
    raise ResumeError("carry", "samples that an earlier epoch left over", carry, "the state is corrupt")


_ADVICE = {
    "version": "it was written by another version of aioloader",
    "order_version": "the order of samples or their random draws have changed between the two versions of aioloader",
    "fingerprint": "it was written for other data",
    "length": "it was written for another dataset",
    "order": "its sampler produces another order: weights, labels, ratios, a window or a number of samples differ",
    "unit": "it was written by a loader that samples in another way (sampler or batch_sampler)",
}
