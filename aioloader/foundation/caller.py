"""Warnings that name the line of code of the package's caller, from any depth inside the package."""

from __future__ import annotations

import sys
import warnings

_PACKAGE = __name__.partition(".")[0]


def warn_caller(message: str, category: type[Warning]) -> None:
    """Issue a warning that names the nearest line of code outside of this package.

    In a thread in which only code of the package and the standard library runs, it names the latter.
    """
    frame = sys._getframe(1)
    level = 2
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        frame = frame.f_back
        level += 1
    warnings.warn(message, category, stacklevel=level)
