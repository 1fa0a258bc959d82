"""Tests of MDS sets by URL: the same batches as from local files, few requests, and compressed shards."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import DataLoader, MDSDataset
from aioloader.errors import SampleFormatError
from tests.aioloader.datasets.conftest import png
from tests.aioloader.formats.mds_sets import number, write_set
from tests.aioloader.remote.conftest import ServedFolder, assert_same
from tests.executors import pool
from tests.servers.hub import Repository

pytestmark = pytest.mark.remote

COLUMNS = {"image": "png", "label": "int"}
SAMPLES = [{"image": png(place), "label": number(place)} for place in range(23)]


def batches_of(dataset: Any, **options: Any) -> list[tuple[Any, Any]]:
    """Return the batches of a shuffled epoch."""
    with DataLoader(dataset, 4, shuffle=True, seed=5, **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


def test_batches_of_compressed_shards_are_those_of_local_files(there: ServedFolder, leftovers: Any) -> None:
    write_set(there.folder, COLUMNS, SAMPLES, per_shard=5, codec="gz", hashes=["sha1"])
    expected = batches_of(MDSDataset(there.folder), executor="inline")
    dataset = MDSDataset(there.url)
    assert_same(batches_of(dataset, **pool("process", 2)), expected)
    assert dataset.labels().tolist() == list(range(23))
    location = dataset.location(12)
    assert (location.key, location.path) == ("2", f"{there.url}/shard.00002.mds.gz")


def test_tables_are_read_once_for_a_version(there: ServedFolder) -> None:
    write_set(there.folder, COLUMNS, SAMPLES, per_shard=5)
    assert len(MDSDataset(there.url).tables) == 23
    tables = [target for _, target, span in there.proxy.log() if "shard" in target and span != "bytes=0-0"]
    assert len(tables) == 5
    there.proxy.restart()
    assert len(MDSDataset(there.url).tables) == 23
    assert {span for _, target, span in there.proxy.log() if "shard" in target} <= {"bytes=0-0", ""}
    # Samples of another length: the tables of the replaced shard are read again.
    samples = [dict(each) for each in SAMPLES]
    samples[7]["image"] += b"\0"
    shutil.rmtree(there.folder)
    write_set(there.folder, COLUMNS, samples, per_shard=5)
    found = MDSDataset(there.url)
    assert int(found[7][1]) == 7
    np.testing.assert_array_equal(found.tables.length, MDSDataset(there.folder).tables.length)


def test_the_index_is_read_once_for_a_version(there: ServedFolder, tmp_path: Path) -> None:
    write_set(there.folder, COLUMNS, SAMPLES, per_shard=5)
    expected = batches_of(MDSDataset(there.url, cache=tmp_path), executor="inline")
    there.proxy.restart()
    assert_same(batches_of(MDSDataset(there.url, cache=tmp_path), executor="inline"), expected)
    asked = sorted((Path(target).name, span) for _, target, span in there.proxy.log())
    names = ["index.json", *(f"shard.{number:05}.mds" for number in range(5))]
    assert asked == [(name, "bytes=0-0") for name in names]
    shutil.rmtree(there.folder)
    write_set(there.folder, COLUMNS, SAMPLES[:7], per_shard=5)
    assert len(MDSDataset(there.url, cache=tmp_path)) == 7


def test_compressed_shards_are_fetched_once(there: ServedFolder) -> None:
    write_set(there.folder, COLUMNS, SAMPLES, per_shard=5, codec="gz")
    dataset = MDSDataset(there.url)
    assert dataset.labels().tolist() == list(range(23))
    assert len(list(Path(os.environ["AIOLOADER_CACHE_DIR"]).glob("unpacked-1/*/*.data"))) == 5
    there.proxy.restart()
    assert MDSDataset(there.url).labels().tolist() == list(range(23))
    assert {span for _, target, span in there.proxy.log() if "shard" in target} <= {"bytes=0-0", ""}


def test_a_mixed_set_is_copied(there: ServedFolder) -> None:
    write_set(there.folder, COLUMNS, SAMPLES[:5], codec="gz")
    packed = json.loads((there.folder / "index.json").read_text())["shards"]
    write_set(there.folder, COLUMNS, SAMPLES[5:])
    index = json.loads((there.folder / "index.json").read_text())
    index["shards"] = packed + [
        {**entry, "raw_data": {**entry["raw_data"], "basename": f"other{place}.mds"}}
        for place, entry in enumerate(index["shards"])
    ]
    for place in range(2):
        (there.folder / f"shard.{place:05}.mds").rename(there.folder / f"other{place}.mds")
    (there.folder / "index.json").write_text(json.dumps(index))
    assert MDSDataset(there.url).labels().tolist() == list(range(23))


def test_a_set_on_the_hub(hub: Any, tmp_path: Path) -> None:
    folder = write_set(tmp_path / "set", COLUMNS, SAMPLES, per_shard=5, codec="gz")
    files = {f"train/{path.name}": path.read_bytes() for path in folder.iterdir()}
    repository = hub.repositories["user/name"] = Repository()
    commit = repository.commit(files)
    expected = batches_of(MDSDataset(folder), executor="inline")
    dataset = MDSDataset("hf://datasets/user/name/train")
    assert_same(batches_of(dataset, executor="inline"), expected)
    # A new commit with the same shards: their tables, and decompressed copies, are used again.
    repository.commit({**files, "README.md": b"new"})
    again = MDSDataset("hf://datasets/user/name/train")
    hub.seen.clear()
    assert len(again.tables) == 23
    assert hub.seen == []
    assert again.paths != dataset.paths
    assert all(f"@{commit}/" in path for path in dataset.paths)


@pytest.mark.parametrize("codec", [None, "gz"])
def test_a_shard_of_another_size_or_a_missing_one_is_named(there: ServedFolder, codec: str | None) -> None:
    write_set(there.folder, COLUMNS, SAMPLES, per_shard=5, codec=codec)
    path = sorted(there.folder.glob("shard*"))[1]
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(SampleFormatError, match="size") as caught:
        MDSDataset(there.url).labels()
    assert caught.value.path == f"{there.url}/{path.name}"
    path.unlink()
    with pytest.raises(FileNotFoundError):
        MDSDataset(there.url)
    (there.folder / "index.json").unlink()
    with pytest.raises(FileNotFoundError):
        MDSDataset(there.url)
