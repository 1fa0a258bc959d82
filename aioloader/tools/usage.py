"""CPU time and memory of a process and its descendants, read from /proc on Linux.

On other systems every function returns None or an empty result.
"""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# Fields of /proc/PID/stat after the name, which may contain spaces: user and system time, of it and of ended children.
_TIMES = slice(11, 15)


def process_tree(pid: int) -> list[int]:
    """Return a process and its living descendants, parents before children; empty if it cannot be found."""
    found = [pid] if (_PROC / str(pid) / "stat").exists() else []
    for parent in found:  # the list grows during the loop
        for thread in _numbers(_PROC / str(parent) / "task"):
            try:
                children = (_PROC / str(parent) / "task" / str(thread) / "children").read_text()
            except OSError:
                continue
            found += [int(child) for child in children.split()]
    return found


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process, its living descendants, and those that have ended and been reaped."""
    total = None
    for member in process_tree(pid):
        try:
            text = (_PROC / str(member) / "stat").read_text()
        except OSError:
            continue
        ticks = sum(map(int, text.rpartition(")")[2].split()[_TIMES]))
        total = (total or 0.0) + ticks / _TICKS_PER_S
    return total


def memory_nbytes(pid: int) -> int | None:
    """Return the memory of a process and its descendants: the proportional set size (a page shared by n counts 1/n).

    Reading it walks page tables, so do not call it while something is being timed.
    """
    total = None
    for member in process_tree(pid):
        try:
            text = (_PROC / str(member) / "smaps_rollup").read_text()
        except OSError:
            continue
        for line in text.splitlines():
            if line.startswith("Pss:"):
                total = (total or 0) + int(line.split()[1]) * 1024
                break
    return total


def _numbers(folder: Path) -> list[int]:
    try:
        return [int(name) for name in os.listdir(folder) if name.isdecimal()]
    except OSError:
        return []
