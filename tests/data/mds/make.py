"""Writer of the MDS sets of this folder, with the package mosaicml-streaming: `python make.py FOLDER`.

Every encoding that the package has is in them but `pkl`. `expected.json` has the values that the package itself reads.
"""

import base64
import io
import json
import shutil
import sys
from decimal import Decimal
from pathlib import Path

import numpy as np
from PIL import Image
from streaming import MDSWriter, StreamingDataset

COLUMNS = {
    "bytes": "bytes",
    "str": "str",
    "int": "int",
    "json": "json",
    "str_int": "str_int",
    "str_float": "str_float",
    "str_decimal": "str_decimal",
    **{name: name for name in ("uint8", "uint16", "uint32", "uint64", "int8", "int16", "int32", "int64")},
    **{name: name for name in ("float16", "float32", "float64")},
    "array": "ndarray",
    "array_of_dtype": "ndarray:float32",
    "array_of_shape": "ndarray:int16:2,3",
    "image": "jpeg",
    "png": "png",
    "pil": "pil",
    "jpegs": "list[jpeg]",
    "pngs": "list[png]",
    "pils": "list[pil]",
    "jpegarray": "jpegarray",
}
COUNT = 5


def image_of(number: int, mode: str = "RGB") -> Image.Image:
    """Return an image that differs by number."""
    pixels = np.zeros((6, 8, 3), np.uint8)
    pixels[..., 0] = number * 40
    pixels[2, 3] = (250, 0, number)
    return Image.fromarray(pixels).convert(mode)


def jpeg_of(number: int) -> bytes:
    """Return the same image as a JPEG."""
    stream = io.BytesIO()
    image_of(number).save(stream, format="JPEG", quality=90)
    return stream.getvalue()


def sample_of(number: int) -> dict:
    """Return a sample."""
    return {
        "bytes": bytes(range(number)),
        "str": "ä" * number,
        "int": number - 2,
        "json": {"number": number, "list": [1, None, "x"]},
        "str_int": 10**20 + number,
        "str_float": number / 8,
        "str_decimal": Decimal(number) / 10,
        **{name: number for name in ("uint8", "uint16", "uint32", "uint64")},
        **{name: -number for name in ("int8", "int16", "int32", "int64")},
        **{name: number / 4 for name in ("float16", "float32", "float64")},
        "array": np.arange(number + 1, dtype=np.uint16)[None],
        "array_of_dtype": np.full((2, number + 1), number, np.float32),
        "array_of_shape": np.full((2, 3), number, np.int16),
        "image": image_of(number),
        "png": image_of(number, "L" if number % 2 else "RGB"),
        "pil": image_of(number, ("RGB", "L", "RGBA", "LA", "1")[number]),
        "jpegs": [image_of(each) for each in range(number)],
        "pngs": [image_of(each) for each in range(number)],
        "pils": [image_of(each) for each in range(number)],
        "jpegarray": [jpeg_of(each) for each in range(number + 1)],
    }


def plain(value: object) -> object:
    """Return a value that the package reads, as JSON."""
    if isinstance(value, Image.Image):
        pixels = np.asarray(value.convert("L" if value.mode in ("LA", "1", "L") else "RGB"))
        return {"image": list(pixels.shape[:2]), "mean": round(float(pixels.mean()), 3)}
    if isinstance(value, np.ndarray):
        return {"array": value.tolist(), "dtype": value.dtype.name}
    if isinstance(value, np.generic):
        return {"number": value.item(), "dtype": value.dtype.name}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, Decimal):
        return {"decimal": str(value)}
    if isinstance(value, list) and value and isinstance(value[0], Image.Image):
        return [plain(each) for each in value]
    return {"value": value}


def main() -> None:
    """Write the sets."""
    root = Path(sys.argv[1]).resolve()
    for name, compression in (("plain", None), ("zstd", "zstd:3")):
        shutil.rmtree(root / name, ignore_errors=True)
        with MDSWriter(
            out=str(root / name),
            columns=COLUMNS,
            compression=compression,
            hashes=["sha1", "xxh64"],
            size_limit=6000,
        ) as writer:
            for number in range(COUNT):
                writer.write(sample_of(number))
    copy = root / "read"
    shutil.copytree(root / "plain", copy)
    dataset = StreamingDataset(local=str(copy), shuffle=False, batch_size=1)
    expected = [{key: plain(value) for key, value in dataset[number].items()} for number in range(COUNT)]
    shutil.rmtree(copy)
    (root / "expected.json").write_text(json.dumps(expected, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
