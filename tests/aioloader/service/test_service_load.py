"""Tests of the image service under load, with faults injected all the time."""

from __future__ import annotations

import contextlib
import gc
import os
import random
import signal
import sys
import time
from typing import Any

import anyio
import numpy as np
import psutil
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.transforms import decode_image
from tests.aioloader.service.images import jpeg, until
from tests.aioloader.service.test_hostile_mix import LOCAL

pytestmark = pytest.mark.slow

# In each of two runs: together 100 killed workers and 5,000 cancelled requests.
KILLS = 50
CANCELS = 2_500


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.skipif(sys.platform != "linux", reason="it reads /proc")
@pytest.mark.parametrize("seed", range(2))
def test_killed_workers_cancelled_requests_and_hostile_references(seed: int, leftovers: Any) -> None:
    photos = [jpeg(40 + 9 * n, 60 + 7 * n, seed=n) for n in range(60)]
    expected = [decode_image(photo) for photo in photos]
    hostile = [ref for ref, expected in LOCAL if not isinstance(expected, bytes)]
    draw = random.Random(seed)
    counts = {"right": 0, "named": 0, "cancelled": 0, "gave up": 0, "wrong": 0}

    async def request(service: AsyncImageService, impatient: bool) -> None:
        chosen = [draw.randrange(len(photos)) for _ in range(draw.randint(1, 4))]
        refs: list[Any] = [photos[place] for place in chosen]
        bad = draw.random() < 0.3
        if bad:
            refs.append(draw.choice(hostile))
        with anyio.move_on_after(draw.random() * 0.03 if impatient else None) as scope:
            found = await service.gather(refs, on_error="return")
            for place, image in zip(chosen, found, strict=False):
                if isinstance(image, np.ndarray) and np.array_equal(image, expected[place]):
                    counts["right"] += 1
                elif isinstance(image, aioloader.ImageError) and "WorkerError" in str(image):
                    counts["gave up"] += 1  # its worker was killed several times
                else:
                    print(repr(image)[:300])
                    counts["wrong"] += 1
            if bad:
                named = isinstance(found[-1], (aioloader.ImageServiceError, TypeError))
                counts["named" if named else "wrong"] += 1
        counts["cancelled"] += scope.cancelled_caught

    async def main() -> None:
        options: Any = {"allow": ("bytes", "data", "http", "https", "array"), "max_bytes": 2 << 20}
        async with AsyncImageService(
            num_workers=2, max_pending=256, cache_limit=1 << 20, **options
        ) as service:
            await service.ready()
            await request(service, False)
            gc.collect()
            before = descriptors(), psutil.Process().memory_info().rss
            executor: Any = service._engine.executor
            ended = False

            killed: list[int] = []

            def ready() -> list[int]:
                pids = [
                    handle.process.pid
                    for handle in executor._table.handles
                    if handle.ready and handle.process
                ]
                return [pid for pid in pids if pid not in killed[-4:]]

            async def kill() -> None:
                for _ in range(KILLS):
                    # One that does not even start is another fault, and the death of one may not be noticed yet.
                    while not ready():
                        await anyio.sleep(0.001)
                    killed.append(draw.choice(ready()))
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(killed[-1], signal.SIGKILL)
                    await anyio.sleep(draw.random() * 0.1)

            async def client(impatient: bool) -> None:
                while not ended or counts["cancelled"] < CANCELS:
                    await request(service, impatient)

            begin = time.monotonic()
            async with anyio.create_task_group() as clients:
                for number in range(64):
                    clients.start_soon(client, number >= 8)
                await kill()
                ended = True
            # At the end nothing is left, and the service goes on.
            assert np.array_equal(await service.get(photos[3]), expected[3])
            service._engine.cache.clear()
            gc.collect()
            await until(lambda: service.stats().memory_used == 0 and service.stats().pending == 0)
            stats = service.stats()
            print(counts, f"{time.monotonic() - begin:.0f} s")
            print(service.explain())
            assert stats.held_nbytes == 0
            assert stats.restarts >= KILLS
            assert descriptors() <= before[0] + 4
            assert psutil.Process().memory_info().rss < before[1] + (200 << 20)

    anyio.run(main)
    assert counts["wrong"] == 0
    assert counts["gave up"] < KILLS / 10
    assert counts["cancelled"] >= CANCELS
    assert counts["right"] > 250
    assert counts["named"] > 25
