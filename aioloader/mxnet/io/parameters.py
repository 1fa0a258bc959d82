"""Arguments of the iterators that MXNet writes in C++: given by keyword, read through `str`.

So ``batch_size="4"`` and ``data_shape="(3, 8, 8)"`` mean what ``4`` and ``(3, 8, 8)`` mean.
"""

from __future__ import annotations

import ast
import difflib
import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

__all__ = ("COMMON", "REQUIRED", "Parameter", "UnknownParameterWarning", "read_parameters")


class UnknownParameterWarning(UserWarning):
    """An iterator was given an argument that it does not know; MXNet ignores such arguments in silence."""


REQUIRED: Any = object()


@dataclass(frozen=True)
class Parameter:
    """One argument.

    Attributes:
        kind: "int", "float", "boolean", "string" or "shape".
        default: its value; `REQUIRED` if it must be given. None stands for "not given".
        low: smallest value.
        choices: the only texts that are taken.
        axes: the only number of extents of a shape.
        optional: whether None may be given.
    """

    kind: str
    default: Any = REQUIRED
    low: float | None = None
    choices: Sequence[str] = ()
    axes: int | None = None
    optional: bool = False

    @property
    def expected(self) -> str:
        """The kind in MXNet's words."""
        names = {"int": "int (non-negative)" if self.low == 0 else "int", "shape": "Shape(tuple)"}
        return names.get(self.kind, self.kind)

    def read(self, name: str, value: Any) -> Any:
        """The value as the kind says.

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
        if self.low is not None and found < self.low:
            raise MXNetError(f"value {text} for Parameter {name} should be greater equal to {self.low}")
        if self.axes is not None and len(found) != self.axes:
            raise MXNetError(
                f"value {list(found)} for Parameter {name} has wrong dimensions, expected dimension={self.axes}"
            )
        return found


def _text(value: Any) -> str:
    if isinstance(value, tuple | list):
        # A number of numpy's prints its type inside of a tuple.
        value = tuple([each.item() if hasattr(each, "item") else each for each in value])
    return str(value).strip()


def _shape(text: str) -> tuple[int, ...]:
    value = ast.literal_eval(text)
    extents = (value,) if isinstance(value, int) else tuple(value)
    if not extents or any(type(n) is not int or n < 0 for n in extents):
        raise ValueError
    return extents


_READERS: dict[str, Callable[[str], Any]] = {
    "int": int,
    "float": float,
    "boolean": lambda text: {"true": True, "1": True, "false": False, "0": False}[text.lower()],
    "string": str,
    "shape": _shape,
}

# What every one of these iterators takes. Nothing is prefetched on another thread or pinned by those of arrays in
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
    iterator: str, declared: Mapping[str, Parameter], args: Sequence[Any], given: Mapping[str, Any]
) -> dict[str, Any]:
    """All arguments of an iterator by name.

    Args:
        iterator: its name, for messages.
        declared: the arguments that it takes.
        args: what was given by position: must be empty.
        given: what was given by keyword. ``strict=True`` makes unknown names an error; otherwise they are
            warned about and ignored.

    Raises:
        MXNetError: one is missing, of a wrong kind or out of range.
        TypeError: something was given by position; or, with `strict`, an unknown name.
    """
    values = {name: parameter.default for name, parameter in declared.items()}
    for name, value in given.items():
        if name in declared:
            values[name] = declared[name].read(name, value)
    for name, value in values.items():
        if value is REQUIRED:
            raise MXNetError(f"Required parameter {name} of {declared[name].expected} is not presented")
    if args:
        raise TypeError(f"{iterator} can only accept keyword arguments")
    unknown = [name for name in given if name not in declared]
    if unknown:
        near = difflib.get_close_matches(unknown[0], declared, 1)
        hint = f"; did you mean {near[0]}?" if near else ""
        text = f"{iterator} does not know the argument(s) {', '.join(unknown)}{hint}"
        if values.get("strict"):
            raise TypeError(text)
        warnings.warn(
            f"{text} (ignored; strict=True makes it an error)", UnknownParameterWarning, stacklevel=3
        )
    return values
