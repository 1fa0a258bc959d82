"""Tests of listings of buckets: they become folders of files, each with its version."""

from __future__ import annotations

import pytest

from aioloader.storage.remote.opening import arrange, as_answered
from aioloader.storage.remote.transport import Version

FULL, EMPTY = Version(1, None, None), Version(0, None, None)


@pytest.mark.parametrize("root", ["", "train", "train/"])
def test_a_listing_becomes_a_folder_of_folders(root: str) -> None:
    at = "train/" if root else ""
    paths = [
        (f"{at}cat/1.jpg", FULL),
        (f"{at}cat/deeper/2.jpg", FULL),
        (f"{at}cat/3.jpg", FULL),
        (f"{at}cat", EMPTY),  # the marker object that a web console leaves for a folder
        (f"{at}dog/only/deeper.jpg", FULL),
        (f"{at}labels.txt", FULL),
        (f"{at}nothing", EMPTY),
    ]
    if root:
        paths += [("training/cat/9.jpg", FULL), ("train", EMPTY)]
    found = arrange(paths, root)
    assert found.folders == {
        "cat": [("1.jpg", FULL), ("deeper/2.jpg", FULL), ("3.jpg", FULL)],
        "dog": [("only/deeper.jpg", FULL)],
    }
    assert found.files == ["labels.txt", "nothing"]


@pytest.mark.parametrize(
    ("listed", "answered"), [("abc", '"abc"'), ('"abc"', '"abc"'), ('W/"abc"', 'W/"abc"'), (None, None)]
)
def test_an_etag_is_listed_as_it_is_answered(listed: str | None, answered: str | None) -> None:
    assert as_answered(Version(3, listed, None)) == Version(3, answered, None)
