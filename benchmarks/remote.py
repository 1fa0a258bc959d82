"""Remote records: a real server behind a proxy that adds latency and faults.

    python -m benchmarks.remote --data FOLDER --torch /path/to/python
    python -m benchmarks.remote --only faults,cache

Needs nginx, and the extra ``remote``; uvloop helps the proxy. Every figure has its comparison, measured alternately in
the same run:

- speed: samples/s against PyTorch with two workers that each do one blocking read for each sample (``--torch`` names an
  interpreter that has it), and against plain reads of the bytes, 256 requests in flight, without a loader. Payloads
  first; then images, cropped to 224, for which the decoder is the limit. Also the lag of the loader's event loop.
- proxy: the rate of the proxy and the server without latency, to show that they are not the limit.
- crops: images, cropped to 224, with a crop index next to the record file, against the same without: bytes, requests,
  samples/s, and the CPU time of this process and its workers.
- lag: the lag of the loader's event loop with 256 requests in flight. The servers run only when a core is idle,
  as if they were on another machine; at four times the latency too, where that many requests leave cores free.
- faults: 1 % of 503s, 1 % of resets, 0.5 % of stalls of 30 s, against the same without; the batches must be identical.
  Needs epochs of some seconds: ``--records 10000``.
- cache: the second epoch, against a local file, and the requests that it makes.
- away: the server is down for 20 s in the middle of an epoch.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import subprocess
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import LoopLag, cpu_seconds, process_tree
from aioloader.tools.crops import index_crops
from benchmarks.data import load_jpegs, write_rec
from benchmarks.figures import costs, ratios, spread
from benchmarks.measurement import in_turns, run
from tests.servers.fault_proxy import FaultProxy, Rule
from tests.servers.nginx import Nginx

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.figures import Row

FAULTS = (
    Rule("status", share=0.01),
    Rule("reset", share=0.01),
    Rule("stall", share=0.005, seconds=30.0),
)
IN_FLIGHT = 256
BATCH = 64
KINDS = {"payloads": False, "images of 224": True}
_TORCH_SAMPLES = 256


@dataclass
class Bench:
    """Parts shared by all measurements.

    Attributes:
        rec: the record file.
        upstream: "host:port" of the server that serves it.
        proxy: the fault proxy in front of it.
        servers: process numbers of both.
        spans: int64 (n, 2), offset and length of every record.
        latency: seconds that are added to every request.
        torch: an interpreter that has it, or None.
        workers: that decode images.
        rounds: turns of each way.
    """

    rec: Path
    upstream: str
    proxy: FaultProxy
    servers: list[int]
    spans: Any
    latency: float
    torch: str | None
    workers: int
    rounds: int

    @property
    def url(self) -> str:
        """Return the URL of the record file through the proxy."""
        return f"http://{self.proxy.address}/{self.rec.name}"

    def loader(self, path: Any, images: bool, seed: int | None = None, **options: Any) -> Any:
        """Return a loader of payloads or images; `options` are those of the dataset."""
        kind, workers = ("process", self.workers) if images else ("thread", 1)
        dataset: Any = aioloader.RecordFileDataset(path, **options)
        if images:
            crop = transforms.RandomResizedCrop(224, antialias=False)
            augment = transforms.Compose([crop, transforms.RandomHorizontalFlip()])
            dataset = aioloader.ImageRecordDataset(path, **options).transform_first(augment)
        more = {} if seed is None else {"seed": seed}
        return aioloader.AsyncDataLoader(
            dataset, BATCH, shuffle=True, executor=kind, num_workers=workers, **more
        )

    def cpu_s(self) -> float:
        """Return the CPU seconds of this process and its workers so far; the servers are not among them."""
        roots = [pid for pid in self.servers if not any(pid in process_tree(of)[1:] for of in self.servers)]
        return (cpu_seconds(os.getpid()) or 0.0) - sum(cpu_seconds(pid) or 0.0 for pid in roots)


class Pass(NamedTuple):
    """Figures of one pass over all records; of several, each figure is a tuple.

    Attributes:
        rate: samples/s.
        cpu_s: CPU seconds a sample of all processes but the servers.
        lag_ms: the loop's lag meanwhile (p99).
    """

    rate: Any
    cpu_s: Any
    lag_ms: Any


# -- contenders --------------------------------------------------------------------------------------------------------


async def bytes_alone(bench: Bench) -> Pass:
    """Return the figures of ranges without a loader."""
    import obstore
    from obstore.store import HTTPStore

    store = HTTPStore(f"http://{bench.proxy.address}", client_options={"allow_http": True})
    order = bench.spans[np.random.default_rng().permutation(len(bench.spans))].tolist()

    async def worker(left: Iterator[Any]) -> None:
        for offset, length in left:
            data = await obstore.get_range_async(store, bench.rec.name, start=offset, length=length)
            if len(data) != length:
                raise SystemExit("the server sent fewer bytes")

    async def read_all() -> float:
        left, begin = iter(order), perf_counter()
        await asyncio.gather(*(worker(left) for _ in range(IN_FLIGHT)))
        return len(order) / (perf_counter() - begin)

    await read_all()  # connections are made before the clock starts
    return await watched(bench, read_all())


def torch_loader(bench: Bench, images: bool) -> Pass:
    """Return the figures of PyTorch's loader in a separate process."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        chosen = np.random.default_rng().permutation(len(bench.spans))[:_TORCH_SAMPLES]
        np.save(file.name, bench.spans[chosen])
        script, images_word = Path(__file__).with_name("remote_torch.py"), ["--images"] * images
        command = [str(bench.torch), script, bench.proxy.address, f"/{bench.rec.name}", file.name, "2", "8"]
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(
            [*command, *images_word], capture_output=True, text=True, check=True, env=environment
        )
        rate, cpu_s = map(float, done.stdout.split())
        return Pass(rate, cpu_s, 0.0)


