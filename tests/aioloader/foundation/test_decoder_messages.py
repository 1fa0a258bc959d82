"""Tests of what libpng, OpenJPEG and OpenCV print while they decode: it names the file, once, or is in the error."""

from __future__ import annotations

import io
import os
import struct
import subprocess
import sys
import zlib
from typing import TYPE_CHECKING, Any

import pytest

import aioloader
from aioloader.errors import DecodeError
from aioloader.foundation.decodes import DecoderMessages
from aioloader.transforms import decode_image

if TYPE_CHECKING:
    from pathlib import Path

Image = pytest.importorskip("PIL.Image")


def encoded(kind: str) -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (64, 64)).save(file, kind)
    return file.getvalue()


def png_with(name: bytes, body: bytes, count: int = 1) -> bytes:
    chunk = struct.pack(">I", len(body)) + name + body + struct.pack(">I", zlib.crc32(name + body))
    png = encoded("PNG")
    return png[:33] + chunk * count + png[33:]


# What follows differs between versions of the libraries.
FAULTY = {
    "profile.png": (png_with(b"iCCP", b"a\0\0xx"), "libpng warning: iCCP: too short"),
    "gamma.png": (png_with(b"gAMA", b""), "libpng warning: gAMA: "),
    "texts.png": (png_with(b"tEXt", b"", 1000), "libpng warning: tEXt: "),
}
DAMAGED = {
    "short.jp2": (encoded("JPEG2000")[:-30], "OpenJPEG2000"),
    "short.tiff": (encoded("TIFF")[:-300], "TIFF"),
}


def folder_of(path: Path, images: dict[str, tuple[bytes, str]]) -> Any:
    path.mkdir()
    for name, (data, _) in images.items():
        (path / name).write_bytes(data)
    return aioloader.ImageListDataset(path, [(0, name) for name in images])


def test_a_worker_names_the_file_once(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = folder_of(tmp_path / "images", FAULTY)
    with aioloader.DataLoader(dataset, batch_size=1, num_workers=1) as loader:
        assert [len(list(loader)) for _ in range(3)] == [3, 3, 3]
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == len(FAULTY), lines
    for name, (_, message) in FAULTY.items():
        (line,) = (line for line in lines if name in line)
        assert message in line
        if "tEXt: too short" in line:  # each of them
            assert line.endswith("(1000 times)")


def test_the_error_of_a_sample_has_the_messages(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = folder_of(tmp_path / "images", DAMAGED)
    with aioloader.DataLoader(dataset, batch_size=1, num_workers=1, on_error="skip") as loader:
        assert not list(loader)
        found = {error.path: error for error in loader.errors}
    assert capfd.readouterr().err == ""
    for name, (_, message) in DAMAGED.items():
        (error,) = (error for path, error in found.items() if name in str(path))
        assert any(message in note for note in error.__cause__.__notes__), error.__cause__.__notes__


def test_the_messages_of_many_images_end(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    images = {f"{number}.png": FAULTY["gamma.png"] for number in range(130)}
    dataset = folder_of(tmp_path / "images", images)
    with aioloader.DataLoader(dataset, batch_size=10, num_workers=1) as loader:
        assert len(list(loader)) == 13
    lines = capfd.readouterr().err.splitlines()
    assert len(lines) == 101
    assert "more than 100 images" in lines[-1]


def test_a_png_of_nothing_but_texts_is_refused_before_libpng_reads_it(
    capfd: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(DecodeError, match="more than 1024 chunks without pixels"):
        decode_image(png_with(b"tEXt", b"", 1025))
    assert capfd.readouterr().err == ""


def test_messages_about_one_image_are_not_given_for_the_next(capfd: pytest.CaptureFixture[str]) -> None:
    messages = DecoderMessages()
    messages.own()
    with pytest.raises(ValueError, match="damaged") as caught, messages.caught("a.png"):
        os.write(2, b"about a\n")
        raise ValueError("damaged")
    assert caught.value.__notes__ == ["the decoder wrote about a"]
    with messages.caught("b.png"):
        os.write(2, b"about b\n")
    assert capfd.readouterr().err == "aioloader: b.png: the decoder wrote about b\n"
    for fd in messages._pipe or ():
        os.close(fd)


def test_the_name_of_a_file_changes_no_terminal(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    dataset = folder_of(tmp_path / "images", {"a\n\x1b[31mb.png": FAULTY["gamma.png"]})
    with aioloader.DataLoader(dataset, batch_size=1, num_workers=1) as loader:
        assert len(list(loader)) == 1
    (line,) = capfd.readouterr().err.splitlines()
    assert "a??[31mb.png: the decoder wrote libpng warning" in line


def test_images_are_decoded_without_a_standard_error(tmp_path: Path) -> None:
    """As in a daemon that has closed it."""
    folder_of(tmp_path / "images", FAULTY)
    program = f"""
import os
os.close(2)
import aioloader
if __name__ == "__main__":
    folder, names = {str(tmp_path / "images")!r}, {list(FAULTY)!r}
    dataset = aioloader.ImageListDataset(folder, [(0, name) for name in names])
    with aioloader.DataLoader(dataset, batch_size=1, num_workers=2) as loader:
        print([batch[0].shape for batch in loader])
"""
    (tmp_path / "program.py").write_text(program)
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "program.py")], stdout=subprocess.PIPE, text=True, timeout=120
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, str([(1, 64, 64, 3)] * 3))
