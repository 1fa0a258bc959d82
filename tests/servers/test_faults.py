"""Tests of the choice of rules for requests, and of the ends of messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import with_cases
from tests.servers.faults import KINDS, Behaviour, Request, Rule, cut_at, decide
from tests.servers.messages import Body, parse_head

requests = st.builds(
    Request,
    st.sampled_from(["GET", "PUT"]),
    st.text(max_size=8),
    st.sampled_from(["", "bytes=0-9", "bytes=5-"]),
    st.integers(1, 5),
)


@given(requests, st.integers(0, 9), st.sampled_from(KINDS), st.integers(1, 1000))
def test_decisions_depend_on_nothing_but_the_request(
    request: Request, seed: int, do: str, nbytes: int
) -> None:
    behaviour = Behaviour(seed=seed, rules=(Rule(do, share=0.5), Rule("status", share=0.5)))
    again = Behaviour.from_json(behaviour.to_json())
    assert again == behaviour
    assert decide(behaviour, request, (0, 0)) == decide(again, request, (0, 0))
    cut = cut_at(behaviour, behaviour.rules[0], request, nbytes)
    assert cut == cut_at(again, again.rules[0], request, nbytes)
    assert cut is None or 0 <= cut < nbytes


def test_shares_are_kept() -> None:
    behaviour = Behaviour(rules=(Rule("status", share=0.05), Rule("reset", share=0.05)))
    found = [decide(behaviour, Request("GET", "/", f"bytes={n}-", 1), (0, 0)) for n in range(4_000)]
    assert 150 < found.count(0) < 250
    assert 140 < found.count(1) < 240


def test_rules_have_limits() -> None:
    behaviour = Behaviour(rules=(Rule("status", limit=2, match="rec", method="GET", attempts=1),))
    assert decide(behaviour, Request("GET", "/a.rec", "", 1), (1,)) == 0
    assert decide(behaviour, Request("GET", "/a.rec", "", 1), (2,)) is None
    assert decide(behaviour, Request("GET", "/a.rec", "", 2), (0,)) is None
    assert decide(behaviour, Request("PUT", "/a.rec", "", 1), (0,)) is None
    assert decide(behaviour, Request("GET", "/a.idx", "", 1), (0,)) is None
    with pytest.raises(ValueError, match="one of"):
        Rule("explode")


MESSAGES = [
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "GET", b"abc"),
    (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n", "HEAD", b""),
    (b"HTTP/1.1 204 No Content\r\n\r\n", "GET", b""),
    (b"PUT /x HTTP/1.1\r\nContent-Length: 2\r\n\r\n", None, b"ab"),
    (b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n", None, b""),
    (
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        "GET",
        b"3\r\na\nb\r\nA;x=y\r\n0123456789\r\n0\r\nT: x\r\n\r\n",
    ),
]


@with_cases(("raw", "reply_to", "body"), MESSAGES)
@with_cases("piece_nbytes", [1, 2, 5, 1000])
def test_a_message_ends_where_it_ends_however_it_comes(
    raw: bytes, reply_to: str | None, body: bytes, piece_nbytes: int
) -> None:
    assert parse_head(raw[:-1]) is None
    head = parse_head(raw + b"rest")
    assert head is not None
    assert head.raw == raw
    follower = Body(head, reply_to)
    assert follower.done == (not body)
    left, taken = body + b"next message", 0
    while left and not follower.done:
        piece = left[:piece_nbytes]
        step = follower.take(piece)
        taken += step
        left = left[step:]
        assert follower.done or step == len(piece)
    assert follower.done
    assert taken == len(body)
    assert follower.take(b"more") == 0