async def watched(bench: Bench, work: Any) -> Pass:
    """Return the figures of a coroutine that passes over all records and returns their rate."""
    lag, used = LoopLag(), bench.cpu_s()
    watching = asyncio.create_task(lag.watch())
    try:
        rate = await work
    finally:
        watching.cancel()
    return Pass(rate, (bench.cpu_s() - used) / len(bench.spans), lag.result().p99_ms)


async def one_epoch(loader: Any, digest: Any = None) -> float:
    """Return samples per second, from the call to the last batch."""
    count, begin = 0, perf_counter()
    async for batch in loader:
        parts = batch if isinstance(batch, tuple) else (batch,)
        count += len(parts[0])
        for part in parts if digest is not None else ():
            for value in part if isinstance(part, list) else [np.ascontiguousarray(part)]:
                digest.update(value)
    return count / (perf_counter() - begin)


async def second_epoch(bench: Bench, path: Any, images: bool) -> Pass:
    """Return the figures of a second epoch, after one that opened connections."""
    async with bench.loader(path, images) as loader:
        await one_epoch(loader)
        return await watched(bench, one_epoch(loader))


def now(work: Callable[..., Any], *arguments: Any) -> Callable[[], Any]:
    """Return a function that runs a coroutine to its end."""
    return lambda: asyncio.run(work(*arguments))


# -- parts -------------------------------------------------------------------------------------------------------------


def proxy(bench: Bench) -> Iterator[Row]:
    """Measure the rate without latency."""
    bench.proxy.behave()
    found = in_turns({"": now(bytes_alone, bench)}, bench.rounds, warm=0)[""]
    yield {"part": "proxy", "samples/s": spread(each.rate for each in found)}


