"""Tests of image lists: walked, split, written and read as MXNet's im2rec does."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.packing.lists import Listed, read_lines, split_list, walk_images, write_list
from tests.cases import with_cases

EXTENSIONS = (".jpeg", ".jpg", ".png")


def make(root: Path, *names: str) -> Path:
    for name in names:
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"")
    return root


def refuse(number: int, line: str, reason: str) -> None:
    raise AssertionError(f"line {number}, {line!r}: {reason}")


def test_classes_are_folders_that_hold_images_themselves(tmp_path: Path) -> None:
    make(tmp_path, "z.png", "a/deep/1.JPG", "a/notes.txt", "b/2.jpg", "b/deep/3.jpeg", "empty/x.gif")
    images, classes = walk_images(str(tmp_path), EXTENSIONS, recursive=True)
    assert [(each.key, each.labels, each.path) for each in images] == [
        (0, (0.0,), "z.png"),
        (1, (1.0,), "a/deep/1.JPG"),
        (2, (2.0,), "b/2.jpg"),
        (3, (3.0,), "b/deep/3.jpeg"),
    ]
    assert classes == {".": 0, "a/deep": 1, "b": 2, "b/deep": 3}


def test_without_recursion_only_the_folder_itself(tmp_path: Path) -> None:
    make(tmp_path, "b.png", "a.jpg", "deep/c.jpg")
    assert walk_images(str(tmp_path), (".JPG",), recursive=False) == ([Listed(0, (0.0,), "a.jpg")], {})


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    make(tmp_path, "here/a/1.png", "there/2.png")
    (tmp_path / "here/a/up").symlink_to(tmp_path / "here", target_is_directory=True)
    (tmp_path / "here/b").symlink_to(tmp_path / "there", target_is_directory=True)
    images, classes = walk_images(str(tmp_path / "here"), EXTENSIONS, recursive=True)
    assert [each.path for each in images] == ["a/1.png", "b/2.png"]
    assert classes == {"a": 0, "b": 1}


def test_a_name_that_a_list_cannot_hold(tmp_path: Path) -> None:
    make(tmp_path, "a\tb.png")
    with pytest.raises(ValueError, match="rename the file"):
        walk_images(str(tmp_path), EXTENSIONS, recursive=False)


def test_no_folder(tmp_path: Path) -> None:
    with pytest.raises(NotADirectoryError):
        walk_images(str(tmp_path / "none"), EXTENSIONS, recursive=True)


@given(
    st.integers(0, 60),
    st.integers(1, 7),
    st.sampled_from([(1.0, 0.0), (0.5, 0.5), (0.7, 0.3), (0.9, 0.1), (0.5, 0.25), (0.3, 0.0), (0.0, 1.0)]),
)
def test_no_image_is_lost_or_doubled(count: int, chunks: int, ratios: tuple[float, float]) -> None:
    images = [Listed(key, (0.0,), str(key)) for key in range(count)]
    lists = split_list(images, chunks, *ratios)
    assert sorted(each.key for _, part in lists for each in part) == list(range(count))
    names = [name for name, _ in lists]
    assert len(set(names)) == len(names)
    assert len({name.rpartition("_")[0] if ratios[0] < 1 else name for name in names}) == chunks


def test_names_of_lists() -> None:
    images = [Listed(key, (0.0,), str(key)) for key in range(8)]
    assert [name for name, _ in split_list(images)] == [""]
    assert [name for name, _ in split_list(images, 2)] == ["_0", "_1"]
    assert [(name, len(part)) for name, part in split_list(images, 1, 0.5, 0.25)] == [
        ("_test", 2),
        ("_train", 4),
        ("_val", 2),
    ]
    assert [name for name, _ in split_list(images, 2, 0.5, 0.5)] == [
        "_0_test",
        "_0_train",
        "_1_test",
        "_1_train",
    ]
    # As in MXNet: a test ratio alone changes nothing.
    assert [name for name, _ in split_list(images, 1, 1.0, 0.2)] == [""]


@with_cases("arguments", [(0,), (1, 1.5), (1, -0.1), (1, 0.5, 2.0), (1, 0.7, 0.7)])
def test_what_cannot_be_split_so(arguments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"must|more than 1"):
        split_list([Listed(0, (0.0,), "a")], *arguments)  # type: ignore[arg-type]  # on purpose


NAMES = st.text(st.characters(exclude_categories=("C", "Z")), min_size=1, max_size=12)


@given(
    st.lists(
        st.tuples(st.integers(0, 2**64 - 1), st.lists(st.integers(-9, 9), min_size=1, max_size=4), NAMES)
    )
)
def test_what_is_written_is_read(
    tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[int, list[int], str]]
) -> None:
    path = str(tmp_path_factory.mktemp("lists") / "some.lst")
    images = [Listed(key, tuple(map(float, labels)), name) for key, labels, name in rows]
    write_list(path, images)
    assert list(read_lines(path, refuse)) == images


def test_lines_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "some.lst"
    path.write_text(
        "0\t1\ta b.png\n\n1\tx.png\nx\t1\ty.png\n2\tcat\tz.png\n-1\t0\tn.png\n3\t1\t2\tz.png\n4\t1\ta\0b\n"
    )
    told: list[int] = []
    found = list(read_lines(str(path), lambda number, line, reason: told.append(number)))
    assert found == [Listed(0, (1.0,), "a b.png"), Listed(3, (1.0, 2.0), "z.png")]
    assert told == [3, 4, 5, 6, 8]
