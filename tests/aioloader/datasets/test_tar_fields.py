"""Tests of the fields of one sample of a tar, found by its headers alone."""

from __future__ import annotations

import pytest

from aioloader.datasets.tar_fields import TarFieldReader
from aioloader.errors import SampleFormatError
from aioloader.foundation.types import ItemLocation
from tests.aioloader.formats.tars import checked, filled, header, member

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
