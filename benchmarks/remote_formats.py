"""Remote tar, Parquet and TFRecord files: cold epochs of this loader and of others, behind a proxy that adds latency.

    python -m benchmarks.remote_formats --data FOLDER --only tar,webdataset --records 1000

Needs nginx, curl, and the extras ``remote`` and ``parquet``; uvloop helps the proxy. The others run in the environments
of `benchmarks.contenders`, which are installed when they are first needed.

All loaders make batches of 64 by RandomResizedCrop(224), antialiased, and a flip, with two workers, of the same JPEGs
in 16 files of a format. They take turns, each in a new process and with empty caches: this loader has no index of the
tars yet. It reads in random order: of all samples, of those of 16 row groups of Parquet, or of those of four tars. The
others read in the order of the files, which is the fastest for them. Every epoch must have each label once.

Figures are samples per second of the whole epoch, from opening the files to the last batch, with the start of the
workers; and from the first batch to the last. The requests and bytes are those that the proxy forwarded. Ratios compare
turns of one round.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.contenders.format_files import write_format
from benchmarks.data import load_jpegs
from benchmarks.environments import EnvironmentFailure, default_folder, ensure
from benchmarks.figures import costs, ratios, spread
from benchmarks.measurement import in_turns, run
from tests.servers.fault_proxy import Counts, FaultProxy
from tests.servers.nginx import Nginx

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

_ROOT = Path(__file__).parent.parent
_LIMIT_S = 600
_BATCH = 64

# (loader of `benchmarks.remote_epoch`, format of the files, its environment or None for this one)
CONTENDERS: dict[str, tuple[str, str, str | None]] = {
    "tar": ("aioloader", "tar", None),
    "tar-shards": ("aioloader, shuffle_shards=4", "tar", None),
    "parquet": ("aioloader", "parquet", None),
    "tfrecord": ("aioloader", "tfrecord", None),
    "datasets": ("datasets", "parquet", "hf_datasets"),
    "webdataset": ("webdataset", "tar", "webdataset"),
}
COMPARED = {"parquet": ("datasets", 5.0), "tar": ("webdataset", 3.0), "tar-shards": ("webdataset", 3.0)}
"""Ratios of this loader's format, to a loader, with the target."""


@dataclass(frozen=True)
class Repeated:
    """JPEGs, repeated in turn; the label of each sample is its number."""

    jpegs: Sequence[bytes]
    count: int

    def __len__(self) -> int:
        return self.count

    def image(self, number: int) -> tuple[bytes, int]:
        """Return (JPEG bytes, label)."""
        return self.jpegs[number % len(self.jpegs)], number


class Epoch(NamedTuple):
    """Figures of an epoch.

    Attributes:
        whole: samples/s from opening to the last batch.
        later: samples/s from the first batch to the last.
        first_s: seconds from opening to the first batch.
        requests, nbytes: that the proxy forwarded.
        cpu_s: CPU seconds of a sample, of all processes, from opening on; the servers are not among them.
    """

    whole: float
    later: float
    first_s: float
    requests: float
    nbytes: float
    cpu_s: float

    @classmethod
    def of(cls, printed: dict[str, Any], counts: Counts, samples: int, cpu_s: float) -> Epoch:
        """Return the figures of an epoch.

        Args:
            printed: by `benchmarks.remote_epoch`.
            counts: of the proxy in this epoch.
            samples: number of labels that it must have.
            cpu_s: CPU seconds of its processes, imports included.

        Raises:
            SystemExit: a sample was lost or came twice.
        """
        labels, last_s, first_s = printed["labels"], printed["last_s"], printed["first_s"]
        if sorted(labels) != list(range(samples)):
            raise SystemExit(f"of {samples} samples {len(set(labels))} came, in {len(labels)} places")
        later = (samples - printed["first_count"]) / (last_s - first_s)
        nbytes = counts.nbytes + counts.nbytes_of_parts
        spent = (cpu_s - printed["imports_cpu_s"]) / samples
        return cls(samples / last_s, later, first_s, counts.requests, nbytes, spent)


