"""Tests of the places of sample indexes: which copy is used, when a shard is scanned again, the progress of scans."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from aioloader import sample_index as scan_progress
from aioloader import sample_index as store
from aioloader.sample_index import (
    SampleIndex,
    ScanProgress,
    ShardState,
    cached_index,
    index_beside,
    load_index,
    open_index,
    shard_state,
    unpack_index,
    write_index,
)
from aioloader.storage.remote.transport import Version

KIND = "toy-1"


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep indexes in a directory of the test."""
    place = tmp_path / "user-cache"
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(place))
    return place


@pytest.fixture
def shard(tmp_path: Path) -> str:
    path = tmp_path / "a.toy"
    path.write_bytes(b"contents")
    return str(path)


def index(number: int) -> SampleIndex:
    return SampleIndex(KIND, {"offset": np.array([number])})


class Scans:
    """Scanner of a shard that counts its calls; the index has the number of the call."""

    def __init__(self, during: Callable[[], object] = lambda: None) -> None:
        self.count = 0
        self._during = during

    def __call__(self) -> SampleIndex:
        self.count += 1
        self._during()
        return index(self.count)


def opened(path: str, scans: Scans, version: Version | None = None, kind: str = KIND) -> int:
    return int(open_index(path, version, kind, scans).arrays["offset"][0])


def test_a_shard_is_scanned_once(shard: str, cache: Path) -> None:
    scans = Scans()
    assert [opened(shard, scans) for _ in range(3)] == [1, 1, 1]
    assert scans.count == 1
    assert [path.name for path in Path(shard).parent.iterdir() if path != cache] == ["a.toy"]
    (kept,) = (cache / "sample-index").iterdir()
    assert str(kept) == cached_index(shard)


@pytest.mark.parametrize("change", ["size", "time", "bytes", None])
def test_a_shard_that_changed_is_scanned_again(shard: str, change: str | None) -> None:
    scans = Scans()
    assert opened(shard, scans) == 1
    status = os.stat(shard)
    # A shard that is replaced by its own bytes keeps its index.
    contents = {"size": b"other contents", "bytes": b"stnetnoc"}
    Path(shard).unlink()
    Path(shard).write_bytes(contents.get(change or "", b"contents"))
    # The clock of a file system may not have moved on; this test is of the other facts.
    later = status.st_mtime_ns + (change == "time") * 1_000_000_000
    os.utime(shard, ns=(status.st_atime_ns, later))
    for _ in range(2):
        assert opened(shard, scans) == (1 if change is None else 2)


def test_an_index_next_to_the_shard_is_preferred_if_it_fits(shard: str) -> None:
    scans = Scans()
    state = shard_state(shard)
    assert state is not None
    write_index(cached_index(shard), index(20), state)
    assert opened(shard, scans) == 20
    write_index(index_beside(shard), index(10), state)
    assert opened(shard, scans) == 10
    write_index(index_beside(shard), index(11), state._replace(nbytes=9))
    assert opened(shard, scans) == 20
    write_index(index_beside(shard), index(12), state._replace(state="0"))
    assert opened(shard, scans) == 20
    write_index(index_beside(shard), SampleIndex("other-1", index(13).arrays), state)
    assert opened(shard, scans) == 20
    assert scans.count == 0


@pytest.mark.parametrize("damage", ["bit", "truncated", "foreign", "folder", "pipe", "no permission"])
def test_a_damaged_index_is_made_again(shard: str, damage: str) -> None:
    scans = Scans()
    assert opened(shard, scans) == 1
    place = Path(cached_index(shard))
    data = place.read_bytes()
    if damage == "no permission":
        if os.geteuid() == 0:
            pytest.skip("root may read every file")
        place.chmod(0)
    elif damage in ("folder", "pipe"):
        place.unlink()
        place.mkdir() if damage == "folder" else os.mkfifo(place)
    else:
        damaged = {"bit": data[:-1] + bytes([data[-1] ^ 1]), "truncated": data[:-1]}
        place.write_bytes(damaged.get(damage, b"an index of another program"))
    assert opened(shard, scans) == 2
    assert opened(shard, scans) == (3 if damage == "folder" else 2)


def test_an_index_that_is_too_large_for_its_shard_is_not_read(shard: str) -> None:
    scans = Scans()
    assert opened(shard, scans) == 1
    os.truncate(cached_index(shard), 1 << 40)
    assert opened(shard, scans) == 2


