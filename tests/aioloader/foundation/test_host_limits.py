"""Tests of the limits of this host, with folders in the place of /proc and of the control groups."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from aioloader.executors.shared_memory import default_memory_limit
from aioloader.foundation import host_limits
from aioloader.foundation.host_limits import (
    available_cores,
    available_memory,
    cgroup_memory,
    cpu_quota,
    idle_cpu_s,
    machine_memory,
    memory_of_processes,
    open_files,
    process_limit,
    usable_memory,
)

MIB = 1 << 20
GIB = 1 << 30
VERSION_1 = "3:cpu,cpuacct:/docker/x\n2:memory:/docker/x\n1:name=systemd:/\n"


class Host:
    """A machine that has 16 GiB of memory, of which 12 GiB are available, and 8 cores."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.groups = root / "cgroup"
        self.write(
            self.proc / "meminfo", f"MemTotal: {16 << 20} kB\nMemFree: 1 kB\nMemAvailable: {12 << 20} kB\n"
        )
        self.groups.mkdir(exist_ok=True)

    def group(self, own: str) -> None:
        self.write(self.proc / "self" / "cgroup", own)

    def limit(self, folder: str, **files: object) -> None:
        """Write files of a control group; "__" in a name is a point."""
        for name, text in files.items():
            self.write(self.groups / folder / name.replace("__", "."), f"{text}\n")

    @staticmethod
    def write(path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8", errors="replace", newline="")


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    host = Host(tmp_path)
    monkeypatch.setattr(host_limits, "_PROC", host.proc)
    monkeypatch.setattr(host_limits, "_CGROUPS", host.groups)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    return host


def test_without_control_groups_the_machine_is_the_limit(host: Host) -> None:
    assert available_cores() == 8
    assert cpu_quota() is None
    assert cgroup_memory() == (None, None)
    assert (usable_memory(), available_memory()) == (16 * GIB, 12 * GIB) == machine_memory()


def test_limits_of_enclosing_groups_hold_too(host: Host) -> None:
    host.group("0::/a/b\n")
    host.limit("", cpu__max="max 100000", memory__max="max")
    host.limit("a", cpu__max="150000 100000", memory__max=3000, memory__current=2000)
    host.limit("a", memory__stat="anon 900\ninactive_file 500\nactive_file 7")
    host.limit("a/b", cpu__max="400000 100000", memory__max="max")
    assert cpu_quota() == 1.5
    assert available_cores() == 2
    assert cgroup_memory() == (3000, 1500)
    assert (usable_memory(), available_memory()) == (3000, 1500)


def test_idle_time_is_that_of_the_cores_of_this_process(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 2}, raising=False)
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    assert idle_cpu_s() == {}
    rows = [
        "cpu 9 9 9 99900 9",
        "cpu0 7 0 1 500 100 0 0",
        "cpu1 1 0 0 70000 0",
        "cpu2 2 0 0 300 0 9",
        "intr 5",
    ]
    host.write(host.proc / "stat", "\n".join(rows))
    assert idle_cpu_s() == {"cores": 9.0}
    host.write(
        host.proc / "stat", "cpu 0 0 0 0\ncpu0 0 0 0 0\ncpu2 0 0 0 0\n"
    )  # of a system that counts nothing
    assert idle_cpu_s() == {}


CPU_1 = {"cpu__cfs_quota_us": 150000, "cpu__cfs_period_us": 100000, "cpuacct__usage": 4 * 10**9}
CPU_2 = {"cpu__max": "150000 100000", "cpu__stat": "usage_usec 4000000\nuser_usec 1"}


@pytest.mark.parametrize(
    ("own", "folder", "files"),
    [("0::/a/b\n", "a", CPU_2), (VERSION_1.replace("/docker/x", "/a/b"), "cpu,cpuacct/a", CPU_1)],
)
def test_what_a_quota_leaves_is_idle_time_too(
    host: Host, own: str, folder: str, files: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    host.group(own)
    host.limit(folder, **files)
    monkeypatch.setattr(host_limits, "monotonic", lambda: 10.0)
    (left,) = idle_cpu_s().values()
    assert left == 1.5 * 10 - 4


def test_the_fullest_group_says_how_much_memory_is_left(host: Host) -> None:
    host.group("0::/a/b\n")
    host.limit("a", memory__max=8 * GIB, memory__current=7 * GIB)
    host.limit("a/b", memory__max=4 * GIB, memory__current=GIB)
    assert usable_memory() == 4 * GIB
    assert available_memory() == GIB


def test_the_affinity_is_a_limit_within_the_quota(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.group("0::/\n")
    host.limit("", cpu__max="600000 100000")
    assert available_cores() == 6
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 3}, raising=False)
    assert available_cores() == 2


