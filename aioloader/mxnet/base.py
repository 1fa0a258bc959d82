"""MXNet's base error, and the placeholders for the parts of MXNet that are outside data loading."""

from __future__ import annotations

from typing import Any, NoReturn

from aioloader.errors import LoaderError, TooManyErrorsError

__all__ = ("MXNetError", "Outside", "OutsideError", "TooManyFailedError")


class MXNetError(RuntimeError):
    """Base of the errors of `aioloader.mxnet`, under MXNet's name."""

    # Pickles the attributes: the constructors of derived classes take other arguments than the text.
    __reduce__ = LoaderError.__reduce__


class TooManyFailedError(TooManyErrorsError, MXNetError):
    """Error raised when more images failed than `max_errors` allows. An MXNetError too."""

    def __str__(self) -> str:
        return super().__str__().replace("max_error_rate=", "max_errors=")  # here one option is both


class OutsideError(MXNetError, NotImplementedError, AttributeError):
    """Error raised when a part of MXNet is used that does not load data.

    An AttributeError too, so that ``hasattr(mx.sym, "Variable")`` is False.

    Args:
        used: the name that was used, such as "mx.sym.Variable".
        instead: the alternative; by default to pass the arrays to a framework.

    Attributes:
        used, instead: as given.
    """

    def __init__(self, used: str, instead: str | None = None) -> None:
        super().__init__(
            f"{used}: {instead or 'training is outside aioloader'}; hand its arrays, which are numpy arrays, "
            "to your framework, for example torch.from_numpy(x) or jax.numpy.asarray(x)"
        )
        self.used = used
        self.instead = instead


class Outside:
    """Placeholder for a module or class of MXNet for training: it can be imported, and raises when used.

    So ``from aioloader.mxnet import gluon, autograd`` works for the lines of a script that load data.

    Args:
        name: the full name in a script, such as "mx.sym".
    """

    def __init__(self, name: str) -> None:
        self.__name__ = name

    def __repr__(self) -> str:
        return f"<{self.__name__}: training is outside aioloader>"

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):  # attributes that the interpreter and tools read
            raise AttributeError(f"{self!r} has no attribute {name!r}")
        raise OutsideError(f"{self.__name__}.{name}")

    def __call__(self, *args: Any, **kwargs: Any) -> NoReturn:
        raise OutsideError(f"{self.__name__}()")
