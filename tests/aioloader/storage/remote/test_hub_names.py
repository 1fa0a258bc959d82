"""Tests of the names of files on the Hugging Face Hub, and of their places in its interface."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.storage.urls import (
    HubFile,
    Location,
    beside,
    cache_name,
    can_list,
    check_writable,
    crowded_folders,
    is_hub,
    is_url,
    join,
    locate,
    name_of,
    origin_of,
    parse_hub_url,
    path_of,
    redact_url,
    resolve_target,
    revision_target,
    sibling,
    suffix_of,
    tree_target,
)
from tests.cases import with_cases

COMMIT = "0123456789abcdef0123456789abcdef01234567"


@with_cases(
    ("url", "expected"),
    [
        ("hf://datasets/u/n/a.rec", HubFile("u/n", "main", "a.rec")),
        ("HF://datasets/u/n/a/b c#?.rec", HubFile("u/n", "main", "a/b c#?.rec")),
        ("hf://datasets/u/n@v1.0/a.rec", HubFile("u/n", "v1.0", "a.rec")),
        (f"hf://datasets/u/n@{COMMIT}/a.rec", HubFile("u/n", COMMIT, "a.rec")),
        ("hf://datasets/u/n@a%2Fb/c.rec", HubFile("u/n", "a/b", "c.rec")),
        ("hf://datasets/u/n@refs/convert/parquet/x/0.rec", HubFile("u/n", "refs/convert/parquet", "x/0.rec")),
        ("hf://datasets/u/n@refs%2Fconvert%2Fparquet/x", HubFile("u/n", "refs/convert/parquet", "x")),
        ("hf://datasets/u/n@refs/pr/12/x", HubFile("u/n", "refs/pr/12", "x")),
        ("hf://datasets/u/n@refs/pr/12", HubFile("u/n", "refs/pr/12", "")),
        ("hf://datasets/u/n@refs/other/x", HubFile("u/n", "refs", "other/x")),
        ("hf://datasets/U-1/n_2.3/a@b/c", HubFile("U-1/n_2.3", "main", "a@b/c")),
        ("hf://datasets/u/n", HubFile("u/n", "main", "")),
        ("hf://datasets/u/n/train/", HubFile("u/n", "main", "train")),
    ],
)
def test_names_are_parsed(url: str, expected: HubFile) -> None:
    found = parse_hub_url(url)
    assert found == expected
    assert parse_hub_url(found.url) == expected
    assert found.is_pinned is (expected.revision == COMMIT)
    assert is_hub(url)
    assert is_url(url)
    assert path_of(url) == url
    assert can_list(url)


@with_cases(
    ("url", "reason"),
    [
        ("hf://u/n/a.rec", "not from models, spaces or buckets"),
        ("hf://spaces/u/n/a.rec", "not from models, spaces or buckets"),
        ("hf://buckets/u/n/a.rec", "not from models, spaces or buckets"),
        ("hf://", "not from models"),
        ("hf://datasets/u", "does not name a data set"),
        ("hf://datasets//n/x", "does not name a data set"),
        ("hf://datasets/u@main/x", "does not name a data set"),
        ("hf://datasets/../n/x", "does not name a data set"),
        ("hf://datasets/u/n?x=1/a", "does not name a data set"),
        ("hf://datasets/u*/n/x", "does not name a data set"),
        ("hf://datasets/u/n@/x", "not a branch"),
        ("hf://datasets/u/n@..%2F..%2Fapi/x", "not a branch"),
        ("hf://datasets/u/n@a%0Ab/x", "not a branch"),
        ("hf://datasets/u/n/a/../../b", "not a path"),
        ("hf://datasets/u/n/a//b", "not a path"),
        ("hf://datasets/u/n/a\r\nX: y", "not a path"),
    ],
)
def test_other_names_are_refused(url: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_hub_url(url)


@given(st.text(max_size=60))
def test_any_text_is_parsed_or_refused(text: str) -> None:
    url = f"hf://datasets/u/n{text}"
    try:
        file = parse_hub_url(url)
    except ValueError:
        return
    assert parse_hub_url(file.url) == file
    for target in (resolve_target(file), revision_target(file), tree_target(file, recursive=True)):
        assert target.isascii()
        assert target.isprintable()
        assert " " not in target
        assert "/../" not in target


def test_places_in_the_interface() -> None:
    file = HubFile("u/n", "refs/convert/parquet", "a b/ä?#.rec")
    assert resolve_target(file) == "/datasets/u/n/resolve/refs%2Fconvert%2Fparquet/a%20b/%C3%A4%3F%23.rec"
    assert revision_target(file) == "/api/datasets/u/n/revision/refs%2Fconvert%2Fparquet?expand=sha"
    folder = "/api/datasets/u/n/tree/refs%2Fconvert%2Fparquet"
    assert tree_target(file.folder, recursive=True) == f"{folder}/a%20b?recursive=true&expand=false"
    assert tree_target(file._replace(path=""), recursive=False) == f"{folder}?recursive=false&expand=false"


def test_files_next_to_each_other() -> None:
    url = "hf://datasets/u/n@v1/x.y/train.rec"
    assert locate(url) == Location("hf://datasets/u/n@v1", "x.y/train.rec")
    assert beside(url, ".idx") == "hf://datasets/u/n@v1/x.y/train.idx"
    assert sibling(url, "a ?.txt") == "hf://datasets/u/n@v1/x.y/a ?.txt"
    assert join("hf://datasets/u/n/train/", "a?/b.jpg") == "hf://datasets/u/n/train/a?/b.jpg"
    assert (name_of(url), suffix_of(url), redact_url(url)) == ("train.rec", ".rec", url)


def test_caches_have_one_name_for_a_file_in_all_commits() -> None:
    names = {cache_name(f"hf://datasets/u/n{rev}/a/b.rec") for rev in ("", "@v1", "@refs/pr/1", f"@{COMMIT}")}
    assert names == {"hf://datasets/u/n/a/b.rec"}
    assert cache_name("https://me:word@host/a.rec?Signature=x") == "https://host/a.rec?..."


def test_data_sets_are_not_written() -> None:
    with pytest.raises(ValueError, match="hf upload"):
        check_writable("hf://datasets/u/n/a.rec")
    check_writable("s3://bucket/a.rec")


def test_folders_with_many_of_the_files() -> None:
    root = f"hf://datasets/u/n@{COMMIT}"
    urls = [f"{root}/a/{n}.rec" for n in range(9)] + [f"{root}/{n}.rec" for n in range(8)]
    urls += [f"{root}/b/{n}.rec" for n in range(7)] + [f"hf://datasets/u/n/c/{n}.rec" for n in range(9)]
    urls += [f"s3://bucket/{n}.rec" for n in range(9)]
    assert crowded_folders(urls, 8) == {f"{root}/a": 9, root: 8}


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("https://host/a", "HTTPS://HOST:443/b?c", True),
        ("http://host:80", "http://host/x", True),
        ("https://host", "http://host", False),
        ("https://host", "https://host:444", False),
        ("https://host", "https://host.evil", False),
        ("https://host", "https://host@evil/", False),
        ("https://host", "https://sub.host/", False),
    ],
)
def test_origins(one: str, other: str, same: bool) -> None:
    assert (origin_of(one) == origin_of(other)) is same
