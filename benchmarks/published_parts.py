"""Parts of the run whose figures README and docs/ print: each is one command."""

from __future__ import annotations

from typing import NamedTuple


class Part(NamedTuple):
    """Part of the run.

    Attributes:
        name: short name, for ``--parts``.
        title: heading of its section in docs/benchmarks-tables.md. The docstring of its module explains the figures.
        words: the command after ``python -m``; "{data}" is the folder of photographs, "{torch}" an interpreter with
            torch.
        minutes: estimate on two cores.
        smoke: words in place of ``--smoke``.
    """

    name: str
    title: str
    words: str
    minutes: float
    smoke: str = "--smoke"

    @property
    def module(self) -> str:
        """Return the module that it runs."""
        return self.words.split()[0]

    @property
    def is_run(self) -> bool:
        """Return whether it is ``python -m benchmarks``, which writes its results to a folder."""
        return self.module == "benchmarks"

    @property
    def command(self) -> str:
        """Return the command as pages print it."""
        return f"python -m {self.words}".replace("{data}", "FOLDER").replace("{torch}", "PYTHON")


PHOTOGRAPHS = "photographs"
"""Name of the part with the cases that most readers look for; the run of all loaders has them, too."""
RAW_AGAIN = "raw-area"
"""Name of a case, and of the part that measures it again with more rounds: memory is its limit, which varies."""

_RUN = "benchmarks --data {data} --rounds 3 --seconds 1"
_RUN_SMOKE = "--quick --rounds 1 --seconds 0.3 --contenders aioloader/process bare_loop --cases"
_AGAIN = f"--cases {RAW_AGAIN} --contenders bare_loop aioloader/process ffcv"
_FILL = "benchmarks.fill --data {data} --budgets 2048 4096 8192 16384 --lookahead 64"
_TARS = "benchmarks.tar_index --samples 1000000 --nbytes 2500 --tars 10 --no-tarfile"
_REMOTE = "benchmarks.remote --data {data}"

PARTS = {
    part.name: part
    for part in (
        Part(
            PHOTOGRAPHS,
            "Photographs, with and without antialiasing",
            f"{_RUN} --cases jpeg-antialias jpeg-uint8 formats",
            40,
            f"{_RUN_SMOKE} jpeg-antialias",
        ),
        Part("loaders", "Loaders", _RUN, 150, f"{_RUN_SMOKE} jpeg-uint8 arrays"),
        Part(
            RAW_AGAIN,
            "Raw pixels again, next to FFCV",
            f"benchmarks --data {{data}} --rounds 5 --seconds 2 {_AGAIN}",
            5,
            f"{_RUN_SMOKE} raw-area",
        ),
        Part("main-job", "The main job", "benchmarks.main_job --data {data} --repeat 48", 1),
        Part("import-time", "Import", "benchmarks.import_time", 1),
        Part("tar-index", "Finding the samples of a tar", "benchmarks.tar_index", 1),
        Part("tar-index-million", "Finding a million samples of tars", _TARS, 1, "--smoke --no-tarfile"),
        Part(
            "torch-adapter",
            "By changing torch's import",
            "benchmarks.torch_adapter --data {data} --rounds 3",
            1,
            "--smoke --only memory",
        ),
        Part("recipes", "Training recipes", "benchmarks.recipes --data {data} --rounds 3", 2),
        Part("packing", "Packing", "benchmarks.packing --data {data} --rounds 5 --images 1500", 1),
        Part("crop-index", "Crops by a crop index", "benchmarks.crop_index --data {data}", 1),
        Part("viewing", "The viewer", "benchmarks.viewing --rounds 3 --pages 5", 1),
        Part("fill", "Batches within a budget", _FILL, 1),
        Part("buckets", "Batches of like items", "benchmarks.buckets", 1),
        Part("ragged", "Batches of any shape", "benchmarks.ragged --data {data}", 1),
        Part("large-results", "Large results", "benchmarks.large_results", 1),
        Part("image-service", "Images on demand", "benchmarks.image_service --data {data} --rounds 3", 7),
        Part(
            "small-images",
            "Small images on demand",
            "benchmarks.image_service --data {data} --small --rounds 5",
            1,
            "--small --smoke",
        ),
        Part("windows", "Shuffle windows", "benchmarks.windows", 1),
        Part("scale", "Many ranks", "benchmarks.scale", 1),
        Part(
            "scale-million",
            "Many ranks, a million samples",
            "benchmarks.scale --samples 1000000 --ranks 8",
            1,
        ),
        Part("resume", "Resuming", "benchmarks.resume", 1),
        Part("resume-proof", "Resume, proved", "benchmarks.resume_proof", 20),
        Part("many-workers", "Many workers", "benchmarks.many_workers --rounds 3", 1),
        Part("soak", "Five minutes of faults", "benchmarks.soak --data {data} --minutes 5", 5),
        Part("worker-pool", "Workers shared by loaders", "benchmarks.worker_pool", 1),
        Part(
            "busy-worker-pool",
            "Workers shared by loaders, on a busy machine",
            "benchmarks.worker_pool --busy 8",
            1,
            "--smoke --busy 1",
        ),
        Part("tracing", "Traces", "benchmarks.tracing --data {data}", 1),
        Part(
            "remote",
            "Remote records",
            f"{_REMOTE} --torch {{torch}} --only speed,lag,cache,away",
            4,
            "--smoke --only cache",
        ),
        Part(
            "remote-faults",
            "Remote records with faults",
            f"{_REMOTE} --records 10000 --rounds 2 --only faults",
            1,
        ),
        Part(
            "remote-crops",
            "Remote records with a crop index",
            f"{_REMOTE} --only crops --latency 0.02 --records 1500 --rounds 3",
            1,
        ),
        Part(
            "remote-formats",
            "Remote files of other formats",
            "benchmarks.remote_formats --data {data}",
            2,
            "--smoke --only tar,tfrecord",
        ),
    )
}
"""Parts by name, in the order in which they run and in which the page lists them."""
