"""Rules of a fault proxy, and the choice of the rule for a request. Pure.

Whether a rule with a share applies is drawn from the seed, the rule's number, the request and the number of times that
it has been made, so that it does not depend on the order in which requests arrive.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

KINDS = ("status", "reset", "stall", "truncate", "shorten")


@dataclass(frozen=True)
class Rule:
    """Fault, and the requests that it applies to.

    Attributes:
        do: "status": answered with `status` without the server. "reset": the connection is reset. "stall": the
            reply stops for `seconds` and then continues. "truncate": the reply ends early and the connection is closed.
            "shorten": as truncate, but with the shorter length in the reply's head, and the connection stays.
        share: of the requests, 0 to 1.
        match: applies only to requests whose target contains this text.
        attempts: applies only to this number of first requests for the same bytes; None: all.
        limit: maximum number of requests; None: no limit. Per process of the proxy.
        method: applies only to this method; "": all.
        status: for "status".
        seconds: for "stall".
        after: share of the body that is forwarded before the fault, 0 to 1; 0: not even the head; None: drawn.
    """

    do: str
    share: float = 1.0
    match: str = ""
    attempts: int | None = None
    limit: int | None = None
    method: str = ""
    status: int = 503
    seconds: float = 30.0
    after: float | None = None

    def __post_init__(self) -> None:
        if self.do not in KINDS:
            raise ValueError(f"a rule does one of {', '.join(KINDS)}, not {self.do!r}")


@dataclass(frozen=True)
class Behaviour:
    """Behaviour of a proxy.

    Attributes:
        latency_s: seconds that every request waits before it is forwarded.
        jitter_s: maximum of the further, drawn seconds.
        seed: of all draws.
        rules: the first that applies to a request counts.
    """

    latency_s: float = 0.0
    jitter_s: float = 0.0
    seed: int = 0
    rules: tuple[Rule, ...] = field(default=())

    def to_json(self) -> dict[str, Any]:
        """Return it as plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Behaviour:
        """Make it from the result of `to_json`."""
        return cls(**{**data, "rules": tuple(Rule(**rule) for rule in data["rules"])})


@dataclass(frozen=True)
class Request:
    """Facts of a request.

    Attributes:
        method, target: as in its first line.
        range: the value of its header Range, "" without.
        attempt: number of equal requests so far, including this one.
    """

    method: str
    target: str
    range: str
    attempt: int


def draw(seed: int, name: str, request: Request) -> float:
    """Return a number in [0, 1) that depends only on the arguments."""
    text = f"{seed}|{name}|{request.method}|{request.target}|{request.range}|{request.attempt}"
    return int.from_bytes(blake2b(text.encode("utf-8", "surrogateescape"), digest_size=7).digest()) / 2**56


def decide(behaviour: Behaviour, request: Request, used: Sequence[int]) -> int | None:
    """Return the number of the rule that applies to a request, or None.

    Args:
        behaviour: the rules.
        request: the request.
        used: number of earlier applications of each rule.
    """
    for number, rule in enumerate(behaviour.rules):
        if rule.match not in request.target or rule.method not in ("", request.method):
            continue
        if rule.attempts is not None and request.attempt > rule.attempts:
            continue
        if rule.limit is not None and used[number] >= rule.limit:
            continue
        if rule.share >= 1 or draw(behaviour.seed, f"rule {number}", request) < rule.share:
            return number
    return None


def cut_at(behaviour: Behaviour, rule: Rule, request: Request, nbytes: int) -> int | None:
    """Return the number of a body's bytes before a fault, fewer than all; None: not even the head.

    Args:
        behaviour, rule, request: the applied rule and its request.
        nbytes: bytes of the whole body.
    """
    after = rule.after
    if after is None:
        after = draw(behaviour.seed, "cut", request)
        if after < 0.25:  # a quarter of the drawn faults happens before the head
            after = 0.0
    if after <= 0 and rule.do in ("reset", "stall"):
        return None
    return max(0, min(int(nbytes * after), nbytes - 1))
