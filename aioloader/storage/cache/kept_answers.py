"""Answers of servers that are kept, so that a dataset whose bytes are in a cache is opened when no server is reached.

They are in the user's cache directory, one file for each question about a URL: a line of JSON, and the first bytes of a
small object. A file that is missing, truncated or damaged counts as no answer. Blocking.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import zlib
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar

from aioloader.errors import OfflineWarning
from aioloader.foundation.stacks import warn_caller
from aioloader.storage.urls import redact_url
from recordio._index_cache import cache_directory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

_FOLDER: Final = "answers-1"


class KeptAnswer(NamedTuple, Generic[T]):
    """Answer of a server.

    Attributes:
        at: when it was given last.
        value: the answer; None if it was a failure.
        failure: kind and text of a failure that another attempt would not fix; None without one.
        data: bytes that belong to the answer.
    """

    at: datetime
    value: T | None
    failure: tuple[str, str] | None
    data: bytes


class AnswersInUse:
    """Context whose requests about objects use kept answers, with a warning at its end. For one `with` statement.

    Args:
        answers: None: the context changes nothing.
    """

    # A generator would put a frame of `contextlib` between the warning and the caller.
    def __init__(self, answers: KeptAnswers | None) -> None:
        self._answers = answers

    def __enter__(self) -> None:
        if self._answers is not None:
            self._token = current_answers.set(self._answers)

    def __exit__(self, *exc: object) -> None:
        if self._answers is not None:
            current_answers.reset(self._token)
            self._answers.warn()


class KeptAnswers:
    """Answers for one dataset. Can be pickled; its requests run in one thread.

    The first request decides: after an answer of a server no kept answer is used, and after one that reached no server
    all are, so that one opening has no versions of different times.

    Attributes:
        offline: no server is reached; kept answers are used.
    """

    def __init__(self) -> None:
        self.offline = False
        self._answered = False
        self._reason = ""
        self._warning: OfflineWarning | None = None
        self._warned = False

    def warn(self) -> None:
        """Issue an `OfflineWarning` if kept answers were used, once."""
        warning, self._warning = self._warning, None
        if warning is not None:
            self._warned = True
            warn_caller(warning, OfflineWarning)

    def go_offline(self, reason: str) -> bool:
        """Use kept answers from now on, because no server is reached; return False if a server answered before."""
        if not self._answered and not self.offline:
            self.offline, self._reason = True, reason
        return self.offline

    def replayed(self, url: str, at: datetime, version: str) -> None:
        """Note that a kept answer was used, for the warning, which prefers an answer with a version."""
        if not self._warned and (self._warning is None or not self._warning.version):
            self._warning = OfflineWarning(redact_url(url), at, version, self._reason)

    def find(self, question: str, url: str, read: Callable[[Any], T]) -> KeptAnswer[T] | None:
        """Return the kept answer; None without one.

        Args:
            question: what was asked about the URL.
            url: of an object or a folder.
            read: makes the answer of its JSON value; raises ValueError or TypeError if it is none.
        """
        try:
            file = _file(question, url)
            line, _, data = file.read_bytes().partition(b"\n")
            kept = json.loads(line)
            if kept["check"] != zlib.crc32(data):
                return None
            failure = kept["failure"] and (str(kept["failure"][0]), str(kept["failure"][1]))
            value = None if failure else read(kept["value"])
            return KeptAnswer(datetime.fromtimestamp(file.stat().st_mtime, UTC), value, failure, data)
        except (OSError, ValueError, TypeError, KeyError, IndexError):
            return None

    def keep(
        self,
        question: str,
        url: str,
        value: Any = None,
        *,
        before: KeptAnswer[Any] | None = None,
        failure: tuple[str, str] | None = None,
        data: bytes = b"",
    ) -> None:
        """Keep an answer that a server gave now, if the directory can be written.

        Args:
            question, url: as for `find`.
            value: a JSON value; times are allowed in it.
            before: the answer that is kept now; only its time changes if it is the same.
            failure, data: see `KeptAnswer`.
        """
        self._answered = True
        file = _file(question, url)
        if before is not None and (before.value, before.failure, before.data) == (value, failure, data):
            with contextlib.suppress(OSError):
                os.utime(file)
            return
        kept = {"value": value, "failure": failure, "check": zlib.crc32(data)}
        line = json.dumps(kept, default=datetime.isoformat).encode() + b"\n"
        partial = file.with_name(f"{file.name}.{secrets.token_hex(8)}.partial")
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            partial.write_bytes(line + data)
            os.replace(partial, file)
        except OSError:
            with contextlib.suppress(OSError):
                partial.unlink()


def _file(question: str, url: str) -> Path:
    """Return the file of an answer. Its name has the whole URL: a query may choose the object."""
    name = hashlib.sha256(f"{question}\0{url}".encode("utf-8", "surrogateescape")).hexdigest()[:32]
    return cache_directory() / _FOLDER / f"{name}.json"


current_answers: ContextVar[KeptAnswers | None] = ContextVar("aioloader_kept_answers", default=None)
"""The answers that the requests of the present code use, or None."""
