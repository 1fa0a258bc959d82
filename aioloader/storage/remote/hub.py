"""Addresses of files on the Hugging Face Hub, and listings of its folders.

The Hub answers a request for a large file with a redirect to a signed address on another host. Only the Hub's own
host may see the user's token, and it limits how many requests it answers (a few thousand in five minutes), so the
redirect is not followed for every range: the address is found once, its ranges are read through the client library
without a token, and it is found again when its signature has expired. Small files are served by the Hub's own host.

Names are read from one commit: a branch or tag is replaced by its commit when it is first used.

Blocking requests to the host of the Hugging Face Hub, by the standard library.

The client library follows redirects, and reports neither where they lead nor the headers of an answer. These requests
follow redirects within the Hub's own origin (scheme, host and port) only: the token is sent to no other. They are few:
bytes are read by the client library.
"""

from __future__ import annotations

import asyncio
import http.client
import os
import threading
import time
import urllib.error
import urllib.request
from concurrent.futures import Future
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, TypeVar
from urllib.parse import urljoin

from aioloader.foundation.threads import Threads
from aioloader.foundation.version import __version__
from aioloader.storage.remote.failures import (
    REDIRECTS,
    Kind,
    RequestFailedError,
    RequestFailure,
    classify,
    status_of,
)
from aioloader.storage.remote.hub_answers import (
    Answer,
    FileState,
    FolderPage,
    UnexpectedAnswerError,
    commit_of,
    failure_of,
    is_empty_file,
    is_missing_entry,
    page_of,
    state_of,
)
from aioloader.storage.remote.stores import hub_endpoint, hub_token, library
from aioloader.storage.urls import (
    HubFile,
    is_commit,
    origin_of,
    parse_hub_url,
    resolve_target,
    revision_target,
    tree_target,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import IO


# For each wait: to connect, and for the next bytes.
_WAIT_S = 10.0
_WHOLE_S = 60.0
_MOST_REDIRECTS = 5
_MOST_NBYTES = 32 << 20
_BLOCK_NBYTES = 1 << 16


class Answered(NamedTuple):
    """Answer, and where it is from.

    Attributes:
        answer: of the Hub. A redirect only if it leads to another origin.
        url: that was answered.
        location: of a redirect, absolute.
    """

    answer: Answer
    url: str
    location: str | None


class _KeepRedirects(urllib.request.HTTPRedirectHandler):
    """Handler that follows no redirect."""

    def redirect_request(self, *args: object, **kwargs: object) -> None:
        return None


class HubRequests:
    """Sender of requests to one endpoint. Used from any thread.

    Args:
        endpoint: URL of the Hub, without a slash at its end.

    Attributes:
        endpoint: as given.
        count: number of requests sent.
    """

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.count = 0
        self._origin = origin_of(endpoint)
        # The proxies are those of the environment, as for the client library.
        self._opener = urllib.request.build_opener(_KeepRedirects)
        self._lock = threading.Lock()

    def get(self, target: str, token: str | None, *, first_byte: bool = False) -> Answered:
        """Send a GET request.

        Args:
            target: path and query, relative to the endpoint.
            token: of the user.
            first_byte: only the first byte is requested, and no body is returned.

        Raises:
            RequestFailedError: there is no answer, or it cannot be used. Its text has neither the token nor a query.
        """
        url = self.endpoint + target
        headers = {"User-Agent": f"aioloader/{__version__}", "Accept-Encoding": "identity"}
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        if first_byte:
            headers["Range"] = "bytes=0-0"
        for _ in range(_MOST_REDIRECTS):
            try:
                answer = self._send(url, headers, wants_body=not first_byte)
            except (OSError, http.client.HTTPException, ValueError) as error:
                reason = error.reason if isinstance(error, urllib.error.URLError) else error
                failure = classify(reason if isinstance(reason, Exception) else OSError(str(reason)))
                raise RequestFailedError(failure) from None
            if answer.status not in REDIRECTS:
                return Answered(answer, url, None)
            url = _location_of(answer, url)
            if origin_of(url) != self._origin:
                return Answered(answer, self.endpoint + target, url)
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, "too many redirects"))

    def _send(self, url: str, headers: dict[str, str], *, wants_body: bool) -> Answer:
        with self._lock:
            self.count += 1
        try:
            response = self._opener.open(urllib.request.Request(url, headers=headers), timeout=_WAIT_S)
        except urllib.error.HTTPError as error:
            # Every status but 2xx.
            with closing(error):
                return Answer(error.code, {name.lower(): value for name, value in error.headers.items()})
        with closing(response):
            body = _read(response) if wants_body else b""
            fields = {name.lower(): value for name, value in response.headers.items()}
            return Answer(response.status, fields, body)


