"""Checks of arguments, with Gluon's exceptions for those that Gluon checks; sizes as text."""

from __future__ import annotations

import functools
import inspect
import math
import operator
import os
import re
import reprlib
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

# How similar a name and its misspelling with one wrong letter are, by difflib.
_TYPING_ERROR = 0.9

P = ParamSpec("P")
R = TypeVar("R")


class ArgumentError(ValueError, AssertionError):
    """Error raised when an argument is out of its range.

    Gluon checks such arguments with ``assert``, so scripts may expect an AssertionError; unlike an assert, this check
    also works under ``python -O``.
    """


def require(condition: object, message: str) -> None:
    """Raise `ArgumentError` with `message` unless `condition` holds."""
    if not condition:
        raise ArgumentError(message)


def whole_number(name: str, value: Any) -> int:
    """Return `value` as an int.

    Raises:
        TypeError: `value` is not a whole number; floats are not accepted.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None


def refuse_unknown(owner: str, given: Iterable[str], known: Iterable[str], advice: Mapping[str, str]) -> None:
    """Raise TypeError for the first keyword that is not known.

    Args:
        owner: name of the class or function that the caller called, for the error.
        given: the keywords that it received.
        known: those that it has.
        advice: what to use instead of a keyword of other libraries, by keyword.
    """
    known = tuple(known)
    for name in given:
        if name in advice:
            raise TypeError(f"{owner} has no argument {name}: {advice[name]}")
        if name not in known:
            near = closest_name(name, known)
            hint = f"; did you mean {near}?" if near else ""
            raise TypeError(f"{owner} has no argument {name}{hint}")


def closest_name(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that the caller may have meant by another one, or None."""
    import difflib  # of use only here

    known = tuple(known)
    # A name with a word too many or too few, such as "image_size" for "size", shares more letters with others.
    ways = (
        difflib.get_close_matches(name, known, 1, _TYPING_ERROR),
        sorted((each for each in known if name.endswith(f"_{each}")), key=len, reverse=True),
        sorted((each for each in known if each.endswith(f"_{name}")), key=len),
        difflib.get_close_matches(name, known, 1),
    )
    return next((found[0] for found in ways if found), None)


def _positions_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a method's parameters that can be passed by position, with ``self``."""
    kinds = inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD
    return tuple(item.name for item in inspect.signature(function).parameters.values() if item.kind in kinds)


def _named(function: Any, options: Callable[..., Any]) -> None:
    """Let a function's signature show the parameters of `options` in place of ``**options``."""
    signature = inspect.signature(function)
    own = [item for item in signature.parameters.values() if item.kind is not item.VAR_KEYWORD]
    others = [
        item
        for item in inspect.signature(options).parameters.values()
        if item.name not in signature.parameters
    ]
    function.__signature__ = signature.replace(parameters=own + others)


def keywords_of(function: Callable[..., Any]) -> tuple[str, ...]:
    """Return the names of a function's or method's parameters that can be passed by keyword, except ``self``."""
    kinds = inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY
    parameters = inspect.signature(function).parameters.values()
    return tuple(item.name for item in parameters if item.kind in kinds and item.name != "self")


def advises(
    advice: Mapping[str, str], options: Callable[..., Any] | None = None
) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Make a method raise a TypeError that names the caller's class for arguments that it does not have.

    The error has advice for keywords of other libraries, and the most similar name for the others. For too many
    positional arguments it has their values, because their order is that of another library.

    Args:
        advice: what to use instead, by keyword.
        options: class whose arguments the method takes as ``**options``; the signature has them by name.
    """

    def wrap(function: Callable[P, R]) -> Callable[P, R]:
        if options is not None:
            _named(function, options)
        known = keywords_of(function)
        places = _positions_of(function)

        @functools.wraps(function)
        def checked(*args: P.args, **kwargs: P.kwargs) -> R:
            owner = type(args[0]).__name__ if args else function.__name__
            refuse_unknown(owner, kwargs, known, advice)
            others = args[len(places) :]
            if others:
                taken = f"only {' and '.join(places[1:])}" if places[1:] else "nothing"
                raise TypeError(
                    f"{owner} takes {taken} by position: pass by name, as in {known[len(places) - 1]}=..., the "
                    f"positional arguments {', '.join(map(reprlib.repr, others))}"
                )
            return function(*args, **kwargs)

        return checked

    return wrap


def takes(
    options: Callable[P, R], advice: Mapping[str, str]
) -> Callable[[Callable[[Any, R], None]], Callable[Concatenate[Any, P], None]]:
    """Make a constructor with one parameter, the object of a dataclass, take the arguments of that class.

    Type checkers, editors and `inspect.signature` see them by name. For others it raises the errors of `advises`.

    Args:
        options: the dataclass.
        advice: what to use instead of arguments of other libraries, by keyword.
    """

    def wrap(function: Callable[[Any, R], None]) -> Callable[Concatenate[Any, P], None]:
        @functools.wraps(function)
        def init(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> None:
            function(self, options(*args, **kwargs))

        owner = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
        shown: Any = init
        shown.__signature__ = inspect.signature(options).replace(
            parameters=[owner, *inspect.signature(options).parameters.values()]
        )
        return advises(advice)(init)

    return wrap


def describe_arguments(cls: type, other: type) -> None:
    """Add the section "Args" of the docstring of another class, whose arguments a class has, to that of the class."""
    if cls.__doc__ and other.__doc__:  # there are none with -OO
        arguments = inspect.cleandoc(other.__doc__).partition("\nArgs:\n")[2].partition("\n\n")[0]
        cls.__doc__ = f"{inspect.cleandoc(cls.__doc__)}\n\nArgs:\n{arguments}\n"


def is_async(fn: Any) -> bool:
    """Return True if a call of `fn` returns an awaitable, as far as that is visible without calling it.

    Recognised are an ``async def`` function or method, a `functools.partial` of one, an object whose ``__call__`` is
    one, and functions marked by `inspect.markcoroutinefunction`. A plain function that returns a coroutine is not.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.iscoroutinefunction(fn):
        return True
    # A loader calls a transform's `apply` instead of its `__call__`.
    names = ("__call__", "apply") if hasattr(fn, "out_spec") else ("__call__",)
    return not isinstance(fn, type) and any(
        inspect.iscoroutinefunction(getattr(type(fn), name, None)) for name in names
    )


