"""Targets: text of indexes (.idx) and of image lists (.lst)."""

from __future__ import annotations

import os
import re
import warnings
import weakref
import zlib
from collections.abc import Sequence
from random import Random

import numpy as np

from aioloader.datasets import ImageListDataset
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.image._encoded_images import open_images
from aioloader.mxnet.io.image_records import LabelList
from aioloader.packing.lists import read_lines
from recordio import CorruptIndexError, Index, MXIndexedRecordIO
from recordio.errors import DuplicateKeyWarning
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder

_INTEGER = re.compile(rb"[+-]?[0-9]+")
_INT64 = range(-(2**63), 2**63)
INDEX_PIECES = dictionary("index")
LIST_PIECES = (*INDEX_PIECES, *dictionary("lst"))


def _faulty(bases: Sequence[bytes], pieces: Sequence[bytes], draw: Draw) -> bytes:
    """Return a valid text with up to three faults, mostly after its first line."""
    data = bytearray(pick(draw, bases))
    for _ in range(int(draw() * 3) + 1):
        change(data, data.find(b"\n") + 1 if draw() < 0.8 else 0, draw, pieces)
    return bytes(data)


class Indexes:
    """Texts of indexes, against a plain parser, line by line."""

    def __init__(self) -> None:
        rng = Random(2)
        forms = (
            lambda n: f"{n}\t{n * 48}\n",
            lambda n: f"{rng.randrange(10 ** rng.randint(1, 18))}\t{rng.randrange(10**6) * 4}\n",
            lambda n: f"key-{n}\t{n * 8}\n",
            lambda n: f"{n}\t{n * 48}\tmore\r\n",
            lambda n: f" {n}\t+{n * 48} \n",
        )
        texts = ["".join(form(n) for n in range(rng.randint(1, 12))) for form in forms for _ in range(8)]
        self._bases = [text.encode() for text in texts]
        self._folder = scratch_folder(self)

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        return _faulty(self._bases, INDEX_PIECES, draw)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        try:
            index = Index.parse(data)
        except CorruptIndexError as error:
            index, line = None, error.line
        wanted = _plain(data)
        if (index is None) != (wanted is None):
            raise Finding(f"parsed as {index}, should be {wanted}")
        if zlib.crc32(data) & 15 == 0:
            self._check_file(data, index)
        if index is None or wanted is None:
            return line != 1
        found = [int(key) if not isinstance(key, str) else key for key in index.keys]
        if (found, index.offsets.tolist()) != wanted:
            raise Finding(f"parsed as {found} and {index.offsets.tolist()}, should be {wanted}")
        _check_uses(index, found)
        return True

    def _check_file(self, data: bytes, index: Index | None) -> None:
        """Check the same from a file, with all readers."""
        path = self._folder / "a.idx"
        path.write_bytes(data)
        record = path.with_suffix(".rec")
        record.touch()
        try:
            again = Index.open(path, cache=False)
        except CorruptIndexError:
            if index is not None:
                raise
        else:
            if (
                index is None
                or list(again.keys) != list(index.keys)
                or (again.offsets != index.offsets).any()
            ):
                raise Finding("a file and its text are read differently")
        for key_type in (int, str):
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore", DuplicateKeyWarning)
                    with MXIndexedRecordIO(path, record, "r", key_type) as reader:
                        keys = reader.keys
            except CorruptIndexError:
                continue
            if index is None or len(keys) != len(index):
                raise Finding(f"{len(keys)} keys by MXNet's class, not {index}")


def _plain(text: bytes) -> tuple[list[int] | list[str], list[int]] | None:
    """Return keys and offsets by the rules of docs/format.md; None for damage."""
    keys: list[bytes] = []
    offsets: list[int] = []
    text = text.replace(b"\r\n", b"\n")
    for line in text.removesuffix(b"\n").split(b"\n") if text else ():
        fields = line.strip().split(b"\t")
        offset = _number(fields[1]) if len(fields) > 1 else None
        if len(fields) > 1 and fields[1].strip() == b"18446744073709551615":
            offset = -1
        if offset is None or offset not in _INT64:
            return None
        keys.append(fields[0].strip())
        offsets.append(offset)
    numbers = [_number(key) for key in keys]
    if all(number is not None and number in _INT64 for number in numbers):
        return numbers, offsets  # type: ignore[return-value]
    try:
        return [key.decode() for key in keys], offsets
    except UnicodeDecodeError:
        return None


def _number(field: bytes) -> int | None:
    field = field.strip()
    return int(field) if len(field) <= 40 and _INTEGER.fullmatch(field) else None


