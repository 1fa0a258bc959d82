"""Tests of every format of shards on the Hugging Face Hub: found, read by workers, resumed, and pinned to a commit."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.errors import ObjectMissingError, OfflineWarning
from aioloader.storage.remote import client
from tests.aioloader.format_sets import FORMATS, Sample, SetFormat
from tests.aioloader.remote.conftest import assert_same, jpeg
from tests.executors import pool
from tests.servers.hub import Repository

pytestmark = pytest.mark.remote

TOKEN = "hf_aSecretToken"


SAMPLES = [
    Sample(key=f"s{number:03}", image=jpeg(number), label=number, text=f"größe {number}")
    for number in range(24)
]

Batches = list[tuple[Any, ...]]


class Pushed(NamedTuple):
    """Set of shards, here and on the Hub.

    Attributes:
        made: its format.
        folder: the set.
        hub: the server.
        repository: the data set, with the set in the folder "data".
        url: of that folder.
        commit: its only commit.
    """

    made: SetFormat
    folder: Path
    hub: Any
    repository: Repository
    url: str
    commit: str


@pytest.fixture(params=FORMATS)
def pushed(
    request: pytest.FixtureRequest, hub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Pushed:
    """Push a set of three shards to a private data set."""
    made: SetFormat = request.param
    folder = made.write(tmp_path / "set", SAMPLES)
    repository = hub.repositories["user/set"] = Repository(private=True, readers={TOKEN})
    commit = repository.commit({"README.md": b"text", **files_of(folder)})
    hub.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    return Pushed(made, folder, hub, repository, "hf://datasets/user/set/data", commit)


def files_of(folder: Path) -> dict[str, bytes]:
    """Return the files of a set by their paths in a data set."""
    return {
        f"data/{path.relative_to(folder).as_posix()}": path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


def open_at(path: str | Path, **options: Any) -> ShardDataset:
    found = aioloader.open_dataset(path, **options)
    assert isinstance(found, ShardDataset)
    return found


def loader_of(dataset: Any, executor: str = "inline", workers: int = 0) -> DataLoader[Any]:
    return DataLoader(dataset, 4, shuffle=True, seed=5, **pool(executor, workers))


def batches_of(dataset: Any, executor: str = "inline", workers: int = 0) -> Batches:
    with loader_of(dataset, executor, workers) as loader:
        return [tuple(np.array(part) for part in batch) for batch in loader]


def test_workers_read_the_samples_of_the_local_set(pushed: Pushed) -> None:
    expected = batches_of(open_at(pushed.folder))
    dataset = open_at(pushed.url)
    assert type(dataset) is type(open_at(pushed.folder))
    assert all(path.startswith(f"hf://datasets/user/set@{pushed.commit}/data/") for path in dataset.paths)
    assert_same(batches_of(dataset, "process", 1), expected)
    # The token went to the Hub, and to no other host.
    assert {each.authorization for each in pushed.hub.seen} == {f"Bearer {TOKEN}", None}
    assert {each.authorization for each in pushed.hub.seen if each.host == "cdn"} == {None}
    assert dataset.location(3).path in dataset.paths


def test_an_epoch_is_resumed_at_the_commit(pushed: Pushed) -> None:
    """A dataset that is created after another push, by the URL of the first commit, continues the epoch."""
    expected = batches_of(open_at(pushed.folder))
    with loader_of(open_at(pushed.url)) as loader:
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = loader.state_dict()
    pushed.repository.commit({"README.md": b"text"})
    with pytest.raises(ObjectMissingError):
        open_at(pushed.url)
    pinned = pushed.url.replace("/set/", f"/set@{pushed.commit}/")
    with loader_of(open_at(pinned)) as loader:
        loader.load_state_dict(state)
        found = [tuple(np.array(part) for part in batch) for batch in loader]
    assert_same(found, expected[2:])


def test_a_set_costs_the_hub_few_requests(pushed: Pushed) -> None:
    """A second dataset over the same files needs no index: requests for the folder, the commit and each shard."""
    batches_of(open_at(pushed.url))
    pushed.hub.seen.clear()
    batches_of(open_at(pushed.url))
    targets = pushed.hub.targets("hub")
    assert sum("/revision/" in target for target in targets) == 1
    shards = [path for path in files_of(pushed.folder) if path != "data/index.json"]
    for path in shards:
        assert sum(path in target for target in targets) <= 4, targets


@pytest.mark.parametrize(
    "pushed", [FORMATS[0]], indirect=True
)  # what is asked for is the same for all formats
def test_a_full_cache_opens_and_runs_without_the_hub(
    pushed: Pushed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)
    cache = tmp_path / "cache"
    first = batches_of(open_at(pushed.url, cache=cache))
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{closed.getsockname()[1]}")
        with pytest.warns(OfflineWarning) as caught:
            dataset = open_at(pushed.url, cache=cache)
        assert len(caught) == 1
        assert_same(batches_of(dataset), first)
