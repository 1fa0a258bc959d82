"""Tests of the large memory of what is sent to worker processes: files by name, other memory once, torch's shared."""

from __future__ import annotations

import gc
import mmap
import os
import pickle
from multiprocessing import shared_memory
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import DataLoader
from aioloader.executors.pickling import FilePlace, MappedFiles
from aioloader.executors.transport import LARGE, SentObject, SharedPlace, receive
from tests.aioloader.executors.test_memory_maps import rows
from tests.aioloader.loader.samples import Made

COUNT = 1 << 16
needs_table = pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="needs Linux's table of maps")


def sent(obj: Any) -> tuple[Any, list[Any]]:
    """Return an object after it was sent, and the places of its large memory."""
    source = SentObject(obj)
    copies = {fd: os.dup(fd) for fd in source.fds}
    places = [
        place._replace(fd=copies[place.fd]) if isinstance(place, SharedPlace) else place
        for place in source.places
    ]
    unused = copies.keys() - {place.fd for place in source.places if isinstance(place, SharedPlace)}
    received = receive(source.blob, places)
    for fd in unused:
        os.close(copies[fd])
    source.close()
    return received, source.places


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "values"
    np.arange(COUNT, dtype=np.int64).tofile(path)
    return path


def numbers() -> Any:
    return np.arange(COUNT, dtype=np.int64)


def mapped(path: Path, access: int) -> Any:
    with path.open("r+b") as file:
        return mmap.mmap(file.fileno(), 0, access=access)


def arrow(path: Path) -> Any:
    pa = pytest.importorskip("pyarrow", reason="needs pyarrow")
    table = pa.table({"number": numbers(), "text": [f"text {number}" for number in range(COUNT)]})
    at = path.with_suffix(".arrow")
    with pa.OSFile(str(at), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table, COUNT // 2)
    return pa.ipc.open_file(pa.memory_map(str(at))).read_all()


FILES: dict[str, Any] = {
    "map": lambda path: np.frombuffer(mapped(path, mmap.ACCESS_READ), np.int64),
    "part of a map": lambda path: np.frombuffer(mapped(path, mmap.ACCESS_READ), np.int64)[1000:-7],
    "copy on write": lambda path: np.memmap(path, np.int64, "c"),
    "private map": lambda path: np.frombuffer(mapped(path, mmap.ACCESS_COPY), np.int64),
    "arrow": arrow,
}


@needs_table
@pytest.mark.parametrize("name", FILES)
def test_memory_of_files_is_sent_by_name(path: Path, name: str) -> None:
    source = FILES[name](path)
    received, places = sent(source)
    assert places
    assert all(isinstance(place, FilePlace) for place in places)
    assert received.equals(source) if name == "arrow" else np.array_equal(received, source)
    assert type(received) is type(source)


@needs_table
@pytest.mark.parametrize("name", ["copy on write", "private map"])
def test_memory_that_differs_from_its_file_is_copied(path: Path, name: str) -> None:
    source = FILES[name](path)
    source[5] = -1
    received, places = sent(source)
    assert [type(place) for place in places] == [SharedPlace]
    assert received[5] == -1
    assert np.fromfile(path, np.int64)[5] == 5


@needs_table
@pytest.mark.parametrize("change", ["remove", "replace", "shorten"])
def test_memory_of_a_file_that_is_not_there_is_copied(path: Path, change: str) -> None:
    source = np.frombuffer(mapped(path, mmap.ACCESS_READ), np.int64)[:1000]
    source = np.frombuffer(source.base, np.int64)
    if change == "shorten":
        source = source[: COUNT // 2]
        with path.open("r+b") as file:
            file.truncate(COUNT * 4 + 8)
        assert isinstance(sent(source)[1][0], FilePlace)
        return
    path.unlink()
    if change == "replace":
        path.write_bytes(bytes(COUNT * 8))
    received, places = sent(source)
    assert [type(place) for place in places] == [SharedPlace]
    assert np.array_equal(received, numbers())


@needs_table
def test_writes_to_shared_memory_reach_it(path: Path) -> None:
    block = shared_memory.SharedMemory(create=True, size=COUNT * 8)
    try:
        for source in (
            np.frombuffer(block.buf, np.int64)[:COUNT],
            np.memmap(path, np.int64, "r+"),
            np.frombuffer(mapped(path, mmap.ACCESS_WRITE), np.int64),
        ):
            received, _ = sent(source)
            received[:] = 3
            assert (source == 3).all()
            del source, received
            gc.collect()
    finally:
        block.close()
        block.unlink()


@settings(max_examples=40, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3 * LARGE), st.booleans(), st.booleans()), max_size=6))
def test_any_arrays_come_back_equal(chosen: Any) -> None:
    rng = np.random.default_rng(len(chosen))
    source = []
    for nbytes, writable, again in chosen:
        array = rng.integers(0, 256, nbytes, np.uint8)
        array.flags.writeable = writable
        source += [array, array] if again else [array, array[::-2], array[1:]]
    received, places = sent(source)
    for one, other in zip(source, received, strict=True):
        assert np.array_equal(one, other)
    assert all(place.nbytes >= LARGE for place in places)
    assert [id(each) == id(source[0]) for each in source] == [
        id(each) == id(received[0]) for each in received
    ]
    for one, other in zip(source, received, strict=True):
        if one.flags.c_contiguous:
            assert one.flags.writeable == other.flags.writeable


