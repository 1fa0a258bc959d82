"""Remote records: a real server behind a proxy that adds latency and faults.

    python -m benchmarks.remote --data FOLDER --torch /path/to/python
    python -m benchmarks.remote --only faults,cache

Needs nginx, and the extra ``remote``; uvloop helps the proxy. Every figure is printed with its comparison, measured
alternately in the same run:

- speed: samples/s against PyTorch with two workers that each do one blocking read for each sample (``--torch`` names an
  interpreter that has it), and against plain reads of the bytes, 256 requests in flight, without a loader. Payloads
  first; then images, cropped to 224, for which the decoder is the limit. Also the lag of the loader's event loop.
- proxy: the rate of the proxy and the server without latency, to show that they are not the limit.
- crops: images, cropped to 224, with a crop index next to the record file, against the same without: bytes, requests,
  samples/s, and the CPU time of this process and its workers. Needs the extra ``crops``.
- lag: the lag of the loader's event loop with 256 requests in flight. The servers run only when a core is idle,
  as if they were on another machine; at four times the latency too, where that many requests leave cores free.
- faults: 1 % of 503s, 1 % of resets, 0.5 % of stalls of 30 s, against the same without; the batches must be identical,
  and the loader's counts equal to those of the proxy. Needs epochs of some seconds: ``--records 10000``.
- cache: the second epoch, against a local file, and the requests that it makes.
- away: the server is down for 20 s in the middle of an epoch.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import statistics
import subprocess
import tempfile
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.tools.crops import index_crops
from aioloader.tools.lag import LoopLag
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures
from benchmarks.main_job import write_rec
from tests.servers.fault_proxy import FaultProxy, Rule
from tests.servers.nginx import Nginx

if TYPE_CHECKING:
    from collections.abc import Callable

PARTS = ("proxy", "speed", "crops", "lag", "faults", "cache", "away")
FAULTS = (
    Rule("status", share=0.01),
    Rule("reset", share=0.01),
    Rule("stall", share=0.005, seconds=30.0),
)
IN_FLIGHT = 256
BATCH = 64
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
        options: of the command line.
        rows: figures for ``--json``.
    """

    rec: Path
    upstream: str
    proxy: FaultProxy
    servers: list[int]
    spans: Any
    options: argparse.Namespace
    rows: list[Row] = field(default_factory=list)

    @property
    def url(self) -> str:
        """Return the URL of the record file through the proxy."""
        return f"http://{self.proxy.address}/{self.rec.name}"

    def order(self, seed: int) -> Any:
        """Return indices in random order."""
        return np.random.default_rng(seed).permutation(len(self.spans))


# -- contenders --------------------------------------------------------------------------------------------------------


async def bytes_alone(bench: Bench, order: Any, in_flight: int) -> tuple[float, float]:
    """Return ranges per second without a loader, and the loop's lag meanwhile (p99, ms)."""
    import obstore
    from obstore.store import HTTPStore

    store = HTTPStore(f"http://{bench.proxy.address}", client_options={"allow_http": True})
    left = iter(bench.spans[order].tolist())

    async def worker() -> None:
        for offset, length in left:
            data = await obstore.get_range_async(store, bench.rec.name, start=offset, length=length)
            if len(data) != length:
                raise SystemExit("the server sent fewer bytes")

    await asyncio.gather(
        *(worker() for _ in range(in_flight))
    )  # connections are made before the clock starts
    left = iter(bench.spans[order].tolist())
    lag = LoopLag()
    watching = asyncio.create_task(lag.watch())
    begin = perf_counter()
    await asyncio.gather(*(worker() for _ in range(in_flight)))
    seconds = perf_counter() - begin
    watching.cancel()
    return len(order) / seconds, lag.result().p99_ms


def torch_loader(bench: Bench, order: Any, images: bool) -> float:
    """Return samples per second of PyTorch's loader in a separate process."""
    with tempfile.NamedTemporaryFile(suffix=".npy") as file:
        np.save(file.name, bench.spans[order[:_TORCH_SAMPLES]])
        script = str(Path(__file__).with_name("remote_torch.py"))
        command = [
            bench.options.torch,
            script,
            bench.proxy.address,
            f"/{bench.rec.name}",
            file.name,
            "2",
            "8",
        ]
        command += ["--images"] * images
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
        return float(done.stdout)


