"""Tests of data sets on the Hugging Face Hub, with a server that answers like it."""

from __future__ import annotations

import asyncio
import logging
import pickle
import re
import threading
import time
import traceback
from pathlib import Path
from typing import Any, NamedTuple

import cloudpickle
import numpy as np
import pytest

import aioloader
import recordio
from aioloader.errors import (
    ObjectDeniedError,
    ObjectMissingError,
    RemoteReadError,
)
from aioloader.formats.folder.format import FORMAT as FOLDER
from aioloader.formats.opening import recognize
from aioloader.storage.remote.failures import Kind, RequestFailedError
from aioloader.storage.remote.hub import HubRequests, HubResolver
from aioloader.storage.remote.opening import describe_all, list_level, pin_urls, read_text
from recordio.aio import AsyncRecordReader
from tests.aioloader.remote.conftest import assert_same, epoch
from tests.conftest import RunOn
from tests.executors import pool
from tests.servers.hub import Fault, Repository

pytestmark = pytest.mark.remote

TOKEN = "hf_aSecretToken"


class HubSet(NamedTuple):
    """Data set on the Hub.

    Attributes:
        server: the Hub.
        repository: the data set.
        root: its URL.
        rec: URL of photos.rec in it.
        commit: its only commit.
    """

    server: Any
    repository: Repository
    root: str
    rec: str
    commit: str


@pytest.fixture
def photos(hub: Any, photo_rec: Path) -> HubSet:
    """Return the data set "user/set" with train/photos.rec and its index."""
    repository = hub.repositories["user/set"] = Repository()
    files = {f"train/{path.name}": path.read_bytes() for path in (photo_rec, photo_rec.with_suffix(".idx"))}
    commit = repository.commit(files)
    root = "hf://datasets/user/set"
    return HubSet(hub, repository, root, f"{root}/train/photos.rec", commit)


@pytest.fixture
def shards(hub: Any, tmp_path: Path) -> HubSet:
    """Return the data set "user/set" with 20 shards, their indexes, and a folder with others."""
    repository = hub.repositories["user/set"] = Repository()
    files = {"README.md": b"text", "more/x-00.rec": b"", "deep/er/x-00.rec": b""}
    for number in range(20):
        path = tmp_path / f"x-{number:02d}.rec"
        with recordio.RecordWriter(path, index=True) as writer:
            writer.write(bytes([number]) * 2000)
        files[path.name] = path.read_bytes()
        files[path.with_suffix(".idx").name] = path.with_suffix(".idx").read_bytes()
    commit = repository.commit(files)
    root = "hf://datasets/user/set"
    return HubSet(hub, repository, root, f"{root}/x-00.rec", commit)


def first_bytes(dataset: Any) -> list[int]:
    """Return the first byte of each record."""
    with aioloader.DataLoader(dataset.transform(lambda data: data[0]), 7, executor="inline") as loader:
        return [int(one) for batch in loader for one in batch]


# --- bytes ---


def test_batches_are_those_of_the_local_file(photos: HubSet, photo_rec: Path) -> None:
    assert_same(epoch(photos.rec, **pool("process", 2)), epoch(photo_rec))


def test_a_file_is_resolved_once_and_read_many_times(photos: HubSet) -> None:
    server = photos.server
    dataset = aioloader.ImageRecordDataset(photos.rec, crop_index=None)
    len(dataset)
    server.seen.clear()
    small = dataset.transform_first(aioloader.transforms.CenterCrop(32))
    with aioloader.DataLoader(small, 2, shuffle=True, executor="inline") as loader:
        for _ in range(3):
            for _ in loader:
                pass
        stats = loader.stats()
    resolved = server.targets("hub", "photos.rec")
    assert len(server.targets("cdn")) > 20
    # Once for the labels of the first records, and once for the loader.
    assert len(resolved) <= 2
    assert stats.requests is not None
    assert stats.requests <= len(server.seen)


def test_one_file_costs_few_requests_to_open(photos: HubSet) -> None:
    aioloader.RecordFileDataset(photos.rec)
    assert [re.sub(photos.commit, "C", target) for target in photos.server.targets("hub")] == [
        "/api/datasets/user/set/revision/main?expand=sha",
        "/datasets/user/set/resolve/C/train/photos.rec",
    ]
    assert photos.server.targets("cdn") == []
    photos.server.seen.clear()
    aioloader.RecordFileDataset(photos.rec.replace("/set/", f"/set@{photos.commit}/"))
    assert len(photos.server.seen) == 1


