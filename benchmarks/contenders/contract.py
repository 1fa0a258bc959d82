"""Contract of a contender, and its source data. Standard library and numpy only (Python 3.8 and later).

A contender is two files, `benchmarks/contenders/NAME.py` and `NAME.txt`.

NAME.txt lists the pinned requirements of its virtual environment, in pip's format. Comments of these forms add further
requirements:

    # python: 3.9 3.10 3.11         versions that it runs with, the best first; default: the harness's
    # system: libopencv-dev pkg-config   required Debian packages; a missing one is a failure in the table
    # pip: --no-build-isolation     further options of `pip install`
    # interpreter: this             no separate environment: the interpreter that runs the harness
    # environment: KEY=VALUE        variables of its processes

NAME.py is imported only inside that environment. It may import the standard library, numpy, its own packages, this
module and `benchmarks.cases`; never `aioloader` or `recordio` (except `aioloader.py` and `bare_loop.py`). Its imports
are at its top, so that they are not counted as its start. It defines:

    VARIANTS: tuple of names ("pillow", "opencv"); ("",) if there is only one variant
    PACKAGES: tuple of the distributions whose versions are shown in the report

    def supports(case: Case, variant: str) -> str | None
        None, or the reason why it does not take part ("has no raw format")

    def settings(case: Case, variant: str, cores: int) -> list[dict]
        the settings of the sweep: JSON objects, the documented fast settings with 1 to 4 workers, its threads, ...
        Only a few: each costs some seconds. The best by throughput is kept; the first is used without a sweep, and
        should be the likely one. `cores` is the number of cores that it may use.

    def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path
        optional, for a contender that does not read the source's files: makes the data in its format (tar, TFRecord,
        beton, ...) in `folder`, once and outside of all timing, and returns the argument `data` of `open_batches`,
        which is `source.folder` otherwise. Called once for all cases that share one (data, store): define
        `def data_key(case, variant) -> str` if the default, f"{case.data}-{case.store}", is wrong. Increment
        FORMAT = n (1 by default) when earlier prepared data are no longer valid.

    def stored_nbytes(case: Case, variant: str, data: Path) -> int
        optional: bytes of the stored samples of an epoch; default: of all files that `prepare` wrote into `folder`

    def open_batches(case: Case, variant: str, data: Path, setting: dict) -> context manager (plain or async)
        entering it returns an iterable, or an async iterable, of batches: one iteration over it is one epoch, a further
        one is the next epoch. Leaving it ends its workers. A batch is (images, labels): numpy arrays, or objects that
        numpy views without a copy, of the case's shape and dtype (the memory's order must be the case's: a view of
        NHWC as NCHW is refused), labels of any number type; list[bytes] for the case "bytes".
        Every epoch holds every sample once. The process is pinned to `cores` cores before this is called.

A contender uses the settings that its documentation recommends for speed; its figure should be its best.

`prepare` receives a `Source`; `Source.load(data)` reads it again from `data` if that is `source.folder`. `RecFile`
reads records of a .rec by number with one `os.pread` each, for peers without a format.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np


@dataclass(frozen=True)
class Source:
    """Source data of a case, which `benchmarks.prepare` makes once.

    Contents of the folder:
        photos, large, faces: ``files/00000.jpg ...``, each image once; ``images.rec`` and ``images.idx``, every sample
            of an epoch in the form of usual RecordIO data, label = its number; if they could be made,
            ``raw.rec`` (aioloader's format) and ``images.crops`` (its crop index).
        arrays: ``images.npy`` uint8 (samples, 32, 32, 3) and ``labels.npy`` int64 (samples,).
        bytes: ``records.rec`` and ``records.idx``. A record is 1,024 bytes, of which the first 8 are its number,
            little-endian; no image header.

    Attributes:
        folder: the folder.
        samples: samples of an epoch.
        image_count: number of different images, 0 without images; sample k shows
            ``files/{k % image_count:05d}.jpg``.
    """

    folder: Path
    samples: int
    image_count: int

    @property
    def files(self) -> list[Path]:
        """Return the file of each sample, by number; an image appears many times."""
        paths = [self.folder / "files" / f"{number:05d}.jpg" for number in range(self.image_count)]
        return [paths[number % self.image_count] for number in range(self.samples)]

    @property
    def rec(self) -> Path:
        """Return the plain .rec file of all samples: JPEGs after an image header, or records of bytes."""
        images = self.folder / "images.rec"
        return images if images.exists() else self.folder / "records.rec"

    @property
    def images(self) -> Any:
        """Return all images of "arrays", uint8 (samples, 32, 32, 3), in memory."""
        return np.load(self.folder / "images.npy")[: self.samples]

    @property
    def labels(self) -> Any:
        """Return the numbers of the samples, int64 (samples,)."""
        return np.arange(self.samples, dtype=np.int64)

    def save(self) -> None:
        """Write ``source.json``, which `load` reads."""
        facts = {"samples": self.samples, "image_count": self.image_count}
        (self.folder / "source.json").write_text(json.dumps(facts))

    @classmethod
    def load(cls, folder: Path) -> Source:
        """Return the source data in a folder."""
        facts = json.loads((Path(folder) / "source.json").read_text())
        return cls(Path(folder), facts["samples"], facts["image_count"])


class RecFile:
    """Reader of a .rec file's records by number, with one `os.pread` each. Can be pickled, and used after a fork.

    Args:
        path: the .rec file; its .idx is in the same folder, with lines in the order of the file.
        samples: number of its records to use; None for all.
    """

    _HEAD = 8  # magic, and flag and length
    _IMAGE_HEAD = struct.Struct("<IfQQ")

    def __init__(self, path: Any, samples: Any = None) -> None:
        self.path = str(path)
        text = Path(self.path[: -len(".rec")] + ".idx").read_text()
        offsets = np.array(text.split(), dtype=np.int64)[1::2]
        ends = np.append(offsets[1:], os.path.getsize(self.path))
        self.offsets = offsets[:samples]
        self.sizes = (ends - offsets)[:samples]
        self._fd = -1
        self._pid = -1

    def __getstate__(self) -> dict:
        return {**self.__dict__, "_fd": -1, "_pid": -1}

    def __len__(self) -> int:
        return len(self.offsets)

    def payload(self, number: int) -> bytes:
        """Return the bytes of a record; records of several parts are not supported."""
        if self._pid != os.getpid():
            self._fd, self._pid = os.open(self.path, os.O_RDONLY), os.getpid()
        raw = os.pread(self._fd, int(self.sizes[number]), int(self.offsets[number]))
        length = int.from_bytes(raw[4:8], "little") & 0x1FFFFFFF
        return raw[self._HEAD : self._HEAD + length]

    def image(self, number: int) -> tuple[bytes, int]:
        """Return (JPEG bytes, label) of a record with an image header and a scalar label."""
        payload = self.payload(number)
        return payload[self._IMAGE_HEAD.size :], int(self._IMAGE_HEAD.unpack_from(payload)[1])
