"""Tests of the fields of one sample of a tar, found by its headers alone."""

from __future__ import annotations

import io
import re
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.errors import SampleFormatError
from aioloader.formats.tar import samples as tar_samples
from aioloader.formats.tar.fields import TarFieldReader, compact_places, stored_places
from aioloader.formats.tar.samples import group_members, samples_of_arrays
from aioloader.foundation.types import ItemLocation
from tests.aioloader.formats.tars import END, PATH, checked, filled, follow, header, member, read_sample

LOCATION = ItemLocation("a", "a.tar", 0)


def sparse(name: bytes) -> bytes:
    """Return a sparse file of GNU tar, whose map has a second block."""
    block = bytearray(header(name, 4, b"S", magic=b"ustar  \0"))
    block[482] = 1
    return checked(bytes(block)) + bytes(512) + filled(b"data")


@pytest.mark.parametrize("last", [b"", member(b"a.cls", b"7")[:513]])
def test_a_sparse_member_is_named_in_samples_of_a_few_bytes(last: bytes) -> None:
    data = memoryview((sparse(b"a.bin") + last) if last else sparse(b"a.bin")[:1028])
    reader = TarFieldReader(())
    assert reader.names(data, None, LOCATION) == (("bin", "cls") if last else ("bin",))
    with pytest.raises(SampleFormatError, match="sparse file") as caught:
        reader.read(data, None, LOCATION, ("bin",))
    assert caught.value.key == "a"


@pytest.mark.parametrize("nbytes", [1, 511, 512, 1023, 1030])
def test_bytes_of_another_file_are_not_a_sample(nbytes: int) -> None:
    reader = TarFieldReader(())
    with pytest.raises(SampleFormatError, match="not a sample of a tar"):
        reader.names(memoryview(b"\xff" * nbytes), None, LOCATION)
    two = member(b"a.cls", b"7") + member(b"b.cls", b"7")
    with pytest.raises(SampleFormatError, match="not a sample of a tar"):
        reader.names(memoryview(two), None, LOCATION)


# -- hard links --------------------------------------------------------------------------------------------------------

STYLES = {"ustar": tarfile.USTAR_FORMAT, "gnu": tarfile.GNU_FORMAT, "pax": tarfile.PAX_FORMAT}
NAMES = ("a.x", "a.y", "./b.x", "README", f"{'n' * 120}.x", "\xe4.y")
FILE, LINK, SYMLINK, FOLDER = tarfile.REGTYPE, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE
entries = st.tuples(
    st.sampled_from(NAMES),
    st.sampled_from([FILE] * 4 + [LINK] * 4 + [SYMLINK, FOLDER]),
    st.sampled_from(["", "", "./", "other/../"]),
    st.sampled_from(NAMES),
)


def samples_of_python(data: bytes) -> list[tuple[str, dict[str, bytes | None]]]:
    """Return the samples that Python's tarfile reads: None for a field that it cannot read, or that is there twice."""
    found: list[tuple[str, dict[str, bytes | None]]] = []
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        for each in archive.getmembers():
            key, dot, extension = each.name.removeprefix("./").partition(".")
            if not dot or not (each.isreg() or each.islnk()):
                continue
            key = each.name.removesuffix(f".{extension}")
            try:
                file = archive.extractfile(each)
                value = None if file is None else file.read()
            except KeyError:
                value = None
            if not found or found[-1][0] != key:
                found.append((key, {}))
            fields = found[-1][1]
            fields[extension] = None if extension in fields else value
    return found


def value_of(reader: TarFieldReader, data: memoryview, extra: Any, key: str, name: str) -> bytes | None:
    """Return a field; None if it is a hard link that cannot be read, or is there twice."""
    try:
        (value,) = reader.read(data, extra, ItemLocation(key, PATH, 0), (name,))
    except SampleFormatError as error:
        assert re.search("is a hard link to a member that cannot be read|is there more than once", str(error))
        assert error.key == key
        return None
    return bytes(value)


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(entries, min_size=2, max_size=20), st.sampled_from(list(STYLES)), st.integers(0, 1300))
def test_hard_links_are_read_as_by_python(
    made: list[tuple[str, bytes, str, str]], style: str, nbytes: int
) -> None:
    stream = io.BytesIO()
    with tarfile.open(fileobj=stream, mode="w", format=STYLES[style]) as archive:
        for number, (name, kind, prefix, target) in enumerate(made):
            info = tarfile.TarInfo(name)
            info.type = kind
            info.linkname = {LINK: prefix + target, SYMLINK: "absent"}.get(kind, "")
            content = bytes([number]) * (number and 1 + number * nbytes % 1300)
            info.size = len(content) if kind == FILE else 0
            try:
                archive.addfile(info, io.BytesIO(content))
            except ValueError:
                assert style == "ustar"  # a name that is too long
    data = stream.getvalue()
    samples = group_members(follow(data).members)
    again = samples_of_arrays(samples._asdict())
    assert again is not None
    by_index, by_headers = TarFieldReader(("x", "y")), TarFieldReader(())
    extras, stored = compact_places(again, by_index.groups), stored_places(again, by_index.groups)
    wanted = samples_of_python(data)
    assert len(samples) == len(wanted)
    for row, (key, fields) in enumerate(wanted):
        found = read_sample(again, row, data)
        assert by_headers.names(found, None, ItemLocation(key, PATH, 0)) == tuple(fields)
        for column, name in enumerate(("x", "y")):
            if name not in fields:
                continue
            value = fields[name]
            assert value_of(by_index, found, extras[row], key, name) == value
            assert value_of(by_headers, found, None, key, name) == value
            if value is not None:
                assert data[stored[row, column] :][: len(value)] == value


def test_links_that_multiply_the_data_are_errors(monkeypatch: pytest.MonkeyPatch) -> None:
    data = member(b"a.x", b"1" * 5000)
    data += b"".join(header(b"b.%d" % number, kind=b"1", link=b"a.x") for number in range(3)) + END
    samples = group_members(follow(data).members)
    assert samples.read_length.tolist() == [5512, 3 * 512 + 2 * 5120 + 5000]
    monkeypatch.setattr(tar_samples, "_MOST_REPEATED_NBYTES", 2 * 5120)
    samples = group_members(follow(data).members)
    assert samples.read_length.tolist() == samples.length.tolist() == [5512, 3 * 512]
    reader, found = TarFieldReader(("0", "1")), read_sample(samples, 1, data)
    extras = compact_places(samples, reader.groups)
    for name in ("0", "1", "2"):
        assert value_of(reader, found, extras[1], "b", name) is None
