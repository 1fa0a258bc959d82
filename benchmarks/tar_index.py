"""Time to find the samples of tars: with Python's tarfile, with a scan of this project, and with its index.

    python -m benchmarks.tar_index --samples 1000000 --nbytes 2500 --tars 10 --no-tarfile

The tars have an image and a label for each sample; the bytes of the images are holes of the files. All are in the page
cache. The ways take turns. "first" is everything that a first opening does: the scan, the index of the samples, and
writing it. "read where remote" is the share of the bytes that is read where tars are remote.
"""

from __future__ import annotations

import os
import shutil
import tarfile
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader import TarDataset
from aioloader.formats.tar.scan import TarScan
from benchmarks.figures import ratios, spread
from benchmarks.measurement import run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row


def write_tar(path: Path, samples: range, nbytes: int) -> None:
    """Write a tar whose images are holes of different lengths, about `nbytes` each."""
    at = 0
    with open(path, "wb") as file:
        for number in samples:
            image = nbytes + number * 7919 % 4001 - 2000 if nbytes > 4000 else nbytes
            for suffix, data, length in (("jpg", b"", image), ("cls", b"%03d" % (number % 1000), 3)):
                member = tarfile.TarInfo(f"{number:08d}.{suffix}")
                member.size = length
                file.seek(at)
                file.write(member.tobuf(tarfile.USTAR_FORMAT) + data)
                at += 512 + -(-length // 512) * 512
        file.truncate(at + 10240)


def read_share(path: Path) -> float:
    """Return the share of the bytes of a tar that a scan by ranges reads."""
    nbytes = path.stat().st_size
    scan = TarScan(str(path), nbytes)
    with open(path, "rb") as file:
        lanes = scan.begin()
        while lanes:
            following = []
            for lane in lanes:
                lane.take([os.pread(file.fileno(), length, offset) for offset, length in lane.wants])
                following += [lane] if lane.wants else scan.settle()
            lanes = following
    scan.members()
    return scan.read_nbytes / nbytes


def measure(
    samples: int = 50_000, nbytes: int = 110_000, tars: int = 1, rounds: int = 5, no_tarfile: bool = False
) -> Iterator[Row]:
    """Measure the ways in turns.

    Args:
        samples: in all tars.
        nbytes: of an image.
        tars: their number.
        rounds: turns of each way.
        no_tarfile: leave out Python's tarfile.
    """
    each = samples // tars
    times: dict[str, list[float]] = {"tarfile": [], "first": [], "later": []}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["AIOLOADER_CACHE_DIR"] = str(Path(folder, "cache"))
        paths = [Path(folder, f"train-{number:03d}.tar") for number in range(tars)]

        def by_tarfile() -> None:
            for path in paths:
                with tarfile.open(path, "r:") as archive:
                    assert len(archive.getmembers()) == 2 * each

        def by_dataset() -> None:
            assert len(TarDataset(paths, crop_index=None)) == each * tars

        for number, path in enumerate(paths):
            write_tar(path, range(each * number, each * (number + 1)), nbytes)
        by_dataset()  # the headers are in the page cache now
        for _ in range(rounds):
            if not no_tarfile:
                times["tarfile"].append(seconds_of(by_tarfile))
            shutil.rmtree(Path(folder, "cache"))
            times["first"].append(seconds_of(by_dataset))
            times["later"].append(seconds_of(by_dataset))
        share = read_share(paths[0])
    for name, values in times.items():
        if values:
            compared = {} if no_tarfile else {"of tarfile": ratios(values, times["tarfile"])}
            remote = {"read where remote, %": 100 * share} if name == "first" else {}
            yield {"way": name, "s": spread(values), **compared, **remote}


if __name__ == "__main__":
    run(measure, samples=500, rounds=1)
