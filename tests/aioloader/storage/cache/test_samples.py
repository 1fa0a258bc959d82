"""Tests of the file of kept samples: damaged, cut, deleted or locked at any moment, it never has a wrong sample."""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import gc
import math
import os
import pickle
import random
import signal
import subprocess
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from aioloader import SampleCacheWarning
from aioloader.foundation.pytree import flatten
from aioloader.storage.cache import samples
from aioloader.storage.cache.samples import MISSING, SampleFile, new_memory_file

COUNT = 24
IDENTITIES = np.arange(COUNT, dtype=np.uint64) + 5


def sample(item: int) -> Any:
    return np.full((20 + item, 30, 3), item, np.uint8), item


def opened(folder: Any, limit: int = 1 << 20, count: int = COUNT) -> SampleFile:
    return SampleFile.in_folder(
        str(folder), name="a", version="1", identities=IDENTITIES[:count], limit=limit
    )


def in_memory(limit: int = 1 << 20) -> SampleFile:
    return SampleFile.in_memory(new_memory_file(), items=COUNT, limit=limit)


def filled(file: SampleFile, items: Any = range(COUNT)) -> SampleFile:
    for item in items:
        file.get(item, int(IDENTITIES[item]), lambda item=item: sample(item))
    return file


def assert_right(file: SampleFile) -> int:
    """Fail if a sample is found that is not that of its item; return the number of those that are found."""
    count = 0
    for item in range(COUNT):
        found = file.find(item, int(IDENTITIES[item]))
        if found is not MISSING:
            np.testing.assert_array_equal(found[0], sample(item)[0])
            assert found[1] == item
            count += 1
    return count


def only_file(folder: Path) -> Path:
    (path,) = (path for path in folder.iterdir() if path.suffix != ".lock")
    return path


@contextlib.contextmanager
def any_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", SampleCacheWarning)
        yield


# -- kinds of samples --------------------------------------------------------------------------------------------------


class Pair(NamedTuple):
    image: Any
    label: Any


@dataclasses.dataclass
class Item:
    image: Any
    others: list[Any]


STRUCTURED = np.zeros(3, [("a", "<i4"), ("b", "<f8", (2,)), ("c", "S3")])
KINDS: dict[str, Any] = {
    "none": None,
    "text": "a\udc80",
    "empty tuple": (),
    "tuple of none": (None, None),
    "image of one channel": np.zeros((4, 5, 1), np.uint8),
    "image alone in a tuple": (np.ones((4, 5, 3), np.uint8),),
    "named tuple": Pair(np.ones((4, 5, 3), np.uint8), 3),
    "dataclass": Item(np.ones((4, 5), np.float32), [np.arange(5), None]),
    "dict": {"image": np.ones((4, 5, 3), np.uint8)[:, ::-1], "text": ["a", b"b"]},
    "transposed": np.arange(60, dtype=np.float32).reshape(3, 4, 5).transpose(1, 2, 0),
    "fortran": (np.asfortranarray(np.arange(20.0).reshape(4, 5)), 1),
    "transposed pixels": (np.arange(60, dtype=np.uint8).reshape(3, 4, 5).transpose(1, 2, 0), 1),
    "cut": (np.arange(60, dtype=np.uint8).reshape(4, 5, 3)[1:3, ::2], 1),
    "turned round": np.arange(60.0).reshape(4, 5, 3)[::-1, :, ::-1],
    "broadcast": np.broadcast_to(np.float32(3), (4, 5)),
    "empty arrays": (np.empty((0, 5, 3), np.uint8), np.empty((3, 0)).T, np.empty(0, object)),
    "objects": (np.array([1, "a", None], object), np.array([[1, "a"]], object).T),
    "structured": (STRUCTURED, STRUCTURED[::2]),
    "times": np.array(["2020-01-01", "NaT"], "M8[D]")[::-1],
    "texts": np.array(["a", "bcd"]),
    "scalars": (
        np.float16(3),
        np.datetime64("2020-01-01"),
        np.bool_(True),
        1 << 200,
        math.inf,
        datetime.date.min,
    ),
    "0-d": np.array(4.0),
    "masked": np.ma.masked_array([1, 2], [True, False]),
    "big-endian": np.arange(4, dtype=">f4"),
    "nested": {"a": [np.arange(60.0).reshape(3, 4, 5).transpose(1, 2, 0)], "b": np.ones((4, 5), order="F")},
    "deep": [[[(np.arange(3),)]], {"a": bytearray(b"12")}],
    "large": (np.arange(1 << 18, dtype=np.uint8).reshape(512, 512, 1), b"0" * 100_000),
}


