"""Limits of this host for this process: cores, memory and open files.

On Linux the limits of control groups count too, of both versions: the group of this process may be nested in others,
and the strictest one of all holds. A value that the system does not report is None.
"""

from __future__ import annotations

import math
import os
from contextlib import suppress
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

_PROC = Path("/proc")
_CGROUPS = Path("/sys/fs/cgroup")
# Version 1 has no word for "no limit": it writes a number near 2**63.
_NO_LIMIT = 1 << 60


class OpenFiles(NamedTuple):
    """Limits of open files (``ulimit -n``).

    Attributes:
        soft: most descriptors now; None: no limit, or not known.
        hard: most descriptors to which a process may raise `soft`; None as above.
        used: descriptors in use; None: not known.
    """

    soft: int | None
    hard: int | None
    used: int | None


# -- cores -------------------------------------------------------------------------------------------------------------


def available_cores() -> int:
    """Return the cores that this process may use by its affinity and by CPU quotas (rounded up); at least 1."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = cpu_quota()
    return max(1, cores if quota is None else min(cores, math.ceil(quota)))


def cores_of_rank() -> int:
    """Return this process's part of the cores that it may use: torchrun says how many ranks of a host share them."""
    ranks = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, available_cores() // max(1, int(ranks) if ranks.isdecimal() else 1))


def cpu_quota() -> float | None:
    """Return the number of processors that control groups allow this process; None: no limit."""
    return min((quota for _, quota in _quotas()), default=None)


