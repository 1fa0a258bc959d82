"""Images on demand over HTTP: `AsyncImageService` next to the usual ways to keep image work off an event loop.

A server (Starlette, uvicorn) receives requests of four photographs, decodes and processes them with
`Qwen2VLImageProcessor`, and answers with their grids and a checksum. A task in its loop wants to run every millisecond:
how late it runs is the lag. 32 clients send requests as fast as they are answered. Every photograph is another one, so
that nothing is shared. The ways take turns, each in fresh processes:

- service: `AsyncImageService` with two workers
- to_thread: `asyncio.to_thread` with the same decoder and processor; threads: `ThreadPoolExecutor(16)`
- processes: `ProcessPoolExecutor(2)`, which pickles arrays
- threads-pillow, processes-pillow: the same, decoded by Pillow
- idle: the task alone; busy: the task alone while two processes keep both cores busy
- traffic: the same requests at about the service's rate, answered without any work on images, while two processes keep
  both cores busy: what the HTTP server and the cores cost the task in any case

    python -m benchmarks.image_service --data FOLDER --rounds 3 --seconds 6
    python -m benchmarks.image_service --data FOLDER --small --rounds 5

With --small: photographs of 112 x 112 pixels and about 5 kB in one process: `get` from 256 tasks, `gather` of hundreds,
and a loader over the same files in batches of a hundred.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import itertools
import json
import os
import socket
import struct
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AsyncExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import AsyncDataLoader, AsyncImageService, ImageFolderDataset
from aioloader.tools.bench import cpu_seconds, memory_nbytes
from aioloader.transforms import Qwen2VLImageProcessor, decode_image
from benchmarks.data import lay_out, load_jpegs
from benchmarks.figures import ratios, spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from starlette.requests import Request

    from benchmarks.figures import Row

WAYS = (
    *("service", "to_thread", "threads", "threads-pillow", "processes", "processes-pillow"),
    *("idle", "busy", "traffic"),
)
CLIENTS = 32
PHOTOS = 4
HEIGHT, WIDTH = 1536, 2170
_PROCESSOR = Qwen2VLImageProcessor()
_TICK_S = 0.001
_TRAFFIC_S = 2.6  # with 32 clients, 12 requests a second


# -- the work ----------------------------------------------------------------------------------------------------------


def lean(data: bytes) -> dict[str, Any]:
    """Decode by this project's decoder, and process."""
    return _PROCESSOR(decode_image(data, exif="ignore"))


def by_pillow(data: bytes) -> dict[str, Any]:
    """Decode by Pillow, and process."""
    from PIL import Image

    with Image.open(io.BytesIO(data)) as image:
        return _PROCESSOR(image.convert("RGB"))


def summary(made: list[dict[str, Any]]) -> list[Any]:
    """Return what the server answers: the grids, and a few values of the patches."""
    return [[each["image_grid_thw"].tolist(), float(each["pixel_values"][::97, 0].sum())] for each in made]


# -- the server --------------------------------------------------------------------------------------------------------


async def ticker(lags: list[float]) -> None:
    """Note how late a task runs that wants to run every millisecond."""
    while True:
        begin = time.perf_counter()
        await asyncio.sleep(_TICK_S)
        lags.append(time.perf_counter() - begin - _TICK_S)


async def ready_way(way: str, stack: AsyncExitStack) -> Callable[[list[bytes]], Awaitable[list[Any]]]:
    """Return the function that processes the photographs of a request."""
    loop = asyncio.get_running_loop()
    work = by_pillow if way.endswith("pillow") else lean
    if way == "service":
        service = await stack.enter_async_context(AsyncImageService(_PROCESSOR, num_workers=2))
        await service.ready()
        return service.gather
    if way == "to_thread":
        return lambda photos: asyncio.gather(*(asyncio.to_thread(work, photo) for photo in photos))
    if way in ("idle", "busy", "traffic"):
        made = {"image_grid_thw": np.zeros((1, 3), np.int64), "pixel_values": np.zeros((100, 1), np.float32)}

        async def nothing(photos: list[bytes]) -> list[Any]:
            await asyncio.sleep(_TRAFFIC_S)
            return [made] * len(photos)

        return nothing
    pool: Any = ThreadPoolExecutor(16) if way.startswith("threads") else ProcessPoolExecutor(2)
    stack.callback(pool.shutdown)
    return lambda photos: asyncio.gather(*(loop.run_in_executor(pool, work, photo) for photo in photos))


