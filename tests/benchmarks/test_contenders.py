"""Tests of the contenders' files, read from their source because their packages are absent here."""

from __future__ import annotations

import ast
import dataclasses
import io
import random
import re
import sys
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image

from benchmarks.cases import CASES
from benchmarks.contenders import opencv, pillow
from benchmarks.environments import CONTENDERS, names, read_needs
from tests.cases import with_cases

OWN = {"aioloader", "bare_loop"}  # they may import this project
SHARED = {
    "benchmarks.cases",
    "benchmarks.contenders",
    "benchmarks.contenders.batches",
    "benchmarks.contenders.contract",
    "benchmarks.contenders.format_files",
    "benchmarks.contenders.opencv",
    "benchmarks.contenders.pillow",
    "benchmarks.contenders.record_iter",
    "benchmarks.contenders.torchvision_v2",
}
PEERS = sorted(set(names()) - OWN)


def imports_of(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            found.add(node.module or "")
    return found


@with_cases("name", [*PEERS, "batches", "format_files", "opencv", "contract", "record_iter"])
def test_a_peer_never_imports_this_project_but_for_the_contract(name: str) -> None:
    own = {
        module
        for module in imports_of(CONTENDERS / f"{name}.py")
        if module.split(".")[0] in {"aioloader", "recordio"}
    }
    ours = {module for module in imports_of(CONTENDERS / f"{name}.py") if module.startswith("benchmarks")}
    assert not own
    assert ours <= SHARED


@with_cases("name", names())
def test_a_contender_defines_what_the_contract_names(name: str) -> None:
    defined = set()
    for node in ast.parse((CONTENDERS / f"{name}.py").read_text()).body:
        if isinstance(node, ast.FunctionDef):
            defined.add(node.name)
        elif isinstance(node, ast.Assign):
            defined |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    assert {"VARIANTS", "PACKAGES", "supports", "settings", "open_batches"} <= defined


@with_cases("name", PEERS)
def test_every_requirement_of_a_peer_is_pinned(name: str) -> None:
    needs = read_needs(CONTENDERS / f"{name}.txt")
    assert needs.own_interpreter
    lines = [line for line in needs.text.splitlines() if line and not line.startswith("#")]
    assert lines
    assert all(re.fullmatch(r"[A-Za-z0-9_.-]+==[0-9A-Za-z.+]+", line) for line in lines), lines


@with_cases("name", PEERS)
def test_what_a_peer_imports_is_required_or_comes_with_python(name: str) -> None:
    distributions = {
        "tensorflow": "tensorflow-cpu",
        "cv2": "opencv",
        "nvidia": "nvidia-dali",
        "wds2idx": "nvidia-dali",
        "PIL": "pillow",
    }
    needs = read_needs(CONTENDERS / f"{name}.txt").text
    for module in imports_of(CONTENDERS / f"{name}.py") - SHARED:
        top = module.split(".")[0]
        if top not in sys.stdlib_module_names:
            assert distributions.get(top, top) in needs, top


@pytest.mark.parametrize("name", ["jpeg-antialias", "jpeg-uint8"])
def test_peers_that_leave_resizing_to_the_caller_do_it_as_the_case_says(name: str) -> None:
    """Thin lines: a filter that skips pixels leaves black and white, one that averages makes them grey."""
    lines = np.zeros((900, 900, 3), np.uint8)
    lines[::2] = 255
    jpeg = cv2.imencode(".jpg", lines, [cv2.IMWRITE_JPEG_QUALITY, 100])[1].tobytes()
    case = dataclasses.replace(CASES[name], crop="centre", flip=False)
    spread = float(opencv.make_image(case, jpeg, random).std())
    assert (spread < 20) == case.antialias
    with Image.open(io.BytesIO(jpeg)) as opened:
        assert float(pillow.make_image(case, opened).std()) < 20  # Pillow's resize always antialiases
