"""Failures of requests: their kinds, whether and when to retry, and the error that is raised in the end. Pure.

The client library raises a few types and puts the rest into the message: a status code, or the kind of a connection
error. This module classifies them.

Sources of the headers that ask to wait: RFC 9110, section 10.2.3 (Retry-After), and of the Hugging Face Hub,
https://huggingface.co/docs/hub/rate-limits (RateLimit).
"""

from __future__ import annotations

import re
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, NamedTuple

from aioloader.errors import ObjectChangedError, ObjectDeniedError, ObjectMissingError, RemoteReadError
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping

FIRST_BACKOFF_S = 0.1
LONGEST_BACKOFF_S = 5.0
_MOST_PAUSE_S = 3600.0

_STATUS = re.compile(r"status code: (\d{3})")
RETRIED_STATUSES = frozenset((408, 425, 429, 500, 502, 503, 504))
BUSY_STATUSES = frozenset((429, 503))
REDIRECTS = frozenset((301, 302, 303, 307, 308))
# Of a header that is searched.
_MOST_HEADER = 4096
# "resolvers";r=0;t=123: no request is left, and the window ends in 123 seconds.
_WINDOW = re.compile(r";\s*r=0\s*;\s*t=([0-9]{1,6})\b")
_HOPELESS = re.compile(
    r"certificate|InvalidDnsName|InvalidContentType|URL scheme is not allowed|builder error|following redirect",
    re.IGNORECASE,
)
# Headers of responses that do not contain the range and the size: a generated listing, or the output of a program.
_UNSIZED = re.compile(
    r"(Content-Length|Content-Range) Header missing|parse value for CONTENT_", re.IGNORECASE
)
_ADDRESS = re.compile(r"\b\w+://[^\s\"'<>)]+")
# The query of a URL may be a signature.
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]+")
_NOWHERE = re.compile(r"Name or service not known|nodename nor servname|No such host is known")
# Of the client library, and of the standard library in requests to the Hub. A failed TLS handshake is none of these.
_UNREACHED = re.compile(
    r"\bdns error\b|tcp connect error|Connect,\s+TimedOut|Connection refused|name resolution"
    r"|Network is (unreachable|down)|No route to host|Host is (unreachable|down)"
)


class Kind:
    """Kinds of failures."""

    MISSING = "missing"
    DENIED = "denied"
    REFUSED = "refused"
    UNRANGED = "unranged"
    BUSY = "busy"
    LOST = "lost"
    UNREACHED = "unreached"
    NOWHERE = "nowhere"
    CHANGED = "changed"


NO_SERVER = (Kind.UNREACHED, Kind.NOWHERE)
"""Kinds of failures of requests that reached no server."""

_ERRORS = {Kind.MISSING: ObjectMissingError, Kind.DENIED: ObjectDeniedError, Kind.CHANGED: ObjectChangedError}
_ADVICE = {
    Kind.NOWHERE: "check the name of the host and the network connection",
    Kind.DENIED: "check the credentials and their permissions (a signature in a URL expires; see the page Remote data)",
    Kind.MISSING: "check the spelling of the URL, including upper and lower case",
    Kind.UNRANGED: "the server does not support range requests, which a loader needs: use one that does, such as nginx",
    Kind.CHANGED: "the object was replaced: create the dataset again, and do not overwrite files that are in use",
}


class RequestFailure(NamedTuple):
    """Failure of one attempt.

    Attributes:
        kind: one of `Kind`.
        again: another attempt may succeed.
        text: description, one line.
        advice: what to do; "": that of the kind.
        pause_s: seconds that the server asks to wait before another attempt.
    """

    kind: str
    again: bool
    text: str
    advice: str = ""
    pause_s: float = 0.0


class RequestFailedError(Exception):
    """Error raised for a failure that is classified already.

    Attributes:
        failure: the failure.
    """

    def __init__(self, failure: RequestFailure) -> None:
        super().__init__(failure.text)
        self.failure = failure


def status_of(error: BaseException) -> int | None:
    """Return the HTTP status that an error of the client library reports, if there is one."""
    found = _STATUS.search(str(error))
    return None if found is None else int(found[1])