def _dataset(path: Any, images: bool, **options: Any) -> Any:
    if not images:
        return aioloader.RecordFileDataset(path, **options)
    augment = transforms.Compose(
        [transforms.RandomResizedCrop(224, antialias=False), transforms.RandomHorizontalFlip()]
    )
    return aioloader.ImageRecordDataset(path, **options).transform_first(augment)


def _loader(dataset: Any, images: bool, options: argparse.Namespace, **more: Any) -> Any:
    kind, workers = ("process", options.workers) if images else ("thread", 1)
    return aioloader.AsyncDataLoader(dataset, BATCH, shuffle=True, executor=kind, num_workers=workers, **more)


def _count(batch: Any) -> int:
    return len(batch[0]) if isinstance(batch, tuple) else len(batch)


async def one_epoch(loader: Any, seen: Callable[[Any], object] | None = None) -> float:
    """Return samples per second, from the call to the last batch."""
    count, begin = 0, perf_counter()
    async for batch in loader:
        count += _count(batch)
        if seen is not None:
            seen(batch)
    return count / (perf_counter() - begin)


class Digest:
    """Digest of all batches, in order."""

    def __init__(self) -> None:
        self._hash = hashlib.blake2b(digest_size=16)

    def __call__(self, batch: Any) -> None:
        for part in batch if isinstance(batch, (tuple, list)) else [batch]:
            self._hash.update(part if isinstance(part, bytes) else np.ascontiguousarray(part))

    def __str__(self) -> str:
        return self._hash.hexdigest()


# -- parts -------------------------------------------------------------------------------------------------------------


def proxy(bench: Bench) -> None:
    """Measure the rate without latency."""
    bench.proxy.behave()
    rates = [
        asyncio.run(bytes_alone(bench, bench.order(n), IN_FLIGHT))[0] for n in range(bench.options.rounds)
    ]
    megabytes = statistics.median(rates) * bench.spans[:, 1].mean() / 1e6
    print(f"proxy and server, no latency: {_figures(rates)} ranges/s ({megabytes:,.0f} MB/s)")
    bench.rows.append({"part": "proxy", "samples/s": spread(rates)})


def speed(bench: Bench) -> None:
    """Measure the rate."""
    options = bench.options
    bench.proxy.behave(latency_s=options.latency)
    for images in (False, True):
        rates: dict[str, list[float]] = {"loader": [], "bytes alone": [], "torch": []}
        if images:
            rates["local"] = []
        lags: dict[str, list[float]] = {"loader": [], "bytes alone": []}
        for round_number in range(options.rounds):
            order = bench.order(round_number)
            for name, run in (
                ("bytes alone", bytes_alone(bench, order, IN_FLIGHT)),
                ("loader", _second_epoch(bench.url, images, options)),
            ):
                rate, lag = asyncio.run(run)
                rates[name].append(rate)
                lags[name].append(lag)
            if images:
                rates["local"].append(asyncio.run(_second_epoch(bench.rec, images, options))[0])
            if options.torch:
                rates["torch"].append(torch_loader(bench, order, images))
        what = "images of 224" if images else "payloads"
        print(f"{what}, {options.latency * 1e3:.0f} ms latency, {len(bench.spans)} records in random order")
        for name, found in rates.items():
            if found:
                print(
                    f"  {name:12} {_figures(found)} samples/s; loader to it: {_ratio(rates['loader'], found)}"
                )
                row: Row = {"part": "speed", "data": what, "way": name, "samples/s": spread(found)}
                row["loader to it"] = ratios(rates["loader"], found)
                row |= {"lag p99, ms": spread(lags[name])} if name in lags else {}
                bench.rows.append(row)
        for name, late in lags.items():
            print(f"  loop lag with the {name}, p99: {', '.join(f'{lag:.1f}' for lag in late)} ms")


async def _second_epoch(path: Any, images: bool, options: argparse.Namespace) -> tuple[float, float]:
    """Return samples per second of a second epoch, after one that opened connections; and the loop's lag, p99, ms."""
    lag = LoopLag()
    async with _loader(_dataset(path, images), images, options) as loader:
        await one_epoch(loader)
        watching = asyncio.create_task(lag.watch())
        try:
            rate = await one_epoch(loader)
        finally:
            watching.cancel()
    return rate, lag.result().p99_ms


