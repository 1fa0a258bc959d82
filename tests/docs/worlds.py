"""Surroundings of the pages' blocks: the files that they name, and the names that a reader defined before."""

from __future__ import annotations

import base64
import json
import shutil
import wave
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import anyio
import cv2
import numpy as np
import pytest

import aioloader
import recordio
from aioloader.tools.pack import pack
from aioloader.transforms import RandomResizedCrop
from tests.aioloader.format_sets import MDS, PARQUET, TAR, TFRECORD, Sample, write_tfrecord

WORDS = {
    "README.md": {"size=224": "size=32"},
    # Queried, as by a Prometheus server, at any free port.
    "diagnosis.md": {
        "aioloader doctor": "aioloader doctor --seconds 0",
        "start_http_server(8000)": "start_http_server(0)",
        "server.shutdown() ": "import urllib.request\n"
        "url = f'http://localhost:{server.server_port}/metrics'\n"
        "shown = urllib.request.urlopen(url).read()\n"
        "server.shutdown() ",
    },
    "caching.md": {"/mnt/nfs/": "", "/scratch/": "scratch-"},
    "formats.md": {
        "s3://bucket/train-{000..127}.tar": "train-{000..001}.tar",
        "s3://bucket/imagenet/train": "mds",
        "gs://bucket/": "",
        "/data/imagenet/": "",
        "/data/captions": "mds-captions",
        "/scratch/": "scratch-",
    },
    "images-on-demand.md": {"draw photos": "draw photos --count 16"},
    "index.md": {"draw photos": "draw photos --count 16"},
    "torch.md": {"stop_after=8": "stop_after=3"},
}
"""Words of a page's blocks that a reader replaces, and their replacements here."""


class Step:
    """Training step, for ``step(images, labels)`` and ``await step(images, labels)``; counts the samples."""

    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, images: Any, labels: Any) -> Step:
        assert len(images) == len(labels)
        self.seen += len(images)
        return self

    def __await__(self) -> Iterator[None]:
        return iter(())