def test_readers_of_records_read_from_the_hub(photos: HubSet, photo_rec: Path, run_on: RunOn) -> None:
    with recordio.RecordReader(photo_rec) as reader:
        expected = [bytes(record) for record in reader]
    with recordio.RecordReader(photos.rec) as reader:
        assert [bytes(record) for record in reader] == expected

    async def read() -> list[bytes]:
        async with AsyncRecordReader(photos.rec) as reader:
            return [bytes(record) async for record in reader]

    assert run_on(read) == expected


def test_small_and_empty_files_are_read_from_the_hub_itself(photos: HubSet) -> None:
    photos.repository.commit({"small": b"some text", "empty": b"", "large": bytes(5000), "a b/ü#?.txt": b"x"})
    assert read_text(f"{photos.root}/small") == b"some text"
    assert read_text(f"{photos.root}/empty") == b""
    assert photos.server.targets("cdn") == []
    assert read_text(f"{photos.root}/large") == bytes(5000)
    assert read_text(f"{photos.root}/a b/ü#?.txt") == b"x"


def test_a_folder_of_images(photos: HubSet, photo_folder: Path) -> None:
    files = {
        f"train/{path.relative_to(photo_folder).as_posix()}": path.read_bytes()
        for path in photo_folder.rglob("*.*")
    }
    photos.repository.commit({**files, "train/notes.txt": b"none", "README.md": b""})
    photos.server.page_length = 10
    with pytest.warns(UserWarning, match=r"notes\.txt"):
        there = aioloader.ImageFolderDataset(f"{photos.root}/train")
    here = aioloader.ImageFolderDataset(photo_folder)
    assert there.synsets == here.synsets
    np.testing.assert_array_equal(there.labels(), here.labels())
    np.testing.assert_array_equal(there[5][0], here[5][0])
    entries = [[label, path.removeprefix(f"{there._root}/")] for path, label in there.items]
    listed = aioloader.ImageListDataset(f"{photos.root}/train", entries)
    np.testing.assert_array_equal(listed[3][0], here[3][0])


def test_data_sets_are_recognized(photos: HubSet) -> None:
    photos.server.page_length = 2
    root = f"{photos.root}@{photos.commit}"
    assert list_level(f"{root}/train") == ([], ["photos.idx", "photos.rec"])
    assert list_level(root) == (["train"], [])
    with pytest.raises(ObjectMissingError, match="contains no object"):
        list_level(f"{root}/none")
    for url in (photos.root, f"{photos.root}/train", photos.rec, f"{photos.root}/*/*.rec"):
        dataset = aioloader.open_dataset(url, crop_index=None)
        assert isinstance(dataset, aioloader.ImageRecordDataset)
        assert dataset._paths == (f"{root}/train/photos.rec",)
    photos.server.seen.clear()
    aioloader.open_dataset([photos.rec, photos.rec], crop_index=None)
    assert len(photos.server.targets("hub", "/revision/")) == 1
    with aioloader.images(photos.root, 32, batch_size=4, train=False, blocking=True, num_workers=0) as loader:
        images, _ = next(iter(loader))
    assert images.shape == (4, 32, 32, 3)
    photos.repository.commit({"a/1.jpg": b"x" * 2000, "b/1.jpg": b"y"})
    assert recognize(photos.root).format is FOLDER


# --- the token ---


