"""Forks of the process that made an object: they have the object too, but not its threads, children and locks."""

from __future__ import annotations

import ctypes
import os
import threading

from aioloader.errors import ForkRefusedError, ForkWarning
from aioloader.foundation.stacks import warn_caller

_LOOKS = 50
# Trio renames a thread while a function runs in it.
_HARMLESS = ("aioloader-", "Trio thread ")


class ForkGuard:
    """Record of the process that made an object."""

    __slots__ = ("_pid",)

    def __init__(self) -> None:
        self._pid = os.getpid()

    @property
    def forked(self) -> bool:
        """Return True in another process than the one that made this: in a fork of it."""
        return os.getpid() != self._pid


def threads_beside() -> list[str]:
    """Return the names of the threads that may hold a lock when another one forks this process.

    They are those of Python, without the main thread, this one, those of this package that run no code of a dataset,
    and those that trio keeps for ten seconds after a function has run in them.
    """
    own = {threading.get_ident(), threading.main_thread().ident}
    names = [thread.name for thread in threading.enumerate() if thread.ident not in own]
    return [name for name in names if not name.startswith(_HARMLESS) or name.startswith("aioloader-worker")]


def has_cuda_context() -> bool:
    """Return True if this process has a CUDA context, whichever library has made it."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1", os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not loaded, or not Linux
        return False
    count, flags, active = ctypes.c_int(), ctypes.c_uint(), ctypes.c_int()
    if cuda.cuDeviceGetCount(ctypes.byref(count)):  # CUDA was not begun
        return False
    for device in range(count.value):
        cuda.cuDevicePrimaryCtxGetState(device, ctypes.byref(flags), ctypes.byref(active))
        if active.value:
            return True
    return False


def is_alone() -> bool:
    """Return True if no thread runs in this process, of a library such as CUDA either; False where that is not known.

    Those that `threads_beside` leaves out may.
    """
    for _ in range(_LOOKS):
        try:
            threads = len(os.listdir("/proc/self/task"))
        except OSError:
            return False
        if threads == threading.active_count():
            return not threads_beside()
        os.sched_yield()  # one that has ended for Python may not have for the system
    return False


def check_fork() -> None:
    """Check that forks of this process can be workers.

    Raises:
        ForkRefusedError: the system has no forks, or this process has a CUDA context.

    Warns:
        ForkWarning: other threads run.
    """
    if not hasattr(os, "fork"):
        raise ForkRefusedError("this system has no forks")
    if has_cuda_context():
        raise ForkRefusedError(
            "it uses CUDA, which does not work in a fork: take the first batch before that"
        )
    threads = threads_beside()
    if threads:
        warn_caller(ForkWarning(threads), ForkWarning)
