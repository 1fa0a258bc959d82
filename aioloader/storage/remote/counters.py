"""What the network side of one byte source did."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ("Counters",)


@dataclass
class Counters:
    """Counts since the source was made; used from one thread.

    Attributes:
        requests: sent, of every kind; retries and hedges are among them.
        nbytes: bytes of the answers that came whole.
        retries: requests that were sent because an earlier one had failed.
        hedges: requests that were sent because an earlier one was late.
        spans: items that were asked for; pieces: requests that they were merged into.
    """

    requests: int = 0
    nbytes: int = 0
    retries: int = 0
    hedges: int = 0
    spans: int = 0
    pieces: int = 0