def _check_uses(index: Index, keys: list[int] | list[str]) -> None:
    """Check look-ups, spans, and the text written from it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DuplicateKeyWarning)
        for key in keys[:1] + keys[-1:]:
            place = index.position(key)
            if keys[place] != key or key in keys[place + 1 :]:
                raise Finding(f"key {key!r} found at {place} of {keys}")
    pairs = list(zip(keys, index.offsets.tolist(), strict=True))
    first = {pair: line for line, pair in reversed(list(enumerate(pairs)))}
    if index.repeated().tolist() != [line for line, pair in enumerate(pairs) if first[pair] != line]:
        raise Finding(f"lines {index.repeated()} of {pairs} repeat others")
    for size in (0, 8, 1000, 2**40):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DuplicateKeyWarning)
                offsets, lengths = index.spans(size)
        except CorruptIndexError:
            continue
        if len(offsets) and (lengths.min() <= 0 or (offsets + lengths).max() > size):
            raise Finding(f"spans {offsets} + {lengths} in {size} bytes")
    try:
        text = index.format()
    except CorruptIndexError:
        if isinstance(keys[0], str):
            return  # a key that a line cannot hold
        raise
    again = Index.parse(text.encode())
    if list(again.keys) != list(index.keys) or (again.offsets != index.offsets).any():
        raise Finding("not the same index after it is written and read")


class Lists:
    """Image lists in a file."""

    def __init__(self) -> None:
        rng = Random(3)
        forms = (
            lambda n: f"{n}\t{rng.randrange(5)}.000000\tcat/{n}.jpg\n",
            lambda n: f"{n}\t{rng.random():.6f}\t{rng.randrange(9)}\tdog/{n} x.jpg\n",
            lambda n: f"{n}\t{rng.randrange(5)}\ta/./b/{n}.png\r\n",
            lambda n: f"{n}\t1\ta/../{n}.png\n\n",
        )
        texts = ["".join(form(n) for n in range(rng.randint(1, 8))) for form in forms for _ in range(8)]
        self._bases = [text.encode() for text in texts]
        self._folder = scratch_folder(self)
        self._file = os.open(self._folder / "a.lst", os.O_RDWR | os.O_CREAT)
        weakref.finalize(self, os.close, self._file)

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        return _faulty(self._bases, LIST_PIECES, draw)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, data, 0)
        root = str(self._folder)
        dtype = (None, None, "int64", "float32", "float16", "uint8")[zlib.crc32(data) % 6]
        lines = self._check_lines(data)
        try:
            dataset = ImageListDataset(root, "a.lst", label_dtype=dtype)
        except ValueError as error:
            return ", line 1 (" not in str(error)
        if lines is not None and lines != len(dataset):
            raise Finding(f"{len(dataset)} entries of {lines} lines")
        for place in range(len(dataset)):
            path = dataset.location(place).path
            assert path is not None
            if os.path.commonpath((root, os.path.normpath(path))) != root or ".." in path.split("/"):
                raise Finding(f"{path} may lie outside of {root}")
        labels = dataset.extras(np.arange(len(dataset)))
        if len(labels) != len(dataset):
            raise Finding(f"{len(labels)} labels of {len(dataset)} images")
        return True

    def _check_lines(self, data: bytes) -> int | None:
        """Read the list as im2rec, `ImageIter` and `ImageRecordIter` do; return the number of its lines.

        Return None if that depends on line ends: single carriage returns end a line for some of them.
        """
        path = str(self._folder / "a.lst")
        bad: list[str] = []
        found = list(read_lines(path, lambda number, line, reason: bad.append(reason)))
        for image in found:
            if not image.labels or "\0" in image.path or not 0 <= image.key < 1 << 64:
                raise Finding(f"{image} is not a line of a list")
        lone = data.replace(b"\r\n", b"\n").count(b"\r")
        lines = None if lone else len(found) + len(bad)
        if not lone and lines != sum(1 for line in data.decode(errors="replace").split("\n") if line.strip()):
            raise Finding(f"{len(found)} lines are accepted, {len(bad)} are reported")
        # A path that im2rec refuses does not matter to a reader of labels only.
        sound = not lone and not bad
        self._check_labels(path, {image.key: image.labels for image in found} if sound else {}, sound)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)  # repeated keys
                source = open_images(
                    path_imgrec=None,
                    path_imgidx=None,
                    path_imglist=path,
                    imglist=None,
                    path_root=str(self._folder),
                    dtype="float32",
                )
        except ValueError:
            return lines
        for number, row in enumerate(source.dataset.extras(np.arange(len(source.dataset)))):
            if row[1 : 1 + int(row[0])].tobytes() != source.dataset.label(number).tobytes():
                raise Finding(f"labels {row} and {source.dataset.label(number)}")
        return lines

    @staticmethod
    def _check_labels(path: str, wanted: dict[int, tuple[float, ...]], sound: bool) -> None:
        try:
            labels = LabelList(path, None)
        except MXNetError:
            if sound and wanted:
                raise
            return
        with np.errstate(over="ignore"):
            for key, values in wanted.items():
                if labels.find(key).tobytes() != np.array(values, np.float64).astype(np.float32).tobytes():
                    raise Finding(f"the labels of {key} are {labels.find(key)}, not {values}")
