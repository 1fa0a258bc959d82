"""Command `aioloader doctor`: report problems of this machine for loading."""

from __future__ import annotations

import argparse
import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from aioloader.foundation.version import __version__
from aioloader.tools.console import real
from aioloader.tools.doctor.advice import Advice, advise
from aioloader.tools.doctor.facts import HEIGHT, WIDTH, Facts, format_rows, gather_facts

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


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
    yield (
        "crop indexes",
        f"can be made, with {packages['numba']}"
        if "numba" in packages
        else "can be used; making them needs numba: pip install 'aioloader[crops]'",
    )


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
