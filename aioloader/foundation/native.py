"""The optional compiled part, `aioloader._native`, if this process uses it.

It is asked for here alone: whoever has a faster way in it takes that if `native` is not None, and has the same result
in Python otherwise.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from types import ModuleType

NATIVE_VARIABLE: Final = "AIOLOADER_NATIVE"
"""Environment variable: 0 builds and uses no compiled part; 1 makes a build without it fail."""

_INTERFACE: Final = 6  # that of native/native.h


def _load() -> tuple[ModuleType | None, str]:
    if os.environ.get(NATIVE_VARIABLE) == "0":
        return None, f"{NATIVE_VARIABLE}=0 is set"
    try:
        import aioloader._native as _native
    except ModuleNotFoundError:
        return None, "it was not built"
    except ImportError as error:
        return None, f"it cannot be loaded: {error}"
    if _native.INTERFACE != _INTERFACE:
        return None, "it was built from other sources than these"
    return _native, ""


native, absence = _load()
"""The module, or None; and then the reason, in words."""
