"""Tests that an image replaced before it is asked for comes with its new pixels, whatever is in work."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.aioloader.service.images import Gate, number_of, numbered, service_of, until
from tests.cases import on_both_loops, with_cases
from tests.servers.raw_http import RawServer, answer


def at_path(folder: Path) -> tuple[Any, Callable[[int], None], dict[str, Any]]:
    def put(number: int) -> None:
        (folder / "new").write_bytes(numbered(number))
        os.replace(folder / "new", folder / "image")

    return "image", put, {"allow": ["path"], "root": folder}


def at_url(folder: Path) -> tuple[Any, Callable[[int], None], dict[str, Any]]:
    numbers = []

    async def fetch(url: str) -> bytes:
        return numbered(numbers[-1])

    return "https://example.com/a", numbers.append, {"allow": ["https"], "fetch": fetch}


class Items:
    """Dataset whose only item changes."""

    def __init__(self) -> None:
        self.number = 0

    def __len__(self) -> int:
        return 1

    def __getitem__(self, index: int) -> Any:
        from aioloader.transforms import decode_image

        return decode_image(numbered(self.number))

    def put(self, number: int) -> None:
        self.number = number


def in_dataset(folder: Path) -> tuple[Any, Callable[[int], None], dict[str, Any]]:
    items = Items()
    return (items, 0), items.put, {"allow": ["dataset"]}


def in_pillow(folder: Path) -> tuple[Any, Callable[[int], None], dict[str, Any]]:
    image = pytest.importorskip("PIL.Image").new("RGB", (1, 1))
    return image, lambda number: image.putpixel((0, 0), (number, 0, 0)), {"allow": ["pillow"]}


@with_cases("cache_limit", [0, 1 << 20])
@with_cases("place", [at_path, at_url, in_dataset, in_pillow])
@on_both_loops
async def test_an_image_in_work_is_not_that_which_replaced_it(
    place: Any, cache_limit: int, tmp_path: Path
) -> None:
    ref, put, options = place(tmp_path)
    gate = Gate(closed=(1,))
    found: dict[str, int] = {}

    async with (
        service_of(gate, num_workers=2, cache_limit=cache_limit, **options) as service,
        anyio.create_task_group() as tasks,
    ):

        async def get(name: str) -> None:
            found[name] = await service.get(ref)

        put(1)
        tasks.start_soon(get, "before")
        await until(lambda: gate.begun == [1])
        put(2)
        with anyio.fail_after(30):
            await get("after")
        gate.open()
    assert found == {"before": 1, "after": 2}


@on_both_loops
async def test_a_file_that_is_the_same_is_made_once_and_the_larger_priority_counts(tmp_path: Path) -> None:
    gate = Gate(closed=(1,))
    ref, put, options = at_path(tmp_path)
    put(1)

    async with (
        service_of(gate, **options) as service,
        anyio.create_task_group() as tasks,
    ):
        found: list[int] = []

        async def get(priority: int) -> None:
            found.append(await service.get(ref, priority=priority))

        for priority in range(8):
            tasks.start_soon(get, priority)
            await until(lambda: gate.begun == [1])
        await until(lambda: service.stats().joined == 7)
        stats = service.stats()
        assert (stats.pending, stats.admitted, stats.reading, stats.held_nbytes > 0) == (1, 8, 0, True)
        gate.open()
        await until(lambda: len(found) == 8)
        assert (found, gate.begun) == ([1] * 8, [1])
        stats = service.stats()
        assert (stats.made, stats.pending, stats.admitted, stats.held_nbytes) == (1, 0, 0, 0)


@with_cases("cache_limit", [0, 1 << 20])
@with_cases("url_cache", [None, "memory"])
@on_both_loops
async def test_a_url_that_is_replaced_while_its_bytes_arrive_is_read_again(
    url_cache: str | None, cache_limit: int, leftovers: Any
) -> None:
    pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")
    versions, rest = [1], threading.Event()
    found: dict[str, list[int]] = {"before": [], "meanwhile": [], "after": []}

    def send(sock: socket.socket, ended: threading.Event) -> None:
        version = versions[-1]
        if f'if-none-match: "{version}"' in server.heads[-1].lower():
            answer(status=304, Content_Length=None, ETag=f'"{version}"')(sock, ended)
            return
        body = numbered(version)
        sock.sendall(f'HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\nETag: "{version}"\r\n\r\n'.encode())
        sock.sendall(body[:3])
        assert rest.wait(30)
        sock.sendall(body[3:])

    with RawServer() as server:
        server.answers["/image"] = send
        options: Any = {"allow": ["http"], "hosts": [f"127.0.0.1:{server.port}"], "url_cache": url_cache}
        async with service_of(number_of, cache_limit=cache_limit, **options) as service:

            async def get(when: str) -> None:
                found[when].append(await service.get(server.url("/image")))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(get, "before")
                await until(lambda: server.heads)
                versions.append(2)
                for _ in range(3):
                    tasks.start_soon(get, "meanwhile")
                await until(lambda: service.stats().joined == 2)
                rest.set()
            await get("after")
    assert found == {"before": [1], "meanwhile": [2] * 3, "after": [2]}
    assert len(server.heads) == 3  # those who asked meanwhile shared one request


@with_cases("leave", ["none", "first", "later"])
@on_both_loops
async def test_who_asks_while_a_url_is_fetched_shares_one_more_request(leave: str) -> None:
    fetched: list[str] = []
    there = anyio.Event()
    gone: dict[str, list[anyio.CancelScope]] = {"first": [], "later": []}
    found: list[int] = []

    async def fetch(url: str) -> bytes:
        fetched.append(url)
        await there.wait()
        return numbered(len(fetched))

    async with service_of(number_of, allow=["https"], fetch=fetch) as service:

        async def get(who: str) -> None:
            with anyio.CancelScope() as scope:
                gone[who].append(scope)
                found.append(await service.get("https://example.com/a"))

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(get, "first")
            await until(lambda: fetched)
            for _ in range(3):
                tasks.start_soon(get, "later")
            await until(lambda: service.stats().joined == 2)
            if leave != "none":
                for scope in gone[leave]:
                    scope.cancel()
                await until(lambda: service.stats().pending == 1)
            there.set()
        assert sorted(found) == {"none": [1, 2, 2, 2], "first": [2, 2, 2], "later": [1]}[leave]
        assert len(fetched) == (1 if leave == "later" else 2)
        stats = service.stats()
        assert (stats.pending, stats.admitted, stats.reading, stats.held_nbytes) == (0, 0, 0, 0)
        # What is not being read any more is read at once.
        assert await service.get("https://example.com/a") == len(fetched)


@with_cases("how", ["replaced", "rewritten"])
@on_both_loops
async def test_a_file_with_the_size_and_time_of_the_one_before_is_not_taken_for_it(
    how: str, tmp_path: Path
) -> None:
    ref, put, options = at_path(tmp_path)

    async with service_of(Gate(), cache_limit=1 << 20, **options) as service:
        put(1)
        os.utime(tmp_path / "image", ns=(0, 0))
        before = (tmp_path / "image").stat()
        assert await service.get(ref) == 1
        if how == "replaced":
            put(2)
        while (tmp_path / "image").stat().st_ctime_ns == before.st_ctime_ns:  # the clock of files is coarse
            (tmp_path / "image").write_bytes(numbered(2))
        os.utime(tmp_path / "image", ns=(0, 0))
        assert await service.get(ref) == 2
