"""Virtual environments of the contenders, made on demand and kept.

An environment's folder is named after its contender and a hash of its requirements, so that a changed requirement makes
a new one. What cannot be had (a Debian package, a Python version, a wheel) is an `EnvironmentFailure` that says what is
missing: it becomes a line of the results' table and ends nothing.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

__all__ = (
    "CONTENDERS",
    "EnvironmentFailure",
    "Needs",
    "default_folder",
    "ensure",
    "names",
    "needs_of",
    "read_needs",
    "ready",
)

CONTENDERS = Path(__file__).parent / "contenders"
_NOT_CONTENDERS = {"__init__", "contract", "meter", "run"}
_DIRECTIVE = re.compile(r"^#\s*(python|system|pip|interpreter|environment)\s*:\s*(.*?)\s*$")
_INSTALL_LIMIT_S = 1800
_PIP = ("--quiet", "--disable-pip-version-check")


class EnvironmentFailure(Exception):
    """An environment cannot be made; the text says what is missing.

    Attributes:
        contender: whose.
        log: what the installer wrote, or "".
    """

    def __init__(self, contender: str, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.contender = contender
        self.log = log


@dataclass(frozen=True)
class Needs:
    """What NAME.txt asks for (see `benchmarks.contenders.contract`).

    Attributes:
        text: the whole file, which pip reads.
        pythons: versions that it runs with, the best first; empty for the one that runs this.
        system: Debian packages.
        pip: further options of ``pip install``.
        own_interpreter: False where the running interpreter is used.
        variables: environment variables of its processes.
    """

    text: str
    pythons: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    own_interpreter: bool = True
    variables: dict[str, str] = field(default_factory=dict)


def names() -> tuple[str, ...]:
    """All contenders: the files of `benchmarks/contenders` that have requirements beside them."""
    return tuple(
        sorted(
            path.stem
            for path in CONTENDERS.glob("*.py")
            if path.stem not in _NOT_CONTENDERS and path.with_suffix(".txt").exists()
        )
    )


def default_folder() -> Path:
    """Where environments are kept unless the caller says otherwise."""
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache, "aioloader-benchmarks", "environments")


def read_needs(path: Path) -> Needs:
    """Read a contender's requirements."""
    text = path.read_text(encoding="utf-8")
    found: dict[str, list[str]] = {}
    for line in text.splitlines():
        match = _DIRECTIVE.match(line)
        if match:
            found.setdefault(match[1], []).extend(match[2].split())
    return Needs(
        text=text,
        pythons=tuple(found.get("python", ())),
        system=tuple(found.get("system", ())),
        pip=tuple(found.get("pip", ())),
        own_interpreter=found.get("interpreter") != ["this"],
        variables=dict(word.split("=", 1) for word in found.get("environment", ())),
    )


def needs_of(name: str) -> Needs:
    """What a contender asks for."""
    return read_needs(CONTENDERS / f"{name}.txt")


def ready(name: str, folder: Path) -> bool:
    """Whether a contender's environment is there already."""
    needs = needs_of(name)
    return not needs.own_interpreter or (_place(name, needs, folder) / "complete").exists()


def ensure(name: str, folder: Path, needs: Needs | None = None) -> Path:
    """The interpreter of a contender's environment, which is made if it is not there.

    Args:
        name: the contender.
        folder: where environments are kept.
        needs: what it asks for; None: what stands in its file.

    Raises:
        EnvironmentFailure: something is missing. Nothing half-made is left.
    """
    needs = needs_of(name) if needs is None else needs
    absent = [package for package in needs.system if not _installed(package)]
    if absent:
        raise EnvironmentFailure(name, f"needs {' and '.join(absent)} (apt install {' '.join(absent)})")
    if not needs.own_interpreter:
        return Path(sys.executable)
    place = _place(name, needs, folder)
    python = place / "bin" / "python"
    if (place / "complete").exists():
        return python
    base = _interpreter(name, needs.pythons)
    shutil.rmtree(place, ignore_errors=True)
    place.parent.mkdir(parents=True, exist_ok=True)
    requirements = place.with_suffix(".txt")
    requirements.write_text(needs.text, encoding="utf-8")
    log = ""
    try:
        for command in (
            [base, "-m", "venv", str(place)],
            [str(python), "-m", "pip", "install", *_PIP, *needs.pip, "-r", str(requirements)],
        ):
            log += _run(name, command, needs.variables)
        (place / "complete").write_text(log)
    except BaseException:
        shutil.rmtree(place, ignore_errors=True)
        raise
    return python


def _place(name: str, needs: Needs, folder: Path) -> Path:
    text = f"{needs.text}\n{needs.pythons or sys.version_info[:2]}"
    return folder / f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:12]}"


def _run(name: str, command: list[str], variables: dict[str, str]) -> str:
    try:
        done = subprocess.run(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
            timeout=_INSTALL_LIMIT_S,
            env={**os.environ, **variables},
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentFailure(name, f"the installation took more than {_INSTALL_LIMIT_S} s") from error
    if done.returncode:
        raise EnvironmentFailure(name, f"cannot be installed: {_last_error(done.stdout)}", done.stdout)
    return done.stdout


def _last_error(log: str) -> str:
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    errors = [line for line in lines if line.lower().startswith("error") or "Error:" in line]
    chosen = (errors or lines or ["no reason given"])[-1 if not errors else 0]
    return chosen[:300]


def _installed(package: str) -> bool:
    """Whether a Debian package is installed; where there is no dpkg nobody can tell, and the installer decides."""
    if shutil.which("dpkg-query") is None:
        return True
    found = subprocess.run(
        ["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False
    )
    return "install ok installed" in found.stdout


def _interpreter(name: str, versions: tuple[str, ...]) -> str:
    """The first of these versions of Python that is there."""
    running = f"{sys.version_info.major}.{sys.version_info.minor}"
    for version in versions or (running,):
        if version == running:
            return getattr(sys, "_base_executable", None) or sys.executable
        for candidate in _candidates(version):
            try:
                found = subprocess.run(
                    [candidate, "-c", "import sys, venv; print('%d.%d' % sys.version_info[:2])"],
                    capture_output=True,
                    text=True,
                    check=False,
                )
            except OSError:
                continue
            if found.stdout.strip() == version:
                return candidate
    raise EnvironmentFailure(name, f"needs Python {' or '.join(versions)}")


def _candidates(version: str) -> list[str]:
    named = shutil.which(f"python{version}")
    root = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv", "versions")
    built = sorted(root.glob(f"{version}.*/bin/python{version}"), reverse=True)
    # Version managers put shims on the path that refuse versions which are installed: the real ones come first.
    return [*map(str, built), *([named] if named else [])]
