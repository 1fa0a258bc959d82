"""Cases of the benchmark: the work of every contender, as text and as numbers for the checks of its output.

Standard library only: the environment of every contender imports this module (Python 3.8 and later).

The label of a sample is its number, 0 <= number < samples, in all cases. So an epoch can be checked: each number comes
once. Sample k of the photographs and of the faces shows image k % n of n; there are fewer images than samples,
because an epoch has to last for seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


MEAN = (0.485, 0.456, 0.406)
"""ImageNet's mean of red, green, blue on the scale 0 to 1."""

STD = (0.229, 0.224, 0.225)
"""ImageNet's standard deviation of the same."""


@dataclass(frozen=True)
class Case:
    """Task of the benchmark.

    Attributes:
        name: on the command line and in the results.
        title: for the report.
        data: source data: "photos", "large", "faces", "arrays" or "bytes" (see `benchmarks.prepare`).
        store: storage format: "jpeg", "raw" (decoded pixels in the contender's format), "arrays" (in memory) or "bytes"
            (records of a .rec file).
        batch_size: samples of a batch; it divides `samples`.
        samples: samples of an epoch. Each is delivered exactly once per epoch.
        shape: of one sample of a batch; () for bytes.
        dtype: of the pixels; "bytes" if a batch is a list of bytes.
        shuffle: a new order in every epoch, as thorough as the contender's shuffle; else in order.
        crop: "random" (area 0.08 to 1, ratio 3/4 to 4/3, resized to `shape`: torchvision's RandomResizedCrop),
            "centre" (shorter side resized to 256, middle 224 cut out), "window" (a rectangle of `shape` at a uniformly
            drawn place, not resized) or "none".
        flip: mirrored left to right with probability 1/2.
        normalised: float32 channels first, x / 255 less `MEAN`, divided by `STD`; else uint8 channels last.
        interpolation: "linear" or "area": of the resize. Contenders without this choice use their default, which
            `resize_of` names.
        antialias: a linear resize averages over all pixels that a pixel of the result covers, as Pillow's always does.
        start: only the time to the first batch counts; each contender uses its first setting, the usual one.
        least_batches: minimum number of batches of a measurement; fewer where a slow contender takes a second for one.
        buffered: records in the shuffle buffer of contenders that have one, if the buffer's size is a choice.
        peers: names of the contenders that take part; empty: all.
        kept: decoded images are kept, and the rate is that of the epochs after the first one.
    """

    name: str
    title: str
    data: str
    store: str
    batch_size: int
    samples: int
    shape: tuple[int, ...]
    dtype: str
    shuffle: bool = True
    crop: str = "none"
    flip: bool = False
    normalised: bool = False
    interpolation: str = "linear"
    antialias: bool = False
    start: bool = False
    least_batches: int = 16
    buffered: int = 1024
    peers: tuple[str, ...] = ()
    kept: bool = False

    @property
    def images(self) -> bool:
        """Return whether the samples are images that are decoded or cropped one by one."""
        return self.data in ("photos", "large", "faces")

    @property
    def resize(self) -> str:
        """Return how images are resized, in words; "" if they are not."""
        if self.crop not in ("random", "centre"):
            return ""
        return _ANTIALIASED if self.antialias else {"linear": "bilinear"}.get(self.interpolation, "area")

    @property
    def indexed(self) -> bool:
        """Return whether the case is also measured with a crop index: crops of JPEGs at drawn places."""
        drawn = self.store == "jpeg" and self.crop in ("random", "window")
        return drawn and not self.start and not self.peers

    def scaled(self, scale: float) -> Case:
        """Return the same case with `scale` times the samples in an epoch, in whole batches, at least two."""
        batches = max(2, round(scale * self.samples / self.batch_size))
        return replace(self, samples=batches * self.batch_size)


