"""Remote tar, Parquet and TFRecord files: cold epochs of this loader and of others, behind a proxy that adds latency.

    python -m benchmarks.remote_formats --data FOLDER
    python -m benchmarks.remote_formats --data FOLDER --only tar,webdataset --records 1000

Needs nginx, curl, and the extras ``remote`` and ``parquet``; uvloop helps the proxy. The others run in the environments
of `benchmarks.contenders`, which are installed when they are first needed.

All loaders make batches of 64 by RandomResizedCrop(224), antialiased, and a flip, with two workers, of the same JPEGs
in 16 files of a format. They take turns, each in a new process and with empty caches: this loader has no index of the
tars yet. It reads in random order; the others read in the order of the files, which is the fastest for them. Every
epoch must have each label once.

Figures are samples per second of the whole epoch, from opening the files to the last batch, with the start of the
workers; and from the first batch to the last. The requests and bytes are those that the proxy forwarded. Ratios compare
turns of one round.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from benchmarks.contenders.format_files import write_format
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.environments import EnvironmentFailure, default_folder, ensure
from benchmarks.figures import add_json_option, ratios, spread, write_figures
from tests.servers.fault_proxy import Counts, FaultProxy
from tests.servers.nginx import Nginx

if TYPE_CHECKING:
    from collections.abc import Sequence

_ROOT = Path(__file__).parent.parent
_LIMIT_S = 600
_BATCH = 64


class Contender(NamedTuple):
    """Loader of files of a format.

    Attributes:
        loader: of `benchmarks.remote_epoch`.
        format: of the files.
        environment: name of its environment; None: this one.
    """

    loader: str
    format: str
    environment: str | None = None


CONTENDERS = {
    "tar": Contender("aioloader", "tar"),
    "parquet": Contender("aioloader", "parquet"),
    "tfrecord": Contender("aioloader", "tfrecord"),
    "datasets": Contender("datasets", "parquet", "hf_datasets"),
    "webdataset": Contender("webdataset", "tar", "webdataset"),
}
COMPARED = (("parquet", "datasets", 5.0), ("tar", "webdataset", 3.0))
"""Ratios that are printed: of this loader's format, to a loader, with the target."""


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


@dataclass
class Epochs:
    """Epochs of one contender.

    Attributes:
        whole: samples/s from opening to the last batch.
        later: samples/s from the first batch to the last.
        first_s: seconds from opening to the first batch.
        requests, nbytes: that the proxy forwarded.
    """

    whole: list[float] = field(default_factory=list)
    later: list[float] = field(default_factory=list)
    first_s: list[float] = field(default_factory=list)
    requests: list[float] = field(default_factory=list)
    nbytes: list[float] = field(default_factory=list)

    def add(self, epoch: dict[str, Any], counts: Counts, samples: int) -> None:
        """Add an epoch.

        Args:
            epoch: what `benchmarks.remote_epoch` printed.
            counts: of the proxy in this epoch.
            samples: number of labels that it must have.

        Raises:
            SystemExit: a sample was lost or came twice.
        """
        if sorted(epoch["labels"]) != list(range(samples)):
            raise SystemExit(
                f"of {samples} samples {len(set(epoch['labels']))} came, in {len(epoch['labels'])} places"
            )
        self.whole.append(samples / epoch["last_s"])
        later = samples - epoch["first_count"]
        self.later.append(later / (epoch["last_s"] - epoch["first_s"]))
        self.first_s.append(epoch["first_s"])
        self.requests.append(counts.requests)
        self.nbytes.append(counts.nbytes + counts.nbytes_of_parts)


