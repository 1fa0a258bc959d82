"""What a contender is, and the data that it is given. Standard library and numpy only (Python 3.8 and later).

A contender is two files, `benchmarks/contenders/NAME.py` and `NAME.txt`.

NAME.txt lists the pinned requirements of its own virtual environment, as pip reads them. Comments of these forms say
what pip cannot:

    # python: 3.9 3.10 3.11         versions that it runs with, the best first; default: that of the harness
    # system: libopencv-dev pkg-config   Debian packages that must be there; a missing one is a failure in the table
    # pip: --no-build-isolation     further options of `pip install`
    # interpreter: this             no environment of its own: the interpreter that runs the harness
    # environment: KEY=VALUE        variables of its processes

NAME.py is imported only inside that environment. It may import the standard library, numpy, its own packages, this
module and `benchmarks.cases`; never `aioloader` or `recordio` (but for `aioloader.py` and `bare_loop.py`). Its imports
stand at its top, so that they are not counted as its start. It defines:

    VARIANTS: tuple of names ("pillow", "opencv"); ("",) where there is only one way
    PACKAGES: tuple of the distributions whose versions are shown in the report

    def supports(case: Case, variant: str) -> str | None
        None, or why it does not take part ("has no tiles")

    def settings(case: Case, variant: str, cores: int) -> list[dict]
        what the sweep tries: JSON objects, the documented fast settings with 1 to 4 workers, its threads, ...
        Few: each costs some seconds. The best by throughput is kept; the first, which is used without a sweep, should
        be the likely one. `cores` is the number of cores that it may use.

    def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path
        makes the data in the contender's own format (tar, TFRecord, beton, ...) in `folder`, once and outside of all
        timing, and returns what `open_batches` is given; or returns `source.folder` where it reads those files.
        Called once for all cases of one (data, store) where they share it: define
        `def data_key(case, variant) -> str` if the default, f"{case.data}-{case.store}", is wrong. FORMAT = n (1
        by default) is raised when prepared data of before no longer fit.

    def stored_nbytes(case: Case, variant: str, data: Path) -> int
        optional: bytes of the stored samples of an epoch; default: of all files that `prepare` wrote into `folder`

    def open_batches(case: Case, variant: str, data: Path, setting: dict) -> context manager (plain or async)
        entering it gives an iterable, or an async iterable, of batches: one iteration over it is one epoch, a further
        one is the next epoch. Leaving it ends its workers. A batch is (images, labels): numpy arrays, or what numpy
        sees without a copy, of the case's shape and dtype (a last dimension or two may be views, as NHWC seen as NCHW
        is not: the memory's order must be the case's), labels of any number type; list[bytes] for the case "bytes".
        Every epoch holds every sample once. The process is pinned to `cores` cores before this is called.

What a contender does is what its documentation recommends for speed; its figure should be its best.

`Source` is what `prepare` gets; it can also be read back from `data` by `Source.load(data)` if `prepare` returned
`source.folder`. `RecFile` reads records of a .rec by number with one `os.pread` each, for peers without a format.
"""

from __future__ import annotations

import json
import os
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ("RecFile", "Source")


@dataclass(frozen=True)
class Source:
    """Source data of a case, made once by `benchmarks.prepare`.

    What lies in the folder:
        photos, faces: ``files/00000.jpg ...``, each picture once; ``images.rec`` and ``images.idx``, every sample of
            an epoch as it is read by owners of RecordIO data, label = its number; where they could be made,
            ``tiled.rec`` and ``raw.rec`` (aioloader's formats).
        arrays: ``images.npy`` uint8 (samples, 32, 32, 3) and ``labels.npy`` int64 (samples,).
        bytes: ``records.rec`` and ``records.idx``. A record is 1,024 bytes, of which the first 8 are its number,
            little-endian; no image header.

    Attributes:
        folder: where they lie.
        samples: samples of an epoch.
        pictures: number of different pictures; sample k shows ``files/{k % pictures:05d}.jpg``. 0 where there are none.
    """

    folder: Path
    samples: int
    pictures: int

    @property
    def files(self) -> list[Path]:
        """The picture of each sample, by number; a picture appears many times."""
        paths = [self.folder / "files" / f"{number:05d}.jpg" for number in range(self.pictures)]
        return [paths[number % self.pictures] for number in range(self.samples)]

    @property
    def rec(self) -> Path:
        """The plain .rec file of all samples: JPEGs behind an image header, or records of bytes."""
        images = self.folder / "images.rec"
        return images if images.exists() else self.folder / "records.rec"

    @property
    def images(self) -> Any:
        """All images of "arrays", uint8 (samples, 32, 32, 3), in memory."""
        return np.load(self.folder / "images.npy")[: self.samples]

    @property
    def labels(self) -> Any:
        """int64 (samples,): the numbers of the samples."""
        return np.arange(self.samples, dtype=np.int64)

    def save(self) -> None:
        """Write ``source.json``, by which `load` finds the data."""
        facts = {"samples": self.samples, "pictures": self.pictures}
        (self.folder / "source.json").write_text(json.dumps(facts))

    @classmethod
    def load(cls, folder: Path) -> Source:
        """The source data in a folder."""
        facts = json.loads((Path(folder) / "source.json").read_text())
        return cls(Path(folder), facts["samples"], facts["pictures"])


class RecFile:
    """Records of a .rec file by number: one `os.pread` each. Can be pickled, and used after a fork.

    Args:
        path: the .rec file; its .idx lies beside it, lines in the order of the file.
        samples: how many of its records are used; None for all.
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
        """The bytes of a record; not those of a record in several parts."""
        if self._pid != os.getpid():
            self._fd, self._pid = os.open(self.path, os.O_RDONLY), os.getpid()
        raw = os.pread(self._fd, int(self.sizes[number]), int(self.offsets[number]))
        length = int.from_bytes(raw[4:8], "little") & 0x1FFFFFFF
        return raw[self._HEAD : self._HEAD + length]

    def image(self, number: int) -> tuple[bytes, int]:
        """(JPEG bytes, label) of a record with an image header and a scalar label."""
        payload = self.payload(number)
        return payload[self._IMAGE_HEAD.size :], int(self._IMAGE_HEAD.unpack_from(payload)[1])