@dataclass
class _CropEpochs:
    """Second epochs: samples/s, bytes and requests, and CPU seconds of this process and its workers."""

    rates: list[float]
    nbytes: list[float]
    requests: list[float]
    cpu_s: list[float]


def crops(bench: Bench) -> None:
    """Compare epochs with and without a crop index."""
    reports = index_crops([str(bench.rec)], num_workers=bench.options.workers)
    bench.proxy.behave(latency_s=bench.options.latency)
    kinds = {"with": "auto", "without": None}
    found = {name: _CropEpochs([], [], [], []) for name in kinds}
    digests = set()
    for _ in range(bench.options.rounds):
        for name, crop_index in kinds.items():
            digests.add(asyncio.run(_crop_epochs(bench, crop_index, found[name])))
    share = sum(report.nbytes for report in reports) / bench.rec.stat().st_size
    print(
        f"crops: images of 224, {bench.options.latency * 1e3:.0f} ms latency; the index has {share:.3f} of the bytes"
    )
    for name, epochs in found.items():
        megabytes = [nbytes / 1e6 for nbytes in epochs.nbytes]
        print(
            f"  {name:8} {_figures(epochs.rates)} samples/s, {_figures(megabytes)} MB in "
            f"{_figures(epochs.requests)} requests, {_figures(epochs.cpu_s, '.2f')} s of CPU time"
        )
    one, other = found["with"], found["without"]
    print(
        f"  with to without: samples/s {_ratio(one.rates, other.rates)}, bytes {_ratio(one.nbytes, other.nbytes)}, "
        f"requests {_ratio(one.requests, other.requests)}, CPU time {_ratio(one.cpu_s, other.cpu_s)}; "
        f"batches {'identical' if len(digests) == 1 else 'DIFFERENT'}"
    )
    bench.rows.append(
        {
            "part": "crops",
            "with to without: samples/s": ratios(one.rates, other.rates),
            "bytes": ratios(one.nbytes, other.nbytes),
            "requests": ratios(one.requests, other.requests),
            "CPU time": ratios(one.cpu_s, other.cpu_s),
            "index, of the bytes": share,
            "batches identical": str(len(digests) == 1),
        }
    )
    bench.rec.with_suffix(".crops").unlink()


async def _crop_epochs(bench: Bench, crop_index: str | None, found: _CropEpochs) -> str:
    """Measure a second epoch, after one that opened connections; return the digest of the first."""
    digest = Digest()
    async with _loader(
        _dataset(bench.url, True, crop_index=crop_index), True, bench.options, seed=0
    ) as loader:
        await one_epoch(loader, digest)
        before, cpu_s = loader.stats(), _cpu_s()
        found.rates.append(await one_epoch(loader))
        after = loader.stats()
        found.cpu_s.append(_cpu_s() - cpu_s)
    found.nbytes.append(after.request_bytes - before.request_bytes)
    found.requests.append(after.requests - before.requests)
    return str(digest)


def _cpu_s() -> float:
    """Return the CPU seconds of this process and its workers so far; the servers are not among them."""
    own = psutil.Process()
    times = [own.cpu_times()]
    for child in own.children(recursive=True):
        with suppress(psutil.NoSuchProcess):
            if not {"nginx", "tests.servers.proxy"} & {child.name(), *child.cmdline()}:
                times.append(child.cpu_times())
    return float(sum(time.user + time.system for time in times))


def lag(bench: Bench) -> None:
    """Measure the loop's lag while the servers take only idle cores."""
    ordinary = [os.sched_getscheduler(process) for process in bench.servers]
    for process in bench.servers:
        os.sched_setscheduler(process, os.SCHED_IDLE, os.sched_param(0))
    try:
        for latency_s in (bench.options.latency, 4 * bench.options.latency):
            bench.proxy.behave(latency_s=latency_s)
            for images in (False, True):
                _lag(bench, images, latency_s)
    finally:
        for process, policy in zip(bench.servers, ordinary, strict=True):
            os.sched_setscheduler(process, policy, os.sched_param(0))


