"""Exceptions whose classes refuse what other exceptions allow; importable, so that worker processes can send them."""

from __future__ import annotations

import dataclasses
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
}


def fail(way: str) -> np.int64:
    """Fail in a way; return 1 for a way that is not known."""
    if way in WAYS:
        WAYS[way]()
    return np.int64(1)
