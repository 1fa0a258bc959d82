"""Sizes in the output of commands."""

from __future__ import annotations


def size_text(nbytes: float) -> str:
    """Return a number of bytes with its unit, such as "12 bytes", "3.4 kB" or "1,200.0 TB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes:,} bytes"
