"""Tests of tars on a server: the same batches, few bytes for an index, faults, and objects that change."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import TarDataset
from aioloader.errors import ObjectChangedError, SampleFormatError
from aioloader.formats.tar import index as tar_index
from aioloader.storage.remote import opening
from aioloader.storage.remote.opening import describe
from aioloader.storage.remote.stores import Stores
from tests.aioloader.datasets.tars import members_of, photo, write_tar
from tests.aioloader.datasets.test_tar_lists import write_idx, write_json
from tests.aioloader.remote.conftest import Served, assert_same
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote


@pytest.fixture
def tar(served: Served) -> Served:
    """Serve a tar of 40 samples."""
    return serve(served, members_of([photo(number) for number in range(40)]))


def serve(served: Served, members: Any) -> Served:
    """Serve a tar of some members."""
    path = write_tar(served.path.with_name("set.tar"), members)
    url, proxied = (each.replace(served.path.name, path.name) for each in (served.url, served.proxied))
    return served._replace(url=url, proxied=proxied, path=path)


def photographs(count: int, field: str = "jpg") -> list[tuple[str, bytes]]:
    """Return members as large as photographs and their labels, which are not images."""
    draw = np.random.default_rng(1)
    samples = [
        (f"{n:06}", {field: draw.bytes(90_000 + 1000 * (n % 40)), "cls": b"%d" % n}) for n in range(count)
    ]
    return members_of(samples)


def epoch(dataset: Any, **options: Any) -> list[tuple[Any, Any]]:
    with aioloader.DataLoader(dataset, 4, shuffle=True, executor="inline", **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_hard_links_are_read(served: Served, way: int, cache: str | None) -> None:
    # Large members, so that the tar is scanned in parts.
    photos = [(key, {**fields, "bin": bytes(100_000)}) for key, fields in map(photo, range(30))]
    members = members_of(photos)
    tar = serve(served, [*members, *((f"{'l' * 70}/{name}", name) for name, _ in members[:30])])
    here, there = TarDataset(tar.path), TarDataset(tar.proxied, cache=cache)
    assert there.labels().tolist() == here.labels().tolist()
    found = tar_index.scan_tar(tar.proxied, describe(tar.proxied)).arrays
    for name, array in tar_index.scan_tar(str(tar.path), None).arrays.items():
        np.testing.assert_array_equal(found[name], array)
    tar.proxy.behave(Rule("status", share=0.1, attempts=1), Rule("truncate", share=0.1, attempts=1))
    for _ in range(2):
        assert_same(epoch(there), epoch(here))


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_files_in_random_order_are_read_while_samples_are_found(
    served: Served, way: int, executor: str, leftovers: object
) -> None:
    tars = []
    for shard in range(5):
        path = write_tar(
            served.path.with_name(f"{shard}.tar"),
            members_of([photo(number) for number in range(7 * shard, 7 * shard + 7)]),
        )
        tars.append((path, served.proxied.replace(served.path.name, path.name)))
    served.proxy.behave(Rule("status", share=0.1, attempts=1))
    crop = aioloader.transforms.RandomResizedCrop(16)
    found = []
    for paths in zip(*tars, strict=True):
        dataset = TarDataset(paths, shuffle_shards=2).transform_first(crop)
        with aioloader.DataLoader(
            dataset, 4, shuffle=True, executor=executor, num_workers=2, seed=3
        ) as loader:
            epochs = [[(images.copy(), labels.copy()) for images, labels in loader] for _ in range(2)]
            found.append((epochs, loader.receipt(), loader.state_dict()))
    (here, *ends), (there, *others) = found
    for own, remote in zip(here, there, strict=True):
        assert_same(remote, own)
    assert ends == others
    assert here[0][0][1].tolist() != here[1][0][1].tolist()
    assert len({*(here[0][0][1] // 7).tolist()}) == 1  # one file is enough for the first batch


@pytest.fixture(params=[0, 1 << 20], ids=["headers", "whole"])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> int:
    """Let tars be scanned by their headers, or read whole."""
    monkeypatch.setattr(opening, "cheap_nbytes", lambda *_: request.param)
    return int(request.param)


@pytest.fixture
def whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tars of photographs be read whole."""
    monkeypatch.setattr(opening, "cheap_nbytes", lambda *_: 1 << 20)


def fetched(tar: Served) -> int:
    """Return the number of requests for bytes since the last call, without those for the version of an object."""
    log = tar.proxy.log()
    tar.proxy.restart()
    return sum(method == "GET" and span not in ("bytes=0-0", "") for method, _, span in log)


