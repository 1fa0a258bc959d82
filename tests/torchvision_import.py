"""Import of torchvision in tests, which are skipped where it is not installed."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.contenders.torchvision_v2 import import_v2


def import_torchvision() -> Any:
    """Return `torchvision.transforms.v2`; skip the module where torchvision is not installed (see `import_v2`)."""
    pytest.importorskip("torch", reason="needs torch and torchvision")
    try:
        return import_v2()
    except ImportError as error:
        pytest.skip(f"needs torchvision: {error}", allow_module_level=True)
