"""Rules about what references from outside may name: kinds, hosts, addresses and ports, paths. Pure, but for resolved links.

References come from people whom nobody knows: prompts of a chat, rows of a data set. An address inside the network must
not be reached through them (server-side request forgery), and no file of this machine be read.
"""

from __future__ import annotations

import ipaddress
import os
import posixpath
from collections.abc import Collection
from typing import NamedTuple
from urllib.parse import unquote, urlsplit

from aioloader.errors import ImageNotAllowedError, ImageReferenceError

KINDS = ("bytes", "data", "path", "http", "https", "dataset", "array", "pillow")
"""Words of ``allow=``, in the order in which the documentation explains them."""

_PORTS = {"http": 80, "https": 443}
_LONGEST_URL = 8192
_LONGEST_NAME = 200
# NAT64 (RFC 6052): the last four bytes are an IPv4 address.
_NAT64 = (ipaddress.ip_network("64:ff9b::/96"), ipaddress.ip_network("64:ff9b:1::/48"))
_COMPATIBLE = ipaddress.ip_network("::/96")

Address = ipaddress.IPv4Address | ipaddress.IPv6Address


class WebAddress(NamedTuple):
    """Checked parts of a URL of HTTP.

    Attributes:
        scheme: "http" or "https".
        host: name or address, in lower case, as ASCII.
        port: number of the port.
        target: path and query, as they are sent.
        name: the URL without its query, for messages.
    """

    scheme: str
    host: str
    port: int
    target: str
    name: str


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


def short_name(text: str) -> str:
    """Return a reference as a short text for messages: printable, without the query of a URL, at most 200 characters."""
    if "://" in text[:16]:
        text = text.split("?", 1)[0].split("#", 1)[0]
        scheme, _, rest = text.partition("://")
        host, slash, path = rest.partition("/")
        text = f"{scheme}://{host.rpartition('@')[2]}{slash}{path}"
    shown = "".join(char if char.isprintable() else "?" for char in text[: _LONGEST_NAME + 1])
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 3]}..."


def parse_web_url(url: str) -> WebAddress:
    """Check the form of a URL of HTTP.

    Raises:
        ImageReferenceError: it has no host, a user name, characters that no URL has, a wrong port, or is too long.
    """
    name = short_name(url)
    if len(url) > _LONGEST_URL:
        raise ImageReferenceError(name, f"the URL has {len(url):,} characters; {_LONGEST_URL:,} are allowed")
    # A line break would end the request's head; a backslash is a slash for browsers and none for servers.
    if any(char <= " " or char == "\x7f" or char == "\\" for char in url):
        raise ImageReferenceError(
            name, "the URL contains spaces, control characters or backslashes: escape them"
        )
    try:
        parts = urlsplit(url)
        port = parts.port
        host = (parts.hostname or "").rstrip(".")
    except ValueError as error:
        raise ImageReferenceError(name, f"this is not a URL: {error}") from None
    kind = parts.scheme.lower()
    if kind not in _PORTS:
        raise ImageReferenceError(name, f"the scheme {parts.scheme!r} is not one of HTTP")
    if parts.username is not None or parts.password is not None:
        raise ImageReferenceError(name, "URLs with a user name are not read", kind=kind)
    try:
        host = host if host.isascii() else host.encode("idna").decode("ascii")
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        target.encode("ascii")
    except UnicodeError:
        raise ImageReferenceError(name, "the URL has characters that must be escaped", kind=kind) from None
    if not host or "%" in host:
        raise ImageReferenceError(name, "the URL has no valid host", kind=kind)
    return WebAddress(kind, host.lower(), port or _PORTS[kind], target, name)


class HostRule:
    """Rule about hosts and ports.

    Args:
        hosts: names ("example.com", "*.example.com", with ":8080" for a port other than the scheme's); None: all public
            hosts. A host that is named exactly may have a private address: it was named on purpose.

    Raises:
        TypeError: `hosts` is one string.
        ValueError: an entry is a URL or empty.
    """

    def __init__(self, hosts: Collection[str] | None) -> None:
        if isinstance(hosts, str):
            raise TypeError(f"hosts must be a collection of names, such as ({hosts!r},)")
        self._exact: set[tuple[str, int | None]] = set()
        self._suffixes: set[tuple[str, int | None]] = set()
        self._any = hosts is None
        for entry in hosts or ():
            if not entry or "/" in entry:
                raise ValueError(
                    f"hosts has {entry!r}: write names such as 'example.com' or 'example.com:8080'"
                )
            host, port = _split_port(entry.lower())
            (self._suffixes if host.startswith("*.") else self._exact).add((host.removeprefix("*"), port))

    def check(self, address: WebAddress) -> bool:
        """Return whether the host may have a private address.

        Raises:
            ImageNotAllowedError: the host or the port is not allowed.
        """
        usual = address.port == _PORTS[address.scheme]
        ports = (None, address.port) if usual else (address.port,)
        if any((address.host, port) in self._exact for port in ports):
            return True
        if self._any:
            if not usual:
                reason = f"port {address.port} is not allowed: name the host with the port in hosts="
                raise ImageNotAllowedError(address.name, reason, kind=address.scheme)
            return False
        endings = {address.host[place:] for place, char in enumerate(address.host) if char == "."}
        if any((ending, port) in self._suffixes for ending in endings for port in ports):
            return False
        reason = f"the host {address.host}:{address.port} is not in hosts="
        raise ImageNotAllowedError(address.name, reason, kind=address.scheme)


