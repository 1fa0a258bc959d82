"""Tests of headers that are made to take long: none may hold the event loop."""

from __future__ import annotations

import asyncio
import base64
import gc
import random
import struct
import threading
import time
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioloader
from aioloader.errors import DecodeError
from aioloader.service import requests
from aioloader.transforms import formats, image_size
from aioloader.transforms.formats import LongHeaderError, read_header
from tests.aioloader.service.images import jpeg, service_of
from tests.cases import with_cases

PHOTO = jpeg()


def png_chunk(name: bytes, body: bytes = b"") -> bytes:
    return struct.pack(">I", len(body)) + name + body + bytes(4)


def webp(chunk: bytes, times: int) -> bytes:
    first = b"VP8X" + struct.pack("<I", 10) + bytes((8,)) + bytes(9)
    return b"RIFF" + bytes(4) + b"WEBP" + first + chunk * times


def box(name: bytes, nbytes: int = 0) -> bytes:
    return struct.pack(">I", 8 + nbytes) + name + bytes(nbytes)


PNG = b"\x89PNG\r\n\x1a\n" + png_chunk(b"IHDR", struct.pack(">IIBBBBB", 4, 4, 8, 2, 0, 0, 0))
CODESTREAM = b"\xff\x4f\xff\x51" + struct.pack(">HHIIII", 47, 0, 8, 7, 1, 2)
GIF = b"GIF89a" + struct.pack("<HH", 4, 4) + bytes(3)

# Of a number of small parts: an image of very many of them.
HOSTILE: dict[str, Callable[[int], bytes]] = {
    "fill bytes": lambda n: b"\xff\xd8" + b"\xff" * (16 * n) + PHOTO[2:],
    "empty comments": lambda n: b"\xff\xd8" + b"\xff\xfe\0\2" * n + PHOTO[2:],
    "comments after fill bytes": lambda n: b"\xff\xd8" + b"\xff\xff\xff\xfe\0\2" * n + PHOTO[2:],
    "restart markers": lambda n: b"\xff\xd8" + b"\xff\xd0" * n + PHOTO[2:],
    "png chunks": lambda n: PNG + png_chunk(b"tEXt") * n + png_chunk(b"IDAT") + png_chunk(b"IEND"),
    "png chunks at the end": lambda n: PNG + png_chunk(b"IDAT") + png_chunk(b"tEXt") * n,
    "one large png profile": lambda n: (
        PNG + png_chunk(b"zTXt", b"Raw profile type exif\0\0" + zlib.compress(b"\n" * (4 * n)))
    ),
    "webp chunks": lambda n: webp(b"XYZW" + bytes(4), n),
    "webp frames": lambda n: webp(b"ANMF" + bytes(4), n),
    "gif blocks": lambda n: GIF + b"\x21\xf9" + b"\1a" * n + b"\0\x3b",
    "gif extensions": lambda n: GIF + b"\x21\xf9\0" * n + b"\x3b",
    "jp2 boxes": lambda n: box(b"jP  ", 4).replace(bytes(4), b"\r\n\x87\n") + box(b"free") * n + CODESTREAM,
    "one large jp2 box": lambda n: (
        box(b"jP  ", 4).replace(bytes(4), b"\r\n\x87\n") + bytes(16 * n) + CODESTREAM
    ),
    "avif properties": lambda n: bytes(4) + b"ftypavif" + b"ispe" * n + bytes(16),
    "almost base64": lambda n: b"/9j/" + b" " * min(n, 4000) + b"!",
    "tiff directories": lambda n: (
        b"II*\0"
        + struct.pack("<I", 8)
        + b"".join(struct.pack("<HI", 0, 14 + 6 * place) for place in range(n))
    ),
}


@with_cases("kind", HOSTILE)
def test_a_long_header_is_never_read_at_once(kind: str) -> None:
    """Reading ends after a number of steps, whatever the size, and the result does not depend on where it is read."""
    read: list[Any] = []
    for parts in (1, 100, 60_000, 1_000_000):
        data = HOSTILE[kind](parts)
        for quick in (True, False):
            try:
                header = read_header(data, quick=quick)
                read.append((header.format, formats.count_frames(data, header.format, 1 << 40, quick=quick)))
            except (LongHeaderError, DecodeError) as error:
                read.append(type(error))
    few, many = read[:4], read[4:]
    assert LongHeaderError not in few
    assert few[0] == few[1]
    assert few[2] == few[3]
    assert LongHeaderError not in many[1::2]
    # Of what is searched in C nothing is long.
    if "large" not in kind:
        assert LongHeaderError in many[::2] or DecodeError in many[::2]


def test_a_header_of_many_large_parts_is_read() -> None:
    comment = b"\xff\xfe\x04\x02" + bytes(1024)
    assert image_size(b"\xff\xd8" + comment * 3000 + PHOTO[2:]) == ("jpeg", 40, 60)
    large = png_chunk(b"IDAT", bytes(1024))
    assert image_size(PNG + large * 20_000 + png_chunk(b"IEND")) == ("png", 4, 4)
    assert read_header(HOSTILE["fill bytes"](1000), quick=True)[:3] == ("jpeg", 40, 60)
    assert read_header(HOSTILE["fill bytes"](1_000_000))[:3] == ("jpeg", 40, 60)


