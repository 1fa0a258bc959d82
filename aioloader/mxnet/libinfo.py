"""`mx.libinfo`: the release of MXNet whose names this package has."""

from __future__ import annotations

__all__ = ("__version__",)

# Libraries compare it with the releases that they support.
__version__ = "1.9.1"
