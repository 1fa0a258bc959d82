"""Tests of the headers of tars: numbers, checksums, PAX records, many headers at a time."""

from __future__ import annotations

import tarfile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tar.header import (
    BLOCK,
    HeaderFault,
    PaxRecords,
    find_header,
    parse_header,
    parse_number,
    parse_pax,
    plain_names,
)
from tests.aioloader.formats.tars import header, pax_record
from tests.cases import with_cases


@with_cases(
    ("field", "number"),
    [
        (b"00000000017\0", 15),
        (b"00000000017 ", 15),
        (b"777777777777", 8**12 - 1),
        (b"  17 \0      ", 15),
        (b"17\0garbage..", 15),
        (bytes(12), 0),
        (b"\x80" + bytes(9) + b"\1\2", 258),
        (b"\x80" + b"\xff" * 11, (1 << 88) - 1),
        (b"\xff" * 12, None),  # -1 in base 256
        (b"-0000000017\0", None),
        (b"0000000_017\0", None),
        (b"0o000000017\0", None),
        (b"00000000018\0", None),
        (b"0000000 017\0", None),
        ("\u0661".encode().ljust(12, b"\0"), None),  # a digit, but not one of ASCII
    ],
)
def test_a_number_is_octal_or_in_base_256(field: bytes, number: int | None) -> None:
    assert parse_number(field) == number


@given(
    name=st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), min_size=1, max_size=24),
    size=st.integers(0, 1 << 40),
    style=st.sampled_from([tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT]),
)
def test_the_headers_of_python_are_parsed(name: str, size: int, style: int) -> None:
    info = tarfile.TarInfo(name)
    info.size = size
    try:
        block = info.tobuf(style)
    except ValueError:
        assert style == tarfile.USTAR_FORMAT  # a size of 8 GiB or more
        return
    assert parse_header(block) == (name.encode(), size, ord("0"))


def test_a_prefix_is_joined_with_a_slash() -> None:
    assert parse_header(header(b"b.jpg", prefix=b"a/long")).name == b"a/long/b.jpg"


def test_the_prefix_of_gnu_tar_has_other_contents() -> None:
    block = header(b"b.jpg", magic=b"ustar  \0", prefix=b"00000000000\0")
    assert parse_header(block).name == b"b.jpg"


def test_an_old_directory_is_a_regular_file_whose_name_ends_with_a_slash() -> None:
    assert parse_header(header(b"folder/", kind=b"\0", magic=b"")).kind == ord("5")
    assert parse_header(header(b"file", kind=b"\0", magic=b"")).kind == 0


def test_a_checksum_of_signed_bytes_is_right() -> None:
    block = bytearray(header(b"\xe9\xff.jpg"))
    total = sum(byte - 256 * (byte > 127) for byte in (*block[:148], *block[156:])) + 8 * 32
    block[148:156] = b"%06o\0 " % total
    assert parse_header(bytes(block)).name == b"\xe9\xff.jpg"


@given(place=st.integers(0, BLOCK - 1), value=st.integers(0, 255))
def test_a_changed_byte_is_found_by_the_checksum(place: int, value: int) -> None:
    block = bytearray(header(b"name.jpg", 1234))
    if 148 <= place < 156:
        return
    before, block[place] = block[place], value
    if value != before:
        with pytest.raises(HeaderFault, match="checksum") as caught:
            parse_header(bytes(block))
        assert caught.value.found == repr(block[148:154].decode())
        assert caught.value.expected is not None


def test_a_size_that_is_not_a_number_is_a_fault() -> None:
    with pytest.raises(HeaderFault, match="size in the header") as caught:
        parse_header(header(b"a", size_field=b"-0000000001\0"))
    assert caught.value.found == repr("-0000000001\0")


# -- PAX --------------------------------------------------------------------------------------------------------------


@given(
    st.dictionaries(
        st.sampled_from(["path", "linkpath", "size", "mtime", "comment", "LIBARCHIVE.x"]),
        st.text(st.characters(exclude_categories=["Cs"])),
    )
)
def test_pax_records_are_parsed(records: dict[str, str]) -> None:
    if "size" in records:
        records["size"] = str(len(records["size"]))
    data = b"".join(pax_record(key.encode(), value.encode()) for key, value in records.items())
    path, link = (records[key].encode() if records.get(key) else None for key in ("path", "linkpath"))
    wanted = PaxRecords(path, int(records["size"]) if "size" in records else None, link=link)
    assert parse_pax(data) == wanted
    assert parse_pax(data + bytes(7)) == wanted


def test_a_sparse_file_of_pax_has_its_name_in_a_record() -> None:
    data = pax_record(b"GNU.sparse.major", b"1") + pax_record(b"GNU.sparse.name", b"real.bin")
    data += pax_record(b"path", b"GNUSparseFile.0/real.bin")
    assert parse_pax(data) == PaxRecords(b"real.bin", sparse=True)


@with_cases(
    "data",
    [
        b"path=a\n",
        b"0 path=a\n",
        b"11 path=a\n",  # too long
        b"8 path=a\n",  # too short
        b"9" * 4000 + b" path=a\n",
        b"2 \n",
        b"10 path=a\nx",  # no space behind a record
        b"7 path\n\n",
        b"8 path \n",
        b"\xb2 a=\n",
        b"12 size=-10\n",
        b"30 size=99999999999999999999\n",
    ],
)
def test_malformed_pax_records_are_a_fault(data: bytes) -> None:
    with pytest.raises(HeaderFault, match="PAX header"):
        parse_pax(data)


# -- many headers -----------------------------------------------------------------------------------------------------


@given(
    st.lists(
        st.tuples(
            st.binary(min_size=1, max_size=100),
            st.integers(0, 8**11 - 1),
            st.sampled_from([b"0", b"\0", b"5"]),
            st.sampled_from([b"", b"folder"]),
            st.sampled_from([b"ustar\x0000", b"ustar  \0", b""]),
        ),
        max_size=8,
    )
)
def test_names_of_many_headers_are_those_of_each(
    facts: list[tuple[bytes, int, bytes, bytes, bytes]],
) -> None:
    blocks = [
        header(name, size, kind, prefix=prefix, magic=magic) for name, size, kind, prefix, magic in facts
    ]
    for name, block, fact in zip(plain_names(b"".join(blocks)), blocks, facts, strict=True):
        parsed = parse_header(block)
        assert name in (None, parsed.name)
        if fact[2] == b"0" and not fact[3] and not fact[0].startswith(b"\0"):
            assert name == parsed.name


@given(st.integers(0, 5), st.binary(max_size=600))
def test_a_header_is_found_in_data(place: int, tail: bytes) -> None:
    broken = header(b"a.jpg")[:-1] + b"x"  # marked, but with a wrong checksum
    unmarked = header(b"a.jpg", magic=b"")
    before = (broken + unmarked)[: place * BLOCK].ljust(place * BLOCK, b"u")
    assert find_header(before + header(b"b.jpg") + tail) == place * BLOCK
    assert find_header(before) is None
    assert find_header(before + header(b"b.jpg")[:-1]) is None
