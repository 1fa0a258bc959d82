"""Tests of files of pairs: files by Python 2, Python 3 and numpy are read, and no code in them is executed."""

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import LayoutError
from aioloader.datasets import read_verification_pairs
from tests.cases import with_cases

IMAGES = [b"\xff\xd8 one", bytes(range(256)) * 3, b"", b"four", bytes(70_000), b"four"]
SAME = [True, False, True]


def written(tmp_path: Path, content: bytes) -> Path:
    path = tmp_path / "pairs.bin"
    path.write_bytes(content)
    return path


@with_cases("protocol", [1, 2, 3, 5])
@with_cases(
    ("bodies", "same"),
    [
        (IMAGES, SAME),
        ([np.frombuffer(body, np.uint8) for body in IMAGES], SAME),
        ([np.frombuffer(body, np.uint8)[:, None] for body in IMAGES], [1, 0, 1]),
        (IMAGES, [np.bool_(flag) for flag in SAME]),
        (IMAGES, np.array(SAME)),
        (tuple(IMAGES), tuple(SAME)),
    ],
    ids=["bytes", "arrays", "columns", "numpy flags", "array of flags", "tuples"],
)
def test_pairs_are_read(tmp_path: Path, protocol: int, bodies: Any, same: Any) -> None:
    path = written(tmp_path, pickle.dumps((bodies, same), protocol))
    images, flags = read_verification_pairs(path)
    assert images == IMAGES
    assert (flags.tolist(), flags.dtype) == (SAME, np.bool_)


def test_what_python_2_wrote_is_read(tmp_path: Path) -> None:
    # Protocol 2: proto, mark, list of two BINSTRING and one SHORT_BINSTRING, list of flags, tuple.
    body = b"\xff\xd8\xe9" * 100
    content = (
        b"\x80\x02]q\x01(T"
        + len(body).to_bytes(4, "little")
        + body
        + b"q\x02U\x03abcq\x03e]q\x04\x88a\x86q\x05."
    )
    assert pickle.loads(content, encoding="bytes") == ([body, b"abc"], [True])
    images, same = read_verification_pairs(written(tmp_path, content))
    assert images == [body, b"abc"]
    assert same.tolist() == [True]


class Evil:
    def __reduce__(self) -> Any:
        return os.system, ("touch /tmp/aioloader-must-not-exist",)


@with_cases("protocol", range(6))
def test_a_file_that_would_run_something_is_refused(tmp_path: Path, protocol: int) -> None:
    path = written(tmp_path, pickle.dumps(([Evil(), b""], [True]), protocol))
    with pytest.raises(LayoutError, match=r"it names (posix|nt)\.system; the file is refused") as caught:
        read_verification_pairs(path)
    assert caught.value.path == str(path)
    assert not Path("/tmp/aioloader-must-not-exist").exists()


@with_cases(
    "value",
    [
        None,
        {"a": 1},
        (IMAGES,),
        (IMAGES, SAME[:2]),
        ([], []),
        (IMAGES, ["yes"] * 3),
        ([1, 2], [True]),
        ([np.array([object()]), b""], [True]),
        ({1}, [True]),
    ],
)
def test_other_pickles_are_no_pairs(tmp_path: Path, value: Any) -> None:
    with pytest.raises(LayoutError):
        read_verification_pairs(written(tmp_path, pickle.dumps(value)))


def test_missing_empty_and_cut_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_verification_pairs(tmp_path / "gone.bin")
    content = pickle.dumps((IMAGES, SAME))
    for part in (b"", content[:-1], content[:100], b"\x80", b"(", b"."):
        with pytest.raises(LayoutError):
            read_verification_pairs(written(tmp_path, part))


@settings(max_examples=3 * settings().max_examples // 5)
@given(st.data())
def test_damage_gives_pairs_or_a_named_error(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    content = bytearray(pickle.dumps((IMAGES[:4], [np.bool_(True), False]), data.draw(st.integers(0, 5))))
    for _ in range(data.draw(st.integers(1, 4))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    path = tmp_path_factory.getbasetemp() / "damaged.bin"
    path.write_bytes(content)
    try:
        images, same = read_verification_pairs(path)
    except LayoutError:
        return
    assert len(images) == 2 * len(same)
    assert all(type(image) is bytes for image in images)
