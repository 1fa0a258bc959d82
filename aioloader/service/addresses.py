"""Kinds of IP addresses: the public network, or one that a stranger's URL must not reach. Pure.

The registries of IANA decide (special-purpose addresses of IPv4 and IPv6, RFC 6890), as a table here: `ipaddress` has
other answers in other versions of Python.
"""

from __future__ import annotations

import ipaddress
import re

PUBLIC = "public"
PRIVATE = "private"
LOOPBACK = "loopback"
LINK_LOCAL = "link-local"
RESERVED = "reserved"
KINDS_OF_ADDRESS = (PUBLIC, PRIVATE, LOOPBACK, LINK_LOCAL, RESERVED)
"""Link-local includes the services of clouds that give credentials to any program of a machine."""

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_IPV4 = tuple(
    (ipaddress.IPv4Network(network), kind)
    for network, kind in (
        ("0.0.0.0/8", RESERVED),
        ("10.0.0.0/8", PRIVATE),
        ("100.100.100.200/32", LINK_LOCAL),  # metadata of Alibaba Cloud, inside the next network
        ("100.64.0.0/10", PRIVATE),
        ("127.0.0.0/8", LOOPBACK),
        ("168.63.129.16/32", LINK_LOCAL),  # services of Azure for its virtual machines
        ("169.254.0.0/16", LINK_LOCAL),
        ("172.16.0.0/12", PRIVATE),
        ("192.0.0.0/24", RESERVED),
        ("192.0.2.0/24", RESERVED),
        ("192.88.99.0/24", RESERVED),
        ("192.168.0.0/16", PRIVATE),
        ("198.18.0.0/15", RESERVED),
        ("198.51.100.0/24", RESERVED),
        ("203.0.113.0/24", RESERVED),
        ("224.0.0.0/3", RESERVED),
    )
)
# Public is what was assigned for that, without the parts with another purpose: tunnels, documentation.
_ASSIGNED = ipaddress.IPv6Network("2000::/3")
_IPV6 = tuple(
    (ipaddress.IPv6Network(network), kind)
    for network, kind in (
        ("::1/128", LOOPBACK),
        ("fd00:ec2::/32", LINK_LOCAL),  # services of Amazon's machines, inside the next network
        ("fc00::/7", PRIVATE),
        ("fe80::/10", LINK_LOCAL),
        ("2001::/23", RESERVED),
        ("2001:db8::/32", RESERVED),
        ("2002::/16", RESERVED),
        ("3fff::/20", RESERVED),
    )
)
# IPv4 addresses as IPv6 ones: mapped, and as resolvers answer in networks without IPv4 (NAT64, RFC 6052).
_EMBEDDED = (ipaddress.IPv6Network("::ffff:0:0/96"), ipaddress.IPv6Network("64:ff9b::/96"))

_NUMBER = re.compile(r"[0-9]+|0x[0-9a-f]*")


def kind_of_address(text: str) -> str:
    """Return the kind of an IP address, one of `KINDS_OF_ADDRESS`; an embedded IPv4 address counts as itself.

    Args:
        text: an IPv4 or IPv6 address, as a resolver returns it; anything else is "reserved".
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return RESERVED
    if isinstance(address, ipaddress.IPv6Address):
        if any(address in network for network in _EMBEDDED):
            return _kind_of_ipv4(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        kind = next((kind for network, kind in _IPV6 if address in network), None)
        return kind or (PUBLIC if address in _ASSIGNED else RESERVED)
    return _kind_of_ipv4(address)


def _kind_of_ipv4(address: ipaddress.IPv4Address) -> str:
    return next((kind for network, kind in _IPV4 if address in network), PUBLIC)


def literal_address(host: str) -> Address | None:
    """Return the address that a host of a URL is; None for a name.

    Args:
        host: in lower case, without the brackets of an IPv6 address.

    Raises:
        ValueError: it is a number that programs read as an address in different ways, such as ``127.1``, ``0x7f000001``
            or ``0177.0.0.1``.
    """
    if ":" in host or _NUMBER.fullmatch(host.rpartition(".")[2]):
        return ipaddress.ip_address(host)
    return None
