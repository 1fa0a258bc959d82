"""Time to find the samples of tars: with Python's tarfile, with a scan of this project, and with its index.

    python benchmarks/tar_index.py --samples 50000 --nbytes 110000
    python benchmarks/tar_index.py --samples 1000000 --nbytes 2500 --tars 10 --no-tarfile

The tars have an image and a label for each sample; the bytes of the images are holes of the files. All are in the page
cache. The ways are run in turn, and medians are printed. "first" is everything that a first opening does: the scan, the
index of the samples, and writing it. The last line is the share of the bytes that is read where tars are remote.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tarfile
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aioloader import TarDataset
from aioloader.formats.tar.scan import TarScan
from benchmarks.figures import add_json_option, ratios, spread, write_figures
from benchmarks.index_open import timed


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


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=50_000)
    parser.add_argument("--nbytes", type=int, default=110_000, help="of an image")
    parser.add_argument("--tars", type=int, default=1)
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="few samples, one run: a check that it runs")
    parser.add_argument("--no-tarfile", action="store_true", help="leave out Python's tarfile")
    add_json_option(parser)
    options = parser.parse_args()

    if options.smoke:
        options.samples, options.runs = 500, 1
    folder = Path(tempfile.mkdtemp(prefix="tar-index-"))
    os.environ["AIOLOADER_CACHE_DIR"] = str(folder / "cache")
    each = options.samples // options.tars
    paths = [folder / f"train-{number:03d}.tar" for number in range(options.tars)]

    def by_tarfile() -> None:
        for path in paths:
            with tarfile.open(path, "r:") as archive:
                assert len(archive.getmembers()) == 2 * each

    def by_dataset() -> None:
        assert len(TarDataset(paths, crop_index=None)) == each * options.tars

    times: dict[str, list[float]] = {"tarfile": [], "first": [], "later": []}
    try:
        for number, path in enumerate(paths):
            write_tar(path, range(each * number, each * (number + 1)), options.nbytes)
        by_dataset()  # the headers are in the page cache now
        for _ in range(options.runs):
            if not options.no_tarfile:
                times["tarfile"].append(timed(by_tarfile))
            shutil.rmtree(folder / "cache")
            times["first"].append(timed(by_dataset))
            times["later"].append(timed(by_dataset))
        share = read_share(paths[0])
    finally:
        shutil.rmtree(folder)

    print(f"{each * options.tars:,} samples in {options.tars} tars, median of {options.runs} runs in turn")
    for name, values in times.items():
        if values:
            print(f"{name:8} {statistics.median(values):8.3f} s")
    if times["tarfile"]:
        ratio = statistics.median(times["tarfile"]) / statistics.median(times["first"])
        print(f"first against tarfile: {ratio:.1f} x faster")
    print(f"remote: {100 * share:.2f} % of the bytes are read")
    write_figures(
        options.json,
        [
            {
                "way": name,
                "s": spread(values),
                **({"of tarfile": ratios(values, times["tarfile"])} if times["tarfile"] else {}),
                **({"read where remote, %": 100 * share} if name == "first" else {}),
            }
            for name, values in times.items()
            if values
        ],
    )


if __name__ == "__main__":
    main()
