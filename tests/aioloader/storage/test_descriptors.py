"""Tests of reads at an offset: with and without the system's `pread`, up to the end of the file."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from aioloader.storage.local.descriptors import open_regular, read_at


@pytest.mark.parametrize("has_pread", [True, False])
@pytest.mark.parametrize(("offset", "nbytes"), [(0, 0), (0, 10), (3, 4), (8, 5), (10, 3), (99, 1)])
def test_the_bytes_from_an_offset_on_are_read(
    tmp_path: Path, offset: int, nbytes: int, has_pread: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not has_pread:
        for name in ("pread", "preadv"):
            monkeypatch.delattr(os, name, raising=False)
    data = b"0123456789"
    path = tmp_path / "a"
    path.write_bytes(data)
    descriptor = open_regular(str(path))
    try:
        found = read_at(descriptor, nbytes, offset)
    finally:
        os.close(descriptor)
    assert (found, type(found)) == (data[offset : offset + nbytes], bytes)
