"""Tests of records that need no work: without workers they are copied to memory, and their batches stay the same."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recordio
from aioloader import AsyncDataLoader, ConcatDataset, DataLoader, RecordFileDataset, SampleError
from aioloader.batchify import AsList
from aioloader.errors import BatchMemoryError
from aioloader.formats.recordio.decoding import RecordDecoder
from aioloader.mxnet.gluon import data as gluon
from aioloader.storage import LocalByteSource
from aioloader.storage.local import mapped
from tests.cases import with_cases

pytestmark = pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="files are copied on Linux only")

MAGIC = bytes.fromhex("0a23d7ce")
PAYLOADS = [bytes([k]) * (k * 37 % 900 + 1) for k in range(100)]
payload = st.binary(max_size=60) | st.lists(st.sampled_from([MAGIC, b"abcd", b"x"])).map(b"".join)


@pytest.fixture(autouse=True)
def _no_wait_for_the_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapped, "_TICK_NS", -(10**18))  # files are copied as soon as they were written


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that receives the number of records of every batch that is read."""
    found: list[int] = []
    read = LocalByteSource.plan_blocking

    def counted(self, spans):
        found.append(len(spans))
        return read(self, spans)

    monkeypatch.setattr(LocalByteSource, "plan_blocking", counted)
    return found


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "a.rec", PAYLOADS)


def write(path, payloads):
    with recordio.RecordWriter(path, index=True) as writer:
        for key, each in enumerate(payloads):
            writer.write(each, key)
    return path


class OneByOne(RecordDecoder):
    """Decoder of single records, whose samples are no payloads for all that the loader knows."""

    def __call__(self, data, extra, location):
        return super().__call__(data, extra, location)


class Read(RecordFileDataset):
    """Dataset of which every batch is read."""

    @property
    def decoder(self):
        return OneByOne()


def epochs(dataset, count=3, batch_size=8, **options):
    """Return the batches of some epochs."""
    options = {"shuffle": True, "seed": 3, "executor": "inline", "num_workers": 0, **options}
    with DataLoader(dataset, batch_size, **options) as it:
        return [list(it) for _ in range(count)]


def rewrite(path, offset, data):
    """Overwrite bytes of a file, so that its status shows it."""
    before = path.stat().st_ctime_ns
    while path.stat().st_ctime_ns == before:
        with open(path, "r+b") as file:
            file.seek(offset)
            file.write(data)


# -- the same batches --------------------------------------------------------------------------------------------------


@settings(max_examples=20)
@given(
    files=st.lists(st.lists(payload, min_size=1, max_size=20), min_size=1, max_size=3),
    batch_size=st.integers(1, 9),
    options=st.fixed_dictionaries(
        {},
        optional={
            "shuffle": st.just(False),
            "shard": st.just((1, 2)),
            "batchify_fn": st.just(AsList()),
            "last_batch": st.sampled_from(["discard", "rollover"]),
        },
    ),
)
def test_batches_are_those_of_an_executor_that_reads_all(tmp_path_factory, files, batch_size, options):
    folder = tmp_path_factory.mktemp("copies")
    paths = [write(folder / f"{number}.rec", payloads) for number, payloads in enumerate(files)]
    copied = epochs(RecordFileDataset(paths), 3, batch_size, **options)
    assert copied == epochs(Read(paths), 3, batch_size, **options)


def test_an_epoch_of_copies_reads_nothing(path, reads):
    with DataLoader(RecordFileDataset(path), 10, executor="inline") as loader:
        assert [each for batch in loader for each in batch] == PAYLOADS
        assert sum(reads) == 10  # the first batch was read, before the second one copied the file
        assert [each for batch in loader for each in batch] == PAYLOADS
        stats = loader.stats()
    assert sum(reads) == 10
    assert stats.memory_bytes >= path.stat().st_size
    assert stats.bytes_read == 2 * path.stat().st_size


async def test_the_async_loader_uses_them_too(path, reads):
    async with AsyncDataLoader(RecordFileDataset(path), 10, executor="inline", num_workers=0) as loader:
        for _ in range(2):
            assert [each async for batch in loader for each in batch] == PAYLOADS
    assert sum(reads) <= 10


def test_gluons_loader_uses_them_too(path, reads):
    loader = gluon.DataLoader(gluon.RecordFileDataset(str(path)), 10)
    for _ in range(2):
        assert [each for batch in loader for each in batch] == PAYLOADS
    assert sum(reads) == 10


def test_views_of_a_dataset_use_them_too(path, reads):
    dataset = RecordFileDataset(path).take(60).shard(2, 1)
    assert epochs(dataset, 1, 10, shuffle=False) == [[PAYLOADS[30:40], PAYLOADS[40:50], PAYLOADS[50:60]]]
    assert sum(reads) == 10


