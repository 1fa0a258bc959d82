"""Tests of reading many headers: the same from one stretch and one by one, never beyond a record or the file."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recordio
from aioloader.formats.recordio import heads as record_heads
from aioloader.formats.recordio.heads import RecordHeads, read_heads

label = st.one_of(
    st.floats(-100, 100, width=32),
    st.lists(st.floats(-100, 100, width=32), min_size=1, max_size=6),
)


def facts(heads: RecordHeads) -> list[tuple[object, ...]]:
    vectors = [row[:held].tolist() for row, held in zip(heads.vectors, heads.held.tolist(), strict=True)]
    return [
        *zip(
            heads.packed.tolist(),
            heads.flag.tolist(),
            heads.nbytes.tolist(),
            heads.id.tolist(),
            heads.bare.tolist(),
            vectors,
            strict=True,
        )
    ]


@given(st.lists(st.tuples(label, st.integers(0, 40)), max_size=8), st.integers(0, 4))
def test_headers_are_what_was_packed(
    tmp_path_factory: pytest.TempPathFactory, records: list[tuple[float | list[float], int]], labels: int
) -> None:
    path = tmp_path_factory.getbasetemp() / "heads.rec"
    with recordio.RecordWriter(path) as writer:
        offsets = [
            writer.write(recordio.pack((0, value, key, 0), bytes(size)))
            for key, (value, size) in enumerate(records)
        ]
    order = np.array(offsets, np.int64)[::-1]
    together = read_heads(str(path), order, labels=labels)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(record_heads, "_CLOSE", 0)
        apart = read_heads(str(path), order, labels=labels)
    assert facts(together) == facts(apart)
    expected = []
    for key, (value, size) in reversed([*enumerate(records)]):
        vector = value if isinstance(value, list) else []
        nbytes = 24 + 4 * len(vector) + size
        expected.append(
            (True, len(vector), nbytes, key, bool(vector) and not size, [*map(float, vector[:labels])])
        )
    assert facts(together) == expected
    if labels:
        first = [value[0] if isinstance(value, list) else value for value, _ in reversed(records)]
        assert together.first_label.tolist() == first


def test_what_is_no_header_is_none(tmp_path: Path) -> None:
    framed = [
        b"\0" * 40,
        recordio.serialize(recordio.pack((0, [1, 2, 3], 7, 0), b"")),
        recordio.serialize(b"short"),
    ]
    path = tmp_path / "odd.rec"
    path.write_bytes(b"".join(framed) + recordio.serialize(recordio.pack((0, [4.0, 5.0], 8, 0), b""))[:36])
    offsets = np.cumsum([0, *map(len, framed)])
    heads = read_heads(str(path), np.array([-4, *offsets, 1 << 40], np.int64), labels=3)
    assert heads.valid.tolist() == [False, False, True, True, True, False]
    assert heads.packed.tolist() == [False, False, True, False, True, False]
    assert heads.bare.tolist() == [False, False, True, False, True, False]
    assert heads.held.tolist() == [0, 0, 3, 0, 1, 0]  # the last one is cut after its first label
    assert np.isnan(heads.first_label).tolist() == [True, True, False, True, False, True]
    joined = RecordHeads.joined([heads, heads], np.array([8, 2]))
    assert joined.id.tolist() == [7, 7]
    assert len(read_heads(str(path), np.empty(0, np.int64))) == 0
