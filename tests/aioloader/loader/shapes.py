"""Datasets whose samples have different shapes."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np

# Workers need not import this module and its imports at every start.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Pictures:
    """Dataset whose item i is (an image of a size that depends on i, i); every value is i.

    Args:
        n: number of items.
        side: sizes are multiples of it.
    """

    def __init__(self, n: int = 40, side: int = 4) -> None:
        self.n, self.side = n, side

    def __len__(self) -> int:
        return self.n

    def shape(self, index: int) -> tuple[int, int, int]:
        """Return the shape of an image."""
        return (1 + index % 5) * self.side, (1 + index % 3) * self.side, 3

    def __getitem__(self, index: int) -> Any:
        return np.full(self.shape(index), index % 256, np.uint8), index


class Prompts(Pictures):
    """Dataset whose item i is {"id": i, "images": i % 4 images}."""

    def __getitem__(self, index: int) -> Any:
        image, _ = super().__getitem__(index)
        return {"id": index, "images": [image + number for number in range(index % 4)]}


class Deadly(Pictures):
    """The same, but items whose number is a multiple of 25 kill the worker that makes them, once each.

    Args:
        folder: empty; remembers which have.
    """

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder

    def __getitem__(self, index: int) -> Any:
        if index % 25 == 0:
            try:
                (self.folder / str(index)).touch(exist_ok=False)
            except FileExistsError:
                pass
            else:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().__getitem__(index)