def one_epoch(python: Path, contender: Contender, urls: Sequence[str], workers: int) -> dict[str, Any]:
    """Return what one cold epoch prints.

    Args:
        python: interpreter of the contender's environment.
        contender: the loader.
        urls: the files.
        workers: number of workers.

    Raises:
        SystemExit: the epoch failed; the end of its output is in the message.
    """
    command = [
        str(python),
        "-m",
        "benchmarks.remote_epoch",
        contender.loader,
        str(workers),
        str(_BATCH),
        *urls,
    ]
    with tempfile.TemporaryDirectory() as empty:
        caches = {"AIOLOADER_CACHE_DIR": empty, "HF_HOME": empty}
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, **caches, "PYTHONPATH": str(_ROOT)},
            cwd=_ROOT,
            timeout=_LIMIT_S,
        )
    if done.returncode:
        raise SystemExit(f"{contender.loader} over {contender.format} files failed:\n{done.stderr[-4000:]}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def pythons_of(names: Sequence[str]) -> dict[str, Path]:
    """Return the interpreter of each contender whose environment could be made; say why others take no part."""
    found = {}
    for name in names:
        environment = CONTENDERS[name].environment
        try:
            made = Path(sys.executable) if environment is None else ensure(environment, default_folder())
        except EnvironmentFailure as error:
            print(f"{name} takes no part: {error}")
        else:
            found[name] = made
    return found


def compare(proxy: FaultProxy, served: Path, pythons: dict[str, Path], options: argparse.Namespace) -> None:
    """Take turns, then print."""
    epochs = {name: Epochs() for name in pythons}
    for number in range(options.rounds):
        # Every other round is reversed, so that no contender always runs after the same one.
        for name in list(pythons)[:: -1 if number % 2 else 1]:
            contender = CONTENDERS[name]
            files = sorted(path.name for path in (served / contender.format).iterdir())
            urls = [f"http://{proxy.address}/{contender.format}/{file}" for file in files]
            proxy.behave(latency_s=options.latency)
            found = one_epoch(pythons[name], contender, urls, options.workers)
            epochs[name].add(found, proxy.counts(), options.records)
    print(
        f"{options.records} images of 224, {options.latency * 1e3:.0f} ms latency, {options.workers} workers, "
        f"{options.rounds} rounds; samples/s of cold epochs"
    )
    for name, took in epochs.items():
        print(
            f"  {CONTENDERS[name].loader + ', ' + CONTENDERS[name].format:21} {_figures(took.whole)}; after the first "
            f"batch {_figures(took.later)}, which took {_figures(took.first_s, '.2f')} s; {_figures(took.requests)} "
            f"requests, {_figures([nbytes / 1e6 for nbytes in took.nbytes])} MB"
        )
    for mine, other, target in COMPARED:
        if mine in epochs and other in epochs:
            one, two = epochs[mine], epochs[other]
            print(
                f"  aioloader, {mine} to {other}: whole epoch {_ratio(one.whole, two.whole)}, after the first batch "
                f"{_ratio(one.later, two.later)}; target {target:g}"
            )
    rows: dict[str, dict[str, Any]] = {
        name: {
            "loader": CONTENDERS[name].loader,
            "format": CONTENDERS[name].format,
            "images/s": spread(took.whole),
            "after the first batch, images/s": spread(took.later),
            "first batch, s": spread(took.first_s),
            "requests": spread(took.requests),
            "MB": spread(took.nbytes, 1e-6),
        }
        for name, took in epochs.items()
    }
    for mine, other, target in COMPARED:
        if mine in epochs and other in epochs:
            rows[mine] |= {
                "times": CONTENDERS[other].loader,
                "whole epoch": ratios(epochs[mine].whole, epochs[other].whole),
                "later batches": ratios(epochs[mine].later, epochs[other].later),
                "target": target,
            }
    write_figures(options.json, list(rows.values()))


def _figures(figures: Sequence[float], how: str = ",.0f") -> str:
    return f"{statistics.median(figures):{how}} ({min(figures):{how}} to {max(figures):{how}})"


def _ratio(some: Sequence[float], others: Sequence[float]) -> str:
    return _figures([one / other for one, other in zip(some, others, strict=True)], ".2f")


def main() -> None:
    """Parse the command line, write the files, start the servers, compare."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    add_data_option(parser)
    parser.add_argument("--records", type=int, default=2048, help="of about 110 kB where the photographs are")
    parser.add_argument(
        "--latency", type=float, default=0.05, help="seconds of latency added to every request"
    )
    parser.add_argument("--workers", type=int, default=2, help="of each loader")
    parser.add_argument("--proxies", type=int, default=2, help="number of processes of the proxy")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", default=",".join(CONTENDERS), help=f"some of {','.join(CONTENDERS)}")
    parser.add_argument("--smoke", action="store_true", help="few records, one round: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.records, options.rounds = 256, 1
    names = options.only.split(",")
    unknown = set(names) - set(CONTENDERS)
    if unknown:
        parser.error(f"--only: {min(unknown)!r} is none of {', '.join(CONTENDERS)}")
    pythons = pythons_of(names)
    with ExitStack() as stack:
        scratch = stack.enter_context(tempfile.TemporaryDirectory())
        served = Path(scratch, "served")
        photographs = Repeated(load_jpegs(options.data, scratch), options.records)
        for kind in sorted({CONTENDERS[name].format for name in pythons}):
            (served / kind).mkdir(parents=True)
            write_format(kind, photographs, served / kind)
        server = stack.enter_context(Nginx(served))
        proxy = stack.enter_context(FaultProxy(server.address, processes=options.proxies))
        compare(proxy, served, pythons, options)


if __name__ == "__main__":
    main()
