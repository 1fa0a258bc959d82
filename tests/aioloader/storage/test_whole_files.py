"""Tests of whole files as items: their lengths are queried, and a missing file is one item's error."""

import os
from pathlib import Path

from aioloader.foundation.types import SpanKind
from aioloader.storage import LocalByteSource
from recordio.errors import NotSeekableError
from tests.aioloader.storage.reading import fetch, whole


def test_whole_files_are_read_and_closed(files: list[str]) -> None:
    before = len(os.listdir("/proc/self/fd"))

    items, failures = fetch(LocalByteSource(files, kind=SpanKind.FILE), whole(2, 0, 1, 2))

    assert not failures
    assert items == [b"C" * 5000, b"A" * 10, b"", b"C" * 5000]
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_unreadable_file_is_the_error_of_one_item(files: list[str], tmp_path: Path) -> None:
    (tmp_path / "folder.jpg").mkdir()
    os.mkfifo(tmp_path / "pipe.jpg")
    names = [*files, *[str(tmp_path / name) for name in ("gone.jpg", "folder.jpg", "pipe.jpg")]]

    items, failures = fetch(LocalByteSource(names, kind=SpanKind.FILE), whole(0, 3, 4, 5, 2))

    assert items == [b"A" * 10, None, None, None, b"C" * 5000]
    assert [type(failures[place]) for place in (1, 2, 3)] == [
        *(FileNotFoundError, IsADirectoryError, NotSeekableError)
    ]


def test_a_file_above_one_gibibyte_is_refused(tmp_path: Path, files: list[str]) -> None:
    huge = tmp_path / "huge.jpg"
    with huge.open("wb") as out:
        out.truncate((1 << 30) + 1)

    plan = LocalByteSource([*files, str(huge)], kind=SpanKind.FILE).plan_blocking(whole(3, 0))

    assert plan.nbytes == 64
    assert [place for place, _ in plan.failures] == [0]


def test_files_that_change_after_planning_are_noticed(files: list[str]) -> None:
    source = LocalByteSource(files, kind=SpanKind.FILE)
    plan = source.plan_blocking(whole(0, 1, 2))
    out = memoryview(bytearray(plan.nbytes))
    os.truncate(files[2], 100)
    Path(files[0]).write_bytes(b"grown" * 100)
    os.unlink(files[1])

    failures = dict(source.read_blocking(plan, out))

    assert sorted(failures) == [1, 2]
    assert isinstance(failures[1], FileNotFoundError)
    assert isinstance(failures[2], EOFError)
    assert "shrank from 5000 to 100 bytes" in str(failures[2])
    assert bytes(out[plan.start[0] : plan.start[0] + 10]) == b"growngrown"
