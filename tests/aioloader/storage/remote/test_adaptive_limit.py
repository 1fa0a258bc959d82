"""Tests of the adaptive limit: requests in flight, late requests, and waits, driven by hand without a clock."""

from __future__ import annotations

import pytest

from aioloader.storage.remote.client import AdaptiveLimit, Latencies, cheap_nbytes
from aioloader.storage.remote.failures import LONGEST_BACKOFF_S, Kind, classify, retry_pause_s
from tests.cases import with_cases


def _serve(limit: AdaptiveLimit, rounds: int, latency_of: object, now: float = 0.0) -> float:
    for _ in range(rounds):
        in_flight = limit.limit
        latency = latency_of(in_flight)  # type: ignore[operator]
        now += latency
        for _ in range(in_flight):
            limit.answered(latency, now, in_flight)
    return now


def test_a_server_that_stays_fast_gets_all_that_is_allowed() -> None:
    limit = AdaptiveLimit(start=32, most=256)
    _serve(limit, 6, lambda in_flight: 0.05)
    assert limit.limit == 256


def test_one_response_may_represent_several() -> None:
    limit, other = AdaptiveLimit(start=32, most=256), AdaptiveLimit(start=32, most=256)
    for _ in range(10):
        limit.answered(0.05, 0.0, 256, answers=4)
    for _ in range(40):
        other.answered(0.05, 0.0, 256)
    assert limit.limit == other.limit == 72


def test_a_server_that_becomes_slow_gets_fewer_requests() -> None:
    limit = AdaptiveLimit(start=32, least=16, most=256)
    # It answers 64 at a time; further requests wait.
    _serve(limit, 200, lambda in_flight: 0.05 * max(1, in_flight / 64))
    assert 64 <= limit.limit < 256


def test_a_server_with_a_longer_latency_gets_as_many_requests_as_before() -> None:
    limit = AdaptiveLimit(start=32, least=16, most=256)
    now = _serve(limit, 10, lambda in_flight: 0.01)
    _serve(limit, 200, lambda in_flight: 0.2, now)
    assert limit.limit == 256


def test_a_number_that_is_not_used_is_not_raised() -> None:
    limit = AdaptiveLimit(start=32)
    for number in range(1000):
        limit.answered(0.05, number * 0.05, in_flight=4)
    assert limit.limit == 32


@pytest.mark.parametrize(("share", "expected"), [(0.01, 256), (0.3, 16)])
def test_single_errors_change_little_and_many_cut_it(share: float, expected: int) -> None:
    limit = AdaptiveLimit(start=128, least=16, most=256)
    every = round(1 / share)
    for number in range(20_000):
        now = number * 0.001
        if number % every == 0:
            limit.busy(now)
        else:
            limit.answered(0.05, now, limit.limit)
    assert limit.limit == pytest.approx(expected, rel=0.5)


def test_a_late_request_takes_longer_than_nearly_all() -> None:
    latencies = Latencies()
    assert latencies.late_s == 0.5  # nothing is known yet
    assert latencies.percentile(0.5) is None
    for number in range(500):
        latencies.add(0.05, 0.06 + 0.0001 * (number % 100), 100_000)
    assert 0.07 < latencies.late_s < 0.14
    assert latencies.late_for(50_000) == latencies.late_s
    assert latencies.late_for(10_000_000) > 2 * latencies.late_s


def test_a_gap_is_as_large_as_the_bytes_that_arrive_in_the_time_of_a_response() -> None:
    def gap(latency_s: float, bytes_per_s: float) -> int:
        latencies = Latencies()
        for _ in range(300):
            latencies.add(latency_s, latency_s + 100_000 / bytes_per_s, 100_000)
        return latencies.gap_bytes

    assert gap(0.05, 4e6) == pytest.approx(200_000, rel=0.05)
    assert gap(0.001, 1e6) == 16 << 10
    assert gap(0.5, 1e8) == 1 << 20


@pytest.mark.parametrize("share", [0.0, 0.3, 0.999])
def test_pauses_grow_and_are_bounded(share: float) -> None:
    pauses = [
        retry_pause_s(attempt, share, asked_s=2.0, left_s=60.0) for attempt in (1, 2, 3, 5, 8, 100, 100_000)
    ]
    assert None not in pauses
    assert pauses == sorted(pauses)
    assert 2.0 <= pauses[0] <= 2.1
    assert pauses[-1] == 2.0 + share * LONGEST_BACKOFF_S
    assert retry_pause_s(1, share, asked_s=2.0, left_s=2.0) is None


