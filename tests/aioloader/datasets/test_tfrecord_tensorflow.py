"""Tests of TFRecord files that TensorFlow wrote: the values are those that it reads.

The files in tests/data/tfrecord are read in every run. A test of new files needs an interpreter with TensorFlow: the
one that the variable AIOLOADER_TEST_TENSORFLOW names, or that of the benchmarks' environment for tf.data.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import TFRecordDataset
from aioloader.errors import SampleFormatError
from benchmarks.environments import default_folder
from tests.conftest import DATA

GOLDEN = DATA / "tfrecord"


def plain(value: Any) -> list[Any]:
    """Return a value as expected.json has it: its kind and its values."""
    if isinstance(value, (bytes, list)):
        values = [value] if isinstance(value, bytes) else value
        return ["bytes", [base64.b64encode(each).decode() for each in values]]
    array = np.atleast_1d(value)
    if array.dtype == np.float32:
        return ["float32", array.astype("<f4").tobytes().hex()]
    return [array.dtype.name, array.tolist()]


def check_files(folder: Path) -> None:
    """Fail unless all samples have the values that TensorFlow reads, together and one feature at a time."""
    expected = json.loads((folder / "expected.json").read_text())
    path = folder / "examples.tfrecord"
    dataset = TFRecordDataset(path, image="no image", fields="any")
    assert len(dataset) == len(expected)
    data = path.read_bytes()
    for row, sample in enumerate(expected):
        location = dataset.location(row)
        assert location.offset is not None
        record = memoryview(data)[location.offset : location.offset + int(dataset.tables.length[row])]
        assert set(dataset.reader.names(record, None, location)) == set(sample)
        names = tuple(sample)
        found = dataset.reader.read(record, None, location, names)
        assert dict(zip(names, map(plain, found), strict=True)) == sample
        for name in names:
            (value,) = dataset.reader.read(record, None, location, (name,))
            assert plain(value) == sample[name]
    row = max(range(len(expected)), key=lambda row: len(expected[row]))
    found = TFRecordDataset(path, image="no image", fields=tuple(expected[row]))[row]
    assert {name: plain(value) for name, value in found.items()} == expected[row]


def check_crcs(folder: Path) -> None:
    """Fail if the checksums of TensorFlow are not those that are expected."""
    pytest.importorskip("google_crc32c", reason="needs google-crc32c")
    assert list(TFRecordDataset(folder / "examples.tfrecord").check_shard(0)) == []


def check_compressed(folder: Path) -> None:
    """Fail unless files that TensorFlow compressed are refused."""
    for kind in ("gzip", "zlib"):
        with pytest.raises(SampleFormatError, match=rf"compressed as a whole \({kind.upper()}\)"):
            len(TFRecordDataset(folder / f"{kind}.tfrecord"))


def test_files_of_tensorflow_have_the_values_that_it_reads() -> None:
    check_files(GOLDEN)
    check_compressed(GOLDEN)


def test_checksums_are_those_of_tensorflow() -> None:
    check_crcs(GOLDEN)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(2))
def test_new_files_of_tensorflow_have_the_values_that_it_reads(tmp_path: Path, seed: int) -> None:
    python = os.environ.get("AIOLOADER_TEST_TENSORFLOW") or next(
        map(str, default_folder().glob("tf_data-*/bin/python")), None
    )
    if python is None:
        pytest.skip("needs AIOLOADER_TEST_TENSORFLOW, a Python with TensorFlow")
    command = [
        python,
        GOLDEN / "make.py",
        tmp_path,
        os.environ.get("AIOLOADER_TEST_RECORDS", "1000"),
        str(seed),
    ]
    subprocess.run(command, check=True, capture_output=True)
    check_files(tmp_path)
    check_crcs(tmp_path)
    check_compressed(tmp_path)