def _location_of(answer: Answer, url: str) -> str:
    """Return where a redirect leads.

    Raises:
        RequestFailedError: nowhere, or away from an encrypted connection.
    """
    location = answer.headers.get("location", "")
    try:
        target = urljoin(url, location)
        scheme, host, _ = origin_of(target)
    except ValueError:
        scheme = host = target = ""
    plain = target.isascii() and target.isprintable() and " " not in target
    if not location or not host or not plain or scheme not in ("http", "https"):
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, "a redirect leads nowhere"))
    if scheme == "http" and origin_of(url)[0] == "https":
        text = f"a redirect leads to {host} without encryption"
        raise RequestFailedError(RequestFailure(Kind.REFUSED, False, text))
    return target


def _read(response: IO[bytes]) -> bytes:
    """Read a body.

    Raises:
        TimeoutError: it arrives too slowly.
        ValueError: it is too long.
        http.client.IncompleteRead: it ended early.
    """
    deadline = monotonic() + _WHOLE_S
    blocks: list[bytes] = []
    nbytes = 0
    while block := response.read(_BLOCK_NBYTES):
        nbytes += len(block)
        if nbytes > _MOST_NBYTES:
            raise ValueError(f"the answer has more than {_MOST_NBYTES:,} bytes")
        if monotonic() > deadline:
            raise TimeoutError("the answer arrives too slowly")
        blocks.append(block)
    return b"".join(blocks)


T = TypeVar("T")

# Requests at a time: the Hub limits their rate.
_THREADS = 16
_MOST_ADDRESSES = 8192
# Addresses of a file that were denied, one after the other, before any request was answered there: then the reason is
# not their age.
_MOST_DENIED = 2
_GONE = (Kind.DENIED, Kind.MISSING, Kind.REFUSED)
_UNLIKE_THE_HUB = "check HF_ENDPOINT: it must be the address of the Hub, or of a complete mirror"


@dataclass(slots=True, eq=False)
class Address:
    """Address of the bytes of a file.

    Attributes:
        url: of HTTP; may contain a signature.
        state: of the file.
        signed: the signature in the URL is its only credential.
        authorization: header for an address on the Hub's own host; None without a token.
        worked: a request was answered.
    """

    url: str = field(repr=False)
    state: FileState
    signed: bool
    authorization: str | None = field(default=None, repr=False)
    worked: bool = False


