"""Command `aioloader doctor`: report problems of this machine for loading, by rules from its facts to advice.

Rule: a *problem* makes loading fail, or much slower than the machine allows; a *note* is worth knowing. All advice
states a fact, why it matters, and what to do.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aioloader.foundation.version import __version__
from aioloader.tools.console import real
from aioloader.tools.doctor.facts import HEIGHT, WIDTH, Facts, format_rows, gather_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_MIB = 1 << 20
# Measured: a worker that decodes photographs uses 40 to 70 MiB of private memory, the parent as much, plus batches.
_WORKER_NBYTES = 80 * _MIB
_BASE_NBYTES = 256 * _MIB
_LEAST_BATCHES = 64 * _MIB
# An ordinary core decodes 700 to 1,000 such images a second, one without vector instructions 250.
_SLOW = 300.0
# Share of the speed of one core times the number of cores.
_POOR_SCALING = 0.6
_LITTLE_SHARED = 512 * _MIB


@dataclass(frozen=True, slots=True)
class Advice:
    """Fact with its consequence and a remedy.

    Attributes:
        problem: whether it is a problem; otherwise it is worth knowing.
        what: the fact.
        why: why it matters.
        do: what to do about it.
    """

    problem: bool
    what: str
    why: str
    do: str


def advise(facts: Facts) -> list[Advice]:
    """Return all advice that follows from the facts, problems first."""
    found = [
        *_software(facts),
        *_codecs(facts),
        *_limits(facts),
        *_memory(facts),
        *_cores(facts),
        *_variables(facts),
    ]
    return sorted(found, key=lambda advice: not advice.problem)


def _software(facts: Facts) -> Iterator[Advice]:
    software = facts.software
    wheels = software.opencv_packages
    if len(wheels) > 1:
        versions = ", ".join(f"{name} {software.packages.get(name) or '?'}" for name in wheels)
        others = [name for name in wheels if name != "opencv-python-headless"]
        contrib = any("contrib" in name for name in wheels)
        yield Advice(
            True,
            f"{len(wheels)} packages bring the module cv2: {versions}",
            "they overwrite each other's files, and what works depends on the order in which they were installed; a "
            "package that requires the removed name brings it back when it is upgraded"
            + ("; code that needs contrib modules needs them in place of the other" if contrib else ""),
            f"pip uninstall -y {' '.join(wheels)} && pip install "
            f"{'opencv-python-headless' if len(others) < len(wheels) else wheels[0]}",
        )
    for missed in software.missed:
        yield Advice(
            True,
            missed,
            "this version of aioloader is not tested with it, and may need features that it lacks",
            f"pip install '{missed.split(' is ')[0]}'",
        )
    if software.native_absence:
        yield Advice(
            False,
            f"aioloader's compiled part is not used: {software.native_absence}",
            "antialiased resizing, the default of random crops, takes seven times as long, and making a crop index a "
            "hundred times; the results are the same",
            "unset AIOLOADER_NATIVE"
            if software.variables.get("AIOLOADER_NATIVE") == "0"
            else "install a C compiler and Python's headers (Debian: apt install gcc python3-dev), then install "
            "aioloader again with AIOLOADER_NATIVE=1, which makes a build without it an error; in a checkout, run "
            "python native/build.py",
        )
    if facts.shared.memfd and software.system.startswith("Linux") and not software.native_reads:
        yield Advice(
            False,
            "the system call that reads many records at once is missing, or forbidden by a sandbox",
            "records are read one after the other instead, which costs a little time for small ones",
            "nothing, or allow io_setup and io_submit",
        )


def _codecs(facts: Facts) -> Iterator[Advice]:
    for codec in facts.codecs:
        if codec.error is not None:
            yield _broken(codec.name, codec.error)
        elif codec.simd is False and "JSIMD_FORCENONE" not in facts.software.variables:
            yield Advice(
                True,
                f"{codec.name} decodes without vector instructions",
                "JPEG decoding takes two to three times as long as it could",
                "install a wheel instead of building from source: pip install --force-reinstall --only-binary :all: "
                f"{'simplejpeg' if codec.name == 'simplejpeg' else 'opencv-python-headless'}",
            )
    slow = [
        f"{codec.name} {codec.one_core:,.0f}"
        for codec in facts.codecs
        if codec.one_core is not None and codec.one_core < _SLOW
    ]
    if slow:
        yield Advice(
            True,
            f"photographs of 500 x 375 pixels that one core decodes a second: {', '.join(slow)}",
            "an ordinary core decodes 700 or more; loading cannot be faster than decoding",
            "another program may have disturbed the measurement: run it again on an idle machine; if that does not "
            "help, check whether a quota limits the processor, or pack smaller images (aioloader pack --resize)",
        )
    cores = facts.cores.usable
    # The decoder with the largest gain shows what the cores can do; others may have run next to another program.
    gain = max(
        (codec.all_cores / codec.one_core for codec in facts.codecs if codec.one_core and codec.all_cores),
        default=None,
    )
    if gain is not None and cores > 1 and gain < _POOR_SCALING * cores:
        yield Advice(
            False,
            f"{cores} cores together decode {gain:.1f} times as fast as one",
            "other programs use them, a quota limits them, or some are hyper-threads of the same core",
            f"find the best num_workers with aioloader bench PATH (about {max(1, round(gain))})",
        )


def _broken(name: str, error: str) -> Advice:
    if name == "OpenCV" and ("libGL" in error or "libgthread" in error or "libglib" in error):
        do = "pip uninstall -y opencv-python && pip install opencv-python-headless, which needs no display's libraries"
    elif name == "libjpeg-turbo 3":
        do = "pip install --force-reinstall turbojpeg, or set AIOLOADER_TURBOJPEG to nothing"
    else:
        package = "simplejpeg" if name == "simplejpeg" else "opencv-python-headless"
        do = f"pip install --force-reinstall {package}"
    return Advice(True, f"{name} cannot be used: {error}", "images cannot be decoded with it", do)


def _limits(facts: Facts) -> Iterator[Advice]:
    limits = facts.limits
    soft, hard, needed = limits.descriptors, limits.descriptors_most, limits.descriptors_needed
    used = limits.descriptors_open or 0
    if soft is not None and soft < needed + used:
        enough = 1 << (needed + used).bit_length()
        raised = hard is None or hard >= needed + used
        yield Advice(
            True,
            f"this process may have {soft:,} files open, and a loader with {facts.cores.usable} workers needs about "
            f"{needed:,}" + (f" in addition to the {used:,} that are open" if used > 16 else ""),
            "workers cannot be started, or files cannot be opened (EMFILE, too many open files)",
            f"ulimit -n {min(enough, hard) if hard is not None else enough}, or fewer workers"
            if raised
            else f"fewer workers, or have the hard limit ({hard:,}) raised: docker run --ulimit nofile=65536",
        )
    for size, name, option in (
        (limits.file_nbytes, "files may not be longer than", "f"),
        (limits.address_nbytes, "the address space is", "v"),
    ):
        # The memory of all batches is one file that is mapped as a whole.
        if size is not None and size < 4 * _LEAST_BATCHES:
            yield Advice(
                True,
                f"{name} {_size(size)} (ulimit -{option})",
                "the memory for batches is one mapped file, and this limit leaves little for it",
                f"ulimit -{option} unlimited",
            )


def _memory(facts: Facts) -> Iterator[Advice]:
    memory, shared = facts.memory, facts.shared
    needed = _BASE_NBYTES + _WORKER_NBYTES * facts.cores.usable
    left = memory.available
    within = ""
    if memory.fullest_limit is not None:
        in_group = memory.fullest_limit - (memory.fullest_used or 0)
        if left is None or in_group < left:
            left, within = max(0, in_group), f" of the {_size(memory.fullest_limit)} of its control group"
    if left is not None and left < needed:
        yield Advice(
            True,
            f"{_size(left)} of memory{within} are left, and a loader with {facts.cores.usable} workers needs about "
            f"{_size(needed)}",
            "the system kills processes when memory runs out; the work of a killed worker is lost",
            "fewer workers (num_workers), or more memory for the container; memory_limit bounds the memory of batches",
        )
    if not shared.memfd:
        free = shared.temporary_free
        if free is not None and free < _LITTLE_SHARED:
            yield Advice(
                True,
                f"there is no memfd here, and {shared.temporary} has {_size(free)} free",
                "batches are stored in a file there",
                "set TMPDIR to a folder with more space, preferably in memory; or set a lower memory_limit",
            )
    elif shared.size is not None and shared.size < _LITTLE_SHARED:
        yield Advice(
            False,
            f"/dev/shm has {_size(shared.size)}, as in a container with default settings",
            "aioloader does not use it: batches are in an anonymous memory file. Workers of torch's own DataLoader "
            "use it, and fail with a bus error when it is full",
            "nothing for aioloader; for torch's workers docker run --shm-size 8g",
        )


def _cores(facts: Facts) -> Iterator[Advice]:
    cores = facts.cores
    if cores.quota is not None and cores.quota < cores.usable:
        yield Advice(
            cores.quota * 2 <= cores.usable,
            f"a quota limits this process to {cores.quota:g} cores, and a loader starts {cores.usable} workers",
            "all of them, and the event loop, are paused whenever the quota is used up",
            f"num_workers={max(1, int(cores.quota))}, or a larger quota (docker run --cpus)",
        )
    elif cores.quota is not None and cores.affinity is not None and cores.quota < cores.affinity:
        yield Advice(
            False,
            f"a quota limits this process to {cores.quota:g} of {cores.affinity} cores",
            f"a loader starts {cores.usable} workers; other libraries may start {cores.affinity} threads",
            "set OMP_NUM_THREADS for other libraries in this process",
        )
    if cores.affinity is not None and cores.machine is not None and cores.affinity * 2 <= cores.machine:
        yield Advice(
            False,
            f"this process may run on {cores.affinity} of {cores.machine} cores",
            "a loader starts a worker for each core that it may use",
            "nothing, if this is intended; it is set by taskset or the batch system's options",
        )
    if cores.simd is not None and "sse2" in cores.simd and "avx2" not in cores.simd:
        yield Advice(
            False,
            "the processor has no AVX2, or a virtual machine hides it",
            "decoding is up to a third slower",
            "choose a virtual processor type that exposes the host's instructions",
        )


def _variables(facts: Facts) -> Iterator[Advice]:
    variables = facts.software.variables
    many = {
        name: value
        for name, value in variables.items()
        if name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "OPENCV_FOR_THREADS_NUM")
        and value.isdecimal()
        and int(value) > 1
    }
    if many and facts.cores.usable > 1:
        settings = ", ".join(f"{name}={value}" for name, value in many.items())
        yield Advice(
            False,
            f"{settings} is set",
            "workers inherit it, so each of them may start as many threads; without it each has one",
            "unset it for this program, or set it to 1",
        )
    if variables.get("JSIMD_FORCENONE") == "1":
        yield Advice(
            True,
            "JSIMD_FORCENONE=1 is set",
            "it disables vector instructions in JPEG decoding, which then takes two to three times as long",
            "unset JSIMD_FORCENONE",
        )
    for name in ("PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONMALLOC"):
        value = variables.get(name, "")
        if value and (value == "debug" or name != "PYTHONMALLOC"):
            yield Advice(
                False,
                f"{name}={value} is set",
                "Python runs additional checks, which slow down the event loop and everything in it",
                f"unset {name} where speed matters",
            )


def _size(nbytes: int) -> str:
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB")):
        if nbytes >= unit:
            return f"{nbytes / unit:,.1f} {name}"
    return f"{nbytes:,} bytes"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Check this machine and this Python: cores, memory, limits, libraries and their vector "
        "instructions, and how fast JPEGs are decoded. Prints each problem, why it matters, and what to do."
    )
    parser.epilog = "exit codes: 0: no problems, 1: problems were found, 2: wrong usage"
    parser.add_argument("--json", action="store_true", help="print a JSON object")
    parser.add_argument(
        "--seconds",
        type=_duration,
        default=1.0,
        metavar="S",
        help="approximate duration of the decoding benchmark; 0: none (1)",
    )


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""

    diagnosis = examine(options.seconds)
    print(json.dumps(diagnosis.as_json(), indent=2) if options.json else diagnosis_text(diagnosis))
    return 0 if diagnosis.ok else 1


def _duration(text: str) -> float:
    value = real(text)
    if not 0 <= value <= 3600:
        raise argparse.ArgumentTypeError("must be between 0 and 3600")
    return value


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """Facts of this machine, and advice.

    Attributes:
        facts: the machine and its software.
        advice: consequences of the facts, problems first.
    """

    facts: Facts
    advice: list[Advice]

    @property
    def ok(self) -> bool:
        """Return whether there are no problems."""
        return not any(advice.problem for advice in self.advice)

    def as_json(self) -> dict[str, Any]:
        """Return the diagnosis as a JSON object."""
        return {
            "ok": self.ok,
            "version": __version__,
            "advice": [asdict(advice) for advice in self.advice],
            **asdict(self.facts),
        }


def examine(seconds: float = 1.0) -> Diagnosis:
    """Examine this machine and this Python. A fact that cannot be determined is not an error.

    Args:
        seconds: approximate duration of the decoding benchmark; 0: none.
    """
    facts = gather_facts(seconds)
    return Diagnosis(facts, advise(facts))


def diagnosis_text(diagnosis: Diagnosis) -> str:
    """Format the diagnosis for a terminal."""
    rows = list(_rows(diagnosis.facts))
    width = max(len(name) for name, _ in rows)
    lines = [f"{name.ljust(width)}  {text}" for name, text in rows]
    for problem, title in ((True, "will hurt"), (False, "worth knowing")):
        chosen = [advice for advice in diagnosis.advice if advice.problem is problem]
        if chosen:
            lines += ["", f"{title}:"]
        for advice in chosen:
            lines += [f"- {advice.what}", f"  why: {advice.why}", f"  do:  {advice.do}"]
    problems = sum(advice.problem for advice in diagnosis.advice)
    lines += ["", f"{problems} problem{'' if problems == 1 else 's'}" if problems else "all is well"]
    return "\n".join(lines)


def _rows(facts: Facts) -> Iterator[tuple[str, str]]:
    cores, memory, shared = facts.cores, facts.memory, facts.shared
    limits, software = facts.limits, facts.software
    yield "aioloader", f"{__version__}, {software.python}, {software.system}"
    quota = "no quota" if cores.quota is None else f"a quota of {cores.quota:g}"
    simd = "" if cores.simd is None else f", {' '.join(cores.simd)}"
    yield (
        "cores",
        f"{_known(cores.machine)}, of which this process may use {_known(cores.affinity)}, {quota}: {cores.usable} "
        f"worker{'' if cores.usable == 1 else 's'} ({_known(cores.model)}{simd})",
    )
    limit = (
        ""
        if memory.limit is None
        else f", {_gib(memory.limit)} for its control group, {_gib(memory.used)} in use"
    )
    yield (
        "memory",
        f"{_gib(memory.total)}, {_gib(memory.available)} available{limit};  batches: up to {_gib(memory.batches)}",
    )
    where = (
        "memfd, without a name"
        if shared.memfd
        else f"a file in {shared.temporary}, {_gib(shared.temporary_free)} free"
    )
    yield (
        "batch memory",
        f"{where}; /dev/shm, which is not used: {_gib(shared.size)}, {_gib(shared.free)} free",
    )
    yield (
        "open files",
        f"{_known(limits.descriptors)} allowed (up to {_known(limits.descriptors_most)}), about "
        f"{limits.descriptors_needed} needed",
    )
    reads = "many records in one call" if software.native_reads else "one record a call"
    yield (
        "reading",
        f"{reads}; the system {'reports' if software.residency else 'does not report'} which pages are in memory",
    )
    yield (
        "processes",
        f"workers are new processes (exec); Python's own start method: {_known(software.start_method)}",
    )
    if software.native_absence:
        yield "compiled part", f"not used: {software.native_absence}"
    else:
        yield "compiled part", f"used, with instructions: {_known(software.native_simd)}"
    yield from _package_rows(software.packages)
    if software.variables:
        yield "environment", ", ".join(f"{name}={value}" for name, value in software.variables.items())
    yield from _codec_rows(facts)
    for name, why in facts.unreadable.items():
        yield name, f"not known: {why}"


def _package_rows(installed: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    packages = {name: f"{name} {version}" for name, version in installed.items() if version}
    loops = [packages[name] for name in ("uvloop", "trio") if name in packages]
    yield "event loop", ", ".join(["asyncio", *loops])
    yield "packages", ", ".join(packages.values()) or "not known"
    absent = [name for name in ("turbojpeg", "torch", "ray") if name not in packages]
    if absent:
        yield "not installed", ", ".join(absent)
    yield from format_rows(installed)


def _codec_rows(facts: Facts) -> Iterator[tuple[str, str]]:
    cores = facts.cores
    for codec in facts.codecs:
        if codec.error is not None:
            yield codec.name, f"cannot be used: {codec.error}"
            continue
        rate = ""
        if codec.one_core is not None:
            rate = f": {codec.one_core:,.0f} images/s on one core"
            if codec.all_cores is not None and cores.usable > 1:
                rate += f", {codec.all_cores:,.0f} on {cores.usable}"
            rate += f" ({WIDTH} x {HEIGHT})"
        simd = {True: ", vector instructions", False: ", no vector instructions", None: ""}[codec.simd]
        yield codec.name, f"{codec.version}{simd}{f' ({codec.detail})' if codec.detail else ''}{rate}"


def _known(value: object) -> str:
    return "not known" if value is None else f"{value:,}" if isinstance(value, int) else str(value)


def _gib(nbytes: int | None) -> str:
    return "not known" if nbytes is None else f"{nbytes / (1 << 30):,.2f} GiB"
