"""Writer of the tars of this folder, with the package webdataset: `python make.py FOLDER`.

`expected.json` has the samples that the package itself reads and decodes.
"""

import base64
import hashlib
import io
import json
import pickle
import shutil
import sys
from pathlib import Path

import numpy as np
import webdataset
from PIL import Image

# Fields that this package decodes, and aioloader returns as bytes.
AS_BYTES = {"pyd", "npz", "bin", "html"}


def pixels_of(number: int) -> np.ndarray:
    """Return an image that differs by number: uint8 (6, 8, 3)."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[..., 0] = number * 40
    pixels[2, 3] = (250, 0, number)
    return pixels


def encoded(number: int, format: str) -> bytes:
    """Return the same image in a file format."""
    stream = io.BytesIO()
    Image.fromarray(pixels_of(number)).save(stream, format=format, quality=90)
    return stream.getvalue()


def sample_of(number: int) -> dict:
    """Return a sample with a field of every kind."""
    return {
        "__key__": f"train/{number:04}",
        "jpg": pixels_of(number),
        "seg.png": pixels_of(number)[..., 0],
        "next.jpeg": encoded(number + 1, "JPEG"),
        "ppm": pixels_of(number),
        "cls": number - 2,
        "id": 10**12 + number,
        "json": {"number": number, "list": [1, None, "ä"]},
        "box.json": [number, 2.5],
        "txt": "ä" * number,
        "npy": np.arange(number + 1, dtype=np.float32)[None],
        "pyd": pickle.dumps([number]),
        "html": f"<p>{number}</p>",
        "bin": bytes(range(number)),
    }


ODD = [
    {"__key__": "v1.0/a b/x", "png": pixels_of(0), "cls": 0},
    {"__key__": "v1.0/a b/ä", "png": pixels_of(1), "cls": 1, "txt": "umlaut"},
    {"__key__": "/abs/../up", "JPG": encoded(2, "JPEG"), "Cls": b" 2\n"},
    {"__key__": "n" * 120, "png": pixels_of(3), "cls": b"3"},
    {"__key__": "again", "cls": 4},
    {"__key__": "x" * 60 + "/" + "y" * 60, "a.b.json": {}, "c.cls": 5},
    {"__key__": "again", "cls": 6, "npy": np.array(2.5)},
    {"__key__": "empty", "txt": "", "bin": b""},
]


def plain(name: str, value: object) -> object:
    """Return a value that the package reads, as JSON."""
    if isinstance(value, np.ndarray) and name.rpartition(".")[2].lower() != "npy":
        exact = hashlib.sha256(value.tobytes()).hexdigest()
        return {"image": list(value.shape), "mean": round(float(value.mean()), 3), "sha256": exact}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    if isinstance(value, int):
        return {"number": value, "dtype": "int64"}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    return {"value": value}


def read(paths: list[str]) -> list[dict]:
    """Return the samples that the package reads."""
    raw = webdataset.WebDataset(paths, shardshuffle=False)
    decoded = webdataset.WebDataset(paths, shardshuffle=False).decode("rgb8")
    found = []
    for one, other in zip(raw, decoded, strict=True):
        names = [name for name in one if not name.startswith("__")]
        fields = {
            name: plain(name, (one if name.rpartition(".")[2] in AS_BYTES else other)[name])
            for name in names
        }
        found.append({"key": one["__key__"], "fields": fields})
    return found


def main() -> None:
    """Write the tars."""
    root = Path(sys.argv[1]).resolve()
    for name in ("shards", "times", "odd"):
        shutil.rmtree(root / name, ignore_errors=True)
        (root / name).mkdir(parents=True)
    with webdataset.ShardWriter(str(root / "shards" / "train-%06d.tar"), maxcount=3, mtime=0) as writer:
        for number in range(5):
            writer.write(sample_of(number))
    # A time with a fraction, which is the default, needs an extended header.
    with webdataset.TarWriter(str(root / "times" / "a.tar"), mtime=1.5) as writer:
        for number in range(3):
            writer.write({"__key__": f"{number}", "png": pixels_of(number), "cls": number})
    with webdataset.TarWriter(str(root / "odd" / "a.tar"), mtime=0) as writer:
        for sample in ODD:
            writer.write(sample)
    expected = {
        name: read(sorted(map(str, (root / name).glob("*.tar")))) for name in ("shards", "times", "odd")
    }
    (root / "expected.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
