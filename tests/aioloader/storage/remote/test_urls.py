"""Tests of URLs: their detection, their objects, and the objects next to them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.storage.urls import Location, beside, is_url, join, locate, name_of, redact_url, suffix_of
from recordio._index import index_path_for
from tests.cases import with_cases


@with_cases(
    ("path", "expected"),
    [
        ("s3://bucket/a.rec", True),
        ("S3://bucket/a.rec", True),
        ("https://host/a.rec", True),
        ("gs://b/a", True),
        ("abfss://c@account.dfs.core.windows.net/a", True),
        ("file:///data/a.rec", False),
        ("/data/a.rec", False),
        ("c:/data/a.rec", False),
        ("http:/one/slash", False),
        (Path("s3://bucket/a.rec"), False),
        ("", False),
    ],
)
def test_paths_are_recognized_as_urls(path: str, expected: bool) -> None:
    assert is_url(path) is expected


@with_cases(
    ("url", "store", "path"),
    [
        ("s3://bucket/a b/c?d#e.rec", "s3://bucket", "a b/c?d#e.rec"),
        ("s3://bucket", "s3://bucket", ""),
        ("gs://bucket/x%20y", "gs://bucket", "x%20y"),
        ("http://host:8000/a%20b/c.rec", "http://host:8000/", "a b/c.rec"),
        ("http://host/ä/c.rec", "http://host/", "ä/c.rec"),
        ("https://user:word@host/c.rec#part", "https://user:word@host/", "c.rec"),
        # Unchanged: a signature, an escaped slash, an empty part.
        ("https://host/a.rec?sig=a%2Fb", "https://host/a.rec?sig=a%2Fb", ""),
        ("https://host/a%2Fb.rec", "https://host/a%2Fb.rec", ""),
        ("https://host/a//b.rec", "https://host/a//b.rec", ""),
    ],
)
def test_where_an_object_is(url: str, store: str, path: str) -> None:
    assert locate(url) == Location(store, path)


@pytest.mark.parametrize("url", ["s3://", "http:///path", "ftp://host/a", "/path"])
def test_malformed_urls_of_objects_are_refused(url: str) -> None:
    with pytest.raises(ValueError, match=r"has no|is not a URL"):
        locate(url)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("s3://b/x.y/train.rec", "s3://b/x.y/train.idx"),
        ("http://h/train.rec", "http://h/train.idx"),
        ("http://h/train.rec?v=1.5", "http://h/train.idx?v=1.5"),
        ("/data/train.rec", "/data/train.idx"),
    ],
)
def test_the_index_next_to_a_file(url: str, expected: str) -> None:
    assert beside(url, ".idx") == expected
    assert index_path_for(url) == expected


def test_secrets_are_not_shown() -> None:
    assert redact_url("https://me:word@host/a.rec?Signature=abc#x") == "https://host/a.rec?..."
    assert redact_url("s3://bucket/a?b") == "s3://bucket/a?b"
    assert redact_url("/data/a?b.rec") == "/data/a?b.rec"
    assert name_of("https://host/x/a.rec?Signature=a/b") == "a.rec"
    assert suffix_of("https://host/x/a.REC?x=.jpg") == ".REC"


_names = st.text("ab .?#%&+=;:@~é漢", min_size=1, max_size=6).filter(lambda name: name.strip("."))


@settings(max_examples=40)
@given(st.lists(_names, min_size=1, max_size=4), st.sampled_from(["s3://bucket/root", "http://host/root"]))
def test_objects_in_a_folder_are_found_by_name(names: list[str], root: str) -> None:
    path = "/".join(names)
    assert locate(join(root, path)).path == f"root/{path}"
