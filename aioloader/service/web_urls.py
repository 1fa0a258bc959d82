"""URLs of HTTP from strangers: their parts in one unambiguous form, where redirects lead, and names for messages. Pure.

Programs disagree about unusual URLs, and a check of one reading does not protect from another. So only the usual form
is accepted, and the request is made of the checked parts, never of the text.
"""

from __future__ import annotations

import re
from typing import NamedTuple
from urllib.parse import quote, urljoin

from aioloader.errors import ImageNotAllowedError, ImageReferenceError
from aioloader.service.addresses import literal_address

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
    shown = "".join(char if char.isprintable() else "?" for char in text[: _LONGEST_NAME + 1])
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
