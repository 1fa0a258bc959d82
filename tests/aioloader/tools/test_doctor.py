"""Tests of the doctor: its advice for invented machines, and a run on this machine without an error."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from aioloader.cli import main
from aioloader.executors.shared_memory import default_memory_limit
from aioloader.foundation import host_limits
from aioloader.tools.doctor import Diagnosis, advise, diagnosis_text, examine
from aioloader.tools.doctor import facts as doctor_facts
from aioloader.tools.doctor.facts import (
    Codec,
    Cores,
    Facts,
    Limits,
    Memory,
    SharedMemory,
    Software,
    descriptors_needed,
    examine_codecs,
    gather_facts,
    requirements_missed,
)
from tests.cases import with_cases

ROOT = Path(__file__).parents[3]
GIB = 1 << 30

WELL = Facts(
    Cores(8, 8, None, 8, "a processor", ("sse2", "avx2")),
    Memory(32 * GIB, 20 * GIB, batches=8 * GIB),
    SharedMemory(True, 16 * GIB, 16 * GIB, "/tmp", 50 * GIB),
    Limits(1024, 1 << 20, 5, descriptors_needed(8), None, None),
    Software(
        "Linux 6.1 x86_64",
        "CPython 3.11.7",
        "fork",
        {"opencv-python-headless": "4.9.0.80", "torch": None},
        ("opencv-python-headless",),
        (),
        True,
        True,
        {},
    ),
    (
        Codec("simplejpeg", "1.9", None, True, "", 900.0, 6500.0),
        Codec("OpenCV", "4.9", None, True, "", 850.0, 6000.0),
    ),
)


def test_a_good_machine_is_well() -> None:
    diagnosis = Diagnosis(WELL, advise(WELL))
    assert diagnosis.advice == []
    assert diagnosis.ok
    assert diagnosis_text(diagnosis).endswith("\nall is well")
    assert diagnosis.as_json()["advice"] == []


def changed(part: str, **values: Any) -> Facts:
    return replace(WELL, **{part: replace(getattr(WELL, part), **values)})


PROBLEMS = {
    "few descriptors": (
        changed("limits", descriptors=64),
        "may have 64 files open, and a loader with 8 workers needs about 128",
        "ulimit -n 256, or fewer workers",
    ),
    "few that cannot be raised": (
        changed("limits", descriptors=64, descriptors_most=64),
        "64 files open",
        "docker run --ulimit nofile",
    ),
    "those that are open count": (
        changed("limits", descriptors=1024, descriptors_open=1000),
        "in addition to the 1,000 that are open",
        "ulimit -n 2048",
    ),
    "short files": (
        changed("limits", file_nbytes=1 << 20),
        "files may not be longer than 1.0 MiB",
        "ulimit -f",
    ),
    "little address space": (
        changed("limits", address_nbytes=200 << 20),
        "address space is 200.0 MiB",
        "ulimit -v",
    ),
    "little memory": (changed("memory", available=GIB // 2), "512.0 MiB of memory are left", "num_workers"),
    "a small group": (
        changed("memory", fullest_limit=GIB, fullest_used=GIB // 2),
        "512.0 MiB of memory of the 1.0 GiB of its control group",
        "fewer workers",
    ),
    "a full group": (
        changed("memory", fullest_limit=GIB, fullest_used=2 * GIB),
        "0 bytes of memory",
        "fewer workers",
    ),
    "no memfd, full disk": (
        changed("shared", memfd=False, temporary_free=1 << 20),
        "no memfd here, and /tmp has 1.0 MiB free",
        "TMPDIR",
    ),
    "a small quota": (changed("cores", quota=2.0), "a quota limits this process to 2 cores", "num_workers=2"),
    "two wheels": (
        changed("software", opencv_packages=("opencv-contrib-python", "opencv-python")),
        "2 packages bring the module cv2: opencv-contrib-python ?, opencv-python ?",
        "pip uninstall -y opencv-contrib-python opencv-python && pip install opencv-contrib-python",
    ),
    "two wheels, one headless": (
        changed("software", opencv_packages=("opencv-python", "opencv-python-headless")),
        "opencv-python-headless 4.9.0.80",
        "pip install opencv-python-headless",
    ),
    "an old library": (
        changed("software", missed=("numpy>=1.26 is installed as 1.20",)),
        "numpy>=1.26 is installed as 1.20",
        "pip install 'numpy>=1.26'",
    ),
    "a switch": (
        changed("software", variables={"JSIMD_FORCENONE": "1"}),
        "JSIMD_FORCENONE=1 is set",
        "unset JSIMD_FORCENONE",
    ),
    "no vector code": (
        replace(WELL, codecs=(Codec("simplejpeg", "1", None, False, "", 600.0, 4800.0),)),
        "simplejpeg decodes without vector instructions",
        "--only-binary",
    ),
    "slow": (
        replace(WELL, codecs=(Codec("simplejpeg", "1", None, True, "", 120.0, 960.0),)),
        "one core decodes a second: simplejpeg 120",
        "aioloader pack --resize",
    ),
    "one slow decoder": (
        replace(
            WELL,
            codecs=(
                Codec("simplejpeg", "1.9", None, True, "", 900.0, 6500.0),
                Codec("OpenCV", "4.9", None, True, "", 70.0, 6000.0),
            ),
        ),
        "one core decodes a second: OpenCV 70",
        "another program may have disturbed the measurement: run it again",
    ),
    "libGL": (
        replace(
            WELL, codecs=(Codec("OpenCV", error="ImportError: libGL.so.1: cannot open shared object file"),)
        ),
        "OpenCV cannot be used: ImportError: libGL.so.1",
        "opencv-python-headless",
    ),
    "no simplejpeg": (
        replace(
            WELL, codecs=(Codec("simplejpeg", error="ModuleNotFoundError: No module named 'simplejpeg'"),)
        ),
        "simplejpeg cannot be used",
        "pip install --force-reinstall simplejpeg",
    ),
}

NOTES = {
    "a large quota": (changed("cores", quota=7.5), "limits this process to 7.5 cores", "num_workers=7"),
    "a quota that is kept to": (
        changed("cores", quota=2.0, usable=2),
        "a quota limits this process to 2 of 8 cores",
        "OMP_NUM_THREADS",
    ),
    "half the machine": (changed("cores", machine=64), "may run on 8 of 64 cores", "taskset"),
    "no AVX2": (changed("cores", simd=("sse2",)), "has no AVX2", "virtual processor"),
    "Docker's shared memory": (changed("shared", size=64 << 20), "/dev/shm has 64.0 MiB", "--shm-size"),
    "no native reads": (changed("software", native_reads=False), "reads many records at once", "io_setup"),
    "no compiled part": (
        changed("software", native_absence="it was not built"),
        "compiled part is not used: it was not built",
        "AIOLOADER_NATIVE=1",
    ),
    "a compiled part that is forbidden": (
        changed("software", native_absence="it is forbidden", variables={"AIOLOADER_NATIVE": "0"}),
        "compiled part is not used: it is forbidden",
        "unset AIOLOADER_NATIVE",
    ),
    "threads": (
        changed("software", variables={"OMP_NUM_THREADS": "8"}),
        "OMP_NUM_THREADS=8 is set",
        "unset it",
    ),
    "debug": (
        changed("software", variables={"PYTHONDEVMODE": "1"}),
        "PYTHONDEVMODE=1 is set",
        "unset PYTHONDEVMODE",
    ),
    "shared cores": (
        replace(
            WELL,
            codecs=(
                Codec("simplejpeg", "1", None, True, "", 900.0, 900.0),
                Codec("OpenCV", "1", None, True, "", 900.0, 1800.0),
            ),
        ),
        "8 cores together decode 2.0 times as fast as one",
        "(about 2)",
    ),
}


@with_cases("name", [*PROBLEMS, *NOTES])
def test_what_is_wrong_is_reported_with_a_reason_and_a_remedy(name: str) -> None:
    facts, what, do = {**PROBLEMS, **NOTES}[name]
    found = advise(facts)
    assert len(found) == 1
    (advice,) = found
    assert what in advice.what
    assert advice.why
    assert do in advice.do
    assert advice.problem is (name in PROBLEMS)
    diagnosis = Diagnosis(facts, found)
    assert diagnosis.ok is (name in NOTES)
    text = diagnosis_text(diagnosis)
    assert ("will hurt:" in text, "worth knowing:" in text) == (advice.problem, not advice.problem)
    assert text.endswith("\n1 problem" if advice.problem else "\nall is well")


@pytest.mark.parametrize(("other", "is_contrib"), [("opencv-contrib-python", True), ("opencv-python", False)])
def test_opencv_with_contrib_modules_is_not_taken_away_without_a_word(other: str, is_contrib: bool) -> None:
    (advice,) = advise(changed("software", opencv_packages=(other, "opencv-python-headless")))
    assert ("code that needs contrib modules" in advice.why) is is_contrib


@with_cases(
    "facts",
    [
        changed("limits", descriptors=None),
        changed("limits", descriptors=descriptors_needed(8) + 5),
        changed("memory", available=None),
        changed("cores", affinity=None, machine=None, simd=None),
        changed("cores", simd=("asimd",)),
        changed("shared", size=None),
        changed("shared", memfd=False, size=64 << 20),
        changed("software", variables={"OMP_NUM_THREADS": "1", "PYTHONMALLOC": "pymalloc"}),
        replace(WELL, codecs=()),
    ],
)
def test_what_is_not_known_or_enough_gives_no_advice(facts: Facts) -> None:
    assert advise(facts) == []


def test_problems_come_first() -> None:
    facts = replace(changed("cores", machine=64), limits=replace(WELL.limits, descriptors=10))
    assert [advice.problem for advice in advise(facts)] == [True, False]


def test_nothing_known_is_no_error() -> None:
    diagnosis = Diagnosis(Facts(unreadable={"cores": "OSError: no"}), advise(Facts()))
    text = diagnosis_text(diagnosis)
    assert "not known: OSError: no" in text
    json.dumps(diagnosis.as_json())


# -- requirements -----------------------------------------------------------------------------------------------------


def test_requirements_are_compared_as_numbers() -> None:
    versions = {"numpy": "1.9.3", "anyio": "4.14", "simplejpeg": "1.10rc1", "aiofiles": None}
    required = ["numpy>=1.26", "anyio>=4.14.0", "simplejpeg>=1.7.1", "aiofiles>=23.2.1"]
    required += ["opencv-python-headless>=4.8", "torch>=9; extra == 'x'", "ray[data]>=2.60"]
    assert requirements_missed(required, versions.get) == (
        "numpy>=1.26 is installed as 1.9.3",
        "aiofiles>=23.2.1 is not installed",
    )


# -- this machine -----------------------------------------------------------------------------------------------------


def test_this_machine_is_looked_at(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json", "--seconds", "0.06"])
    found = json.loads(capsys.readouterr().out)
    assert code == (0 if found["ok"] else 1)
    assert found["unreadable"] == {}
    assert found["cores"]["usable"] >= 1
    assert found["software"]["opencv_packages"]
    assert found["software"]["packages"]["numpy"]
    assert {"simplejpeg", "OpenCV"} <= {codec["name"] for codec in found["codecs"]}
    for codec in found["codecs"]:
        assert codec["error"] is None
        assert codec["one_core"] > 10


def test_it_can_leave_the_decoding_out_and_speaks_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--seconds", "0"])
    text = capsys.readouterr().out
    assert code == (0 if text.endswith("all is well\n") else 1)
    assert "images/s" not in text
    for line in ("cores ", "memory ", "open files ", "packages "):
        assert f"\n{line}" in text


@pytest.mark.parametrize("value", ["-1", "x", "nan", "inf", "4000"])
def test_a_bad_time_is_wrong_usage(value: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(["doctor", f"--seconds={value}"])
    assert caught.value.code == 2
    assert "usage: aioloader doctor" in capsys.readouterr().err


def test_a_system_that_reports_nothing_is_not_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def forbidden(*_: object, **__: object) -> Any:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(doctor_facts.Path, "read_text", forbidden)
    for name in ("listdir", "sched_getaffinity", "cpu_count", "sysconf", "memfd_create"):
        monkeypatch.setattr(os, name, forbidden)
    monkeypatch.setattr("shutil.disk_usage", forbidden)
    monkeypatch.setattr("importlib.metadata.packages_distributions", forbidden)
    diagnosis = examine(seconds=0)
    assert {"cores", "memory", "shared memory", "software"} <= set(diagnosis.facts.unreadable)
    assert "not known: PermissionError" in diagnosis_text(diagnosis)
    json.dumps(diagnosis.as_json())


def test_wheels_that_clash_are_found_by_their_metadata_or_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("opencv_python", "opencv_contrib_python"):
        folder = tmp_path / f"{name}-4.8.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 4.8.0\n")
    # The other is as an installer leaves it that writes neither the modules of a package nor its files.
    (folder / "top_level.txt").write_text("cv2\n")
    (tmp_path / "emptied-1.0.dist-info").mkdir()  # what is left of another
    monkeypatch.syspath_prepend(str(tmp_path))
    facts = gather_facts(0)
    assert "software" not in facts.unreadable
    assert {"opencv-python", "opencv-contrib-python"} < set(facts.software.opencv_packages)
    assert facts.software.packages["opencv-python"] == "4.8.0"
    assert any("bring the module cv2" in advice.what for advice in advise(facts))


@pytest.mark.parametrize("own", ["0::/a/b\n", "3:cpu,cpuacct:/a/b\n2:memory:/a/b\n"], ids=["v2", "v1"])
def test_warnings_are_of_the_limits_that_a_loader_obeys(
    own: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The group around this one has the quota, and is nearly full; this one has the lower limit of memory."""
    proc, groups = tmp_path / "proc", tmp_path / "cgroup"
    texts = {
        proc / "self" / "cgroup": own,
        proc / "meminfo": f"MemTotal: {64 << 20} kB\nMemAvailable: {32 << 20} kB\n",
    }
    if own.startswith("0"):
        for path, limit, used in (("a", 8 * GIB, 8 * GIB - (64 << 20)), ("a/b", 4 * GIB, GIB)):
            texts[groups / path / "memory.max"] = f"{limit}\n"
            texts[groups / path / "memory.current"] = f"{used}\n"
        texts[groups / "a" / "cpu.max"] = "250000 100000\n"
    else:
        for path, limit, used in (("a", 8 * GIB, 8 * GIB - (64 << 20)), ("a/b", 4 * GIB, GIB)):
            texts[groups / "memory" / path / "memory.limit_in_bytes"] = f"{limit}\n"
            texts[groups / "memory" / path / "memory.usage_in_bytes"] = f"{used}\n"
        texts[groups / "cpu,cpuacct" / "a" / "cpu.cfs_quota_us"] = "250000\n"
        texts[groups / "cpu,cpuacct" / "a" / "cpu.cfs_period_us"] = "100000\n"
    for file, text in texts.items():
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    monkeypatch.setattr(host_limits, "_PROC", proc)
    monkeypatch.setattr(host_limits, "_CGROUPS", groups)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(8)), raising=False)
    monkeypatch.setattr(
        "importlib.metadata.packages_distributions", dict
    )  # which reads every installed package
    facts = gather_facts(0)
    assert facts.unreadable == {}
    assert (facts.cores.usable, facts.cores.quota) == (host_limits.available_cores(), 2.5) == (3, 2.5)
    assert (facts.memory.limit, facts.memory.used) == (4 * GIB, GIB)
    assert facts.memory.batches == default_memory_limit() == GIB
    said = [advice.what for advice in advise(facts)]
    assert any(what.startswith("a quota limits this process to 2.5 cores") for what in said)
    assert host_limits.available_memory() == 64 << 20
    assert any(what.startswith("64.0 MiB of memory of the 8.0 GiB of its control group") for what in said)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("module", "message", "remedy"),
    [
        ("cv2", "libGL.so.1: cannot open shared object file", "opencv-python-headless"),
        ("simplejpeg", "undefined symbol: jpeg_x", "simplejpeg"),
    ],
)
def test_a_library_that_cannot_be_loaded_is_named(
    tmp_path: Path, module: str, message: str, remedy: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise ImportError({message!r})\n")
    done = subprocess.run(
        [sys.executable, "-m", "aioloader", "doctor", "--seconds", "0.1"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])},
    )
    assert done.returncode == 1, done.stderr
    assert done.stderr == ""
    assert f"cannot be used: ImportError: {message}" in done.stdout
    assert remedy in done.stdout.partition("will hurt")[2]


@pytest.mark.slow
def test_vector_code_that_is_switched_off_is_noticed() -> None:
    program = (
        "from aioloader.tools.doctor.facts import examine_codecs; print(examine_codecs(1, 0.06)[0].simd)"
    )
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JSIMD_FORCENONE": "1"}
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "False\n"
    assert examine_codecs(1, 0.06)[0].simd is True
