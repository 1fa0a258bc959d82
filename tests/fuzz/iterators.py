"""Targets: files of MXNet's iterators (CSV, LibSVM, MNIST), and labels of detection records."""

from __future__ import annotations

import math
import re
import struct
import zlib
from random import Random
from typing import Any

import numpy as np

import aioloader.mxnet as mx
from aioloader.mxnet.image.detection import DetSampleSteps
from aioloader.mxnet.io.augment import (
    CropLimits,
    DetectionAugment,
    DetectionLabelError,
    LabelPadError,
    ObjectLabel,
    Rect,
)
from aioloader.mxnet.io.image_record_iter import _checked
from aioloader.mxnet.io.parameters import DETECTION_PARAMETERS, read_parameters
from aioloader.rng import Rng
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder
from tests.fuzz.vision_sets import idx_file

_COLUMNS = 3
_ROWS = 3
_BATCH = 2
PIECES = dictionary("table")
_FIRST = re.compile(r", line 1 |not an IDX file|at row 0|row-length")


class Tables:
    """Files of `CSVIter`, `LibSVMIter` and `MNISTIter`. The first byte of an input selects the kind."""

    _KINDS = 7

    def __init__(self) -> None:
        rng = Random(7)
        self._folder = scratch_folder(self)
        self._images, self._labels = idx_file((_ROWS, 4, 5), rng), idx_file((_ROWS,), rng)
        (self._folder / "images").write_bytes(self._images)
        (self._folder / "labels").write_bytes(self._labels)
        (self._folder / "data").write_bytes(b"1,2,3\n" * _ROWS)
        self._bases = [(kind, text.encode()) for kind in range(5) for text in _texts(kind, rng)]
        self._bases += [(5, self._images), (6, self._labels)] * 4

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        kind, base = pick(draw, self._bases)
        data = bytearray(base)
        low = 4 if kind > 4 else data.find(b"\n") + 1 if draw() < 0.8 else 0
        for _ in range(int(draw() * 3) + 1):
            if kind > 4 and draw() < 0.6:
                at = 4 + int(draw() * 12)
                data[at : at + 1] = bytes((int(draw() * 256) if draw() < 0.5 else int(draw() * 6),))
            else:
                change(data, low, draw, PIECES)
        return bytes((kind,)) + bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        kind, content = data[0] % self._KINDS if data else 0, data[1:]
        path = self._folder / "a"
        path.write_bytes(content)
        try:
            batches = self._open(kind, str(path))
        except mx.MXNetError as error:
            return not _FIRST.search(str(error))
        rows: list[Any] = []
        for batch in batches:
            (found,), (labels,) = batch.data, batch.label
            if len(found) != _BATCH or len(labels) != _BATCH:
                raise Finding(f"a batch of shapes {found.shape} and {labels.shape}")
            labels.asnumpy()
            rows += found.asnumpy()[: _BATCH - batch.pad].tolist()
        if kind < 4:
            _compare(rows, _plain_csv(content, kind > 0) if kind < 3 else _plain_libsvm(content))
        return bool(rows)

    def _open(self, kind: int, path: str) -> Any:
        shape: dict[str, Any] = {"data_shape": (_COLUMNS,), "batch_size": _BATCH, "round_batch": False}
        if kind < 3:
            return mx.io.CSVIter(data_csv=path, dtype=("float32", "int32", "int64")[kind], **shape)
        if kind == 3:
            return mx.io.LibSVMIter(data_libsvm=path, **shape)
        if kind == 4:
            sound = str(self._folder / "data")
            return mx.io.CSVIter(data_csv=sound, label_csv=path, label_shape=(_COLUMNS,), **shape)
        images, labels = str(self._folder / "images"), str(self._folder / "labels")
        if kind == 5:
            return mx.io.MNISTIter(image=path, label=labels, batch_size=_BATCH)
        return mx.io.MNISTIter(image=images, label=path, batch_size=_BATCH)


def _texts(kind: int, rng: Random) -> list[str]:
    """Return valid files of numbers, LibSVM's for kind 3; integers for kinds 1 and 2."""
    texts = []
    for end in ("\n", "\n", "\n", "\r\n"):
        lines = []
        for _ in range(rng.randint(_ROWS, 6)):
            numbers = [f"{rng.randrange(-9, 99)}" for _ in range(_COLUMNS)]
            if kind in (0, 3, 4):
                numbers = [f"{number}.{rng.randrange(100)}" for number in numbers]
            if kind == 3:
                chosen = sorted(rng.sample(range(_COLUMNS), rng.randint(0, _COLUMNS)))
                words = [f"{column}:{numbers[column]}" for column in chosen]
                lines.append(
                    " ".join((f"{rng.randrange(3)}", *words)) + (" # x" if rng.random() < 0.1 else "")
                )
            else:
                lines.append(",".join(numbers))
        texts.append(end.join(lines) + end)
    return texts


def _plain_csv(content: bytes, whole: bool) -> list[list[float]]:
    lines = re.split("\r\n|\r|\n", content.decode("utf-8-sig"))
    number = int if whole else _float32
    return [[number(field.strip()) for field in line.split(",")] for line in lines if line]


def _plain_libsvm(content: bytes) -> list[list[float]]:
    rows = []
    for line in content.split(b"\n"):
        words = line.partition(b"#")[0].decode(errors="replace").split()
        row = [0.0] * _COLUMNS
        for word in words[1:]:
            column, _, value = word.partition(":")
            row[int(column)] = _float32(row[int(column)] + np.float32(_float32(value)))
        if words:
            rows.append(row)
    return rows


def _float32(text: str | float) -> float:
    with np.errstate(all="ignore"):
        return float(np.float32(float(text)))


