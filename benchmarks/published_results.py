"""File of the figures that README and docs/ print: one JSON object for each day, ``benchmarks/results/DATE.json``.

It names the machine, the versions and the data, and for each part of the run its command, the revision of the code,
its seconds and its figures:
``rows`` (see `benchmarks.figures`), or for ``python -m benchmarks`` the ``run`` (see `benchmarks.results`).
"""

from __future__ import annotations

import json
import subprocess
from dataclasses import asdict, fields
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.published_parts import PHOTOGRAPHS
from benchmarks.results import Results, Row, Spread

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER = Path(__file__).parent / "results"
_PACKAGES = (
    *("aioloader", "numpy", "opencv-python-headless", "simplejpeg", "turbojpeg", "anyio", "obstore"),
    *("pyarrow", "pillow", "torch", "torchvision", "starlette", "uvicorn"),
)
_SPREADS = {field.name for field in fields(Row) if "Spread" in str(field.type)}


class Published:
    """Results of one day, and those parts of the file before it that were measured on the same machine and data.

    Args:
        path: the file; it may not exist yet.
        facts: of the run, for a new file: ``date``, ``machine``, ``data``, ``versions``.
    """

    def __init__(self, path: Path, facts: Mapping[str, Any] | None = None) -> None:
        self.path = path
        before = latest(path.parent)
        content: dict[str, Any] = {"parts": {}}
        if before is not None:
            content = json.loads((path if path.exists() else before).read_text(encoding="utf-8"))
        if not path.exists():
            same = facts is not None and all(content.get(name) == facts[name] for name in ("machine", "data"))
            content = {**(facts or {}), "parts": content["parts"] if same else {}}
        self._content = content

    @property
    def facts(self) -> dict[str, Any]:
        """Return what holds for all parts."""
        return {name: value for name, value in self._content.items() if name != "parts"}

    @property
    def parts(self) -> dict[str, dict[str, Any]]:
        """Return the parts by name."""
        parts: dict[str, dict[str, Any]] = self._content["parts"]
        return parts

    def add(self, name: str, part: Mapping[str, Any]) -> None:
        """Add a part, and write the file."""
        self.parts[name] = dict(part)
        self.path.parent.mkdir(parents=True, exist_ok=True)
        partial = self.path.with_suffix(".partial")
        partial.write_text(_text(self._content), encoding="utf-8")
        partial.replace(self.path)


def latest(folder: Path = FOLDER) -> Path | None:
    """Return the newest file of a folder, or None."""
    return max(folder.glob("????-??-??.json"), default=None)


def revision(root: Path = FOLDER.parents[1]) -> str:
    """Return the revision of the code in a checkout, with "+" after it if files differ from it; "" without git."""
    git = ["git", "-C", str(root)]
    try:
        head = subprocess.run(
            [*git, "rev-parse", "--short=12", "HEAD"], capture_output=True, text=True, check=True
        )
        # Results and pages are written by the run itself.
        code = [
            "status",
            "--porcelain",
            "--",
            "aioloader",
            "recordio",
            "benchmarks/*.py",
            "benchmarks/contenders",
        ]
        changed = subprocess.run([*git, *code], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return ""
    return head.stdout.strip() + ("+" if changed.stdout.strip() else "")


def versions() -> dict[str, str]:
    """Return the versions of this interpreter's packages that the figures depend on."""
    found = {}
    for package in _PACKAGES:
        try:
            found[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            continue
    return found


def compact(results: Results) -> dict[str, Any]:
    """Return the results of ``python -m benchmarks`` without what no page prints: the trials, and explanations."""
    rows = []
    for row in results.rows:
        kept = {name: value for name, value in asdict(row).items() if name not in ("swept", "explain")}
        rows.append(
            {name: _rounded(value) for name, value in kept.items() if value not in (None, "", [], {})}
        )
    contenders = {
        name: {"versions": facts["versions"], "python": facts["python"]}
        for name, facts in results.contenders.items()
    }
    return {"run": results.run, "contenders": contenders, "rows": rows}


def restore(found: Mapping[str, Any]) -> Results:
    """Return the results that `compact` made."""
    rows = []
    for each in found["rows"]:
        values: dict[str, Any] = {
            name: Spread(*value) if name in _SPREADS else value for name, value in each.items()
        }
        values["rounds"] = {int(number): rate for number, rate in each.get("rounds", {}).items()}
        rows.append(Row(**{"variant": "", **values}))
    return Results(dict(found["run"]), dict(found["contenders"]), rows)


def all_loaders(parts: Mapping[str, Any]) -> Results:
    """Return the results of the run of all loaders, with the cases of `PHOTOGRAPHS` from that part, if there is one."""
    found = restore(parts["loaders"])
    if PHOTOGRAPHS in parts:
        newer = restore(parts[PHOTOGRAPHS])
        cases = set(newer.cases)
        found.rows = [*newer.rows, *(row for row in found.rows if row.case not in cases)]
        found.contenders |= newer.contenders
    return found


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {name: _rounded(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_rounded(each) for each in value]
    return value


def _text(content: Mapping[str, Any]) -> str:
    """Return JSON with one line for each row, so that a change of one figure is a change of one line."""
    parts = []
    for name, part in content["parts"].items():
        lines = ",\n".join(f"   {json.dumps(row, ensure_ascii=False)}" for row in part["rows"])
        rest = {key: value for key, value in part.items() if key != "rows"}
        head = json.dumps(rest, ensure_ascii=False)[:-1]
        parts.append(f'  {json.dumps(name)}: {head}, "rows": [\n{lines}\n  ]}}')
    head = json.dumps({k: v for k, v in content.items() if k != "parts"}, ensure_ascii=False, indent=1)[:-2]
    return f'{head},\n "parts": {{\n' + ",\n".join(parts) + "\n }\n}\n"
