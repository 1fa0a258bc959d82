"""One short program for each extra: what it is for, in an environment that has this extra and no other.

    .ci/extras [NAME...]      make the environments, and run these programs in them

Each program checks first that the environment contains the packages of its extra, what these need, and nothing else:
of the packages that other extras install, none can be imported. "core" is the package without an extra.
"""

from __future__ import annotations

import asyncio
import importlib.util
import io
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Callable
from contextlib import redirect_stderr
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import aioloader
import recordio
from aioloader import transforms
from aioloader.errors import MissingPackageError
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import pack

CHECKOUT = Path(__file__).parents[2]
COUNT = 24
SCHEMES = ("http", "https", "s3", "s3a", "gs", "az", "azure", "adl", "abfs", "abfss", "hf")
TURBOJPEG_HAS_A_WHEEL = sys.version_info < (3, 14) and (sys.platform, platform.machine()) == (
    "linux",
    "x86_64",
)
# What optional packages are imported as.
MODULES = {
    "albumentations": ("albumentations",),
    "jax": ("jax",),
    "mds": ("brotli", "cramjam", "zstandard"),
    "metrics": ("opentelemetry", "opentelemetry.sdk", "prometheus_client"),
    "parquet": ("pyarrow",),
    "progress": ("rich",),
    "ray": ("pyarrow", "ray", "ray.data"),
    "remote": ("obstore",),
    "service": ("PIL", "h11"),
    "tfrecord": ("google_crc32c",),
    "torch": ("torch",),
    "turbojpeg": ("turbojpeg",),
    "view": ("jinja2", "starlette", "uvicorn"),
}
# Packages that tests and other loops bring along.
OTHERS = ("pytest", "hypothesis", "trio", "sniffio", "psutil", "setuptools", "pip")


# -- the environment -------------------------------------------------------------------------------------------------


