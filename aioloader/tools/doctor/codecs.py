"""JPEG decoders of this installation: their versions, vector instructions and measured speed."""

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

HEIGHT, WIDTH = 375, 500
"""Extents of the decoded image in pixels: typical of photographs in a training set."""

# A libjpeg-turbo with vector code takes a third of the time that it takes with vector code disabled.
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
    """Version and speed of a decoder.

    Attributes:
        name: "simplejpeg", "OpenCV" or "libjpeg-turbo 3".
        version: its version, or the library's path.
        error: why it cannot be used; then all other attributes are unset.
        simd: whether its vector code is in use; None if unknown.
        detail: details of its build.
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
    """Examine all installed decoders; the result for an unusable one contains the error.

    Args:
        cores: number of threads that decode at the same time.
        seconds: approximate total duration of decoding; 0: none.
    """
    try:
        image = _test_image()
    except Exception as error:
        # Neither library can be loaded.
        return Codec("simplejpeg", error=_message(error)), Codec("OpenCV", error=_message(error))
    decoders = {"simplejpeg": _simplejpeg, "OpenCV": _opencv, "libjpeg-turbo 3": _turbojpeg}
    each = seconds / (2 * len(decoders)) if cores > 1 else seconds / len(decoders)
    found = []
    for name, examine in decoders.items():
        try:
            codec = examine(image, cores, each)
        except Exception as error:
            codec = Codec(name, error=_message(error))
        if codec is not None:
            found.append(codec)
    return tuple(found)


def _test_image() -> bytes:
    """Return a JPEG that decodes like a photograph, using whichever libraries work."""
    try:
        from aioloader.tools.draw import draw_image

        image = draw_image(0, height=HEIGHT, width=WIDTH)
    except Exception:
        noise = np.random.default_rng(0).normal(0, 8, (HEIGHT, WIDTH, 3))
        slope = np.linspace(40, 200, WIDTH)[:, None] + np.linspace(0, 40, HEIGHT)[:, None, None]
        image = np.clip(slope + noise, 0, 255).astype(np.uint8)
    try:
        import simplejpeg

        jpeg: bytes = simplejpeg.encode_jpeg(image, quality=90, colorsubsampling="420")
        return jpeg
    except Exception:
        import cv2

        encoded: Any = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 90])[1]
        return bytes(encoded.tobytes())


def _message(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"


def _simplejpeg(image: bytes, cores: int, seconds: float) -> Codec:
    import simplejpeg

    from aioloader.transforms import decode_image
    from aioloader.transforms.lazy_image import Scratch

    def maker() -> Callable[[], object]:
        scratch = Scratch()
        return lambda: decode_image(image, scratch=scratch)

    gain = _gain_of_simd(image) if seconds else None
    one, all_ = _rates(maker, cores, seconds)
    simd = None if gain is None else gain > _SIMD_GAIN
    detail = "" if gain is None else f"{gain:.1f} times as fast as without vector instructions"
    version = _version(simplejpeg)
    return Codec("simplejpeg", version, simd=simd, detail=detail, one_core=one, all_cores=all_)


def _opencv(image: bytes, cores: int, seconds: float) -> Codec:
    import cv2

    data = np.frombuffer(image, np.uint8)
    text: str = cv2.getBuildInformation()
    library = re.search(r"^\s*JPEG:\s*(.+)$", text, re.MULTILINE)
    features: str = cv2.getCPUFeaturesLine()
    # A star marks code that is used; a question mark, code for instructions that the processor lacks.
    used = [word.lstrip("*") for word in features.split() if not word.endswith("?")]
    detail = ", ".join(filter(None, (library.group(1).strip() if library else "", " ".join(used))))
    one, all_ = _rates(lambda: lambda: cv2.imdecode(data, cv2.IMREAD_COLOR), cores, seconds)
    return Codec("OpenCV", _version(cv2), simd=bool(used), detail=detail, one_core=one, all_cores=all_)


def _turbojpeg(image: bytes, cores: int, seconds: float) -> Codec | None:
    from aioloader.jpeg.cut import RectangleDecoder
    from aioloader.jpeg.turbojpeg import library_path

    path = library_path()
    if path is None:
        return None

    def maker() -> Callable[[], object]:
        decoder, out = RectangleDecoder(), np.empty((HEIGHT, WIDTH, 3), np.uint8)
        return lambda: decoder.decode(image, 0, 0, out)

    one, all_ = _rates(maker, cores, seconds)
    return Codec("libjpeg-turbo 3", path, detail="for crops", one_core=one, all_cores=all_)


def _version(module: Any) -> str | None:
    import importlib.metadata

    version = getattr(module, "__version__", None)
    return str(version) if version is not None else importlib.metadata.version(module.__name__)


def _rates(
    maker: Callable[[], Callable[[], object]], cores: int, seconds: float
) -> tuple[float | None, float | None]:
    """Measure the images per second of one thread, and of one thread per core, each with a separate decoder."""
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


def _gain_of_simd(image: bytes) -> float | None:
    """Measure the speed with vector code divided by the speed without it; None if that fails."""
    fastest = []
    for variables in ({}, {"JSIMD_FORCENONE": "1"}):
        try:
            done = subprocess.run(
                [sys.executable, "-c", _PROBE],
                input=image,
                capture_output=True,
                timeout=_CHILD_S,
                check=True,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), **variables},
            )
            fastest.append(float(json.loads(done.stdout)))
        except (OSError, ValueError, subprocess.SubprocessError):
            return None
    return fastest[1] / fastest[0] if fastest[0] > 0 else None
