"""The error for what went wrong with a request at last: what, where, how often it was tried, and what helps. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import ObjectChangedError, ObjectDeniedError, ObjectMissingError, RemoteReadError
from aioloader.storage.remote.retries import Kind
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from aioloader.storage.remote.retries import RequestFailure
    from aioloader.storage.remote.transport import Version

__all__ = ("difference", "error_of")


def difference(expected: Version, found: Version) -> str:
    return f"it was {_told(expected)} when the dataset was made, and is {_told(found)} now"


def _told(version: Version) -> str:
    return f"{version.nbytes} bytes, {version.etag or version.modified or 'of unknown date'}"


_ADVICE = {
    Kind.NOWHERE: "check the name of the host, and whether there is a network",
    Kind.DENIED: "check the credentials, and whether they allow to read it (a signature in a URL expires); see "
    "docs/remote.md",
    Kind.MISSING: "check the spelling of the URL, upper and lower case too",
    Kind.UNRANGED: "the server does not serve parts of files, which a loader needs: use one that does, such as nginx",
    "changed": "the object was replaced: make the dataset anew, and do not write over files that are in use",
}


def error_of(
    trouble: RequestFailure,
    url: str,
    offset: int,
    length: int | None,
    attempts: int,
    seconds: float,
    timeout_s: float,
) -> RemoteReadError:
    """The error for what went wrong at last."""
    kind: type[RemoteReadError] = RemoteReadError
    if trouble.kind == Kind.MISSING:
        kind = ObjectMissingError
    elif trouble.kind == Kind.DENIED:
        kind = ObjectDeniedError
    elif trouble.kind == "changed":
        kind = ObjectChangedError
    advice = _ADVICE.get(trouble.kind, "")
    if trouble.again and not advice:
        advice = f"given up at the deadline of {timeout_s:g} s"
    return kind(
        redact_url(url),
        offset,
        length,
        attempts=attempts,
        seconds=seconds,
        reason=trouble.text,
        kind=trouble.kind,
        advice=advice,
    )
