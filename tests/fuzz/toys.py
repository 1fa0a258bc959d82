"""Targets that misbehave on purpose, for the tests of the runner."""

from __future__ import annotations

import os
import signal

from tests.fuzz.target import Draw, Finding


class _Toy:
    past = frozenset(("fine",))

    def make(self, draw: Draw) -> bytes:
        """Return some bytes."""
        return bytes(int(draw() * 256) for _ in range(20))

    def check(self, data: bytes) -> str:
        """Misbehave for one input of about thirteen, which has a special byte."""
        if 77 in data:
            self.misbehave()
        return "fine"

    def misbehave(self) -> None:
        """Do the wrong thing."""
        raise NotImplementedError


class Wrong(_Toy):
    """Target with wrong results."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        raise Finding("wrong")


class Hanging(_Toy):
    """Target that hangs."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        while True:
            pass


class Crashing(_Toy):
    """Target that kills its process."""

    def misbehave(self) -> None:
        """See `_Toy.misbehave`."""
        os.kill(os.getpid(), signal.SIGSEGV)
