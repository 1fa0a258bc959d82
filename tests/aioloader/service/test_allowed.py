"""Tests of the rules about kinds, hosts, ports and addresses."""

from __future__ import annotations

import pytest

from aioloader.errors import ImageNotAllowedError
from aioloader.service.allowed import HostRule, check_addresses, check_kinds
from aioloader.service.web_urls import parse_web_url
from tests.cases import with_cases


def allowed(hosts: list[str] | None, url: str) -> frozenset[str]:
    return HostRule(hosts).check(parse_web_url(url))


PUBLIC = {"public"}
NAMED = {"public", "private", "loopback"}
ALL = {*NAMED, "link-local", "reserved"}


@with_cases(
    ("hosts", "url", "kinds"),
    [
        (None, "https://example.com/", PUBLIC),
        (None, "http://example.com:443/", PUBLIC),
        (None, "http://8.8.8.8/", PUBLIC),
        (None, "http://localhost/", PUBLIC),  # its address is refused later
        (["*"], "https://example.com/", PUBLIC),
        (["*:8080"], "https://example.com:8080/", PUBLIC),
        (["example.com"], "https://example.com/", NAMED),
        (["Example.COM."], "https://example.com/", NAMED),
        (["example.com:8080"], "http://example.com:8080/", NAMED),
        (["bücher.example"], "http://xn--bcher-kva.example/", NAMED),
        (["*.example.com"], "https://a.b.example.com/", PUBLIC),
        (["*.example.com", "a.example.com"], "https://a.example.com/", NAMED),
        (["127.0.0.1:9000"], "http://127.0.0.1:9000/", ALL),
        (["169.254.169.254"], "http://169.254.169.254/", ALL),
        (["::1"], "http://[::1]/", ALL),
        (["[::1]:8080"], "http://[0::1]:8080/", ALL),
        (["*", "10.0.0.1"], "http://10.0.0.1/", ALL),
    ],
)
def test_a_host_is_allowed(hosts: list[str] | None, url: str, kinds: set[str]) -> None:
    assert allowed(hosts, url) == kinds


@with_cases(
    ("hosts", "url", "says"),
    [
        (None, "http://127.0.0.1/", "loopback"),
        (None, "http://10.0.0.1/", "private"),
        (None, "http://169.254.169.254/", "link-local"),
        (None, "http://[::1]/", "loopback"),
        (None, "http://[::ffff:127.0.0.1]/", "loopback"),
        (None, "http://0.0.0.0/", "reserved"),
        (None, "http://example.com:22/", "port 22"),
        (None, "http://8.8.8.8:8080/", "port 8080"),
        (["*"], "http://127.0.0.1/", "loopback"),
        (["*"], "http://example.com:8080/", "port 8080"),
        ([], "http://example.com/", "not in hosts="),
        (["example.com"], "http://example.com.evil.example/", "not in hosts="),
        (["example.com"], "http://a.example.com/", "not in hosts="),
        (["example.com"], "http://example.com:8080/", "port 8080"),
        (["example.com:8080"], "http://example.com/", "not in hosts="),
        (["*.example.com"], "http://example.com/", "not in hosts="),
        (["*.example.com"], "http://evilexample.com/", "not in hosts="),
        (["127.0.0.1:9000"], "http://127.0.0.1:9001/", "not in hosts="),
        (["s3://bucket"], "http://bucket/", "not in hosts="),
    ],
)
def test_a_host_is_refused(hosts: list[str] | None, url: str, says: str) -> None:
    with pytest.raises(ImageNotAllowedError, match=says) as found:
        allowed(hosts, url)
    assert isinstance(found.value, PermissionError)
    assert found.value.kind == "http"


@with_cases(
    "entry",
    [
        "",
        "http://example.com",
        "example.com/a",
        "a b",
        "*.",
        "**",
        "a.*.b",
        "user@host",
        "h:0",
        "127.1",
        "*.0.1",
        "s3://",
    ],
)
def test_an_entry_that_is_no_host_is_refused(entry: str) -> None:
    with pytest.raises(ValueError, match="hosts has"):
        HostRule([entry])


def test_one_string_is_no_collection() -> None:
    with pytest.raises(TypeError, match="hosts"):
        HostRule("example.com")
    with pytest.raises(TypeError, match="allow"):
        check_kinds("bytes")
    with pytest.raises(ValueError, match="telnet"):
        check_kinds(["bytes", "telnet"])


@with_cases(
    ("found", "kinds", "fine"),
    [
        (["8.8.8.8"], PUBLIC, True),
        (["8.8.8.8", "127.0.0.1"], PUBLIC, False),
        (["127.0.0.1"], NAMED, True),
        (["10.0.0.1", "8.8.8.8"], NAMED, True),
        (["169.254.169.254"], NAMED, False),
        (["fe80::1%eth0"], NAMED, False),
        (["169.254.169.254"], ALL, True),
        (["nonsense"], NAMED, False),
    ],
)
def test_all_addresses_of_a_host_are_checked(found: list[str], kinds: set[str], fine: bool) -> None:
    address = parse_web_url("http://example.com/a?secret")
    if fine:
        check_addresses(found, kinds, address)
        return
    with pytest.raises(ImageNotAllowedError) as error:
        check_addresses(found, kinds, address)
    assert "secret" not in str(error.value)
    assert not any(text in str(error.value) for text in found)


def test_buckets_are_listed_with_the_hosts() -> None:
    HostRule(None).check_bucket("s3", "any", "s3://any/x")
    HostRule(["s3://photos"]).check_bucket("s3", "photos", "s3://photos/x")
    for scheme, bucket in (("gs", "photos"), ("s3", "other")):
        with pytest.raises(ImageNotAllowedError, match="bucket"):
            HostRule(["s3://photos"]).check_bucket(scheme, bucket, "x")