def contents(dataset: Any) -> list[tuple[list[bytes], list[int]]]:
    """Return the values of an epoch."""
    with aioloader.DataLoader(dataset, 4, shuffle=True, executor="inline", seed=1) as loader:
        return [(batch["bin"], batch["cls"].tolist()) for batch in loader]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_a_tar_of_small_members_is_fetched_once(served: Served, whole: None, cache: str | None) -> None:
    tar = serve(served, photographs(100, "bin"))
    nbytes = tar.path.stat().st_size
    here = TarDataset(tar.path, fields=("bin", "cls"))
    there = TarDataset(tar.proxied, fields=("bin", "cls"), cache=cache)
    tar.proxy.restart()
    assert len(there) == 100
    assert tar.proxy.counts().nbytes < 1.01 * nbytes
    assert fetched(tar) == 1 + -(-(nbytes - (1 << 20)) // (4 << 20))
    for times in (0, 1):  # in the second epoch only a cache has them
        assert contents(there) == contents(here)
        assert bool(fetched(tar)) is bool(times and cache is None)


def test_the_first_bytes_are_requested_while_an_index_is_searched(
    tar: Served, whole: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    search, span = tar_index.members_of_lists, f"bytes=0-{tar.path.stat().st_size - 1}"

    def search_late(*args: Any) -> Any:
        while span not in {span for _, _, span in tar.proxy.log()}:
            pass
        return search(*args)

    monkeypatch.setattr(tar_index, "members_of_lists", search_late)
    assert len(TarDataset(tar.proxied)) == 40


def test_the_first_bytes_of_tars_with_an_index_are_requested_once(served: Served, whole: None) -> None:
    tars = [write_tar(served.path.with_name(f"{n}.tar"), photographs(30 + n, "bin")) for n in range(4)]
    for path in tars:
        write_idx(path)
    urls = [served.proxied.replace(served.path.name, path.name) for path in tars]
    with aioloader.DataLoader(TarDataset(urls, fields=("bin", "cls")), 4, executor="inline") as loader:
        assert sum(len(batch["cls"]) for batch in loader) == 126
    assert sum(span == "bytes=0-1048575" for _, _, span in served.proxy.log()) <= 1


def test_connections_are_kept_until_the_samples_were_read(tar: Served, leftovers: object) -> None:
    dataset = TarDataset(tar.url)
    assert dataset._held is not None
    stores = Stores()
    assert stores.find(tar.url)[0] is dataset._held.connections
    stores.close()
    assert len(epoch(dataset)) == 10
    assert dataset._held.connections is None


def test_a_tar_without_room_in_memory_is_read_whole_and_fetched_again(
    served: Served, whole: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aioloader.datasets.shard_dataset._MOST_HELD_NBYTES", 1 << 20)
    tar = serve(served, photographs(30))
    here, there = (TarDataset(path, fields=("__key__", "cls")) for path in (tar.path, tar.proxied))
    tar.proxy.restart()
    assert len(there) == len(here) == 30
    assert fetched(tar) == 2
    assert [there[number] for number in range(len(there))] == [here[number] for number in range(len(here))]
    assert fetched(tar) >= len(here)


def test_a_tar_is_fetched_once_in_spite_of_faults(served: Served, whole: None) -> None:
    tar = serve(served, members_of([photo(number) for number in range(40)]))
    there = TarDataset(tar.proxied)
    tar.proxy.behave(Rule("status", share=0.5, attempts=1), Rule("truncate", share=0.5, attempts=1))
    assert_same(epoch(there), epoch(TarDataset(tar.path)))
    tar.proxy.restart()
    with tar.proxy.away():
        assert len(there) == 40


def test_an_index_of_photographs_reads_few_bytes(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opening, "cheap_nbytes", lambda *_: 0)
    tar = serve(served, photographs(300))
    nbytes = tar.path.stat().st_size
    here = tar_index.scan_tar(str(tar.path), None)
    version = describe(tar.proxied)
    tar.proxy.restart()
    reached: list[int] = []
    there = tar_index.scan_tar(tar.proxied, version, reached.append)
    for name, array in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[name], array)
    # The first MiB decides. A small tar is cut into parts, too: the searches for headers in them take up to 1 MiB.
    assert tar.proxy.counts().nbytes < 0.02 * nbytes + (2 << 20)
    assert reached
    assert reached == sorted(reached)
    assert nbytes // 2 < reached[-1] <= nbytes


def test_damage_is_named_as_in_a_file(served: Served, way: int) -> None:
    tar = serve(served, photographs(60))
    intact = bytearray(tar.path.read_bytes())
    offset = intact.index(b"000045.jpg")
    for damaged in (
        intact[:offset] + b"?" + intact[offset + 1 :],
        intact[: offset + 5000],
        intact[:offset],
        b"",
    ):
        tar.path.write_bytes(damaged)
        found = []
        for path in (tar.path, tar.url):
            dataset = TarDataset(path)
            with pytest.raises(SampleFormatError) as caught:
                len(dataset)
            found.append(
                (caught.value.reason, caught.value.offset, caught.value.expected, caught.value.found)
            )
            assert caught.value.path == str(path)
        assert found[0] == found[1]
        assert dataset._held is not None
        assert not len(dataset._held)


def test_an_object_that_is_replaced_is_an_error(tar: Served, way: int) -> None:
    version = describe(tar.url)
    write_tar(tar.path, members_of([photo(1)]))
    os.utime(tar.path, (1, 1))
    with pytest.raises(ObjectChangedError):
        tar_index.scan_tar(tar.url, version)


@pytest.mark.parametrize("write", [write_idx, write_json])
def test_an_index_of_another_program_saves_the_scan(
    served: Served, write: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    tar = serve(served, photographs(60))
    write(tar.path)
    here = tar_index.scan_tar(str(tar.path), None).arrays
    monkeypatch.setattr(tar_index, "follow", None)
    monkeypatch.setattr(tar_index, "_scan_in_order", None)
    tar.proxy.restart()
    found = tar_index.tar_samples(tar.proxied, describe(tar.proxied))._asdict()
    assert all((found[name] == here[name]).all() for name in here)
    assert tar.proxy.counts().nbytes < tar.path.stat().st_size // 100


def test_an_object_that_is_the_tar_itself_is_not_an_index(served: Served) -> None:
    tar = serve(served, photographs(60))
    os.link(tar.path, tar.path.with_suffix(".idx"))
    tar.proxy.restart()
    assert len(tar_index.tar_samples(tar.proxied, describe(tar.proxied))) == 60
    assert tar.proxy.counts().nbytes < 1.1 * tar.path.stat().st_size