def _compare(rows: list[list[float]], wanted: list[list[float]]) -> None:
    if len(rows) != len(wanted) or not all(map(_equal, rows, wanted)):
        raise Finding(f"{rows}, not {wanted}")


def _equal(row: list[float], numbers: list[float]) -> bool:
    return np.array_equal(row, numbers, equal_nan=True)


_ODD = (*map(float, range(8)), -1.0, 0.5, 1e-30, 1e30, 3e38, -3e38, math.inf, -math.inf, math.nan)
_OPTIONS: tuple[dict[str, Any], ...] = (
    {},
    {"rand_mirror_prob": 1},
    {"rand_pad_prob": 1, "max_pad_scale": 3},
    {"rand_crop_prob": 1, "min_crop_object_coverages": 0.2, "max_crop_trials": 5},
    {"rand_crop_prob": 1, "min_crop_scales": 0.3, "max_crop_overlaps": 0.9, "crop_emit_mode": "overlap"},
)
_WIDTH = 40


class Boxes:
    """Labels of detection records: float32 numbers. They have the announced layout, or are refused."""

    def __init__(self) -> None:
        rng = Random(8)
        self._bases = []
        for _ in range(60):
            header, width, count = rng.randint(2, 4), rng.randint(5, 7), rng.randint(0, 4)
            label = [float(header), float(width), *(0.0 for _ in range(header - 2))]
            for _ in range(count):
                left, top = rng.random() * 0.8, rng.random() * 0.8
                right, bottom = left + rng.random() * (1 - left), top + rng.random() * (1 - top)
                label += [float(rng.randrange(20)), left, top, right, bottom, *([0.0] * (width - 5))]
            self._bases.append(struct.pack(f"<{len(label)}f", *label))
        common = {"path_imgrec": "x.rec", "data_shape": (3, 6, 8), "batch_size": 1}
        values = [
            _checked(read_parameters("ImageDetRecordIter", DETECTION_PARAMETERS, (), {**common, **options}))
            for options in _OPTIONS
        ]
        self._augments = [DetectionAugment(each, _WIDTH) for each in values]
        self._image = np.arange(5 * 7 * 3, dtype=np.uint8).reshape(5, 7, 3)

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._bases))
        for _ in range(int(draw() * 3) + 1):
            if draw() < 0.6 and len(data) >= 12:
                low = 8 if draw() < 0.8 else 0
                at = low + 4 * int(draw() * ((len(data) - low) // 4))
                struct.pack_into("<f", data, at, pick(draw, _ODD))
            else:
                change(data, 8, draw, (bytes(4), bytes(20), b"\0\0\xc0\x7f", b"\1\0\xa0\x7f"))
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        values = np.frombuffer(data[: len(data) & ~3], "<f4")
        wanted = _plain_objects(values.tolist())
        try:
            boxes = ObjectLabel(values)
        except DetectionLabelError:
            boxes = None
        if (boxes is None) != (wanted is None):
            raise Finding(f"{boxes and boxes.objects} of {values}, should be {wanted}")
        if boxes is None or wanted is None:
            return False
        if not np.array_equal(boxes.objects.ravel(), np.array(wanted, np.float32).ravel(), equal_nan=True):
            raise Finding(f"{boxes.objects} of {values}, should be {wanted}")
        try:
            objects = DetSampleSteps._parse_label(None, values)  # type: ignore[arg-type]  # it does not look at itself
        except DetectionLabelError:
            if wanted and len(values) >= 7:
                raise
        else:
            if len(objects) != len(wanted):
                raise Finding(f"ImageDetIter has {len(objects)} objects, should have {len(wanted)}")
        key = zlib.crc32(data)
        header = boxes.header.tobytes()
        rng = Rng(key)
        self._check_crop(boxes, rng)
        try:
            planes, row = self._augments[key % len(self._augments)](self._image, values, rng=rng)
        except LabelPadError:
            return True
        if (
            planes.shape != (3, 6, 8)
            or row.shape != (4 + _WIDTH,)
            or row[4 : 4 + len(header) // 4].tobytes() != header
        ):
            raise Finding(f"image {planes.shape}, label {row}")
        return True

    @staticmethod
    def _check_crop(boxes: ObjectLabel, rng: Rng) -> None:
        boxes.mirror()
        before = boxes.objects.copy()
        rect = Rect(rng.random() * 0.5, rng.random() * 0.5, 0.5, 0.5)
        everything = (0.0, 1.0)
        if not boxes.crop(rect, CropLimits(everything, everything, everything), "center", 0.3):
            if not np.array_equal(boxes.objects, before, equal_nan=True):
                raise Finding("a crop that is refused changes boxes")
            return
        if len(boxes.objects) > len(before):
            raise Finding("a crop makes objects")
        edges = boxes.objects[:, 1:5]
        if len(edges) and not ((edges[:, :2] >= 0).all() and (edges[:, 2:] <= 1).all()):
            raise Finding(f"after a crop edges are {edges}")


def _plain_objects(values: list[float]) -> list[list[float]] | None:
    """Return the objects with an area; None for an invalid label."""
    if len(values) < 2 or not all(math.isfinite(number) for number in values[:2]):
        return None
    header, width = values[:2]
    if (
        header != int(header)
        or width != int(width)
        or not 2 <= header <= len(values)
        or not 5 <= width < 2**31
    ):
        return None
    rest = values[int(header) :]
    if len(rest) % int(width):
        return None
    objects = [rest[at : at + int(width)] for at in range(0, len(rest), int(width))]
    return [
        each
        for each in objects
        if all(map(math.isfinite, each[1:5])) and each[3] > each[1] and each[4] > each[2]
    ]