def serve_requests(way: str, port: int) -> None:
    """Run the server until it is ended."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.responses import JSONResponse
    from starlette.routing import Route

    lags: list[float] = []
    state: dict[str, Any] = {}

    async def process(request: Request) -> JSONResponse:
        body = await request.body()
        photos, place = [], 0
        while place < len(body):
            (length,) = struct.unpack_from("<I", body, place)
            photos.append(body[place + 4 : place + 4 + length])
            place += 4 + length
        return JSONResponse(summary(await state["process"](photos)))

    async def begin(request: Request) -> JSONResponse:
        lags.clear()
        state["cpu"] = cpu_seconds(os.getpid())
        return JSONResponse({})

    async def end(request: Request) -> JSONResponse:
        late = sorted(lags)
        figures = {"lag_p50": late[len(late) // 2], "lag_p99": late[len(late) * 99 // 100]}
        figures["cpu"] = (cpu_seconds(os.getpid()) or 0.0) - state["cpu"]
        return JSONResponse({**figures, "memory": (memory_nbytes(os.getpid()) or 0) / 1e6})

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            state["process"] = await ready_way(way, stack)
            ticking = asyncio.create_task(ticker(lags))
            yield
            ticking.cancel()

    routes = [Route(f"/{each.__name__}", each, methods=["POST"]) for each in (process, begin, end)]
    app = Starlette(routes=routes, lifespan=lifespan)
    uvicorn.run(app, port=port, log_level="error", loop="asyncio", timeout_keep_alive=600)


# -- the clients -------------------------------------------------------------------------------------------------------


class Connection:
    """Connection of a client that stays open."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._streams: Any = None

    async def post(self, path: str, body: bytes = b"") -> Any:
        """Send a request and return the answer's JSON."""
        if self._streams is None:
            self._streams = await asyncio.open_connection("127.0.0.1", self._port)
        reader, writer = self._streams
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body)
        await writer.drain()
        answer = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
        if " 200 " not in answer.split("\r\n", 1)[0]:
            raise RuntimeError(answer)
        length = int(answer.split("content-length:")[1].split("\r\n")[0])
        return json.loads(await reader.readexactly(length))


