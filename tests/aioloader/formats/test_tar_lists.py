"""Tests of the indexes of other programs: those that wds2idx and webshart write, and damaged ones."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tar.header import BLOCK
from aioloader.formats.tar.index import (
    ListedMember,
    ListFault,
    compare_members,
    compared_ranges,
    listed_members,
    parse_wds2idx,
    parse_webshart,
)
from aioloader.formats.tar.members import TarMembers
from tests.aioloader.formats.tars import END, follow, header, member, pax, pax_record
from tests.cases import with_cases

PLAIN = (
    member(b"a/0.jpg", b"x" * 700)
    + member(b"a/0.cls", b"1")
    + member(b"a/1.jpg", b"y" * 512)
    + member(b"a/1.seg.png")
    + member(b"b/1.jpg", b"z" * 3)
).ljust(10240, b"\0")
LISTED = [
    ListedMember(b"a/0.jpg", 512, 700),
    ListedMember(b"a/0.cls", 2048, 1),
    ListedMember(b"a/1.jpg", 3072, 512),
    ListedMember(b"a/1.seg.png", 4096, 0),
    ListedMember(b"b/1.jpg", 4608, 3),
]
# What wds2idx of DALI 2.4 and webshart 0.4.6 write for this tar.
WDS2IDX = (
    b"v1.2 3\n"
    b"jpg 512 700 a/0.jpg cls 2048 1 a/0.cls\n"
    b"jpg 3072 512 a/1.jpg seg.png 4096 0 a/1.seg.png\n"
    b"jpg 4608 3 b/1.jpg\n"
)
WEBSHART = (
    b'{"path":"train-000.tar","filesize":10240,"files":{'
    b'"b/1.jpg":{"path":"b/1.jpg","offset":4608,"length":3},'
    b'"a/0.jpg":{"path":"a/0.jpg","offset":512,"length":700},'
    b'"a/1.jpg":{"path":"a/1.jpg","offset":3072,"length":512},'
    b'"a/1.seg.png":{"path":"a/1.seg.png","offset":4096,"length":0},'
    b'"a/0.cls":{"path":"a/0.cls","offset":2048,"length":1}},"includes_image_geometry":false}'
)
# What both write for a tar with a directory, a name with a space, a hidden file, a name of 124 bytes behind a header of
# type L, and a name that comes twice.
ODD_WDS2IDX = (
    b"v1.2 8\n"
    b"jpg 1024 700 a.jpg cls 2560 1 a.cls\n"
    b"jpg 3584 5 b c.jpg\n"
    b"__meta__ 4608 5 __meta__\n"
    b"README 5632 600 README\n"
    b"jpg 8192 1 \xc3\xa4.jpg\n"
    b"jpg 9216 4 " + b"n" * 120 + b".jpg\n"
    b"jpg 11264 5 a.jpg\n"
    b"jpg 12288 2 z.jpg\n"
)
ODD_WEBSHART = (
    b'{"path":"odd-0.tar","filesize":20480,"files":{"'
    + b"n" * 120
    + b'.jpg":{"offset":10240,"length":4},"z.jpg":{"path":"z.jpg","offset":12288,"length":2},'
    b'".hid.jpg":{"path":".hid.jpg","offset":7168,"length":1},"b c.jpg":{"offset":3584,"length":5},'
    b'"a.cls":{"offset":2560,"length":1},"a.jpg":{"offset":11264,"length":5},"README":{"offset":5632,"length":600},'
    b'"\xc3\xa4.jpg":{"offset":8192,"length":1},"__meta__":{"offset":4608,"length":5}},"includes_image_geometry":false}'
)


def compared(listed: list[ListedMember], data: bytes) -> TarMembers | None:
    """Return the members in a list that has been compared with the tar."""
    members = listed_members(listed, len(data))
    if members is not None:
        ranges = compared_ranges(members, len(data))
        compare_members(members, len(data), [data[at : at + nbytes] for at, nbytes in ranges])
    return members


@pytest.mark.parametrize("listed", [parse_wds2idx(WDS2IDX), parse_webshart(WEBSHART, len(PLAIN))])
def test_an_index_has_the_members_of_a_scan(listed: list[ListedMember]) -> None:
    assert sorted(listed, key=lambda each: each.data) == LISTED
    assert compared(listed, PLAIN) == follow(PLAIN).members


def test_lists_of_members_with_other_names_of_the_same_facts_are_read() -> None:
    for name in ("path", "filename", "fname"):
        for size in ("length", "size"):
            files = [{name: each.name.decode(), "offset": each.data, size: each.size} for each in LISTED]
            assert parse_webshart(json.dumps({"files": files}).encode(), len(PLAIN)) == LISTED


@with_cases(
    "data",
    [
        b"",
        b"\n",
        b"v1.1 1\njpg 512 700\n",
        b"v2.0 1\njpg 512 700 a.jpg\n",
        b"0\t0\n1\t5000\n",
        b"{}",
        b"\x00" * 4000,
        b"v1.2 1 x\n",
    ],
)
def test_other_files_of_the_name_are_not_indexes_of_wds2idx(data: bytes) -> None:
    assert parse_wds2idx(data) is None


@with_cases(
    "data",
    [
        b"",
        b"[]",
        b"{}",
        b'{"files": 7, "offset": 1}',
        b'[{"files": {"offset": 1}}]',
        b'{"a": [1, 2, 3]}',
        b'{"files": ["a.jpg"]}',
        b"{ not JSON",
        b"\xff\xfe",
    ],
)
def test_other_files_of_the_name_are_not_indexes_of_webshart(data: bytes) -> None:
    assert parse_webshart(data, 10240) is None


@with_cases(
    "data",
    [
        WDS2IDX[:-1],
        WDS2IDX[:60],
        WDS2IDX + b"\n",
        WDS2IDX.replace(b"v1.2 3", b"v1.2 4"),
        WDS2IDX.replace(b"v1.2 3", b"v1.2 " + b"9" * 30),
        WDS2IDX.replace(b"v1.2 3", b"v1.2 -3"),
        WDS2IDX.replace(b"700", b"-700"),
        WDS2IDX.replace(b"700", b"0x2bc"),
        WDS2IDX.replace(b"700", b""),
        WDS2IDX.replace(b"700", b"9" * 19),
        WDS2IDX.replace(b"700 ", b""),
        WDS2IDX.replace(b"a/0.jpg", b"a/0 .jpg"),
        WDS2IDX.replace(b"a/0.jpg", b"a/\\303\\244.jpg"),
        WDS2IDX.replace(b"a/0.jpg", b"a/0.png"),
        ODD_WDS2IDX,
    ],
)
def test_a_damaged_index_of_wds2idx_is_refused(data: bytes) -> None:
    with pytest.raises(ListFault):
        parse_wds2idx(data)


def test_an_index_that_was_cut_says_so() -> None:
    with pytest.raises(ListFault, match="1 lines, and 3 according to the first: it was truncated"):
        parse_wds2idx(WDS2IDX[:60])


def index(entry: Any, **facts: Any) -> bytes:
    """Return an index with one entry."""
    return json.dumps({"files": {"a.jpg": entry}, **facts}).encode()


@with_cases(
    "data",
    [
        WEBSHART[:-1],
        WEBSHART[:200],
        WEBSHART.replace(b"10240", b"10241"),
        WEBSHART.replace(b"10240", b"null"),
        WEBSHART.replace(b":700", b":-700"),
        WEBSHART.replace(b":700", b":700.0"),
        WEBSHART.replace(b":700", b':"700"'),
        WEBSHART.replace(b":700", b":true"),
        WEBSHART.replace(b":700", b":NaN"),
        WEBSHART.replace(b":700", b":" + b"9" * 30),
        WEBSHART.replace(b":700", b":" + b"9" * 5000),
        WEBSHART.replace(b"a/0.cls", b""),
        WEBSHART.replace(b"a/0.cls", b"\\ud800"),
        WEBSHART.replace(b"a/0.cls", b"\\ufffd"),
        WEBSHART.replace(b"a/0.cls", b"\xff"),
        index({"length": 3}, offset=1),
        index({"offset": 512}),
        index([512, 3], offset=512),
        json.dumps({"files": [{"offset": 512, "length": 3}]}).encode(),
        b'{"files":' + b"[" * 200_000 + b'"offset"',
    ],
)
def test_a_damaged_index_of_webshart_is_refused(data: bytes) -> None:
    with pytest.raises(ListFault):
        parse_webshart(data, 10240)


# -- members of a list ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", range(5))
def test_a_list_without_one_of_the_members_is_not_used(missing: int) -> None:
    listed = LISTED[:missing] + LISTED[missing + 1 :]
    if missing < 4:
        assert listed_members(listed, len(PLAIN)) is None
    else:
        with pytest.raises(ListFault, match="does not end at 4096"):
            compared(listed, PLAIN)


def with_times(*members: bytes) -> tuple[bytes, list[ListedMember]]:
    """Return a tar whose members have PAX headers, and a list of its members."""
    data, listed = b"", []
    for number, each in enumerate(members):
        data += pax(pax_record(b"mtime", b"1795425385.72%d" % number)) + each
    data += END
    found = follow(data).members
    for name, at, size in zip(found.names, found.data, found.sizes, strict=True):
        listed.append(ListedMember(name, at, size))
    return data, listed


@pytest.mark.parametrize("missing", [None, 0, 1, 2, 3])
def test_members_with_a_pax_header_for_their_time_are_complete(missing: int | None) -> None:
    data, listed = with_times(
        member(b"a.jpg", b"x" * 700), member(b"a.cls", b"1"), member(b"b.jpg"), member(b"b.cls", b"2")
    )
    if missing is None:
        assert compared(listed, data) == follow(data).members
    elif missing < 3:
        assert listed_members(listed[:missing] + listed[missing + 1 :], len(data)) is None
    else:
        with pytest.raises(ListFault, match="does not end"):
            compared(listed[:missing], data)


def test_a_pax_header_that_names_the_member_is_not_that_of_the_list() -> None:
    named = pax(pax_record(b"path", b"b.jpg")) + member(b"a.jpg", b"data") + END
    with pytest.raises(ListFault, match=r"of 'a.jpg', 4 bytes, at 0, but of 'b.jpg', 4 bytes"):
        compared([ListedMember(b"a.jpg", 3 * BLOCK, 4)], named)


def test_two_small_members_are_not_one_with_a_pax_header() -> None:
    data = member(b"a.cls", b"1") + member(b"b.cls", b"2") + END
    with pytest.raises(ListFault, match="at 0"):
        compared([ListedMember(b"b.cls", 3 * BLOCK, 1)], data)


def test_a_list_of_nothing_is_not_used() -> None:
    assert listed_members([], 10240) is None


def test_a_list_of_a_tar_that_grew_is_not_used() -> None:
    assert listed_members(LISTED, len(PLAIN) + (2 << 20)) is None


def test_lists_of_tars_with_more_than_plain_members_are_not_used() -> None:
    listed = parse_webshart(ODD_WEBSHART, 20480)
    assert listed is not None
    assert listed_members(listed, 20480) is None
    for before in (member(b"folder/", kind=b"5"), member(b"././@LongLink", b"a" * 600, b"L")):
        assert listed_members([ListedMember(b"a.jpg", len(before) + BLOCK, 4)], len(before) + 2048) is None


@with_cases(
    "wrong",
    [
        ListedMember(b"b/1.jpg", 4609, 3),
        ListedMember(b"b/1.jpg", 4096, 3),
        ListedMember(b"b/1.jpg", 0, 3),
        ListedMember(b"b/1.jpg", 511, 3),
        ListedMember(b"b/1.jpg", 10240 + 512, 3),
        ListedMember(b"b/1.jpg", 4608, 1 << 60),
        ListedMember(b"b/1.jpg", 1 << 60, 3),
        ListedMember(b"b/1.jpg", 3072, 3),
    ],
)
def test_members_outside_of_the_file_are_refused(wrong: ListedMember) -> None:
    with pytest.raises(ListFault):
        compared([*LISTED[:4], wrong], PLAIN)


def test_a_tar_that_was_written_again_is_not_that_of_the_list() -> None:
    other = PLAIN.replace(header(b"a/1.jpg", 512), header(b"a/7.jpg", 512))
    with pytest.raises(ListFault, match=r"of 'a/1.jpg', 512 bytes, at 2560, but of 'a/7.jpg', 512"):
        compared(LISTED, other)
    other = PLAIN.replace(header(b"b/1.jpg", 3), header(b"b/1.jpg", 4))
    with pytest.raises(ListFault, match=r"of 'b/1.jpg', 3 bytes, at 4096, but of 'b/1.jpg', 4 bytes"):
        compared(LISTED, other)
    other = PLAIN.replace(header(b"b/1.jpg", 3), header(b"b/1.jpg", 3, b"5"))
    with pytest.raises(ListFault):
        compared(LISTED, other)
    with pytest.raises(ListFault, match="no header"):
        compared(LISTED, b"\0" * len(PLAIN))
    with pytest.raises(ListFault, match="does not end"):
        compared(LISTED, PLAIN[:5120] + member(b"c.jpg", b"data").ljust(5120, b"\0"))


def test_a_tar_that_shrinks_is_a_fault() -> None:
    members = listed_members(LISTED, len(PLAIN))
    assert members is not None
    parts = [PLAIN[:4000][at : at + nbytes] for at, nbytes in compared_ranges(members, len(PLAIN))]
    with pytest.raises(ListFault, match=r"no header of 'a/1\.seg\.png'"):
        compare_members(members, len(PLAIN), parts)


@given(st.integers(1, 200))
def test_a_few_headers_of_any_tar_are_compared(count: int) -> None:
    data = b"".join(member(b"%d.jpg" % number, b"a" * (number % 3 * 400)) for number in range(count)) + END
    members = follow(data).members
    ranges = compared_ranges(members, len(data))
    assert len(ranges) <= 17
    assert sum(nbytes for _, nbytes in ranges) <= 16 * BLOCK + len(END)
    at = [offset for offset, _ in ranges[:-1]]
    assert (at[0], at[-1]) == (members.begins[0], members.begins[-1])
    listed = [ListedMember(*each) for each in zip(members.names, members.data, members.sizes, strict=True)]
    assert compared(listed[::-1], data) == members


@given(st.data())
def test_an_index_with_any_change_is_refused_or_has_the_members(data: st.DataObject) -> None:
    text = data.draw(st.sampled_from([WDS2IDX, WEBSHART]))
    place = data.draw(st.integers(0, len(text) - 1))
    piece = data.draw(
        st.one_of(st.binary(max_size=4), st.sampled_from([b" ", b"\n", b"0", b"512", b"-1", b"{", b"null"]))
    )
    edited = text[:place] + piece + text[place + data.draw(st.integers(0, 5)) :]
    try:
        listed = parse_wds2idx(edited) if text is WDS2IDX else parse_webshart(edited, len(PLAIN))
        members = None if listed is None else compared(listed, PLAIN)
    except ListFault as fault:
        assert str(fault)
        return
    if members is not None:
        assert members == follow(PLAIN).members