class HubResolver:
    """Finder of addresses. Used from any thread, and from asyncio loops.

    Its requests run in threads. On cancellation a request in flight is left to end, and its address is kept; it keeps
    neither an event loop nor the interpreter from ending.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._requests: HubRequests | None = None
        self._threads: Threads | None = None
        self._addresses: dict[str, Address] = {}
        self._pending: dict[str, Future[Address]] = {}
        self._denied: dict[str, int] = {}
        self._commits: dict[tuple[str, str], str] = {}
        # Listed folders: states of their files, and whether the listing is complete.
        self._listed: dict[str, tuple[dict[str, FileState], bool]] = {}
        self._paused_until = 0.0

    @property
    def request_count(self) -> int:
        """Return the number of requests sent to the Hub."""
        return 0 if self._requests is None else self._requests.count

    async def address(self, url: str) -> Address:
        """Return where a file is read; one request if it is not known.

        Raises:
            RequestFailedError: the Hub refuses, or does not answer.
            ValueError: the URL does not name a file, or a setting is malformed.
        """
        known = self._addresses.get(url)
        if known is not None:
            return known
        with self._lock:
            known, pending = self._addresses.get(url), self._pending.get(url)
            if known is not None:
                return known
            if pending is None:
                pending = self._pending[url] = self._submit(partial(self._resolve, url))
        # Others may wait for the same address, so the caller's cancellation does not end the request.
        return await asyncio.shield(asyncio.wrap_future(pending))

    async def state(self, url: str) -> FileState:
        """Return the state of a file, from a listing if there is one.

        Raises:
            RequestFailedError: there is no such file, or as for `address`.
        """
        file = parse_hub_url(url)
        states, complete = self._listed.get(file.folder.url, ({}, False))
        name = file.path.rpartition("/")[2]
        if name in states:
            return states[name]
        if complete:
            text = f"the folder {file.folder.path!r} of the data set {file.repository} has no {name!r}"
            raise RequestFailedError(RequestFailure(Kind.MISSING, False, text))
        return (await self.address(url)).state

    async def pin(self, url: str) -> str:
        """Return a URL with the commit that its branch, tag or ref has now.

        Raises:
            RequestFailedError, ValueError: as `address`.
        """
        file = self._pinned(parse_hub_url(url))
        if not file.is_pinned:
            commit = await self._run(partial(self._find_commit, file))
            file = file._replace(revision=commit)
        return file.url

    async def page(self, url: str, query: str | None = None, *, recursive: bool = True) -> FolderPage:
        """Return a page of the listing of a folder, empty if it does not exist.

        Args:
            url: of the folder.
            query: of the page; None for the first.
            recursive: with the files of the folders in it.

        Raises:
            RequestFailedError, ValueError: as `address`.
        """
        return await self._run(partial(self._list, self._pinned(parse_hub_url(url)), query, recursive))

    def add_listing(self, url: str, files: Iterable[tuple[str, FileState]], *, complete: bool) -> None:
        """Remember the files of a folder of a commit, so that their states cost no requests.

        Args:
            url: of the folder.
            files: path in the repository and state of its files.
            complete: there are no others.
        """
        folder = parse_hub_url(url)
        prefix = f"{folder.path}/" if folder.path else ""
        states = {path.removeprefix(prefix): state for path, state in files if path.startswith(prefix)}
        self._listed[folder.url] = states, complete

    def is_listed(self, url: str) -> bool:
        """Return whether `add_listing` was called for a folder."""
        return parse_hub_url(url).url in self._listed

    def confirm(self, url: str, address: Address) -> None:
        """Record that a request was answered at an address."""
        if not address.worked:
            address.worked = True
            with self._lock:
                self._denied.pop(url, None)

    def examine(self, url: str, address: Address, error: Exception) -> Exception:
        """Return the error to be raised after a failed request for bytes.

        If the signature may have expired, the address is forgotten, and the error is one after which to try again. An
        address that was denied before it worked is found again once.

        Args:
            url: the file.
            address: where it was read.
            error: of the client library.
        """
        failure = classify(error)
        if not address.signed or failure.kind not in _GONE or status_of(error) == 416:
            return error
        with self._lock:
            if self._addresses.get(url) is address:
                del self._addresses[url]
                self._denied[url] = 0 if address.worked else self._denied.get(url, 0) + 1
            if self._denied.get(url, 0) >= _MOST_DENIED:
                return error
        return RequestFailedError(RequestFailure(Kind.LOST, True, "the signed address has expired"))

    def close(self) -> None:
        """End the threads, without waiting for requests in flight; may be called twice."""
        with self._lock:
            threads, self._threads = self._threads, None
            self._addresses.clear()
            self._pending.clear()
        if threads is not None:
            threads.close(timeout_s=0)

    # -- in threads --------------------------------------------------------------------------------------------------

    def _submit(self, work: Callable[[], T]) -> Future[T]:
        library()  # raises in a forked process, where the threads do not exist
        if self._threads is None:
            self._threads = Threads(_THREADS, "aioloader-hub")
        future: Future[T] = Future()
        self._threads.start(self._complete, self._threads, future, work)
        return future

    def _complete(self, threads: Threads, future: Future[T], work: Callable[[], T]) -> None:
        """Call a function, unless the resolver was closed before."""
        if threads is not self._threads:
            future.cancel()
            return
        try:
            future.set_result(work())
        except BaseException as error:
            future.set_exception(error)
            del future  # breaks the cycle error -> traceback -> frame -> future -> error

    async def _run(self, work: Callable[[], T]) -> T:
        with self._lock:
            future = self._submit(work)
        return await asyncio.shield(asyncio.wrap_future(future))

    def _pinned(self, file: HubFile) -> HubFile:
        """Return the name of a file in the commit that its revision had when it was first used."""
        commit = self._commits.get((file.repository, file.revision))
        return file if commit is None else file._replace(revision=commit)

    def _resolve(self, url: str) -> Address:
        try:
            file = parse_hub_url(url)
            if not file.path:
                raise ValueError(f"{url!r} names a data set, and not a file in it")
            pinned = self._pinned(file)
            target = resolve_target(pinned)
            answered, token = self._get(pinned, target, first_byte=True, accepts=is_empty_file)
            try:
                state = state_of(answered.answer)
            except UnexpectedAnswerError as error:
                raise self._unexpected(answered, error) from None
            commit = answered.answer.headers.get("x-repo-commit", "")
            if answered.location is not None:
                address = Address(answered.location, state, signed=True)
            else:
                authorization = None if token is None else f"Bearer {token}"
                address = Address(answered.url, state, signed=False, authorization=authorization)
            with self._lock:
                if is_commit(commit) and not pinned.is_pinned:
                    self._commits.setdefault((file.repository, file.revision), commit)
                while len(self._addresses) >= _MOST_ADDRESSES:
                    del self._addresses[next(iter(self._addresses))]
                self._addresses[url] = address
            return address
        finally:
            with self._lock:
                self._pending.pop(url, None)

    def _find_commit(self, file: HubFile) -> str:
        answered, _ = self._get(file, revision_target(file))
        try:
            commit = commit_of(answered.answer)
        except UnexpectedAnswerError as error:
            raise self._unexpected(answered, error) from None
        with self._lock:
            return self._commits.setdefault((file.repository, file.revision), commit)

    def _list(self, folder: HubFile, query: str | None, recursive: bool) -> FolderPage:
        target = tree_target(folder, recursive=recursive)
        if query is not None:
            target = f"{target.partition('?')[0]}?{query}"
        answered, _ = self._get(folder, target, accepts=is_missing_entry)
        if is_missing_entry(answered.answer):
            return FolderPage([], [], None)
        try:
            return page_of(answered.answer)
        except UnexpectedAnswerError as error:
            raise self._unexpected(answered, error) from None

    def _get(
        self,
        file: HubFile,
        target: str,
        *,
        first_byte: bool = False,
        accepts: Callable[[Answer], bool] = lambda answer: False,
    ) -> tuple[Answered, str | None]:
        """Send a request; return the answer, and the token that it was sent with.

        Args:
            file: that is meant.
            target: path and query.
            first_byte: see `HubRequests.get`; a redirect to another host is accepted.
            accepts: returns whether an answer with a status of an error is returned, too.
        """
        remaining_s = self._paused_until - time.monotonic()
        if remaining_s > 0:
            text = "the Hub asked to send no requests for a while"
            advice = (
                f"try again in {remaining_s:.0f} s; with a token in HF_TOKEN the Hub allows more requests"
            )
            raise RequestFailedError(
                RequestFailure(Kind.BUSY, True, text, advice=advice, pause_s=remaining_s)
            )
        with self._lock:
            if self._requests is None:
                self._requests = HubRequests(hub_endpoint(os.environ))
            requests = self._requests
        token = hub_token(os.environ)
        answered = requests.get(target, token, first_byte=first_byte)
        answer = answered.answer
        if answer.status >= 400 and not accepts(answer):
            failure = failure_of(
                answer, file, endpoint=requests.endpoint, has_token=token is not None, now=time.time()
            )
            if failure.pause_s:
                self._paused_until = max(self._paused_until, time.monotonic() + failure.pause_s)
            raise RequestFailedError(failure)
        if answered.location is not None and not first_byte:
            raise self._unexpected(answered, ValueError("a redirect leads to another host"))
        return answered, token

    def _unexpected(self, answered: Answered, error: Exception) -> RequestFailedError:
        host = self._requests.endpoint if self._requests is not None else ""
        text = f"{host} does not answer like the Hugging Face Hub: {error} (HTTP status {answered.answer.status})"
        return RequestFailedError(RequestFailure(Kind.REFUSED, False, text, advice=_UNLIKE_THE_HUB))
