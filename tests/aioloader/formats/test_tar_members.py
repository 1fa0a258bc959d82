"""Tests of the chain of the members of a tar: every format of tars, and damage of every kind."""

from __future__ import annotations

import io
import os
import shutil
import subprocess
import tarfile
import tracemalloc
from pathlib import Path

import pytest

from aioloader.errors import SampleFormatError
from aioloader.formats.tar.header import BLOCK, MOST_EXTENDED_NBYTES
from aioloader.formats.tar.members import (
    EXTENDED,
    FOLDER,
    HOLED,
    IGNORED,
    LINKED,
    PLAIN,
    SPECIAL,
    SYMLINKED,
    TarChain,
)
from tests.aioloader.formats.tars import (
    END,
    PATH,
    VirtualTar,
    checked,
    filled,
    follow,
    follow_reads,
    header,
    member,
    pax,
    pax_record,
)
from tests.cases import with_cases

READS = [BLOCK, 2048, 1 << 20]


def members_of(chain: TarChain) -> list[tuple[str, int, int, int]]:
    """Return name, offset of the data, their bytes, and state of each member that is not ignored."""
    assert chain.fault is None, chain.fault
    assert chain.ended
    found = chain.members
    assert len({len(column) for column in found.columns}) == 1
    return [
        (name.decode("utf-8", "surrogateescape"), at, size, state)
        for name, _, at, size, state in zip(*found.columns, strict=True)
        if state not in {*IGNORED, LINKED}
    ]


def members_of_python(data: bytes) -> list[tuple[str, int, int]]:
    """Return the regular files that Python's tarfile finds."""
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        return [(each.name, each.offset_data, each.size) for each in archive if each.isreg()]


def fault_of(data: bytes, nbytes: int = 2048) -> SampleFormatError:
    """Return the fault of a tar."""
    chain = follow(data, nbytes)
    assert chain.fault is not None
    assert chain.fault.path == PATH
    assert chain.fault.offset is not None
    assert not chain.ended
    return chain.fault


# -- valid files ------------------------------------------------------------------------------------------------------


