"""Facts of the machine and this Python that matter to a loader; `aioloader.tools.doctor.advice` interprets them.

A fact that the system does not report is None, and `Facts.unreadable` contains the reason: nothing here raises.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import re
import shutil
import tempfile
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aioloader.executors.shared_memory import default_memory_limit
from aioloader.foundation.host_limits import (
    available_cores,
    cgroup_memory,
    cpu_quota,
    fullest_cgroup,
    machine_memory,
    open_files,
    process_limit,
)
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.page_cache import cached_pages
from aioloader.tools.doctor.codecs import Codec, examine_codecs
from aioloader.tools.doctor.formats import requirements

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_PACKAGES = (
    *(
        "numpy",
        "opencv-python-headless",
        "simplejpeg",
        "turbojpeg",
        "numba",
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
    native = kernel_aio.available
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
        native_reads=native,
        residency=residency,
        variables={name: os.environ[name] for name in _VARIABLES if name in os.environ},
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
