"""Source data of the cases, made once from a folder of photographs and kept.

    photos   the folder's JPEG files (those stored upright, which all decoders decode alike), repeated in one .rec
             file until an epoch lasts for seconds; the same raw
    large    images of 12 megapixels, which are mosaics of the photographs, in the same form
    faces    the centres of the photographs, 112 x 112, as JPEGs of about 5 kB
    arrays   random images of CIFAR's size
    bytes    random records of 1 kB

Next to images is ``reference.npz``, with which `benchmarks.checks` compares outputs; and ``images.crops``, a crop
index, where a case is measured with one too.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
from contextlib import closing
from itertools import cycle, islice
from typing import TYPE_CHECKING, Any

import numpy as np

import recordio
from aioloader.crop_index.layout import RECORDS
from aioloader.crop_index.writer import CropIndexWriter, entry_or_reason, put
from aioloader.mxnet.gluon_geometry import center_box
from aioloader.rng import Rng
from aioloader.tools.pack import list_images, pack
from aioloader.transforms import decode_image
from aioloader.transforms.geometry import RandomResizedCrop
from benchmarks.cases import CASES
from benchmarks.checks import features
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.data import load_jpegs, write_rec
from benchmarks.mosaics import mosaics
from benchmarks.window_check import SHRINK

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from benchmarks.cases import Case


_VERSION = 3  # increment when the prepared data change
_DRAWS = 48  # crops of each image in the reference
_LARGE = 24  # different images of 12 megapixels; fewer if an epoch is short
_FACE_SIDE, _FACE_NBYTES = 112, 5_000
_RECORD_NBYTES = 1024


def make_source(case: Case, photos: Path | None, scratch: Path, say: Callable[[str], object]) -> Source:
    """Return the source data of a case; they are made if they do not exist.

    Args:
        case: which data, and how many samples.
        photos: folder of JPEG files; None: 120 drawn images.
        scratch: folder for the data.
        say: called with a line for each step.

    Raises:
        SystemExit: the folder has no JPEG files.
    """
    mark = _mark(photos) if case.images else ""
    key = hashlib.sha256(f"{_VERSION} {case.data} {case.samples} {mark}".encode()).hexdigest()[:12]
    folder = scratch / f"{case.data}-{key}"
    if not (folder / "source.json").exists():
        say(f"making {case.data}: {case.samples:,} samples in {folder}")
        draft = folder.with_name(f"{folder.name}.{os.getpid()}.partial")
        shutil.rmtree(draft, ignore_errors=True)
        draft.mkdir(parents=True)
        try:
            if case.images:
                _make_images(case, [data for data in load_jpegs(photos) if _is_upright(data)], draft)
            elif case.data == "arrays":
                _make_arrays(case, draft)
            else:
                _make_records(case, draft)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
        finally:
            shutil.rmtree(draft, ignore_errors=True)
    source = Source.load(folder)
    if case.store == "raw":
        _make_raw(source, say)
    if case.indexed:
        _make_crops(source, say)
    return source


def absent_reason(source: Source, store: str) -> str | None:
    """Return the reason why ``raw.rec`` ("raw") or ``images.crops`` ("crops") could not be made, or None."""
    path = source.folder / f"{store}.absent"
    return path.read_text() if path.exists() else None


def warm_up(*paths: Path) -> None:
    """Read files once, so that every contender finds them in the page cache."""
    for path in paths:
        for file in [path] if path.is_file() else sorted(path.rglob("*")):
            if file.is_file():
                with open(file, "rb", buffering=0) as opened:
                    while opened.read(1 << 22):
                        pass


def _mark(photos: Path | None) -> str:
    """Return a hash that identifies a set of photographs."""
    if photos is None:
        return "drawn"
    facts = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path, _ in list_images(photos)[1]]
    return json.dumps(facts)


def _is_upright(data: bytes) -> bool:
    """Return whether a JPEG is stored upright; decodes it with and without orientation to compare."""
    import cv2

    raw = np.frombuffer(data, np.uint8)
    stored = cv2.imdecode(raw, cv2.IMREAD_COLOR | cv2.IMREAD_IGNORE_ORIENTATION)
    shown = cv2.imdecode(raw, cv2.IMREAD_COLOR)
    return stored is not None and stored.shape == shown.shape and bool((stored == shown).all())


def _make_images(case: Case, photos: Sequence[bytes], draft: Path) -> None:
    files = list(photos)
    if case.data == "faces":
        files = [_face(data) for data in photos]
    elif case.data == "large":
        files = mosaics(photos, min(_LARGE, case.samples // 4))
    (draft / "files").mkdir()
    for number, data in enumerate(files):
        (draft / "files" / f"{number:05d}.jpg").write_bytes(data)
    write_rec(draft / "images.rec", list(islice(cycle(files), case.samples)), 1)
    reference = {"small": _shrunken(files)} if case.data == "large" else _reference(case, files)
    np.savez(draft / "reference.npz", **reference)
    Source(draft, case.samples, len(files)).save()


def _face(photo: bytes) -> bytes:
    """Return the centre of a photograph, 112 x 112, as a JPEG with the quality that is closest to 5 kB."""
    import cv2

    image = cv2.imdecode(np.frombuffer(photo, np.uint8), cv2.IMREAD_COLOR)
    height, width = image.shape[:2]
    x, y, w, h = center_box(height, width, (min(height, width),) * 2)
    small = cv2.resize(image[y : y + h, x : x + w], (_FACE_SIDE, _FACE_SIDE), interpolation=cv2.INTER_AREA)
    tries: list[bytes] = [
        cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, quality])[1].tobytes()
        for quality in range(60, 100, 3)
    ]
    return min(tries, key=lambda data: abs(len(data) - _FACE_NBYTES))


def _reference(case: Case, files: Sequence[bytes]) -> dict[str, Any]:
    """Return mean and deviation over draws of the features of each image, for each kind of crop; no mirroring."""
    import cv2

    plain = CASES["faces"]
    found: dict[str, list[Any]] = {}
    crop = RandomResizedCrop(224)
    rng = Rng(1)
    for number, data in enumerate(files):
        image = decode_image(data)
        height, width = image.shape[:2]
        rng.seek(1, 0, number)
        random_crops = []
        for _ in range(_DRAWS if case.data == "photos" else 0):
            x, y, w, h = crop.box(height, width, rng)
            random_crops.append(cv2.resize(image[y : y + h, x : x + w], (224, 224)))
        short = (256, height * 256 // width) if width < height else (width * 256 // height, 256)
        resized = cv2.resize(image, short)
        left, top = (short[0] - 224) // 2, (short[1] - 224) // 2
        kinds = {"centre": [resized[top : top + 224, left : left + 224]], "whole": [image]}
        if random_crops:
            kinds["random"] = random_crops
        for kind, images in kinds.items():
            values = features(plain, np.stack(images))
            found.setdefault(f"{kind}_mean", []).append(values.mean(axis=0))
            found.setdefault(f"{kind}_std", []).append(values.std(axis=0))
    return {name: np.stack(values) for name, values in found.items()}


def _shrunken(files: Sequence[bytes]) -> Any:
    """Return the images as uint8 (images, height / 8, width / 8, 3): means of squares of 8 x 8 pixels."""
    import cv2

    found = []
    for data in files:
        image = decode_image(data)
        extents = (image.shape[1] // SHRINK, image.shape[0] // SHRINK)
        found.append(cv2.resize(image, extents, interpolation=cv2.INTER_AREA))
    return np.stack(found)


def _make_arrays(case: Case, draft: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (case.samples, *case.shape), dtype=np.uint8)
    np.save(draft / "images.npy", images)
    np.save(draft / "labels.npy", np.arange(case.samples, dtype=np.int64))
    Source(draft, case.samples, 0).save()


def _make_records(case: Case, draft: Path) -> None:
    random = np.random.default_rng(0)
    with recordio.RecordWriter(draft / "records.rec", index=True) as writer:
        for number in range(case.samples):
            writer.write(struct.pack("<q", number) + random.bytes(_RECORD_NBYTES - 8), number)
    Source(draft, case.samples, 0).save()


def _make_raw(source: Source, say: Callable[[str], object]) -> None:
    """Make ``raw.rec`` with `aioloader.tools.pack`, repeated; or write the reason of a failure."""
    target, absent = source.folder / "raw.rec", source.folder / "raw.absent"
    if target.exists():
        return
    say(f"making {target}")
    once = source.folder / "raw-once.rec"
    try:
        report = pack(source.folder / "files", once, encoding="raw")
        with recordio.RecordReader(once) as reader:
            payloads = [recordio.unpack(record)[1] for record in reader]
        draft = source.folder / "raw-draft.rec"
        write_rec(draft, list(islice(cycle(payloads), source.samples)), 1)
        draft.with_suffix(".idx").rename(target.with_suffix(".idx"))
        draft.rename(target)
        absent.unlink(missing_ok=True)
    except (OSError, ValueError, TypeError) as error:
        absent.write_text(f"raw.rec cannot be made: {error}")
        return
    finally:
        for suffix in (".rec", ".idx", ".lst"):
            once.with_suffix(suffix).unlink(missing_ok=True)
    (source.folder / "raw.json").write_text(json.dumps({"nbytes": report.nbytes}))


def _make_crops(source: Source, say: Callable[[str], object]) -> None:
    """Make ``images.crops``, the crop index of all samples; or write the reason of a failure.

    It is what `aioloader index --crops` makes, but the entry of an image that is repeated is made only once.
    """
    target, absent = source.folder / "images.crops", source.folder / "crops.absent"
    if target.exists():
        return
    say(f"making {target}")
    try:
        files = [path.read_bytes() for path in source.files[: source.image_count]]
        entries = [entry_or_reason(data) for data in files]
        offsets = RecFile(source.rec, source.samples).offsets.tolist()
        with closing(CropIndexWriter(target, kind=RECORDS)) as writer:
            for number, offset in enumerate(offsets):
                image = number % source.image_count
                put(writer, offset, len(files[image]), entries[image])
            writer.finish()
        absent.unlink(missing_ok=True)
    except (ImportError, OSError) as error:
        absent.write_text(f"images.crops cannot be made: {error}")
