"""Tests of the fault proxy: it applies its rules, and counts correctly."""

from __future__ import annotations

import http.client
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.servers.faults import Rule

pytestmark = pytest.mark.remote

NBYTES = 300_000


@pytest.fixture(scope="module")
def content(served_folder: Path) -> bytes:
    data = os.urandom(NBYTES)
    folder = served_folder / "fault-proxy"
    folder.mkdir()
    (folder / "a.bin").write_bytes(data)
    return data


@pytest.fixture
def get(nginx_proxy: Any, content: bytes) -> Iterator[Callable[..., tuple[int, bytes]]]:
    """Request bytes start to stop over one connection, which is reopened after a loss."""
    connection = http.client.HTTPConnection(nginx_proxy.address, timeout=20)

    def ask(start: int = 0, stop: int = NBYTES) -> tuple[int, bytes]:
        try:
            connection.request("GET", "/fault-proxy/a.bin", headers={"Range": f"bytes={start}-{stop - 1}"})
            reply = connection.getresponse()
            return reply.status, reply.read()
        except (OSError, http.client.HTTPException):
            connection.close()
            raise

    yield ask
    connection.close()


def test_what_befalls_no_rule_arrives_as_it_is(
    nginx_proxy: Any, get: Callable[..., Any], content: bytes
) -> None:
    for start, stop in [(0, 1), (5, 70_000), (0, NBYTES)]:
        assert get(start, stop) == (206, content[start:stop])
    counts = nginx_proxy.counts()
    assert (counts.requests, counts.replies, counts.repeats, counts.connections) == (3, 3, 0, 1)
    assert counts.nbytes == 1 + 69_995 + NBYTES
    assert nginx_proxy.log()[0] == ("GET", "/fault-proxy/a.bin", "bytes=0-0")


@pytest.mark.parametrize(
    ("rule", "expected"),
    [
        (Rule("status", status=429), 429),
        (Rule("reset"), ConnectionResetError),
        (Rule("reset", after=0.0), ConnectionResetError),
        (Rule("reset", after=0.5), ConnectionResetError),
        (Rule("truncate", after=0.5), http.client.IncompleteRead),
        (Rule("shorten", after=0.5), NBYTES // 2),
        (Rule("stall", seconds=0.05, after=0.0), NBYTES),
        (Rule("stall", seconds=0.05, after=0.5), NBYTES),
    ],
    ids=lambda value: f"{value.do}-{value.after}" if isinstance(value, Rule) else "",
)
def test_a_fault_befalls_the_first_attempt_only(
    nginx_proxy: Any, get: Callable[..., Any], content: bytes, rule: Rule, expected: Any
) -> None:
    nginx_proxy.behave(Rule(**{**rule.__dict__, "attempts": 1}))
    if isinstance(expected, type):
        with pytest.raises(expected):
            get()
    else:
        status, body = get()
        assert expected in (status, len(body))
        assert rule.do == "status" or body == content[: len(body)]
    assert get() == (206, content)
    counts = nginx_proxy.counts()
    assert counts.requests == 2
    assert counts.repeats == 1
    assert counts.faults == {rule.do: 1}
    assert counts.in_flight == 0


def test_latency_is_that_of_all_requests_at_once(nginx_proxy: Any, content: bytes) -> None:
    # If they were processed one after the other, the server would never hold all of them at a time.
    nginx_proxy.behave(latency_s=0.3)

    def ask() -> None:
        connection = http.client.HTTPConnection(nginx_proxy.address, timeout=20)
        connection.request("GET", "/fault-proxy/a.bin", headers={"Range": "bytes=0-9"})
        assert connection.getresponse().read() == content[:10]
        connection.close()

    threads = [threading.Thread(target=ask) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nginx_proxy.counts().peak_in_flight > 1


def test_a_server_that_goes_away_comes_back_at_the_same_address(
    nginx_proxy: Any, get: Callable[..., Any], content: bytes
) -> None:
    assert get(0, 10) == (206, content[:10])
    nginx_proxy.go_away()
    with pytest.raises((ConnectionError, http.client.RemoteDisconnected)):
        get(0, 10)
    with pytest.raises(ConnectionRefusedError):
        get(0, 10)
    nginx_proxy.come_back()
    assert get(0, 10) == (206, content[:10])


def test_a_client_that_goes_away_is_counted(nginx_proxy: Any, content: bytes) -> None:
    nginx_proxy.behave(Rule("stall", seconds=60, after=0.5))
    connection = http.client.HTTPConnection(nginx_proxy.address, timeout=20)
    connection.request("GET", "/fault-proxy/a.bin")
    reply = connection.getresponse()
    # All that is sent before the stall is read: what a client that is gone was still sent depends on the time.
    assert reply.read(NBYTES // 2) == content[: NBYTES // 2]
    reply.close()
    connection.close()
    while nginx_proxy.counts().in_flight:
        pass
    counts = nginx_proxy.counts()
    assert (counts.cut_off, counts.replies) == (1, 0)
    assert counts.nbytes_of_parts == NBYTES // 2
