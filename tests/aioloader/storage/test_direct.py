"""Tests of reads past the page cache: the same bytes, and a fallback to ordinary reads."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioloader import ImageRecordDataset, RecordFileDataset
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.mapped import cached_pages
from aioloader.storage.local.source import BLOCK, DirectReads, LocalByteSource
from recordio import RecordWriter

NBYTES = 20 * BLOCK + 123


@pytest.fixture(scope="module")
def big(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a file to the disk, not only to memory, if the temporary folder is on a disk."""
    path = tmp_path_factory.mktemp("direct") / "a.bin"
    path.write_bytes(np.random.RandomState(0).bytes(NBYTES))
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return path


def _reads_directly(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDONLY | os.O_DIRECT))
    except (OSError, AttributeError):
        return False
    return KernelAioReader().available


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=40)
@given(st.lists(st.tuples(st.integers(0, NBYTES + 5000), st.integers(1, 3 * BLOCK)), min_size=1, max_size=12))
def test_any_stretches_are_those_of_the_file(big: Path, stretches: list[tuple[int, int]]) -> None:
    if not _reads_directly(big):
        pytest.skip("no direct reads here")
    content = big.read_bytes()
    offset, nbytes = np.array(stretches, np.int64).T
    place = np.cumsum(nbytes + 3) - nbytes
    out = memoryview(bytearray(int((nbytes + 3).sum()) + 3))
    kernel_aio = KernelAioReader()
    reads = DirectReads(kernel_aio)
    got = reads.read(str(big), np.stack((offset * 0, offset, nbytes, place), axis=1), out)
    reads.close()
    kernel_aio.close()
    for at, size, to, count in zip(offset, nbytes, place, got, strict=True):
        expected = content[at : at + size]
        assert max(0, count) == len(expected)
        assert out[to : to + len(expected)] == expected


def _records(path: Path, count: int = 30) -> list[bytes]:
    payloads = [np.random.RandomState(number).bytes(100 + 997 * number) for number in range(count)]
    with RecordWriter(path, path.with_suffix(".idx")) as writer:
        for number, payload in enumerate(payloads):
            writer.write(payload, number)
    with path.open("rb") as file:
        os.fsync(file.fileno())
    return payloads


def test_a_dataset_read_directly_has_the_same_records(tmp_path: Path, leftovers: Any) -> None:
    path = tmp_path / "a.rec"
    payloads = _records(path)
    dataset = RecordFileDataset(path, direct=True)
    source = dataset.open_source()
    assert isinstance(source, LocalByteSource)
    source = pickle.loads(pickle.dumps(source))
    assert source.direct
    places = np.random.RandomState(1).permutation(len(payloads))
    plan = source.plan_blocking(dataset.spans(places))
    out = memoryview(bytearray(plan.nbytes))
    assert source.read_blocking(plan, out) == []
    for place, start in zip(places.tolist(), plan.start.tolist(), strict=True):
        assert out[start + 8 : start + 8 + len(payloads[place])] == payloads[place]
    source.close()


def test_direct_reads_leave_the_page_cache_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    payloads = _records(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        before = cached_pages(fd)
        if not _reads_directly(path) or before is None or before > 2:
            pytest.skip("this file system has no direct reads, or does not report resident pages")
        dataset = RecordFileDataset(path, direct=True)
        source: Any = dataset.open_source()
        plan = source.plan_blocking(dataset.spans(np.arange(5, 25)))
        assert source.read_blocking(plan, memoryview(bytearray(plan.nbytes))) == []
        after = cached_pages(fd)
        assert after is not None
        assert after <= before + 2
        source.close()
    finally:
        os.close(fd)
    assert dataset[7] == payloads[7]


def test_a_file_system_without_direct_reads_is_read_in_the_ordinary_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "a.rec"
    payloads = _records(path, 3)
    real = os.open

    def refuse(name: Any, flags: int, *rest: Any) -> int:
        if flags & getattr(os, "O_DIRECT", 0):
            raise OSError(22, "Invalid argument", name)  # what tmpfs answered before Linux 6.6
        return real(name, flags, *rest)

    monkeypatch.setattr(os, "open", refuse)
    dataset = RecordFileDataset(path, direct=True)
    assert [dataset[number] for number in range(3)] == payloads
    assert caplog.text.count("no direct reads") == (KernelAioReader().available and hasattr(os, "O_DIRECT"))


def test_a_damaged_index_is_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "a.rec"
    _records(path, 3)
    path.with_suffix(".idx").write_text("0\t0\n1\t4\n2\t99999999\n")
    for number in (1, 2):
        errors = []
        for direct in (False, True):
            with pytest.raises((ValueError, EOFError)) as caught:
                _ = RecordFileDataset(path, direct=direct)[number]
            errors.append(str(caught.value))
        assert errors[0] == errors[1]


def test_they_are_for_local_files() -> None:
    with pytest.raises(ValueError, match="is for local files"):
        ImageRecordDataset("https://example.org/a.rec", direct=True)
