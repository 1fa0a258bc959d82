"""Tests of a wheel's content: the two packages with their types, the compiled part or none, and nothing else."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.slow
@pytest.mark.parametrize("native", ["0", "1", "without a compiler"])
def test_the_wheel_holds_the_two_packages_and_nothing_else(tmp_path: Path, native: str) -> None:
    compiled = native == "1"
    if compiled and shutil.which("cc") is None:
        pytest.skip("there is no C compiler")
    environment = {**os.environ, "AIOLOADER_NATIVE": native}
    if native == "without a compiler":
        environment |= {"AIOLOADER_NATIVE": "", "CC": str(tmp_path / "none")}
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--wheel-dir",
        str(tmp_path),
        str(ROOT),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    tag = wheel.name.split("-", 2)[2]
    assert tag.startswith("cp311-abi3-") if compiled else tag == "py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        (metadata,) = (archive.read(name).decode() for name in names if name.endswith(".dist-info/METADATA"))
        (scripts,) = (archive.read(name).decode() for name in names if name.endswith("entry_points.txt"))
    packages = {name for name in names if ".dist-info/" not in name}
    assert {name.partition("/")[0] for name in packages} == {"aioloader", "recordio"}
    assert {"aioloader/py.typed", "recordio/py.typed"} <= packages
    assert {
        "aioloader/viewer/static/icon.svg",
        "aioloader/viewer/static/view.css",
        *(
            f"aioloader/viewer/templates/{path.name}"
            for path in (ROOT / "aioloader/viewer/templates").iterdir()
        ),
    } <= packages
    sources = {
        path.relative_to(ROOT).as_posix()
        for name in ("aioloader", "recordio")
        for path in (ROOT / name).rglob("*.py")
    }
    assert {name for name in packages if name.endswith(".py")} == sources
    assert ("aioloader/_native.abi3.so" in packages) is compiled
    assert "aioloader/_native.pyi" in packages
    assert not [name for name in packages if name.endswith((".pyc", ".rec", ".idx"))]
    assert [name for name in names if name.endswith("licenses/LICENSE")]
    assert "\nLicense-Expression: Apache-2.0\n" in metadata
    assert "\nRequires-Python: >=3.11\n" in metadata
    assert "aioloader = aioloader.cli:main" in scripts
