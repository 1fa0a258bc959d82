"""Types of the optional compiled part, whose sources are in the folder native/."""

from typing import Final

from aioloader.foundation.types import Array

INTERFACE: Final[int]

def resize(
    source: Array, out: Array, columns: Array | None, rows: Array | None, level: int = 0, /
) -> None: ...
def resize_levels() -> tuple[str, ...]: ...