def test_writes_of_one_worker_are_its_own() -> None:
    source = SentObject([numbers(), numbers() + 1])
    (fd,) = source.fds
    first, second = (
        receive(source.blob, [place._replace(fd=copy) for place in source.places])  # type: ignore[call-arg]
        for copy in (os.dup(fd), os.dup(fd))
    )
    first[0][:] = -1
    assert np.array_equal(second[0], numbers())
    assert np.array_equal(first[1], numbers() + 1)
    source.close()
    with pytest.raises(OSError, match="Bad file"):
        os.fstat(fd)


def test_without_room_the_memory_is_in_the_pickle(monkeypatch: pytest.MonkeyPatch) -> None:
    resource = pytest.importorskip("resource")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3 * LARGE, limits[1]))
    try:
        source = SentObject([np.full(2 * LARGE, 1, np.uint8), np.full(2 * LARGE, 2, np.uint8), b"x"])
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert len(source.places) == 1
    assert len(source.blob) > 2 * LARGE
    received = receive(source.blob, [place._replace(fd=os.dup(place.fd)) for place in source.places])  # type: ignore[union-attr, call-arg]
    source.close()
    assert [int(each[-1]) for each in received[:2]] == [1, 2]


@needs_table
def test_the_table_knows_only_maps_of_files(path: Path) -> None:
    files = MappedFiles()
    assert files.place_of(memoryview(numbers())) is None
    assert files.place_of(memoryview(b"")) is None
    assert files.place_of(memoryview(mmap.mmap(-1, 1 << 20))) is None


class Unpicklable(Made):
    def __getstate__(self) -> Any:
        raise TypeError("not this one")


@pytest.mark.own_workers
def test_descriptors_do_not_outlive_the_loader() -> None:
    before = psutil.Process().num_fds()
    values = np.arange(1 << 16).reshape(-1, 4)
    loader = DataLoader(rows(values), 1 << 12, num_workers=1, executor="process")
    for _ in range(2):
        assert sum(int(np.sum(batch)) for batch in loader) == values.sum()
    loader.close()
    del loader
    gc.collect()
    assert psutil.Process().num_fds() <= before
    with pytest.raises(TypeError, match="not this one"):
        SentObject([numbers(), Unpicklable(1, int)])
    assert psutil.Process().num_fds() <= before


class Private:
    """Dataset that returns how much memory of its own the worker has."""

    def __init__(self, values: Any) -> None:
        self.values = values

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        assert self.values.sum() == len(self.values)
        used = psutil.Process().memory_info()
        return used.rss - used.shared


@needs_table
@pytest.mark.own_workers
def test_a_large_array_is_in_memory_once() -> None:
    nbytes = 64 << 20
    small, large = Private(np.ones(1000, np.uint8)), Private(np.ones(nbytes, np.uint8))
    private = []
    for dataset in (small, large):
        with DataLoader(dataset, 1, num_workers=1, executor="process") as loader:
            private.append(max(int(each[0]) for each in loader))
    assert private[1] - private[0] < nbytes / 4
    assert len(cloudpickle.dumps(large)) > nbytes
    assert pickle.loads(pickle.dumps(small)).values.sum() == 1000