def run_tar(folder: Path, *words: str) -> bytes:
    """Return what GNU tar writes."""
    command = shutil.which("tar")
    if command is None:
        pytest.skip("the command tar is missing")
    version = subprocess.run([command, "--version"], capture_output=True, check=True).stdout
    if b"GNU tar" not in version:
        pytest.skip("the command tar is not GNU tar")
    run = subprocess.run([command, "-C", str(folder), "-cf", "-", *words], capture_output=True, check=True)
    return run.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with files, links, a sparse file and a long name."""
    root = tmp_path_factory.mktemp("files")
    (root / "b.jpg").write_bytes(b"b" * 700)
    (root / "empty.txt").write_bytes(b"")
    (root / "sub").mkdir()
    (root / "sub" / ("n" * 80 + ".json")).write_bytes(b"{}")
    (root / "link.jpg").symlink_to("b.jpg")
    os.link(root / "b.jpg", root / "hard.jpg")
    with (root / "holes.bin").open("wb") as file:
        for place in range(40):
            file.seek(place * 200_000)
            file.write(b"data")
    return root


@with_cases("style", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_members_are_those_of_gnu_tar(folder: Path, style: str) -> None:
    data = run_tar(folder, f"--format={style}", "--sort=name", ".")
    for nbytes in READS:
        found = members_of(follow(data, nbytes))
        assert [each[:3] for each in found] == members_of_python(data)
        assert "./sub/" + "n" * 80 + ".json" in [each[0] for each in found] or style == "v7"
        assert all(data[at : at + size] == b"b" * 700 for name, at, size, _ in found if name == "./b.jpg")


@with_cases(
    "options", ["oldgnu", "gnu", *(f"posix --sparse-version={each}" for each in ("0.0", "0.1", "1.0"))]
)
def test_a_sparse_file_is_known(folder: Path, options: str) -> None:
    data = run_tar(folder, "-S", *f"--format={options}".split(), "holes.bin", "empty.txt")
    for nbytes in READS:
        (holes, empty) = members_of(follow(data, nbytes))
        assert (holes[0], holes[3]) == ("holes.bin", HOLED)
        assert (empty[0], empty[2]) == ("empty.txt", 0)
        assert options[-3:] in ("0.0", "0.1") or data.count(b"data", holes[1], holes[1] + holes[2]) == 40


def test_a_long_name_of_gnu_tar_is_read(folder: Path) -> None:
    long = "x" * 300 + ".jpg"
    data = run_tar(folder, "--format=gnu", f"--transform=s/^b.jpg$/{long}/", "b.jpg", "empty.txt")
    (first, second) = members_of(follow(data))
    assert (first[0], first[3]) == (long, EXTENDED)
    assert (second[0], second[3]) == ("empty.txt", PLAIN)


@with_cases("name", [b"/etc/passwd", b"../../a.jpg", b"\xff\xfe.jpg", b"a\nb.jpg"])
def test_names_are_only_names(name: bytes) -> None:
    (found,) = members_of(follow(member(name, b"data") + END))
    assert found[0].encode("utf-8", "surrogateescape") == name


def test_links_and_devices_have_no_data() -> None:
    data = b"".join(header(b"x.jpg", 7 << 30, kind) for kind in (b"1", b"2", b"3", b"4", b"5", b"6"))
    chain = follow(data + member(b"a.jpg", b"data") + END)
    assert chain.members.states == [LINKED, SYMLINKED, SPECIAL, SPECIAL, FOLDER, SPECIAL, PLAIN]
    assert chain.members.sizes[0] == 0
    assert members_of(chain) == [("a.jpg", 7 * BLOCK, 4, PLAIN)]


def test_members_of_unknown_types_are_skipped_with_their_data() -> None:
    data = member(b"x.jpg", b"a" * 600, b"V") + member(b"a.jpg", b"data", b"7") + END
    assert members_of(follow(data)) == [("a.jpg", 4 * BLOCK, 4, PLAIN)]


def test_blocks_of_zeros_end_an_archive() -> None:
    assert members_of(follow(END)) == members_of(follow(bytes(10240))) == []
    one = member(b"a.jpg", b"data")
    for end in (bytes(BLOCK), END + b"garbage" * 1000, END + bytes(100)):
        assert len(members_of(follow(one + end))) == 1


def test_a_global_header_with_a_comment_changes_nothing() -> None:
    shared = pax(pax_record(b"comment", b"0123456789abcdef"), pax_record(b"mtime", b"1"), kind=b"g")
    data = member(b"a.jpg", b"data") + shared + member(b"b.jpg", b"data") + END
    assert [(each[0], each[3]) for each in members_of(follow(data))] == [("a.jpg", PLAIN), ("b.jpg", PLAIN)]


@pytest.mark.parametrize("record", [pax_record(b"path", b"c.jpg"), pax_record(b"size", b"4")])
def test_a_global_header_with_a_name_or_a_size_is_refused(record: bytes) -> None:
    fault = fault_of(member(b"a.jpg", b"data") + pax(record, kind=b"g") + member(b"b.jpg", b"data") + END)
    assert fault.offset == 2 * BLOCK
    assert "pack the files again" in fault.reason


def test_the_size_of_a_pax_header_counts() -> None:
    data = pax(pax_record(b"size", b"600")) + header(b"a.jpg", 0) + filled(b"a" * 600)
    data += member(b"b.jpg", b"data") + END
    assert members_of(follow(data)) == [
        ("a.jpg", 3 * BLOCK, 600, EXTENDED),
        ("b.jpg", 6 * BLOCK, 4, PLAIN),
    ]
    assert [each[:3] for each in members_of(follow(data))] == members_of_python(data)


def test_a_member_of_many_gigabytes_is_followed() -> None:
    tar = VirtualTar()
    tar.add(header(b"a.bin", size_field=b"\x80" + (9 << 30).to_bytes(11, "big")), 9 << 30)
    tar.add(header(b"b.jpg", 4), 4)
    tar.end()
    found = members_of(follow_reads(tar.read, tar.nbytes))
    assert found == [("a.bin", BLOCK, 9 << 30, PLAIN), ("b.jpg", (9 << 30) + 2 * BLOCK, 4, PLAIN)]


# -- damage -----------------------------------------------------------------------------------------------------------

VALID = (
    member(b"a.jpg", b"a" * 700)
    + member(b"a.cls", b"7")
    + member(b"././@LongLink", b"n" * 150 + b".jpg\0", b"L")
    + member(b"n" * 100, b"long")
    + pax(pax_record(b"path", b"p.jpg"))
    + member(b"p", b"pax")
    + END
)


@pytest.mark.parametrize("nbytes", READS)
def test_a_tar_that_is_cut_anywhere_is_refused(nbytes: int) -> None:
    whole = follow(VALID)
    assert len(members_of(whole)) == 4
    last = len(VALID) - len(END)
    for length in range(0, last + 1, 128):
        fault = fault_of(VALID[:length], nbytes)
        assert fault.offset is not None
        assert fault.offset <= length
        if length:
            assert "truncated" in fault.reason or "not a tar" in fault.reason
            assert "rite it again" in fault.reason or length < BLOCK
        else:
            assert "empty" in fault.reason
    for length in range(last + BLOCK, len(VALID) + 1, 256):
        assert len(members_of(follow(VALID[:length], nbytes))) == 4


def test_the_members_before_a_fault_are_kept() -> None:
    chain = follow(VALID[: 5 * BLOCK + 100])
    assert chain.members.names == [b"a.jpg", b"a.cls"]
    assert isinstance(chain.fault, SampleFormatError)
    assert chain.fault.offset == 5 * BLOCK
    assert chain.fault.found == f"{5 * BLOCK + 100} bytes"
    assert "(behind the member 'a.cls')" in str(chain.fault)


def test_a_cut_member_is_named() -> None:
    fault = fault_of(member(b"a.jpg", b"data") + header(b"b.jpg", 4000) + bytes(600))
    assert fault.key == "b.jpg"
    assert fault.offset == 2 * BLOCK
    assert (fault.expected, fault.found) == (f"{3 * BLOCK + 4096} bytes", f"{3 * BLOCK + 600} bytes")


def test_an_archive_without_an_end_is_refused() -> None:
    fault = fault_of(member(b"a.jpg", b"data"))
    assert fault.offset == 2 * BLOCK
    assert "head -c 1024 /dev/zero" in fault.reason


@with_cases(
    "field",
    [
        b"77777777777\0",
        b"\x80" + b"\xff" * 11,
        b"\xff" * 12,
    ],
)
@with_cases("kind", [b"0", b"7", b"S", b"V", b"L", b"x"])
@with_cases("before", [0, 8])
def test_a_lying_size_is_refused(field: bytes, kind: bytes, before: int) -> None:
    data = b"".join(member(b"%d.jpg" % number, b"data") for number in range(before))
    fault = fault_of(data + header(b"x.jpg", kind=kind, size_field=field) + bytes(BLOCK) + END)
    assert fault.offset == before * 2 * BLOCK


@with_cases("before", [1, 8, 600])
@with_cases("place", [0, 150, 511])
def test_an_edited_header_is_found(before: int, place: int) -> None:
    data = bytearray(b"".join(member(b"%d.jpg" % number, b"data") for number in range(before)))
    at = len(data)
    data += member(b"x.jpg", b"data")
    data[at + place] ^= 0x55
    data += b"".join(member(b"%d.jpg" % number, b"data") for number in range(8)) + END
    for nbytes in READS:
        fault = fault_of(bytes(data), nbytes)
        assert (fault.offset, fault.path) == (at, PATH)
        assert "copy or write it again" in fault.reason or "truncated" in fault.reason


def test_what_is_no_tar_names_the_remedy() -> None:
    magic = {"gzip": b"\x1f\x8b\x08", "Zstandard": b"\x28\xb5\x2f\xfd", "bzip2": b"BZh9", "xz": b"\xfd7zXZ\0"}
    for program, begin in magic.items():
        fault = fault_of(begin.ljust(2000, b"c"))
        assert fault.offset == 0
        assert program in fault.reason
        assert "decompress it once" in fault.reason
    assert "not a tar file" in fault_of(b"\xff\xd8\xff" * 1000).reason


def test_zeros_in_the_middle_are_a_fault() -> None:
    data = member(b"a.jpg", b"data") + bytes(3 * BLOCK) + member(b"b.jpg", b"data") + END
    fault = fault_of(data)
    assert fault.offset == 5 * BLOCK
    assert "tar --concatenate" in fault.reason


def test_a_file_whose_rest_is_zeros_is_incomplete() -> None:
    data = member(b"a.jpg", b"data") + bytes(1 << 20)
    assert len(members_of(follow(data))) == 1
    fault = fault_of(data + bytes(2 * BLOCK))
    assert fault.offset == 2 * BLOCK
    assert "interrupted" in fault.reason
    assert "'a.jpg'" in fault.reason


def test_tars_written_one_behind_the_other_are_refused() -> None:
    for blocking in (1, 20, 64, 2048):
        one = member(b"a.jpg", b"data") + END
        one = one.ljust(-(-len(one) // (blocking * BLOCK)) * blocking * BLOCK, b"\0")
        assert fault_of(one + one).offset == len(one)


def test_an_extended_header_without_a_member_is_a_fault() -> None:
    for data in (pax(pax_record(b"path", b"a")), member(b"././@LongLink", b"a\0", b"L")):
        assert "extended header" in fault_of(data + END).reason


def test_extended_headers_are_limited() -> None:
    fault = fault_of(header(b"x", MOST_EXTENDED_NBYTES + 1, b"x") + bytes(1 << 21) + END)
    assert "too long" in fault.reason
    half = member(b"x", pax_record(b"a", b"b" * (MOST_EXTENDED_NBYTES // 2)), b"x")
    fault = fault_of(half * 3 + member(b"a.jpg", b"data") + END)
    assert fault.offset == len(half)
    fault = fault_of(pax(pax_record(b"a", b"b")) * 1000 + member(b"a.jpg", b"data") + END)
    assert "64 headers" in str(fault)


def test_a_header_of_many_short_records_is_read() -> None:
    data = pax(b"5 a=\n" * 200_000) + member(b"a.jpg", b"data") + END
    assert [each[0] for each in members_of(follow(data))] == ["a.jpg"]


def test_the_map_of_a_sparse_file_is_limited() -> None:
    block = bytearray(header(b"a.bin", 4, b"S", magic=b"ustar  \0"))
    block[482] = 1
    endless = bytes(504) + b"\1" + bytes(7)
    fault = fault_of(checked(bytes(block)) + endless * 5000 + END)
    assert "map of a sparse file" in fault.reason
    fault = fault_of(checked(bytes(block)) + endless * 3)
    assert "truncated" in fault.reason


def test_a_size_that_lies_takes_no_memory() -> None:
    data = member(b"a.jpg", b"data") + header(b"b.jpg", (8 << 30) - 1) + END
    tracemalloc.start()
    try:
        fault_of(data)
        fault_of(member(b"a.jpg", b"data") + header(b"x", (8 << 30) - 1, b"x") + END)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()
