"""Tests of Index: text in and out, unreadable lines, spans, look-ups, the binary cache."""

import io
import os
import pickle
import random
import stat
import warnings

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import (
    CorruptIndexError,
    CorruptRecordError,
    Index,
    IndexNotFoundError,
    MXIndexedRecordIO,
    RecordKeyError,
    RecordParser,
    _index_text,
    testing,
)
from recordio import _index_text as text_module
from recordio._framing import UNKNOWN_SIZE
from recordio._index_cache import CachedIndex, cache_directory
from recordio._index_text import parse_damaged_text, parse_index_text
from recordio._sansio import read_index_text
from recordio.errors import DuplicateKeyWarning
from tests.cases import with_cases

PAIRS = st.lists(st.tuples(st.integers(0, 10**18 - 1), st.integers(0, 10**18 - 1)), max_size=30)


def text_of(pairs):
    return "".join(f"{key}\t{offset}\n" for key, offset in pairs).encode()


@given(PAIRS)
@settings(max_examples=2 * settings().max_examples)
def test_digits_of_any_width_are_parsed_exactly(pairs):
    index = Index.parse(text_of(pairs))
    assert list(zip(index.keys, index.offsets.tolist(), strict=True)) == pairs
    fast = text_module.parse_index_digits(io.BytesIO(text_of(pairs)).readinto, len(text_of(pairs)))
    assert fast is not None
    assert fast.offsets.tolist() == index.offsets.tolist()


def test_blocks_are_cut_between_lines(monkeypatch):
    drawn = random.Random(5)
    pairs = [(drawn.randrange(10 ** drawn.randint(1, 18)), drawn.randrange(10**12)) for _ in range(500)]
    for size in (40, 64, 100, 1000):
        monkeypatch.setattr(text_module, "_BLOCK_BYTES", size)
        index = Index.parse(text_of(pairs))
        assert list(zip(index.keys, index.offsets.tolist(), strict=True)) == pairs


@given(st.binary(max_size=60) | st.text("0123456789\t\n \r-x", max_size=60).map(str.encode))
@settings(max_examples=4 * settings().max_examples)
def test_any_text_is_parsed_as_by_the_line_rules_or_refused(text):
    try:
        index = Index.parse(text)
    except CorruptIndexError:
        return
    lines = text.replace(b"\r\n", b"\n").removesuffix(b"\n").split(b"\n") if text else []
    assert [int(line.strip().split(b"\t")[1]) for line in lines] == index.offsets.tolist()


@with_cases(
    ("text", "keys", "offsets"),
    [
        (b"", [], []),
        (b"0\t0\n1\t16", [0, 1], [0, 16]),
        (b"0\t0\r\n1\t16\r\n", [0, 1], [0, 16]),
        (b"0\t0\tmore\n1\t16\t\n", [0, 1], [0, 16]),
        (b"-3\t0\n+4\t16\n", [-3, 4], [0, 16]),
        (b"007\t0\n", [7], [0]),
        (b"cat\t0\n5\t16\n", ["cat", "5"], [0, 16]),
        ("é a\t8\n".encode(), ["é a"], [8]),
        (b"99999999999999999999\t0\n", ["99999999999999999999"], [0]),
        (b"1\t9223372036854775804\n", [1], [9223372036854775804]),
    ],
    ids=[
        "empty",
        "no last newline",
        "CRLF",
        "more fields",
        "signs",
        "zeros",
        "text",
        "utf-8",
        "huge key",
        "huge offset",
    ],
)
def test_accepted_forms(text, keys, offsets):
    index = Index.parse(text)
    assert list(index.keys) == keys
    assert index.offsets.tolist() == offsets
    assert isinstance(index.keys, list) == any(isinstance(key, str) for key in keys)


