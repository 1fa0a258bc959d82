"""Tests of the rules for URLs of strangers: their form, redirects, hosts, ports and addresses.

The tables of the rules are in tests/data/strangers.json.
"""

from __future__ import annotations

import ipaddress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import errors
from aioloader.errors import ImageNotAllowedError, ImageReferenceError
from aioloader.service.web_urls import (
    LONGEST_URL,
    HostRule,
    check_addresses,
    check_kinds,
    kind_of_address,
    literal_address,
    parse_web_url,
    redirected,
    short_name,
)
from tests.aioloader.service.images import RULES, by_key
from tests.cases import with_cases

# -- URLs ------------------------------------------------------------------------------------------------------------


@with_cases(("url", "authority", "target"), RULES["urls"])
def test_a_url_has_one_form(url: str, authority: str, target: str) -> None:
    address = parse_web_url(url)
    assert (address.authority, address.target) == (authority, target)
    assert parse_web_url(address.url) == address._replace(name=short_name(address.url))


LONG_HOSTS = ["a" * 64 + ".example", "a." * 130 + "example", "ä" * 3000, "example.com/" + "a" * LONGEST_URL]


@with_cases("url", [*RULES["refused urls"], *(f"http://{host}/" for host in LONG_HOSTS)])
def test_an_unusual_url_is_refused(url: str) -> None:
    with pytest.raises(ImageReferenceError):
        parse_web_url(url)


@with_cases("host", RULES["odd spellings of 127.0.0.1"])
def test_an_address_in_an_odd_spelling_is_refused_or_read_as_what_it_is(host: str) -> None:
    try:
        address = parse_web_url(f"http://{host}/")
    except ImageReferenceError:
        return
    assert address.host == "127.0.0.1"


@given(
    st.text(max_size=60)
    | st.from_regex(r"https?://[a-z0-9.@:\[\]%\\-]{0,30}[/?#][ -~]{0,20}", fullmatch=True)
)
def test_every_text_is_a_url_or_a_named_error(text: str) -> None:
    for url in (text, f"http://{text}", f"http://example.com/{text}"):
        try:
            address = parse_web_url(url)
        except ImageReferenceError as error:
            assert error.reference.isprintable()
            continue
        assert address.target.isascii()
        assert address.target.startswith("/")
        assert address.host.isascii()
        assert not set("/@\\% \r\n") & set(address.host)
        assert parse_web_url(address.url).url == address.url


BASE = parse_web_url("https://example.com/a/b?c=d")


@with_cases(("location", "url"), RULES["redirects"])
def test_a_redirect_leads_where_it_says(location: str, url: str) -> None:
    assert redirected(BASE, location).url == url


LONG_LOCATION = ["/" + "a" * LONGEST_URL, "ImageReferenceError"]


@with_cases(("location", "error"), [*RULES["refused redirects"], LONG_LOCATION])
def test_a_redirect_to_elsewhere_is_refused(location: str, error: str) -> None:
    with pytest.raises(getattr(errors, error)):
        redirected(BASE, location)


def test_a_redirect_may_add_encryption() -> None:
    assert redirected(parse_web_url("http://example.com/"), "https://example.com/").scheme == "https"


@with_cases(("text", "name"), [*RULES["names for messages"], ["x" * 500, "x" * 197 + "..."]])
def test_a_name_for_messages_has_no_secrets(text: str, name: str) -> None:
    assert short_name(text) == name


# -- addresses -------------------------------------------------------------------------------------------------------


@with_cases(("kind", "text"), by_key("addresses"))
def test_an_address_has_a_kind(kind: str, text: str) -> None:
    assert kind_of_address(text) == kind


@given(st.ip_addresses())
def test_no_address_is_public_that_the_standard_library_knows_as_another(address: Any) -> None:
    special = (
        address.is_private
        or address.is_loopback
        or address.is_link_local
        or address.is_multicast
        or address.is_reserved
        or address.is_unspecified
    )
    # These networks contain IPv4 addresses, whose kind counts; the library's answer depends on the version of Python.
    embedding = ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("::ffff:0:0/96")
    if special and not any(address in network for network in embedding):
        assert kind_of_address(str(address)) != "public"


@given(st.ip_addresses(v=4))
def test_an_ipv4_address_keeps_its_kind_inside_an_ipv6_one(address: ipaddress.IPv4Address) -> None:
    for prefix in ("::ffff:0:0", "64:ff9b::"):
        inside = ipaddress.IPv6Address(int(ipaddress.IPv6Address(prefix)) + int(address))
        assert kind_of_address(str(inside)) == kind_of_address(str(address))


@with_cases("host", ["example.com", "localhost", "1.example", "0x7f.example", "a.b.c.d", "xn--p1ai"])
def test_a_name_is_not_an_address(host: str) -> None:
    assert literal_address(host) is None


@with_cases("host", ["127.0.0.1", "::1", "::ffff:1.2.3.4", "255.255.255.255"])
def test_an_address_is_one(host: str) -> None:
    assert str(literal_address(host)) == str(ipaddress.ip_address(host))


@with_cases("host", RULES["numbers that are no address"])
def test_a_number_that_programs_read_differently_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="IPv"):
        literal_address(host)


# -- hosts -----------------------------------------------------------------------------------------------------------

KINDS: dict[str, set[str]] = {"public": {"public"}, "named": {"public", "private", "loopback"}}
KINDS["all"] = {*KINDS["named"], "link-local", "reserved"}


@with_cases(("kinds", "rule"), by_key("allowed hosts"))
def test_a_host_is_allowed(kinds: str, rule: tuple[list[str] | None, str]) -> None:
    hosts, url = rule
    assert HostRule(hosts).check(parse_web_url(url)) == KINDS[kinds]


@with_cases(("says", "rule"), by_key("refused hosts"))
def test_a_host_is_refused(says: str, rule: tuple[list[str] | None, str]) -> None:
    hosts, url = rule
    with pytest.raises(ImageNotAllowedError, match=says) as found:
        HostRule(hosts).check(parse_web_url(url))
    assert isinstance(found.value, PermissionError)
    assert found.value.kind == "http"


@with_cases("entry", RULES["entries that are no host"])
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
        (["8.8.8.8"], "public", True),
        (["8.8.8.8", "127.0.0.1"], "public", False),
        (["127.0.0.1"], "named", True),
        (["10.0.0.1", "8.8.8.8"], "named", True),
        (["169.254.169.254"], "named", False),
        (["fe80::1%eth0"], "named", False),
        (["169.254.169.254"], "all", True),
        (["nonsense"], "named", False),
    ],
)
def test_all_addresses_of_a_host_are_checked(found: list[str], kinds: str, fine: bool) -> None:
    address = parse_web_url("http://example.com/a?secret")
    if fine:
        check_addresses(found, KINDS[kinds], address)
        return
    with pytest.raises(ImageNotAllowedError) as error:
        check_addresses(found, KINDS[kinds], address)
    assert "secret" not in str(error.value)
    assert not any(text in str(error.value) for text in found)


def test_buckets_are_listed_with_the_hosts() -> None:
    HostRule(None).check_bucket("s3", "any", "s3://any/x")
    HostRule(["s3://photos"]).check_bucket("s3", "photos", "s3://photos/x")
    for scheme, bucket in (("gs", "photos"), ("s3", "other")):
        with pytest.raises(ImageNotAllowedError, match="bucket"):
            HostRule(["s3://photos"]).check_bucket(scheme, bucket, "x")
