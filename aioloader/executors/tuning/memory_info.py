"""How much memory is free, and how much some processes take."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("available_memory", "own_memory")

_UNKNOWN = 4 << 30
_GROUP = "/sys/fs/cgroup/memory"


def available_memory() -> int:
    """Bytes that this process and its children may still take, its control group's limit included. Blocks."""
    found = [_meminfo(), _of_group()]
    return min((each for each in found if each is not None), default=_UNKNOWN)


def _meminfo() -> int | None:
    try:
        with open("/proc/meminfo") as file:
            for line in file:
                if line.startswith("MemAvailable:"):
                    return int(line.split()[1]) << 10
    except (OSError, ValueError, IndexError):
        pass
    return None


def _of_group() -> int | None:
    try:
        with open(f"{_GROUP}.max") as file:
            limit = int(file.read())  # "max" is none
        with open(f"{_GROUP}.current") as file:
            used = int(file.read())
        with open(f"{_GROUP}.stat") as file:
            words = dict(line.split() for line in file)
    except (OSError, ValueError):
        return None
    # The page cache counts as used and gives way.
    return max(0, limit - used + int(words.get("inactive_file", 0)))


def own_memory(pids: Sequence[int]) -> list[int]:
    """Bytes that each of some processes has for itself; those that cannot be looked at are left out. Blocks."""
    found = []
    for pid in pids:
        try:
            with open(f"/proc/{pid}/statm") as file:
                _, resident, shared = (int(word) for word in file.read().split()[:3])
        except (OSError, ValueError):
            continue
        found.append((resident - shared) * os.sysconf("SC_PAGE_SIZE"))
    return found
