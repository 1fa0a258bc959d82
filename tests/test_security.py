"""Tests of promises of `SECURITY.md` without other tests: no data file is unpickled, and bombs take no memory."""

from __future__ import annotations

import ast
import re
import struct
import subprocess
import sys
import zlib
from functools import lru_cache
from pathlib import Path

import pytest

from tests.import_scan import PACKAGES, SOURCES, tree_of

ROOT = Path(__file__).parents[1]

# Modules that unpickle bytes: only between a process and its own child processes, and from files of the same user.
ALLOWED = {
    "executors/transport.py",
    "interop/torch/_items.py",
    "interop/torch/_samples.py",
    "interop/torch/_streams.py",
    "executors/ray/worker.py",
    "executors/process/messages.py",
    "executors/process/worker.py",
    "mxnet/gluon/data/_multiprocessing.py",
    "storage/cache/samples.py",
}
UNSAFE = {
    *(
        f"{module}.{name}"
        for module in ("pickle", "cloudpickle", "marshal", "dill")
        for name in ("load", "loads")
    ),
    "pickle.Unpickler",
    "ForkingPickler.loads",
    "shelve.open",
    "np.load",
    "numpy.load",
    "eval",
    "exec",
    "yaml.load",
}
MARKS = re.compile("|".join(rf"\b{name.rpartition('.')[2]}\b" for name in {*UNSAFE, "allow_pickle"}))
"""The last words of these names, without one of which a text has none of them."""


def test_no_data_is_ever_unpickled() -> None:
    found = set()
    for module, path in SOURCES.items():
        if not MARKS.search(path.read_text(encoding="utf-8")):  # parsing is what takes time
            continue
        name = path.relative_to(PACKAGES / path.relative_to(PACKAGES).parts[0]).as_posix()
        for node in ast.walk(tree_of(module)):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in UNSAFE:
                found.add(name)
            if isinstance(node, ast.ClassDef) and UNSAFE & set(map(ast.unparse, node.bases)):
                found.add(name)
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                found.add(f"{path}: allow_pickle")
    assert found == ALLOWED


def chunk(name: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))


ROWS = chunk(b"IDAT", zlib.compress(bytes(1 + 3 * 16) * 16, 9))


def png(width: int, height: int, before: bytes = b"", pixels: bytes = ROWS) -> bytes:
    """Return a PNG of black pixels with any size in its header."""
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0))
    return b"\x89PNG\r\n\x1a\n" + head + before + pixels + chunk(b"IEND", b"")


@lru_cache
def bomb() -> bytes:
    """Return a quarter of a gigabyte of zeros, compressed."""
    packer = zlib.compressobj(9)
    piece = bytes(1 << 20)
    return b"".join(packer.compress(piece) for _ in range(256)) + packer.flush()


BOMBS = {
    "extents": lambda: png(60_000, 60_000),
    "text": lambda: png(16, 16, chunk(b"zTXt", b"Comment\0\0" + bomb())),
    "international text": lambda: png(16, 16, chunk(b"iTXt", b"Comment\0\1\0\0\0" + bomb())),
    "profile": lambda: png(16, 16, chunk(b"iCCP", b"profile\0\0" + bomb())),
    "pixels": lambda: png(16, 16, b"", chunk(b"IDAT", bomb())),
}

DECODE = """
import resource, sys
import cv2, numpy
from aioloader import DecodeError
from aioloader.transforms import decode_image
data = sys.stdin.buffer.read()
cv2.imdecode(numpy.frombuffer(data[:50], numpy.uint8), 1)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    shape = decode_image(data).shape
except DecodeError:
    shape = None
print(shape, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.parametrize("name", BOMBS)
def test_a_png_that_unpacks_to_a_quarter_of_a_gigabyte_takes_no_memory(name: str) -> None:
    data = BOMBS[name]()
    assert len(data) < 1 << 20
    done = subprocess.run(
        [sys.executable, "-c", DECODE], input=data, capture_output=True, check=True, cwd=ROOT
    )
    shape, _, kilobytes = done.stdout.decode().strip().rpartition(" ")
    assert shape in ("None", "(16, 16, 3)")
    assert int(kilobytes) < 64 << 10