def _quotas() -> Iterator[tuple[Path, float]]:
    """Yield the control groups of this process that limit its processors, and the number that each allows."""
    for folder in _cgroup_folders("cpu"):
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = ("".join(_words(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            yield folder, int(quota) / int(period)


def idle_cpu_s() -> dict[str, float]:
    """Return the CPU seconds that were left for this process until now, by each limit.

    The difference of two calls is what was left between them, and the smallest one counts. The limits are the cores of
    the affinity, which all programs of the machine share, and each quota of a control group, which the processes of the
    group share. A limit of which the system does not report the use is left out.
    """
    found = {}
    if hasattr(os, "sched_getaffinity"):
        names = {f"cpu{number}" for number in os.sched_getaffinity(0)}
        rows = [row.split() for row in _lines(_PROC / "stat") if row.startswith("cpu")]
        ticks = [[int(word) for word in row[1:6]] for row in rows if row[0] in names]
        if sum(map(sum, ticks)):  # a sandbox may count nothing
            found["cores"] = sum(sum(row[3:5]) for row in ticks) / os.sysconf("SC_CLK_TCK")
    for folder, quota in _quotas():
        used_us = _table(folder / "cpu.stat").get("usage_usec")
        used_ns = _number(folder / "cpuacct.usage")
        if used_us is not None or used_ns is not None:
            used_s = used_us / 1e6 if used_us is not None else (used_ns or 0) / 1e9
            found[str(folder)] = quota * monotonic() - used_s
    return found


# -- memory ------------------------------------------------------------------------------------------------------------


def machine_memory() -> tuple[int | None, int | None]:
    """Return the memory of the machine and the part of it that is available without swapping, in bytes.

    Raises:
        OSError, ValueError: the system refuses to report it.
    """
    total, available = _meminfo("MemTotal"), _meminfo("MemAvailable")
    if total is None and hasattr(os, "sysconf"):
        total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return total, available


def _meminfo(name: str) -> int | None:
    kilobytes = _table(_PROC / "meminfo").get(f"{name}:")
    return None if kilobytes is None else kilobytes << 10


def cgroup_memory() -> tuple[int | None, int | None]:
    """Return the lowest memory limit of this process's control groups and the use of that group, in bytes.

    The page cache that the system can drop is not counted as used.
    """
    return min(_memory_groups(), key=lambda pair: pair[0], default=(None, None))


def fullest_cgroup() -> tuple[int | None, int | None]:
    """Return limit and use of the control group of this process that has the least memory left, in bytes.

    It may be another one than that of the lowest limit: a group around it, which other processes fill.
    """
    known = [(limit, used) for limit, used in _memory_groups() if used is not None]
    return min(known, key=lambda pair: pair[0] - pair[1], default=(None, None))


def usable_memory() -> int | None:
    """Return the memory that this process could use if it were alone: of the machine or of its control groups."""
    total = None
    with suppress(OSError, ValueError):
        total, _ = machine_memory()
    return _least(total, cgroup_memory()[0])


def available_memory() -> int | None:
    """Return the bytes that this process and its children may still take."""
    limit, used = fullest_cgroup()
    left = None if limit is None or used is None else max(0, limit - used)
    return _least(_meminfo("MemAvailable"), left)


def _memory_groups() -> list[tuple[int, int | None]]:
    """Return limit and use of every control group that limits memory, in bytes."""
    found: list[tuple[int, int | None]] = []
    for folder in _cgroup_folders("memory"):
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        if limit is None or limit >= _NO_LIMIT:
            continue
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        stat = _table(folder / "memory.stat")
        # The page cache counts as used, but the system drops it when memory is needed.
        cached = stat.get("total_inactive_file", stat.get("inactive_file", 0))
        found.append((limit, None if used is None else max(0, used - cached)))
    return found


def memory_of_processes(pids: list[int]) -> list[int]:
    """Return the bytes that each of some processes has for itself, without those that cannot be read. Blocks.

    Of pages that a fork shares with its parent it is a share.
    """
    found = []
    for pid in pids:
        kib = _table(_PROC / str(pid) / "smaps_rollup").get("Pss_Anon:")
        if kib is not None:
            found.append(kib << 10)
    return found


# -- limits of a process -----------------------------------------------------------------------------------------------


def open_files() -> OpenFiles:
    """Return the limits of open files and their use."""
    soft, hard = process_limit("NOFILE")
    try:
        used = len(os.listdir(_PROC / "self" / "fd")) - 1
    except OSError:
        used = None
    return OpenFiles(soft, hard, used)


def process_limit(name: str) -> tuple[int | None, int | None]:
    """Return a soft and a hard limit of this process (``ulimit``); None: no limit, or the system has no such limits.

    Args:
        name: of the limit, such as "NOFILE", "AS" or "FSIZE".
    """
    try:
        import resource
    except ImportError:  # Windows
        return None, None
    soft, hard = resource.getrlimit(getattr(resource, f"RLIMIT_{name}"))
    return (
        None if soft == resource.RLIM_INFINITY else soft,
        None if hard == resource.RLIM_INFINITY else hard,
    )


# -- control groups ----------------------------------------------------------------------------------------------------


def _cgroup_folders(controller: str) -> list[Path]:
    """Return the folders of this process's control group and of those around it, innermost first.

    Args:
        controller: "cpu" or "memory".
    """
    # Version 2 next to controllers of version 1 is mounted by itself.
    base, inner = _CGROUPS / "unified", "/"
    if not base.is_dir():
        base = _CGROUPS
    for line in _lines(_PROC / "self" / "cgroup"):
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        _, controllers, path = fields
        if controller in controllers.split(
            ","
        ):  # version 1: a mount for each controller, or for several together
            mounts = (_CGROUPS / controller, _CGROUPS / controllers)
            base, inner = next((mount for mount in mounts if mount.is_dir()), mounts[0]), path
            break
        if not controllers:
            inner = path
    parts = [part for part in inner.split("/") if part not in ("", ".", "..")]
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(errors="replace").splitlines()
    except OSError:
        return []


def _words(path: Path) -> list[str]:
    return " ".join(_lines(path)).split()


def _table(path: Path) -> dict[str, int]:
    """Return the numbers of a file of lines such as "name 12" or "name: 12 kB", by name."""
    rows = [line.split() for line in _lines(path)]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _number(*paths: Path) -> int | None:
    return next((int(words[0]) for words in map(_words, paths) if words and words[0].isdecimal()), None)


def _least(*values: int | None) -> int | None:
    return min((value for value in values if value is not None), default=None)