@pytest.mark.parametrize("call", ["get", "probe"])
@pytest.mark.parametrize("as_uri", [False, True], ids=["bytes", "data"])
def test_a_long_header_is_read_outside_of_the_loop(
    call: str, as_uri: bool, run_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    loops: list[int] = []
    full = formats.most_steps

    def noting(nbytes: int) -> int:
        loops.append(threading.get_ident())
        return full(nbytes)

    monkeypatch.setattr(formats, "most_steps", noting)
    data = HOSTILE["empty comments"](2600) + bytes(1 << 20)
    ref: Any = "data:image/jpeg;base64," + base64.b64encode(data).decode() if as_uri else data

    async def main() -> None:
        async with service_of() as service:
            assert np.shape(await service.get(ref)) == (40, 60, 3)
            assert (await service.probe(ref)).size == (40, 60)
            with pytest.raises(aioloader.ImageError, match="thousands of segments"):
                await getattr(service, call)(HOSTILE["empty comments"](100_000))

    run_on(main)
    assert loops
    assert threading.get_ident() not in loops


def test_many_images_of_a_request_let_other_tasks_run(
    tmp_path: Path, run_on: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(requests, "_HELD_S", 0.0)
    turns, seen = 0, []

    class Ref:
        """Path that notes the turns of another task until it is asked for."""

        def __fspath__(self) -> str:
            seen.append(turns)
            return "missing.jpg"

    async def count(scope: anyio.CancelScope) -> None:
        nonlocal turns
        with scope:
            while True:
                await anyio.lowlevel.checkpoint()
                turns += 1

    async def main() -> None:
        async with service_of(allow=["path"], root=tmp_path) as service:
            async with anyio.create_task_group() as tasks:
                scope = anyio.CancelScope()
                tasks.start_soon(count, scope)
                await service.gather([Ref() for _ in range(20)], on_error="return")
                async for _ in service.map(range(20), refs=lambda _: Ref(), on_error="return"):
                    pass
                scope.cancel()

    run_on(main)
    assert len(seen) == 40
    for first in (0, 20):
        assert len(set(seen[first : first + 20])) >= 10  # trio runs tasks in any order


def hostile(draw: random.Random) -> bytes:
    """Return one of the images above, of a random size up to 8 MiB, and in a third of the cases with faults."""
    kind = draw.choice(list(HOSTILE))
    most = 1 << draw.randrange(4, 20)
    data = bytearray(HOSTILE[kind](draw.randrange(1, most)))
    if draw.random() < 0.3:
        for _ in range(draw.randrange(1, 20)):
            data[draw.randrange(min(12, len(data) - 1), len(data))] = draw.randrange(256)
    return bytes(data[: 8 << 20])


@pytest.mark.slow
def test_no_step_of_the_loop_takes_10_ms_of_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time is that of the loop's thread. What took long is called again: its own work takes long each time."""
    draw = random.Random(5)
    steps: list[float] = []
    longest: list[float] = []
    run = asyncio.Handle._run

    def measured(handle: asyncio.Handle) -> None:
        began = time.thread_time()
        run(handle)
        steps.append(time.thread_time() - began)

    async def timed(call: Callable[[], Awaitable[Any]]) -> AsyncIterator[float]:
        for _ in range(5):
            before = len(steps)
            try:
                await call()
            except aioloader.ImageServiceError:
                pass
            await asyncio.sleep(0)  # the step that ended the call is over then
            yield (took := max(steps[before:]))
            if took < 0.01:
                break

    async def main() -> None:
        async with service_of(max_frames=1 << 40) as service:
            # Decoders are imported in a worker at the first image, and what that leaves is collected in any step.
            await service.get(PHOTO)
            gc.collect()
            gc.freeze()
            monkeypatch.setattr(asyncio.Handle, "_run", measured)
            refs: list[Any] = []
            for number in range(2_000):
                data = await asyncio.to_thread(hostile, draw)
                ref: Any = data
                if number % 3 == 0:
                    ref = await asyncio.to_thread(
                        lambda data=data: "data:image/png;base64," + base64.b64encode(data).decode()
                    )
                elif number % 50 == 7:
                    ref = HOSTILE["almost base64"](4000).decode()
                refs.append(ref)
                calls = [partial(service.get, ref), partial(service.probe, ref)]
                if len(refs) == 50:
                    calls.append(partial(service.gather, refs, on_error="return"))
                    refs = []
                for call in calls:
                    longest.append(min([took async for took in timed(call)]))
            monkeypatch.undo()

    try:
        asyncio.run(main())
    finally:
        gc.unfreeze()
    assert len(steps) > 10_000
    print(f"longest steps: {[round(1e3 * each, 2) for each in sorted(longest)[-5:]]} ms")
    assert max(longest) < 0.01
