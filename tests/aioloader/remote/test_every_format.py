"""Tests of what every format of shards has in common on a server: batches under faults, resume, damage, and pages."""

from __future__ import annotations

import json
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aioloader import DataLoader
from aioloader.errors import OfflineWarning
from aioloader.formats.opening import open_dataset
from aioloader.storage.remote import client
from aioloader.tools.view import open_collection
from tests.aioloader.format_sets import FORMATS, MDS, Sample, SetFormat, damage
from tests.aioloader.remote.conftest import assert_same, jpeg
from tests.executors import pool
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote

COUNT = 24


class There(NamedTuple):
    """Set on a server.

    Attributes:
        made: its format.
        folder: that is served.
        paths: what a dataset of it is opened with.
        proxy: a `tests.servers.fault_proxy.FaultProxy` in front of the server.
    """

    made: SetFormat
    folder: Path
    paths: str | list[str]
    proxy: Any


@pytest.fixture(params=FORMATS)
def there(request: pytest.FixtureRequest, served_folder: Path, nginx_proxy: Any) -> Iterator[There]:
    """Serve a set of three shards."""
    made: SetFormat = request.param
    samples = [
        Sample(key=f"{n:03}", image=jpeg(n), label=n, text=f"caption {n}", second=jpeg(100 + n))
        for n in range(COUNT)
    ]
    folder = made.write(served_folder / uuid.uuid4().hex, samples)
    url = f"http://{nginx_proxy.address}/{folder.name}"
    # Folders cannot be listed over HTTP; an MDS set has an index.
    paths = url if made is MDS else [f"{url}/{path.name}" for path in sorted(folder.iterdir())]
    yield There(made, folder, paths, nginx_proxy)
    shutil.rmtree(folder)


def batches_of(dataset: Any, executor: str = "inline", **options: Any) -> list[Any]:
    """Return the batches of a shuffled epoch."""
    workers = 0 if executor == "inline" else 2
    with DataLoader(dataset, 4, shuffle=True, seed=5, **pool(executor, workers), **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


def test_faults_change_no_batch(there: There) -> None:
    expected = batches_of(there.made.open(there.folder))
    there.proxy.behave(
        Rule("status", share=0.1, attempts=1),
        Rule("reset", share=0.1, attempts=1),
        Rule("truncate", share=0.1, attempts=1),
        Rule("shorten", share=0.1, attempts=1),
    )
    assert_same(batches_of(open_dataset(there.paths), "process"), expected)


def test_an_epoch_goes_on_from_another_place(there: There) -> None:
    """An epoch that begins with the files is resumed at the server, with another number of ranks."""

    def run(paths: Any, rank: int, ranks: int, steps: int | None, state: Any) -> tuple[list[int], Any]:
        with DataLoader(
            open_dataset(paths), 2, shuffle=True, seed=3, executor="inline", shard=(rank, ranks)
        ) as loader:
            if state is not None:
                loader.load_state_dict(state)
            labels: list[int] = []
            for count, batch in enumerate(loader, 1):
                labels += batch[1].tolist()
                if count == steps:
                    break
            return labels, json.loads(json.dumps(loader.state_dict()))

    first = [run(there.paths, rank, 3, 2, None) for rank in range(3)]
    rest = [run(there.paths, rank, 2, None, first[0][1]) for rank in range(2)]
    assert sorted(label for labels, _ in first + rest for label in labels) == list(range(COUNT))


def test_a_damaged_sample_is_named_by_its_url(there: There) -> None:
    path, _ = damage(there.folder, jpeg(13))
    dataset = open_dataset(there.paths)
    with DataLoader(dataset, 4, executor="inline", on_error="skip") as loader:
        labels = [label for batch in loader for label in batch[1].tolist()]
        (error,) = loader.errors
    assert labels == [label for label in range(COUNT) if label != 13]
    location = dataset.location(13)
    assert (error.index, error.key, error.offset) == (13, location.key, location.offset)
    assert error.path == location.path
    assert str(error.path).startswith("http://")
    assert str(error.path).endswith(f"/{path.name}")


def test_the_viewer_reads_what_a_page_shows(there: There) -> None:
    url = there.paths if isinstance(there.paths, str) else there.paths[1]
    collection = open_collection(url)
    collection.load()
    position = 9 if there.made is MDS else 1
    number = 9
    contents = collection.read(position)
    assert bytes(contents.body) == jpeg(number)
    assert contents.record.labels == (float(number),)
    assert contents.record.location.path.startswith("http://")
    fields = collection.fields(contents)
    named = {there.made.image, there.made.label, there.made.text, there.made.second}
    assert {field.name for field in fields.fields} == named
    assert [bytes(image) for image in fields.images] == [jpeg(number), jpeg(100 + number)]
    collection.close()


def test_a_full_cache_opens_and_runs_without_its_server(
    there: There, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)
    cache = tmp_path / "cache"
    dataset = open_dataset(there.paths, cache=cache)
    first = batches_of(dataset)
    with there.proxy.away():
        for made in (open_dataset, type(dataset)):
            with pytest.warns(OfflineWarning) as caught:
                again: Any = made(there.paths, cache=cache)
            assert len(caught) == 1
            assert_same(batches_of(again), first)
