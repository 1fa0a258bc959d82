"""Differences between the resizes of OpenCV, Pillow and PyTorch, in pixel values, on photographs.

    python -m benchmarks.resizing --data FOLDER

Every photograph is shrunk to a shorter side of `--size` pixels, by each `interpolation` of
`aioloader.transforms.Resize`, and compared with the results of Pillow and (where it is installed) PyTorch. Pillow
averages over all the pixels that a target pixel covers ("antialias"), and so does PyTorch with ``antialias=True``,
torchvision's default; OpenCV's bilinear and bicubic read only the nearest 4 or 16.

Figures are differences of 8-bit values: the mean over all pixels and channels, the 99th percentile, the maximum.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.tools.pack import list_images
from aioloader.transforms import Resize, decode_image

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

__all__ = ("Difference", "compare")

OURS = ("bilinear", "area", "bicubic")


class Difference(NamedTuple):
    """Difference between two ways of resizing.

    Attributes:
        mean, p99, greatest: of the absolute differences of 8-bit values.
        equal: share of the values that are the same, 0 to 1.
    """

    mean: float
    p99: float
    greatest: int
    equal: float


def _pillow(image: Any, size: tuple[int, int], name: str) -> Any:
    from PIL import Image

    return np.asarray(Image.fromarray(image).resize(size, Image.Resampling[name.upper()]))


def _torch(image: Any, size: tuple[int, int], antialias: bool) -> Any:
    import torch

    planes = torch.from_numpy(np.ascontiguousarray(image.transpose(2, 0, 1)))[None].float()
    made = torch.nn.functional.interpolate(
        planes, size[::-1], mode="bilinear", antialias=antialias, align_corners=False
    )
    return made[0].round().clamp(0, 255).byte().permute(1, 2, 0).numpy()


def others() -> dict[str, Callable[[Any, tuple[int, int]], Any]]:
    """Return the other ways to resize: name, and ``f(image, (width, height))``."""
    found: dict[str, Callable[[Any, tuple[int, int]], Any]] = {
        "Pillow, bilinear": lambda image, size: _pillow(image, size, "bilinear"),
        "Pillow, bicubic": lambda image, size: _pillow(image, size, "bicubic"),
    }
    if importlib.util.find_spec("torch") is not None:
        found["torch, bilinear, antialias=True"] = lambda image, size: _torch(image, size, True)
        found["torch, bilinear, antialias=False"] = lambda image, size: _torch(image, size, False)
    return found


def compare(paths: Sequence[Path], size: int) -> dict[tuple[str, str], Difference]:
    """Compare all ways on some images.

    Args:
        paths: of the images; those whose shorter side is not longer than `size` are left out.
        size: of the shorter side, in pixels.

    Returns:
        (name of the other way, interpolation) and the difference.
    """
    counts = {(other, mine): np.zeros(256, np.int64) for other in others() for mine in OURS}
    for path in paths:
        image = decode_image(path.read_bytes())
        if min(image.shape[:2]) <= size:
            continue
        own = {name: Resize(size, interpolation=name, antialias=False)(image) for name in OURS}
        extents = own[OURS[0]].shape[1::-1]
        for other, function in others().items():
            theirs = function(image, extents).astype(np.int16)
            for mine in OURS:
                difference = np.abs(own[mine].astype(np.int16) - theirs)
                counts[other, mine] += np.bincount(difference.ravel(), minlength=256)
    return {pair: _difference(count) for pair, count in counts.items() if count.any()}


def _difference(counts: Any) -> Difference:
    values = np.arange(256)
    total = counts.sum()
    return Difference(
        float((counts * values).sum() / total),
        float(values[np.searchsorted(counts.cumsum(), 0.99 * total)]),
        int(values[counts > 0].max()),
        float(counts[0] / total),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.resizing", description="Compare ways to resize."
    )
    parser.add_argument(
        "--data", type=Path, required=True, help="a folder with one sub-folder of images per class"
    )
    parser.add_argument("--size", type=int, default=224, help="shorter side in pixels (224)")
    options = parser.parse_args(argv)
    paths = [path for path, _ in list_images(options.data)[1]]
    print(f"{len(paths)} images, shorter side {options.size}")
    print("| resized by | interpolation here | mean | 99 % below | greatest | equal |")
    print("| --- | --- | --- | --- | --- | --- |")
    for (other, mine), found in compare(paths, options.size).items():
        print(
            f"| {other} | {mine} | {found.mean:.2f} | {found.p99:.0f} | {found.greatest} | {found.equal:.0%} |"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
