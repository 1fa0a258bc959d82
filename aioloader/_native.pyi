"""Types of the optional compiled part, whose sources are in the folder native/."""

from typing import Final

INTERFACE: Final[int]
