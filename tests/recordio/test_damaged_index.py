"""Tests of an index with unreadable lines: these are named, the other lines work as usual."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import CorruptIndexError, Index, RecordKeyError, _index_text
from recordio._index_text import parse_damaged_text, parse_index_text

BAD = st.sampled_from(
    [b"", b"12", b"7\t", b"7\tx", b"7 8", b"7\t" + b"9" * 30, b"\xff\t8", b"\0\0\0", b"7\t8\0\t9"]
)


@given(
    lines=st.lists(
        BAD | st.tuples(st.integers(-5, 10**6), st.integers(-1, 10**12)) | st.sampled_from([b"word\t8"])
    )
)
@settings(max_examples=60)
def test_each_line_is_read_or_named(lines: list[bytes | tuple[int, int]]) -> None:
    written = [line if isinstance(line, bytes) else b"%d\t%d" % line for line in lines]
    text = b"".join(line + b"\n" for line in written)
    bad = []
    for number, line in enumerate(written):
        try:
            parse_index_text(line + b"\n")
        except CorruptIndexError:
            bad.append(number)
    if 2 * len(bad) > len(lines):
        with pytest.raises(CorruptIndexError):
            parse_damaged_text(text)
        return
    found, faults = parse_damaged_text(text, path="a.idx")
    assert sorted(faults) == bad
    assert [fault.line for _, fault in sorted(faults.items())] == [number + 1 for number in bad]
    assert [found.offsets[number] for number in bad] == [-1] * len(bad)
    good = [line for number, line in enumerate(written) if number not in bad]
    alone = parse_index_text(b"".join(line + b"\n" for line in good))
    rest = [number for number in range(len(lines)) if number not in bad]
    assert found.offsets[rest].tolist() == alone.offsets.tolist()
    assert [found.keys[number] for number in rest] == list(alone.keys)


def test_only_blocks_with_damage_are_read_line_by_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_index_text, "_BLOCK_BYTES", 100)
    looked: list[bytes] = []
    parse_line = _index_text._parse_line

    def counting(line: bytes, path: str | None, number: int) -> tuple[bytes, int]:
        looked.append(line)
        return parse_line(line, path, number)

    monkeypatch.setattr(_index_text, "_parse_line", counting)
    lines = [b"%d\t%d\n" % (number, 8 * number) for number in range(1000)]
    lines[500] = b"damage\n"
    found, faults = parse_damaged_text(b"".join(lines))
    assert list(faults) == [500]
    assert len(looked) < 30
    assert found.offsets.tolist() == [-1 if n == 500 else 8 * n for n in range(1000)]


def test_a_tolerant_index_finds_the_other_lines(tmp_path: Path) -> None:
    path = tmp_path / "a.idx"
    path.write_bytes(b"10\t0\n20\t8\n1\n30\t16\n20")
    with pytest.raises(CorruptIndexError, match="line 3"):
        Index.open(path)
    index = Index.open(path, tolerant=True)
    assert index.offsets.tolist() == [0, 8, -1, 16, -1]
    assert sorted(index.faults) == [2, 4]
    assert [index.key_at(line) for line in range(5)] == [10, 20, 1, 30, 20]
    # The remains of a line do not hide the line with this key.
    assert index.position(20) == 1
    with pytest.raises(RecordKeyError):
        index.position(1)
    with pytest.raises(RecordKeyError):
        index.position(-1)
    assert index.format() == "10\t0\n20\t8\n30\t16\n"
    copy = pickle.loads(pickle.dumps(index))
    assert sorted(copy.faults) == [2, 4]
    path.write_bytes(b"a\t0\nb\t8\nc")
    index = Index.open(path, tolerant=True)
    assert [index.key_at(line) for line in range(3)] == ["a", "b", "c"]
    assert index.position("b") == 1
    with pytest.raises(RecordKeyError):
        index.position("c")
    path.write_bytes(b"no\nindex\nat all\t5\n")
    with pytest.raises(CorruptIndexError):
        Index.open(path, tolerant=True)
