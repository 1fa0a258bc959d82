"""What a thread has taken of the CPU so far."""

from __future__ import annotations

import time

try:
    from resource import RUSAGE_THREAD, getrusage
except ImportError:  # not Linux: there is no telling how often it waited

    def usage() -> tuple[float, int]:
        """CPU seconds of this thread, and 0."""
        return time.thread_time(), 0

else:

    def usage() -> tuple[float, int]:
        """CPU seconds of this thread, and how often it has stopped to wait: for a file, a lock, or a sleep."""
        used = getrusage(RUSAGE_THREAD)
        return used.ru_utime + used.ru_stime, used.ru_nvcsw


__all__ = ("usage",)