@pytest.mark.parametrize("place", ["memory", "files"])
@pytest.mark.parametrize("kind", KINDS)
def test_samples_of_any_kind_are_found_as_they_were(kind: str, place: str, tmp_path: Path) -> None:
    file = in_memory(1 << 21) if place == "memory" else opened(tmp_path, 1 << 21)
    file.get(0, 5, lambda: KINDS[kind])
    for own in (False, True):
        found = file.find(0, 5, own=own, own_image=own)
        assert found is not MISSING
        assert repr(found) == repr(KINDS[kind])
        for leaf, other in zip(flatten(found)[1], flatten(KINDS[kind])[1], strict=True):
            assert type(leaf) is type(other)
            if isinstance(leaf, np.ndarray):
                assert leaf.dtype == other.dtype
                np.testing.assert_array_equal(leaf, other)
                assert leaf.flags.writeable or not own
                if leaf.ndim and leaf.size:
                    assert np.argsort(np.abs(leaf.strides)).tolist() == np.argsort(
                        np.abs(other.strides)
                    ).tolist() or (0 in other.strides)


def test_objects_of_torch_and_pillow_are_kept() -> None:
    torch, image = pytest.importorskip("torch"), pytest.importorskip("PIL.Image")
    file = in_memory()
    given = torch.arange(12.0).reshape(3, 4).T, image.fromarray(sample(3)[0])
    file.get(0, 5, lambda: given)
    found = file.find(0, 5, own=True, own_image=True)
    assert torch.equal(found[0], given[0])
    assert found[1].tobytes() == given[1].tobytes()
    found[0].zero_()
    assert torch.equal(file.find(0, 5)[0], given[0])


def test_what_cannot_be_pickled_is_made_each_time() -> None:
    file = in_memory()
    with pytest.warns(SampleCacheWarning, match="cannot be kept: .*pickle"):
        assert callable(file.get(0, 5, lambda: lambda: 0))
    assert file.find(0, 5) is MISSING
    assert not file.adds(1)


class Vanishing:
    """An object that cannot be unpickled."""

    def __reduce__(self) -> Any:
        return int, ("x",)


def test_what_cannot_be_unpickled_is_made_anew() -> None:
    file = in_memory()
    file.get(0, 5, Vanishing)
    with pytest.warns(SampleCacheWarning, match="ValueError"):
        assert isinstance(file.get(0, 5, Vanishing), Vanishing)
    assert file.find(0, 5) is MISSING


# -- damage ------------------------------------------------------------------------------------------------------------


def damages(count: int, seed: int) -> Iterator[tuple[str, Callable[[Path], None]]]:
    """Iterate over ways to damage a file: flips everywhere, and cuts."""
    rng = random.Random(seed)
    for _ in range(count):
        kind = rng.choice(
            ["header", "table", "sample", "samples", "cut", "cut to nothing", "zeros", "replaced"]
        )
        yield kind, partial(damage, kind=kind, rng=random.Random(rng.random()))


def damage(path: Path, kind: str, rng: random.Random) -> None:
    size = path.stat().st_size
    table_end = 4096 + 32 * COUNT
    start, end = {
        "header": (0, 100),
        "table": (4096, table_end),
        "sample": (table_end, table_end + 10_000),
        "samples": (table_end, size),
    }.get(kind, (0, size))
    if kind == "cut":
        os.truncate(
            path, rng.choice([rng.randrange(size), rng.randrange(100), rng.randrange(table_end), 4096])
        )
    elif kind == "cut to nothing":
        os.truncate(path, 0)
    elif kind == "zeros":
        length = rng.randrange(size)
        os.truncate(path, length)
        os.truncate(path, size)
    elif kind == "replaced":
        path.write_bytes(rng.randbytes(size))
    else:
        with path.open("r+b") as file:
            for _ in range(rng.choice([1, 1, 40])):
                place = rng.randrange(start, max(min(end, size), start + 1))
                file.seek(place)
                old = file.read(1)
                file.seek(place)
                file.write(bytes([(old or b"\0")[0] ^ (1 << rng.randrange(8))]))


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_damage_between_runs_costs_samples_only(tmp_path: Path, count: int) -> None:
    filled(opened(tmp_path))
    whole = only_file(tmp_path).read_bytes()
    with any_warnings():
        for _, each in damages(count, 1):
            only_file(tmp_path).write_bytes(whole)
            each(only_file(tmp_path))
            file = opened(tmp_path)
            assert_right(file)
            assert_right(filled(file))
            assert_right(opened(tmp_path))


