"""Program that prints digests of batches after it hid what systems other than Linux lack.

    python hidden_calls.py PLATFORM PATH...

PLATFORM is a value of `sys.platform`. Other packages are imported before, because they choose by themselves.
"""

from __future__ import annotations

import asyncio
import hashlib
import mmap
import os
import select
import signal
import socket
import sys
import types
from typing import Any

import anyio._backends._asyncio
import cloudpickle
import cv2
import numpy
import simplejpeg

__all__ = ["anyio", "cloudpickle", "cv2", "digests", "numpy", "simplejpeg"]

ELSEWHERE: dict[Any, str] = {
    os: "memfd_create pidfd_open posix_fadvise posix_fallocate preadv pwritev sched_getaffinity copy_file_range "
    "splice O_DIRECT O_PATH RWF_NOWAIT POSIX_FADV_WILLNEED",
    mmap: "MADV_REMOVE MAP_NORESERVE MAP_POPULATE",
    select: "epoll",
}
WINDOWS: dict[Any, str] = {
    os: "fork forkpty register_at_fork posix_spawn pread pwrite statvfs fstatvfs sysconf getuid geteuid getgid fchmod "
    "fchown mkfifo waitid wait WNOHANG getloadavg getpgid setsid killpg lockf nice sendfile O_CLOEXEC O_NONBLOCK "
    "O_NOCTTY O_NOFOLLOW O_DIRECTORY",
    mmap: "PROT_READ PROT_WRITE PROT_EXEC MAP_SHARED MAP_PRIVATE MAP_ANON MAP_ANONYMOUS MADV_DONTNEED MADV_WILLNEED",
    select: "poll",
    signal: "SIGCHLD SIGKILL SIGSTOP SIGUSR1 SIGUSR2 SIGALRM SIGHUP SIGPIPE pthread_sigmask pthread_kill sigwait "
    "setitimer siginterrupt",
    socket: "recv_fds send_fds SCM_RIGHTS",
}


def hide(platform: str) -> None:
    """Remove the names that a platform does not have, from this process."""
    for missing in (ELSEWHERE, WINDOWS) if platform == "win32" else (ELSEWHERE,):
        for module, names in missing.items():
            for name in names.split():
                if hasattr(module, name):
                    delattr(module, name)
    if platform == "win32":
        for name in ("fcntl", "resource", "pwd", "grp", "termios"):
            sys.modules[name] = None  # type: ignore[assignment]  # importing it fails
        msvcrt: Any = types.ModuleType("msvcrt")
        msvcrt.LK_NBLCK, msvcrt.locking = 2, lambda fd, mode, nbytes: None
        sys.modules.setdefault("msvcrt", msvcrt)
        mmap.mmap = _WindowsMap  # type: ignore[misc]  # its signature is another one
    sys.platform = platform


class _WindowsMap(mmap.mmap):
    """Map with the arguments of Windows, where `prot` and `flags` do not exist."""

    def __new__(
        cls,
        fileno: int,
        length: int,
        tagname: str | None = None,
        access: int = mmap.ACCESS_DEFAULT,
        offset: int = 0,
    ) -> _WindowsMap:
        return super().__new__(cls, fileno, length, access=access, offset=offset)


def digests(path: str) -> list[str]:
    """Return digests of the training batches of a path: by threads, inline, and by threads for an async loop."""
    import aioloader

    options: dict[str, Any] = {"size": 32, "batch_size": 8, "seed": 3}
    threads: dict[str, Any] = {**options, "executor": "thread", "num_workers": 2}
    found = []
    for each in (threads, {**options, "executor": "inline"}):
        with aioloader.images(path, blocking=True, **each) as loader:
            found.append(hashlib.sha256(b"".join(part.tobytes() for batch in loader for part in batch)))

    async def main() -> None:
        async with aioloader.images(path, **threads) as loader:
            found.append(
                hashlib.sha256(b"".join([part.tobytes() async for batch in loader for part in batch]))
            )

    asyncio.run(main())
    return [each.hexdigest() for each in found]


if __name__ == "__main__":
    hide(sys.argv[1])
    print(*(digest for path in sys.argv[2:] for digest in digests(path)))
