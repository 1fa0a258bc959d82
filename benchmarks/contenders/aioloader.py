"""aioloader: the async loader with each executor, the blocking one, the Gluon API for arrays, and ImageRecordIter.

"simplejpeg": worker processes without the decoder of the extra aioloader[turbojpeg], if that is installed.
"crop-index", "crop-index-blocking": the async and the blocking loader with a crop index next to the same record file;
"tar", "tfrecord", "mds", "parquet": the async loader with worker processes over files of these formats;
"crop-index-tar" and so on: the same with crop indexes next to the files. All other variants use none.
"kept", "kept-third": worker processes that keep decoded images, all of them or a third.
"""

from __future__ import annotations

import asyncio
import os
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any

# Lazy imports of the workers and of the loop's process, done early: imports are not part of the measurement.
import anyio.lowlevel
import cv2
import numpy as np
import simplejpeg

import aioloader
from aioloader import mxnet as mx
from aioloader import transforms
from aioloader.jpeg.turbojpeg import LIBRARY_VARIABLE, library_path
from aioloader.tools.crops import index_crops
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.format_files import FORMATS, write_format
from benchmarks.contenders.record_iter import DataIters, open_record_iter

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import AbstractAsyncContextManager, AbstractContextManager
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = (
    *("process", "fork", "thread", "inline", "blocking", "gluon", "ImageRecordIter", "simplejpeg"),
    *("crop-index", "crop-index-blocking", "kept", "kept-third"),
    *FORMATS,
    *(f"crop-index-{name}" for name in FORMATS),
)
PACKAGES = ("aioloader", "numpy", "opencv-python-headless", "simplejpeg", "turbojpeg")

assert cv2.__version__
assert simplejpeg.__name__
assert aioloader.ImageRecordDataset  # which imports its module
asyncio.run(anyio.lowlevel.checkpoint())  # which imports the part of anyio for asyncio


def supports(case: Case, variant: str) -> str | None:
    """Return None for executors that have work; the inline one only if a sample costs next to nothing."""
    if case.kept or variant.startswith("kept"):
        own = variant == "process" or variant.startswith("kept")
        return None if case.kept and own else "measured with the case of the epochs"
    if case.peers:
        return None if variant == "process" or _format(variant) else "measured with the other cases"
    if _format(variant):
        return "measured with the case of the formats"
    if _indexed(variant):
        return None if case.indexed else "no crops of JPEGs at drawn places"
    if case.store == "arrays":
        return None if variant in ("inline", "blocking", "gluon") else "data in memory need no executor"
    if variant == "ImageRecordIter" and case.normalised:
        return None
    if variant in ("gluon", "ImageRecordIter"):
        return "only another front end of the same loader"
    if variant == "fork" and not case.start:
        return "as worker processes that are not forks, but for their start"
    if variant == "simplejpeg" and (case.store != "jpeg" or case.crop == "none" or library_path() is None):
        return "as the others"
    if case.images and variant == "inline":
        return "decodes on one core"
    return None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings with 1 to 4 workers; the blocking loader with both executors."""
    if variant == "gluon":
        return [{"num_workers": 0}, {"num_workers": cores}]
    if variant == "ImageRecordIter":
        return [{"preprocess_threads": cores, "prefetch_buffer": 4}]
    if case.store == "arrays":
        return [{}]
    if variant == "inline":
        return [{"executor": "inline", "num_workers": 0}]
    if variant == "simplejpeg":
        return [{"num_workers": cores}]
    if _indexed(variant):
        # As many as cores, the best number without an index too: a sweep would choose one by the noise of the machine.
        return [{"executor": "process", "num_workers": cores}]
    workers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (cores, 1))
    if case.peers:
        return [{"executor": "process", "num_workers": cores}]
    if variant == "blocking":
        inline = [] if case.images else [{"executor": "inline", "num_workers": 0}]
        return [
            *inline,
            *({"executor": name, "num_workers": cores} for name in ("process", "thread")),
        ]
    return [{"executor": variant, "num_workers": number} for number in workers]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Return the source data unchanged; open the index once, so that its binary copy exists.

    For the formats: write the files, and open their indexes once.
    """
    name = _format(variant)
    if name:
        write_format(name, RecFile(source.rec, source.samples), folder)
        dataset = _format_dataset(variant, folder)
        len(dataset)
        if _indexed(variant):
            index_crops([dataset])
        return folder
    if case.store != "arrays":
        len(aioloader.RecordFileDataset(_rec(case, source.folder)))
    return source.folder