# Before a sample is first used any byte may change; later only what is not a byte of a sample.
@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_damage_to_an_open_file_costs_samples_only(tmp_path: Path, count: int) -> None:
    with any_warnings():
        for number, (kind, each) in enumerate(damages(count, 2)):
            folder = tmp_path / str(number)
            file = filled(opened(folder), range(0, COUNT, 2))
            copy = pickle.loads(pickle.dumps(file))
            if kind not in ("sample", "samples", "replaced"):
                assert assert_right(file) == assert_right(copy) == COUNT // 2
            each(only_file(folder))
            file.kept(np.arange(COUNT), IDENTITIES)
            for which in (copy, file, pickle.loads(pickle.dumps(file)), file):
                assert_right(which)
                filled(which)
                assert_right(which)
            assert file.count <= COUNT
            assert file.nbytes >= 0


def test_a_cut_while_a_sample_is_written_does_not_change_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file grows again, with zeros where samples were that have been checked."""
    file = filled(opened(tmp_path), range(12))
    assert assert_right(file) == 12
    write = os.pwritev

    def cut_first(fd: int, parts: Any, offset: int) -> int:
        os.truncate(only_file(tmp_path), 4096 + 32 * COUNT + 3000)
        return write(fd, parts, offset)

    monkeypatch.setattr(os, "pwritev", cut_first)
    filled(file, [12])
    monkeypatch.undo()
    with any_warnings():
        assert_right(filled(file))


@pytest.mark.parametrize("name", ["pread", "preadv"])
def test_a_disk_that_cannot_be_read_costs_samples_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    file = filled(opened(tmp_path))

    def bad(*args: Any) -> Any:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(os, name, bad)
    with pytest.warns(SampleCacheWarning, match="Input/output error"):
        assert file.get(3, 8, lambda: "made") == "made"
    assert file.count in (0, COUNT - 1)
    assert file.kept(np.arange(COUNT), IDENTITIES).sum() in (0, COUNT - 1)


def test_two_writers_see_each_other_though_the_name_has_another_file(tmp_path: Path) -> None:
    """A thread must not take room in one file and write to another."""
    first = filled(opened(tmp_path), range(6))
    only_file(tmp_path).unlink()
    second = filled(opened(tmp_path), range(COUNT))
    assert assert_right(second) == COUNT
    thread = threading.Thread(target=filled, args=(first,))
    thread.start()
    thread.join()
    assert assert_right(first) == assert_right(second) == COUNT


def test_a_copy_of_a_deleted_file_is_the_same_file(tmp_path: Path) -> None:
    file = filled(opened(tmp_path), range(6))
    only_file(tmp_path).unlink()
    assert assert_right(pickle.loads(pickle.dumps(file))) == 6


def test_a_copy_of_a_file_that_is_gone_keeps_nothing(tmp_path: Path) -> None:
    state = pickle.dumps(filled(opened(tmp_path)))
    gc.collect()
    only_file(tmp_path).unlink()
    with pytest.warns(SampleCacheWarning, match="no samples are kept"):
        copy = pickle.loads(state)
    assert assert_right(filled(copy)) == 0
    assert not copy.kept(np.arange(COUNT), IDENTITIES).any()


# -- other processes ---------------------------------------------------------------------------------------------------

HOLD = """
    import sys, time
    from tests.aioloader.storage.cache.test_samples import opened, sample

    def make():
        print("making", flush=True)
        time.sleep(1000)

    opened(sys.argv[1]).get(3, 8, make)
