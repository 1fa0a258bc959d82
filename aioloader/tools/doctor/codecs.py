"""The JPEG decoders of this installation: versions, vector instructions, and how fast they are here, today."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("HEIGHT", "WIDTH", "Codec", "examine_codecs")

HEIGHT, WIDTH = 375, 500
"""Extents of the picture that is decoded, in pixels; as those of an ordinary photograph in a training set."""

# A libjpeg-turbo that has vector code takes a third of the time that it takes with that switched off.
_SIMD_GAIN = 1.3
_CHILD_S = 20.0
_PROBE = """
import sys, json
from time import perf_counter
import numpy, simplejpeg
data = sys.stdin.buffer.read()
buffer = numpy.empty(simplejpeg.decode_jpeg(data).size, numpy.uint8)
best = 9.0
for _ in range(25):
    start = perf_counter()
    simplejpeg.decode_jpeg(data, buffer=buffer)
    best = min(best, perf_counter() - start)
print(json.dumps(best))
"""


@dataclass(frozen=True, slots=True)
class Codec:
    """One decoder.

    Attributes:
        name: "simplejpeg", "OpenCV" or "libjpeg-turbo 3".
        version: its version, or the library's path.
        error: why it cannot be used; then nothing else is known.
        simd: whether its vector code is in use; None where that cannot be told.
        detail: what it says of itself.
        one_core: images per second on one core; None: not measured.
        all_cores: the same with a thread on each usable core.
    """

    name: str
    version: str | None = None
    error: str | None = None
    simd: bool | None = None
    detail: str = ""
    one_core: float | None = None
    all_cores: float | None = None


def examine_codecs(cores: int, seconds: float) -> tuple[Codec, ...]:
    """Look at all decoders that there are; one that cannot be used says why.

    Args:
        cores: how many threads decode at the same time.
        seconds: about how long to decode in all; 0: do not.
    """
    try:
        picture = _picture()
    except Exception as error:
        # Neither library can be loaded.
        return Codec("simplejpeg", error=_told(error)), Codec("OpenCV", error=_told(error))
    decoders = [_simplejpeg, _opencv, _turbojpeg]
    each = seconds / (2 * len(decoders)) if cores > 1 else seconds / len(decoders)
    found = []
    for examine in decoders:
        codec = examine(picture, cores, each)
        if codec is not None:
            found.append(codec)
    return tuple(found)


def _picture() -> bytes:
    """A JPEG that decodes like a photograph; each of the libraries may be broken."""
    try:
        from aioloader.tools.draw import draw_image

        image = draw_image(0, height=HEIGHT, width=WIDTH)
    except Exception:
        noise = np.random.default_rng(0).normal(0, 8, (HEIGHT, WIDTH, 3))
        slope = np.linspace(40, 200, WIDTH)[:, None] + np.linspace(0, 40, HEIGHT)[:, None, None]
        image = np.clip(slope + noise, 0, 255).astype(np.uint8)
    try:
        import simplejpeg

        picture: bytes = simplejpeg.encode_jpeg(image, quality=90, colorsubsampling="420")
        return picture
    except Exception:
        import cv2

        encoded: Any = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        return bytes(encoded.tobytes())


def _told(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _simplejpeg(picture: bytes, cores: int, seconds: float) -> Codec:
    try:
        import simplejpeg

        from aioloader.transforms import decode_image
        from aioloader.transforms.lazy_image import Scratch

        def maker() -> Callable[[], object]:
            scratch = Scratch()
            return lambda: decode_image(picture, scratch=scratch)

        gain = _gain_of_simd(picture) if seconds else None
        one, all_ = _rates(maker, cores, seconds)
        simd = None if gain is None else gain > _SIMD_GAIN
        detail = "" if gain is None else f"{gain:.1f} times as fast as without vector instructions"
        return Codec("simplejpeg", _version(simplejpeg), None, simd, detail, one, all_)
    except Exception as error:
        return Codec("simplejpeg", error=_told(error))


def _opencv(picture: bytes, cores: int, seconds: float) -> Codec:
    try:
        import cv2

        data = np.frombuffer(picture, np.uint8)
        text: str = cv2.getBuildInformation()
        library = re.search(r"^\s*JPEG:\s*(.+)$", text, re.MULTILINE)
        features: str = cv2.getCPUFeaturesLine()
        # A star: code for it is there and used; a question mark: there, but the processor has it not.
        used = [word.lstrip("*") for word in features.split() if not word.endswith("?")]
        detail = ", ".join(filter(None, (library.group(1).strip() if library else "", " ".join(used))))
        one, all_ = _rates(lambda: lambda: cv2.imdecode(data, cv2.IMREAD_COLOR), cores, seconds)
        return Codec("OpenCV", _version(cv2), None, bool(used), detail, one, all_)
    except Exception as error:
        return Codec("OpenCV", error=_told(error))


def _turbojpeg(picture: bytes, cores: int, seconds: float) -> Codec | None:
    from aioloader.jpeg.turbojpeg import RectangleDecoder, library_path

    try:
        path = library_path()
        if path is None:
            return None

        def maker() -> Callable[[], object]:
            decoder, out = RectangleDecoder(), np.empty((HEIGHT, WIDTH, 3), np.uint8)
            return lambda: decoder.decode(picture, 0, 0, out)

        one, all_ = _rates(maker, cores, seconds)
        return Codec("libjpeg-turbo 3", path, None, None, "for crops", one, all_)
    except Exception as error:
        return Codec("libjpeg-turbo 3", error=_told(error))


def _version(module: Any) -> str | None:
    import importlib.metadata

    version = getattr(module, "__version__", None)
    return str(version) if version is not None else importlib.metadata.version(module.__name__)


def _rates(
    maker: Callable[[], Callable[[], object]], cores: int, seconds: float
) -> tuple[float | None, float | None]:
    """Images per second in one thread, and in one on each core; each thread has a decoder of its own."""
    if not seconds:
        return None, None

    def work(_: int) -> float:
        decode = maker()
        decode()
        done, start = 0, perf_counter()
        while (now := perf_counter()) - start < seconds:
            decode()
            done += 1
        return done / (now - start)

    one = work(0)
    if cores < 2:
        return one, one
    with ThreadPoolExecutor(cores, "aioloader-doctor") as threads:
        return one, sum(threads.map(work, range(cores)))


def _gain_of_simd(picture: bytes) -> float | None:
    """How many times as fast the decoder is as without vector code; None where that cannot be tried."""
    fastest = []
    for variables in ({}, {"JSIMD_FORCENONE": "1"}):
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROBE],
                input=picture,
                capture_output=True,
                timeout=_CHILD_S,
                check=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables},
            )
            fastest.append(float(json.loads(done.stdout)))
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return fastest[1] / fastest[0] if fastest[0] > 0 else None