_ANTIALIASED = "bilinear, antialiased"
_JPEG = Case(
    "jpeg-uint8",
    "JPEG, random resized crop 224 and flip, uint8",
    *("photos", "jpeg", 64, 3072, (224, 224, 3), "uint8"),
    crop="random",
    flip=True,
)
_RAW = replace(
    _JPEG, name="raw", title="raw pixels, random resized crop 224 and flip, uint8, bilinear", store="raw"
)
_ALL = (
    replace(_JPEG, name="jpeg-antialias", title=f"{_JPEG.title}, antialiased", antialias=True),
    _JPEG,
    replace(
        _JPEG, name="first-batch", title=f"time to the first batch of 64 images: {_JPEG.title}", start=True
    ),
    replace(
        _JPEG,
        name="jpeg-float32",
        title="JPEG, random resized crop 224 and flip, float32 NCHW normalised",
        shape=(3, 224, 224),
        dtype="float32",
        normalised=True,
    ),
    Case(
        "large",
        "12-megapixel JPEG, random crop 512 without resize, flip, uint8, batches of 16",
        *("large", "jpeg", 16, 384, (512, 512, 3), "uint8"),
        crop="window",
        flip=True,
        least_batches=8,
        buffered=64,
    ),
    replace(
        _JPEG,
        name="eval",
        title="JPEG, resize 256, centre crop 224, in order, uint8",
        shuffle=False,
        crop="centre",
        flip=False,
    ),
    replace(
        _JPEG,
        name="formats",
        title="JPEG in .rec, tar, TFRecord, MDS and Parquet files: random resized crop 224 and flip, uint8",
        peers=("aioloader", "hf_datasets", "streaming", "tf_data", "webdataset"),
    ),
    replace(
        _JPEG,
        name="epochs",
        title=f"decoded images kept in memory, the epochs after the first: {_JPEG.title}, antialiased",
        antialias=True,
        samples=1536,
        least_batches=24,
        peers=("aioloader", "litdata", "tf_data", "torch"),
        kept=True,
    ),
    _RAW,
    replace(
        _RAW,
        name="raw-area",
        title="raw pixels, random resized crop 224 and flip, uint8, area interpolation",
        interpolation="area",
    ),
    Case(
        "faces",
        "face crops, JPEG 112 x 112 of 5 kB, flip, uint8",
        *("faces", "jpeg", 128, 20480, (112, 112, 3), "uint8"),
        flip=True,
    ),
    Case(
        "arrays",
        "arrays in memory, 32 x 32 x 3 uint8 and int64 labels, batches of 32",
        *("arrays", "arrays", 32, 49984, (32, 32, 3), "uint8"),
    ),
    Case(
        "bytes",
        "records of 1 kB, lists of bytes, batches of 256: the pipeline's cost",
        *("bytes", "bytes", 256, 51200, (), "bytes"),
    ),
)

CASES: dict[str, Case] = {case.name: case for case in _ALL}
"""All cases by name."""


def chosen(names: Iterable[str], scale: float = 1.0) -> tuple[Case, ...]:
    """Return the cases with these names, in their usual order; all cases if `names` is empty.

    Args:
        names: names of `CASES`.
        scale: factor for the number of samples in an epoch.

    Raises:
        ValueError: a name is unknown.
    """
    wanted = set(names) or set(CASES)
    unknown = sorted(wanted - set(CASES))
    if unknown:
        raise ValueError(f"unknown case {unknown[0]!r}; choose from: {', '.join(CASES)}")
    return tuple(case.scaled(scale) for case in _ALL if case.name in wanted)


def resize_of(case: Case, name: str, variant: str) -> str:
    """Return how a variant of a contender resizes in a case, in words; "" if it does not resize.

    Pillow and FFmpeg antialias always, and FFCV resizes by area in every case.
    """
    if not case.resize:
        return ""
    if name == "ffcv":
        return "area"
    always = variant == "pillow" or (name, variant) == ("spdl", "ffmpeg")
    return _ANTIALIASED if always else case.resize
