"""Rules about what references may name: kinds, and the hosts, ports and addresses of URLs. Pure.

References come from people whom nobody knows: prompts of a chat, rows of a data set. No address inside the network may
be reached through them (server-side request forgery), and no file of this machine be read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from aioloader.errors import ImageNotAllowedError
from aioloader.service.addresses import (
    KINDS_OF_ADDRESS,
    LOOPBACK,
    PRIVATE,
    PUBLIC,
    kind_of_address,
    literal_address,
)
from aioloader.service.web_urls import PORTS, split_host

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable

    from aioloader.service.web_urls import WebAddress

KINDS = ("bytes", "data", "path", "http", "https", "s3", "gs", "az", "dataset", "array", "pillow")
"""Words of ``allow=``, in the order in which the documentation explains them."""
BUCKETS = ("s3", "gs", "az")
"""Kinds of references to object storage."""

_ONLY_PUBLIC = frozenset((PUBLIC,))
_NAMED = frozenset((PUBLIC, PRIVATE, LOOPBACK))
_BUCKET = re.compile(r"(s3|gs|az)://([a-z0-9](?:[a-z0-9._-]{0,220}[a-z0-9])?)/?")


def check_kinds(allow: Collection[str]) -> frozenset[str]:
    """Return the kinds of ``allow=``.

    Raises:
        TypeError: it is one string.
        ValueError: a word is not one of `KINDS`.
    """
    if isinstance(allow, str):
        raise TypeError(f"allow must be a collection of words, such as ({allow!r},)")
    unknown = sorted(set(allow) - set(KINDS))
    if unknown:
        raise ValueError(f"allow has unknown words {unknown}; known are {', '.join(KINDS)}")
    return frozenset(allow)


class HostRule:
    """Rule about the hosts of URLs, and the buckets of object storage.

    Args:
        hosts: names ("example.com"; "*.example.com" for all below it; "*" for all public hosts), IP addresses, either
            with ":8080" for a port other than 80 and 443, and buckets ("s3://name"). None: all public hosts, and
            all buckets that the credentials open.

            A host that is named exactly may have a private or loopback address, because it was named on purpose; one
            with "*" may not. No name may have a link-local address, where clouds offer credentials: only an IP address
            that is itself in `hosts`.

    Raises:
        TypeError: `hosts` is one string.
        ValueError: an entry is not one of these.
    """

    def __init__(self, hosts: Collection[str] | None) -> None:
        if isinstance(hosts, str):
            raise TypeError(f"hosts must be a collection of names, such as ({hosts!r},)")
        self._exact: set[tuple[str, int | None]] = set()
        self._endings: set[tuple[str, int | None]] = set()
        self._buckets: set[str] | None = None if hosts is None else set()
        for entry in ("*",) if hosts is None else hosts:
            self._add(entry)

    def _add(self, entry: str) -> None:
        bucket = _BUCKET.fullmatch(entry)
        if bucket is not None and self._buckets is not None:
            self._buckets.add(f"{bucket[1]}://{bucket[2]}")
            return
        star = entry.startswith("*.") or entry.partition(":")[0] == "*"
        try:
            if entry.count(":") > 1 and not entry.startswith("["):
                entry = f"[{entry}]"  # an IPv6 address
            host, port = split_host(f"any{entry[1:]}" if star else entry)
            if host == "any" and entry.startswith("*."):
                raise ValueError("there is no name behind the dot")
        except ValueError as error:
            raise ValueError(
                f"hosts has {entry!r}, but {error}: write 'example.com', '*.example.com' or 'example.com:8080'"
            ) from None
        if star:
            self._endings.add((host.removeprefix("any"), port))
        else:
            self._exact.add((host, port))

    def check(self, address: WebAddress) -> frozenset[str]:
        """Check host and port of a URL, and the address if the host is one.

        Returns:
            the kinds of addresses that the host may have, see `aioloader.service.addresses`.

        Raises:
            ImageNotAllowedError: the host, the port or the address is not allowed.
        """
        host, port = address.host, address.port
        literal = literal_address(host) is not None
        ports = (None, port) if port in PORTS.values() else (port,)
        kinds = _ONLY_PUBLIC
        if any((host, each) in self._exact for each in ports):
            kinds = frozenset(KINDS_OF_ADDRESS) if literal else _NAMED
        elif not self._has_ending(host, ports, literal):
            if self._has_ending(host, (None,), literal) or (host, None) in self._exact:
                reason = f"port {port} is not allowed: name the host with the port in hosts="
            else:
                reason = f"the host {host} is not in hosts="
            raise ImageNotAllowedError(address.name, reason, kind=address.scheme)
        if literal:
            check_addresses([host], kinds, address)
        return kinds

    def _has_ending(self, host: str, ports: Iterable[int | None], literal: bool) -> bool:
        places = () if literal else (place for place, char in enumerate(host) if char == "." and place)
        endings = ["", *(host[place:] for place in places)]
        return any((ending, port) in self._endings for ending in endings for port in ports)

    def check_bucket(self, scheme: str, bucket: str, name: str) -> None:
        """Raise ImageNotAllowedError if a bucket is not in `hosts`."""
        if self._buckets is not None and f"{scheme}://{bucket}" not in self._buckets:
            raise ImageNotAllowedError(
                name, f"the bucket {bucket} is not in hosts=: add '{scheme}://{bucket}'", kind=scheme
            )


def check_addresses(found: Iterable[str], kinds: Collection[str], address: WebAddress) -> None:
    """Raise unless all addresses of a host are of the kinds that it may have.

    All, although only one is connected to: a name with a public and a private address is an attack, or a mistake.

    Raises:
        ImageNotAllowedError: one is not.
    """
    for text in found:
        kind = kind_of_address(text)
        if kind not in kinds:
            # Without the address: the text may reach the person who sent the URL.
            reason = f"the host {address.host} has a {kind} address"
            if kind in _NAMED:
                reason += ": if it is meant, name the host in hosts="
            raise ImageNotAllowedError(address.name, reason, kind=address.scheme)