@pytest.mark.parametrize("place", ["HF_TOKEN", "file"])
def test_the_token_is_sent_to_the_hub_only(
    photos: HubSet, photo_rec: Path, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = photos.server
    photos.repository.private = True
    photos.repository.readers = server.tokens = {TOKEN}
    if place == "file":
        (tmp_path / "hf-home").mkdir()
        (tmp_path / "hf-home" / "token").write_text(f"{TOKEN}\n")
    else:
        monkeypatch.setenv("HF_TOKEN", TOKEN)
    assert_same(epoch(photos.rec), epoch(photo_rec))
    asked = {each.authorization for each in server.seen if each.host == "hub"}
    assert asked == {f"Bearer {TOKEN}"}
    told = {each.authorization for each in server.seen if each.host == "cdn"}
    assert told == {None}
    # The index is small: the Hub itself sends it, to the client library, which has the token for it.
    assert server.targets("hub", "resolve-cache")


def test_no_redirect_takes_the_token_elsewhere(photos: HubSet, monkeypatch: pytest.MonkeyPatch) -> None:
    server = photos.server
    server.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    photos.repository.commit({"small": b"some text"})
    elsewhere = {"Location": f"{server.cdn}/xet/{'0' * 64}?X-Amz-Signature=none"}
    # The Hub's answer for a small file becomes a redirect after it was looked up: the client library follows it.
    server.faults = [Fault("resolve-cache", 302, elsewhere, times=9, after=1)]
    with pytest.raises(ObjectDeniedError):
        read_text(f"{photos.root}/small")
    assert [each.authorization for each in server.seen if each.host == "cdn"] == [None]
    # A description of a revision is not read elsewhere at all.
    server.seen.clear()
    server.faults = [Fault("/revision/", 302, elsewhere)]
    with pytest.raises(RemoteReadError, match=r"redirect leads to another host.*check HF_ENDPOINT"):
        aioloader.RecordFileDataset(photos.rec)
    assert server.targets("cdn") == []


def test_secrets_are_in_no_error_state_or_file(
    photos: HubSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    server = photos.server
    server.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    dataset = aioloader.ImageRecordDataset(photos.rec, cache=tmp_path / "cache")
    small = dataset.transform_first(aioloader.transforms.RandomResizedCrop(32))
    with aioloader.DataLoader(small, 4, num_workers=1, executor="process") as loader:
        next(iter(loader))
        texts = [str(loader.state_dict()), str(loader.stats()), str(loader.explain())]
    source = dataset.open_source()
    source.fetch(dataset.spans(np.arange(2)))
    pickles = [pickle.dumps(dataset), cloudpickle.dumps(small), cloudpickle.dumps(dataset.decoder)]
    source.close()
    for status, kind in ((400, "refused"), (403, "denied"), (404, "missing"), (500, "lost")):
        failing = aioloader.RecordFileDataset(photos.rec)
        len(failing)
        server.faults = [Fault("/xet/", status, times=99)]
        with pytest.raises(RemoteReadError) as caught:
            with aioloader.DataLoader(failing, 4, num_workers=0, timeout=1) as loader:
                list(loader)
        assert caught.value.kind == kind
        texts += traceback.format_exception(caught.value)
        texts.append(repr(vars(caught.value)))
        pickles.append(pickle.dumps(caught.value))
    texts += [str(path) for path in tmp_path.rglob("*")]
    texts.append(caplog.text)
    secrets = [TOKEN, *server.signatures]
    assert len(secrets) > 3
    for secret in secrets:
        assert not any(secret in text for text in texts)
        assert not any(secret.encode() in data for data in pickles)


# --- signed addresses ---


def test_expired_addresses_are_found_again(photos: HubSet, photo_rec: Path) -> None:
    server = photos.server
    server.signature_uses = 3
    expected = [bytes(payload) for payload in aioloader.RecordFileDataset(photo_rec)]
    assert list(aioloader.RecordFileDataset(photos.rec)) == expected
    assert len(server.targets("hub", "photos.rec")) > len(expected) // 4
    # In the middle of an epoch.
    server.signature_uses = None
    dataset = aioloader.RecordFileDataset(photos.rec)
    with aioloader.DataLoader(dataset.transform(len), 1, num_workers=0, prefetch=1) as loader:
        found = []
        for number, batch in enumerate(loader):
            if number % 5 == 0:
                server.expire()
            found += [int(one) for one in batch]
        stats = loader.stats()
    assert found == [len(payload) for payload in expected]
    assert stats.retries is not None
    assert stats.retries > 0


def test_a_new_address_that_is_denied_is_an_error(photos: HubSet) -> None:
    dataset = aioloader.RecordFileDataset(photos.rec)
    assert len(dataset)
    photos.server.seen.clear()
    photos.server.signature_uses = 0
    with pytest.raises(ObjectDeniedError, match="Request has expired") as caught:
        dataset[0]
    assert caught.value.attempts == 2
    assert len(photos.server.targets("cdn")) == 2


@pytest.mark.parametrize(
    ("text", "expired"),
    [
        ("status code: 403 Forbidden: expired at 1764164164", True),
        ("status code: 400 Bad Request", True),
        ("status code: 416 Range Not Satisfiable", False),
        ("status code: 503 Service Unavailable", False),
    ],
)
async def test_errors_after_which_an_address_is_found_again(photos: HubSet, text: str, expired: bool) -> None:
    hub = HubResolver()
    address = await hub.address(photos.rec)
    error = RuntimeError(f"Server returned non-2xx {text}")
    found = hub.examine(photos.rec, address, error)
    assert isinstance(found, RequestFailedError) is expired
    assert (found is error) is not expired
    assert (await hub.address(photos.rec) is address) is not expired
    hub.close()


def _hub_threads() -> set[threading.Thread]:
    return {thread for thread in threading.enumerate() if thread.name.startswith("aioloader-hub")}


def test_a_request_in_flight_keeps_no_process_alive(photos: HubSet) -> None:
    release = threading.Event()
    before = _hub_threads()  # of sources that nobody closed and that are not collected yet
    photos.server.faults = [Fault("/resolve/", 0, release=release)]

    async def main() -> None:
        hub = HubResolver()
        task = asyncio.create_task(hub.address(photos.rec))
        while not photos.server.targets("hub"):
            await asyncio.sleep(0)
        hub.close()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    threads = _hub_threads() - before
    assert threads
    assert all(thread.daemon for thread in threads)
    release.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()


async def test_a_cancelled_reader_does_not_stop_the_others(photos: HubSet) -> None:
    release = threading.Event()
    photos.server.faults = [Fault("/resolve/", 0, release=release)]

    hub = HubResolver()
    first, second = (asyncio.create_task(hub.address(photos.rec)) for _ in range(2))
    while not photos.server.targets("hub"):
        await asyncio.sleep(0)
    first.cancel()
    with pytest.raises(asyncio.CancelledError):
        await first
    assert not second.done()
    release.set()
    address = await second
    assert address.url.startswith(photos.server.cdn)
    assert await hub.address(photos.rec) is address
    assert hub.request_count == 1
    hub.close()


@pytest.mark.usefixtures("leftovers")
def test_nothing_is_left_of_a_reader(photos: HubSet) -> None:
    dataset = aioloader.RecordFileDataset(photos.rec)
    assert len(dataset[0])
    del dataset


# --- busy and failing servers ---


@pytest.mark.parametrize("header", [{"Retry-After": "1"}, {"RateLimit": '"resolvers";r=0;t=1'}])
def test_a_request_is_sent_again_when_the_hub_allows_it(
    photos: HubSet, photo_rec: Path, header: dict[str, str]
) -> None:
    photos.server.faults = [Fault("/resolve/", 429, header)]
    begin = time.monotonic()
    dataset = aioloader.RecordFileDataset(photos.rec)
    assert time.monotonic() - begin >= 1.0
    assert dataset[3] == aioloader.RecordFileDataset(photo_rec)[3]


def test_a_long_pause_is_an_error_at_once(photos: HubSet) -> None:
    photos.server.faults = [Fault("/resolve/", 429, {"Retry-After": "200"}, times=99)]
    with pytest.raises(RemoteReadError, match="try again in 200 s; with a token in HF_TOKEN") as caught:
        aioloader.RecordFileDataset(photos.rec)
    assert caught.value.kind == "busy"
    assert caught.value.attempts == 1
    assert len(photos.server.targets("hub", "/resolve/")) == 1


async def test_no_request_is_sent_before_the_end_of_a_pause(photos: HubSet) -> None:
    photos.server.faults = [Fault("/resolve/", 429, {"Retry-After": "200"})]

    hub = HubResolver()
    for _ in range(3):
        with pytest.raises(RequestFailedError) as caught:
            await hub.address(photos.rec)
        assert caught.value.failure.kind == Kind.BUSY
        assert 190 < caught.value.failure.pause_s <= 200
    assert hub.request_count == 1
    hub.close()


def test_failures_of_both_servers_are_retried(photos: HubSet, photo_rec: Path) -> None:
    server = photos.server
    server.faults = [Fault("/revision/", 500), Fault("/resolve/", 503, times=2), Fault("/xet/", 502, times=3)]
    assert_same(epoch(photos.rec), epoch(photo_rec))
    assert all(fault.times == 0 for fault in server.faults)


def test_a_pinned_file_whose_content_differs_is_an_error(photos: HubSet) -> None:
    dataset = aioloader.RecordFileDataset(photos.rec)
    assert len(dataset)
    files = photos.repository.commits[photos.commit]
    files["train/photos.rec"] = files["train/photos.rec"][::-1]
    with pytest.raises(aioloader.errors.ObjectChangedError):
        dataset[0]


# --- revisions ---


def test_a_dataset_reads_one_commit(photos: HubSet, photo_rec: Path, tmp_path: Path) -> None:
    dataset = aioloader.RecordFileDataset(photos.rec)
    copied = tmp_path / "other.rec"
    with recordio.RecordWriter(copied, index=True) as writer:
        writer.write(b"other" * 1000)
    new = {f"train/photos{path.suffix}": path.read_bytes() for path in (copied, copied.with_suffix(".idx"))}
    commit = photos.repository.commit(new)
    assert commit != photos.commit
    expected = list(aioloader.RecordFileDataset(photo_rec))
    assert list(dataset) == expected
    assert list(pickle.loads(pickle.dumps(dataset))) == expected
    assert list(aioloader.RecordFileDataset(photos.rec)) == [b"other" * 1000]
    old = photos.rec.replace("/set/", f"/set@{photos.commit}/")
    assert list(aioloader.RecordFileDataset(old)) == expected
    assert pin_urls([photos.rec, old, "s3://a/b", "c"]) == [
        photos.rec.replace("/set/", f"/set@{commit}/"),
        old,
        "s3://a/b",
        "c",
    ]


def test_branches_tags_and_refs(photos: HubSet) -> None:
    photos.repository.commit({"default/0000.rec": b"x" * 2000}, "refs/convert/parquet")
    photos.repository.commit({"default/0000.rec": b"y"}, "a/b")
    for revision, expected in (
        ("refs/convert/parquet", b"x" * 2000),
        ("refs%2Fconvert%2Fparquet", b"x" * 2000),
        ("a%2Fb", b"y"),
    ):
        assert read_text(f"{photos.root}@{revision}/default/0000.rec") == expected
        (found,) = pin_urls([f"{photos.root}@{revision}/default/0000.rec"])
        assert re.fullmatch(r"hf://datasets/user/set@[0-9a-f]{40}/default/0000\.rec", found)


def test_a_renamed_data_set(photos: HubSet, photo_rec: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    photos.server.renamed["former/name"] = "user/set"
    photos.server.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    url = photos.rec.replace("user/set", "former/name")
    assert_same(epoch(url), epoch(photo_rec))


def test_a_cache_keeps_files_that_a_commit_does_not_change(photos: HubSet, tmp_path: Path) -> None:
    def hit_rate() -> float | None:
        dataset = aioloader.RecordFileDataset(photos.rec, cache=tmp_path / "cache")
        with aioloader.DataLoader(dataset.transform(len), 4, num_workers=0) as loader:
            list(loader)
            return loader.stats().hit_rate

    assert hit_rate() == 0
    photos.repository.commit({**photos.repository.commits[photos.commit], "README.md": b"new"})
    photos.server.seen.clear()
    assert hit_rate() == 1
    assert photos.server.targets("cdn") == []


# --- patterns ---


@pytest.mark.parametrize(
    "patterns",
    [["x-*.rec"], ["x-{00..19}.rec"], ["x-[01]?.rec"], ["x-{00..09}.rec", "x-1*.rec"]],
    ids="/".join,
)
def test_shards_are_found_by_listing(shards: HubSet, patterns: list[str]) -> None:
    shards.server.page_length = 25
    dataset = aioloader.RecordFileDataset([f"{shards.root}/{pattern}" for pattern in patterns])
    targets = shards.server.targets("hub")
    # One for the revision, and pages of folders, but none for each file.
    assert sum("/revision/" in target for target in targets) == 1
    assert not any("/resolve/" in target for target in targets)
    assert len(targets) <= 10
    assert first_bytes(dataset) == list(range(20))


def test_patterns_of_folders(shards: HubSet) -> None:
    names = aioloader.RecordFileDataset(f"{shards.root}/*/x-*.rec")._paths
    assert [name.partition(f"{shards.commit}/")[2] for name in names] == ["more/x-00.rec"]
    names = aioloader.RecordFileDataset(f"{shards.root}/*/*/x-*.rec")._paths
    assert [name.partition(f"{shards.commit}/")[2] for name in names] == ["deep/er/x-00.rec"]
    for pattern in ("none/*.rec", "{x,none}-*.rec"):
        with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*none"):
            aioloader.RecordFileDataset(f"{shards.root}/{pattern}")


def test_a_missing_shard_is_named_without_a_request_for_it(shards: HubSet) -> None:
    with pytest.raises(ObjectMissingError, match=r"x-20\.rec.* has no 'x-20\.rec'"):
        aioloader.RecordFileDataset(f"{shards.root}/x-{{00..20}}.rec")
    assert shards.server.targets("hub", "/resolve/") == []


def test_of_a_far_larger_folder_only_the_beginning_is_listed(shards: HubSet) -> None:
    shards.server.page_length = 4
    dataset = aioloader.RecordFileDataset(f"{shards.root}/x-{{10..19}}.rec")
    assert len(shards.server.targets("hub", "/tree/")) == 2
    assert len(shards.server.targets("hub", "/resolve/")) == 10
    assert first_bytes(dataset) == list(range(10, 20))


def test_versions_of_a_listing_are_those_of_the_files(shards: HubSet) -> None:
    urls = pin_urls(
        [f"{shards.root}/x-{number:02d}.{suffix}" for number in range(8) for suffix in ("rec", "idx")]
    )
    listed = describe_all(urls)
    assert shards.server.targets("hub", "/resolve/") == []
    assert [describe_all([url])[0] for url in urls] == list(listed)


# --- errors ---


def test_a_gated_data_set(photos: HubSet, monkeypatch: pytest.MonkeyPatch) -> None:
    photos.repository.gated = True
    terms = f"accept its terms at {photos.server.endpoint}/datasets/user/set"
    with pytest.raises(ObjectDeniedError, match=f"gated.*{terms}.*set HF_TOKEN"):
        aioloader.RecordFileDataset(photos.rec)
    photos.server.tokens = {TOKEN}
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    with pytest.raises(ObjectDeniedError, match=f"gated.*{terms}"):
        aioloader.RecordFileDataset(photos.rec)
    photos.repository.readers = {TOKEN}
    assert len(aioloader.RecordFileDataset(photos.rec))
    monkeypatch.setenv("HF_TOKEN", "hf_wrong")
    with pytest.raises(ObjectDeniedError, match="does not accept the token"):
        aioloader.RecordFileDataset(photos.rec)


@pytest.mark.parametrize(
    ("path", "error", "reason"),
    [
        ("datasets/user/none/a.rec", ObjectDeniedError, "no data set user/none, or it is private.*HF_TOKEN"),
        ("datasets/user/set@none/a.rec", ObjectMissingError, "has no revision 'none'.*after the @"),
        ("datasets/user/set/none.rec", ObjectMissingError, r"has no 'none\.rec' at revision.*check the path"),
        ("datasets/user/none/*.rec", ObjectDeniedError, "no data set user/none"),
        ("user/set/a.rec", ValueError, "not from models"),
        ("datasets/user/set", RemoteReadError, "not a file in it"),
    ],
)
def test_wrong_names(photos: HubSet, path: str, error: type[Exception], reason: str) -> None:
    with pytest.raises(error, match=reason):
        aioloader.RecordFileDataset(f"hf://{path}")


def test_another_server_is_recognized(photos: HubSet, monkeypatch: pytest.MonkeyPatch, nginx: Any) -> None:
    photos.server.faults = [Fault("/resolve/", 302, {"Location": f"{photos.server.cdn}/xet/a"})]
    with pytest.raises(
        RemoteReadError, match=r"does not answer like the Hugging Face Hub: the size.*HF_ENDPOINT"
    ):
        aioloader.RecordFileDataset(photos.rec)
    monkeypatch.setenv("HF_ENDPOINT", f"http://{nginx.address}")
    with pytest.raises(ObjectMissingError, match=r"user/set has no revision 'main'"):
        aioloader.RecordFileDataset(photos.rec)
    monkeypatch.setenv("HF_ENDPOINT", "nowhere")
    with pytest.raises(RemoteReadError, match="HF_ENDPOINT must be a URL"):
        aioloader.RecordFileDataset(photos.rec)


def test_data_sets_are_not_written(photo_folder: Path) -> None:
    from aioloader.tools.pack import pack

    with pytest.raises(ValueError, match="can only be read"):
        pack(photo_folder, "hf://datasets/user/set/a.rec")


def test_redirects_end(photos: HubSet) -> None:
    photos.server.faults = [
        Fault("/revision/", 302, {"Location": "/api/datasets/user/set/revision/x"}, times=99)
    ]
    with pytest.raises(RequestFailedError, match="too many redirects"):
        HubRequests(photos.server.endpoint).get("/api/datasets/user/set/revision/main", None)
    assert len(photos.server.seen) == 5


def test_an_answer_is_bounded(photos: HubSet, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioloader.storage.remote.hub._MOST_NBYTES", 30)
    with pytest.raises(RemoteReadError, match="more than 30 bytes"):
        aioloader.RecordFileDataset(photos.rec)