def _split_port(entry: str) -> tuple[str, int | None]:
    if entry.startswith("["):
        host, _, rest = entry[1:].partition("]")
        return host, int(rest[1:]) if rest else None
    host, colon, port = entry.rpartition(":")
    if colon and ":" not in host:
        return host, int(port)
    return entry, None


def is_public(text: str) -> bool:
    """Return whether an address belongs to the public network: no private, loopback, link-local or reserved one.

    Args:
        text: an IPv4 or IPv6 address as the resolver returns it. An IPv4 address inside an IPv6 address (mapped,
            compatible, 6to4, Teredo, NAT64) is checked instead of it.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return False
    if isinstance(address, ipaddress.IPv6Address):
        inner = _embedded(address)
        if inner is not None:
            return all(map(_is_global, inner))
    return _is_global(address)


def _is_global(address: Address) -> bool:
    return (
        address.is_global
        and not address.is_multicast
        and not address.is_reserved
        and not address.is_unspecified
    )


def _embedded(address: ipaddress.IPv6Address) -> list[Address] | None:
    if address.ipv4_mapped is not None:
        return [address.ipv4_mapped]
    if address.sixtofour is not None:
        return [address.sixtofour]
    if address.teredo is not None:
        return list(address.teredo)
    if any(address in network for network in (*_NAT64, _COMPATIBLE)):
        return [ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)]
    return None


def redirected(base: WebAddress, location: str) -> str:
    """Return the URL that a redirect leads to.

    Raises:
        ImageNotAllowedError: it leads from https to http.
        ImageReferenceError: it leads to something that is not a URL of HTTP.
    """
    scheme = location.partition("://")[0].lower() if "://" in location[:16] else ""
    if location.startswith("//"):
        location, scheme = f"{base.scheme}:{location}", base.scheme
    elif not scheme:
        if ":" in location.split("/", 1)[0]:
            raise ImageReferenceError(base.name, "a redirect leads to something that is not a URL of HTTP")
        path = base.target.split("?", 1)[0]
        joined = location if location.startswith("/") else posixpath.join(posixpath.dirname(path), location)
        host = f"[{base.host}]" if ":" in base.host else base.host
        return f"{base.scheme}://{host}:{base.port}{joined}"
    if scheme not in _PORTS:
        raise ImageReferenceError(base.name, "a redirect leads to something that is not a URL of HTTP")
    if base.scheme == "https" and scheme == "http":
        reason = "a redirect leads from https to http"
        raise ImageNotAllowedError(base.name, reason, kind=base.scheme)
    return location


def path_inside(root: str, path: str) -> str:
    """Return the real path of a file, which is inside a folder.

    Args:
        root: real path of the folder.
        path: a path, absolute or relative to the folder, or a ``file://`` URL.

    Raises:
        ImageNotAllowedError: it is outside, also by links and "..".
        ImageReferenceError: it has a null character, or a URL has a host.
    """
    name = short_name(path)
    if path.lower().startswith("file://"):
        host, slash, rest = path[7:].partition("/")
        if host not in ("", "localhost"):
            raise ImageReferenceError(name, "a file:// URL has no host", kind="path")
        path = unquote(slash + rest)
    if "\0" in path:
        raise ImageReferenceError(name, "a path has no null character", kind="path")
    real = os.path.realpath(os.path.join(root, path))
    if not is_inside(root, real):
        raise ImageNotAllowedError(name, "it is outside of the folder that root= names", kind="path")
    return real


def is_inside(root: str, real: str) -> bool:
    """Return whether a real path is that of a file in a folder whose real path is `root`."""
    return real.startswith(root if root.endswith(os.sep) else root + os.sep)
