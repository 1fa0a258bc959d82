"""Tests that run the guides to JAX and Ray unchanged, block after block, and the programs that guides show or name."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aioloader.tools.draw import draw_folder
from tests.aioloader.cluster import local_cluster
from tests.torchvision_import import import_torchvision

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
    """Return `guide(name)`: writes a program of the Python blocks of a section, next to its data."""
    monkeypatch.chdir(tmp_path)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        shutil.copy(path, f"train{path.suffix}")

    def make(name):
        page = (ROOT / "docs" / "jax-and-ray.md").read_text(encoding="utf-8")
        text = page.partition(f"\n## {name}\n")[2].partition("\n## ")[0]
        blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
        assert len(blocks) > 1
        program = tmp_path / "guide.py"
        program.write_text("\n".join(blocks), encoding="utf-8")
        return program

    return make


@pytest.fixture
def changed_script(tmp_path, monkeypatch):
    """Return `changed_script(sign)`: writes the script of the guide to torch as it is before ("-") or after ("+")."""
    monkeypatch.chdir(tmp_path)
    draw_folder("photos", count=24, classes=3)
    text = (ROOT / "docs" / "torch.md").read_text(encoding="utf-8")
    (diff,) = re.findall(r"^```diff\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)

    def make(sign):
        program = tmp_path / "train.py"
        lines = [line[1:] for line in diff.splitlines() if line[:1] in (" ", sign)]
        program.write_text("\n".join(lines), encoding="utf-8")
        return program

    return make


@pytest.mark.torch
def test_the_script_after_its_move_from_torch_goes_on_where_it_was_stopped(changed_script):
    pytest.importorskip("torch")
    program = changed_script("+")
    text = program.read_text(encoding="utf-8")
    save = '        torch.save(state, "checkpoint.pt")\n'
    assert save in text
    shown = "        print(epoch, state['loader']['consumed'], *labels.tolist())\n"
    program.write_text(text.replace(save, save + shown), encoding="utf-8")
    whole = run(program).splitlines()
    assert [line[:4] for line in whole] == ["0 8 ", "0 16", "0 24", "epoc", "1 8 ", "1 16", "1 24", "epoc"]
    assert run(program).splitlines() == whole[-1:], "the finished script has nothing left to do"
    Path("checkpoint.pt").unlink()
    stopped = program.with_name("stopped.py")
    stop = "        if state['loader']['consumed'] == 16: raise SystemExit\n"
    stopped.write_text(text.replace(save, save + shown + stop), encoding="utf-8")
    assert run(stopped).splitlines() == whole[:2]
    assert run(program).splitlines() == whole[2:]


@pytest.mark.torch
def test_the_script_before_its_move_from_torch(changed_script):
    pytest.importorskip("torch")
    import_torchvision()
    first = "from tests.torchvision_import import import_torchvision; import_torchvision()"
    output = run(
        "-c", f"{first}\nimport runpy\nrunpy.run_path({str(changed_script('-'))!r}, run_name='__main__')"
    )
    assert output.splitlines() == ["epoch 0 is done", "epoch 1 is done"]


@pytest.mark.jax
def test_the_guide_to_jax(guide):
    pytest.importorskip("jax")
    run(guide("JAX"))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_the_guide_to_ray(guide):
    # Workers have the working directory in which their cluster was started, which holds the data.
    with local_cluster() as cluster:
        run(guide("Ray"), RAY_ADDRESS=cluster.address)


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
