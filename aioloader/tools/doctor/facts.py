"""What the machine and this Python offer a loader. Facts only: what they mean is in `doctor_advice`.

Whatever the system does not tell is None, and `Facts.unreadable` says why: nothing here raises.
"""

from __future__ import annotations

import importlib.metadata
import multiprocessing
import os
import platform
import re
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from aioloader.executors.shared_memory import default_memory_limit
from aioloader.foundation.host_limits import (
    available_cores,
    cgroup_memory,
    cpu_quota,
    machine_memory,
    open_files,
    process_limit,
)
from aioloader.storage.local.kernel_aio import KernelAioReader
from aioloader.storage.local.page_cache import cached_pages
from aioloader.tools.doctor.codecs import Codec, examine_codecs

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "Cores",
    "Facts",
    "Limits",
    "Memory",
    "SharedMemory",
    "Software",
    "descriptors_needed",
    "gather_facts",
    "requirements_missed",
)

T = TypeVar("T")

_PACKAGES = (
    *("numpy", "opencv-python-headless", "simplejpeg", "turbojpeg", "anyio", "aiofiles", "cloudpickle"),
    *("uvloop", "trio", "torch", "ray", "albumentations"),
)
_VARIABLES = (
    *("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM"),
    *("JSIMD_FORCENONE", "OPENCV_CPU_DISABLE", "OPENCV_IO_MAX_IMAGE_PIXELS", "AIOLOADER_TURBOJPEG"),
    *("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONMALLOC"),
)


@dataclass(frozen=True, slots=True)
class Cores:
    """Processors.

    Attributes:
        machine: of the machine.
        affinity: that this process may run on.
        quota: processors' time that its control group gets, in processors; None: no limit is told.
        usable: how many workers a loader has if it is not told otherwise.
        model: name of the processor.
        simd: vector instructions that it has, of those that decoders use; None where it does not tell.
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
        total, available: of the machine; what can be had without swapping.
        limit, used: of the control group, without what can be dropped; None: no limit is told.
        batches: `memory_limit` of a loader that is not told otherwise.
    """

    total: int | None = None
    available: int | None = None
    limit: int | None = None
    used: int | None = None
    batches: int | None = None


@dataclass(frozen=True, slots=True)
class SharedMemory:
    """Memory that processes share.

    Attributes:
        memfd: the system has files without names, in memory, where batches lie; then the others do not matter.
        size, free: of /dev/shm, in bytes.
        temporary, temporary_free: the folder that serves without memfd, and its free bytes.
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
        descriptors, descriptors_most: open files, now and as far as it may be raised.
        descriptors_open: of them in use.
        descriptors_needed: about as many as a loader with a worker on each usable core needs.
        file_nbytes, address_nbytes: size of a file, and of the address space; None: no limit, or none is told.
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
        start_method: how Python's own multiprocessing starts processes; this package's workers do not use it.
        packages: versions by name, None where one is not installed. Nothing of torch or Ray is imported for it.
        opencv_packages: all that bring a module `cv2`.
        missed: requirements of this package that installed versions do not meet.
        native_reads: many records are read by one call of the system.
        residency: the system tells what of a file is in memory.
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
    """All that was found.

    Attributes:
        cores, memory, shared, limits, software: see there.
        codecs: JPEG decoders.
        unreadable: what could not be found out, and why.
    """

    cores: Cores = Cores()
    memory: Memory = Memory()
    shared: SharedMemory = SharedMemory()
    limits: Limits = Limits()
    software: Software = Software()
    codecs: tuple[Codec, ...] = ()
    unreadable: dict[str, str] = field(default_factory=dict)


def gather_facts(seconds: float = 1.0) -> Facts:
    """Find out all of it.

    Args:
        seconds: about how long to decode; 0: do not.
    """
    unreadable: dict[str, str] = {}

    def told(name: str, find: Callable[[], T], otherwise: T) -> T:
        try:
            return find()
        except Exception as error:
            unreadable[name] = f"{type(error).__name__}: {error}"
            return otherwise

    cores = told("cores", _cores, Cores())
    return Facts(
        cores,
        told("memory", _memory, Memory()),
        told("shared memory", _shared, SharedMemory()),
        told("limits", lambda: _limits(cores.usable), Limits()),
        told("software", _software, Software()),
        told("codecs", lambda: examine_codecs(cores.usable, seconds), ()),
        unreadable,
    )


def descriptors_needed(workers: int) -> int:
    """About as many descriptors as a loader with so many worker processes has open, and a few to spare."""
    # Four for each worker; record files that stay open (`storage.local`); the loop's, the memory's, the caller's.
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
        os.cpu_count(),
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        cpu_quota(),
        available_cores(),
        (model.group(1).strip() if model else None) or platform.processor() or platform.machine() or None,
        None if present is None else tuple(name for name in wanted if name in present),
    )


def _memory() -> Memory:
    total, available = machine_memory()
    limit, used = cgroup_memory()
    return Memory(total, available, limit, used, default_memory_limit())


def _shared() -> SharedMemory:
    size = free = None
    try:
        usage = shutil.disk_usage("/dev/shm")
        size, free = usage.total, usage.free
    except OSError:
        pass
    folder = tempfile.gettempdir()
    return SharedMemory(_has_memfd(), size, free, folder, shutil.disk_usage(folder).free)


def _has_memfd() -> bool:
    if not hasattr(os, "memfd_create"):
        return False
    try:
        os.close(os.memfd_create("aioloader-doctor"))
    except OSError:
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
    names = importlib.metadata.packages_distributions().get("cv2", [])
    opencv = tuple(sorted(set(names)))
    packages: dict[str, str | None] = {name: _version(name) for name in (*_PACKAGES, *opencv)}
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
        f"{platform.system()} {platform.release()} {platform.machine()}",
        f"{platform.python_implementation()} {platform.python_version()}",
        multiprocessing.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0],
        packages,
        opencv,
        requirements_missed(requirements, _version),
        native,
        residency,
        {name: os.environ[name] for name in _VARIABLES if name in os.environ},
    )


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def requirements_missed(requirements: list[str], version: Callable[[str], str | None]) -> tuple[str, ...]:
    """Which plain requirements ("name>=1.2", no extras) installed versions do not meet.

    Args:
        requirements: as a package's metadata has them.
        version: gives the installed version of a name, or None.
    """
    missed = []
    for text in requirements:
        found = re.fullmatch(r"([A-Za-z0-9._-]+)\s*>=\s*([0-9.]+)", text.strip())
        if found is None:
            continue
        name, least = found.groups()
        installed = version(name)
        if installed is None:
            # Another wheel of OpenCV brings the same module; whether there is one, its import tells.
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
