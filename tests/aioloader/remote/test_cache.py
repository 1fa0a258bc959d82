"""Tests of cached objects: bytes that were read once are not requested again."""

from __future__ import annotations

import os
import pickle
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
import recordio
from aioloader import ImageRecordDataset, transforms
from aioloader.errors import ObjectChangedError, OfflineWarning, RemoteReadError
from aioloader.storage.remote import client, configure, opening
from tests.aioloader.remote.conftest import Served, assert_same, epoch
from tests.executors import pool
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote


@pytest.fixture(params=["directory", "memory"])
def cache(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return tmp_path / "cache" if request.param == "directory" else "memory"


def _ready(url: str, cache: Any, **options: Any) -> Any:
    return ImageRecordDataset(url, cache=cache, **options).transform_first(transforms.RandomResizedCrop(32))


def _nbytes(directory: Path) -> int:
    return sum(path.stat().st_size for path in directory.rglob("*") if path.is_file())


def test_the_second_epoch_makes_no_request(served: Served, cache: Any, leftovers: Any) -> None:
    loader = aioloader.DataLoader(_ready(served.proxied, cache), 4, shuffle=True, **pool("thread", 1))
    with loader:
        first = [(images.copy(), labels.copy()) for images, labels in loader]
        assert served.proxy.counts().requests > 0
        assert loader.stats().hit_rate == 0
        served.proxy.restart()
        loader.set_epoch(0)
        second = [(images.copy(), labels.copy()) for images, labels in loader]
        assert served.proxy.counts().requests == 0
        assert loader.stats().hit_rate == 0.5
    assert_same(second, first)
    assert_same(first, epoch(served.path))


@pytest.mark.parametrize("kept", ["label dtype given", "labels in the index", "labels in the cache"])
def test_the_next_run_asks_only_whether_the_object_is_the_same(
    served: Served, tmp_path: Path, kept: str
) -> None:
    dtype = "int64" if kept == "label dtype given" else None
    dataset = ImageRecordDataset(served.proxied, cache=tmp_path / "cache", label_dtype=dtype)
    first = [dataset[index] for index in range(len(dataset))]
    if kept == "labels in the cache":
        shutil.rmtree(tmp_path / "user-cache" / "sample-index")
    served.proxy.restart()
    again = ImageRecordDataset(served.proxied, cache=tmp_path / "cache", label_dtype=dtype)
    for index, (image, label) in enumerate(first):
        assert np.array_equal(again[index][0], image)
        assert again[index][1] == label
        assert again[index][1].dtype == label.dtype
    assert again.labels().tolist() == [label for _, label in first]
    assert served.proxy.counts().requests == 2  # the versions of the .rec and the .idx


def test_an_object_that_was_replaced_is_read_again(served: Served, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = ImageRecordDataset(served.proxied, cache=cache)[0]
    records = served.path.read_bytes()
    damaged = bytearray(records)
    damaged[12:16] = np.float32(7).tobytes()  # the label of the first record
    served.path.write_bytes(damaged)
    os.utime(served.path, (1, 1))
    image, label = ImageRecordDataset(served.proxied, cache=cache)[0]
    assert np.array_equal(image, first[0])
    assert label != first[1]


def test_only_spans_that_do_not_fit_are_requested_again(served: Served, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    limit = served.path.stat().st_size // 2
    expected = epoch(served.path)
    with aioloader.DataLoader(
        _ready(served.proxied, cache, cache_limit=limit), 4, shuffle=True, executor="inline"
    ) as loader:
        for _ in range(3):
            loader.set_epoch(0)
            assert_same([(images.copy(), labels.copy()) for images, labels in loader], expected)
            assert _nbytes(cache) <= limit
        # Half of the spans in the second and third epoch, or some more where they are small.
        assert 0.2 < loader.stats().hit_rate < 0.5


def test_faults_leave_nothing_wrong_in_the_cache(served: Served, cache: Any) -> None:
    served.proxy.behave(
        Rule("status", share=0.1, attempts=1),
        Rule("reset", share=0.1, attempts=1),
        Rule("truncate", share=0.1, attempts=1),
        Rule("shorten", share=0.1, attempts=1),
    )
    with aioloader.DataLoader(_ready(served.proxied, cache), 4, shuffle=True, executor="inline") as loader:
        first = [(images.copy(), labels.copy()) for images, labels in loader]
        served.proxy.restart()
        loader.set_epoch(0)
        second = [(images.copy(), labels.copy()) for images, labels in loader]
    assert served.proxy.counts().requests == 0
    assert_same(first, epoch(served.path))
    assert_same(second, first)


def test_records_of_more_than_8_mib_are_found_again_too(served: Served, cache: Any) -> None:
    path = served.path.with_name("large.rec")
    payloads = [np.random.RandomState(n).bytes(size) for n, size in enumerate((9 << 20, 1000, 10 << 20))]
    with recordio.RecordWriter(path, path.with_suffix(".idx")) as writer:
        for number, payload in enumerate(payloads):
            writer.write(payload, number)
    dataset = aioloader.RecordFileDataset(served.proxied.replace("photos.rec", "large.rec"), cache=cache)
    with aioloader.DataLoader(dataset, 2, batchify_fn=list, executor="thread", num_workers=1) as loader:
        first = [item for batch in loader for item in batch]
        served.proxy.restart()
        second = [item for batch in loader for item in batch]
    assert served.proxy.counts().requests == 0
    assert first == second == payloads


# -- without a server --------------------------------------------------------------------------------------------------


def _images(url: str, cache: Any) -> list[tuple[Any, Any]]:
    """Return the batches of a shuffled epoch of one line."""
    with aioloader.images(
        url, 32, 4, blocking=True, cache=cache, seed=3, executor="inline", crop_index="auto"
    ) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


@pytest.fixture(autouse=True)
def _briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up a server that is not reached after a moment; one that answers is waited for as usual."""
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)


@pytest.fixture(params=["refused", "no such name", "no route"])
def leaving(
    request: pytest.FixtureRequest, served: Served, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[str, Any]]:
    """Return the URL of the photographs, and a function after whose call no server is reached there."""
    if request.param == "refused":
        yield served.proxied, served.proxy.go_away
        served.proxy.come_back()
        return
    for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
        monkeypatch.delenv(name)
    host = "photos.invalid" if request.param == "no such name" else "[100::1]"
    server, _, path = served.url.removeprefix("http://").partition("/")
    configure(f"http://{host}/", client_options={"proxy_url": f"http://{server}"})
    yield f"http://{host}/{path}", lambda: configure(f"http://{host}/")
    configure(f"http://{host}/")


def test_a_full_cache_opens_and_runs_without_its_server(leaving: tuple[str, Any], tmp_path: Path) -> None:
    url, leave = leaving
    cache = tmp_path / "cache"
    first = _images(url, cache)
    leave()
    with pytest.warns(OfflineWarning) as caught:
        assert_same(_images(url, cache), first)
    (warning,) = (each for each in caught if issubclass(each.category, OfflineWarning))
    assert isinstance(warning.message, OfflineWarning)
    assert warning.filename == __file__
    assert warning.message.url == url
    assert '"' in warning.message.version
    assert f"{warning.message.at:%Y-%m-%d %H:%M} UTC ({warning.message.version})" in str(warning.message)
    with pytest.warns(OfflineWarning):
        records = aioloader.RecordFileDataset(url, cache=cache)
    assert len(records) == sum(len(labels) for _, labels in first)
    assert records[0] == pickle.loads(pickle.dumps(records))[0]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_without_a_cache_directory_opening_needs_a_server(
    served: Served, cache: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _images(served.proxied, tmp_path / "cache")
    monkeypatch.setattr(opening, "OPENING_S", 3.0)  # enough for a second attempt on a busy machine
    with served.proxy.away():
        with pytest.raises(RemoteReadError) as caught:
            aioloader.RecordFileDataset(served.proxied, cache=cache)
    assert (caught.value.kind, caught.value.url) == ("unreached", served.proxied)


@pytest.mark.parametrize("status", [404, 503])
def test_an_answer_of_the_server_is_never_taken_for_its_absence(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    cache = tmp_path / "cache"
    _images(served.proxied, cache)
    monkeypatch.setattr(opening, "OPENING_S", 1.0)
    served.proxy.behave(Rule("status", status=status))
    with pytest.raises(RemoteReadError):
        aioloader.RecordFileDataset(served.proxied, cache=cache)


def test_a_server_that_answers_and_then_goes_is_not_absent(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cache = tmp_path / "cache"
    _images(served.proxied, cache)
    monkeypatch.setattr(opening, "OPENING_S", 3.0)
    served.proxy.behave(Rule("status", status=503))

    def go_away() -> None:
        while not served.proxy.counts().requests:
            pass
        served.proxy.go_away()

    going = threading.Thread(target=go_away)
    going.start()
    try:
        with pytest.raises(RemoteReadError):
            aioloader.RecordFileDataset(served.proxied, cache=cache)
    finally:
        going.join()
        served.proxy.come_back()


def test_a_connection_that_is_closed_is_no_answer(served: Served, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first = _images(served.proxied, cache)
    served.proxy.behave(Rule("reset", after=0.0))
    with pytest.warns(OfflineWarning):
        assert_same(_images(served.proxied, cache), first)


def test_files_of_two_servers_of_which_one_answers_are_not_read_offline(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    urls = [served.url, served.proxied]
    cache = tmp_path / "cache"
    aioloader.RecordFileDataset(urls, cache=cache)
    monkeypatch.setattr(opening, "OPENING_S", 1.0)
    with served.proxy.away():
        with pytest.raises(RemoteReadError) as caught:
            aioloader.RecordFileDataset(urls, cache=cache)
    assert caught.value.url == served.proxied


def test_what_a_cache_lacks_is_named(served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "OPENING_S", 0.5)
    cache = tmp_path / "cache"
    first = aioloader.RecordFileDataset(served.proxied, cache=cache)[0]
    with served.proxy.away():
        with pytest.warns(OfflineWarning):
            again = aioloader.RecordFileDataset(served.proxied, cache=cache)
        assert again[0] == first
        with pytest.raises(
            RemoteReadError, match="the server is not reached, and the cache does not"
        ) as caught:
            again[1]
        assert caught.value.url == served.proxied
        assert caught.value.offset == again.location(1).offset
        os.utime(served.path, (1, 1))
    # The server is asked again, and has another version.
    with pytest.raises(ObjectChangedError):
        again[1]
    assert aioloader.RecordFileDataset(served.proxied, cache=cache)[1]


def test_the_images_of_a_list_need_their_server(
    served: Served, photo_folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "OPENING_S", 0.5)
    shutil.copy(next(photo_folder.rglob("*.jpg")), served.path.with_name("a.jpg"))
    served.path.with_name("a.lst").write_text("0\t1\ta.jpg\n")
    options = {"root": served.proxied.rpartition("/")[0], "imglist": "a.lst", "cache": tmp_path / "cache"}
    assert aioloader.ImageListDataset(**options)[0][1] == 1
    with served.proxy.away():
        with pytest.warns(OfflineWarning):
            dataset = aioloader.ImageListDataset(**options)
        with pytest.raises(
            RemoteReadError, match=r"a\.jpg: .*; the server is not reached, and the cache does not"
        ):
            dataset[0]


@pytest.mark.parametrize("damaged", [None, b"", b"[1]\n", b'{"check": 0}\n'])
def test_an_answer_that_is_damaged_counts_as_none(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damaged: bytes | None
) -> None:
    cache = tmp_path / "cache"
    aioloader.RecordFileDataset(served.proxied, cache=cache)
    (kept,) = (tmp_path / "user-cache").glob("answers-1/*")
    kept.write_bytes(kept.read_bytes()[:20] if damaged is None else damaged)
    monkeypatch.setattr(opening, "OPENING_S", 0.5)
    with served.proxy.away():
        with pytest.raises(RemoteReadError):
            aioloader.RecordFileDataset(served.proxied, cache=cache)
