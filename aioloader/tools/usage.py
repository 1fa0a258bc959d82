"""CPU time and memory of a process and its descendants, read from /proc on Linux.

On other systems every function returns None or an empty result.
"""

from __future__ import annotations

import glob
import os
from pathlib import Path

_PROC = Path("/proc")
_TICKS_PER_S = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100
# Fields of /proc/PID/stat after the name, which may contain spaces: user and system time, of it and of ended children.
_TIMES = slice(11, 15)


def process_tree(pid: int) -> list[int]:
    """Return a process and its living descendants, parents before children; empty if it cannot be found."""
    found = [pid] if _text(f"{pid}/stat") else []
    for parent in found:  # the list grows during the loop
        for children in glob.glob(f"{parent}/task/*/children", root_dir=_PROC):
            found += map(int, _text(children).split())
    return found


def cpu_seconds(pid: int) -> float | None:
    """Return the CPU seconds of a process, its living descendants, and those that have ended and been reaped."""
    stats = filter(None, (_text(f"{member}/stat") for member in process_tree(pid)))
    ticks = [sum(map(int, stat.rpartition(")")[2].split()[_TIMES])) for stat in stats]
    return sum(ticks) / _TICKS_PER_S if ticks else None


def memory_nbytes(pid: int) -> int | None:
    """Return the memory of a process and its descendants: the proportional set size (a page shared by n counts 1/n).

    Reading it walks page tables, so do not call it while something is being timed.
    """
    lines = [line for member in process_tree(pid) for line in _text(f"{member}/smaps_rollup").splitlines()]
    kib = [int(line.split()[1]) for line in lines if line.startswith("Pss:")]
    return 1024 * sum(kib) if kib else None


def _text(name: str) -> str:
    """Return the text of a file below /proc; "" if it cannot be read, as after the end of its process."""
    try:
        return (_PROC / name).read_text()
    except OSError:
        return ""
