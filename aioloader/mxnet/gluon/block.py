"""`Block` and `HybridBlock`, as far as transforms are written with them: a call is `forward`, without parameters."""

from __future__ import annotations

from typing import Any, NoReturn

from aioloader.mxnet import ndarray
from aioloader.mxnet.base import OutsideError

__all__ = ("Block", "HybridBlock")


class Block:
    """Base of transforms that scripts define. A subclass gives `forward`.

    Args:
        prefix, params: accepted for MXNet's sake and ignored.
    """

    def __init__(self, prefix: str | None = None, params: Any = None) -> None:
        del prefix, params

    def __call__(self, *args: Any) -> Any:
        """What `forward` makes of the arguments."""
        return self.forward(*args)

    def forward(self, *args: Any) -> Any:
        """The transformed arguments."""
        raise NotImplementedError(f"{type(self).__name__} defines no forward()")

    def hybridize(self, active: bool = True, **kwargs: Any) -> None:
        """Nothing to do: there is no graph to compile."""

    def initialize(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raises OutsideError: a block here has no parameters."""
        raise OutsideError(f"{type(self).__name__}.initialize()")

    collect_params = initialize


class HybridBlock(Block):
    """A `Block` whose subclass may give ``hybrid_forward(F, x, ...)`` instead; F is `mx.nd`."""

    def forward(self, *args: Any) -> Any:
        """What ``hybrid_forward`` makes of the arguments."""
        return self.hybrid_forward(ndarray, *args)

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        """The transformed arguments.

        Args:
            F: the module `mx.nd`.
            *args: as of `forward`.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither forward() nor hybrid_forward()")
