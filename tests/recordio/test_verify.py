"""Tests of verify, build_index, repair: kept records, reports, and an unchanged source."""

import json
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from recordio import (
    RecordReader,
    _recovery,
    build_index,
    errors,
    repair,
    serialize,
    testing,
    verify,
)
from recordio._recovery import scan_damaged
from tests.cases import with_cases
from tests.recordio.ten_records import KEYS, OFFSETS, check_repair, spoil, write_ten_records

MAGIC = b"\x0a\x23\xd7\xce"


def test_a_valid_file_has_no_problems(rec):
    report = verify(rec)
    assert (report.ok, report.records, report.problems, report.size) == (True, 10, [], OFFSETS[10])
    assert report.path == str(rec)
    check_repair(rec, list(range(10)))


HEAD_DAMAGE = {
    "magic": (0, 0xFF),
    "flag becomes 2": (7, 0x40),
    "flag becomes 1": (7, 0x20),
    "flag becomes 3": (7, 0x60),
    "length far too large": (6, 0x0F),
    "length a little larger": (4, 0x80),
    "length by 64": (4, 0x40),
}


@with_cases(("at", "mask"), HEAD_DAMAGE.values(), ids=HEAD_DAMAGE.keys())
@with_cases("number", [0, 4, 9])
def test_a_damaged_head_loses_one_record(rec, number, at, mask):
    write_ten_records(rec)
    spoil(rec, testing.flip(rec.read_bytes(), OFFSETS[number] + at, mask))
    report = verify(rec)
    (problem,) = report.problems
    assert (problem.offset, problem.key, problem.keys) == (OFFSETS[number], KEYS[number], (KEYS[number],))
    assert problem.length == OFFSETS[number + 1] - OFFSETS[number]
    assert report.records == 9
    check_repair(rec, [n for n in range(10) if n != number])


@with_cases("count", [4, 8, 1, 3, 1001])
def test_foreign_bytes_between_records_lose_nothing(rec, count):
    write_ten_records(rec)
    spoil(rec, testing.insert(rec.read_bytes(), OFFSETS[5], b"\xaa" * count))
    report = verify(rec)
    assert report.records == 10
    assert (report.problems[0].offset, report.problems[0].length) == (OFFSETS[5], count)
    check_repair(rec, list(range(10)))


@with_cases("count", [1, 3, 4, 30, 70])
def test_lost_bytes_lose_one_record(rec, count):
    data = write_ten_records(rec).read_bytes()
    spoil(rec, data[: OFFSETS[5] + 20] + data[OFFSETS[5] + 20 + count :])
    check_repair(rec, [0, 1, 2, 3, 4, 6, 7, 8, 9])


@with_cases("left", [1, 9, 40])
def test_a_cut_file_keeps_what_is_whole(rec, left):
    write_ten_records(rec)
    spoil(rec, testing.cut(rec.read_bytes(), OFFSETS[7] + left))
    (problem,) = [problem for problem in verify(rec).problems if problem.length]
    assert (problem.offset, problem.length, problem.keys) == (OFFSETS[7], left, (70, 80, 90))
    check_repair(rec, list(range(7)))


def test_split_records_survive_whole(tmp_path):
    split = b"\x0a\x23\xd7\xce" * 5 + b"tail"
    path = tmp_path / "a.rec"
    path.write_bytes(testing.flip(testing.frame([split, b"lost", split]), len(serialize(split))))
    report = repair(path, tmp_path / "copy.rec")
    assert list(RecordReader(tmp_path / "copy.rec")) == [split, split]
    assert (report.records, len(report.problems)) == (2, 1)
    assert (tmp_path / "copy.idx").read_text() == f"0\t0\n1\t{len(serialize(split))}\n"


def test_a_framed_record_inside_a_payload_is_not_a_record(tmp_path):
    inner = b"x" + serialize(b"inner record") + b"after it"
    path = tmp_path / "a.rec"
    path.write_bytes(testing.flip(testing.frame([b"one", inner, b"three"]), 12))
    repair(path, tmp_path / "copy.rec")
    assert list(RecordReader(tmp_path / "copy.rec")) == [b"one", b"three"]


def test_repair_never_overwrites_its_source(rec, tmp_path):
    link = tmp_path / "link.rec"
    link.symlink_to(rec)
    for target in (rec, link, rec.with_suffix(".bin"), rec.with_suffix(".idx")):
        with pytest.raises(errors.RepairTargetError, match="overwrite"):
            repair(rec, target)
    assert verify(rec).ok


def test_a_failed_repair_leaves_no_incomplete_copy(rec, tmp_path):
    with pytest.raises(OSError, match="no/copy"):
        repair(rec, tmp_path / "no" / "copy.rec")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.idx", "a.rec"]