def lay(page: str, folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    """Put the files that a page names into a folder.

    Args:
        page: a key of `PAGES`.
        folder: the working directory of the blocks.
        photo_rec, photo_folder: the fixtures of these names.

    Returns:
        the names that its first block begins with.
    """
    for suffix in (".rec", ".idx"):
        shutil.copy(photo_rec.with_suffix(suffix), folder / f"train{suffix}")
    return _WORLDS.get(page, lambda *_: {})(folder, photo_rec, photo_folder)


def after(page: str, names: dict[str, Any]) -> None:
    """Run the functions that a page only defines, and check the results."""
    _AFTER.get(page, lambda _: None)(names)


def _folders(folder: Path, photo_folder: Path, *names: str) -> None:
    for name in names:
        shutil.copytree(photo_folder, folder / name)


def _samples(photo_folder: Path, count: int = 20) -> list[Sample]:
    paths = sorted(photo_folder.rglob("*.jpg"))[:count]
    return [
        Sample(
            key=f"{number:06}",
            image=path.read_bytes(),
            label=number % 3,
            text=f"photograph {number}",
            json={"number": number},
        )
        for number, path in enumerate(paths)
    ]


def _tars(folder: Path, photo_folder: Path) -> None:
    """Write train-000.tar and train-001.tar."""
    TAR.write(folder / "shards", _samples(photo_folder), shards=2)
    for number, path in enumerate(sorted((folder / "shards").iterdir())):
        path.rename(folder / f"train-{number:03}.tar")


def _formats(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    pytest.importorskip("pyarrow", reason="needs pip install 'aioloader[parquet]'")
    _tars(folder, photo_folder)
    samples = _samples(photo_folder)
    TFRECORD.write(folder / "shards", samples, shards=1)
    next((folder / "shards").iterdir()).rename(folder / "train-00000-of-01024")
    captions = {"image/encoded": [samples[0].image], "caption": [b"text"], "bbox/xmin": [0.5]}
    write_tfrecord(folder / "captions-0.tfrecord", [captions])
    for name in ("mds", "mds-captions"):
        MDS.write(folder / name, samples)
    PARQUET.write(folder / "data", samples, shards=2)
    shutil.copy(next((folder / "data").iterdir()), folder / "train.parquet")
    (folder / "train.tar.gz").write_bytes(b"\x1f\x8b" + bytes(600))
    (folder / "depth" / "room").mkdir(parents=True)
    cv2.imwrite(str(folder / "depth" / "room" / "0.png"), np.full((4, 5), 1500, np.uint16))
    return {"step": Step()}


def _cifar10(folder: Path) -> None:
    folder.mkdir(parents=True)
    for name in (*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"):
        rows = np.arange(20 * 3073, dtype=np.uint32).reshape(20, 3073).astype(np.uint8)
        rows[:, 0] = np.arange(20) % 10
        (folder / f"{name}.bin").write_bytes(rows.tobytes())


def _readme(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _three_photos(folder, photo_rec, photo_folder)
    return {"step": Step()}


def _after_readme(names: dict[str, Any]) -> None:
    image = anyio.run(names["serve"])
    assert (image.ndim, image.dtype) == (3, np.uint8)
    assert names["step"].seen >= 28 + 28  # the record file, by torch's script and by MXNet's


def _after_diagnosis(names: dict[str, Any]) -> None:
    if "shown" in names:  # prometheus_client is there
        assert b"aioloader_delivered_samples_total" in names["shown"]


def _three_photos(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    """Lay three photographs for the image service of the README."""
    (folder / "photos").mkdir()
    paths = sorted(photo_folder.rglob("*.jpg"))
    for name, path in zip("abc", paths, strict=False):
        shutil.copy(path, folder / "photos" / f"{name}.jpg")
    return {}


def _photos(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _folders(folder, photo_folder, "photos")
    return {}


def _recipes(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _folders(folder, photo_folder, "photos")
    street = folder / "FOLDER" / "street"
    street.mkdir(parents=True)
    shutil.copy(next(photo_folder.rglob("*.jpg")), street / "a.jpg")
    (folder / "objects.lst").write_text("0\t2\t5\t3\t0.1\t0.2\t0.45\t0.8\tstreet/a.jpg\n")
    with recordio.RecordWriter(folder / "objects.rec", index=True) as writer:
        label = [2, 5, 3, 0.1, 0.2, 0.45, 0.8]
        writer.write(recordio.pack((0, label, 0, 0), (street / "a.jpg").read_bytes()), 0)
    pairs = [(_Scenes()[number]["image"], _Scenes()[number]["boxes"]) for number in range(6)]
    masked = aioloader.SimpleDataset(
        [{"image": image, "mask": np.zeros(image.shape[:2], np.uint8)} for image, _ in pairs]
    )
    return {"scenes": _Scenes(), "dataset": aioloader.SimpleDataset(pairs), "pairs": masked}


def _insightface(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    for number in range(6):
        place = folder / "CROPS" / f"n{number // 2}" / f"{number}.jpg"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(_crop(number))
    return {}


def _crop(number: int) -> bytes:
    import simplejpeg

    data: bytes = simplejpeg.encode_jpeg(np.full((112, 112, 3), 20 * number, np.uint8))
    return data


def _packing(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _folders(folder, photo_folder, "photos")
    _tars(folder, photo_folder)
    _cifar10(folder / "downloads")
    shutil.copy(photo_rec.with_suffix(".lst"), folder / "train.lst")
    _folders(folder, photo_folder, "more")
    pack(folder / "photos", folder / "out", shards=2, train_ratio=0.9)
    return {}


def _caching(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _folders(folder, photo_folder, "photos")
    _tars(folder, photo_folder)
    for number in range(2):
        shutil.copy(photo_rec, folder / f"train-{number}.rec")
    return {}


def _sampling(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    for name in ("faces", "more"):
        with recordio.RecordWriter(folder / f"{name}.rec", folder / f"{name}.idx") as writer:
            for key in range(64):
                header = recordio.IRHeader(0, key // 4, key, 0)
                writer.write(recordio.pack(header, b"never decoded"), key)
    return _photos(folder, photo_rec, photo_folder)


def _batches(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _photos(folder, photo_rec, photo_folder)
    return {"texts": [np.arange(1 + number % 40) for number in range(200)]}


class _Scenes(aioloader.Dataset):
    """Images with objects: masks, boxes, keypoints and classes."""

    def __len__(self) -> int:
        return 8  # whole batches of 4

    def __getitem__(self, index: int) -> dict[str, Any]:
        count = 1 + index % 3
        boxes = np.tile(np.array([[20, 20, 80, 90]], np.float32), (count, 1))
        return {
            "image": np.full((120, 160, 3), index, np.uint8),
            "boxes": boxes,
            "masks": np.ones((count, 120, 160), np.uint8),
            "keypoints": np.full((count, 2, 3), 50, np.float32),
            "label": np.arange(count),
        }


def _your_data(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    pytest.importorskip("pyarrow", reason="needs pip install 'aioloader[parquet]'")
    _folders(folder, photo_folder, "photos")
    _tars(folder, photo_folder)
    samples = _samples(photo_folder)
    TFRECORD.write(folder / "records", samples, shards=1)
    next((folder / "records").iterdir()).rename(folder / "train-00000-of-00001")
    MDS.write(folder / "mds", samples)
    PARQUET.write(folder / "data", samples, shards=2)
    for number, path in enumerate(sorted((folder / "data").iterdir())):
        path.rename(folder / "data" / f"train-{number}.parquet")
    _tables(folder)
    _scenes_in_files(folder)
    rng = np.random.default_rng(0)
    np.save(folder / "slide.npy", rng.integers(0, 256, (256, 320, 3), np.uint8))
    np.save(folder / "series.npy", rng.random((100, 3), np.float32))
    rng.integers(0, 5000, 6500, np.uint16).tofile(folder / "tokens.bin")
    (folder / "clips").mkdir()
    for number in range(9):
        with wave.open(str(folder / "clips" / f"{number}.wav"), "wb") as clip:
            clip.setparams((1, 2, 16000, 0, "NONE", ""))
            clip.writeframes(bytes(200 * (number + 1)))
    for name in ("first", "second"):
        video = cv2.VideoWriter(str(folder / f"{name}.avi"), cv2.VideoWriter.fourcc(*"MJPG"), 25, (64, 48))
        for number in range(12):
            video.write(np.full((48, 64, 3), 20 * number, np.uint8))
        video.release()
    return {}


def _tables(folder: Path) -> None:
    """Write labels.csv and train.csv for the photographs."""
    files = sorted(path.relative_to(folder / "photos").as_posix() for path in folder.glob("photos/*/*.jpg"))
    rows = [f"{path},{('cat', 'dog')[n % 2]},{n / 2},{n % 2},{n % 3 // 2}" for n, path in enumerate(files)]
    (folder / "labels.csv").write_text("\n".join(["file,species,age,indoors,old", *rows]))
    names = [Path(path).stem for path in files if path.startswith("circle/")]
    tags = [f"{name},round {('red', 'blue')[n % 2]}" for n, name in enumerate(names)]
    (folder / "train.csv").write_text("\n".join(["id,tags", *tags]))


def _scenes_in_files(folder: Path) -> None:
    """Write images with their masks, boxes and depths."""
    for name in ("images", "masks", "depth"):
        (folder / name).mkdir()
    rows = []
    for number in range(9):
        image = np.full((120, 160, 3), 20 * number, np.uint8)
        cv2.imwrite(str(folder / "images" / f"{number}.jpg"), image)
        cv2.imwrite(str(folder / "masks" / f"{number}.png"), image[..., 0] // 20)
        count = 1 + number % 3
        boxes, points = [[20, 20, 80, 90]] * count, [[[30, 30], [50, 60]]] * count
        rows.append({"file": f"{number}.jpg", "boxes": boxes, "points": points, "classes": [1] * count})
    (folder / "boxes.json").write_text(json.dumps(rows))
    for number in range(2):
        cv2.imwrite(str(folder / "depth" / f"{number}.png"), np.full((40, 50), 1500, np.uint16))


def _after_sampling(names: dict[str, Any]) -> None:
    assert (len(names["mixed"]), len(names["loader"])) == (128, 1)


def _scaling(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    dataset = aioloader.ImageRecordDataset(folder / "train.rec").transform_first(RandomResizedCrop(16))

    def gather(receipt: aioloader.Receipt) -> list[aioloader.Receipt]:
        """Return the receipts of all six ranks."""
        return [receipt, *(_pass(dataset, rank).receipt() for rank in range(1, 6))]

    return {"dataset": dataset, "rank": 0, "gather": gather}


def _pass(dataset: Any, rank: int) -> aioloader.DataLoader[Any]:
    options = {"shuffle": True, "shard": (rank, 6), "num_workers": 0}
    with aioloader.DataLoader(dataset, 64, **options) as loader:
        for _ in loader:
            pass
    return loader


def _tools(folder: Path, photo_rec: Path, photo_folder: Path) -> dict[str, Any]:
    _tars(folder, photo_folder)
    TAR.write(folder / "val", _samples(photo_folder), shards=1)
    for suffix in (".rec", ".idx"):
        shutil.copy(photo_rec.with_suffix(suffix), folder / f"train-0{suffix}")
        shutil.copy(photo_rec.with_suffix(suffix), folder / f"bad{suffix}")
    with open(folder / "bad.rec", "r+b") as file:
        file.write(b"\0\0\0\0")
    return {}


def _after_images_on_demand(names: dict[str, Any]) -> None:
    """Ask the page's endpoint for images, without a server."""
    program = Path("server.py")
    if not program.exists():  # starlette is not there
        return
    endpoint: dict[str, Any] = {"__name__": "server"}
    exec(compile(program.read_text(encoding="utf-8"), program, "exec"), endpoint)
    data = Path("photos/circle/00000.jpg").read_bytes()
    good, damaged = (
        "data:image/jpeg;base64," + base64.b64encode(each).decode() for each in (data, data[:99])
    )

    async def ask_all() -> list[tuple[int, Any]]:
        app = endpoint["app"]
        async with app.router.lifespan_context(app):
            values: tuple[Any, ...] = ([good, good], [good, damaged], ["photos/a.jpg"], ["data:,"], [3], good)
            found = [await _ask(app, "/brightness", {"images": images}) for images in values]
        return [*found, await _ask(app, "/brightness", {"images": [good]})]  # closed

    first, *others = anyio.run(ask_all)
    assert (first[0], len(first[1])) == (200, 2)
    assert first[1][0] == first[1][1] == pytest.approx(100, abs=100)
    assert [status for status, _ in others] == [422, 422, 422, 400, 400, 503]


async def _ask(app: Any, path: str, value: Any) -> tuple[int, Any]:
    """Post JSON to an ASGI application; return the status and the answer."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": json.dumps(value).encode()}

    async def send(message: Any) -> None:
        sent.append(message)

    scope = {"type": "http", "method": "POST", "path": path, "headers": [], "query_string": b""}
    await app(scope, receive, send)
    return sent[0]["status"], json.loads(sent[1]["body"])


_WORLDS: dict[str, Callable[[Path, Path, Path], dict[str, Any]]] = {
    "README.md": _readme,
    "caching.md": _caching,
    "formats.md": _formats,
    "migrating-from-mxnet.md": _insightface,
    "packing.md": _packing,
    "sampling.md": _sampling,
    "scaling.md": _scaling,
    "recipes.md": _recipes,
    "tools.md": _tools,
    "batches.md": _batches,
    **dict.fromkeys(("executors.md", "leases.md", "path.md", "torch.md"), _photos),
    "your-data.md": _your_data,
    "custom.md": _photos,
    "tutorial-script.md": _photos,
    "troubleshooting.md": _photos,
}
_AFTER: dict[str, Callable[[dict[str, Any]], None]] = {
    "README.md": _after_readme,
    "diagnosis.md": _after_diagnosis,
    "images-on-demand.md": _after_images_on_demand,
    "sampling.md": _after_sampling,
}

WITH_FILES = frozenset({*_WORLDS, *_AFTER})
"""Pages with more files than a record file, or with checks afterwards."""
