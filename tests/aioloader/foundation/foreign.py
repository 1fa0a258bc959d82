"""Exceptions whose classes refuse what other exceptions allow; importable, so that worker processes can send them."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from typing import Any

import numpy as np


@dataclasses.dataclass(frozen=True)
class FrozenError(Exception):
    code: int


class UnsettableError(Exception):
    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(name)


class TextlessError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no text")


class ReprlessError(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no text")


class MadeOfPartsError(Exception):
    """Its text needs an attribute with its type."""

    def __init__(self, part: Any) -> None:
        super().__init__(part)
        self.part = part

    def __str__(self) -> str:
        return f"a part of {self.part.bits} bits"


class Part:
    bits = 7


class NoDictError(Exception):
    @property
    def __dict__(self) -> Any:
        raise RuntimeError("no attributes")


class OtherTracebackError(Exception):
    @property
    def __traceback__(self) -> None:
        return None


class UnpicklableError(Exception):
    def __reduce__(self) -> Any:
        raise RuntimeError("not to be sent")


class Nameless(type):
    @property
    def __name__(cls) -> str:
        raise RuntimeError("no name")


class NamelessError(Exception, metaclass=Nameless):
    pass


class GetattrError(Exception):
    """It has no notes, and the question for them raises what no question should."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(name)


class GetattributeError(Exception):
    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)


class ClasslessError(Exception):
    @property
    def __class__(self) -> Any:
        raise RuntimeError("no class")


class TruthlessError(Exception):
    def __bool__(self) -> bool:
        raise RuntimeError("neither true nor false")


class FalsyError(Exception):
    def __len__(self) -> int:
        return 0


@dataclasses.dataclass
class UnhashableError(Exception):
    code: int = 0


class OtherNotesError(Exception):
    @property
    def __notes__(self) -> Any:
        raise RuntimeError("no notes")


class OtherCauseError(Exception):
    @property
    def __cause__(self) -> Any:
        raise RuntimeError("no cause")

    @property
    def __suppress_context__(self) -> Any:
        raise RuntimeError("no decision")


class Text(str):
    def __len__(self) -> int:
        raise RuntimeError("no length")

    def __format__(self, spec: str) -> str:
        raise RuntimeError("no format")


class OddTextError(Exception):
    def __str__(self) -> str:
        return Text("odd")


class ExitingTextError(Exception):
    def __str__(self) -> str:
        sys.exit(3)

    __repr__ = __str__


class UnloadableError(Exception):
    def __reduce__(self) -> Any:
        return raise_, (RuntimeError("not to be read"),)


class OtherwiseLoadedError(Exception):
    """Exception that is unpickled as another kind of object."""

    def __reduce__(self) -> Any:
        return int, ("5",)


class ExitingLoadError(Exception):
    def __reduce__(self) -> Any:
        return sys.exit, (3,)


class InterruptedSendError(Exception):
    def __reduce__(self) -> Any:
        raise KeyboardInterrupt


def raise_noted(notes: Any) -> None:
    error = ValueError("noted")
    error.__notes__ = notes
    raise error


def raise_circle() -> None:
    first, second = ValueError("first"), KeyError("second")
    first.__cause__, second.__cause__ = second, first
    raise first


def raise_long_chain() -> None:
    error = None
    for number in range(500):
        outer = ValueError(number)
        outer.__cause__, error = error, outer
    assert error is not None
    raise error


def raise_nested_groups() -> None:
    error: Exception = ValueError("inner")
    for _ in range(300):
        error = ExceptionGroup("outer", [error])
    raise error


def raise_chained() -> None:
    try:
        raise TextlessError
    except TextlessError as error:
        raise FrozenError(2) from error


def raise_(error: BaseException) -> None:
    raise error


WAYS = {
    "frozen": lambda: raise_(FrozenError(1)),
    "unsettable": lambda: raise_(UnsettableError()),
    "textless": lambda: raise_(TextlessError()),
    "reprless": lambda: raise_(ReprlessError()),
    "made of parts": lambda: raise_(MadeOfPartsError(Part())),
    "numpy's memory error": lambda: np.zeros(1 << 56, np.uint8),
    "no dict": lambda: raise_(NoDictError()),
    "another traceback": lambda: raise_(OtherTracebackError()),
    "unpicklable": lambda: raise_(UnpicklableError()),
    "nameless": lambda: raise_(NamelessError()),
    "group": lambda: raise_(ExceptionGroup("several", [ReprlessError(), FrozenError(2)])),
    "chained": raise_chained,
    "no attributes by name": lambda: raise_(GetattrError("text")),
    "no attributes at all": lambda: raise_(GetattributeError("text")),
    "classless": lambda: raise_(ClasslessError("text")),
    "truthless": lambda: raise_(TruthlessError("text")),
    "falsy": lambda: raise_(FalsyError("text")),
    "unhashable": lambda: raise_(UnhashableError()),
    "other notes": lambda: raise_(OtherNotesError("text")),
    "no notes": lambda: raise_noted(None),
    "notes that are no texts": lambda: raise_noted([1, Part()]),
    "another cause": lambda: raise_(OtherCauseError("text")),
    "odd text": lambda: raise_(OddTextError()),
    "exiting text": lambda: raise_(ExitingTextError()),
    "unloadable": lambda: raise_(UnloadableError("text")),
    "loaded as something else": lambda: raise_(OtherwiseLoadedError("text")),
    "exiting when loaded": lambda: raise_(ExitingLoadError("text")),
    "interrupted when sent": lambda: raise_(InterruptedSendError("text")),
    "a circle": raise_circle,
    "a long chain": raise_long_chain,
    "nested groups": raise_nested_groups,
    "a group of any": lambda: raise_(BaseExceptionGroup("several", [GetattrError(), KeyboardInterrupt()])),
    "a large text": lambda: raise_(ValueError("x" * 5_000_000, np.zeros(1_000_000))),
    "a text that is not UTF-8": lambda: raise_(OSError(2, "no file", "\udcff\0")),
    "exit": lambda: raise_(SystemExit(3)),
    "cancellation": lambda: raise_(asyncio.CancelledError()),
    "end of a generator": lambda: raise_(StopIteration(np.zeros(10))),
}


def fail(way: str) -> np.int64:
    """Fail in a way; return 1 for a way that is not known."""
    if way in WAYS:
        WAYS[way]()
    return np.int64(1)
