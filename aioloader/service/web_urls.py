"""URLs of HTTP from strangers: their parts in one unambiguous form, and the rules about what they may name. Pure.

Programs disagree about unusual URLs, and a check of one reading does not protect from another. So only the usual form
is accepted, and the request is made of the checked parts, never of the text.

References come from people whom nobody knows: prompts of a chat, rows of a data set. No address inside the network may
be reached through them (server-side request forgery), and no file of this machine be read.

The registries of IANA decide (special-purpose addresses of IPv4 and IPv6, RFC 6890), as a table here: `ipaddress` has
other answers in other versions of Python.
"""

from __future__ import annotations

import ipaddress
import re
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import quote, urljoin

from aioloader.errors import ImageNotAllowedError, ImageReferenceError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable


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


PORTS = {"http": 80, "https": 443}
"""Port of each scheme of HTTP."""
LONGEST_URL = 8192
"""Most characters of a URL."""

_LONGEST_NAME = 200
_LONGEST_HOST = 253
_FORM = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(?:#.*)?", re.IGNORECASE)
_AUTHORITY = re.compile(r"(?:\[([0-9a-f:.]+)\]|([^:\[\]@]+))(?::([0-9]{0,5}))?", re.IGNORECASE)
_LABEL = re.compile(r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?")
_SCHEME = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*:")
# Only at the beginning: a search at each place would take time that grows with the square of the length.
_CREDENTIALS = re.compile(r"\A([a-zA-Z][a-zA-Z0-9+.-]*:)[\\/]*[^\\/?#]*@")
# A line break would end the request's head; a backslash is a slash for browsers, and none for servers.
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")


class WebAddress(NamedTuple):
    """Checked parts of a URL of HTTP.

    Attributes:
        scheme: "http" or "https".
        host: name or IP address in lower case, ASCII, without brackets.
        port: number of the port.
        target: path and query as they are sent, ASCII.
        name: the URL without its query, for messages.
    """

    scheme: str
    host: str
    port: int
    target: str
    name: str

    @property
    def authority(self) -> str:
        """Return host and port as in the header ``Host``."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """Return the URL in its usual form, without a fragment."""
        return f"{self.scheme}://{self.authority}{self.target}"


def short_name(text: str) -> str:
    """Return a reference as a text for messages: printable, without a query or credentials, at most 200 characters."""
    text = text[: 2 * LONGEST_URL]
    if _SCHEME.match(text):
        text = re.split(r"[?#]", text, maxsplit=1)[0]
        text = _CREDENTIALS.sub(r"\1//", text, count=1)
    shown = text[: _LONGEST_NAME + 1]
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else "?" for char in shown)
    return shown if len(shown) <= _LONGEST_NAME else f"{shown[: _LONGEST_NAME - 3]}..."


def parse_web_url(url: str) -> WebAddress:
    """Return the parts of a URL of HTTP.

    Raises:
        ImageReferenceError: it has no host, a user name, characters that no URL has, a wrong port, or is too long.
        ImageNotAllowedError: its host is an address in a spelling that programs understand differently.
    """
    name = short_name(url)
    if len(url) > LONGEST_URL:
        raise ImageReferenceError(name, f"the URL has {len(url):,} characters; {LONGEST_URL:,} are allowed")
    if _FORBIDDEN.search(url):
        raise ImageReferenceError(
            name, "the URL has spaces, control characters or backslashes, which must be escaped"
        )
    form = _FORM.fullmatch(url)
    if form is None:
        raise ImageReferenceError(name, "this is not a URL of HTTP")
    kind = form[1].lower()
    if "@" in form[2]:
        raise ImageReferenceError(name, "URLs with a user name are not read", kind=kind)
    host, port = _host_and_port(form[2], name, kind)
    try:
        target = quote((form[3] or "/") + (form[4] or ""), safe="!$%&'()*+,-./:;=?@[]_~")
    except UnicodeError:
        raise ImageReferenceError(name, "the URL has characters that are no text", kind=kind) from None
    return WebAddress(kind, host, PORTS[kind] if port is None else port, target, name)


def _host_and_port(authority: str, name: str, kind: str) -> tuple[str, int | None]:
    try:
        return split_host(authority)
    except SpellingError as error:
        raise ImageNotAllowedError(name, str(error), kind=kind) from None
    except ValueError as error:
        raise ImageReferenceError(name, str(error), kind=kind) from None


class SpellingError(ValueError):
    """Error raised for an IP address in an unusual spelling."""


def split_host(authority: str) -> tuple[str, int | None]:
    """Return host, in lower case and ASCII, and port of ``host:port``; None without a port.

    Raises:
        SpellingError: the host is an address in an unusual spelling.
        ValueError: the host or the port is not valid.
    """
    found = _AUTHORITY.fullmatch(authority) if len(authority) <= 2 * _LONGEST_HOST else None
    if found is None:
        raise ValueError("the host is not a name, an IP address, or either with a port")
    port = int(found[3]) if found[3] else None
    if port is not None and not 0 < port < 1 << 16:
        raise ValueError(f"there is no port {port}")
    if found[1]:
        if ":" not in found[1]:
            raise ValueError("the host in brackets is not an IPv6 address")
        return str(_literal(found[1].lower())), port
    host = found[2].lower()
    if not host.isascii() and len(host) <= _LONGEST_HOST:
        # As browsers do; Python's own codec is of IDNA 2003, where faß.de is fass.de, another host.
        import idna

        try:
            host = idna.encode(host, uts46=True).decode("ascii")
        except idna.IDNAError:  # its text quotes the host, at any length
            raise ValueError("the host is not an internationalized domain name") from None
    host = host.removesuffix(".")
    if len(host) > _LONGEST_HOST or not all(map(_LABEL.fullmatch, host.split("."))):
        raise ValueError("the host is not a name of the Domain Name System")
    _literal(host)
    return host, port


def _literal(host: str) -> object:
    try:
        return literal_address(host)
    except ValueError:
        raise SpellingError(
            "the host is a number, but not an IP address in the usual spelling, such as 192.0.2.1"
        ) from None


def redirected(base: WebAddress, location: str) -> WebAddress:
    """Return where a redirect leads.

    Args:
        base: the URL that was answered.
        location: the header ``Location``.

    Raises:
        ImageNotAllowedError: it leads from https to http, or to another scheme.
        ImageReferenceError: it leads to a malformed URL.
    """
    location = location.strip(" \t")
    if len(location) > LONGEST_URL or _FORBIDDEN.search(location):
        raise ImageReferenceError(base.name, "a redirect leads to a malformed URL", kind=base.scheme)
    try:
        url = urljoin(base.url, location)
    except ValueError:
        raise ImageReferenceError(
            base.name, "a redirect leads to a malformed URL", kind=base.scheme
        ) from None
    scheme = url.partition(":")[0].lower()
    if scheme not in PORTS:
        reason = f"a redirect leads to {short_name(url)}, which is not a URL of HTTP"
        raise ImageNotAllowedError(base.name, reason, kind=base.scheme)
    address = parse_web_url(url)
    if base.scheme == "https" and address.scheme == "http":
        reason = f"a redirect leads from https to {address.name}, without encryption"
        raise ImageNotAllowedError(base.name, reason, kind=base.scheme)
    return address


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
            the kinds of addresses that the host may have, see `aioloader.service.web_urls`.

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
