"""Facts of the machine and this Python that matter to a loader; `aioloader.tools.doctor` interprets them.

A fact that the system does not report is None, and `Facts.unreadable` contains the reason: nothing here raises.

Formats of data sets that can be read here, by the packages that are installed. Pure.

JPEG decoders of this installation: their versions, vector instructions and measured speed.
"""

from __future__ import annotations

import importlib.metadata
import json
import multiprocessing
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aioloader.executors.shared_memory import default_memory_limit
from aioloader.formats.base import Requirement, formats
from aioloader.foundation.host_limits import (
    available_cores,
    cgroup_memory,
    cpu_quota,
    fullest_cgroup,
    machine_memory,
    open_files,
    process_limit,
)
from aioloader.foundation.native import NATIVE_VARIABLE, absence, native
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.mapped import cached_pages

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping


def requirements() -> tuple[Requirement, ...]:
    """Return the packages that formats need."""
    return (
        *(each for format in formats() for each in format.requirements),
        Requirement("URLs", "obstore", "remote"),
    )


def format_rows(packages: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report about formats: name and text.

    Args:
        packages: versions of packages by name, None for one that is not installed.
    """
    present = [
        f"{each.what} ({each.package} {packages[each.package]})"
        for each in requirements()
        if packages.get(each.package)
    ]
    yield "formats", ", ".join((*(each.name for each in formats() if each.extra is None), *present))
    absent: dict[str, list[str]] = {}
    for each in requirements():
        if not packages.get(each.package):
            absent.setdefault(each.extra, []).append(each.what)
    if absent:
        yield (
            "not readable",
            "; ".join(
                f"{', '.join(names)}: pip install 'aioloader[{extra}]'" for extra, names in absent.items()
            ),
        )


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

    from aioloader.transforms.decode import decode_image
    from aioloader.transforms.lazy_image import Scratch

    def maker() -> Callable[[], object]:
        scratch = Scratch()
        return lambda: decode_image(image, scratch=scratch)

    gain = _gain_of_simd(image) if seconds else None
    one, all_ = _rates(maker, cores, seconds)
    simd = None if gain is None else gain > _SIMD_GAIN
    detail = "" if gain is None else f"{gain:.1f} times as fast as without vector instructions"
    version = _codec_version(simplejpeg)
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
    return Codec("OpenCV", _codec_version(cv2), simd=bool(used), detail=detail, one_core=one, all_cores=all_)


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


def _codec_version(module: Any) -> str | None:
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


T = TypeVar("T")

_PACKAGES = (
    *(
        "numpy",
        "opencv-python-headless",
        "simplejpeg",
        "turbojpeg",
        "anyio",
        "aiofiles",
        "cloudpickle",
    ),
    *("uvloop", "trio", "torch", "ray", "albumentations"),
)
_OPENCV = (
    *("opencv-python", "opencv-python-headless"),
    *("opencv-contrib-python", "opencv-contrib-python-headless"),
)
_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"),
    *("JSIMD_FORCENONE", "OPENCV_CPU_DISABLE", "OPENCV_IO_MAX_IMAGE_PIXELS", "AIOLOADER_TURBOJPEG"),
    NATIVE_VARIABLE,
    *("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONMALLOC"),
)


@dataclass(frozen=True, slots=True)
class Cores:
    """Processor cores.

    Attributes:
        machine: number of cores of the machine.
        affinity: number of cores that this process may run on.
        quota: CPU quota of its control group, in cores; None: no limit is known.
        usable: default number of workers of a loader.
        model: name of the processor.
        simd: its vector instructions, of those that decoders use; None if unknown.
    """

    machine: int | None = None
    affinity: int | None = None
    quota: float | None = None
    usable: int = 1
    model: str | None = None
    simd: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory, in bytes.

    Attributes:
        total, available: memory of the machine, and its part that is available without swapping.
        limit, used: the lowest limit of its control groups and the use of that group, without memory that can be
            reclaimed; None: no limit is known.
        fullest_limit, fullest_used: the same of the group that has the least left, which may be one around it.
        batches: default `memory_limit` of a loader.
    """

    total: int | None = None
    available: int | None = None
    limit: int | None = None
    used: int | None = None
    fullest_limit: int | None = None
    fullest_used: int | None = None
    batches: int | None = None


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Shared memory of processes.

    Attributes:
        memfd: whether the system has anonymous memory files; they are used for batches, and the others are unused.
        size, free: size and free bytes of /dev/shm.
        temporary, temporary_free: the folder that is used without memfd, and its free bytes.
    """

    memfd: bool = False
    size: int | None = None
    free: int | None = None
    temporary: str | None = None
    temporary_free: int | None = None


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of this process (ulimit).

    Attributes:
        descriptors, descriptors_most: soft and hard limit of open files.
        descriptors_open: number of open files.
        descriptors_needed: approximate number that a loader with a worker on each usable core needs.
        file_nbytes, address_nbytes: limits of the size of a file and of the address space; None: none is known.
    """

    descriptors: int | None = None
    descriptors_most: int | None = None
    descriptors_open: int | None = None
    descriptors_needed: int = 0
    file_nbytes: int | None = None
    address_nbytes: int | None = None


@dataclass(frozen=True, slots=True)
class Software:
    """Programs and libraries.

    Attributes:
        system, python: names and versions.
        start_method: start method of Python's own multiprocessing; this package's workers do not use it.
        packages: versions by name, None for one that is not installed. Neither torch nor Ray is imported for this.
        opencv_packages: all packages that contain a module `cv2`.
        missed: requirements of this package that installed versions do not meet.
        native_reads: whether one system call reads many records.
        residency: whether the system reports which pages of a file are in memory.
        variables: environment variables that matter here and are set.
        native_absence: why the compiled part is not used; empty if it is.
        native_simd: vector instructions that it uses.
    """

    system: str = ""
    python: str = ""
    start_method: str | None = None
    packages: dict[str, str | None] = field(default_factory=dict)
    opencv_packages: tuple[str, ...] = ()
    missed: tuple[str, ...] = ()
    native_reads: bool = False
    residency: bool = False
    variables: dict[str, str] = field(default_factory=dict)
    native_absence: str = ""
    native_simd: str | None = None


@dataclass(frozen=True, slots=True)
class Facts:
    """Facts of this machine and its software.

    Attributes:
        cores, memory, shared, limits, software: see these classes.
        codecs: JPEG decoders.
        unreadable: names of facts that could not be determined, and why.
    """

    cores: Cores = Cores()
    memory: Memory = Memory()
    shared: SharedMemory = SharedMemory()
    limits: Limits = Limits()
    software: Software = Software()
    codecs: tuple[Codec, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)


def gather_facts(seconds: float = 1.0) -> Facts:
    """Determine all facts.

    Args:
        seconds: approximate duration of the decoding benchmark; 0: none.
    """
    unreadable: dict[str, str] = {}

    def attempt(name: str, find: Callable[[], T], otherwise: T) -> T:
        try:
            return find()
        except Exception as error:
            unreadable[name] = f"{type(error).__name__}: {error}"
            return otherwise

    cores = attempt("cores", _cores, Cores())
    return Facts(
        cores=cores,
        memory=attempt("memory", _memory, Memory()),
        shared=attempt("shared memory", _shared, SharedMemory()),
        limits=attempt("limits", lambda: _limits(cores.usable), Limits()),
        software=attempt("software", _software, Software()),
        codecs=attempt("codecs", lambda: examine_codecs(cores.usable, seconds), ()),
        unreadable=unreadable,
    )


def descriptors_needed(workers: int) -> int:
    """Estimate the open files of a loader with this number of worker processes, and a few to spare."""
    # Four for each worker; record files that are kept open (`storage.local`); those of the loop, memory and caller.
    return 4 * workers + 64 + 32


# -- the machine -------------------------------------------------------------------------------------------------------


def _cores() -> Cores:
    try:
        text = Path("/proc/cpuinfo").read_text()
    except OSError:
        text = ""
    model = re.search(r"^model name\s*:\s*(.+)$", text, re.MULTILINE)
    flags = re.search(r"^(?:flags|Features)\s*:\s*(.+)$", text, re.MULTILINE)
    present = set(flags.group(1).split()) if flags else None
    wanted = ("sse2", "avx2", "avx512bw", "neon", "asimd")
    return Cores(
        machine=os.cpu_count(),
        affinity=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        quota=cpu_quota(),
        usable=available_cores(),
        model=(model.group(1).strip() if model else None)
        or platform.processor()
        or platform.machine()
        or None,
        simd=None if present is None else tuple(name for name in wanted if name in present),
    )


def _memory() -> Memory:
    total, available = machine_memory()
    return Memory(total, available, *cgroup_memory(), *fullest_cgroup(), default_memory_limit())


def _shared() -> SharedMemory:
    size = free = None
    with suppress(OSError):
        size, _, free = shutil.disk_usage("/dev/shm")
    folder = tempfile.gettempdir()
    return SharedMemory(_has_memfd(), size, free, folder, shutil.disk_usage(folder).free)


def _has_memfd() -> bool:
    try:
        os.close(os.memfd_create("aioloader-doctor"))
    except (AttributeError, OSError):  # another system, or an old or a restricted one
        return False
    return True


def _limits(workers: int) -> Limits:
    files = open_files()
    return Limits(
        descriptors=files.soft,
        descriptors_most=files.hard,
        descriptors_open=files.used,
        descriptors_needed=descriptors_needed(workers),
        file_nbytes=process_limit("FSIZE")[0],
        address_nbytes=process_limit("AS")[0],
    )


# -- software ----------------------------------------------------------------------------------------------------------


def _software() -> Software:
    owners = importlib.metadata.packages_distributions().get("cv2", [])
    # Not all installers write down which modules a package contains.
    known = [name for name in _OPENCV if _version(name) is not None]
    opencv = tuple(sorted({name.lower().replace("_", "-") for name in (*owners, *known)}))
    packages: dict[str, str | None] = {name: _version(name) for name in (*_PACKAGES, *_of_formats(), *opencv)}
    try:
        requirements = importlib.metadata.requires("aioloader") or []
    except importlib.metadata.PackageNotFoundError:
        requirements = []
    with open(os.__file__, "rb") as file:
        residency = cached_pages(file.fileno()) is not None
    kernel_aio = KernelAioReader()
    reads = kernel_aio.available
    kernel_aio.close()
    return Software(
        system=f"{platform.system()} {platform.release()} {platform.machine()}",
        python=f"{platform.python_implementation()} {platform.python_version()}",
        start_method=(
            multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        ),
        packages=packages,
        opencv_packages=opencv,
        missed=requirements_missed(requirements, _version),
        native_reads=reads,
        residency=residency,
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
        native_absence=absence,
        native_simd=None if native is None else native.resize_levels()[0],
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements_missed(requirements: list[str], version: Callable[[str], str | None]) -> tuple[str, ...]:
    """Find the plain requirements ("name>=1.2", no extras) that installed versions do not meet.

    Args:
        requirements: requirements from a package's metadata.
        version: returns the installed version of a package, or None.
    """
    missed = []
    for text in requirements:
        found = re.fullmatch(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)", text.strip())
        if found is None:
            continue
        name, least = found.groups()
        installed = version(name)
        if installed is None:
            # Another wheel of OpenCV has the same module; importing it shows whether there is one.
            if not name.startswith("opencv"):
                missed.append(f"{text.strip()} is not installed")
        elif _order(installed) < _order(least):
            missed.append(f"{text.strip()} is installed as {installed}")
    return tuple(missed)


def _order(version: str) -> tuple[int, ...]:
    numbers = re.match(r"[0-9]+(?:\.[0-9]+)*", version)
    parts = [int(part) for part in numbers.group().split(".")] if numbers else [0]
    while parts and not parts[-1]:
        parts.pop()
    return tuple(parts)


def _of_formats() -> tuple[str, ...]:
    return tuple(each.package for each in requirements())
