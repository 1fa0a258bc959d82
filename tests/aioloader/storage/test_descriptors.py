"""Tests of open files: reads at an offset with and without the system's `pread`, files that are only dropped."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path

import pytest

from aioloader.storage.local.descriptors import Descriptors, open_regular, read_at


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


@pytest.mark.parametrize("flags", [0, getattr(os, "O_NOFOLLOW", 0)])
def test_files_that_python_collects_before_their_owner_are_closed_without_a_warning(
    tmp_path: Path, flags: int
) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"0123456789")
    held = Descriptors(4, flags)
    with held.borrow(0, str(path)) as fd:
        assert os.path.samestat(os.fstat(fd), path.stat())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del held
        gc.collect()
    assert caught == []
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)
