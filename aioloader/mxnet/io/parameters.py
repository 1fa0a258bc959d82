"""Arguments of the iterators that MXNet writes in C++: passed by keyword, read through `str`.

So ``batch_size="4"`` and ``data_shape="(3, 8, 8)"`` equal ``4`` and ``(3, 8, 8)``. One table defines an
iterator's arguments; its documentation is generated from that table.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from aioloader.foundation.caller import warn_caller
from aioloader.foundation.validation import closest_name
from aioloader.mxnet.base import MXNetError

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence


F = TypeVar("F", bound="Callable[..., Any]")


class UnknownParameterWarning(UserWarning):
    """Warning about an argument that an iterator does not have; MXNet ignores such arguments silently."""


class UnusedParameterWarning(UserWarning):
    """Warning about an argument that has no effect here; the text says why."""


class MissingParameterError(MXNetError, ValueError):
    """Error raised when a required argument is missing. A ValueError too.

    Args:
        name: the argument.
        expected: its kind, in words.

    Attributes:
        name, expected: as given.
    """

    def __init__(self, name: str, expected: str) -> None:
        super().__init__(f"Required parameter {name} of {expected} is not presented")
        self.name = name
        self.expected = expected


REQUIRED: Any = object()


@dataclass(frozen=True)
class Parameter:
    """One argument.

    Attributes:
        kind: "int", "float", "boolean", "string", "shape", "ints" or "floats" (tuples; a single number is a tuple of
            one), or "limit": a count, or a share less than 1.
        default: its value; `REQUIRED` if the caller must pass it. None means "not given".
        low, high: smallest and largest value.
        choices: the only accepted texts.
        axes: the only number of extents of a shape.
        optional: None is accepted.
        about: its effect, in one or two sentences.
        idle: the reason why it has no effect, as the end of "it has no effect: ..."; empty if it has one.
    """

    kind: str
    default: Any = REQUIRED
    low: float | None = None
    choices: Sequence[str] = ()
    axes: int | None = None
    optional: bool = False
    high: float | None = None
    about: str = ""
    idle: str = ""

    @property
    def expected(self) -> str:
        """Return the kind in MXNet's words."""
        names = {
            "int": "int (non-negative)" if self.low == 0 else "int",
            "shape": "Shape(tuple)",
            "ints": "tuple of int",
            "floats": "tuple of float",
            "limit": "int, or float less than 1",
        }
        return names.get(self.kind, self.kind)

    def read(self, name: str, value: Any) -> Any:
        """Return the value converted to the kind.

        Raises:
            MXNetError: it is of another kind or out of range.
        """
        text = _text(value)
        if self.optional and text == "None":
            return None
        if self.choices:
            if text not in self.choices:
                raise MXNetError(
                    f"{name}: Invalid Input: '{text}', valid values are: {{{', '.join(map(repr, self.choices))}}}"
                )
            return text
        try:
            found = _READERS[self.kind](text)
        except (ValueError, SyntaxError, TypeError, KeyError):
            raise MXNetError(
                f"Invalid Parameter format for {name} expect {self.expected} but value={text!r}"
            ) from None
        for number in found if self.kind in ("ints", "floats") else (found,):
            if self.low is not None and not number >= self.low:
                raise MXNetError(f"value {text} for Parameter {name} should be greater equal to {self.low}")
            if self.high is not None and not number <= self.high:
                raise MXNetError(f"value {text} for Parameter {name} should be smaller equal to {self.high}")
        if self.axes is not None and len(found) != self.axes:
            raise MXNetError(
                f"value {list(found)} for Parameter {name} has wrong dimensions, expected dimension={self.axes}"
            )
        return found


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        # A numpy number prints its type inside of a tuple.
        value = tuple([each.item() if hasattr(each, "item") else each for each in value])
    return str(value).strip()


def _shape(text: str) -> tuple[int, ...]:
    value = ast.literal_eval(text)
    extents = (value,) if isinstance(value, int) else tuple(value)
    if not extents or any(type(n) is not int or n < 0 for n in extents):
        raise ValueError
    return extents


def _numbers(text: str) -> tuple[float, ...]:
    value = ast.literal_eval(text)
    numbers = tuple(value) if isinstance(value, tuple | list) else (value,)
    if not numbers or any(type(n) not in (int, float) for n in numbers):
        raise ValueError
    return tuple(map(float, numbers))


