"""Tests of what images wait for: what is slow in one source holds no other."""

from __future__ import annotations

import threading
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from PIL import Image

import aioloader
from aioloader.service import dispatcher
from tests.aioloader.service.images import Gate, data_uri, jpeg, number_of, numbered, service_of, until
from tests.cases import on_both_loops, with_cases

PHOTO = jpeg()
SILENT = 200


class Stuck(aioloader.Dataset[Any]):
    """Dataset whose items come when `opened` is set."""

    def __init__(self, opened: threading.Event) -> None:
        self.opened = opened

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> Any:
        assert self.opened.wait(60)
        return PHOTO


class Servers:
    """`fetch=` that returns an image, but nothing of the servers named silent."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def __call__(self, url: str) -> bytes:
        self.asked.append(url)
        if "silent" in url:
            await anyio.sleep_forever()
        return PHOTO


def of_each_kind() -> dict[str, Any]:
    """Return a reference of each kind that waits for no silent server."""
    return {
        "bytes": PHOTO,
        "data": data_uri(PHOTO),
        "path": "photo.jpg",
        "array": np.zeros((4, 4, 3), np.uint8),
        "pillow": Image.new("RGB", (4, 4)),
        "dataset": (aioloader.SimpleDataset([PHOTO]), 0),
        "URL of another server": "http://good.example/photo.jpg",
    }


@with_cases("slow", ["URLs of a server", "URLs of several servers", "items"])
@on_both_loops
async def test_what_is_slow_in_one_source_holds_no_other(slow: str, tmp_path: Path, leftovers: Any) -> None:
    (tmp_path / "photo.jpg").write_bytes(PHOTO)
    opened = threading.Event()
    stuck = Stuck(opened)
    refs: list[Any] = {
        "URLs of a server": [f"http://silent.example/{n}" for n in range(3 * SILENT)],
        "URLs of several servers": [f"http://silent{n % 3}.example/{n}" for n in range(SILENT)],
        "items": [(stuck, n) for n in range(100)],
    }[slow]
    others = of_each_kind()
    if slow == "items":
        del others["dataset"]
    kinds = ("bytes", "data", "path", "array", "pillow", "dataset", "http")

    fetch = Servers()
    options: Any = {"allow": kinds, "root": tmp_path, "fetch": fetch}
    async with service_of(timeout=None, **options) as service:
        async with anyio.create_task_group() as tasks:
            for ref in refs:
                # What is slow comes from both, and has the higher priority.
                tasks.start_soon(partial(service.get, ref, priority=1))
                tasks.start_soon(service.probe, ref)
            await until(lambda: service.stats().admitted + service.stats().waiting_for_admission >= len(refs))
            for kind, ref in others.items():
                with anyio.fail_after(30):
                    assert await service.probe(ref) is not None, kind
                    assert await service.get(ref) is not None, kind
            tasks.cancel_scope.cancel()
            opened.set()
        # The places of what was given up are free again.
        await until(lambda: service.stats().admitted == 0)
        await service.gather([ref for ref in refs if not isinstance(ref, str)])


@on_both_loops
async def test_images_that_were_read_hold_no_others_of_a_higher_priority(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatcher, "_HELD_BYTES", 2 * len(PHOTO))
    gate = Gate((1,))

    def processor(image: Any) -> Any:
        return gate(image) if image.shape == (1, 1, 3) else 0

    fetch = Servers()
    options: Any = {"allow": ("bytes", "http"), "fetch": fetch}
    async with service_of(processor, **options) as service:
        async with anyio.create_task_group() as tasks:
            for draw in range(3):  # as many chunks as there may be in work
                tasks.start_soon(partial(service.get, numbered(1), draw=draw))
            await until(lambda: gate.begun)
            # Bytes of callers are in memory anyway.
            for number in range(4):
                tasks.start_soon(service.get, jpeg(seed=number + 1))
            low = [f"http://good.example/{n}" for n in range(600)]
            tasks.start_soon(partial(service.gather, low, priority=-1))
            await until(lambda: fetch.asked and not service.stats().reading)
            begun = len(fetch.asked)
            assert begun < 600
            tasks.start_soon(partial(service.get, "http://good.example/high"))
            await until(lambda: "http://good.example/high" in fetch.asked)
            assert len(fetch.asked) == begun + 1
            gate.open()
        assert len(fetch.asked) == 601
        assert service.stats().held_nbytes == 0


@on_both_loops
async def test_a_free_place_goes_to_the_highest_priority() -> None:
    fetch = Servers()
    found: list[int] = []
    options: Any = {"allow": ("bytes", "http"), "fetch": fetch, "max_pending": 1}
    async with service_of(number_of, **options) as service:

        async def get(number: int, priority: int) -> None:
            found.append(await service.get(numbered(number), priority=priority))

        async def get_silent() -> None:
            with silent:
                await service.get("http://silent.example/1")

        silent = anyio.CancelScope()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(get_silent)
            await until(lambda: fetch.asked)
            for number, priority in enumerate((0, -1, 2, 0, 1)):
                tasks.start_soon(get, number, priority)
                await until(lambda number=number: service.stats().waiting_for_admission == number + 1)
            silent.cancel()
    assert found == [2, 4, 0, 3, 1]
