"""Ray cluster on this machine, for tests."""

from __future__ import annotations

import logging
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

ROOT = Path(__file__).parents[2]
_END_S = 120.0
# Ray reads these when it is imported: no usage reports, and only this machine's address.
os.environ.update(
    RAY_USAGE_STATS_ENABLED="0", RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0", RAY_DISABLE_IMPORT_WARNING="1"
)


class LocalCluster:
    """Cluster of two nodes with a CPU each. This process is a driver on the first.

    Attributes:
        ray: the module.
        address: for other drivers.
    """

    def __init__(self, ray: Any) -> None:
        from ray.cluster_utils import Cluster

        self.ray = ray
        self._options = {"num_cpus": 1, "node_ip_address": "127.0.0.1", "object_store_memory": 128 << 20}
        head = {**self._options, "include_dashboard": False}
        self._processes: dict[int, psutil.Process] = {}
        self._cluster = Cluster(initialize_head=True, head_node_args=head)
        self.address: str = self._cluster.address
        self._second = self._cluster.add_node(**self._options)
        ray.init(address=self._cluster.address, log_to_driver=False, logging_level=logging.ERROR)
        self._cluster.wait_for_nodes()
        self.note_processes()

    def note_processes(self) -> None:
        """Remember the running processes: those of a dead node no longer have a parent that lists them."""
        for process in psutil.Process().children(recursive=True):
            self._processes[process.pid] = process

    def kill_second_node(self) -> None:
        """Kill all processes of the second node at once."""
        self.note_processes()
        self._cluster.remove_node(self._second, allow_graceful=False)
        self._second = None

    def make_whole(self) -> None:
        """Start a second node again after it was killed."""
        if self._second is None:
            self._second = self._cluster.add_node(**self._options)
            self._cluster.wait_for_nodes()

    def close(self) -> list[str]:
        """Shut everything down; return the processes that were left and then killed."""
        self.note_processes()
        self.ray.shutdown()
        self._cluster.shutdown()
        deadline = time.monotonic() + _END_S
        while (left := list(filter(_lives, self._processes.values()))) and time.monotonic() < deadline:
            time.sleep(0.05)
        texts = [f"{process.pid} {' '.join(process.cmdline()[:3])}" for process in left]
        for process in left:
            process.kill()
        return texts


def _lives(process: psutil.Process) -> bool:
    # Processes of the dead node are not children of this process: if nobody reaps them, they stay zombies.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _start(ray: Any) -> LocalCluster:
    """Start a cluster. Ray's limit for the start is half a minute; a busy machine may need more, so retry."""
    before = set(psutil.Process().children(recursive=True))
    for last in (False, False, True):
        try:
            return LocalCluster(ray)
        except Exception:
            ray.shutdown()
            started = set(psutil.Process().children(recursive=True)) - before
            for process in started:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(started, timeout=_END_S)
            if last:
                raise
    raise AssertionError("it is returned or raised")


@contextmanager
def local_cluster() -> Iterator[LocalCluster]:
    """Start a cluster, and end it afterwards with all its processes; skip the test if Ray is missing.

    The start takes many seconds of a core: share one cluster if possible.
    """
    ray = pytest.importorskip("ray", reason="needs Ray: pip install 'aioloader[ray]'")
    # Its sockets have long names, which a folder of pytest would make too long.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    environment = pytest.MonkeyPatch()
    environment.setenv("RAY_TMPDIR", folder)
    environment.setenv("PYTHONPATH", str(ROOT))  # workers find the tests
    left: list[str] = []
    try:
        cluster = _start(ray)
        try:
            yield cluster
        finally:
            left = cluster.close()
    finally:
        environment.undo()
        shutil.rmtree(folder, ignore_errors=True)
    assert left == [], "processes of the cluster were left"


def wait_until(condition: Any, timeout_s: float = 60.0) -> None:
    """Wait until another process has done something."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)
