"""Limits of this host for this process: cores, and what control groups of Linux (both versions) allow."""

from __future__ import annotations

import math
import os
from pathlib import Path

__all__ = ("available_cores", "cgroup_folders", "cgroup_memory", "cgroup_quota", "own_cgroups")

_CGROUPS = Path("/sys/fs/cgroup")
# Version 1 has no word for "no limit": it writes a number near 2**63.
_NO_LIMIT = 1 << 60


def cgroup_folders(own: str, controller: str, root: Path = _CGROUPS) -> list[Path]:
    """Folders whose limits hold for this process: of its own control group and of those around it, innermost first.

    Args:
        own: text of /proc/self/cgroup.
        controller: "cpu" or "memory".
        root: where control groups are mounted.
    """
    base, inner = root, "/"
    for line in own.splitlines():
        fields = line.split(":", 2)
        if len(fields) != 3:
            continue
        _, controllers, path = fields
        if controller in controllers.split(","):  # version 1: a mount for each controller
            base, inner = root / controller, path
            break
        if not controllers:
            inner = path
    parts = [part for part in inner.split("/") if part not in ("", ".", "..")]
    return [base.joinpath(*parts[:depth]) for depth in range(len(parts), -1, -1)]


def cgroup_quota(folders: list[Path]) -> float | None:
    """The least number of processors that any of some control groups allows; None: all."""
    found = []
    for folder in folders:
        quota, period = [*_words(folder / "cpu.max"), "", ""][:2]
        if not quota:
            quota, period = ("".join(_words(folder / f"cpu.cfs_{name}_us")) for name in ("quota", "period"))
        if quota.isdecimal() and period.isdecimal() and int(period):
            found.append(int(quota) / int(period))
    return min(found, default=None)


def cgroup_memory(folders: list[Path]) -> tuple[int | None, int | None]:
    """The least limit of memory of some control groups and what is used of it, in bytes; None: no limit."""
    found: list[tuple[int, int | None]] = []
    for folder in folders:
        limit = _number(folder / "memory.max", folder / "memory.limit_in_bytes")
        if limit is None or limit >= _NO_LIMIT:
            continue
        used = _number(folder / "memory.current", folder / "memory.usage_in_bytes")
        words = _words(folder / "memory.stat")
        # The page cache counts as used and gives way.
        for name in ("inactive_file", "total_inactive_file"):
            if used is not None and name in words:
                used = max(0, used - int(words[words.index(name) + 1]))
                break
        found.append((limit, used))
    return min(found, key=lambda pair: pair[0], default=(None, None))


def _words(path: Path) -> list[str]:
    try:
        return path.read_text().split()
    except OSError:
        return []


def _number(*paths: Path) -> int | None:
    return next((int(words[0]) for words in map(_words, paths) if words and words[0].isdecimal()), None)


def own_cgroups() -> str:
    """Text of /proc/self/cgroup: the control groups of this process; empty where it cannot be read."""
    try:
        return Path("/proc/self/cgroup").read_text()
    except OSError:
        return ""


def available_cores() -> int:
    """Cores that this process may use: its affinity, and the CPU quota of its control group; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)
