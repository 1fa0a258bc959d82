"""Parts of the run whose figures README and docs/ print: each is one command."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ("PARTS", "Part")


class Part(NamedTuple):
    """Part of the run.

    Attributes:
        name: short name, for ``--parts``.
        title: heading of its section in docs/benchmarks-tables.md.
        words: the command after ``python -m``; "{data}" is the folder of photographs, "{torch}" an interpreter with
            torch.
        minutes: estimate on two cores.
        note: what the figures mean, for the section.
        smoke: words in place of ``--smoke``.
    """

    name: str
    title: str
    words: str
    minutes: float
    note: str = ""
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
_RUN_SMOKE = "--quick --rounds 1 --seconds 0.3 --contenders aioloader/process bare_loop --cases"

PARTS = {
    part.name: part
    for part in (
        Part(
            PHOTOGRAPHS,
            "Photographs, with and without antialiasing",
            "benchmarks --data {data} --rounds 3 --seconds 1 --cases jpeg-antialias jpeg-uint8 formats",
            40,
            smoke=f"{_RUN_SMOKE} jpeg-antialias",
        ),
        Part(
            "loaders",
            "Loaders",
            "benchmarks --data {data} --rounds 3 --seconds 1",
            150,
            smoke=f"{_RUN_SMOKE} jpeg-uint8 arrays",
        ),
        Part(
            "raw-area",
            "Raw pixels again, next to FFCV",
            "benchmarks --data {data} --rounds 5 --seconds 2 --cases raw-area "
            "--contenders bare_loop aioloader/process ffcv",
            5,
            "Work on raw pixels is bound by memory, and varies with the other programs of the machine. So this section "
            "has more rounds.",
            smoke=f"{_RUN_SMOKE} raw-area",
        ),
        Part(
            "main-job",
            "The main job",
            "benchmarks.main_job --data {data} --repeat 48",
            1,
            "Random resized crop 224 and flip, the same resize by both; a loader and a bare loop that decodes whole "
            "images take turns.",
        ),
        Part("first-batch", "First batch", "benchmarks.first_batch --data {data}", 1),
        Part("import-time", "Import", "benchmarks.import_time", 1),
        Part(
            "gluon",
            "MXNet's Gluon loader",
            "benchmarks.gluon_loader",
            1,
            "50,000 x 32 x 32 x 3 bytes in batches of 32. Needs an environment with MXNet.",
            smoke="--rounds 1 --seconds 0.2",
        ),
        Part(
            "image-record-iter",
            "MXNet's ImageRecordIter",
            "benchmarks.image_record_iter --data {data}",
            2,
            "Random resized crop 224, not antialiased, mirror, normalised float32. Needs an environment with MXNet.",
        ),
        Part("index-open", "Opening an index", "benchmarks.index_open", 1, "An .idx of 1.3 million lines."),
        Part(
            "tar-index",
            "Finding the samples of a tar",
            "benchmarks.tar_index",
            1,
            "50,000 photographs with labels.",
        ),
        Part(
            "tar-index-million",
            "Finding a million samples of tars",
            "benchmarks.tar_index --samples 1000000 --nbytes 2500 --tars 10 --no-tarfile",
            1,
            smoke="--smoke --no-tarfile",
        ),
        Part(
            "torch-adapter",
            "By changing torch's import",
            "benchmarks.torch_adapter --data {data} --rounds 3",
            1,
            "The same script, dataset and arguments with torch's loader and with `aioloader.interop.torch.DataLoader`, "
            "in turns, with two workers that stay between epochs. First the batches of an epoch are compared. "
            "The scripts: `pillow`, photographs opened, cropped, resized (antialiased) and flipped by Pillow; "
            "`arrays`, float32 planes of 224 x 224 from a numpy file; `fields`, dicts of twelve numbers, small arrays "
            "and a string; `collate`, tensors of 16,384 numbers with a custom collate function; `memory`, a "
            "TensorDataset of small images, without workers; `folder`, the script of `pillow` with "
            "`aioloader.ImageFolderDataset`, against the unchanged script.",
            smoke="--smoke --only memory",
        ),
        Part(
            "recipes",
            "Training recipes",
            "benchmarks.recipes --data {data} --rounds 3",
            2,
            "Recipes of augmentation, against torch's loader with torchvision's transforms of tensors and of Pillow "
            "images, all antialiased. Needs torchvision. `v1`: random resized crop 224, flip, normalised. `new`: "
            "random resized crop 176, flip, TrivialAugmentWide, random erasing, MixUp or CutMix. `rand-augment`: `v1` "
            "with RandAugment. "
            "`multi-crop`: 2 views of 224 and 8 of 96, with jitter, blur and solarisation.",
        ),
        Part(
            "packing",
            "Packing",
            "benchmarks.packing --data {data} --rounds 5 --images 1500",
            1,
            "`aioloader pack` and a bare loop that does the same work with OpenCV, or only with reads and writes, take "
            "turns on the same files in the page cache, both with an fsync at the end.",
        ),
        Part(
            "crop-index",
            "Crops by a crop index",
            "benchmarks.crop_index --data {data}",
            1,
            "One sample on one core, CPU time: RandomResizedCrop's boxes of photographs, cut and resized to 224 x 224, "
            "not antialiased. Needs numba.",
        ),
        Part(
            "viewing",
            "The viewer",
            "benchmarks.viewing --rounds 3 --pages 5",
            1,
            "`aioloader view` of a thousand records and of a million take turns, each in a new process.",
        ),
        Part(
            "fill",
            "Batches within a budget",
            "benchmarks.fill --data {data} --budgets 2048 4096 8192 16384 --lookahead 64",
            1,
            "`BudgetBatchSampler` on the sizes of the photographs, repeated to an epoch of 100,000; the cost is the "
            "number of tokens for Qwen2-VL. The figures follow from the plan alone.",
        ),
        Part(
            "buckets",
            "Batches of like items",
            "benchmarks.buckets",
            1,
            "`BucketBatchSampler` on 100,000 sequences of 8 to 2,048 tokens (log-normal, mean 333), dealt out to three "
            'ranks by loaders with `shard=`; every sequence comes once. "Uneven" is the largest batch of a step over '
            "the mean of the ranks. All but the cost follows from the plan alone.",
        ),
        Part(
            "ragged",
            "Batches of any shape",
            "benchmarks.ragged --data {data}",
            1,
            "Batches of images of different sizes: this project's batchify functions, torch's `DataLoader` with lists "
            "of tensors, and a pool of processes that pickles lists.",
        ),
        Part(
            "large-results",
            "Large results",
            "benchmarks.large_results",
            1,
            "Batches of 206 MB of arrays of different sizes, two workers; a task in the loop runs every millisecond. "
            "`lists`: lists of arrays in slab memory; `no room`: the same with slab memory in which no batch has room; "
            "`async`: arrays that pass through an async transform.",
        ),
        Part(
            "image-service",
            "Images on demand",
            "benchmarks.image_service --data {data} --rounds 3",
            7,
            "A server with 32 clients, each of which sends four photographs of 1536 x 2170 pixels at a time, processed "
            "by `Qwen2VLImageProcessor`.",
        ),
        Part(
            "small-images",
            "Small images on demand",
            "benchmarks.image_service --data {data} --small --rounds 5",
            1,
            "Single images of 112 x 112 pixels.",
            smoke="--small --smoke",
        ),
        Part(
            "windows",
            "Shuffle windows",
            "benchmarks.windows",
            1,
            "1,281,167 samples in batches of 256. The figures follow from the order alone.",
        ),
        Part("scale", "Many ranks", "benchmarks.scale", 1, "10^9 samples in batches of 64."),
        Part(
            "scale-million",
            "Many ranks, a million samples",
            "benchmarks.scale --samples 1000000 --ranks 8",
            1,
        ),
        Part("resume", "Resuming", "benchmarks.resume", 1, "A .rec of 1.3 million short records."),
        Part(
            "many-workers",
            "Many workers",
            "benchmarks.many_workers --rounds 3",
            1,
            "Only the workers are simulated: one process answers the chunks of all of them.",
        ),
        Part(
            "soak",
            "Five minutes of faults",
            "benchmarks.soak --data {data} --minutes 5",
            5,
            "A worker is killed every second; reads are slow or fail, samples raise, epochs are left and resumed. "
            "Every batch is compared with the plan.",
        ),
        Part(
            "worker-pool",
            "Workers shared by loaders",
            "benchmarks.worker_pool",
            1,
        ),
        Part(
            "busy-worker-pool",
            "Workers shared by loaders, on a busy machine",
            "benchmarks.worker_pool --busy 8",
            1,
            smoke="--smoke --busy 1",
        ),
        Part(
            "tracing",
            "Traces",
            "benchmarks.tracing --data {data}",
            1,
            "CPU time of the process with the loop, with and without `trace=` in turns. Batches of 16 photographs; "
            "images on demand, 32 at a time.",
        ),
        Part(
            "internal-costs",
            "Single operations",
            "benchmarks.internal_costs --data {data}",
            1,
            "Costs on which decisions of the design rest.",
        ),
        Part(
            "remote",
            "Remote records",
            "benchmarks.remote --data {data} --torch {torch} --only speed,lag,cache,away",
            4,
            "A server behind a proxy that adds 50 ms to every request. Images are resized without antialiasing. "
            "Needs nginx.",
            smoke="--smoke --only cache",
        ),
        Part(
            "remote-faults",
            "Remote records with faults",
            "benchmarks.remote --data {data} --records 10000 --rounds 2 --only faults",
            1,
        ),
        Part(
            "remote-crops",
            "Remote records with a crop index",
            "benchmarks.remote --data {data} --only crops --latency 0.02 --records 1500 --rounds 3",
            1,
        ),
        Part(
            "remote-formats",
            "Remote files of other formats",
            "benchmarks.remote_formats --data {data}",
            2,
            "Cold epochs of 2,048 images of 224, two workers, 50 ms latency, antialiased by all. "
            "Needs nginx and curl.",
            smoke="--smoke --only tar,tfrecord",
        ),
    )
}
"""Parts by name, in the order in which they run and in which the page lists them."""