"""


@contextlib.contextmanager
def holder(folder: Path, code: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Return a context with a process that is making item 3, or does something else."""
    code = textwrap.dedent(code)
    with subprocess.Popen([sys.executable, "-c", code, folder], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "making\n"
            yield process
        finally:
            process.kill()


def test_the_claim_of_a_killed_process_ends(tmp_path: Path) -> None:
    file = opened(tmp_path)
    with holder(tmp_path) as process:
        process.kill()
        process.wait()
        filled(file)
    assert assert_right(file) == COUNT


def test_the_claim_of_a_stopped_process_is_waited_for_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = opened(tmp_path)
    monkeypatch.setattr(samples, "_PATIENCE_S", 0.05)
    with holder(tmp_path) as process:
        process.send_signal(signal.SIGSTOP)
        with pytest.warns(SampleCacheWarning, match="does not go on"):
            filled(file)
        assert assert_right(file) == COUNT - 1
        monkeypatch.setattr(samples, "_PATIENCE_S", math.inf)  # nobody waits again
        assert np.array_equal(opened(tmp_path).get(3, 8, lambda: sample(3))[0], sample(3)[0])


HOLD_HEADER = """
    import sys, time
    from aioloader.storage.cache import samples
    from tests.aioloader.storage.cache.test_samples import opened

    file = opened(sys.argv[1])
    with samples._locked(file._own_fd(), samples._HEADER_LOCK):
        print("making", flush=True)
        time.sleep(1000)
"""


def test_a_process_that_is_stopped_in_the_header_is_waited_for_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, other = opened(tmp_path), opened(tmp_path)
    with holder(tmp_path, HOLD_HEADER) as process:
        process.send_signal(signal.SIGSTOP)
        monkeypatch.setattr(samples, "_PATIENCE_S", 0.05)
        with pytest.warns(SampleCacheWarning, match="changes the file does not go on"):
            filled(file, [0])
        monkeypatch.setattr(samples, "_PATIENCE_S", math.inf)
        assert_right(filled(other))
    assert_right(filled(opened(tmp_path)))


# -- limits ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("place", ["memory", "files"])
def test_a_limit_below_the_table_or_a_sample_keeps_nothing(place: str, tmp_path: Path) -> None:
    def made(limit: int) -> SampleFile:
        return in_memory(limit) if place == "memory" else opened(tmp_path, limit)

    with pytest.warns(SampleCacheWarning, match="of the table"):
        assert assert_right(filled(made(100))) == 0
    assert list(tmp_path.iterdir()) == []
    assert assert_right(filled(made(6000))) == 0


@pytest.mark.parametrize("place", ["memory", "files"])
def test_a_sample_larger_than_the_rest_leaves_room_for_others(place: str, tmp_path: Path) -> None:
    file = in_memory(100_000) if place == "memory" else opened(tmp_path, 100_000)
    for item in (0, 12):
        file.get(item, int(IDENTITIES[item]), lambda: np.zeros((300, 300, 3), np.uint8))
        assert not file.adds(item)
    filled(file)
    assert file.count == assert_right(file) == COUNT - 2
    assert file.fills
    file.discard(3)
    assert file.count == pickle.loads(pickle.dumps(file)).count == COUNT - 3


def test_the_file_of_another_user_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(opened(tmp_path))
    monkeypatch.setattr(os, "geteuid", lambda: os.getuid() + 1)
    with pytest.raises(PermissionError, match="another user"):
        opened(tmp_path)


def test_a_full_disk_keeps_what_fits(tmp_path: Path) -> None:
    code = """
        import resource, sys, warnings
        from tests.aioloader.storage.cache.test_samples import assert_right, filled, opened
        warnings.simplefilter("always")
        for nbytes in (0, 3000, 10_000, 40_000):
            resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, resource.RLIM_INFINITY))
            file = filled(opened(sys.argv[1]))
            print(nbytes, assert_right(file) > 0, file.nbytes <= max(nbytes, 0))
    """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), tmp_path], capture_output=True, text=True, check=False
    )
    assert done.stdout.split("\n")[:4] == [
        "0 False True",
        "3000 False True",
        "10000 True True",
        "40000 True True",
    ]
    assert "SampleCacheWarning" in done.stderr
    assert assert_right(filled(opened(tmp_path))) == COUNT


def test_nothing_is_left(leftovers: Any, tmp_path: Path) -> None:
    for file in (in_memory(), opened(tmp_path)):
        threads = [threading.Thread(target=filled, args=(file,)) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert assert_right(file) == assert_right(pickle.loads(pickle.dumps(file))) == COUNT
