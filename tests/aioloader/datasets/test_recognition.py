"""Tests of the recognition of formats by names and by first bytes."""

from __future__ import annotations

import io
import struct
import tarfile
from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.base import HEAD_NBYTES, Format, format_of_head, format_of_name
from aioloader.formats.opening import by_split, pattern_for, split_of
from aioloader.formats.parquet.format import FORMAT as PARQUET
from aioloader.formats.recordio.format import FORMAT as RECORDS
from aioloader.formats.tar.format import FORMAT as TAR
from aioloader.formats.tfrecord.format import FORMAT as TFRECORD
from recordio import MAGIC
from tests.aioloader.formats.tfrecords import masked_crc
from tests.cases import with_cases


@with_cases(
    ("name", "kind"),
    [
        ("train.rec", RECORDS),
        ("a/b.c/TRAIN-00000-of-00004.REC", RECORDS),
        ("shard-000000.tar", TAR),
        ("a.tfrecord", TFRECORD),
        ("a.tfrecords", TFRECORD),
        ("a.tfrec", TFRECORD),
        ("imagenet-train.tfrecord-00000-of-01024", TFRECORD),
        ("train-00000-of-00294-0a1b2c.parquet", PARQUET),
        ("train-00000-of-01024", None),
        ("train.tar.gz", None),
        (".tar", None),
        ("photo.jpg", None),
    ],
)
def test_names_show_the_kind(name: str, kind: Format | None) -> None:
    assert format_of_name(name) is kind


def _tar(format: int, name: str = "000.jpg") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=format) as archive:
        archive.addfile(tarfile.TarInfo(name))
    return buffer.getvalue()[:HEAD_NBYTES]


@with_cases(
    ("head", "kind"),
    [
        (MAGIC.to_bytes(4, "little") + bytes(28), RECORDS),
        (b"PAR1\x15\x04", PARQUET),
        (_tar(tarfile.USTAR_FORMAT), TAR),
        (_tar(tarfile.GNU_FORMAT, "n" * 200), TAR),
        (_tar(tarfile.PAX_FORMAT, "ä" * 120), TAR),
        (b"", None),
        (bytes(HEAD_NBYTES), None),
        (b"\x1f\x8b" + bytes(600), None),
    ],
)
def test_first_bytes_show_the_kind(head: bytes, kind: Format | None) -> None:
    assert format_of_head("data", head) is kind


@given(st.integers(0, 1 << 39), st.binary(max_size=20))
def test_a_length_with_its_masked_crc_is_a_tfrecord(length: int, rest: bytes) -> None:
    head = struct.pack("<Q", length)
    head += struct.pack("<I", masked_crc(head))
    assert format_of_head("data", head + rest) is TFRECORD
    damaged = head[:8] + bytes([head[8] ^ 1]) + head[9:]
    assert format_of_head("data", damaged + rest) is None


@with_cases(
    ("name", "split"),
    [
        ("train-00000-of-00004.tar", "train"),
        ("imagenet_VAL_003.tar", "val"),
        ("val2017-000.tar", "val"),
        ("strain-000.tar", ""),
        ("validation-0.parquet", "validation"),
        ("contest.rec", ""),
    ],
)
def test_splits_are_words_of_names(name: str, split: str) -> None:
    assert split_of(name) == split


def test_names_are_grouped_by_split() -> None:
    assert by_split(["b-test.tar", "train-1.tar", "train-0.tar"]) == {
        "test": ["b-test.tar"],
        "train": ["train-0.tar", "train-1.tar"],
    }


@pytest.mark.parametrize(
    ("names", "others", "pattern"),
    [
        (["train-0.tar", "train-1.tar"], ["val-0.tar"], "train-*.tar"),
        (["train-09.tar", "train-10.tar"], ["train-10.rec"], "train-*.tar"),
        (["a-00000-of-00002", "a-00001-of-00002"], ["b-00000-of-00001"], "a-*"),
        (["a-00000-of-00002", "a-00001-of-00002"], ["a-00000-of-00003"], "a-*-of-00002"),
        (["only.tar"], ["other.tar"], "only.tar"),
        (["x[1]-0.tar", "x[1]-1.tar"], ["x1-2.tar"], "x[[]1]-*.tar"),
        (["a-1.tar", "a-3.tar"], ["a-2.tar"], "a-1.tar"),  # no pattern fits
    ],
)
def test_patterns_match_their_files_only(names: list[str], others: list[str], pattern: str) -> None:
    assert pattern_for(names, [*names, *others]) == pattern


@given(st.lists(st.text("ab-0[*.", min_size=1, max_size=6), min_size=2, max_size=6, unique=True))
def test_a_pattern_never_matches_another_file(found: list[str]) -> None:
    names, others = found[: len(found) // 2], found[len(found) // 2 :]
    pattern = pattern_for(names, found)
    if pattern != names[0]:
        assert not any(fnmatchcase(name, pattern) for name in others)
        assert all(fnmatchcase(name, pattern) for name in names)