def speed(bench: Bench) -> Iterator[Row]:
    """Measure the rate."""
    bench.proxy.behave(latency_s=bench.latency)
    for what, images in KINDS.items():
        ways = {"loader": now(second_epoch, bench, bench.url, images), "bytes alone": now(bytes_alone, bench)}
        if bench.torch:
            ways["torch"] = partial(torch_loader, bench, images)
        if images:
            ways["local"] = now(second_epoch, bench, bench.rec, images)
        found = {
            name: Pass(*zip(*passes, strict=True))
            for name, passes in in_turns(ways, bench.rounds, warm=0).items()
        }
        for name, each in found.items():
            late = {"lag p99, ms": spread(each.lag_ms)} if name in ("loader", "bytes alone") else {}
            compared = {
                **costs(zip(each.rate, each.cpu_s, strict=True), each="a sample"),
                "loader to it": ratios(found["loader"].rate, each.rate),
            }
            yield {"part": "speed", "data": what, "way": name, **compared, **late}


def crops(bench: Bench) -> Iterator[Row]:
    """Compare epochs with and without a crop index."""
    reports = index_crops([str(bench.rec)], num_workers=bench.workers)
    bench.proxy.behave(latency_s=bench.latency)
    ways = {name: now(_crop_epochs, bench, kind) for name, kind in (("with", "auto"), ("without", None))}
    found = in_turns(ways, bench.rounds, warm=0)
    one, other = (list(zip(*found[name], strict=True)) for name in ways)
    names = ("with to without: samples/s", "bytes", "requests", "CPU time")
    yield {
        "part": "crops",
        **{name: ratios(mine, theirs) for name, mine, theirs in zip(names, one, other, strict=False)},
        "index, of the bytes": sum(report.nbytes for report in reports) / bench.rec.stat().st_size,
        "batches identical": str(len({*one[4], *other[4]}) == 1),
    }
    bench.rec.with_suffix(".crops").unlink()


async def _crop_epochs(bench: Bench, crop_index: str | None) -> tuple[float, float, float, float, str]:
    """Return rate, bytes, requests and CPU time of a second epoch; and the digest of the first."""
    digest = hashlib.blake2b()
    async with bench.loader(bench.url, True, seed=0, crop_index=crop_index) as loader:
        await one_epoch(loader, digest)
        before, cpu_s = loader.stats(), bench.cpu_s()
        rate = await one_epoch(loader)
        after, cpu_s = loader.stats(), bench.cpu_s() - cpu_s
    counts = after.request_bytes - before.request_bytes, after.requests - before.requests
    return rate, *counts, cpu_s, digest.hexdigest()


def lag(bench: Bench) -> Iterator[Row]:
    """Measure the loop's lag while the servers take only idle cores."""
    ordinary = [os.sched_getscheduler(process) for process in bench.servers]
    for process in bench.servers:
        os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
    try:
        for latency_s in (bench.latency, 4 * bench.latency):
            bench.proxy.behave(latency_s=latency_s)
            for what, images in KINDS.items():
                loading = now(second_epoch, bench, bench.url, images)
                ways = {"bytes alone": now(bytes_alone, bench), "loader": loading}
                for name, found in in_turns(ways, bench.rounds, warm=0).items():
                    row = {"part": "lag", "data": what, "way": name, "latency, ms": 1e3 * latency_s}
                    yield {**row, "lag p99, ms": spread(each.lag_ms for each in found)}
    finally:
        for process, policy in zip(bench.servers, ordinary, strict=True):
            os.sched_setscheduler(process, policy, os.sched_param(0))


def faults(bench: Bench) -> Iterator[Row]:
    """Compare epochs with and without faults. One process of the proxy, so that it sees all earlier requests."""
    digests = set()
    with FaultProxy(bench.upstream) as between:
        bench = replace(bench, proxy=between)

        async def epoch() -> float:
            digest = hashlib.blake2b()
            async with bench.loader(bench.url, False) as loader:
                rate = await one_epoch(loader, digest)
            digests.add(digest.hexdigest())
            return rate

        rates: dict[bool, list[float]] = {False: [], True: []}
        for seed in range(bench.rounds):
            for faulty, found in rates.items():
                between.behave(*(FAULTS if faulty else ()), latency_s=bench.latency, seed=seed)
                found.append(asyncio.run(epoch()))
    yield {
        "part": "faults",
        "data": "payloads",
        "samples/s": spread(rates[True]),
        "to the clean run": ratios(rates[True], rates[False]),
        "batches identical": str(len(digests) == 1),
    }