def test_a_state_within_an_epoch_is_taken_up(path):
    options = {"shuffle": True, "executor": "inline", "num_workers": 0}
    with DataLoader(RecordFileDataset(path), 8, **options) as loader:
        list(loader)
        batches = iter(loader)
        taken = [next(batches) for _ in range(5)]
        state = loader.state_dict()
        rest = list(batches)
    with DataLoader(RecordFileDataset(path), 8, **options) as loader:
        loader.load_state_dict(state)
        assert list(loader) == rest
        assert len(taken) + len(rest) == 13


def test_an_index_outside_is_refused(path):
    with DataLoader(RecordFileDataset(path), 2, sampler=[0, 1, 2, 3, 4, 100], executor="inline") as loader:
        batches = iter(loader)
        assert [next(batches), next(batches)] == [PAYLOADS[:2], PAYLOADS[2:4]]
        with pytest.raises(IndexError, match="100"):
            next(batches)


def test_what_is_no_payload_is_not_copied(path, reads):
    for dataset in (
        RecordFileDataset(path).transform(len),
        ConcatDataset([RecordFileDataset(path), RecordFileDataset(path)]),
        RecordFileDataset(path, cache="memory"),
    ):
        with DataLoader(dataset, 10, executor="inline") as loader:
            made = [each for batch in loader for each in batch]
            assert loader.stats().memory_bytes == 0
        assert len(made) == len(dataset)
    assert sum(reads) >= 300


# -- faults ------------------------------------------------------------------------------------------------------------


@with_cases("on_error", ["raise", "skip", "replace"])
@with_cases(
    "data",
    [
        b"none",
        b"\x0a\x23\xd7\xce\xff\xff\xff\x1f",
        b"\x0a\x23\xd7\xce\x01\0\0\0",
        b"\x0a\x23\xd7\xce\x01\0\0\x20",
    ],
)
def test_a_damaged_record_is_the_same_error(path, on_error, data):
    offset = int(RecordFileDataset(path).table.index.offsets[50])
    rewrite(path, offset, data)
    found = []
    options = {"on_error": on_error, **({} if on_error == "raise" else {"max_errors": None})}
    for dataset in (RecordFileDataset(path), Read(path)):
        made = []
        with DataLoader(dataset, 8, executor="inline", num_workers=0, **options) as it:
            for _ in range(2):
                batches = iter(it)
                try:
                    made += batches
                except SampleError as error:
                    made.append(str(error))
            failed = [
                (str(error).replace("Read", "RecordFileDataset"), error.replaced_by) for error in it.errors
            ]
            found.append(([str(each).replace("Read", "RecordFileDataset") for each in made], failed))
    assert found[0] == found[1]
    assert found[0][1]


def test_a_line_of_the_index_at_another_place_is_the_same_error(path):
    lines = Path(f"{path.with_suffix('.idx')}").read_text(encoding="utf-8").splitlines()
    key, offset = lines[20].split()
    lines[20] = f"{key}\t{int(offset) + 4}"
    path.with_suffix(".idx").write_text("\n".join(lines) + "\n", encoding="utf-8")
    options = {"on_error": "skip", "max_errors": None}
    copied = epochs(RecordFileDataset(path), **options)
    assert copied == epochs(Read(path), **options)
    assert sum(len(batch) for batch in copied[0]) == 99


def test_new_bytes_in_the_file_are_delivered(path, reads):
    offset = int(RecordFileDataset(path).table.index.offsets[70])
    with DataLoader(RecordFileDataset(path), 10, executor="inline") as loader:
        list(loader)
        rewrite(path, offset + 8, b"!")
        assert list(loader)[7][0] == b"!" + PAYLOADS[70][1:]
        assert loader.stats().memory_bytes == 0
    assert sum(reads) == 110


def test_a_file_that_is_cut_is_an_error_of_the_records_behind_the_cut(path):
    offset = int(RecordFileDataset(path).table.index.offsets[70])
    with DataLoader(
        RecordFileDataset(path), 10, executor="inline", on_error="skip", max_errors=None
    ) as loader:
        list(loader)
        os.truncate(path, offset)
        assert [each for batch in loader for each in batch] == PAYLOADS[:70]
        assert [error.index for error in loader.errors] == list(range(70, 100))
        assert all("ends inside this record" in str(error) for error in loader.errors)


