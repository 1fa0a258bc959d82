"""Tests that run the guides to torch and Ray unchanged, block after block, and the program that a guide names."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aioloader.cluster import local_cluster

ROOT = Path(__file__).parents[3]


def run(*arguments, **variables):
    """Run a Python program in a separate process; return its output."""
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, "PYTHONPATH": str(ROOT), **variables},
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture
def guide(photo_rec, tmp_path, monkeypatch):
    """Return `guide(name)`: writes a program of a page's Python blocks to the working directory, next to its data."""
    monkeypatch.chdir(tmp_path)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, f"train{path.suffix}")

    def make(name):
        text = (ROOT / "docs" / name).read_text(encoding="utf-8")
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) > 1
        program = tmp_path / "guide.py"
        program.write_text("\n".join(blocks), encoding="utf-8")
        return program

    return make


@pytest.mark.torch
def test_the_guide_to_torch(guide):
    pytest.importorskip("torch")
    run(guide("torch.md"))


@pytest.mark.jax
def test_the_guide_to_jax(guide):
    pytest.importorskip("jax")
    run(guide("jax.md"))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_guide_to_ray(guide):
    # Workers have the working directory in which their cluster was started, which holds the data.
    with local_cluster() as cluster:
        run(guide("ray.md"), RAY_ADDRESS=cluster.address)


@pytest.mark.ray
@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_example_with_ray_train(photo_rec, tmp_path):
    pytest.importorskip("torch")
    pytest.importorskip("ray.train.torch", reason="needs Ray Train: pip install 'ray[train]'")
    program = ROOT / "examples" / "ray_train.py"
    options = ["--classes", 5, "--batch", 4, "--epochs", 1]
    with local_cluster() as cluster:
        assert "last epoch" in run(program, photo_rec, tmp_path, *options, RAY_ADDRESS=cluster.address)