class _Library(Exception):
    """Replacement of the client library's type."""


PermissionDeniedError = type("PermissionDeniedError", (Exception,), {})


@with_cases(
    ("error", "kind", "again"),
    [
        (_Library("Server returned non-2xx status code: 503 Service Unavailable: x"), Kind.BUSY, True),
        (_Library("Server returned non-2xx status code: 429 Too Many Requests"), Kind.BUSY, True),
        (_Library("Server returned non-2xx status code: 500 Internal Server Error"), Kind.LOST, True),
        (_Library("Server returned non-2xx status code: 400 Bad Request"), Kind.REFUSED, False),
        (_Library("HTTP error: request or response body error\n\nkind: Interrupted,"), Kind.LOST, True),
        (_Library("HTTP error: error sending request\n invalid peer certificate"), Kind.REFUSED, False),
        (
            _Library('sending request\n error: "failed to lookup: Name or service not known"'),
            Kind.NOWHERE,
            True,
        ),
        (_Library("sending request\n InvalidMessage(\n InvalidContentType"), Kind.REFUSED, False),
        (
            _Library('Error(Connect, ConnectError("tcp connect error", Os { code: 101 }))'),
            Kind.UNREACHED,
            True,
        ),
        (_Library('ConnectError("dns error", "Temporary failure in name resolution")'), Kind.UNREACHED, True),
        (_Library("Error(Connect, Custom { kind: UnexpectedEof })"), Kind.LOST, True),
        (_Library("status code: 502 Bad Gateway: Connection refused"), Kind.LOST, True),
        # A name of the user's has words of these errors.
        (
            _Library('Generic S3 error: error sending request, url: "http://h/certificates/a"'),
            Kind.LOST,
            True,
        ),
        (ConnectionRefusedError(111, "Connection refused"), Kind.UNREACHED, True),
        (ConnectionResetError(104, "Connection reset by peer"), Kind.LOST, True),
        (TimeoutError(), Kind.LOST, True),
        (FileNotFoundError("not found: status code: 404"), Kind.MISSING, False),
        (PermissionDeniedError("status code: 403"), Kind.DENIED, False),
        (ValueError("empty path segment"), Kind.REFUSED, False),
    ],
)
def test_errors_are_classified(error: Exception, kind: str, again: bool) -> None:
    failure = classify(error)
    assert (failure.kind, failure.again) == (kind, again)
    assert "\n" not in failure.text


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("Generic HTTP error: Content-Length Header missing from response", Kind.UNRANGED),
        ('Generic HTTP error: Failed to parse value for CONTENT_RANGE header: "bytes 0-0/*"', Kind.UNRANGED),
        ("Generic HTTP error: GET: HTTP error: error following redirect", Kind.REFUSED),
        ("Generic S3 error: Server returned non-2xx status code: 404 Not Found: ", Kind.MISSING),
    ],
    ids=["no-length", "no-size", "redirects", "no-bucket"],
)
def test_permanent_errors_are_not_retried(text: str, kind: str) -> None:
    failure = classify(Exception(text))
    assert (failure.kind, failure.again) == (kind, False)


def test_a_page_for_browsers_is_no_part_of_the_message() -> None:
    text = "Server returned non-2xx status code: 404 Not Found: <html>\n<h1>not here</h1>"
    assert classify(FileNotFoundError(text)).text == "Server returned non-2xx status code: 404 Not Found"


def test_of_an_answer_in_xml_its_message_is_reported() -> None:
    text = (
        "GET: Server returned non-2xx status code: 400 Bad Request: \ufeff<?xml version='1.0'?><Error>"
        "<Code>InvalidInput</Code><Message>An input is not valid.\nRequestId:8\nTime:9</Message></Error>"
    )
    expected = "GET: Server returned non-2xx status code: 400 Bad Request (An input is not valid)"
    assert classify(Exception(text)).text == expected


def test_bytes_are_cheap_while_they_take_less_time_than_another_request() -> None:
    assert cheap_nbytes(0.05, 1 << 20, 0.5) == (1 << 20) // 10
    assert cheap_nbytes(0.05, 1 << 20, 5.0) == 16 << 10  # a slow line
    assert cheap_nbytes(0.05, 1 << 20, 0.0) == 1 << 20
    assert cheap_nbytes(0.0, 1 << 20, 0.0) == 16 << 10