def _lag(bench: Bench, images: bool, latency_s: float) -> None:
    late: dict[str, list[float]] = {"bytes alone": [], "loader": []}
    rates: list[float] = []
    for round_number in range(bench.options.rounds):
        late["bytes alone"].append(asyncio.run(bytes_alone(bench, bench.order(round_number), IN_FLIGHT))[1])
        rate, lateness = asyncio.run(_second_epoch(bench.url, images, bench.options))
        rates.append(rate)
        late["loader"].append(lateness)
    what = "images of 224" if images else "payloads"
    text = "; ".join(f"with the {name} {_figures(found, '.1f')} ms" for name, found in late.items())
    print(f"lag: {what}, {latency_s * 1e3:.0f} ms latency, {_figures(rates)} samples/s; p99 {text}")
    for name, found in late.items():
        row: Row = {"part": "lag", "data": what, "way": name, "latency, ms": 1e3 * latency_s}
        bench.rows.append({**row, "lag p99, ms": spread(found)})


def faults(bench: Bench) -> None:
    """Compare epochs with and without faults. One process of the proxy, so that it sees all earlier requests."""
    with FaultProxy(bench.upstream) as between:
        _faults(replace(bench, proxy=between))


def _faults(bench: Bench) -> None:
    latency_s = bench.options.latency
    clean, faulty, digests = [], [], set()
    for round_number in range(bench.options.rounds):
        for rules, rates in (((), clean), (FAULTS, faulty)):
            bench.proxy.behave(*rules, latency_s=latency_s, seed=round_number)
            rate, digest, stats = asyncio.run(_digested(bench, lambda: bench.proxy.restart()))
            rates.append(rate)
            digests.add(digest)
            counts = bench.proxy.counts()
            if rules:
                print(f"  faults: {counts.faults}; repeats {counts.repeats}, cut off {counts.cut_off}")
            print(
                f"  loader / proxy: requests {stats.requests} / {counts.requests}, bytes {stats.request_bytes:,} / "
                f"{counts.nbytes:,} whole and {counts.nbytes_of_parts:,} in parts; retries {stats.retries}, "
                f"hedges {stats.hedges}: together {stats.retries + stats.hedges} / {counts.repeats} repeats"
            )
    print(f"faults: {_figures(faulty)} samples/s; to the clean run: {_ratio(faulty, clean)}")
    print(f"faults: batches {'identical' if len(digests) == 1 else 'DIFFER'}")
    row: Row = {"part": "faults", "data": "payloads", "samples/s": spread(faulty)}
    bench.rows.append(
        {**row, "to the clean run": ratios(faulty, clean), "batches identical": str(len(digests) == 1)}
    )


async def _digested(bench: Bench, ready: Callable[[], object]) -> tuple[float, str, Any]:
    dataset = _dataset(bench.url, False)
    len(dataset)  # reads the index
    ready()
    digest = Digest()
    async with _loader(dataset, False, bench.options) as loader:
        rate = await one_epoch(loader, digest)
        return rate, str(digest), loader.stats()


def cache(bench: Bench) -> None:
    """Compare a second epoch from a cache with a local file."""
    bench.proxy.behave(latency_s=bench.options.latency)
    for images in (False, True):
        found: dict[str, list[float]] = {"cache": [], "local": []}
        requests = 0
        for _ in range(bench.options.rounds):
            with tempfile.TemporaryDirectory(dir=bench.rec.parent) as folder:
                requests += asyncio.run(_cached(bench, images, folder, found))
        what = "images of 224" if images else "payloads"
        print(
            f"{what}, second epoch from the cache: {_figures(found['cache'])} samples/s; to a local file "
            f"({_figures(found['local'])}): {_ratio(found['cache'], found['local'])}; {requests} requests"
        )
        row: Row = {"part": "cache", "data": what, "samples/s": spread(found["cache"])}
        row |= {"local file, samples/s": spread(found["local"]), "requests": requests}
        bench.rows.append({**row, "to a local file": ratios(found["cache"], found["local"])})
    with tempfile.TemporaryDirectory(dir=bench.rec.parent) as folder:
        limit = bench.rec.stat().st_size // 2
        largest, rate = asyncio.run(_bounded(bench, folder, limit))
    print(
        f"cache of half the set: at most {largest / limit:.4f} of the limit; hit rate over 3 epochs {rate:.2f}"
    )


