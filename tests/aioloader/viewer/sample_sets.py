"""Sets of samples for the viewer's tests, in every format: usual ones, hostile ones and incomplete ones."""

from __future__ import annotations

import shutil
import tarfile
from dataclasses import replace
from pathlib import Path

from tests.aioloader.datasets.tars import write_tar
from tests.aioloader.format_sets import (
    FORMATS,
    PARQUET,
    TAR,
    TFRECORD,
    Sample,
    SetFormat,
    damage,
    is_readable,
    write_parquet,
    write_tfrecord,
)
from tests.aioloader.viewer.sets import EVIL, jpeg

META = {"box": [1, 2.5, 30, 40], "tags": [EVIL, "b"], "author": {"name": EVIL, "age": None}}
COUNT = 60
BAD = 25
"""Number of the damaged sample of the sets named "damaged-FORMAT"."""


def sample(number: int) -> Sample:
    """Return a sample with all parts; its labels are 0, 1 and 2 in turn."""
    return Sample(
        key=f"{number:04}",
        image=jpeg(number),
        label=number % 3,
        text=f"Caption {number} {EVIL}",
        json=META,
        second=jpeg(number + 100, 50, 50),
        data=bytes(range(40)),
    )


def write_sample_sets(root: Path) -> None:
    """Write the sets into a folder: those of 60 samples in three shards are named after their format."""
    samples = [sample(number) for number in range(COUNT)]
    for made in (param.values[0] for param in FORMATS):
        assert isinstance(made, SetFormat)
        if is_readable(made):
            made.write(root / made.name, samples)
            shutil.copytree(root / made.name, root / f"damaged-{made.name}")
            damage(root / f"damaged-{made.name}", jpeg(BAD))
            texts = [replace(each, image=None, second=None) for each in samples[:3]]
            made.write(root / f"texts-{made.name}", texts)
            # JSON may be the label of a sample in a tar.
            unlabelled = [replace(each, label=None, json=None) for each in samples[:3]]
            made.write(root / f"unlabelled-{made.name}", unlabelled)
    if is_readable(TAR):
        _write_tars(root)
    if is_readable(TFRECORD):
        frames = [jpeg(200, 40, 40), jpeg(201, 40, 40), jpeg(202, 40, 40)]
        features = {"image/encoded": frames[:1], "image/class/label": [1], "frames": frames}
        numbers = {"boxes": [0.25, 0.5, 1.0, 1e9], "many": list(range(-5, 1000)), "none": []}
        write_tfrecord(root / "lists.tfrecord", [{**features, **numbers, EVIL: [b"text", b"\xff\0"]}])
    if is_readable(PARQUET):
        columns = {
            "image": [jpeg(number) for number in range(6)],
            "label": [number % 3 for number in range(6)],
            "scores": [[0.5, number / 2] for number in range(6)],
            "caption": ["a", None, EVIL, "", "\u202e", "x" * 100_000],
        }
        write_parquet(root / "named.parquet", columns, classes=[EVIL, "second", "third"])


def _write_tars(root: Path) -> None:
    plain = EVIL.replace("/", "")
    hostile = [
        (f"{plain}a.jpg", jpeg(1)),
        (f"{plain}a.cls", b"1"),
        (f"{plain}a.json", b'{"a":' * 50_000),
        (f"{plain}b.jpg", jpeg(1)),
        (f"{plain}b.txt", b"<script>x</script>" * 100_000),
        (f"{plain}c.jpg", jpeg(1)),
        (f"{plain}c.cls", b"<script>"),
        (f"{plain}c.html", b"<html><script>alert(1)</script>"),
        (f"{plain}d.jpg", jpeg(1)),
        (f"{plain}d.svg", b"<svg xmlns='http://www.w3.org/2000/svg' onload='alert(1)'/>"),
        (f"{plain}e.jpg", jpeg(1)),
        (f"{plain}e.cls", b"2"),
        (f"{plain}e.txt", b"\xff\0\x1b" + "\u202e".encode()),
        ("../../../../etc/passwd.jpg", jpeg(1)),
        ("/etc/passwd.txt", b"x"),
    ]
    write_tar(root / "hostile.tar", hostile, tarfile.PAX_FORMAT)
    keys = ["a b", "\u00fc\u4e2d", "x" * 90, "100%25", "a&b=c?d#e", "q'\"<>", "deep/er/key", "line\nline"]
    members = [(f"{key}.{name}", body) for key in keys for name, body in (("jpg", jpeg(2)), ("cls", b"7"))]
    write_tar(root / "keys.tar", members, tarfile.PAX_FORMAT)
