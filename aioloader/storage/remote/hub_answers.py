"""Answers of the Hugging Face Hub: their meaning, and the failures that they report. Pure.

Sources of the headers: `get_hf_file_metadata` of the package huggingface_hub (X-Repo-Commit, X-Linked-ETag,
X-Linked-Size; X-Error-Code, X-Error-Message), RFC 9110, section 14.4 (Content-Range), RFC 8288 (Link). A server may
send anything: every field is checked.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.storage.remote.failures import (
    BUSY_STATUSES,
    REDIRECTS,
    RETRIED_STATUSES,
    Kind,
    RequestFailure,
    pause_of,
)
from aioloader.storage.urls import is_commit

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.storage.urls import HubFile

_MOST_NBYTES = 1 << 62
_MOST_MESSAGE = 200
# Of a header that is searched.
_MOST_HEADER = 4096
_ETAG = re.compile(r'(?:W/)?"?([\x21\x23-\x7e]{1,256}?)"?')
_NUMBER = re.compile(r"[0-9]{1,19}")
_CONTENT_RANGE = re.compile(r"bytes (?:[0-9]{1,19}-[0-9]{1,19}|\*)/([0-9]{1,19})")
_NEXT = re.compile(r'<([^<>]*)>\s*;[^,]*\brel="?next"?')


class Answer(NamedTuple):
    """Answer of the Hub.

    Attributes:
        status: of HTTP.
        headers: by their names in lower case.
        body: empty if it was not needed.
    """

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class FileState(NamedTuple):
    """State of a file.

    Attributes:
        nbytes: its size.
        etag: hash of its content, in quotation marks: SHA-256 of a large file, the blob's SHA-1 of a small one.
    """

    nbytes: int
    etag: str


class FolderPage(NamedTuple):
    """Page of a listing.

    Attributes:
        folders: paths in the repository of folders.
        files: path in the repository and state of each file.
        query: query of the next page; None after the last.
    """

    folders: list[str]
    files: list[tuple[str, FileState]]
    query: str | None


class UnexpectedAnswerError(ValueError):
    """Error raised for an answer that the Hub would not send."""


def is_empty_file(answer: Answer) -> bool:
    """Return whether the answer to a request for a first byte reports a file without any."""
    return answer.status == 416 and answer.headers.get("content-range", "").strip() == "bytes */0"


def is_missing_entry(answer: Answer) -> bool:
    """Return whether an answer reports a missing file or folder of a data set and a revision that exist."""
    missing = ("RepoNotFound", "RevisionNotFound")
    return answer.status == 404 and answer.headers.get("x-error-code") not in missing


def commit_of(answer: Answer) -> str:
    """Return the commit in the description of a revision.

    Raises:
        UnexpectedAnswerError: there is none.
    """
    described = _json(answer.body)
    commit = described.get("sha") if isinstance(described, dict) else None
    if not isinstance(commit, str) or not is_commit(commit):
        raise UnexpectedAnswerError("the description of the revision names no commit")
    return commit


def state_of(answer: Answer) -> FileState:
    """Return the state of a file from the answer to a request for its first byte.

    Raises:
        UnexpectedAnswerError: the size or the ETag is missing or malformed.
    """
    headers = answer.headers
    etag = _etag(headers.get("x-linked-etag") or headers.get("etag"))
    size = headers.get("x-linked-size")
    if size is None and answer.status not in REDIRECTS:
        if answer.status == 200:
            size = headers.get("content-length")
        else:
            found = _CONTENT_RANGE.fullmatch(headers.get("content-range", "").strip())
            size = None if found is None else found[1]
    number = None if size is None else _NUMBER.fullmatch(size.strip())
    if number is None or int(number[0]) > _MOST_NBYTES:
        raise UnexpectedAnswerError("the size of the file is missing or malformed")
    if etag is None:
        raise UnexpectedAnswerError("the ETag of the file is missing or malformed")
    return FileState(int(number[0]), etag)


def page_of(answer: Answer) -> FolderPage:
    """Return a page of a listing.

    Raises:
        UnexpectedAnswerError: it is not a listing.
    """
    entries = _json(answer.body)
    if not isinstance(entries, list):
        raise UnexpectedAnswerError("the listing of the folder is malformed")
    folders, files = [], []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("path"), str):
            raise UnexpectedAnswerError("the listing of the folder is malformed")
        if entry.get("type") == "directory":
            folders.append(entry["path"])
        if entry.get("type") != "file":
            continue
        large = entry.get("lfs")
        etag, nbytes = _etag((large if isinstance(large, dict) else entry).get("oid")), entry.get("size")
        if etag is None or type(nbytes) is not int or not 0 <= nbytes <= _MOST_NBYTES:
            raise UnexpectedAnswerError("the listing of the folder has a file without a size or a hash")
        files.append((entry["path"], FileState(nbytes, etag)))
    found = _NEXT.search(answer.headers.get("link", "")[:_MOST_HEADER])
    # Only the query is taken: the token is sent to no other server, and a mirror may send the Hub's own address.
    query = found[1].partition("#")[0].partition("?")[2] if found else ""
    return FolderPage(folders, files, query or None)


def failure_of(
    answer: Answer, file: HubFile, *, endpoint: str, has_token: bool, now: float
) -> RequestFailure:
    """Return the failure that an answer with a status of 400 or more reports, with advice.

    Args:
        answer: its headers count, not its body.
        file: that was requested.
        endpoint: URL of the Hub, for the advice.
        has_token: the request had a token.
        now: seconds since the epoch.
    """
    status, code = answer.status, answer.headers.get("x-error-code", "")
    said = re.sub(r"[^\x20-\x7e]", " ", answer.headers.get("x-error-message", ""))[:_MOST_MESSAGE].strip()
    text = f"HTTP status {status}{f': {said}' if said else ''}"
    name, page, settings = (
        file.repository,
        f"{endpoint}/datasets/{file.repository}",
        f"{endpoint}/settings/tokens",
    )
    pause_s = pause_of(answer.headers, now)
    if status in RETRIED_STATUSES:
        advice = "" if has_token else "; with a token in HF_TOKEN it allows more of them"
        return RequestFailure(
            Kind.BUSY if status in BUSY_STATUSES else Kind.LOST,
            True,
            text,
            advice=f"the Hub limits the number of requests; try again in {pause_s:.0f} s{advice}"
            if status == 429
            else "",
            pause_s=pause_s,
        )
    if code == "GatedRepo" or (status == 403 and has_token):
        missing = f"accept its terms at {page}, if it has any, and "
        missing += (
            "check that the token may read it" if has_token else "set HF_TOKEN to a token of that account"
        )
        text = f"the data set {name} is gated, or not open to this account ({text})"
        return RequestFailure(Kind.DENIED, False, text, advice=f"{missing} ({settings})")
    if status in (401, 403):
        if has_token:
            text = f"the Hub does not accept the token, or there is no data set {name} ({text})"
            advice = f"check the name, and that the token in HF_TOKEN is valid ({settings})"
        else:
            text = f"there is no data set {name}, or it is private ({text})"
            advice = f"check the name; for a private data set set HF_TOKEN to a token that may read it ({settings})"
        return RequestFailure(Kind.DENIED, False, text, advice=advice)
    if status in (404, 410):
        if code == "RepoNotFound":
            text, advice = (
                f"there is no data set {name} ({text})",
                "check its name, and set HF_TOKEN if it is private",
            )
        elif code == "RevisionNotFound" or not file.path:
            text = f"the data set {name} has no revision {file.revision!r} ({text})"
            advice = "check the branch, tag or commit after the @"
        else:
            text = f"the data set {name} has no {file.path!r} at revision {file.revision!r} ({text})"
            advice = f"check the path; the files are listed at {page}/tree/{file.revision}"
        return RequestFailure(Kind.MISSING, False, text, advice=advice)
    return RequestFailure(Kind.REFUSED, False, text)


def _etag(text: Any) -> str | None:
    """Return an ETag in quotation marks, without the mark of a weak one; None if it is malformed."""
    found = _ETAG.fullmatch(text.strip()) if isinstance(text, str) else None
    return None if found is None else f'"{found[1]}"'


def _json(body: bytes) -> Any:
    try:
        return json.loads(body)
    except (ValueError, RecursionError):
        raise UnexpectedAnswerError("the answer is not JSON") from None