@with_cases(
    ("text", "line", "what"),
    [
        (b"0\t0\n\n1\t16\n", 2, "blank"),
        (b"0\t0\n\n", 2, "blank"),
        (b"0\t0\n1 16\n", 2, "no TAB"),
        (b"0\t0\n1\n", 2, "no offset"),
        (b"0\tzero\n", 1, "not an integer"),
        (b"0\t1.5\n", 1, "not an integer"),
        (b"0\t99999999999999999999\n", 1, "larger than any file"),
        (b"0\t" + b"9" * 100_000 + b"\n", 1, "not an integer"),
        (b"\xff\t0\n", 1, "UTF-8"),
    ],
    ids=["blank", "blank at end", "spaces", "one field", "word", "fraction", "huge", "absurd", "not text"],
)
def test_malformed_lines_are_named(text, line, what):
    with pytest.raises(CorruptIndexError, match=what) as caught:
        Index.parse(text, path="a.idx")
    assert (caught.value.path, caught.value.line) == ("a.idx", line)
    assert "python -m recordio index" in str(caught.value)
    assert isinstance(caught.value, ValueError)


def test_spans_extend_to_the_next_larger_offset_in_any_order():
    index = Index.parse(b"a\t32\nb\t0\nc\t16\nd\t16\n")
    offsets, lengths = index.spans(100)
    assert offsets.tolist() == [32, 0, 16, 16]
    assert lengths.tolist() == [68, 16, 16, 16]
    assert lengths.dtype == np.int64
    assert Index.parse(b"").spans(0)[1].tolist() == []


@with_cases(
    ("offset", "what"),
    [
        (-4, "negative"),
        (6, "multiple of 4"),
        (2**64 - 1, "old builds"),
        (100, "outside"),
        (2**40, "outside"),
    ],
)
def test_offsets_where_no_record_can_be_are_refused(offset, what):
    index = Index.parse(f"7\t0\n8\t{offset}\n".encode(), path="a.idx")
    with pytest.raises(CorruptIndexError, match=what) as caught:
        index.spans(100)
    error = caught.value
    assert (error.path, error.line, error.key, error.found) == ("a.idx", 2, 8, offset)
    assert "python -m recordio index" in str(error)


def test_look_up_by_key():
    index = Index.parse(b"5\t0\n3\t16\n9\t32\n")
    assert [index.position(key) for key in (5, 3, np.int64(9))] == [0, 1, 2]
    for missing in (4, -1, "5", 2**70, None, 5.0):
        with pytest.raises(RecordKeyError):
            index.position(missing)
    assert Index.parse(b"x\t0\n5\t16\n").position("5") == 1
    with pytest.raises(KeyError, match="no record has the key 7"):
        Index.of(np.array([0, 16])).position(7)


@with_cases("keys", [(3, 5, 3), ("a", "b", "a")], ids=["numbers", "text"])
def test_duplicate_keys_find_the_last_line_and_warn_once(keys):
    index = Index.parse("".join(f"{key}\t{16 * n}\n" for n, key in enumerate(keys)).encode())
    with pytest.warns(DuplicateKeyWarning, match="repeat a key"):
        assert index.position(keys[0]) == 2
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert index.position(keys[0]) == 2


def test_format_writes_what_parse_reads():
    for text in (b"5\t0\n3\t16\n", b"a b\t0\n", b"0\t0\n1\t8\n"):
        assert Index.parse(text).format().encode() == text
    with pytest.raises(CorruptIndexError, match="TAB"):
        text_module.format_line("a\tb", 0)


def test_scan_finds_every_record_without_reading_large_payloads(tmp_path):
    records = [b"", b"x" * 3_000_000, b"\x0a\x23\xd7\xce" * 9, *[b"abc"] * 1000, b"y" * 1_500_000]
    path = tmp_path / "a.rec"
    path.write_bytes(testing.frame(records))
    index = Index.scan(path)
    sizes = [len(testing.frame([record])) for record in records]
    assert index.offsets.tolist() == np.cumsum([0, *sizes[:-1]]).tolist()
    assert index.keys.tolist() == list(range(len(records)))


@given(st.data())
def test_scan_accepts_exactly_what_the_parser_accepts(tmp_path_factory, data):
    damaged = data.draw(testing.damaged(testing.frame(data.draw(testing.record_lists()))))
    path = tmp_path_factory.getbasetemp() / "scan.rec"
    path.write_bytes(damaged)
    parser = RecordParser(size=len(damaged))
    parser.push(damaged)
    parser.finish()
    try:
        expected = [parser.record_offset for _ in parser]
    except CorruptRecordError:
        with pytest.raises(CorruptRecordError):
            Index.scan(path, cache=False)
    else:
        assert Index.scan(path, cache=False).offsets.tolist() == expected


