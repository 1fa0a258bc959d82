"""Tests of the kinds of IP addresses."""

from __future__ import annotations

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.addresses import kind_of_address, literal_address
from tests.cases import with_cases


@with_cases(
    ("text", "kind"),
    [
        ("8.8.8.8", "public"),
        ("93.184.216.34", "public"),
        ("172.32.0.1", "public"),
        ("2606:4700:4700::1111", "public"),
        ("10.1.2.3", "private"),
        ("172.16.0.1", "private"),
        ("172.31.255.255", "private"),
        ("192.168.0.1", "private"),
        ("100.64.0.1", "private"),
        ("fd12:3456::1", "private"),
        ("127.0.0.1", "loopback"),
        ("127.255.255.254", "loopback"),
        ("::1", "loopback"),
        ("169.254.169.254", "link-local"),
        ("100.100.100.200", "link-local"),
        ("168.63.129.16", "link-local"),
        ("fe80::1", "link-local"),
        ("fe80::1%eth0", "link-local"),
        ("fd00:ec2::254", "link-local"),
        ("0.0.0.0", "reserved"),
        ("0.1.2.3", "reserved"),
        ("192.0.0.8", "reserved"),
        ("192.0.2.1", "reserved"),
        ("192.88.99.1", "reserved"),
        ("198.18.0.1", "reserved"),
        ("224.0.0.1", "reserved"),
        ("255.255.255.255", "reserved"),
        ("240.0.0.1", "reserved"),
        ("::", "reserved"),
        ("ff02::1", "reserved"),
        ("2001:db8::1", "reserved"),
        ("2001::1", "reserved"),
        ("2002:7f00:1::", "reserved"),
        ("2002:808:808::", "reserved"),
        ("64:ff9b:1::1", "reserved"),
        ("100::1", "reserved"),
        ("5f00::1", "reserved"),
        ("::127.0.0.1", "reserved"),
        ("::ffff:127.0.0.1", "loopback"),
        ("::ffff:10.0.0.1", "private"),
        ("::ffff:169.254.169.254", "link-local"),
        ("::ffff:8.8.8.8", "public"),
        ("64:ff9b::7f00:1", "loopback"),
        ("64:ff9b::a9fe:a9fe", "link-local"),
        ("64:ff9b::808:808", "public"),
        ("", "reserved"),
        ("example.com", "reserved"),
        ("127.1", "reserved"),
    ],
)
def test_an_address_has_a_kind(text: str, kind: str) -> None:
    assert kind_of_address(text) == kind


@given(st.ip_addresses())
def test_no_address_is_public_that_the_standard_library_knows_as_another(
    address: ipaddress.IPv4Address,
) -> None:
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


@pytest.mark.parametrize(
    "host", ["example.com", "localhost", "1.example", "0x7f.example", "a.b.c.d", "xn--p1ai"]
)
def test_a_name_is_not_an_address(host: str) -> None:
    assert literal_address(host) is None


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "::ffff:1.2.3.4", "255.255.255.255"])
def test_an_address_is_one(host: str) -> None:
    assert str(literal_address(host)) == str(ipaddress.ip_address(host))


@with_cases(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f000001",
        "0x7f.0.0.1",
        "0177.0.0.1",
        "127.0.0.01",
        "1.2.3.4.5",
        "0x",
        "a.0x1",
    ],
)
def test_a_number_that_programs_read_differently_is_refused(host: str) -> None:
    with pytest.raises(ValueError, match="IPv"):
        literal_address(host)
