"""Tests of what is imported when: by a worker process, and by a loader between its making and its first batch."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest

from tests.aioloader.datasets.parquet_files import write_images

if TYPE_CHECKING:
    from pathlib import Path

DATASET = """
import sys
import numpy as np
import aioloader

class Loaded(aioloader.Dataset):
    def __len__(self):
        return 1

    def __getitem__(self, index):
        return np.frombuffer(" ".join(name for name in sys.modules).encode(), np.uint8)
"""

WORKER = """
import json
import aioloader
from mine import Loaded

if __name__ == "__main__":
    with aioloader.DataLoader(Loaded(), 1, num_workers=1) as loader:
        for batch in loader:
            print(json.dumps(batch.tobytes().decode().split()))
"""

FIRST_BATCH = """
import asyncio, json, os, sys
import aioloader
from aioloader import transforms

async def main(executor, path):
    chain = transforms.Compose([transforms.RandomResizedCrop(8), transforms.RandomHorizontalFlip()])
    dataset = aioloader.ImageRecordDataset(path).transform_first(chain)
    workers = {"num_workers": 1} if executor == "process" else {}
    loader = aioloader.AsyncDataLoader(dataset, 2, shuffle=True, executor=executor, **workers)
    before = set(sys.modules)
    async with loader:
        async for _ in loader:
            break
    needless = {name for name in sys.modules if name.startswith("aioloader.transforms.boxes")}
    return [name for name in set(sys.modules) - before | needless if name.startswith("aioloader")]

if __name__ == "__main__":
    told = {}
    for executor in ("inline", "thread", "process", "auto"):
        # Each in a process of its own, which has imported no more than this one.
        read, write = os.pipe()
        if os.fork() == 0:
            os.write(write, json.dumps(asyncio.run(main(executor, sys.argv[1]))).encode())
            os._exit(0)
        os.close(write)
        told[executor] = json.loads(os.read(read, 100_000))
        os.wait()
    print(json.dumps(told))
"""

FIRST_ROW = """
import json, sys
import aioloader, pyarrow.parquet

dataset = aioloader.ParquetDataset(sys.argv[1])
before = set(sys.modules)
dataset[0]
print(json.dumps(sorted({*sys.modules} - before)))
"""


def run(folder: Path, code: str, *arguments: object) -> Any:
    (folder / "program.py").write_text(code, encoding="utf-8")
    command = [sys.executable, "program.py", *map(str, arguments)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_worker_whose_dataset_imports_the_package_loads_few_modules(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(DATASET, encoding="utf-8")
    modules = run(tmp_path, WORKER)
    own = [name for name in modules if name.partition(".")[0] == "aioloader"]
    assert "aioloader.datasets.base" in own
    assert len(own) <= 60, sorted(own)


def test_a_loader_imports_what_it_needs_when_it_is_made(photo_rec: Path, tmp_path: Path) -> None:
    # Not for its first batch: an import would block the event loop.
    assert run(tmp_path, FIRST_BATCH, photo_rec) == {
        executor: [] for executor in ("inline", "thread", "process", "auto")
    }


def test_rows_are_read_without_the_rest_of_pyarrow(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow", reason="pip install 'aioloader[parquet]'")
    # Importing pandas and pyarrow.compute takes longer than reading a row group.
    modules = run(tmp_path, FIRST_ROW, write_images(tmp_path / "a.parquet", 0, 4))
    assert not {"numpy.ma", "pandas", "pyarrow.compute"} & {*modules}
