"""Virtual environments of the contenders, made on demand and kept.

An environment's folder is named after its contender and a hash of its requirements, so that a changed requirement makes
a new one. A missing Debian package, Python version or wheel is an `EnvironmentFailure` that names it: the failure
becomes a line of the results' table and does not end the run.
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

CONTENDERS = Path(__file__).parent / "contenders"
_NOT_CONTENDERS = {"__init__", "contract", "meter", "run"}
_DIRECTIVE = re.compile(r"^#\s*(python|system|pip|interpreter|environment)\s*:\s*(.*?)\s*$")
_INSTALL_LIMIT_S = 1800
_PIP = ("--quiet", "--disable-pip-version-check")


class EnvironmentFailure(Exception):
    """Error raised when an environment cannot be made; the text names what is missing.

    Attributes:
        contender: its name.
        log: the installer's output, or "".
    """

    def __init__(self, contender: str, reason: str, log: str = "") -> None:
        super().__init__(reason)
        self.contender = contender
        self.log = log


@dataclass(frozen=True)
class Needs:
    """Requirements in NAME.txt (see `benchmarks.contenders.contract`).

    Attributes:
        text: the whole file, which pip reads.
        pythons: versions that it runs with, the best first; empty for the running one.
        system: Debian packages.
        pip: further options of ``pip install``.
        own_interpreter: False if the running interpreter is used.
        variables: environment variables of its processes.
    """

    text: str
    pythons: tuple[str, ...] = ()
    system: tuple[str, ...] = ()
    pip: tuple[str, ...] = ()
    own_interpreter: bool = True
    variables: dict[str, str] = field(default_factory=dict)


def names() -> tuple[str, ...]:
    """Return all contenders: the modules of `benchmarks/contenders` that have a file of requirements."""
    return tuple(
        sorted(
            path.stem
            for path in CONTENDERS.glob("*.py")
            if path.stem not in _NOT_CONTENDERS and path.with_suffix(".txt").exists()
        )
    )


def default_folder() -> Path:
    """Return the default folder of the environments."""
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
    """Read the requirements of a contender by its name."""
    return read_needs(CONTENDERS / f"{name}.txt")


def ready(name: str, folder: Path) -> bool:
    """Return whether a contender's environment exists already."""
    needs = needs_of(name)
    return not needs.own_interpreter or (_place(name, needs, folder) / "complete").exists()


def ensure(name: str, folder: Path, needs: Needs | None = None) -> Path:
    """Return the interpreter of a contender's environment, which is made if it does not exist.

    Args:
        name: the contender.
        folder: folder of the environments.
        needs: its requirements; None: read them from its file.

    Raises:
        EnvironmentFailure: something is missing. No incomplete environment is left.
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
    """Return whether a Debian package is installed; without dpkg return True, and the installer decides."""
    if shutil.which("dpkg-query") is None:
        return True
    found = subprocess.run(
        ["dpkg-query", "-W", "-f=${Status}", package], capture_output=True, text=True, check=False
    )
    return "install ok installed" in found.stdout


def _interpreter(name: str, versions: tuple[str, ...]) -> str:
    """Return the first of these versions of Python that is installed."""
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
    # Version managers put shims on the path that refuse installed versions: real interpreters come first.
    return [*map(str, built), *([named] if named else [])]