def classify(error: BaseException) -> RequestFailure:
    """Classify an error of a request."""
    if isinstance(error, RequestFailedError):
        return error.failure
    if isinstance(error, TimeoutError):
        return RequestFailure(Kind.LOST, True, str(error) or "no response in time")
    text = str(error)
    line = _first_line(text)
    if isinstance(error, FileNotFoundError):
        return RequestFailure(Kind.MISSING, False, line)
    name = type(error).__name__
    if name in ("PermissionDeniedError", "UnauthenticatedError") or isinstance(error, PermissionError):
        return RequestFailure(Kind.DENIED, False, line)
    text = _ADDRESS.sub("", text)  # names of hosts and files are not the library's words
    unranged = name in ("NotSupportedError", "NotImplementedError") or ("Range" in line and "upport" in line)
    if unranged or _UNSIZED.search(text):
        return RequestFailure(Kind.UNRANGED, False, line)
    status = status_of(error)
    if status is not None:
        if status in RETRIED_STATUSES:
            return RequestFailure(Kind.BUSY if status in BUSY_STATUSES else Kind.LOST, True, line)
        return RequestFailure(Kind.MISSING if status == 404 else Kind.REFUSED, False, line)
    if isinstance(error, (ValueError, TypeError, ImportError)) or _HOPELESS.search(text):
        return RequestFailure(Kind.REFUSED, False, line)
    if _NOWHERE.search(text):
        return RequestFailure(Kind.NOWHERE, True, line)
    return RequestFailure(Kind.UNREACHED if _UNREACHED.search(text) else Kind.LOST, True, line)


def closed_early(error: BaseException) -> bool:
    """Return whether the connection was closed before an answer began, by the client library's words."""
    return "SendRequest" in str(error)


def _first_line(text: str) -> str:
    """Return the message without the library's debug output and the URL, and with the innermost reason."""
    line = text.split("\n", 1)[0].strip()
    line = re.sub(r"Error performing (\w+) \S+ in [\d.]+\S* - ", r"\1: ", line)
    line = re.sub(r":?[ \ufeff]+<[?!\w].*", "", line)  # an HTML page or XML begins here
    line = _QUERY.sub(r"\1?...", line)
    deeper = re.findall(r'(?:message|error): "([^"]+)"', text)
    kind = re.search(r"kind: (Timeout|Connect|Interrupted)\b", text)
    reason = deeper[-1] if deeper else _REASONS.get(kind.group(1) if kind else "", "")
    message = re.search(r"<Message>([^<]+)</Message>", text)  # of object storage
    if message:
        reason = message.group(1).strip().split("\n", 1)[0].rstrip(".")
    if "InvalidContentType" in text:
        reason = "the server answers without encryption: is it http:// and not https://?"
    reason = _QUERY.sub(r"\1?...", reason)
    return f"{line} ({reason})" if reason and reason not in line else line


_REASONS = {"Timeout": "no response in time", "Connect": "cannot connect"}


def pause_of(headers: Mapping[str, str], now: float) -> float:
    """Return the seconds that the server asks to wait before the next request, at most an hour; 0 if it does not.

    Args:
        headers: by their names in lower case.
        now: seconds since the epoch.
    """
    after = headers.get("retry-after", "")[:_MOST_HEADER].strip()
    if re.fullmatch(r"[0-9]{1,9}", after):
        return min(float(after), _MOST_PAUSE_S)
    if after:
        try:
            return min(max(0.0, parsedate_to_datetime(after).timestamp() - now), _MOST_PAUSE_S)
        except (ValueError, TypeError, OverflowError):
            return 0.0
    window = _WINDOW.search(headers.get("ratelimit", "")[:_MOST_HEADER])
    return 0.0 if window is None else min(float(window[1]), _MOST_PAUSE_S)


def retry_pause_s(attempt: int, share: float, *, asked_s: float, left_s: float) -> float | None:
    """Return the seconds to wait before the next attempt: exponential backoff, full jitter; None if no time is left.

    Args:
        attempt: number of attempts so far, from 1.
        share: drawn uniformly from [0, 1).
        asked_s: seconds that the server asks to wait; the backoff comes after them.
        left_s: seconds until the deadline of all attempts.
    """
    pause = asked_s + share * min(LONGEST_BACKOFF_S, FIRST_BACKOFF_S * 2.0 ** min(attempt - 1, 16))
    return pause if pause < left_s else None


def remote_error(
    failure: RequestFailure,
    url: str,
    *,
    offset: int = 0,
    length: int | None = None,
    attempts: int,
    seconds: float,
    timeout_s: float,
) -> RemoteReadError:
    """Return the error for the last failure of a request, with the object, the range, the attempts and advice."""
    advice = failure.advice or _ADVICE.get(failure.kind, "")
    if failure.again and not advice:
        advice = f"given up at the deadline of {timeout_s:g} s"
    return _ERRORS.get(failure.kind, RemoteReadError)(
        redact_url(url),
        offset,
        length,
        attempts=attempts,
        seconds=seconds,
        reason=failure.text,
        kind=failure.kind,
        advice=advice,
    )