async def _cached(bench: Bench, images: bool, folder: str, found: dict[str, list[float]]) -> int:
    """Measure alternately; return the requests of epochs after the first."""
    options = bench.options
    far = _loader(_dataset(bench.url, images, cache=folder), images, options)
    near = _loader(_dataset(bench.rec, images), images, options)
    async with far, near:
        await one_epoch(far)
        await one_epoch(near)
        bench.proxy.restart()
        for _ in range(3):
            found["cache"].append(await one_epoch(far))
            found["local"].append(await one_epoch(near))
        return bench.proxy.counts().requests


async def _bounded(bench: Bench, folder: str, limit: int) -> tuple[int, float]:
    dataset = _dataset(bench.url, False, cache=folder, cache_limit=limit)
    largest = 0

    def look(_: Any) -> None:
        nonlocal largest
        largest = max(largest, sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file()))

    async with _loader(dataset, False, bench.options) as loader:
        for _ in range(3):
            await one_epoch(loader, look)
        return largest, loader.stats().hit_rate


def away(bench: Bench) -> None:
    """Take the server down for 20 s in the middle of an epoch."""
    bench.proxy.behave(latency_s=bench.options.latency)
    batches, seconds = asyncio.run(_interrupted(bench))
    print(f"server down for 20 s: {batches} batches, no error; the longest wait for one was {seconds:.1f} s")
    bench.rows.append({"part": "away", "longest wait, s": seconds})


async def _interrupted(bench: Bench) -> tuple[int, float]:
    async with _loader(_dataset(bench.url, False), False, bench.options) as loader:
        batches, longest, begin = 0, 0.0, perf_counter()
        comes_back: Any = None
        async for _ in loader:
            batches += 1
            longest = max(longest, perf_counter() - begin)
            if batches == 2:
                bench.proxy.go_away()
                loop = asyncio.get_running_loop()
                comes_back = loop.call_later(20, bench.proxy.come_back)
            begin = perf_counter()
        if comes_back is None:
            raise SystemExit("too few records for this part; raise --records")
        return batches, longest


# -- the command line --------------------------------------------------------------------------------------------------


def _figures(figures: list[float], how: str = ",.0f") -> str:
    low, high = min(figures), max(figures)
    return f"{statistics.median(figures):{how}} ({low:{how}} to {high:{how}})"


def _ratio(some: list[float], others: list[float]) -> str:
    ratios = [one / other for one, other in zip(some, others, strict=True)]
    return f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"


def main() -> None:
    """Parse the command line, start the servers, run the parts."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_data_option(parser)
    parser.add_argument("--records", type=int, default=2000, help="of about 110 kB where the photographs are")
    parser.add_argument(
        "--latency", type=float, default=0.05, help="seconds of latency added to every request"
    )
    parser.add_argument("--torch", metavar="PYTHON", help="an interpreter with torch; default: leave it out")
    parser.add_argument("--workers", type=int, default=available_cores(), help="workers that decode images")
    parser.add_argument("--proxies", type=int, default=2, help="number of processes of the proxy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(PARTS), help=f"some of {','.join(PARTS)}")
    parser.add_argument("--smoke", action="store_true", help="few records, one round: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.records, options.rounds = 300, 1
    parts: dict[str, Callable[[Bench], None]] = {
        "proxy": proxy,
        "speed": speed,
        "crops": crops,
        "lag": lag,
        "faults": faults,
        "cache": cache,
        "away": away,
    }
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        os.environ["AIOLOADER_CACHE_DIR"] = str(Path(scratch, "indexes"))
        folder = Path(scratch, "served")
        folder.mkdir()
        rec = folder / "images.rec"
        jpegs = load_jpegs(options.data, scratch)
        write_rec(rec, jpegs, -(-options.records // len(jpegs)))
        dataset = aioloader.RecordFileDataset(rec)
        spans = dataset.spans(np.arange(len(dataset)))
        server = stack.enter_context(Nginx(folder))
        between = stack.enter_context(FaultProxy(server.address, processes=options.proxies))
        bench = Bench(
            rec,
            upstream=server.address,
            proxy=between,
            servers=[child.pid for child in psutil.Process().children(recursive=True)],
            spans=np.stack((spans.offset, spans.length), axis=1),
            options=options,
        )
        print(f"{len(dataset)} records of {rec.stat().st_size / len(dataset) / 1e3:.0f} kB")
        for name in options.only.split(","):
            parts[name](bench)
        write_figures(options.json, bench.rows)


if __name__ == "__main__":
    main()
