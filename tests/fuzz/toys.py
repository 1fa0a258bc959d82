"""Targets that misbehave on purpose: the tests of the runner need them."""

from __future__ import annotations

import os
import signal

from tests.fuzz.target import Draw, Finding


class _Toy:
    past = frozenset(("fine",))

    def make(self, draw: Draw) -> bytes:
        """Some bytes."""
        return bytes(int(draw() * 256) for _ in range(20))

    def check(self, data: bytes) -> str:
        """One input of about thirteen has this byte."""
        if 77 in data:
            self.misbehave()
        return "fine"

    def misbehave(self) -> None:
        """What is wrong with it."""
        raise NotImplementedError


class Wrong(_Toy):
    """Gives wrong results."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        raise Finding("wrong")


class Hanging(_Toy):
    """Does not come back."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        while True:
            pass


class Crashing(_Toy):
    """Takes its process with it."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        os.kill(os.getpid(), signal.SIGSEGV)
