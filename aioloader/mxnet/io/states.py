"""States of iterators as JSON objects: the parts common to all kinds. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from aioloader.errors import ResumeError

if TYPE_CHECKING:
    from collections.abc import Mapping

STATE_VERSION = 1


@runtime_checkable
class HasState(Protocol):
    """Iterator or loader that can report its position."""

    def state_dict(self) -> Any:
        """Return the position."""


def check_state(state: Any, identity: Mapping[str, Any]) -> None:
    """Refuse a state that was not written by this kind of iterator over this data.

    Args:
        state: the caller's state.
        identity: entries that it must share with the iterator.

    Raises:
        ResumeError: an entry differs; the error names it.
    """
    if not isinstance(state, dict):
        raise ResumeError("state", "a dict", type(state).__name__)
    if "version" not in state:
        raise ResumeError("version", STATE_VERSION, None, "it is not a state of an iterator")
    for name, expected in identity.items():
        if state.get(name) != expected:
            raise ResumeError(name, expected, state.get(name), _ADVICE.get(name, ""))


def whole_number(state: Mapping[str, Any], name: str, low: int, end: int) -> int:
    """Return the entry of a state that must be a whole number, low <= number < end.

    Raises:
        ResumeError: it is not one.
    """
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < end:
        raise ResumeError(name, f"a whole number from {low} to {end - 1}", value, "it is damaged")
    return value


def inner_state(iterator: object) -> Any:
    """Return the state of an iterator that another one wraps.

    Raises:
        NotImplementedError: it has none.
    """
    if not isinstance(iterator, HasState):
        raise NotImplementedError(f"{type(iterator).__name__} has no state_dict(), so it cannot be resumed")
    return iterator.state_dict()


_ADVICE = {
    "version": "it was written by another version of aioloader",
    "iterator": "it was written by an iterator of another kind",
    "fingerprint": "it was written for other data",
}
