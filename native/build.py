"""Build of the optional compiled part, `aioloader._native`, from the C files of this folder.

Hatchling calls `NativeHook` when it makes a wheel, and `pip install -e .` builds in place, as does the command
``python native/build.py``. Without a compiler, or without Python's headers, the wheel has only Python in it, and the
build says so.

Environment variables:

- ``AIOLOADER_NATIVE``: 0 builds nothing; 1 makes a build that is not possible an error.
- ``CC``, ``CFLAGS``, ``LDFLAGS``: the compiler, and options behind those given here.
- ``_PYTHON_HOST_PLATFORM``: the platform that the compiler makes code for, such as linux-aarch64, if it is another one.
"""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ModuleNotFoundError:  # run as a command
    BuildHookInterface = object

HERE = Path(__file__).parent
MODULE = "aioloader/_native.abi3.so"
VARIABLE = "AIOLOADER_NATIVE"


class NotBuilt(Exception):
    """The compiled part cannot be built here; the message is the reason."""


def compile_native(target: Path) -> None:
    """Compile the C files into one extension module.

    Raises:
        NotBuilt: this Python has no stable interface for modules in C, or there is no compiler, or it failed.
    """
    if (
        os.name != "posix"
        or sys.implementation.name != "cpython"
        or sysconfig.get_config_var("Py_GIL_DISABLED")
    ):
        raise NotBuilt("it is for CPython with the interpreter's lock, on Linux and macOS")
    compiler = shlex.split(os.environ.get("CC") or "cc")
    made = target.with_name(f"{target.name}.{os.getpid()}")
    shared = ["-shared"]
    if sys.platform == "darwin":  # among them the processors that this Python is for
        shared = shlex.split(sysconfig.get_config_var("LDSHARED"))[1:]
    command = [
        *(*compiler, "-std=c11", "-O3", "-fPIC", "-fvisibility=hidden", "-Wall", "-Wextra", *shared),
        *("-I", sysconfig.get_path("include"), *shlex.split(os.environ.get("CFLAGS", ""))),
        *map(str, sorted(HERE.glob("*.c"))),
        *("-o", str(made), "-lm", *shlex.split(os.environ.get("LDFLAGS", ""))),
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise NotBuilt(f"no C compiler: {error}") from error
    if done.stderr:
        sys.stderr.write(done.stderr)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if "error:" in line]
        raise NotBuilt(f"{compiler[0]} failed: {'; '.join(errors[:1]) or done.returncode}")
    made.replace(target)  # a process that has the old one loaded keeps it


class NativeHook(BuildHookInterface):
    """Part of the build of a wheel: adds the compiled module, and the tag of what it runs on."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, unless the variable forbids it."""
        if os.environ.get(VARIABLE) == "0":
            return
        place = Path(self.root, MODULE)
        if version != "editable":
            self._folder = tempfile.TemporaryDirectory(prefix="aioloader-native-")
            place = Path(self._folder.name, place.name)
        try:
            compile_native(place)
        except NotBuilt as reason:
            if os.environ.get(VARIABLE) == "1":
                raise
            self.app.display_warning(
                f"aioloader is built without its compiled part: {reason}. It works without, with the same "
                "results; antialiased resizing takes several times as long"
            )
            return
        build_data["pure_python"] = False
        build_data["tag"] = f"cp311-abi3-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}"
        if version != "editable":
            build_data["force_include"][str(place)] = MODULE


if __name__ == "__main__":
    compile_native(HERE.parent / MODULE)
