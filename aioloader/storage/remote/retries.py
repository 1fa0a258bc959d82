"""What went wrong with a request, and whether and when to try again. Pure.

The client library raises a few types and says the rest in words: a status code, or the kind of an error of the
connection. They are told apart here, in one place.
"""

from __future__ import annotations

import re
from typing import NamedTuple

__all__ = ("Kind", "RequestFailure", "backoff_s", "trouble_of")

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0

_STATUS = re.compile(r"status code: (\d{3})")
_LATER = {408, 425, 429, 500, 502, 503, 504}
_BUSY = {429, 503}
_HOPELESS = re.compile(
    r"certificate|InvalidDnsName|InvalidContentType|URL scheme is not allowed|builder error|following redirect",
    re.IGNORECASE,
)
# Heads of answers that do not say what part of what size they are: a listing made as it is sent, or a program's output.
_UNSIZED = re.compile(
    r"(Content-Length|Content-Range) Header missing|parse value for CONTENT_", re.IGNORECASE
)
_NOWHERE = re.compile(r"Name or service not known|nodename nor servname|No such host is known")


class Kind:
    """Kinds of trouble."""

    MISSING = "missing"
    DENIED = "denied"
    REFUSED = "refused"
    UNRANGED = "unranged"
    BUSY = "busy"
    LOST = "lost"
    NOWHERE = "nowhere"


class RequestFailure(NamedTuple):
    """What went wrong with one try.

    Attributes:
        kind: one of `Kind`.
        again: another try may help.
        text: what happened, one line.
    """

    kind: str
    again: bool
    text: str


def trouble_of(error: BaseException) -> RequestFailure:
    """What an error of a request means."""
    if isinstance(error, TimeoutError):
        return RequestFailure(Kind.LOST, True, str(error) or "no answer in time")
    text = str(error)
    line = _first_line(text)
    if isinstance(error, FileNotFoundError):
        return RequestFailure(Kind.MISSING, False, line)
    name = type(error).__name__
    if name in ("PermissionDeniedError", "UnauthenticatedError") or isinstance(error, PermissionError):
        return RequestFailure(Kind.DENIED, False, line)
    unranged = name in ("NotSupportedError", "NotImplementedError") or ("Range" in line and "upport" in line)
    if unranged or _UNSIZED.search(text):
        return RequestFailure(Kind.UNRANGED, False, line)
    found = _STATUS.search(text)
    if found:
        status = int(found.group(1))
        if status in _LATER:
            return RequestFailure(Kind.BUSY if status in _BUSY else Kind.LOST, True, line)
        return RequestFailure(Kind.MISSING if status == 404 else Kind.REFUSED, False, line)
    if isinstance(error, (ValueError, TypeError, ImportError)) or _HOPELESS.search(text):
        return RequestFailure(Kind.REFUSED, False, line)
    return RequestFailure(Kind.NOWHERE if _NOWHERE.search(text) else Kind.LOST, True, line)


def _first_line(text: str) -> str:
    """The message without the library's own dump of itself; the innermost reason is kept, the URL is told elsewhere."""
    line = text.split("\n", 1)[0].strip()
    line = re.sub(r"Error performing (\w+) \S+ in [\d.]+\S* - ", r"\1: ", line)
    line = re.sub(r":?[ \ufeff]+<[?!\w].*", "", line)  # a page for a browser begins here, or XML
    deeper = re.findall(r'(?:message|error): "([^"]+)"', text)
    kind = re.search(r"kind: (Timeout|Connect|Interrupted)\b", text)
    reason = deeper[-1] if deeper else _REASONS.get(kind.group(1) if kind else "", "")
    told = re.search(r"<Message>([^<]+)</Message>", text)  # of object storage
    if told:
        reason = told.group(1).strip().split("\n", 1)[0].rstrip(".")
    if "InvalidContentType" in text:
        reason = "the server answers without encryption: is it http:// and not https://?"
    return f"{line} ({reason})" if reason and reason not in line else line


_REASONS = {"Timeout": "no answer in time", "Connect": "cannot connect"}


def backoff_s(attempt: int, share: float) -> float:
    """Seconds to wait before the next try: exponential, full jitter.

    Args:
        attempt: tries so far, from 1.
        share: drawn evenly from [0, 1).
    """
    return share * min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(attempt - 1, 16))
