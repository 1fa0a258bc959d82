"""The commands of `aioloader`, one file each: its arguments, and what it prints.

A file has ``add(commands)``, which adds its parser and sets the default ``command`` to what runs it: a function of the
parsed arguments that gives the exit code. What a command does lies in `aioloader.tools` and is imported when it runs:
help comes at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    import argparse

    Commands: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"

__all__ = ("COMMANDS",)

COMMANDS = ("demo", "bench", "pack", "index", "verify", "repair", "inspect", "view", "doctor")
"""Names of the modules, in the order of the help."""
