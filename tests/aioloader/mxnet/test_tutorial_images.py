"""Tests of the image section of MXNet's tutorial on data iterators, and the walkthrough of its data loading page.

Only import lines and the name of the im2rec program differ; images are drawn, and measured instead of shown.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx

IM2REC = f"{sys.executable} -m aioloader.tools.im2rec"


@pytest.fixture(autouse=True)
def _in_a_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def caltech(photo_folder: Path) -> Path:
    """Make the folder of the tutorial's images."""
    Path("data").mkdir()
    shutil.copytree(photo_folder, "data/101_ObjectCategories")
    return Path("data")


@pytest.mark.slow  # each program starts an interpreter
def test_folder_to_batches(caltech: Path) -> None:
    count = sum(path.suffix in (".jpg", ".png") for path in caltech.rglob("*"))
    switches = "--list=1 --recursive=1 --shuffle=1 --test-ratio=0.2"
    assert os.system(f"{IM2REC} {switches} data/caltech data/101_ObjectCategories") == 0
    lines = [line.split("\t") for line in Path("data/caltech.lst").read_text().splitlines()]
    assert sorted(int(line[0]) for line in lines) == list(range(count))
    assert all(len(line) == 3 and (caltech / "101_ObjectCategories" / line[2]).is_file() for line in lines)
    switches = "--num-thread=4 --pass-through=1"
    assert os.system(f"{IM2REC} {switches} data/caltech data/101_ObjectCategories") == 0
    labels = [float(line[1]) for line in lines]

    data_iter = mx.image.ImageIter(
        batch_size=4,
        data_shape=(3, 227, 227),
        path_imgrec="./data/caltech.rec",
        path_imgidx="./data/caltech.idx",
    )
    data_iter.reset()
    batch = data_iter.next()
    data = batch.data[0]
    for i in range(4):
        assert data[i].asnumpy().astype(np.uint8).transpose((1, 2, 0)).shape == (227, 227, 3)
    assert batch.label[0].asnumpy().tolist() == labels[:4]

    record_iter = mx.io.ImageRecordIter(
        path_imgrec="./data/caltech.rec",
        data_shape=(3, 227, 227),
        batch_size=4,
        resize=256,
    )
    record_iter.reset()
    batch = record_iter.next()
    data = batch.data[0]
    for i in range(4):
        assert data[i].asnumpy().astype(np.uint8).transpose((1, 2, 0)).std() > 5
    assert batch.label[0].asnumpy().tolist() == labels[:4]


@pytest.mark.slow
def test_several_labels_from_list_to_batch(caltech: Path) -> None:
    names = sorted(
        path.relative_to("data/101_ObjectCategories").as_posix() for path in caltech.rglob("*.jpg")
    )[:12]
    rows = [(key, [key, key + 0.5, -key, 7], name) for key, name in enumerate(names)]
    with open("image.lst", "w") as file:
        for key, labels, name in rows:
            file.write("\t".join(map(str, [key, *labels, name])) + "\n")
    command = [
        *IM2REC.split(),
        "image.lst",
        "data/101_ObjectCategories",
        "output.bin",
        "resize=64",
        "label_width=4",
    ]
    subprocess.run(command, check=True, capture_output=True)

    dataiter = mx.io.ImageRecordIter(
        path_imgrec="output.bin",
        data_shape=(3, 28, 28),
        path_imglist="image.lst",
        label_width=4,
        batch_size=4,
    )
    found = np.concatenate([batch.label[0].asnumpy() for batch in dataiter])
    assert found.tolist() == [labels for _, labels, _ in rows]
