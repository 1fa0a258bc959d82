"""Order in which the classes of an object define two methods that do the same."""

from __future__ import annotations


def defines_first(cls: type, name: str, other: str) -> bool:
    """Return whether the method `name` was written for a class: no class derived from its own overrides `other` alone.

    Args:
        cls: the class.
        name: the method that may take the place of the other one.
        other: the method whose results both return.
    """
    for each in cls.__mro__:
        if name in vars(each):
            return True
        if other in vars(each):
            return False
    return False
