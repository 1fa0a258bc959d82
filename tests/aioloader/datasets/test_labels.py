"""Tests of labels that datasets return without making samples."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aioloader
import recordio


def test_labels_of_datasets_and_views(photo_folder: Path, photo_rec: Path) -> None:
    folder = aioloader.ImageFolderDataset(photo_folder)
    records = aioloader.ImageRecordDataset(photo_rec)
    expected = [label for _, label in folder.items]
    assert folder.labels().tolist() == records.labels().tolist() == expected
    assert records.labels().dtype == np.int64
    assert records.transform_first(len).take(5).labels().tolist() == expected[:5]
    entries = [[label, path] for label, (path, _) in zip((3.5, 2), folder.items, strict=False)]
    listed = aioloader.ImageListDataset("/", [[label, path.lstrip("/")] for label, path in entries])
    assert listed.labels().tolist() == [3.5, 2]
    assert aioloader.ArrayDataset(np.zeros((3, 2)), [4, 5, 6]).labels().tolist() == [4, 5, 6]


def test_labels_that_are_unknown(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match=r"SimpleDataset has no labels\(\)"):
        aioloader.SimpleDataset([1, 2]).transform(abs).labels()
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        writer.write(recordio.pack(recordio.IRHeader(0, [1.0, 2.0], 0, 0), b""), 7)
    with pytest.raises(ValueError, match="key 7 has no single label"):
        aioloader.ImageRecordDataset(tmp_path / "a.rec").labels()
    with pytest.raises(ValueError, match="2 labels each"):
        aioloader.ImageListDataset(tmp_path, [[1, 2, "a.jpg"]]).labels()