def cache(bench: Bench) -> Iterator[Row]:
    """Compare a second epoch from a cache with a local file."""
    bench.proxy.behave(latency_s=bench.latency)
    for what, images in KINDS.items():
        found: dict[str, list[float]] = {"cache": [], "local": []}
        requests = 0
        for _ in range(bench.rounds):
            with tempfile.TemporaryDirectory(dir=bench.rec.parent) as folder:
                requests += asyncio.run(_cached(bench, images, folder, found))
        yield {
            "part": "cache",
            "data": what,
            "samples/s": spread(found["cache"]),
            "local file, samples/s": spread(found["local"]),
            "requests": requests,
            "to a local file": ratios(found["cache"], found["local"]),
        }


async def _cached(bench: Bench, images: bool, folder: str, found: dict[str, list[float]]) -> int:
    """Measure alternately; return the requests of epochs after the first."""
    far, near = bench.loader(bench.url, images, cache=folder), bench.loader(bench.rec, images)
    async with far, near:
        await one_epoch(far)
        await one_epoch(near)
        bench.proxy.restart()
        for _ in range(3):
            found["cache"].append(await one_epoch(far))
            found["local"].append(await one_epoch(near))
        return bench.proxy.counts().requests


def away(bench: Bench) -> Iterator[Row]:
    """Take the server down for 20 s in the middle of an epoch."""
    bench.proxy.behave(latency_s=bench.latency)
    yield {"part": "away", "longest wait, s": asyncio.run(_longest_wait(bench))}


async def _longest_wait(bench: Bench) -> float:
    async with bench.loader(bench.url, False) as loader:
        batches, longest, begin = 0, 0.0, perf_counter()
        async for _ in loader:
            batches += 1
            longest = max(longest, perf_counter() - begin)
            if batches == 2:
                bench.proxy.go_away()
                asyncio.get_running_loop().call_later(20, bench.proxy.come_back)
            begin = perf_counter()
    if batches < 2:
        raise SystemExit("too few records for this part; raise --records")
    return longest


PARTS = {part.__name__: part for part in (proxy, speed, crops, lag, faults, cache, away)}


def measure(
    data: str | None = None,
    records: int = 2000,
    latency: float = 0.05,
    torch: str | None = None,
    workers: int = available_cores(),
    proxies: int = 2,
    rounds: int = 3,
    only: str = ",".join(PARTS),
) -> Iterator[Row]:
    """Start the servers, and run some parts.

    Args:
        data: folder.
        records: of about 110 kB where the photographs are.
        latency: seconds of latency added to every request.
        torch: an interpreter with torch; default: leave it out.
        workers: that decode images.
        proxies: number of processes of the proxy.
        rounds: turns of each way.
        only: some of the parts, separated by commas.
    """
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["AIOLOADER_CACHE_DIR"] = str(Path(scratch, "indexes"))
        folder = Path(scratch, "served")
        folder.mkdir()
        rec = folder / "images.rec"
        jpegs = load_jpegs(data)
        write_rec(rec, jpegs, -(-records // len(jpegs)))
        dataset = aioloader.RecordFileDataset(rec)
        spans = dataset.spans(np.arange(len(dataset)))
        server = stack.enter_context(Nginx(folder))
        between = stack.enter_context(FaultProxy(server.address, processes=proxies))
        bench = Bench(
            rec,
            upstream=server.address,
            proxy=between,
            servers=process_tree(os.getpid())[1:],
            spans=np.stack((spans.offset, spans.length), axis=1),
            latency=latency,
            torch=torch,
            workers=workers,
            rounds=rounds,
        )
        for name in only.split(","):
            yield from PARTS[name](bench)


if __name__ == "__main__":
    run(measure, records=300, rounds=1)