def normal(name: str) -> str:
    """Return the name of a distribution as metadata compares it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def needed(name: str, extras: frozenset[str], found: dict[str, set[str]]) -> None:
    """Add the distributions that one needs, itself included, to `found`.

    Markers other than "extra" count as true: of what they leave out, nothing is installed.
    """
    known = found.setdefault(normal(name), set())
    if known and extras <= known:
        return
    known |= extras | {""}
    try:
        requirements = metadata.requires(name) or []
    except metadata.PackageNotFoundError:
        return
    for requirement in requirements:
        text, _, marker = requirement.partition(";")
        wanted = re.findall(r"""extra\s*==\s*["']([^"']+)""", marker)
        if wanted and not set(map(normal, wanted)) & extras:
            continue
        match = re.match(r"\s*([A-Za-z0-9._-]+)\s*(?:\[([^\]]*)\])?", text)
        assert match, requirement
        inner = frozenset(normal(each.strip()) for each in (match[2] or "").split(",") if each.strip())
        needed(match[1], inner, found)


def check_alone(extra: str) -> None:
    """Check that the extra is installed, that what it needs is, and that nothing else is or can be imported."""
    closure: dict[str, set[str]] = {}
    needed("aioloader", frozenset({extra}), closure)
    installed = {normal(each.metadata["Name"]) for each in metadata.distributions()}
    assert installed <= closure.keys(), f"nothing here needs {sorted(installed - closure.keys())}"
    brought = {
        top
        for top, names in metadata.packages_distributions().items()
        if any(normal(name) in closure for name in names)
    }
    optional = {module.partition(".")[0] for modules in MODULES.values() for module in modules}
    for module in sorted({*optional, *OTHERS} - brought):
        assert importlib.util.find_spec(module) is None, (
            f"{module} can be imported next to aioloader[{extra}]"
        )
    installed = () if extra == "turbojpeg" and not TURBOJPEG_HAS_A_WHEEL else MODULES.get(extra, ())
    for module in installed:  # last, because Ray extends the path with packages of its own
        assert importlib.util.find_spec(module) is not None, f"aioloader[{extra}] does not install {module}"
    checkout = Path(aioloader.__file__).is_relative_to(CHECKOUT)
    assert not checkout, f"aioloader is imported from the checkout: {aioloader.__file__}"


# -- what several programs use ---------------------------------------------------------------------------------------


class Set:
    """A drawn data set in a folder: images in folders of their classes, and packed.

    Attributes:
        folder: the images.
        rec: the record file.
    """

    def __init__(self, place: Path) -> None:
        self.place = place
        self.folder = draw_folder(place / "images", count=COUNT, sizes=((96, 128), (80, 64)))
        pack(self.folder, place / "packed", encoding="keep", num_workers=1)
        self.rec = place / "packed.rec"
        # Of the checkout parts of the tests can be imported, the package cannot.
        for part in ("tests/servers", "tests/aioloader/formats"):
            shutil.copytree(CHECKOUT / part, place / "path" / part)
        sys.path.append(str(place / "path"))

    def images(self) -> list[bytes]:
        """Return all encoded images."""
        return [path.read_bytes() for path in sorted(self.folder.rglob("*.jpg"))]


def count(dataset: Any, transform: Any = None, **options: Any) -> int:
    """Return the number of samples of an epoch."""
    if transform is None:
        transform = transforms.Resize((32, 32))
    return samples_of(dataset.transform_first(transform), **options)


def samples_of(dataset: Any, **options: Any) -> int:
    """Return the number of samples of an epoch without a transform."""
    with aioloader.DataLoader(dataset, 8, shuffle=True, num_workers=1, **options) as loader:
        return sum(len(labels) for _, labels in loader)


async def count_async(dataset: Any) -> int:
    """Return the number of samples of an epoch of the async loader."""
    async with aioloader.AsyncDataLoader(
        dataset.transform_first(transforms.Resize((32, 32))), 8, executor="thread", num_workers=1
    ) as loader:
        return sum([len(labels) async for _, labels in loader])


def refused(extra: str, call: Callable[[], object]) -> None:
    """Check that a call fails, and that the error names the extra."""
    try:
        call()
    except MissingPackageError as error:
        assert f'pip install "aioloader[{extra}]"' in str(error), error
    else:
        raise AssertionError(f"it is done without aioloader[{extra}]")


def command(*arguments: str, exits: tuple[int, ...] = (0,)) -> str:
    """Run the command line and return its output."""
    done = subprocess.run(
        [sys.executable, "-P", "-m", "aioloader", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode in exits, f"exit code {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout


def served(folder: Path) -> Any:
    """Return nginx over a folder."""
    from tests.servers.nginx import Nginx

    return Nginx(folder)


# -- the programs ----------------------------------------------------------------------------------------------------


def core(data: Set) -> None:
    """Without an extra: files and folders, both loaders, crop indexes, and errors that name extras."""
    assert count(aioloader.ImageFolderDataset(data.folder)) == COUNT
    command("index", "--crops", str(data.rec))
    crop = transforms.RandomResizedCrop((32, 32), scale=(0.05, 0.2))
    assert count(aioloader.ImageRecordDataset(data.rec), crop) == COUNT
    assert asyncio.run(count_async(aioloader.ImageRecordDataset(data.rec))) == COUNT
    with recordio.RecordReader(data.rec) as reader:
        assert sum(1 for _ in reader) == COUNT
    for scheme in SCHEMES:
        url = f"{scheme}://place/a.rec" if scheme != "hf" else "hf://datasets/place/name/a.rec"
        refused("remote", lambda url=url: recordio.RecordReader(url))
        refused("remote", lambda url=url: aioloader.RecordFileDataset(url))

        async def read_async(url: str = url) -> None:
            async with recordio.aio.AsyncRecordReader(url) as reader:
                await reader.read_many([0])

        refused("remote", lambda read=read_async: asyncio.run(read()))
    numbers = aioloader.ArrayDataset(np.arange(4))
    for package in ("torch", "jax"):
        refused(package, lambda package=package: aioloader.DataLoader(numbers, 2, output=package))
    assert "pip install 'aioloader[remote]'" in command("doctor", "--seconds", "0", exits=(0, 1))


def remote(data: Set) -> None:
    """URLs, of every scheme, from a server of files."""
    bucket = data.place / "www" / "place"
    bucket.mkdir(parents=True)
    for path in (data.rec, data.rec.with_suffix(".idx")):
        (bucket / path.name).write_bytes(path.read_bytes())
    with served(bucket.parent) as nginx:
        address = f"http://{nginx.address}"
        os.environ.update(
            AWS_ENDPOINT_URL=address,
            AWS_REGION="nowhere",
            AWS_SKIP_SIGNATURE="true",
            STORAGE_EMULATOR_HOST=address,
            AZURE_STORAGE_ENDPOINT=address,
            AZURE_STORAGE_ACCOUNT_NAME="account",
            AZURE_SKIP_SIGNATURE="true",
            HF_ENDPOINT=address,
        )
        url = f"{address}/place/packed.rec"
        # The readers of `recordio` come first: no dataset has been made, so nothing has registered an opener.
        urls = [
            url,
            *(f"{scheme}://place/packed.rec" for scheme in ("s3", "s3a", "gs", "az", "azure", "adl")),
        ]
        urls += [f"{scheme}://place@account.dfs.core.windows.net/packed.rec" for scheme in ("abfs", "abfss")]
        for each in urls:
            with recordio.RecordReader(each) as reader:
                assert sum(1 for _ in reader) == COUNT, each

            async def read_async(each: str = each) -> int:
                async with recordio.aio.AsyncRecordReader(each) as reader:
                    return len([record async for record in reader])

            assert asyncio.run(read_async()) == COUNT, each
        try:  # the Hub is more than a server of files
            recordio.RecordReader("hf://datasets/place/name/packed.rec")
        except FileNotFoundError as error:
            assert "has no 'packed.rec'" in str(error), error
        else:
            raise AssertionError("a server of files is taken for the Hub")
        dataset = aioloader.ImageRecordDataset(url)
        assert count(dataset) == count(aioloader.ImageRecordDataset("s3://place/packed.rec")) == COUNT
        assert asyncio.run(count_async(dataset)) == COUNT
        assert "24 records" in command("verify", url)


def view(data: Set) -> None:
    """The page answers, a page of a record and its image, and the pages can be written to files."""
    command("view", str(data.folder), "--export", str(data.place / "pages"), "--limit", "4")
    assert "<html" in (data.place / "pages" / "index.html").read_text()
    arguments = ["view", str(data.rec), "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [sys.executable, "-P", "-u", "-m", "aioloader", *arguments], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        address = next(found[0] for line in process.stdout if (found := re.search(r"http://\S+/", line)))
        page = urllib.request.urlopen(address).read().decode()
        assert "<html" in page
        image = next(found for found in re.findall(r'src="([^"]+)"', page) if "svg" not in found)
        with urllib.request.urlopen(urllib.request.urljoin(address, image)) as answer:
            assert answer.headers["Content-Type"].startswith("image/")
            assert answer.read()
        process.send_signal(signal.SIGINT)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.communicate()


def torch(data: Set) -> None:
    """Tensors of both loaders, and the replacement of torch's own."""
    import torch

    from aioloader.interop.torch import DataLoader

    dataset = aioloader.ImageRecordDataset(data.rec).transform_first(transforms.Resize((32, 32)))
    with aioloader.DataLoader(dataset, 8, num_workers=1, output="torch") as loader:
        assert [type(images) for images, _ in loader] == [torch.Tensor] * 3
    pairs = torch.utils.data.TensorDataset(torch.arange(8), torch.arange(8) * 2)
    total = sum(int(twice.sum()) for _, twice in DataLoader(pairs, batch_size=4, shuffle=True, num_workers=1))
    assert total == 56


def jax(data: Set) -> None:
    """Arrays of JAX."""
    import jax

    dataset = aioloader.ImageRecordDataset(data.rec).transform_first(transforms.Resize((32, 32)))
    with aioloader.DataLoader(dataset, 8, num_workers=1, output="jax") as loader:
        assert all(isinstance(images, jax.Array) for images, _ in loader)


def ray(data: Set) -> None:
    """The executor, and rows of Ray Data."""
    import ray

    from aioloader.executors import RayExecutor
    from aioloader.interop.ray import RecordIODatasource

    place = tempfile.mkdtemp(prefix="ray-", dir="/tmp")  # its sockets have long names
    ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level="ERROR", _temp_dir=place)
    try:
        dataset = aioloader.ImageRecordDataset(data.rec).transform_first(transforms.Resize((32, 32)))
        with aioloader.DataLoader(dataset, 8, executor=RayExecutor(1)) as loader:
            assert sum(len(labels) for _, labels in loader) == COUNT
        tasks = RecordIODatasource(data.rec).get_read_tasks(2)
        assert sum(len(table) for task in tasks for table in task()) == COUNT
    finally:
        ray.shutdown()
        shutil.rmtree(place, ignore_errors=True)


def metrics(data: Set) -> None:
    """A scrape, and a reader of OpenTelemetry."""
    from opentelemetry.sdk.metrics import MeterProvider
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader
    from prometheus_client import CollectorRegistry, generate_latest

    from aioloader.interop import opentelemetry, prometheus

    registry, reader = CollectorRegistry(), InMemoryMetricReader()
    with aioloader.DataLoader(aioloader.ArrayDataset(np.arange(COUNT)), 8, num_workers=0) as loader:
        prometheus.register(loader, "train", registry)
        opentelemetry.register(loader, "train", meter_provider=MeterProvider([reader]))
        assert len(list(loader)) == 3
        assert f'samples_total{{loader="train"}} {COUNT}.0' in generate_latest(registry).decode()
        found = reader.get_metrics_data()
        names = [m.name for r in found.resource_metrics for s in r.scope_metrics for m in s.metrics]
        assert "aioloader.delivered.samples" in names


def progress(data: Set) -> None:
    """A bar of rich."""
    text = io.StringIO()
    with redirect_stderr(text):
        assert samples_of(numbers(), progress="rich") == COUNT
    assert "100%" in text.getvalue() or f"{COUNT}" in text.getvalue(), text.getvalue()


def numbers() -> Any:
    """Return a data set of pairs of numbers."""
    return aioloader.ArrayDataset(np.arange(COUNT), np.arange(COUNT))


def albumentations(data: Set) -> None:
    """Its transforms in the workers of a loader."""
    import albumentations

    flip = transforms.Albumentations(
        albumentations.Compose([albumentations.Resize(32, 32), albumentations.HorizontalFlip()])
    )
    assert count(aioloader.ImageRecordDataset(data.rec), flip) == COUNT


def turbojpeg(data: Set) -> None:
    """Its library decodes rectangles; where it has no wheel, the extra installs nothing, and crops are the same."""
    from aioloader.jpeg.turbojpeg import library_path

    path = library_path()
    assert ("turbojpeg.libs" in (path or "")) is TURBOJPEG_HAS_A_WHEEL, path
    crop = transforms.RandomResizedCrop((32, 32), scale=(0.05, 0.2))
    assert count(aioloader.ImageRecordDataset(data.rec), crop) == COUNT
    assert path is None or "libjpeg-turbo 3" in command("doctor", "--seconds", "0.1", exits=(0, 1))


def mds(data: Set) -> None:
    """Shards of each compression."""
    from tests.aioloader.formats.mds_sets import number, write_set

    for codec in ("zstd", "br", "snappy"):
        samples = [{"image": image, "label": number(at)} for at, image in enumerate(data.images())]
        place = write_set(data.place / codec, {"image": "jpeg", "label": "int"}, samples, codec=codec)
        assert count(aioloader.MDSDataset(place, cache=data.place / f"{codec}-cache")) == COUNT


def tfrecord(data: Set) -> None:
    """CRCs are checked."""
    from tests.aioloader.formats.tfrecords import image_example, write_records

    path = data.place / "a.tfrecord"
    write_records(path, [image_example(image, at) for at, image in enumerate(data.images())])
    assert count(aioloader.TFRecordDataset(path, check_crc=True)) == COUNT
    command("verify", str(path))
    damaged = bytearray(path.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    path.write_bytes(damaged)
    command("verify", str(path), exits=(1,))


def parquet(data: Set) -> None:
    """A table of images and labels."""
    import pyarrow
    import pyarrow.parquet

    images = data.images()
    table = pyarrow.table({"image": images, "label": list(range(len(images)))})
    pyarrow.parquet.write_table(table, data.place / "a.parquet", row_group_size=5)
    assert count(aioloader.ParquetDataset(data.place / "a.parquet")) == COUNT


def service(data: Set) -> None:
    """An image from a URL, processed as Pillow does it."""
    with served(data.folder) as nginx:
        path = next(iter(sorted(data.folder.rglob("*.jpg"))))
        url = f"http://{nginx.address}/{path.relative_to(data.folder)}"

        async def fetch() -> Any:
            async with aioloader.AsyncImageService(
                transforms.Qwen2VLImageProcessor(), allow=("http",), hosts=(nginx.address,), num_workers=1
            ) as images:
                return await images.get(url)

        assert asyncio.run(fetch())["pixel_values"].shape[0] > 0


PROGRAMS: dict[str, Callable[[Set], None]] = {
    program.__name__: program
    for program in (
        *(core, albumentations, jax, mds, metrics, parquet, progress),
        *(ray, remote, service, tfrecord, torch, turbojpeg, view),
    )
}


def main(name: str) -> None:
    """Run the program of an extra."""
    check_alone(name)
    with tempfile.TemporaryDirectory() as place:
        os.environ["AIOLOADER_CACHE_DIR"] = os.path.join(place, "cache")
        PROGRAMS[name](Set(Path(place)))


if __name__ == "__main__":
    main(sys.argv[1])
