"""Tests with a set of 10,000 faces of 500 identities: the loader's labels and count, and the guide's script."""

from __future__ import annotations

import os
import pickle
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import recordio
from tests.aioloader.datasets.faces import numbers_record, write_records

ROOT = Path(__file__).parents[3]
IMAGES, IDENTITIES = 10_000, 500


def crop_of(identity: int) -> bytes:
    """Return a JPEG of 112 x 112 pixels, in the colour of its identity."""
    import simplejpeg

    colour = [16 + 32 * (identity // step % 8) for step in (64, 8, 1)]
    return simplejpeg.encode_jpeg(
        np.full((112, 112, 3), colour, np.uint8), quality=90, colorsubsampling="444"
    )


@pytest.fixture(scope="module")
def faces(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write the set; identities have 10 to 30 images, and each record has its own id."""
    folder = tmp_path_factory.mktemp("insightface") / "faces"
    folder.mkdir()
    counts = [10 + identity * 7 % 21 for identity in range(IDENTITIES // 2)]
    counts += [40 - count for count in counts]
    assert (sum(counts), len(counts)) == (IMAGES, IDENTITIES)
    assert min(counts) >= 10
    stops = 1 + np.cumsum(counts)

    def records() -> object:
        yield 0, numbers_record(IMAGES + 1, IMAGES + 1 + IDENTITIES, 0)
        key = 1
        for identity, count in enumerate(counts):
            body = crop_of(identity)
            for _ in range(count):
                yield key, recordio.pack(recordio.IRHeader(0, float(identity), key, 0), body)
                key += 1
        for identity, stop in enumerate(stops.tolist()):
            key = IMAGES + 1 + identity
            yield key, numbers_record(stop - counts[identity], stop, key)

    write_records(folder / "train", records())
    (folder / "property").write_text(f"{IDENTITIES},112,112\n")
    pairs = [crop_of(identity // 2) for identity in range(64)]
    (folder / "lfw.bin").write_bytes(pickle.dumps((pairs, [True] * 32)))
    return folder


@pytest.mark.torch
def test_the_script_of_the_guide(faces: Path, tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "faces").symlink_to(faces)
    text = (ROOT / "docs" / "migrating-from-mxnet.md").read_text(encoding="utf-8")
    blocks = re.findall(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert len(blocks) == 7
    # The results of each block are checked after it.
    told = f"""
assert (len(faces), faces.num_classes, faces.image_size, label) == ({IMAGES}, {IDENTITIES}, (112, 112), 0)
assert image.shape == (112, 112, 3)
"""
    swapped = """
seen = []
for images, labels in torch.utils.data.DataLoader(train_set, batch_size=125, shuffle=True, num_workers=2):
    assert images.dtype == torch.float32 and images.shape == (125, 3, 112, 112)
    assert labels.dtype == torch.int64
    colours = torch.round(((images[:, :, 50, 50] + 1) * 127.5 - 16) / 32).to(torch.int64)
    assert torch.equal(colours[:, 0] * 64 + colours[:, 1] * 8 + colours[:, 2], labels)
    seen += labels.tolist()
assert sorted(seen) == faces.labels().tolist()
"""
    own = """
assert isinstance(images, torch.Tensor) and images.shape == (128, 3, 112, 112) and labels.shape == (128,)
"""
    sampled = """
assert len(set(labels.tolist())) == 32 and len(labels) == 128
assert len(rare_left_out) == len(often) == len(faces)
"""
    checked = """
assert images.shape == (64, 3, 112, 112) and images.dtype == "float32" and same.tolist() == [True] * 32
"""
    program = tmp_path / "guide.py"
    checks = ["", "", told, swapped, own, sampled, checked]
    program.write_text("\n".join(part for pair in zip(blocks, checks, strict=True) for part in pair))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "AIOLOADER_CACHE_DIR": str(tmp_path / "cache")}
    environment["OMP_NUM_THREADS"] = "1"  # more workers do not speed up collating
    done = subprocess.run(
        [sys.executable, str(program)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
        cwd=tmp_path,
        env=environment,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout == f"{IMAGES} {IDENTITIES} (112, 112)\n"
