"""Tests of libraries and scripts that import MXNet, with one changed import, against MXNet 1.9.1.

The environment variables name what is never part of this repository:

- AIOLOADER_TEST_CLIENTS: a folder with the clients' code, in sub-folders by the names in `runs.RUNS` ("gluoncv-0.5" has
  `gluoncv`, "insightface" `recognition`, "insightface-2019" the tree of spring 2019, "mxnet-1.9.1" `example`).
- AIOLOADER_TEST_MXNET: a Python with MXNet 1.9.1, whose results are compared; without it the runs must only succeed.
- AIOLOADER_TEST_CLIENTS_PATH: a further folder for imports, with packages that the clients need.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.aioloader.mxnet.clients import made_data, runs

CLIENTS = os.environ.get("AIOLOADER_TEST_CLIENTS", "")
MXNET = os.environ.get("AIOLOADER_TEST_MXNET", "")
ROOT = Path(__file__).parents[4]

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CLIENTS, reason="AIOLOADER_TEST_CLIENTS names no folder with the clients' code"),
]
# Images that are resized bicubically, some by chance: OpenCV's versions differ by 1 in 255, which is 0.0175 in units of
# the deviation.
BICUBIC = ("DetIter.train", "imresize2", "imresize9", "resize_long", "resize_short", "load_test", "load_bin")


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("data")
    made_data.make(folder)
    return folder


# Every process of a client begins with this: names that Python and numpy have removed since the client was written, and
# no torch, which GluonCV refuses in a version of today and can do without.
PREPARED = """
import builtins, sys
import numpy as np
import numpy.lib

builtins.xrange = range
for name, value in {"bool": bool, "int": int, "float": float, "object": object}.items():
    if name not in vars(np):
        setattr(np, name, value)
numpy.lib.pad = np.pad

class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("torch", "torchvision", "autogluon"):
            raise ModuleNotFoundError("hidden", name=name)

if HIDDEN:
    sys.meta_path.insert(0, Absent())
"""


def run(python: str, kind: str, name: str, data: Path, folder: Path) -> dict[str, np.ndarray[Any, Any]]:
    folder.mkdir()
    out = folder / "seen.npz"
    (folder / "sitecustomize.py").write_text(f"HIDDEN = {'gluoncv' in name}\n{PREPARED}")
    path = [str(folder)]
    if kind == "aioloader":
        path += [str(ROOT), os.environ.get("AIOLOADER_TEST_CLIENTS_PATH", "")]
    done = subprocess.run(
        [python, str(Path(runs.__file__)), name, kind, CLIENTS, str(data), str(out)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, path)), "PYTHONDONTWRITEBYTECODE": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-6000:]
    with np.load(out) as found:
        return {key: found[key] for key in found.files}


def difference(name: str, here: Any, there: Any) -> str | None:
    """Return how two arrays differ, or None if they are equal but for the last bits of floats."""
    if (here.shape, here.dtype.kind) != (there.shape, there.dtype.kind):
        return f"{here.dtype}{here.shape} and {there.dtype}{there.shape}"
    if here.dtype.kind not in "fiu":
        return None if np.array_equal(here, there) else f"{here} and {there}"
    if not here.size:
        return None
    apart = np.abs(here.astype(float) - there.astype(float)).max()
    # Sums of products of pixels up to 255 in another order, which normalising divides by 255 and a deviation of 0.22.
    allowed = max(2.3e-5, 5e-6 * np.abs(there).max()) if here.dtype.kind == "f" else 0
    if any(each in name for each in BICUBIC):
        allowed = 0.0176 if np.abs(there).max() < 10 else 1
    return None if apart <= allowed else f"up to {apart:.3g}"


@pytest.mark.parametrize("name", runs.RUNS)
def test_the_client_returns_what_it_returns_with_mxnet(name: str, data: Path, tmp_path: Path) -> None:
    if not (Path(CLIENTS) / runs.RUNS[name][1]).is_dir():
        pytest.skip(f"{CLIENTS} has no {runs.RUNS[name][1]}")
    here = run(sys.executable, "aioloader", name, data, tmp_path / "here")
    assert here
    if not MXNET:
        return
    there = run(MXNET, "mxnet", name, data, tmp_path / "there")
    assert here.keys() == there.keys()
    different = {key: difference(key, here[key], there[key]) for key in here}
    assert {key: each for key, each in different.items() if each} == {}