def _whole_numbers(text: str) -> tuple[int, ...]:
    numbers = _numbers(text)
    if not all(n.is_integer() for n in numbers):
        raise ValueError
    return tuple(map(int, numbers))


def _limit(text: str) -> float:
    try:
        return int(text)
    except ValueError:
        share = float(text)
    if not share < 1:
        raise ValueError
    return share


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "boolean": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    "string": str,
    "shape": _shape,
    "ints": _whole_numbers,
    "floats": _numbers,
    "limit": _limit,
}

# Arguments of every one of these iterators. Those of arrays in memory neither prefetch on another thread nor pin
# memory: prefetch_buffer and ctx are read and have no effect there.
COMMON: dict[str, Parameter] = {
    "batch_size": Parameter("int", low=0),
    "round_batch": Parameter("boolean", True),
    "prefetch_buffer": Parameter("int", 4, low=0),
    "ctx": Parameter("string", "gpu", choices=("cpu", "gpu")),
    "dtype": Parameter("string", None, optional=True),
    "data_name": Parameter("string", "data"),
    "label_name": Parameter("string", "softmax_label"),
    "strict": Parameter("boolean", False),
}


def read_parameters(
    iterator: str,
    declared: Mapping[str, Parameter],
    args: Sequence[Any],
    given: Mapping[str, Any],
    idle_here: Callable[[Mapping[str, Any], Container[str]], Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Return all arguments of an iterator by name. Must be called by the function that the caller called.

    Args:
        iterator: its name, for messages.
        declared: the arguments that it takes.
        args: positional arguments: must be empty.
        given: keyword arguments. ``strict=True`` turns unknown names into an error; otherwise they are ignored with a
            warning.
        idle_here: function of all values and the names that the caller passed; returns the arguments without effect
            next to the others, and why. Only values other than the default are warned about.

    Raises:
        MissingParameterError: one is missing (an MXNetError and a ValueError).
        MXNetError: one is of a wrong kind or out of range.
        TypeError: a positional argument; or, with `strict`, an unknown name.

    Warns:
        UnknownParameterWarning: a name is unknown.
        UnusedParameterWarning: an argument has no effect.
    """
    values = {name: parameter.default for name, parameter in declared.items()}
    for name, value in given.items():
        if name in declared and not (value is None and declared[name].default is REQUIRED):
            values[name] = declared[name].read(name, value)
    for name, value in values.items():
        if value is REQUIRED:
            raise MissingParameterError(name, declared[name].expected)
    if args:
        raise TypeError(f"{iterator} can only accept keyword arguments")
    unknown = [name for name in given if name not in declared]
    if unknown:
        text = f"{iterator} does not know the argument(s) {', '.join(_with_hint(name, declared) for name in unknown)}"
        if values.get("strict"):
            raise TypeError(text)
        warn_caller(f"{text} (ignored; strict=True makes it an error)", UnknownParameterWarning)
    reasons = {name: parameter.idle for name, parameter in declared.items() if parameter.idle}
    if idle_here is not None:
        reasons |= {
            name: why
            for name, why in idle_here(values, given).items()
            if values[name] != declared[name].default
        }
    idle = [f"{name} has no effect: {reasons[name]}" for name in given if name in reasons]
    if idle:
        warn_caller(f"{iterator}: {'; '.join(idle)}", UnusedParameterWarning)
    return values


def _with_hint(name: str, declared: Mapping[str, Parameter]) -> str:
    near = closest_name(name, declared)
    return f"{name} (did you mean {near}?)" if near else name


def documented(declared: Mapping[str, Parameter]) -> Callable[[F], F]:
    """Return a decorator that adds the arguments of an iterator to its docstring, before the section "Returns".

    Args:
        declared: the arguments.
    """
    lines = ["Args:"]
    for name, parameter in declared.items():
        default = "required" if parameter.default is REQUIRED else f"default {parameter.default!r}"
        allowed = f" of {', '.join(parameter.choices)}" if parameter.choices else ""
        effect = parameter.about
        if parameter.idle:
            effect = f"{effect} Without effect: {parameter.idle}.".strip()
        text = f"{name}: {parameter.expected}{allowed}, {default}. {effect}"
        lines += textwrap.wrap(
            text, 112, initial_indent="    ", subsequent_indent="        ", break_long_words=False
        )

    def document(function: F) -> F:
        text = inspect.cleandoc(function.__doc__ or "")
        function.__doc__ = text.replace("Returns:", "\n".join([*lines, "", "Returns:"]), 1)
        return function

    return document
