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
from aioloader.storage.remote.opening import describe
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


def photographs(count: int) -> list[tuple[str, bytes]]:
    """Return members as large as photographs and their labels, which are not images."""
    draw = np.random.default_rng(1)
    samples = [
        (f"{n:06}", {"jpg": draw.bytes(90_000 + 1000 * (n % 40)), "cls": b"%d" % n}) for n in range(count)
    ]
    return members_of(samples)


def epoch(dataset: Any, **options: Any) -> list[tuple[Any, Any]]:
    with aioloader.DataLoader(dataset, 4, shuffle=True, executor="inline", **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_hard_links_are_read(served: Served, cache: str | None) -> None:
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


def test_an_index_of_photographs_reads_few_bytes(served: Served) -> None:
    tar = serve(served, photographs(300))
    nbytes = tar.path.stat().st_size
    here = tar_index.scan_tar(str(tar.path), None)
    version = describe(tar.proxied)
    tar.proxy.restart()
    reached: list[int] = []
    there = tar_index.scan_tar(tar.proxied, version, reached.append)
    for name, array in here.arrays.items():
        np.testing.assert_array_equal(there.arrays[name], array)
    # A small tar is cut into parts, too: the searches for headers in them take up to 1 MiB.
    assert tar.proxy.counts().nbytes < 0.02 * nbytes + (1 << 20)
    assert reached
    assert reached == sorted(reached)
    assert nbytes // 2 < reached[-1] <= nbytes


def test_damage_is_named_as_in_a_file(tar: Served) -> None:
    data = bytearray(tar.path.read_bytes())
    data[1024] ^= 1
    tar.path.write_bytes(data)
    for path in (tar.path, tar.url):
        with pytest.raises(SampleFormatError) as caught:
            len(TarDataset(path))
        assert (caught.value.path, caught.value.offset) == (str(path), 1024)


def test_an_object_that_is_replaced_is_an_error(tar: Served) -> None:
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
    monkeypatch.setattr(tar_index, "tar_members", None)
    tar.proxy.restart()
    found = tar_index.tar_samples(tar.proxied, describe(tar.proxied))._asdict()
    assert all((found[name] == here[name]).all() for name in here)
    assert tar.proxy.counts().nbytes < tar.path.stat().st_size // 100


def test_an_object_that_is_the_tar_itself_is_not_an_index(served: Served) -> None:
    tar = serve(served, photographs(60))
    os.link(tar.path, tar.path.with_suffix(".idx"))
    tar.proxy.restart()
    assert len(tar_index.tar_samples(tar.proxied, describe(tar.proxied))) == 60
    assert tar.proxy.counts().nbytes < tar.path.stat().st_size // 10
