"""Calls of the program jpegtran, which rewrites JPEGs without changing a pixel.

It is part of libjpeg-turbo and other libjpeg versions, not a Python package, so it may be missing.
"""

from __future__ import annotations

import errno
import re
import shutil
import subprocess

from aioloader.errors import DecodeError, LoaderError

_WARNED = 2
"""Exit status of jpegtran when it wrote an image and printed warnings."""

# The only warning that does not mean lost pixels; the decoder accepts such images too.
_HARMLESS = re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker 0xd9")


class ProgramNotFoundError(LoaderError, FileNotFoundError):
    """Error raised when a required external program is not installed.

    Attributes:
        program: its name.
    """

    def __init__(self, program: str, advice: str) -> None:
        super().__init__(errno.ENOENT, f"the program {program} is not installed; {advice}")
        self.program = program

    def __str__(self) -> str:
        return str(self.args[1])


def find_jpegtran() -> str:
    """Return the path of jpegtran.

    Raises:
        ProgramNotFoundError: jpegtran is not on the PATH.
    """
    found = shutil.which("jpegtran")
    if found is None:
        raise ProgramNotFoundError(
            "jpegtran",
            "install libjpeg-turbo-progs (Debian, Ubuntu), libjpeg-turbo-utils (Fedora), libjpeg-turbo-tools "
            "(Alpine), libjpeg-turbo (Arch, conda-forge) or jpeg-turbo (Homebrew, which does not link it: add "
            "$(brew --prefix jpeg-turbo)/bin to the PATH)",
        )
    return found


def rewrite(program: str, data: bytes, interval: int | None = None) -> bytes:
    """Rewrite an image as a baseline JPEG of one scan with optimised Huffman tables.

    Coefficients do not change; every APPn and COM segment is kept. Bytes after the end of the image are dropped.

    Args:
        program: path of jpegtran.
        data: a JPEG.
        interval: MCUs between two restart markers; None for no markers.

    Raises:
        DecodeError: the JPEG is damaged or truncated, or of a kind that the program cannot read.
    """
    markers = [] if interval is None else ["-restart", f"{interval}B"]
    done = subprocess.run(
        [program, "-copy", "all", "-optimize", *markers], input=data, capture_output=True, check=False
    )
    said = [line.strip() for line in done.stderr.decode(errors="replace").splitlines() if line.strip()]
    harmless = all(_HARMLESS.fullmatch(line) for line in said)
    if done.returncode == 0 or (done.returncode == _WARNED and harmless and done.stdout):
        return done.stdout
    reason = "; ".join(said[:3]) or f"it ended with status {done.returncode}"
    raise DecodeError(f"jpegtran: {reason}", format="jpeg", nbytes=len(data))
