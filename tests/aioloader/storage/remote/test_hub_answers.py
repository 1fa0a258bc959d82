"""Tests of the Hub's answers, of its settings, and of texts that must not show a signature."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.storage.remote.failures import Kind, RequestFailedError, classify, pause_of
from aioloader.storage.remote.hub import _location_of
from aioloader.storage.remote.hub_answers import (
    Answer,
    FileState,
    UnexpectedAnswerError,
    commit_of,
    failure_of,
    is_empty_file,
    is_missing_entry,
    page_of,
    state_of,
)
from aioloader.storage.remote.stores import hub_endpoint, hub_token
from aioloader.storage.urls import HubFile
from tests.cases import with_cases

HUB = "https://hub.example.com"
FILE = HubFile("u/n", "main", "a/b.rec")
SHA1, SHA256 = "5" * 40, "a" * 64


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (302, {"x-linked-size": "12", "x-linked-etag": f'"{SHA256}"', "etag": '"other"'}, (12, SHA256)),
        (302, {"x-linked-size": " 0 ", "x-linked-etag": SHA256}, (0, SHA256)),
        (206, {"content-range": "bytes 0-0/34", "content-length": "1", "etag": f'W/"{SHA1}"'}, (34, SHA1)),
        (416, {"content-range": "bytes */0", "etag": f'"{SHA1}"'}, (0, SHA1)),
        (200, {"content-length": "56", "etag": f'"{SHA1}"'}, (56, SHA1)),
    ],
)
def test_the_state_of_a_file(status: int, headers: dict[str, str], expected: tuple[int, str]) -> None:
    assert state_of(Answer(status, headers)) == FileState(expected[0], f'"{expected[1]}"')


@with_cases(
    ("status", "headers"),
    [
        (302, {"content-length": "12", "etag": '"a"'}),  # the length of the redirect
        (302, {"x-linked-size": "12"}),
        (302, {"x-linked-size": "-1", "etag": '"a"'}),
        (302, {"x-linked-size": "9" * 19, "etag": '"a"'}),
        (302, {"x-linked-size": "9" * 5000, "etag": '"a"'}),
        (206, {"content-range": "bytes 0-0/*", "etag": '"a"'}),
        (206, {"content-length": "1", "etag": '"a"'}),
        (200, {"content-length": "1", "etag": '"a" "b"'}),
        (200, {"content-length": "1", "etag": '""'}),
        (200, {"content-length": "1", "etag": f'"{"a" * 300}"'}),
    ],
)
def test_a_malformed_state_is_refused(status: int, headers: dict[str, str]) -> None:
    with pytest.raises(UnexpectedAnswerError):
        state_of(Answer(status, headers))


def _file(path: str, **changes: Any) -> dict[str, Any]:
    return {"type": "file", "path": path, "oid": SHA1, "size": 3, **changes}


def test_a_page_of_a_listing() -> None:
    large = {"oid": SHA256, "size": 7, "pointerSize": 130}
    entries = [_file("a"), {"type": "directory", "path": "d", "oid": SHA1}, _file("d/b", size=7, lfs=large)]
    link = '<https://other/api?x=1>; rel="prev", <https://other/api/tree?expand=false&cursor=a%2Bb#c>; rel="next"'
    page = page_of(Answer(200, {"link": link}, json.dumps(entries).encode()))
    assert page.folders == ["d"]
    assert page.files == [("a", FileState(3, f'"{SHA1}"')), ("d/b", FileState(7, f'"{SHA256}"'))]
    assert page.query == "expand=false&cursor=a%2Bb"
    assert page_of(Answer(200, {"link": '<x?y>; rel="prev"'}, b"[]")).query is None


@with_cases(
    "body",
    [
        b"",
        b"<html>",
        b"{}",
        b"[1]",
        b'[{"type": "file"}]',
        json.dumps([_file("a", size=-1)]).encode(),
        json.dumps([_file("a", size=True)]).encode(),
        json.dumps([_file("a", size=1 << 63)]).encode(),
        json.dumps([_file("a", size="1")]).encode(),
        json.dumps([_file("a", oid=None)]).encode(),
        b"[" * 100_000,
        b"\xff",
    ],
)
def test_a_malformed_page_is_refused(body: bytes) -> None:
    with pytest.raises(UnexpectedAnswerError):
        page_of(Answer(200, {}, body))


def test_the_commit_of_a_revision() -> None:
    assert commit_of(Answer(200, {}, json.dumps({"sha": SHA1, "id": "u/n"}).encode())) == SHA1
    for body in (b"{}", b"[]", b'{"sha": "main"}', b'{"sha": 5}'):
        with pytest.raises(UnexpectedAnswerError):
            commit_of(Answer(200, {}, body))


_texts = st.text(st.characters(max_codepoint=0x2FF), max_size=40)
_header_names = st.sampled_from(
    [
        "content-length",
        "content-range",
        "etag",
        "link",
        "ratelimit",
        "retry-after",
        "x-error-message",
        "x-linked-etag",
        "x-linked-size",
    ]
)
_statuses = st.sampled_from([200, 206, 302, 400, 401, 403, 404, 416, 429, 503])


@given(_statuses, st.dictionaries(_header_names, _texts), st.binary(max_size=60) | st.just(b"[]"))
def test_any_answer_is_understood_or_refused(status: int, headers: dict[str, str], body: bytes) -> None:
    answer = Answer(status, headers, body)
    for parse in (state_of, page_of, commit_of):
        try:
            parse(answer)
        except UnexpectedAnswerError:
            pass
    failure = failure_of(answer, FILE, endpoint=HUB, has_token=False, now=0.0)
    assert failure.text.isprintable()
    assert 0 <= failure.pause_s <= 3600


@with_cases(
    ("status", "headers", "token", "kind", "text", "advice"),
    [
        (
            401,
            {"x-error-code": "GatedRepo"},
            False,
            Kind.DENIED,
            "gated",
            "accept its terms at .*u/n.*set HF_TOKEN",
        ),
        (403, {"x-error-code": "GatedRepo"}, True, Kind.DENIED, "gated", "accept its terms at .*u/n"),
        (403, {}, True, Kind.DENIED, "not open to this account", "token may read it"),
        (
            401,
            {"x-error-code": "RepoNotFound"},
            False,
            Kind.DENIED,
            "no data set u/n, or it is private",
            "HF_TOKEN",
        ),
        (401, {}, True, Kind.DENIED, "does not accept the token", "token in HF_TOKEN is valid"),
        (404, {"x-error-code": "RepoNotFound"}, True, Kind.MISSING, "no data set u/n", "check its name"),
        (404, {"x-error-code": "RevisionNotFound"}, True, Kind.MISSING, "no revision 'main'", "after the @"),
        (404, {"x-error-code": "EntryNotFound"}, True, Kind.MISSING, r"no 'a/b\.rec' at", "tree/main"),
        (404, {}, False, Kind.MISSING, r"no 'a/b\.rec' at", "tree/main"),
        (429, {"retry-after": "7"}, False, Kind.BUSY, "429", "try again in 7 s; with a token"),
        (429, {"ratelimit": '"resolvers";r=0;t=55'}, True, Kind.BUSY, "429", "try again in 55 s$"),
        (503, {}, False, Kind.BUSY, "503", ""),
        (502, {}, False, Kind.LOST, "502", ""),
        (400, {"x-error-message": "bad\r\nX: y"}, False, Kind.REFUSED, "HTTP status 400: bad  X: y", ""),
    ],
)
def test_refusals_say_what_to_do(
    status: int, headers: dict[str, str], token: bool, kind: str, text: str, advice: str
) -> None:
    failure = failure_of(Answer(status, headers), FILE, endpoint=HUB, has_token=token, now=0.0)
    assert (failure.kind, failure.again) == (kind, status in (429, 502, 503))
    assert re.search(text, failure.text)
    assert re.search(advice, failure.advice)


@with_cases(
    ("headers", "expected"),
    [
        ({}, 0.0),
        ({"retry-after": "12"}, 12.0),
        ({"retry-after": "999999999"}, 3600.0),
        ({"retry-after": "-5"}, 0.0),
        ({"retry-after": "soon"}, 0.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:30 GMT"}, 20.0),
        ({"retry-after": "Thu, 01 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"retry-after": "Thu, 99 Jan 1970 00:00:01 GMT"}, 0.0),
        ({"ratelimit": '"api";r=0;t=9'}, 9.0),
        ({"ratelimit": '"api";r=5;t=9'}, 0.0),
        ({"ratelimit": '"api";r=0;t=9', "retry-after": "3"}, 3.0),
    ],
)
def test_how_long_to_wait(headers: dict[str, str], expected: float) -> None:
    assert pause_of(headers, now=10.0) == expected


def test_what_is_missing_and_what_is_empty() -> None:
    assert is_missing_entry(Answer(404, {"x-error-code": "EntryNotFound"}))
    assert is_missing_entry(Answer(404, {}))
    assert not is_missing_entry(Answer(404, {"x-error-code": "RepoNotFound"}))
    assert not is_missing_entry(Answer(403, {}))
    assert is_empty_file(Answer(416, {"content-range": "bytes */0"}))
    assert not is_empty_file(Answer(416, {"content-range": "bytes */10"}))


# --- settings ---


def test_the_endpoint() -> None:
    assert hub_endpoint({}) == "https://huggingface.co"
    assert hub_endpoint({"HF_ENDPOINT": " https://host/a/b/ "}) == "https://host/a/b"
    for wrong in (
        "host",
        "ftp://host",
        "https://",
        "https://me:pw0rd@host",
        "https://host/?a=b",
        "http://h\u00e4",
    ):
        with pytest.raises(ValueError, match="HF_ENDPOINT must be") as caught:
            hub_endpoint({"HF_ENDPOINT": wrong})
        assert "pw0rd" not in str(caught.value)


def test_the_token(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "token").write_text("hf_from_home\n")
    (tmp_path / "other").write_text("hf_other")
    (tmp_path / "huggingface").mkdir()
    (tmp_path / "huggingface" / "token").write_text("hf_from_cache")
    home = {"HF_HOME": str(tmp_path / "home"), "XDG_CACHE_HOME": str(tmp_path)}
    assert hub_token({**home, "HF_TOKEN": " hf_set "}) == "hf_set"
    assert hub_token(home) == "hf_from_home"
    assert hub_token({**home, "HF_TOKEN": " "}) == "hf_from_home"
    assert hub_token({**home, "HF_TOKEN_PATH": str(tmp_path / "other")}) == "hf_other"
    assert hub_token({"XDG_CACHE_HOME": str(tmp_path)}) == "hf_from_cache"
    assert hub_token({**home, "HUGGING_FACE_HUB_TOKEN": "hf_former"}) == "hf_former"
    assert hub_token({"HF_TOKEN": "hf_set", "HUGGING_FACE_HUB_TOKEN": "hf_former"}) == "hf_set"
    monkeypatch.setenv("SOME_FOLDER", str(tmp_path))
    assert hub_token({"HF_HOME": "$SOME_FOLDER/home"}) == "hf_from_home"
    assert hub_token({"HF_HOME": str(tmp_path / "none")}) is None
    assert hub_token({**home, "HF_TOKEN": "hf_set", "HF_HUB_DISABLE_IMPLICIT_TOKEN": "1"}) is None


def test_a_malformed_token_is_not_shown(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("hf_secret\nX-Other: 1")
    for environment in ({"HF_TOKEN": "hf_secret\u00e9"}, {"HF_HOME": str(tmp_path)}):
        with pytest.raises(ValueError, match="malformed") as caught:
            hub_token(environment)
        assert "secret" not in str(caught.value)


# --- texts of the client library ---


@pytest.mark.parametrize(
    "text",
    [
        "Generic HTTP error: Error performing GET http://h/a?Sig=SECRET in 2.69ms - Server returned non-2xx status "
        "code: 403 Forbidden: <Error><Message>no http://h/a?Sig=SECRET</Message></Error>\n\nDebug source: SECRET",
        'Generic HTTP error: HTTP error: error sending request for url (http://h/a?Sig=SECRET)\n message: "x"',
        'Generic error\n source: Error { message: "cannot reach https://h/a?Sig=SECRET" }',
    ],
)
def test_a_signature_is_not_shown(text: str) -> None:
    assert "SECRET" not in classify(Exception(text)).text


@with_cases(
    ("location", "reason"),
    [
        ("http://elsewhere/a", "leads to elsewhere without encryption"),
        ("", "leads nowhere"),
        ("ftp://elsewhere/a", "leads nowhere"),
        ("file:///etc/passwd", "leads nowhere"),
        ("https://host:port/a", "leads nowhere"),
        ("https://elsewhere/a b", "leads nowhere"),
        ("https://elsewhere/\u00e4", "leads nowhere"),
    ],
)
def test_redirects_that_are_not_followed(location: str, reason: str) -> None:
    with pytest.raises(RequestFailedError, match=reason):
        _location_of(Answer(302, {"location": location}), "https://host/x/y?z")