# --- the cache ---


@pytest.fixture
def idx(tmp_path):
    path = tmp_path / "a.idx"
    path.write_bytes(text_of([(n, 16 * n) for n in range(0, 3000)]))
    return path


def cached(cache_dir):
    return [path for path in cache_dir.rglob("*") if path.is_file()]


@pytest.mark.parametrize("keys", [range(100), range(7, 107)], ids=["counted keys", "other keys"])
def test_the_second_opening_uses_the_cache(tmp_path, cache_dir, monkeypatch, keys):
    path = tmp_path / "a.idx"
    path.write_bytes(text_of([(key, 16 * key) for key in keys]))
    first = Index.open(path)
    assert len(cached(cache_dir)) == 1
    monkeypatch.setattr("recordio._index.parse_index_digits", None)
    second = Index.open(path)
    assert np.array_equal(second.keys, first.keys)
    assert np.array_equal(second.offsets, first.offsets)
    assert second.position(50) == first.position(50)
    assert pickle.loads(pickle.dumps(second)).offsets.tolist() == first.offsets.tolist()


def test_a_file_rewritten_at_the_same_size_and_time_is_read_again(idx):
    Index.open(idx)
    before = idx.stat()
    idx.write_bytes(idx.read_bytes().replace(b"\t16\n", b"\t20\n"))
    os.utime(idx, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Index.open(idx).offsets[1] == 20


def test_a_large_file_changed_later_is_read_again(idx):
    pairs = [(n, 10**15 + 16 * n) for n in range(60_000)]
    idx.write_bytes(text_of(pairs))
    assert idx.stat().st_size > 1 << 20
    Index.open(idx)
    pairs[1] = (1, 10**15 + 20)
    idx.write_bytes(text_of(pairs))
    os.utime(idx, ns=(0, 12345))
    assert Index.open(idx).offsets[1] == 10**15 + 20


@with_cases("spoil", ["cut", "foreign", "empty", "longer", "flipped head", "flipped data", "text", "dir"])
def test_a_spoilt_cache_file_is_ignored_and_made_again(idx, cache_dir, spoil):
    Index.open(idx)
    (file,) = cached(cache_dir)
    good = file.read_bytes()
    bad = {
        "cut": good[:-8],
        "foreign": os.urandom(len(good)),
        "empty": b"",
        "longer": good + b"x",
        "flipped head": testing.flip(good, 16),
        "flipped data": testing.flip(good, len(good) - 8),
        "text": b"hello",
        "dir": None,
    }[spoil]
    file.unlink()
    if bad is None:
        file.mkdir()
    else:
        file.write_bytes(bad)
    assert Index.open(idx).offsets.tolist() == [16 * n for n in range(3000)]
    if bad is not None:
        assert file.read_bytes() == good


def test_the_cache_of_another_file_is_not_used(idx, cache_dir, tmp_path):
    Index.open(idx)
    (file,) = cached(cache_dir)
    other = tmp_path / "b.idx"
    other.write_bytes(idx.read_bytes())
    os.utime(other, ns=(0, idx.stat().st_mtime_ns))
    copy = CachedIndex.of_file(str(other), "idx")
    copy._file = file
    assert copy.load() is None


def test_no_cache_where_none_is_possible_or_requested(idx, cache_dir, monkeypatch):
    Index.open(idx, cache=False)
    assert cached(cache_dir) == []
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(idx))  # a file: no directory can be created in it
    assert len(Index.open(idx)) == 3000


def test_a_cache_next_to_the_file_only_on_request(idx, cache_dir):
    Index.open(idx)
    assert sorted(path.name for path in idx.parent.iterdir()) == ["a.idx"]
    Index.open(idx, cache="beside")
    assert sorted(path.name for path in idx.parent.iterdir()) == ["a.idx", "a.idx.cache"]
    assert len(Index.open(idx, cache="beside")) == 3000