def test_an_index_that_is_truncated_while_it_is_used_does_not_end_the_process(tmp_path: Path) -> None:
    """A map of a file that another program truncates would end it by SIGBUS."""
    path = tmp_path / "a.toy"
    path.write_bytes(bytes(1 << 20))
    state = shard_state(str(path))
    assert state is not None
    write_index(index_beside(str(path)), SampleIndex(KIND, {"offset": np.arange(1 << 20)}), state)
    code = (
        "import os, sys\n"
        "from aioloader.sample_index import index_beside, load_index, shard_state\n"
        "path = sys.argv[1]\n"
        "index = load_index(path, shard_state(path), 'toy-1')\n"
        "os.truncate(index_beside(path), 0)\n"
        "assert index.arrays['offset'].sum() == (1 << 20) * ((1 << 20) - 1) // 2\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path)], check=True)


def test_a_cache_directory_that_cannot_be_written_costs_a_scan(
    shard: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocker = tmp_path / "file"
    blocker.write_bytes(b"")
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(blocker / "cache"))
    scans = Scans()
    assert [opened(shard, scans) for _ in range(2)] == [1, 2]
    state = shard_state(shard)
    assert state is not None
    write_index(index_beside(shard), index(10), state)
    assert opened(shard, scans) == 10


def test_a_folder_that_cannot_be_written_is_an_error_without_remains(shard: str, tmp_path: Path) -> None:
    place = tmp_path / "a.toy" / "index.samples"
    with pytest.raises(OSError, match=r"a\.toy"):
        write_index(str(place), index(1), ShardState(8, "s"))
    target = tmp_path / "folder.samples"
    target.mkdir()
    with pytest.raises(OSError, match=r"folder\.samples"):
        write_index(str(target), index(1), ShardState(8, "s"))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.toy", "folder.samples"]


def test_an_index_of_a_shard_that_changes_during_its_scan_is_not_kept(shard: str) -> None:
    scans = Scans(lambda: Path(shard).write_bytes(os.urandom(20)))
    assert [opened(shard, scans) for _ in range(2)] == [1, 2]


def test_an_error_of_the_scan_is_raised_and_nothing_is_kept(shard: str, cache: Path) -> None:
    def fail() -> None:
        raise ValueError("damaged")

    with pytest.raises(ValueError, match="damaged"):
        opened(shard, Scans(fail))
    assert not cache.exists()
    with pytest.raises(FileNotFoundError):
        opened(shard + "x", Scans())


def test_an_object_is_identified_by_its_tag(cache: Path) -> None:
    scans = Scans()
    url = "https://host/set/a.toy?signature=1"
    first = Version(8, '"etag"', None)
    assert opened(url, scans, first) == 1
    assert opened("https://host/set/a.toy?signature=2", scans, first) == 1
    assert opened(url, scans, first._replace(etag='"other"')) == 2
    assert opened(url, scans, first._replace(nbytes=9)) == 3
    assert opened("https://host/set/b.toy", scans, first) == 4
    unknown = Version(8, None, None)
    assert [opened(url, scans, unknown) for _ in range(2)] == [5, 6]
    assert load_index(url, None, KIND) is None


def test_two_that_scan_at_the_same_time_make_one_index(shard: str, cache: Path) -> None:
    both = threading.Barrier(2)
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda scans: opened(shard, scans), [Scans(both.wait) for _ in range(2)]))
    assert found == [1, 1]
    (kept,) = (cache / "sample-index").iterdir()
    assert unpack_index(memoryview(kept.read_bytes()))[0].arrays["offset"].tolist() == [1]
    later = Scans()
    assert (opened(shard, later), later.count) == (1, 0)


def test_a_large_shard_is_identified_without_its_bytes(tmp_path: Path) -> None:
    path = tmp_path / "large"
    path.touch()
    os.truncate(path, store._SMALL_SHARD_NBYTES + 1)
    state = shard_state(str(path))
    assert state == ShardState(store._SMALL_SHARD_NBYTES + 1, str(os.stat(path).st_mtime_ns))


# -- progress of scans -------------------------------------------------------------------------------------------------


MIB = 1 << 20


def test_short_scans_display_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    def total() -> int:
        raise AssertionError("the sizes were asked for")

    with ScanProgress("scan", total) as progress:
        progress.update("a", 5 * MIB)
    assert capsys.readouterr().err == ""


def test_long_scans_display_the_bytes_of_all_shards(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scan_progress, "_SOON_S", 0.0)
    with ScanProgress("index of tars", lambda: 40 * MIB) as progress:
        with ThreadPoolExecutor(4) as pool:
            for reached in range(1, 11):
                list(pool.map(progress.update, "abcd", [reached * MIB] * 4))
    progress.update("late", MIB)
    assert "index of tars: 100% 40/40" in capsys.readouterr().err
