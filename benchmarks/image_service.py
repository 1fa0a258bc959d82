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

    python -m benchmarks.image_service --data FOLDER --silent 200 --rounds 5

With --silent: 100 clients that ask for such photographs as files, `data:` URIs and from a server, alone and while that
many URLs of a server that never answers are asked for too. The 99th percentile must not grow by more than half.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
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
from statistics import median
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import AsyncDataLoader, AsyncImageService, ImageFolderDataset, ImageServiceError
from aioloader.transforms import Qwen2VLImageProcessor, decode_image
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from starlette.requests import Request

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


def cpu_and_memory() -> tuple[float, float]:
    """Return CPU seconds of this process and its children, and MB that they do not share or share fairly."""
    import psutil

    me = psutil.Process()
    seconds, nbytes = 0.0, 0
    for process in (me, *me.children(recursive=True)):
        try:
            times = process.cpu_times()
            seconds += times.user + times.system
            nbytes += process.memory_full_info().pss
        except psutil.Error:
            continue
    return seconds, nbytes / 1e6


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


def serve(way: str, port: int) -> None:
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
        state["cpu"] = cpu_and_memory()[0]
        return JSONResponse({})

    async def end(request: Request) -> JSONResponse:
        late = sorted(lags)
        seconds, memory = cpu_and_memory()
        return JSONResponse(
            {
                "lag_p50": late[len(late) // 2],
                "lag_p99": late[len(late) * 99 // 100],
                "lag_max": late[-1],
                "cpu": seconds - state["cpu"],
                "memory": memory,
            }
        )

    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            state["process"] = await ready_way(way, stack)
            ticking = asyncio.create_task(ticker(lags))
            yield
            ticking.cancel()

    from contextlib import asynccontextmanager

    app = Starlette(
        routes=[
            Route("/process", process, methods=["POST"]),
            Route("/begin", begin, methods=["POST"]),
            Route("/end", end, methods=["POST"]),
        ],
        lifespan=asynccontextmanager(lifespan),
    )
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


async def measure(way: str, photos: list[bytes], seconds: float) -> dict[str, float]:
    """Return the figures of one way: requests/s, CPU ms a request, lag, latency, memory."""
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
        for number, answer in itertools.islice(answers.items(), 8):
            expected = summary(
                [by_pillow(photos[number]) if way.endswith("pillow") else lean(photos[number])]
            )[0]
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


def photographs(folder: Path, count: int, height: int, width: int, quality: int) -> list[bytes]:
    """Return photographs of a folder at another size, as JPEGs."""
    import cv2

    paths = sorted(path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    made = []
    for path in paths[:count]:
        resized = cv2.resize(cv2.imread(str(path)), (width, height), interpolation=cv2.INTER_AREA)
        made.append(cv2.imencode(".jpg", resized, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes())
    return made


async def over_http(folder: Path, ways: list[str], rounds: int, seconds: float, count: int) -> list[Row]:
    """Measure the ways in turn, print medians and ratios, and return the figures."""
    photos = photographs(folder, count, HEIGHT, WIDTH, 90)
    print(
        f"{len(photos)} photographs of {HEIGHT} x {WIDTH}, {np.mean([len(p) for p in photos]) / 1e3:,.0f} kB each"
    )
    found: dict[str, list[dict[str, float]]] = {way: [] for way in ways}
    for turn in range(rounds):
        for way in ways[turn % len(ways) :] + ways[: turn % len(ways)]:
            figures = await measure(way, photos, seconds)
            found[way].append(figures)
            print(f"round {turn + 1}  {_line(way, figures)}", flush=True)
    print("\nmedians")
    middle = {
        way: {name: median(each[name] for each in figures) for name in figures[0]}
        for way, figures in found.items()
    }
    for way, figures in middle.items():
        print(_line(way, figures))
    if "service" in middle:
        print("\nservice, times the others (requests/s, CPU a request, lag p99)")
        for way in ways:
            if way != "service":
                print(f"{way:18s} {_ratios(found['service'], found[way])}")
    return [
        {
            "way": way,
            "lag p50, ms": spread((each["lag_p50"] for each in figures), 1e3),
            "lag p99, ms": spread((each["lag_p99"] for each in figures), 1e3),
            "memory, MB": spread(each["memory"] for each in figures),
            **(_answered(found.get("service"), figures) if figures[0]["requests"] else {}),
        }
        for way, figures in found.items()
    ]


def _answered(ours: list[dict[str, float]] | None, figures: list[dict[str, float]]) -> Row:
    """Return the figures of a way that answered requests."""
    row: Row = {
        "CPU a request, ms": spread((each["cpu"] for each in figures), 1e3),
        "requests/s": spread(each["requests"] for each in figures),
        "latency p99, s": spread(each["latency_p99"] for each in figures),
    }
    if ours is not None and ours is not figures:
        for column, name in (("requests/s", "requests"), ("CPU", "cpu"), ("lag p99", "lag_p99")):
            row[f"service, times its {column}"] = ratios(
                [each[name] for each in ours], [each[name] for each in figures]
            )
    return row


def _ratios(ours: list[dict[str, float]], others: list[dict[str, float]]) -> str:
    texts = []
    for name in ("requests", "cpu", "lag_p99"):
        if all(other[name] for other in others) and (name == "lag_p99" or others[0]["requests"]):
            ratios = [mine[name] / other[name] for mine, other in zip(ours, others, strict=True)]
            texts.append(f"{name} {median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    return ", ".join(texts)


def _line(way: str, figures: dict[str, float]) -> str:
    lag = ", ".join(f"{1e3 * figures[name]:.1f}" for name in ("lag_p50", "lag_p99", "lag_max"))
    text = f"{way:18s} lag p50, p99, most {lag} ms; {figures['memory']:,.0f} MB"
    if figures["requests"]:
        text += (
            f"; {figures['requests']:.1f} requests/s, CPU {1e3 * figures['cpu']:.0f} ms a request, "
            f"latency p99 {1e3 * figures['latency_p99']:,.0f} ms"
        )
    return text


# -- small images ------------------------------------------------------------------------------------------------------


async def small(folder: Path, rounds: int, count: int) -> list[Row]:
    """Measure what small images cost: single ones, hundreds, and a loader's batches; return the figures."""
    base = photographs(folder, min(count, 1000), 112, 112, 92)
    data = [_distinct(base, number) for number in range(count)]
    print(f"{count:,} images of 112 x 112, {np.mean([len(each) for each in data]) / 1e3:.1f} kB each")
    rates: dict[str, list[float]] = {"get": [], "gather": [], "loader": []}
    costs: dict[str, list[float]] = {"get": [], "gather": [], "loader": []}
    with tempfile.TemporaryDirectory() as made:
        place = Path(made, "all")
        place.mkdir()  # noqa: ASYNC240 - nothing else runs in this loop now
        for number, each in enumerate(data):
            (place / f"{number:06}.jpg").write_bytes(each)
        async with (
            AsyncImageService(num_workers=2) as service,
            AsyncDataLoader(ImageFolderDataset(made), 100, num_workers=2) as loader,
        ):

            async def gets(numbers: Any) -> None:
                for number in numbers:
                    await service.get(data[number])

            async def gathers(starts: Any) -> None:
                for start in starts:
                    await service.gather(data[start : start + 100])

            async def get() -> None:
                numbers = iter(range(count))
                await asyncio.gather(*(gets(numbers) for _ in range(256)))

            async def gather() -> None:
                starts = iter(range(0, count, 100))
                await asyncio.gather(*(gathers(starts) for _ in range(4)))

            async def epoch() -> None:
                async for _ in loader:
                    pass

            for turn in range(-1, rounds):
                for name, way in (("get", get), ("gather", gather), ("loader", epoch)):
                    begin, used = time.perf_counter(), time.thread_time()
                    await way()
                    if turn >= 0:  # the first turn starts workers and reads files
                        rates[name].append(count / (time.perf_counter() - begin))
                        costs[name].append(1e6 * (time.thread_time() - used) / count)
    for name in rates:
        low, high = min(rates[name]), max(rates[name])
        print(
            f"{name:7s} {median(rates[name]):,.0f} images/s ({low:,.0f} to {high:,.0f}), "
            f"{median(costs[name]):.0f} us of the loop's thread an image"
        )
    shares = [ours / theirs for ours, theirs in zip(rates["gather"], rates["loader"], strict=True)]
    print(f"gather, of the loader's rate: {median(shares):.2f} ({min(shares):.2f} to {max(shares):.2f})")
    return [
        {
            "small images": name,
            "images/s": spread(rates[name]),
            "loop's thread an image, µs": spread(costs[name]),
            "of the loader's rate": ratios(rates[name], rates["loader"]),
        }
        for name in rates
    ]


# -- silent servers ----------------------------------------------------------------------------------------------------


async def beside_silent(folder: Path, silent: int, rounds: int, seconds: float) -> list[Row]:
    """Measure how long images take while URLs of a server that never answers wait; return the figures.

    Raises:
        SystemExit: they take more than half as long again.
    """
    base = photographs(folder, 100, 112, 112, 92)
    numbers = itertools.count()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError):
            head = await reader.readuntil(b"\r\n\r\n")
            data = _distinct(base, int(head.split(b" ", 2)[1][1:]))
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(data) + data)
            await writer.drain()
        writer.close()

    async def no_answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.read()
        writer.close()

    found: dict[str, list[float]] = {"alone": [], "beside": []}
    servers = [await asyncio.start_server(each, "127.0.0.1", 0) for each in (answer, no_answer)]
    good, bad = (server.sockets[0].getsockname()[1] for server in servers)
    with tempfile.TemporaryDirectory() as root:
        for number in range(len(base)):
            Path(root, f"{number}.jpg").write_bytes(_distinct(base, number))  # noqa: ASYNC240 - nothing else runs in this loop now
        options: dict[str, Any] = {
            "allow": ("data", "path", "http"),
            "root": root,
            "hosts": (f"127.0.0.1:{good}", f"127.0.0.1:{bad}"),
        }
        async with AsyncImageService(num_workers=2, **options) as service:
            await service.ready()

            async def client(kind: int, until: float, took: list[float]) -> None:
                while (begin := time.perf_counter()) < until:
                    number = next(numbers)
                    text = base64.b64encode(_distinct(base, number)).decode()
                    refs = (
                        f"{number % len(base)}.jpg",
                        f"data:image/jpeg;base64,{text}",
                        f"http://127.0.0.1:{good}/{number}",
                    )
                    await service.get(refs[kind])
                    took.append(time.perf_counter() - begin)

            async def wait(number: int) -> None:
                while True:
                    with contextlib.suppress(ImageServiceError):
                        await service.get(f"http://127.0.0.1:{bad}/{number}")

            for turn in range(-1, rounds):
                for name in found if turn % 2 else reversed(found):
                    waiting = [asyncio.create_task(wait(n)) for n in range(silent if name == "beside" else 0)]
                    await asyncio.sleep(0.5)
                    took: list[float] = []
                    until = time.perf_counter() + seconds
                    await asyncio.gather(*(client(n % 3, until, took) for n in range(100)))
                    for task in waiting:
                        task.cancel()
                    await asyncio.gather(*waiting, return_exceptions=True)
                    if turn >= 0:  # the first turn connects and starts threads
                        found[name].append(sorted(took)[len(took) * 99 // 100])
    for server in servers:
        server.close()
    times = [beside / alone for beside, alone in zip(found["beside"], found["alone"], strict=True)]
    for name, p99 in found.items():
        print(f"{name:7s} p99 {', '.join(f'{1e3 * each:.1f}' for each in p99)} ms")
    print(
        f"beside {silent} silent URLs, times alone: {median(times):.2f} ({min(times):.2f} to {max(times):.2f})"
    )
    if median(times) > 1.5:
        raise SystemExit("silent URLs hold other images")
    return [
        {
            "silent URLs": silent if name == "beside" else 0,
            "latency p99, ms": spread(p99, 1e3),
            "times that without them": ratios(p99, found["alone"]),
        }
        for name, p99 in found.items()
    ]


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--data", type=Path, help="folder of photographs (JPEG)")
    parser.add_argument(
        "--ways", nargs="+", default=list(WAYS), choices=WAYS, metavar="WAY", help=", ".join(WAYS)
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=6.0)
    parser.add_argument("--photos", type=int, default=32, help="number of different photographs")
    parser.add_argument("--small", action="store_true")
    parser.add_argument("--silent", type=int, metavar="URLS", help="URLs that are never answered")
    parser.add_argument(
        "--smoke", action="store_true", help="drawn images, few of them: a check that it runs"
    )
    parser.add_argument("--serve", choices=WAYS, help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.port)
        return
    with tempfile.TemporaryDirectory() as drawn:
        folder = options.data
        if folder is None:
            from aioloader.tools.draw import draw_folder

            folder = Path(drawn, "drawn")
            draw_folder(str(folder), count=16)
        json_file = options.json and options.json.absolute()
        os.chdir(Path(__file__).parents[1])
        rows: list[Row] = []
        if options.silent:
            found = beside_silent(folder, options.silent, options.rounds, options.seconds)
            write_figures(json_file, asyncio.run(found))
            return
        if options.small or options.smoke:
            rows += asyncio.run(
                small(folder, 1 if options.smoke else options.rounds, 200 if options.smoke else 4000)
            )
        if not options.small:
            ways = ["service", "threads"] if options.smoke else options.ways
            seconds = 1.0 if options.smoke else options.seconds
            rows += asyncio.run(
                over_http(folder, ways, 1 if options.smoke else options.rounds, seconds, options.photos)
            )
        write_figures(json_file, rows)


if __name__ == "__main__":
    main()
