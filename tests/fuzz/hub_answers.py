"""Target: answers of the Hugging Face Hub."""

from __future__ import annotations

import json
import re

from aioloader.storage.hub_names import HubFile, is_commit, tree_target
from aioloader.storage.remote.hub_answers import (
    Answer,
    UnexpectedAnswerError,
    commit_of,
    failure_of,
    page_of,
    pause_of,
    state_of,
)
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

_FILE = HubFile("user/name", "main", "train/a.rec")
_SHA1, _SHA256 = "0123456789abcdef" * 2 + "01234567", "0123456789abcdef" * 4
_ENTRIES = [
    {"type": "directory", "oid": _SHA1, "size": 0, "path": "train"},
    {"type": "file", "oid": _SHA1, "size": 12, "path": "train/a.idx"},
    {
        "type": "file",
        "oid": _SHA1,
        "size": 9,
        "path": "b",
        "lfs": {"oid": _SHA256, "size": 9, "pointerSize": 134},
    },
]
_NEXT = '<https://huggingface.co/api/x?expand=false&cursor=ab%3D>; rel="next"'
_BASES = (
    (
        302,
        {"x-linked-size": "12345", "x-linked-etag": f'"{_SHA256}"', "location": "https://cdn/x?Signature=y"},
        "",
    ),
    (206, {"content-range": "bytes 0-0/12345", "etag": f'W/"{_SHA1}"'}, "x"),
    (416, {"content-range": "bytes */0", "etag": f'"{_SHA1}"'}, ""),
    (200, {"link": _NEXT, "content-length": "99", "etag": _SHA1}, json.dumps(_ENTRIES)),
    (200, {}, json.dumps({"sha": _SHA1, "id": "user/name", "siblings": []})),
    (401, {"x-error-code": "GatedRepo", "x-error-message": "Access is restricted."}, "{}"),
    (404, {"x-error-code": "EntryNotFound", "x-error-message": "Entry not found"}, "{}"),
    (429, {"retry-after": "12", "ratelimit": '"resolvers";r=0;t=55'}, ""),
    (503, {"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, ""),
)
_PIECES = dictionary("hub")


class HubAnswers:
    """Answers: a status, headers and a body, as in HTTP. Checked for properties of every result."""

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        status, headers, body = pick(draw, _BASES)
        lines = [str(status), *(f"{name}: {value}" for name, value in headers.items()), "", body]
        data = bytearray("\n".join(lines).encode())
        for _ in range(int(draw() * 3) + 1):
            change(data, 4 if draw() < 0.9 else 0, draw, _PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        head, _, body = data.partition(b"\n\n")
        status, *lines = head.decode("latin-1").split("\n")
        if not re.fullmatch("[2-5][0-9][0-9]", status, re.ASCII):
            return False
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        answer = Answer(int(status), headers, body)
        read = status >= "400"
        for parse in (_state, _page, _commit):
            try:
                fault = parse(answer)
            except UnexpectedAnswerError:
                continue
            read = True
            if fault:
                raise Finding(fault)
        if status >= "400":
            failure = failure_of(
                answer, _FILE, endpoint="https://hub", has_token=len(data) % 2 == 0, now=1.6e9
            )
            if not f"{failure.text}{failure.advice}".isprintable() or len(failure.text) > 500:
                raise Finding(f"a text that cannot be shown: {failure}")
        if not 0 <= pause_of(headers, 1.6e9) <= 3600:
            raise Finding(f"a pause of {pause_of(headers, 1.6e9)} s")
        return read


def _state(answer: Answer) -> str:
    state = state_of(answer)
    sound = 0 <= state.nbytes < 1 << 63 and re.fullmatch(r'"[!#-~]{1,256}"', state.etag)
    return "" if sound else f"a state that is none: {state}"


def _page(answer: Answer) -> str:
    page = page_of(answer)
    sound = all(0 <= state.nbytes < 1 << 63 for _, state in page.files) and "#" not in (page.query or "")
    return "" if sound else f"a page that is none: {page}"


def _commit(answer: Answer) -> str:
    commit = commit_of(answer)
    sound = is_commit(commit) and tree_target(_FILE._replace(revision=commit), recursive=True).isascii()
    return "" if sound else f"a commit that is none: {commit!r}"
