"""Tests of the contenders' environments: requirements, and reports of missing ones."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from benchmarks import environments
from benchmarks.cases import chosen
from benchmarks.environments import EnvironmentFailure, Needs, ensure, read_needs
from benchmarks.log import Log
from benchmarks.report import write_report
from benchmarks.runner import Plan, Runner


def test_comments_say_what_pip_cannot(tmp_path: Path) -> None:
    path = tmp_path / "ghost.txt"
    path.write_text(
        "# python: 3.9 3.10\n# system: libghost-dev  pkg-config\n# pip: --no-build-isolation\n"
        "# environment: GHOST=1 PATHS=a=b\n# A remark: nothing else.\nghost==1.0\n"
    )
    needs = read_needs(path)
    assert needs.pythons == ("3.9", "3.10")
    assert needs.system == ("libghost-dev", "pkg-config")
    assert needs.pip == ("--no-build-isolation",)
    assert needs.variables == {"GHOST": "1", "PATHS": "a=b"}
    assert needs.own_interpreter
    assert "ghost==1.0" in needs.text


@pytest.mark.parametrize(
    ("needs", "reason"),
    [
        (
            Needs("", system=("no-such-package-a", "no-such-package-b")),
            "no-such-package-a and no-such-package-b",
        ),
        (Needs("", pythons=("2.0", "2.1")), "needs Python 2.0 or 2.1"),
    ],
    ids=["system", "python"],
)
def test_what_is_missing_is_named(needs: Needs, reason: str, tmp_path: Path) -> None:
    if needs.system and not Path("/usr/bin/dpkg-query").exists():
        pytest.skip("this system cannot list its installed packages")
    with pytest.raises(EnvironmentFailure, match=reason):
        ensure("ghost", tmp_path, needs)
    assert list(tmp_path.iterdir()) == []


PYTHON = """#!/bin/sh
# An interpreter whose environments have an installer that fails.
mkdir -p "$3/bin"
printf '#!/bin/sh\\necho ERROR: No matching distribution for ghost; exit 1' > "$3/bin/python"
chmod +x "$3/bin/python"
"""


def test_a_failed_installation_leaves_nothing_that_looks_complete(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(PYTHON)
    fake.chmod(0o755)
    folder = tmp_path / "environments"
    monkeypatch.setattr(environments, "_interpreter", lambda *_: str(fake))
    with pytest.raises(EnvironmentFailure, match="cannot be installed: ERROR: No matching") as caught:
        ensure("ghost", folder, Needs("ghost==1.0\n"))
    assert caught.value.contender == "ghost"
    assert [path for path in folder.iterdir() if path.is_dir()] == []


@pytest.mark.slow
def test_an_environment_is_made_once_and_has_only_what_is_required(tmp_path: Path) -> None:
    python = ensure("ghost", tmp_path, Needs("# nothing\n"))
    assert ensure("ghost", tmp_path, Needs("# nothing\n")) == python
    assert subprocess.run([python, "-c", "import numpy"], capture_output=True, check=False).returncode != 0


def test_a_contender_without_environment_is_a_line_of_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "contenders"
    folder.mkdir()
    (folder / "ghost.py").write_text("")
    (folder / "ghost.txt").write_text("# python: 2.0\nghost==1.0\n")
    monkeypatch.setattr(environments, "CONTENDERS", folder)
    plan = Plan(
        cases=chosen(["jpeg-uint8", "bytes"], 0),
        contenders=("ghost",),
        rounds=1,
        seconds=0.1,
        sweep=False,
        install=True,
        cores=(0,),
        photos=None,
        scratch=tmp_path / "scratch",
        environments=tmp_path / "environments",
    )
    log = Log(tmp_path / "log.jsonl")
    log.add("run", cases=["jpeg-uint8", "bytes"])
    Runner(plan, log).run()
    log.close()
    write_report(log.records, tmp_path)
    text = (tmp_path / "report.md").read_text()
    assert text.count("failed, environment: needs Python 2.0") == 2