@pytest.mark.parametrize("nested", [False, True], ids=["as seen from inside", "nested"])
def test_version_1_of_control_groups(host: Host, nested: bool) -> None:
    host.group(VERSION_1)
    inner = "/docker/x" if nested else ""  # from inside a container the path of its group does not exist
    host.limit("cpu" + inner, **{"cpu.cfs_quota_us": 50000, "cpu.cfs_period_us": 100000})
    host.limit("memory" + inner, **{"memory.limit_in_bytes": MIB, "memory.usage_in_bytes": 400_000})
    if nested:
        host.limit("cpu/docker", **{"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000})
        host.limit("memory", **{"memory.limit_in_bytes": 2**63 - 4096})
        host.limit("memory" + inner, **{"memory.stat": "inactive_file 1\ntotal_inactive_file 100000"})
    assert cpu_quota() == 0.5
    assert available_cores() == 1
    assert cgroup_memory() == (MIB, 300_000 if nested else 400_000)
    assert available_memory() == MIB - (300_000 if nested else 400_000)


def test_version_1_without_limits(host: Host) -> None:
    host.group(VERSION_1)
    host.limit("cpu", **{"cpu.cfs_quota_us": -1, "cpu.cfs_period_us": 100000})
    host.limit("memory", **{"memory.limit_in_bytes": 2**63 - 4096, "memory.usage_in_bytes": 7})
    assert cpu_quota() is None
    assert cgroup_memory() == (None, None)


def test_controllers_that_share_a_mount(host: Host) -> None:
    host.group("4:cpu,cpuacct:/a\n")
    host.limit("cpu,cpuacct/a", **{"cpu.cfs_quota_us": 150000, "cpu.cfs_period_us": 100000})
    assert cpu_quota() == 1.5


def test_version_2_next_to_version_1(host: Host) -> None:
    host.group("3:memory:/m\n1:name=systemd:/\n0::/u\n")
    host.limit("unified", cpu__max="max 100000")
    host.limit(
        "unified/u", cpu__max="50000 100000", memory__max=7
    )  # the controller of memory is one of version 1
    host.limit("memory/m", **{"memory.limit_in_bytes": MIB, "memory.usage_in_bytes": 5})
    assert cpu_quota() == 0.5
    assert cgroup_memory() == (MIB, 5)


def test_a_group_that_is_full_has_nothing_left(host: Host) -> None:
    host.group("0::/a\n")
    host.limit("a", memory__max=GIB, memory__current=GIB + 5)
    assert available_memory() == 0


@pytest.mark.parametrize("own", ["0::/a/b\n", VERSION_1], ids=["version 2", "version 1"])
def test_the_default_memory_limit_obeys_nested_groups(host: Host, own: str) -> None:
    whole = default_memory_limit()
    assert whole <= 4 * GIB
    host.group(own)
    host.limit("a", memory__max=GIB)
    host.limit("memory/docker", **{"memory.limit_in_bytes": GIB})
    assert default_memory_limit() == min(whole, 256 * MIB)
    host.limit("a", memory__max=MIB)
    host.limit("memory/docker", **{"memory.limit_in_bytes": MIB})
    assert default_memory_limit() == 64 * MIB


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text(alphabet="0:/.abcpu,\n", max_size=40), st.text(max_size=20))
def test_odd_texts_of_the_system_are_no_error(host: Host, own: str, text: str) -> None:
    host.group(own)
    for name in ("cpu.max", "memory.max", "memory.current", "memory.stat"):
        host.write(host.groups / name, text)
    assert all(folder.is_relative_to(host.groups) for folder in host_limits._cgroup_folders("cpu"))
    quota, (limit, _), left = cpu_quota(), cgroup_memory(), available_memory()
    assert quota is None or quota >= 0
    assert limit is None or limit >= 0
    assert left is None or left >= 0
    assert available_cores() >= 1


def test_limits_of_this_process() -> None:
    files = open_files()
    soft, hard = process_limit("NOFILE")
    assert (files.soft, files.hard) == (soft, hard)
    if files.used is not None:
        with open(os.devnull):
            assert open_files().used == files.used + 1


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="needs /proc")
def test_memory_of_processes_leaves_out_those_that_are_gone() -> None:
    (own,) = memory_of_processes([os.getpid(), 2**22 + 1])
    assert own > MIB
