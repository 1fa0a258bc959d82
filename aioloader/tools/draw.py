"""Drawing of images with known classes, for demonstrations and tests that must not download anything.

    python -m aioloader.tools.draw FOLDER --count 120 --classes 4

An image shows large and small shapes of its class (`CLASSES`) on a gradient with soft lights and some grain, and the
name of its class in a corner. With one version of OpenCV it depends only on (seed, number, class, extents).
"""

from __future__ import annotations

import argparse
import colorsys
import math
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.host_limits import available_cores
from aioloader.rng import Rng

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array

CLASSES = ("circle", "cross", "drop", "heart", "hexagon", "moon", "ring", "square", "star", "triangle")

SIZES = ((375, 500), (500, 375), (333, 500), (400, 400), (480, 640), (300, 450), (240, 320), (500, 334))
"""(height, width) of the drawn files, in pixels."""

_QUALITIES = (95, 90, 85, 75)
_SAMPLINGS = ("420", "444", "422", "420")
_SUBPIXEL = 4  # OpenCV's shapes take coordinates in sixteenths of a pixel
_DOMAIN = 16  # keeps these draws apart from a loader's


def draw_image(
    number: int, *, height: int = 375, width: int = 500, seed: int = 0, label: int | None = None
) -> Array:
    """Draw one image.

    Args:
        number: number of the image; each is different.
        height, width: extents in pixels, at least 16.
        seed: seed of the set.
        label: number of its class in `CLASSES`; None: `number` modulo their count.

    Returns:
        uint8 (height, width, 3) RGB.
    """
    import cv2

    rng = Rng(seed, 0, number, _DOMAIN)
    label = (number if label is None else label) % len(CLASSES)
    name = CLASSES[label]
    hue = rng.random()
    image = _background(rng, height, width, hue)
    side = min(height, width)

    # Small shapes in the background, then the large one with its shadow.
    for _ in range(3 + rng.integers(4)):
        centre = (rng.uniform(0, width), rng.uniform(0, height))
        colour = _colour(hue + rng.uniform(-0.08, 0.08), rng.uniform(0.25, 0.5), rng.uniform(0.75, 0.95))
        small = _mask(image, name, centre, side * rng.uniform(0.04, 0.1), rng.uniform(0, math.tau))
        _blend(image, small, colour, 0.55)
    centre = (width * rng.uniform(0.4, 0.6), height * rng.uniform(0.38, 0.56))
    radius = side * rng.uniform(0.24, 0.34)
    angle = rng.uniform(-0.35, 0.35)
    colour = _colour(hue + rng.uniform(0.35, 0.65), rng.uniform(0.7, 0.95), rng.uniform(0.8, 1.0))
    mask = _mask(image, name, centre, radius, angle)
    shadow = _mask(image, name, _moved(centre, side * 0.025), radius, angle)
    _blend(image, _soft(shadow, side * 0.02), (12.0, 10.0, 24.0), 0.55)
    _blend(image, mask, colour, 1.0)
    light = _soft(_mask(image, name, _moved(centre, -radius * 0.08), radius * 0.82, angle), radius * 0.12)
    _blend(image, cv2.min(light, mask), tuple(min(255.0, c * 0.6 + 120.0) for c in colour), 0.5)

    # With grain, file sizes and decoding times are those of photographs.
    words = rng.words((height * width + 7) // 8).view(np.uint8)[: height * width].reshape(height, width, 1)
    image += (words.astype(np.float32) - 127.5) * 0.055
    drawn: Array = np.clip(image, 0, 255).astype(np.uint8)
    _write(drawn, name)
    return drawn


def draw_folder(
    root: str | os.PathLike[str],
    *,
    count: int = 256,
    classes: int = len(CLASSES),
    seed: int = 0,
    sizes: tuple[tuple[int, int], ...] = SIZES,
    tick: Callable[[int], object] | None = None,
) -> Path:
    """Draw JPEG files of several sizes, qualities and chroma samplings, one sub-folder per class.

    Args:
        root: the folder; created if it is missing.
        count: number of files; successive files are of successive classes.
        classes: number of classes, 1 to 10.
        seed: seed of the set.
        sizes: (height, width) of the files, used in rotation.
        tick: called with the number of files drawn so far, after each.

    Returns:
        the folder.

    Raises:
        ValueError: `classes` is out of range.
    """
    import simplejpeg

    if not 1 <= classes <= len(CLASSES):
        raise ValueError(f"classes must be 1 to {len(CLASSES)}, got {classes}")
    folder = Path(root)
    for name in CLASSES[:classes]:
        (folder / name).mkdir(parents=True, exist_ok=True)

    def draw(number: int) -> None:
        label = number % classes
        # The size also depends on the round, so that a class has images of several sizes.
        height, width = sizes[(number // classes + label) % len(sizes)]
        image = draw_image(number, height=height, width=width, seed=seed, label=label)
        kind = number % len(_QUALITIES)
        jpeg = simplejpeg.encode_jpeg(image, quality=_QUALITIES[kind], colorsubsampling=_SAMPLINGS[kind])
        (folder / CLASSES[label] / f"{number:05d}.jpg").write_bytes(jpeg)

    with ThreadPoolExecutor(available_cores(), "draw") as threads:
        for done, _ in enumerate(threads.map(draw, range(count)), 1):
            if tick is not None:
                tick(done)
    return folder


def _colour(hue: float, saturation: float, value: float) -> tuple[float, ...]:
    return tuple(255.0 * c for c in colorsys.hsv_to_rgb(hue % 1.0, saturation, value))


def _background(rng: Rng, height: int, width: int, hue: float) -> Array:
    """Draw a gradient between two neighbouring colours with soft lights; float32 (height, width, 3)."""
    import cv2

    # Everything here is smooth, so it is drawn small and enlarged.
    rows, columns = 48, 64
    y, x = np.mgrid[0:rows, 0:columns].astype(np.float32)
    x, y = x / columns, y / rows
    angle = rng.uniform(0, math.tau)
    slope = (x - 0.5) * math.cos(angle) + (y - 0.5) * math.sin(angle)
    share = np.clip(0.5 + slope, 0, 1)[..., None]
    first = np.array(_colour(hue, rng.uniform(0.45, 0.8), rng.uniform(0.35, 0.6)), np.float32)
    other = _colour(hue + rng.uniform(0.06, 0.16), rng.uniform(0.3, 0.6), rng.uniform(0.7, 0.95))
    second = np.array(other, np.float32)
    small = first + (second - first) * share
    for _ in range(2 + rng.integers(3)):
        spread = rng.uniform(0.01, 0.06)
        distance = (x - rng.random()) ** 2 + (y - rng.random()) ** 2
        light = np.array(_colour(hue + rng.uniform(-0.15, 0.25), 0.35, 1.0), np.float32)
        small += (light - small) * (np.exp(-distance / spread)[..., None] * rng.uniform(0.25, 0.6))
    small *= (1.0 - 0.55 * ((x - 0.5) ** 2 + (y - 0.5) ** 2))[..., None]
    return np.asarray(cv2.resize(small.astype(np.float32), (width, height), interpolation=cv2.INTER_CUBIC))


def _outline(name: str) -> Array:
    """Return the class's shape as a polygon around (0, 0), of radius about 1; float64 (n, 2), x right and y down."""
    t = np.linspace(0, math.tau, 120, endpoint=False)
    circle = np.stack([np.cos(t), np.sin(t)], axis=1)
    if name in ("circle", "ring"):
        return circle
    if name == "moon":
        outer = circle[np.abs(t - math.pi) < 2.2]
        inner = np.stack([0.35 + 0.95 * np.cos(t), 0.85 * np.sin(t)], axis=1)[np.abs(t - math.pi) < 1.9]
        return np.concatenate([outer, inner[::-1]])
    if name == "heart":
        x = 16 * np.sin(t) ** 3
        y = 13 * np.cos(t) - 5 * np.cos(2 * t) - 2 * np.cos(3 * t) - np.cos(4 * t)
        return np.stack([x / 16, -(y + 2) / 16], axis=1)
    if name == "drop":
        return np.stack([0.75 * np.sin(t) * np.sin(t / 2), -np.cos(t)], axis=1)
    if name == "cross":
        a, b = 0.34, 1.0
        arm = [(-a, -b), (a, -b), (a, -a)]  # the other three arms are rotations by 90 degrees
        return np.array(
            arm + [(-y, x) for x, y in arm] + [(-x, -y) for x, y in arm] + [(y, -x) for x, y in arm]
        )
    corners_of = {"triangle": 3, "square": 4, "hexagon": 6, "star": 10}[name]
    turn = np.arange(corners_of) * math.tau / corners_of - (math.pi / 4 if name == "square" else math.pi / 2)
    reach = np.where(np.arange(corners_of) % 2, 0.45, 1.0) if name == "star" else 1.0
    return np.stack([reach * np.cos(turn), reach * np.sin(turn)], axis=1)


def _mask(image: Array, name: str, centre: tuple[float, float], radius: float, angle: float) -> Array:
    """Return the mask of a shape, with smooth edges; uint8 (height, width)."""
    import cv2

    mask = np.zeros(image.shape[:2], np.uint8)
    turn = np.array([[math.cos(angle), math.sin(angle)], [-math.sin(angle), math.cos(angle)]])
    scale = radius * (1 << _SUBPIXEL)
    place = np.array(centre) * (1 << _SUBPIXEL)
    for part, value in ((1.0, 255), (0.55, 0)) if name == "ring" else ((1.0, 255),):
        points = np.rint(_outline(name) @ turn * (scale * part) + place).astype(np.int32)
        cv2.fillPoly(mask, [points], (value,), cv2.LINE_AA, _SUBPIXEL)
    return mask


def _moved(centre: tuple[float, float], by: float) -> tuple[float, float]:
    return centre[0] + by, centre[1] + by


def _soft(mask: Array, spread: float) -> Array:
    """Blur a mask by `spread` pixels, at a quarter of the size: it takes a tenth of the time and looks the same."""
    import cv2

    height, width = mask.shape
    small = cv2.resize(mask, (width // 4, height // 4), interpolation=cv2.INTER_AREA)
    small = cv2.GaussianBlur(small, (0, 0), max(0.5, spread / 4))
    return np.asarray(cv2.resize(small, (width, height), interpolation=cv2.INTER_LINEAR))


def _blend(image: Array, mask: Array, colour: tuple[float, ...], opacity: float) -> None:
    ys, xs = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    if not len(ys):
        return
    where = np.s_[ys[0] : ys[-1] + 1, xs[0] : xs[-1] + 1]
    share = mask[where].astype(np.float32)[..., None] * (opacity / 255.0)
    part = image[where]
    part += (np.array(colour, np.float32) - part) * share


def _write(image: Array, name: str) -> None:
    """Write the class's name into the lower left corner, legible on any background."""
    import cv2

    height, width = image.shape[:2]
    size = min(height, width) / 420
    place = (round(14 * size), height - round(18 * size))
    for colour, thickness in (((20, 20, 32), 5.0), ((255, 255, 255), 2.0)):
        cv2.putText(
            image,
            name,
            place,
            fontFace=cv2.FONT_HERSHEY_DUPLEX,
            fontScale=size,
            color=colour,
            thickness=max(1, round(thickness * size)),
            lineType=cv2.LINE_AA,
        )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        0: done; 1: a file cannot be written; 2: wrong usage.
    """
    parser = argparse.ArgumentParser(
        prog="python -m aioloader.tools.draw",
        description="Draw JPEG files with known classes, one sub-folder per class, to try things with.",
    )
    parser.add_argument("folder", metavar="FOLDER", help="folder to write; created if it is missing")
    parser.add_argument("--count", type=int, default=120, metavar="N", help="number of files (120)")
    parser.add_argument("--classes", type=int, default=4, metavar="N", help=f"1 to {len(CLASSES)} (4)")
    options = parser.parse_args(argv)
    try:
        folder = draw_folder(options.folder, count=options.count, classes=options.classes)
    except (OSError, ValueError) as error:
        print(f"draw: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, ValueError) else 1
    print(f"{folder}: {options.count} images of {', '.join(CLASSES[: options.classes])}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