@given(st.data())
@settings(max_examples=3 * settings().max_examples // 2)
def test_any_damage_is_repaired_to_a_valid_copy(tmp_path_factory, data):
    records = data.draw(testing.record_lists())
    damaged = data.draw(testing.damaged(testing.frame(records)))
    folder = tmp_path_factory.getbasetemp()
    path, copy = folder / "fuzz.rec", folder / "fuzzed-copy.rec"
    path.write_bytes(damaged)
    report = repair(path, copy)
    again = verify(copy)
    assert (again.ok, again.records) == (True, report.records)
    covered = sum(problem.length for problem in report.problems)
    assert covered + copy.stat().st_size == len(damaged)
    assert verify(path).ok == (not report.problems)


def test_records_inside_a_payload_are_each_examined_once(tmp_path, monkeypatch):
    # A payload of records at odd places, and garbage after it: each of them could lead through all the others.
    inner = b"x" + serialize(b"") * 2000
    path = tmp_path / "a.rec"
    path.write_bytes(serialize(inner) + b"garbage!" * 3)
    looked = 0
    record_end = _recovery._record_end

    def counting(window, offset):
        nonlocal looked
        looked += 1
        return record_end(window, offset)

    monkeypatch.setattr(_recovery, "_record_end", counting)
    assert verify(path).records == 1
    assert looked < 2 * 2000 + 100


def test_magic_words_close_together_are_found_without_copies(monkeypatch):
    data = b"x" + MAGIC * 5000
    copied = 0

    class Counted(_recovery._Window):
        def get(self, offset, length):
            nonlocal copied
            found = super().get(offset, length)
            copied += len(found)
            return found

    window = Counted(lambda offset, length: data[offset : offset + length], len(data))
    at, hits = 0, []
    while (hit := window.find_magic(at, len(data))) >= 0:
        hits.append(hit)
        at = hit + 1
    assert hits == list(range(1, len(data), 4))
    assert copied < len(data)
    assert window.find_magic(1, 4) == -1
    assert window.find_magic(1, 5) == 1


def test_bytes_put_into_a_record_make_it_suspect(rec):
    # One without padding, which would reveal it.
    spoil(rec, testing.insert(rec.read_bytes(), OFFSETS[2] + 20, b"garb"))
    (problem,) = verify(rec).problems
    assert (problem.offset, problem.length) == (OFFSETS[3], 4)
    assert f"record {KEYS[2]} is damaged" in problem.message


def test_progress_is_reported_in_bytes(rec, tmp_path):
    for run, passes in (
        (lambda tick: verify(rec, tick=tick), 1),
        (lambda tick: build_index(rec, tmp_path / "x.idx", tick=tick), 1),
        (lambda tick: repair(rec, tmp_path / "copy.rec", tick=tick), 2),
    ):
        seen = []
        run(seen.append)
        assert seen == sorted(seen)
        assert seen[-1] == passes * OFFSETS[10]


def test_no_command_writes_over_the_record_file(rec):
    before = rec.read_bytes()
    with pytest.raises(errors.RepairTargetError):
        build_index(rec, rec)
    with pytest.raises(errors.RepairTargetError):
        build_index(rec.with_suffix(".idx"))
    with pytest.raises(errors.RepairTargetError):
        repair(rec, rec.with_name("copy.idx"))
    assert rec.read_bytes() == before


def test_reports_are_plain_values(rec):
    spoil(rec, testing.flip(rec.read_bytes(), OFFSETS[5]))
    report = repair(rec, rec.with_name("copy.rec"))
    facts = json.loads(json.dumps(report.facts()))
    assert (facts["ok"], facts["records"], facts["keyless"]) == (False, 9, [])
    assert facts["problems"][0]["key"] == KEYS[5]
    assert (facts["problems"][0]["offset"], facts["destination"]) == (
        OFFSETS[5],
        str(rec.with_name("copy.rec")),
    )


# --- very many parts ---


def part(flag, data):
    return MAGIC + struct.pack("<I", flag << 29 | len(data)) + data + bytes(-len(data) % 4)


def parts_of(count, data):
    """A record of many parts."""
    return part(1, b"head") + part(2, data) * count + part(3, b"tail")


DAMAGE = {
    "none": lambda framed: framed,
    "the end is missing": lambda framed: framed[:-16],
    "a middle part begins another record": lambda framed: part(2, b"") * 40 + framed,
    "a flag": lambda framed: framed[:4007] + b"\x80" + framed[4008:],
    "a byte is lost": lambda framed: framed[:3001] + framed[3002:],
    "zeros in the middle": lambda framed: framed[:2000] + bytes(40) + framed[2040:],
}


@with_cases("damage", DAMAGE)
@with_cases("data", [b"", b"four", b"\0" * 36])
@with_cases("count", [20, 31, 33, 600])
def test_parts_found_many_at_a_time_are_those_found_one_by_one(count, data, damage, monkeypatch):
    framed = testing.frame([b"before"]) + parts_of(count, data) + parts_of(count, data)
    framed = DAMAGE[damage](framed) + testing.frame([b"after"])

    def scanned():
        return list(scan_damaged(lambda offset, length: framed[offset : offset + length], len(framed)))

    found = scanned()
    with monkeypatch.context() as patch:
        patch.setattr(_recovery, "MANY_PARTS", 1 << 40)
        patch.setattr(_recovery, "empty_run", lambda view: 0)
        assert found == scanned()
    assert sum(item.length for item in found) == len(framed)


@pytest.mark.parametrize("damaged", [False, True], ids=["intact", "the end is missing"])
def test_very_many_empty_parts_are_not_looked_at_one_by_one(damaged, tmp_path, monkeypatch):
    framed = parts_of(300_000, b"")
    path = tmp_path / "a.rec"
    path.write_bytes((framed[:-12] if damaged else framed) + testing.frame([b"after"]))
    looks = 0

    class Counting(_recovery._Window):
        def get(self, offset, length):
            nonlocal looks
            looks += 1
            return super().get(offset, length)

    monkeypatch.setattr(_recovery, "_Window", Counting)
    assert verify(path).records == (1 if damaged else 2)
    assert repair(path, tmp_path / "b.rec").records == (1 if damaged else 2)
    assert looks < 3_000
