"""Types of the optional compiled part, whose sources are in the folder native/."""

from typing import Any, Final

from aioloader.foundation.types import Array

INTERFACE: Final[int]

def resize(
    source: Array, out: Array, columns: Array | None, rows: Array | None, level: int = 0, /
) -> None: ...
def resize_levels() -> tuple[str, ...]: ...
def join_parts(
    headers: Any,
    data: Any,
    entry: Any,
    scan_at: int,
    parts: tuple[int, int, int, int, int, bool],
    opening: int,
    continues: bool,
    closing: bool,
    /,
) -> bytearray | None: ...
def scan_mcus(
    data: Any,
    start: int,
    blocks: bytes,
    tables: bytes,
    sizes: tuple[int, int, int, int],
    positions: Any,
    predictors: Any,
    /,
) -> int: ...