def accepts_rng(fn: Any) -> bool:
    """Return True if a callable has a parameter named ``rng`` that can be passed by keyword."""
    try:
        parameters = inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
    found = parameters.get("rng")
    return found is not None and found.kind in (found.POSITIONAL_OR_KEYWORD, found.KEYWORD_ONLY)


def check_sync(fn: Any, where: str) -> None:
    """Raise if `fn` is an async function.

    Args:
        fn: a callable, or any other object.
        where: the function that received it, for the error.

    Raises:
        TypeError: `fn` is async.
    """
    if is_async(fn):
        name = getattr(fn, "__name__", None) or type(fn).__name__
        raise TypeError(
            f"{name} is an async function, which {where} cannot await: give it to dataset.transform(...) or "
            ".transform_first(...) separately, as its own stage"
        )


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    """Raise ValueError unless `value` is one of the allowed ones."""
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, but got {value!r}")


def at_least(name: str, value: Any, least: float, *, exclusive: bool = False) -> None:
    """Raise unless `value` is None, or a number of at least `least` (`exclusive`: greater than it)."""
    if value is None:
        return
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__index__")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not value >= least or (exclusive and value == least):  # NaN is not at least anything
        raise ValueError(f"{name} must be {'more than' if exclusive else 'at least'} {least}, got {value}")


def file_path(name: str, value: Any) -> None:
    """Raise TypeError unless `value` is None, or the path of a file."""
    if value is not None and (not isinstance(value, (str, os.PathLike)) or not os.fspath(value)):
        raise TypeError(f"{name} must be the path of a file, got {value!r}")


_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for unit, base in (("", 1000), ("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_nbytes(size: int | str, name: str = "size") -> int:
    """Return a number of bytes, at least 1.

    Args:
        size: the number, or a text like "50GB" (10^9 bytes each), "1.5 TB", "512MiB" (2^20 bytes each).
        name: name of the argument, for errors.

    Raises:
        TypeError: `size` is neither.
        ValueError: the text is not a size, or the size is less than one byte.
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        units = {unit.lower(): factor for unit, factor in _UNITS.items()}
        if found is None or found[2].lower() not in units:
            raise ValueError(f"{name} must be a size such as '50GB' or '512MiB', but got {size!r}")
        from fractions import Fraction  # with its imports, 3 ms in every worker

        nbytes = int(Fraction(found[1]) * units[found[2].lower()])
    elif isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f"{name} must be a number of bytes or a text such as '50GB', got {size!r}")
    else:
        nbytes = int(size)
    if nbytes < 1:
        raise ValueError(f"{name} must be at least 1 byte, but got {size!r}")
    return nbytes


def size_text(nbytes: float) -> str:
    """Return a number of bytes with its unit, such as "12 bytes", "3.4 kB" or "1,200.0 TB"."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if nbytes >= size:
            return f"{nbytes / size:,.1f} {unit}"
    return f"{nbytes:,} bytes"


def limit_text(nbytes: float) -> str:
    """Return a limit in which samples of some bytes fit with some room, as an argument for `parse_nbytes`: "24GB"."""
    wanted = 1.1 * nbytes + (1 << 20)
    unit, name = (1e9, "GB") if wanted >= 1e9 else (1e6, "MB")
    steps = 1 if wanted >= 10 * unit else 10
    return f'"{math.ceil(wanted / unit * steps) / steps:g}{name}"'