def test_cache_directory_follows_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "x"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "y"))
    assert cache_directory() == tmp_path / "x"
    monkeypatch.delenv("AIOLOADER_CACHE_DIR")
    assert cache_directory() == tmp_path / "y" / "aioloader"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == tmp_path / ".cache" / "aioloader"
    monkeypatch.setattr("sys.platform", "darwin")
    assert cache_directory() == tmp_path / "Library" / "Caches" / "aioloader"


def test_cache_files_are_private_to_the_user(idx, cache_dir):
    Index.open(idx)
    (file,) = cached(cache_dir)
    assert stat.S_IMODE(file.stat().st_mode) & 0o077 == 0


def test_a_scan_is_cached_too(tmp_path, cache_dir, monkeypatch):
    path = tmp_path / "a.rec"
    path.write_bytes(testing.frame([b"abc", b"de"]))
    Index.scan(path)
    assert len(cached(cache_dir)) == 1
    monkeypatch.setattr("recordio._index.scan_offsets", None)
    assert Index.scan(path).offsets.tolist() == [0, 12]


def test_a_missing_index_is_named(tmp_path):
    with pytest.raises(IndexNotFoundError, match="no such index") as caught:
        Index.open(tmp_path / "no.idx")
    assert caught.value.path == str(tmp_path / "no.idx")
    assert isinstance(caught.value, FileNotFoundError)


def test_an_index_that_is_too_large_is_refused_unread(tmp_path, monkeypatch):
    path = tmp_path / "a.idx"
    path.touch()
    os.truncate(path, text_module.MAX_INDEX_BYTES + 1)  # a sparse file: it takes no disk space
    for read in (
        lambda: Index.open(path, cache=False),
        lambda: MXIndexedRecordIO(path, path, "r"),
        lambda: MXIndexedRecordIO(path, path, "r", str),
        lambda: next(read_index_text(text_module.MAX_INDEX_BYTES + 1, path=str(path))),
    ):
        with pytest.raises(CorruptIndexError, match="no more than 4294967296 are read") as caught:
            read()
        assert caught.value.path == str(path)
    monkeypatch.setattr(text_module, "MAX_INDEX_BYTES", 1 << 20)
    steps = read_index_text(UNKNOWN_SIZE, path="a://b")
    with pytest.raises(CorruptIndexError, match="a://b"):
        wanted = next(steps)
        while True:
            wanted = steps.send([bytes(length) for _, length in wanted])


def test_errors_show_the_beginning_of_a_long_field():
    with pytest.raises(CorruptIndexError) as caught:
        Index.parse(b"k" * 10_000 + b"\t" + b"9" * 10_000)
    assert len(str(caught.value)) < 500


BAD = st.sampled_from(
    [b"", b"12", b"7\t", b"7\tx", b"7 8", b"7\t" + b"9" * 30, b"\xff\t8", b"\0\0\0", b"7\t8\0\t9"]
)


@given(
    lines=st.lists(
        BAD | st.tuples(st.integers(-5, 10**6), st.integers(-1, 10**12)) | st.sampled_from([b"word\t8"])
    )
)
@settings(max_examples=3 * settings().max_examples // 5)
def test_each_line_is_read_or_named(lines):
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


def test_only_blocks_with_damage_are_read_line_by_line(monkeypatch):
    monkeypatch.setattr(_index_text, "_BLOCK_BYTES", 100)
    looked = []
    parse_line = _index_text._parse_line

    def counting(line, path, number):
        looked.append(line)
        return parse_line(line, path, number)

    monkeypatch.setattr(_index_text, "_parse_line", counting)
    lines = [b"%d\t%d\n" % (number, 8 * number) for number in range(1000)]
    lines[500] = b"damage\n"
    found, faults = parse_damaged_text(b"".join(lines))
    assert list(faults) == [500]
    assert len(looked) < 30
    assert found.offsets.tolist() == [-1 if n == 500 else 8 * n for n in range(1000)]


def test_a_tolerant_index_finds_the_other_lines(tmp_path):
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