def cold_epoch(
    name: str, python: Path, proxy: FaultProxy, served: Path, workers: int, latency: float, samples: int
) -> Epoch:
    """Return the figures of one cold epoch of a contender.

    Raises:
        SystemExit: the epoch failed; the end of its output is in the message.
    """
    loader, kind, _ = CONTENDERS[name]
    files = sorted(path.name for path in (served / kind).iterdir())
    urls = [f"http://{proxy.address}/{kind}/{file}" for file in files]
    command = [str(python), "-m", "benchmarks.remote_epoch", loader, str(workers), str(_BATCH), *urls]
    proxy.behave(latency_s=latency)
    used = _ended_cpu_s()
    with tempfile.TemporaryDirectory() as empty:
        variables = {"AIOLOADER_CACHE_DIR": empty, "HF_HOME": empty, "PYTHONPATH": str(_ROOT)}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **variables},
            cwd=_ROOT,
            timeout=_LIMIT_S,
        )
    if done.returncode:
        raise SystemExit(f"{loader} over {kind} files failed:\n{done.stderr[-4000:]}")
    cpu_s = _ended_cpu_s() - used
    return Epoch.of(json.loads(done.stdout.splitlines()[-1]), proxy.counts(), samples, cpu_s)


def _ended_cpu_s() -> float:
    """Return the CPU seconds of this process's children that have ended, and of theirs."""
    ended = os.times()
    return ended.children_user + ended.children_system


def pythons_of(names: Sequence[str]) -> dict[str, Path]:
    """Return the interpreter of each contender whose environment could be made; say why others take no part."""
    found = {}
    for name in names:
        environment = CONTENDERS[name][2]
        try:
            found[name] = ensure(environment, default_folder()) if environment else Path(sys.executable)
        except EnvironmentFailure as error:
            print(f"{name} takes no part: {error}")
    return found


def measure(
    data: str | None = None,
    records: int = 2048,
    latency: float = 0.05,
    workers: int = 2,
    proxies: int = 2,
    rounds: int = 3,
    only: str = ",".join(CONTENDERS),
) -> Iterator[Row]:
    """Write the files, start the servers, and measure the contenders in turns.

    Args:
        data: folder.
        records: of about 110 kB where the photographs are.
        latency: seconds of latency added to every request.
        workers: of each loader.
        proxies: number of processes of the proxy.
        rounds: epochs of each contender.
        only: some of the contenders, separated by commas.
    """
    pythons = pythons_of(only.split(","))
    with ExitStack() as stack:
        served = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        photographs = Repeated(load_jpegs(data), records)
        for kind in sorted({CONTENDERS[name][1] for name in pythons}):
            (served / kind).mkdir()
            write_format(kind, photographs, served / kind)
        server = stack.enter_context(Nginx(served))
        proxy = stack.enter_context(FaultProxy(server.address, processes=proxies))
        common = (proxy, served, workers, latency, records)
        ways = {name: partial(cold_epoch, name, python, *common) for name, python in pythons.items()}
        turns = in_turns(ways, rounds, warm=0)
    found = {name: Epoch(*zip(*epochs, strict=True)) for name, epochs in turns.items()}
    for name, took in found.items():
        row: Row = {
            "loader": CONTENDERS[name][0],
            "format": CONTENDERS[name][1],
            **costs(zip(took.whole, took.cpu_s, strict=True)),
            "after the first batch, images/s": spread(took.later),
            "first batch, s": spread(took.first_s),
            "requests": spread(took.requests),
            "MB": spread(took.nbytes, 1e-6),
        }
        other, target = COMPARED.get(name, ("", 0.0))
        if other in found:
            row["times"] = CONTENDERS[other][0]
            row["whole epoch"] = ratios(took.whole, found[other].whole)
            row["later batches"] = ratios(took.later, found[other].later)
            row["target"] = target
        yield row


if __name__ == "__main__":
    run(measure, records=256, rounds=1)