PROGRAM = """
import os, random, sys
import aioloader
from aioloader.storage.local import mapped
import recordio

mapped._TICK_NS = 0
path, rounds = sys.argv[1], int(sys.argv[2])
for number in range(rounds):
    with recordio.RecordWriter(path, index=True) as writer:
        for key in range(3000):
            writer.write(bytes([key % 256]) * 1000, key)
    size = os.path.getsize(path)
    read, write = os.pipe()
    child = os.fork()
    if not child:  # cuts the file while the other process reads it
        os.read(read, 1)
        os.truncate(path, random.Random(number).randrange(0, size, 4))
        os._exit(0)
    begin = random.Random(number).randrange(1, 60)
    dataset = aioloader.RecordFileDataset(path)
    try:
        with aioloader.DataLoader(dataset, 64, shuffle=True, executor="inline", num_workers=0) as loader:
            for batch in (batch for _ in range(100_000) for batch in loader):
                begin -= 1
                if begin == 0:
                    os.write(write, b".")
                for record in batch:
                    assert len(record) == 1000 and record.count(record[0]) == 1000
    except aioloader.SampleError as error:
        assert type(error.__cause__) is recordio.TruncatedRecordError, error
        assert error.path == path and error.offset is not None, error
        print("named", flush=True)
    os.waitpid(child, 0)
    os.close(read), os.close(write)
"""


@pytest.mark.parametrize("rounds", [5, pytest.param(200, marks=pytest.mark.slow)])
def test_a_file_that_is_cut_while_it_is_read_is_a_named_error(tmp_path, rounds):
    command = [sys.executable, "-W", "error", "-c", PROGRAM, str(tmp_path / "a.rec"), str(rounds)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "named\n" * rounds, "")


# -- memory and the system ---------------------------------------------------------------------------------------------


def test_batches_that_need_the_memory_get_it(tmp_path):
    path = write(tmp_path / "a.rec", [bytes(1000)] * 500)
    most = 500 * 1008
    limit = 8 * (path.stat().st_size + 4096)
    with DataLoader(RecordFileDataset(path), 100, executor="inline", memory_limit=limit) as loader:
        list(loader)
        memory = loader._runtime.open().memory
        assert memory.used >= path.stat().st_size
        taken = memory.allocate(memory.limit - memory.used)
        assert taken is not None
        other = memory.allocate(most)  # the copies give way
        assert other is not None
        memory.free(other)
        memory.free(taken)
        assert memory.usage()[0] == 0
        assert len(list(loader)) == 5


def test_memory_is_never_taken_beyond_its_limit(tmp_path):
    path = write(tmp_path / "a.rec", [bytes(1000)] * 500)
    with DataLoader(RecordFileDataset(path), 5, executor="inline", memory_limit=1 << 20) as loader:
        assert sum(map(len, loader)) == 500
        assert loader.stats().memory_peak_bytes < path.stat().st_size
    with DataLoader(RecordFileDataset(path), 500, executor="inline", memory_limit=4096) as loader:
        with pytest.raises(BatchMemoryError):
            list(loader)


def test_long_records_are_read(tmp_path, reads):
    path = write(tmp_path / "a.rec", [bytes(50_000)] * 20)
    assert len(epochs(RecordFileDataset(path), 2, 5)[1]) == 4
    assert sum(reads) == 40


@settings(max_examples=10)
@given(data=st.data())
def test_a_file_of_which_a_part_is_in_memory_is_copied_as_it_comes(tmp_path_factory, data):
    path = write(tmp_path_factory.mktemp("copies") / "a.rec", PAYLOADS)
    real = os.preadv

    def some(fd, buffers, offset, flags=0):
        if not flags:
            return real(fd, buffers, offset)
        (out,) = buffers
        kept = data.draw(st.integers(-1, 1) | st.integers(0, len(out)))
        if kept < 0:
            raise BlockingIOError(errno.EAGAIN, "not in memory")
        return real(fd, [out[: max(kept, 1)]], offset)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(mapped, "_PIECE_NBYTES", data.draw(st.integers(1000, 30_000)))
        patch.setattr(os, "preadv", some)
        copied = epochs(RecordFileDataset(path), 4)
    assert copied == epochs(Read(path), 4)


def test_a_file_system_without_such_reads_is_read_as_always(path, monkeypatch, reads):
    real = os.preadv

    def refused(fd, buffers, offset, flags=0):
        if flags:
            raise OSError(errno.EOPNOTSUPP, "not supported")
        return real(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", refused)
    assert len(epochs(RecordFileDataset(path), 2, 10)) == 2
    assert sum(reads) == 200


def test_a_file_that_was_written_a_moment_ago_is_not_copied_yet(path, monkeypatch, reads):
    monkeypatch.setattr(mapped, "_TICK_NS", 10**18)
    assert len(epochs(RecordFileDataset(path), 2, 10)) == 2
    assert sum(reads) == 200


def test_closing_releases_files_and_memory(path):
    def opened():
        return sorted(
            os.readlink(f"/proc/self/fd/{fd}")
            for fd in os.listdir("/proc/self/fd")
            if int(fd) > 2 and os.path.exists(f"/proc/self/fd/{fd}")
        )

    before = opened()
    with closing(DataLoader(RecordFileDataset(path), 10, executor="inline")) as loader:
        list(loader)
        assert str(path) in opened()
    assert opened() == before
    assert np.isfinite(loader.stats().memory_bytes)