async def load(way: str, photos: list[bytes], seconds: float) -> dict[str, float]:
    """Return the figures of one way: requests/s, CPU seconds a request, lag, latency, memory."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "benchmarks.image_service", "--serve", way, "--port", str(port)]
    server = subprocess.Popen(command)  # noqa: ASYNC220 - nothing else runs in this loop now
    spin = [sys.executable, "-c", "while True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(2)] if way in ("busy", "traffic") else []  # noqa: ASYNC220 - as above
    try:
        control = Connection(port)
        while True:
            try:
                await control.post("/begin")
                break
            except (OSError, EOFError):
                if server.poll() is not None:
                    raise RuntimeError(f"the server of {way} ended with status {server.returncode}") from None
                control = Connection(port)
                await asyncio.sleep(0.1)
        if way in ("idle", "busy"):
            await asyncio.sleep(seconds)
            return {**await control.post("/end"), "requests": 0.0}
        numbers = itertools.count()
        answers: dict[int, Any] = {}
        latencies: list[float] = []

        async def client() -> None:
            connection = Connection(port)
            while time.perf_counter() < until:
                chosen = [next(numbers) for _ in range(PHOTOS)]
                body = b"".join(
                    struct.pack("<I", len(data)) + data
                    for data in (_distinct(photos, number) for number in chosen)
                )
                begin = time.perf_counter()
                made = await connection.post("/process", body)
                latencies.append(time.perf_counter() - begin)
                answers.update(
                    {number % len(photos): each for number, each in zip(chosen, made, strict=True)}
                )

        until = time.perf_counter() + 1.0  # warm
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        latencies.clear()
        await control.post("/begin")
        began = time.perf_counter()
        until = began + seconds
        await asyncio.gather(*(client() for _ in range(CLIENTS)))
        took = time.perf_counter() - began
        found = await control.post("/end")
        if way == "traffic":
            return {**found, "requests": 0.0}
        work = by_pillow if way.endswith("pillow") else lean
        for number, answer in itertools.islice(answers.items(), 8):
            (expected,) = summary([work(photos[number])])
            assert answer == expected, f"{way}: photograph {number} gave {answer}, expected {expected}"
        ordered = sorted(latencies)
        return {
            **found,
            "requests": len(latencies) / took,
            "cpu": found["cpu"] / len(latencies),
            "latency_p99": ordered[len(ordered) * 99 // 100],
        }
    finally:
        server.terminate()
        for process in spinning:
            process.kill()
        server.wait()


def _distinct(photos: list[bytes], number: int) -> bytes:
    """Return one of the photographs, with bytes behind its end that no other has."""
    return photos[number % len(photos)] + struct.pack("<I", number)


def resized(photos: Sequence[bytes], height: int, width: int, quality: int) -> list[bytes]:
    """Return photographs at another size, as JPEGs."""
    import cv2

    made = []
    for data in photos:
        image = cv2.imdecode(np.frombuffer(data, np.uint8), cv2.IMREAD_COLOR)
        small = cv2.resize(image, (width, height), interpolation=cv2.INTER_AREA)
        made.append(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
    return made


def over_http(files: list[bytes], ways: Sequence[str], rounds: int, seconds: float) -> Iterator[Row]:
    """Measure the ways in turns."""
    photos = resized(files, HEIGHT, WIDTH, 90)
    turns = {way: lambda way=way: asyncio.run(load(way, photos, seconds)) for way in ways}
    found = {
        way: {name: [each[name] for each in figures] for name in figures[0]}
        for way, figures in in_turns(turns, rounds, warm=0).items()
    }
    ours = found.get("service")
    for way, figures in found.items():
        row: Row = {
            "way": way,
            "lag p50, ms": spread(figures["lag_p50"], 1e3),
            "lag p99, ms": spread(figures["lag_p99"], 1e3),
            "memory, MB": spread(figures["memory"]),
        }
        if figures["requests"][0]:
            row["CPU a request, ms"] = spread(figures["cpu"], 1e3)
            row["requests/s"] = spread(figures["requests"])
            row["latency p99, s"] = spread(figures["latency_p99"])
            for column, name in (("requests/s", "requests"), ("CPU", "cpu"), ("lag p99", "lag_p99")):
                if ours is not None and ours is not figures:
                    row[f"service, times its {column}"] = ratios(ours[name], figures[name])
        yield row


# -- small images ------------------------------------------------------------------------------------------------------


async def small_images(files: list[bytes], rounds: int, count: int) -> list[Row]:
    """Measure what small images cost: single ones, hundreds, and a loader's batches."""
    base = resized(files, 112, 112, 92)
    data = [_distinct(base, number) for number in range(count)]
    rates: dict[str, list[float]] = {"get": [], "gather": [], "loader": []}
    costs: dict[str, list[float]] = {"get": [], "gather": [], "loader": []}
    with tempfile.TemporaryDirectory() as made:
        lay_out(data, Path(made), 1, classes=1)
        async with (
            AsyncImageService(num_workers=2) as service,
            AsyncDataLoader(ImageFolderDataset(made), 100, num_workers=2) as loader,
        ):

            async def get(numbers: Iterator[int]) -> None:
                for number in numbers:
                    await service.get(data[number])

            async def gather(starts: Iterator[int]) -> None:
                for start in starts:
                    await service.gather(data[start : start + 100])

            async def epoch(_: Iterator[int]) -> None:
                async for _ in loader:
                    pass

            for turn in range(-1, rounds):
                for name, way, step, tasks in (
                    ("get", get, 1, 256),
                    ("gather", gather, 100, 4),
                    ("loader", epoch, 1, 1),
                ):
                    begin, used = time.perf_counter(), time.thread_time()
                    starts = iter(range(0, count, step))
                    await asyncio.gather(*(way(starts) for _ in range(tasks)))
                    if turn >= 0:  # the first turn starts workers and reads files
                        rates[name].append(count / (time.perf_counter() - begin))
                        costs[name].append(1e6 * (time.thread_time() - used) / count)
    return [
        {
            "small images": name,
            "images/s": spread(rates[name]),
            "loop's thread an image, µs": spread(costs[name]),
            "of the loader's rate": ratios(rates[name], rates["loader"]),
        }
        for name in rates
    ]


def measure(
    data: str | None = None,
    ways: Sequence[str] = WAYS,
    rounds: int = 3,
    seconds: float = 6.0,
    photos: int = 32,
    small: bool = False,
    images: int = 4000,
    serve: str | None = None,
    port: int = 0,
) -> Iterator[Row]:
    """Measure the ways to process requests, or small images.

    Args:
        data: folder.
        ways: some of the ways.
        rounds: turns of each way.
        seconds: of a turn.
        photos: number of different photographs.
        small: small images in place of requests.
        images: number of small images.
        serve: only serve requests, in this way.
        port: of that server.
    """
    if serve:
        serve_requests(serve, port)
        return
    files = load_jpegs(data)
    if small:
        yield from asyncio.run(small_images(files[:1000], rounds, images))
    else:
        yield from over_http(files[:photos], ways, rounds, seconds)


if __name__ == "__main__":
    run(measure, ways=("service", "threads"), rounds=1, seconds=1.0, photos=16, images=200)