def data_key(case: Case, variant: str) -> str:
    """Return one key for the data with a crop index and another without: their sizes differ."""
    if _format(variant):
        return f"{case.data}-{variant}"
    return f"{case.data}-{case.store}{'-crops' if _indexed(variant) else ''}"


def stored_nbytes(case: Case, variant: str, data: Path) -> int:
    """Return the size of the .rec file with its crop index, if that is used; or of the arrays."""
    if case.store == "arrays":
        source = Source.load(data)
        return int(source.images.nbytes + source.labels.nbytes)
    if _format(variant):
        return sum(path.stat().st_size for path in data.rglob("*") if path.is_file())
    index = _crops(data).stat().st_size if _indexed(variant) else 0
    return _rec(case, data).stat().st_size + index


def open_batches(
    case: Case, variant: str, data: Path, setting: dict[str, Any]
) -> AbstractContextManager[Any] | AbstractAsyncContextManager[Any]:
    """Open a loader."""
    if variant == "gluon":
        source = Source.load(data)
        dataset: Any = mx.gluon.data.ArrayDataset(source.images, source.labels)
        return mx.gluon.data.DataLoader(dataset, case.batch_size, shuffle=case.shuffle, **setting)
    if variant == "ImageRecordIter":
        return _record_iter(case, data, setting)
    if variant == "simplejpeg":
        os.environ[LIBRARY_VARIABLE] = ""  # for the workers, which start later
    dataset = _dataset(case, variant, data)
    if variant.startswith("kept"):
        nbytes = sum(dataset[index][0].nbytes for index in range(0, len(dataset), 16)) * 16
        dataset = dataset.cache_samples(nbytes // 3 if variant == "kept-third" else 2 * nbytes)
    steps = _steps(case)
    if steps:
        dataset = dataset.transform_first(transforms.Compose(steps))
    make: Any = aioloader.DataLoader if variant.endswith("blocking") else aioloader.AsyncDataLoader
    return make(dataset, case.batch_size, shuffle=case.shuffle, **setting)


@contextmanager
def _record_iter(case: Case, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    with closing(open_record_iter(mx, case, data, setting)) as batches:
        yield DataIters([batches], np.asarray)


def _format(variant: str) -> str | None:
    """Return the format of a variant's files; None for those that read the .rec file or arrays."""
    name = variant.removeprefix("crop-index-")
    return name if name in FORMATS else None


def _format_dataset(variant: str, folder: Path) -> Any:
    name = _format(variant)
    path = folder if name == "mds" else folder / f"*.{name}"
    return aioloader.open_dataset(path, crop_index="auto" if _indexed(variant) else None)


def _rec(case: Case, folder: Path) -> Path:
    names = {"jpeg": "images.rec", "raw": "raw.rec", "bytes": "records.rec"}
    return folder / names[case.store]


def _indexed(variant: str) -> bool:
    return variant.startswith("crop-index")


def _crops(folder: Path) -> Path:
    return folder / "images.crops"


def _dataset(case: Case, variant: str, data: Path) -> Any:
    if _format(variant):
        return _format_dataset(variant, data)
    if case.store == "arrays":
        source = Source.load(data)
        return aioloader.ArrayDataset(source.images, source.labels)
    if case.store == "bytes":
        return aioloader.RecordFileDataset(_rec(case, data))
    return aioloader.ImageRecordDataset(
        _rec(case, data), crop_index=_crops(data) if _indexed(variant) else None
    )


def _steps(case: Case) -> list[Any]:
    steps: list[Any] = []
    if case.crop == "random":
        size = case.shape[-1] if case.normalised else case.shape[0]
        steps.append(
            transforms.RandomResizedCrop(size, interpolation=case.interpolation, antialias=case.antialias)
        )
    elif case.crop == "window":
        steps.append(transforms.RandomCrop(case.shape[0]))
    elif case.crop == "centre":
        steps += [transforms.Resize(256, antialias=case.antialias), transforms.CenterCrop(224)]
    if case.flip:
        steps.append(transforms.RandomHorizontalFlip())
    if case.normalised:
        mean, std = np.float32(transforms.IMAGENET_MEAN), np.float32(transforms.IMAGENET_STD)
        steps += [transforms.ToTensor(), transforms.Normalize(mean, std)]
    return steps
