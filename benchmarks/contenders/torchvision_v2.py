"""Import of torchvision's transforms, also where its compiled operators do not fit the build of torch.

Not a contender itself. The environments of contenders import this module: standard library and torch only.
"""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path
from typing import Any

_REGISTERED = re.compile(r'register_(?:fake|meta)\("(?:torchvision::)?(\w+)"')
_libraries: list[Any] = []


def import_v2() -> Any:
    """Return `torchvision.transforms.v2`.

    The variable AIOLOADER_TEST_TORCHVISION may name the folder that torchvision is installed in.

    A wheel for CUDA next to torch's build for the CPU cannot load its operators (non-maximum suppression and others),
    and fails when it describes them to torch. They are declared here first; the transforms use none of them.

    Raises:
        ImportError: torch or torchvision is not installed.
    """
    import torch

    folder = os.environ.get("AIOLOADER_TEST_TORCHVISION")
    if folder and folder not in sys.path:
        sys.path.append(folder)
    found = importlib.util.find_spec("torchvision")
    if found is None or not found.submodule_search_locations:
        raise ImportError("torchvision is not installed: pip install torchvision")
    try:
        torch.ops.torchvision.nms  # noqa: B018  # reading it finds out whether it is there
    except (AttributeError, RuntimeError):
        _declare(torch, Path(found.submodule_search_locations[0]))
    return importlib.import_module("torchvision.transforms.v2")


def _declare(torch: Any, root: Path) -> None:
    try:
        torch.ops.load_library(str(root / "_C.so"))
    except OSError:
        library = torch.library.Library("torchvision", "DEF")
        _libraries.append(library)  # its declarations end with it
        for name in sorted(set(_REGISTERED.findall((root / "_meta_registrations.py").read_text()))):
            library.define(f"{name}() -> ()")
