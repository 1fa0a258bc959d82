"""Base classes of all transforms, chains of them, adapters for arbitrary callables, and checks of arguments.

The `out` rule: a result is written to `out` only if it has exactly `out`'s shape and dtype, and only if writing there
cannot change values that are still to be read. `out` may be the input itself if every value depends on its own place
only (`in_place`).

A geometric transform, once drawn, is a `Motion`: what it does to pixels, masks and coordinates alike.
"""

from __future__ import annotations

import functools
import inspect
import math
import operator
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeGuard

import numpy as np

from aioloader.abc import Transform as TransformProtocol
from aioloader.foundation.error_log import add_note
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import accepts_rng, check_sync
from aioloader.rng import Rng, current_rng, default_rng

if TYPE_CHECKING:
    from types import TracebackType

    from aioloader.foundation.types import Array, ArraySpec


_TORCHVISION = "torchvision.transforms"
_HOW = "images are numpy arrays, (height, width, channels), here: put {} first, or use aioloader.transforms"
_HOW_V2 = _HOW.format("v2.ToImage()")
_HOW_V1 = _HOW.format("torchvision's ToPILImage()")


def check_takes_arrays(fn: Any) -> None:
    """Raise if a transform of torchvision's version 2 would return an array unchanged, as it does without an error.

    Args:
        fn: any callable. Of a `Compose` the first transform is checked.

    Raises:
        TypeError: it would.
    """
    first = fn
    while type(first).__name__ == "Compose" and getattr(first, "transforms", None):
        first = first.transforms[0]
    types = getattr(first, "_transformed_types", None)
    passes_on = hasattr(first, "transforms") or type(first).__name__ == "Identity"
    if not is_of_torchvision(first) or not isinstance(types, tuple) or passes_on:
        return
    if not any(isinstance(kind, type) and issubclass(np.ndarray, kind) for kind in types):
        raise TypeError(
            f"torchvision's {type(first).__name__} takes tensors and Pillow images, and {_HOW_V2}"
        )


def is_of_torchvision(fn: Any) -> bool:
    """Return True if the class of a callable is one of torchvision's transforms."""
    return type(fn).__module__.startswith(_TORCHVISION)


def advise(error: BaseException, *values: Any) -> None:
    """Add a note to an error that a transform of torchvision raised for a numpy array.

    Args:
        error: has passed the frame that catches it.
        *values: what the function that raised it was called with.
    """
    if not isinstance(error, TypeError) or not any(isinstance(value, np.ndarray) for value in values):
        return
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(_TORCHVISION):
            add_note(error, _HOW_V2 if module.startswith(f"{_TORCHVISION}.v2") else _HOW_V1)
            return
        trace = trace.tb_next


TransformCall: TypeAlias = Callable[[Any, Any, Any], Any]
"""(x, rng, out) -> result."""

_HOME = __name__.partition(".")[0] + "."
# Modules of transforms that move no pixel, so that boxes stay valid.
_KEEPS_PLACES = {f"{__package__}.{name}" for name in ("blur", "color", "erasing", "tensor")}


class Transform:
    """Base of all transforms. A subclass defines `apply`, and `out_spec` if the result's shape can be predicted.

    Images are uint8 or float32, (height, width, channels), RGB; after `ToTensor` float32, (channels, height, width).
    The input is never altered, unless it is `out` itself; the result may be the input or a view of it.
    Transforms are picklable and have no state that changes.

    Attributes:
        in_place: the result has the input's shape and dtype, and `out` may be the input itself.
    """

    in_place: bool = False
    # What other parts of the package ask: whether it has a `motion`, whether it takes boxes too, and which part of an
    # image is enough to make the result of.
    _geometric: bool = False
    _takes_boxes: bool = False
    _reads: Literal["crop", "rectangle", "resize"] | None = None

    def __call__(self, x: Any, /, *others: Any, rng: Rng | None = None) -> Any:
        """Return the transformed image.

        Args:
            x: the image; not altered.
            *others: refused: the other elements of a sample, which would not move with the image.
            rng: source of the draws; None: see `aioloader.rng.default_rng`.

        Raises:
            TypeError: there are others.
        """
        if others:
            raise TypeError(_not_an_image(type(self).__name__, (x, *others)))
        return self.apply(x, default_rng() if rng is None else rng)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """Return the transformed image; the loaders call this method.

        Args:
            x: the image; altered only if it is `out` itself.
            rng: source of the draws.
            out: array that the result may be written to if it has exactly that shape and dtype.

        Returns:
            the result; `out` itself if it was used.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no apply()")

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        """Return shape and dtype of the result for an input of `spec`; None if they cannot be predicted."""
        return spec if self.in_place else None

    def _parts(self) -> Sequence[Any]:
        """Return the callables that this transform calls, for `is_native`."""
        return ()

    def _chain(self) -> Sequence[Any] | None:
        """Return the callables that it applies one after the other, if `_drawn`; None if it has another rule."""
        return None

    def _drawn(self, rng: Rng) -> bool:
        """Return whether it is applied to a sample; takes the draw for this, and no others."""
        return True

    def _label(self) -> str:
        """Return a name that says more than that of its class; "" without one."""
        return ""

    def _moves_pixels(self) -> bool:
        """Return True if it may move pixels; see `moves_pixels`."""
        parts = self._parts()
        if parts or self._chain() is not None:
            return any(map(moves_pixels, parts))
        return self._geometric or self._takes_boxes or is_native(self)

    def _arguments(self) -> dict[str, Any]:
        """Return the values of the constructor's parameters by name, for `repr`."""
        return vars(self)

    def __repr__(self) -> str:
        arguments = self._arguments()
        names = [name for name in inspect.signature(type(self)).parameters if name in arguments]
        return f"{type(self).__name__}({', '.join(f'{name}={arguments[name]!r}' for name in names)})"


class BindingTransform(Transform):
    """Base of transforms that call other callables: they are bound by `_bind`, again after unpickling."""

    _bound: Any

    def __call__(self, x: Any, /, *rest: Any, rng: Rng | None = None) -> Any:
        """Return the result of `apply` for the image or the batch.

        Args:
            x: the image, or a batch if the parts are for batches; not altered.
            *rest: if any, `x` and these are the elements of a batch, as in ``mix(images, labels)``.
            rng: source of the draws; None: see `aioloader.rng.default_rng`.
        """
        return self.apply((x, *rest) if rest else x, default_rng() if rng is None else rng)

    def _bind(self) -> None:
        """Set `_bound`, which holds bound methods and closures that cannot be pickled."""
        raise NotImplementedError

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_bound"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._bind()


class _Foreign(Transform):
    """The transform that is asked in the place of another callable."""

    def _moves_pixels(self) -> bool:
        return False


_FOREIGN = _Foreign()


def as_transform(fn: Any) -> Transform:
    """Return a transform itself, and for any other callable one that answers every question with the default."""
    return fn if isinstance(fn, Transform) else _FOREIGN


def is_native(fn: Any) -> TypeGuard[Transform]:
    """Return True if a callable is a transform of this package, all its parts included.

    Such a callable takes every draw from the `rng` that it is passed and keeps no reference to its input, so it needs
    no seeding of global generators and may be passed memory that is used again.
    """
    known = as_transform(fn)
    return known is fn and _is_ours(fn) and all(map(is_native, known._parts()))


def _is_ours(fn: Any) -> bool:
    """Return True if the class of a callable is defined in this package."""
    return type(fn).__module__.startswith(_HOME)


def keeps_places(fn: Any) -> bool:
    """Return True if a callable is known to move no pixel."""
    known = as_transform(fn)
    return type(fn).__module__ in _KEEPS_PLACES or (known._takes_boxes and not known._moves_pixels())


def moves_pixels(fn: Any) -> bool:
    """Return True if a callable is a transform of this package, or derived from one, that may move pixels."""
    return type(fn).__module__ not in _KEEPS_PLACES and as_transform(fn)._moves_pixels()


def name_of(fn: Any) -> str:
    """Return the name of a callable, for errors and statistics."""
    while isinstance(fn, functools.partial):
        fn = fn.func
    return as_transform(fn)._label() or str(getattr(fn, "__name__", None) or type(fn).__name__)


def works_in_place(fn: Any) -> bool:
    """Return True if a callable is a transform of this package that may write over its input."""
    return is_native(fn) and fn.in_place


def bind(fn: Any) -> TransformCall:
    """Make any callable callable as ``(x, rng, out)``.

    For a transform the result is its `apply`; another callable is passed ``rng=`` if it has a parameter of that name,
    and never `out`. While a callable that is not of this package runs, the transforms that it calls without ``rng``
    draw from the same stream (`aioloader.rng.current_rng`). The signature is inspected once, here. The result may not
    be picklable: bind again after unpickling.

    Args:
        fn: a callable of one argument.

    Raises:
        TypeError: `fn` is not callable.
    """
    ours = as_transform(fn) is fn
    applies = type(fn).apply is not Transform.apply if ours else is_transform(fn)
    if applies:
        apply: TransformCall = fn.apply
        return apply if _is_ours(fn) else _with_draws(apply)
    if not callable(fn):
        raise TypeError(f"a transform must be callable, got {fn!r}")
    call: Callable[..., Any] = fn
    if is_of_torchvision(fn):
        return _with_draws(lambda x, rng, out: call(x), checked=fn)
    if accepts_rng(fn):
        return _with_draws(lambda x, rng, out: call(x, rng=rng))
    return _with_draws(lambda x, rng, out: call(x))


def _with_draws(step: TransformCall, checked: Any = None) -> TransformCall:
    """Make the `rng` of a call that of the transforms that it calls without one.

    Args:
        step: the call.
        checked: a transform of torchvision, or None.
    """

    def call(x: Any, rng: Any, out: Any) -> Any:
        if checked is not None and isinstance(x, np.ndarray):
            check_takes_arrays(checked)
        token = current_rng.set(rng)
        try:
            return step(x, rng, out)
        except TypeError as error:
            advise(error, x)
            raise
        finally:
            current_rng.reset(token)

    return call


def is_transform(fn: Any) -> bool:
    """Return True if a callable has the methods of `aioloader.abc.Transform`; a class does not count."""
    return implements(fn, TransformProtocol) and not isinstance(fn, type)


class Compose(BindingTransform):
    """Chain of transforms, applied one after the other; each may be any callable of one argument.

    A callable with a parameter named ``rng`` is passed the sample's draws through it, others are called with the image
    alone. Draws: those of the parts, in order. Memory that is used again, `out` or an intermediate result, is passed
    to a part only if no foreign callable comes after it, since that might keep a reference to its input.

    Args:
        transforms: callables; the sequence itself is neither kept nor altered.

    Raises:
        TypeError: one of them is not callable, or is an async function.
    """

    def __init__(self, transforms: Iterable[Callable[..., Any]]) -> None:
        self.transforms: tuple[Callable[..., Any], ...] = tuple(transforms)
        for part in self.transforms:
            check_sync(part, "Compose")
        self._bind()

    def _bind(self) -> None:
        native = [is_native(part) for part in self.transforms]
        # (callable, native, out may be passed, works in place) of each part.
        self._bound = tuple(
            (bind(part), native[place], all(native[place + 1 :]), works_in_place(part))
            for place, part in enumerate(self.transforms)
        )
        self.in_place = bool(native) and all(step[3] for step in self._bound)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        # True if x is separate memory that only this loop refers to.
        fresh = False
        for step, native, lend, in_place in self._bound:
            target = out if lend else None
            if fresh and in_place and lend and not (out is not None and _alike(x, out)):
                target = x
            y = step(x, rng, target)
            if y is not x:
                fresh = native and y is not out and isinstance(y, np.ndarray) and y.base is None
            elif not native:
                fresh = False
            x = y
        return x

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        for part in self.transforms:
            spec = _out_spec(part, spec)
        return spec

    def _parts(self) -> Sequence[Any]:
        return self.transforms

    def _chain(self) -> Sequence[Any]:
        return self.transforms

    def _label(self) -> str:
        return " > ".join(map(name_of, self.transforms))

    def __repr__(self) -> str:
        lines = ",\n".join(repr(part) for part in self.transforms).replace("\n", "\n    ")
        return f"Compose([\n    {lines},\n])" if lines else "Compose([])"


def _alike(x: Array, out: Array) -> bool:
    return x.shape == out.shape and x.dtype == out.dtype


def _out_spec(fn: Any, spec: ArraySpec | None) -> ArraySpec | None:
    """Return the spec of a callable's result; None if it is not a transform."""
    found: ArraySpec | None = fn.out_spec(spec) if is_transform(fn) else None
    return found


class RandomApply(BindingTransform):
    """Transform that is applied with probability `p`. One draw, then those of the transform if it is applied.

    Args:
        transforms: a callable, or a sequence of them, applied together as by `Compose`.
        p: probability, 0 to 1.

    Raises:
        ValueError: `p` is not a probability.
        TypeError: a transform is async; pass it to a separate `Dataset.transform`.
    """

    def __init__(self, transforms: Callable[..., Any] | Sequence[Callable[..., Any]], p: float = 0.5) -> None:
        self.transforms: Callable[..., Any] = (
            Compose(transforms) if isinstance(transforms, Sequence) else transforms
        )
        check_sync(self.transforms, "RandomApply")
        self.p = check_probability(p, "RandomApply")
        self._bind()

    def _bind(self) -> None:
        self._bound = bind(self.transforms)
        self.in_place = works_in_place(self.transforms)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        return self._bound(x, rng, out) if self._drawn(rng) else x

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec if spec == _out_spec(self.transforms, spec) else None

    def _parts(self) -> Sequence[Any]:
        return (self.transforms,)

    def _chain(self) -> Sequence[Any]:
        return (self.transforms,)

    def _drawn(self, rng: Rng) -> bool:
        return bool(rng.random() < self.p)


class RandomChoice(BindingTransform):
    """One of several transforms, drawn for each sample. One draw, then those of the transform.

    Args:
        transforms: callables, at least one.
        p: their weights, in the same order; None: all alike.

    Raises:
        ValueError: there are no transforms, or the weights do not fit them.
        TypeError: a transform is async; pass it to a separate `Dataset.transform`.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]], p: Sequence[float] | None = None) -> None:
        self.transforms = tuple(transforms)
        if not self.transforms:
            raise ValueError("RandomChoice needs at least one transform")
        for part in self.transforms:
            check_sync(part, "RandomChoice")
        self.p = None if p is None else tuple(map(float, p))
        weights = (1.0,) * len(self.transforms) if self.p is None else self.p
        if len(weights) != len(self.transforms) or min(weights) < 0 or not 0 < sum(weights) < math.inf:
            raise ValueError(
                f"RandomChoice: p must have a weight of at least 0 for each of the {len(self.transforms)} transforms, "
                f"and one above 0, got {p!r}"
            )
        self._bind()

    def _bind(self) -> None:
        weights = [1.0] * len(self.transforms) if self.p is None else list(self.p)
        ends = np.cumsum(weights) / sum(weights)
        self._bound = tuple(map(bind, self.transforms)), ends
        self.in_place = all(map(works_in_place, self.transforms))

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        steps, ends = self._bound
        place = int(np.searchsorted(ends, rng.random(), side="right"))
        return steps[min(place, len(steps) - 1)](x, rng, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        found = [_out_spec(part, spec) for part in self.transforms]
        return found[0] if all(each == found[0] for each in found) else None

    def _parts(self) -> Sequence[Any]:
        return self.transforms


class RandomOrder(BindingTransform):
    """Several transforms, all applied, in an order drawn for each sample.

    Draws: one less than the transforms, for the order, then those of the transforms in that order.

    Args:
        transforms: callables.

    Raises:
        TypeError: a transform is async; pass it to a separate `Dataset.transform`.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self.transforms = tuple(transforms)
        for part in self.transforms:
            check_sync(part, "RandomOrder")
        self._bind()

    def _bind(self) -> None:
        self._bound = tuple(map(bind, self.transforms))
        self.in_place = bool(self.transforms) and all(map(works_in_place, self.transforms))

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        steps = list(self._bound)
        rng.shuffle(steps)
        for step in steps:
            x = step(x, rng, None)
        return x

    def _parts(self) -> Sequence[Any]:
        return self.transforms


def result_array(
    x: Array, shape: tuple[int, ...], dtype: np.dtype[Any], out: Array | None, in_place: bool = False
) -> Array:
    """Return the array for a result: `out` if it fits and does not overlap `x`, else new memory.

    Args:
        x: the input that the result is computed from.
        shape, dtype: of the result.
        out: the array that the caller offers, or None.
        in_place: `x` may be `out` itself.
    """
    if (
        out is not None
        and out.shape == shape
        and out.dtype == dtype
        and out.flags.c_contiguous
        and out.flags.writeable
        and ((in_place and x is out) or not np.may_share_memory(x, out))
    ):
        return out
    return np.empty(shape, dtype)


def drop_grey_axis(x: Array) -> Array:
    """Return a view (height, width) of an image of one channel, because OpenCV drops that axis; others unchanged."""
    return x[:, :, 0] if x.shape[2] == 1 else x


def _not_an_image(name: str, x: Any) -> str:
    if isinstance(x, (tuple, Mapping)):
        return (
            f"{name} changes one image, got a {type(x).__name__} of {len(x)}: dataset.transform_first changes the "
            "first element of a sample; to move masks, boxes or keypoints with it, make the sample a dict "
            "{'image': ..., 'mask': ...} and use dataset.transform(transforms.JointCompose([...]))"
        )
    return f"{name} takes a numpy array, got {type(x).__name__}; decode the image first"


def check_image(x: Any, name: str, ndims: tuple[int, ...] = (3,)) -> Array:
    """Return `x` if it can be an image.

    Raises:
        TypeError: not an array.
        ValueError: wrong number of axes.
    """
    if not isinstance(x, np.ndarray):
        raise TypeError(_not_an_image(name, x))
    if x.ndim not in ndims:
        axes = " or ".join(
            "(height, width, channels)" if n == 3 else "(n, height, width, channels)" for n in ndims
        )
        raise ValueError(f"{name} takes an image {axes}, got shape {x.shape}")
    return x


def check_probability(p: float, name: str) -> float:
    """Return `p` if 0 <= p <= 1; otherwise raise ValueError."""
    if not 0.0 <= p <= 1.0:
        raise ValueError(f"{name}: p must be a probability, 0 <= p <= 1, got {p!r}")
    return float(p)


def check_range(
    values: Any, name: str, least: float = 0.0, *, exclusive: bool = True, finite: bool = True
) -> tuple[float, float]:
    """Return the two ends of a range as floats.

    Args:
        values: (least, greatest).
        name: the transform's name, and the argument's, for the error.
        least: lower limit of both ends.
        exclusive: the lower limit itself is not allowed.
        finite: infinity is not allowed.

    Raises:
        ValueError: `values` is not a range within the limits.
    """
    try:
        low, high = map(float, values)
    except (TypeError, ValueError):
        low, high = math.nan, math.nan
    above = least < low if exclusive else least <= low
    if not (above and low <= high and (high < math.inf or not finite)):
        sign = "<" if exclusive else "<="
        raise ValueError(
            f"{name} must be (least, greatest) with {least:g} {sign} least <= greatest, got {values!r}"
        )
    return low, high


def check_sides(pad: Any, name: str) -> tuple[int, int, int, int]:
    """Return (top, bottom, left, right) of a padding from one number or four.

    Raises:
        ValueError: `pad` is neither a number of at least 0 nor four of them.
    """
    sides = whole_numbers(pad, 4)
    if len(sides) != 4 or min(sides) < 0:
        raise ValueError(
            f"{name}: pad must be an int >= 0 or four of them (top, bottom, left, right), got {pad!r}"
        )
    return sides


def check_size(size: Any, name: str, order: str = "(height, width)") -> tuple[int, int]:
    """Return a pair of extents from an int or a pair.

    Args:
        size: the argument; one number, or a sequence of only one, is the side of a square.
        name: the transform's name, for the error.
        order: the order of a pair, for the error.

    Raises:
        ValueError: `size` is neither a positive int nor two of them.
    """
    if isinstance(size, Sequence) and len(size) == 1:
        size = size[0]
    pair = () if isinstance(size, bool) else whole_numbers(size, 2)
    if len(pair) != 2 or min(pair) < 1:
        raise ValueError(f"{name}: size must be a positive int or {order}, got {size!r}")
    return pair[0], pair[1]


def whole_numbers(values: Any, count: int) -> tuple[int, ...]:
    """Return whole numbers as a tuple, a single one `count` times; an empty tuple if they are none."""
    try:
        return tuple(map(operator.index, values if isinstance(values, Sequence) else (values,) * count))
    except TypeError:
        return ()


@dataclass(frozen=True, slots=True)
class Motion:
    """A geometric transform of an image of known extents, with all its draws made.

    Attributes:
        size: (height, width) of the result.
        matrix: (3, 3), from places in the image to places in the result; x, then y, in pixels from the upper left
            corner, so that the centre of the first pixel is (0.5, 0.5).
        move_image: returns the image, (height, width, channels), at its new place; the second argument is an array that
            the result may be written to, or None.
        move_mask: the same for a mask, (height, width, n): no values are mixed, and places outside are 0.
        cuts: places inside the image may be outside of the result.
    """

    size: tuple[int, int]
    matrix: Array
    move_image: Callable[[Array, Array | None], Array]
    move_mask: Callable[[Array], Array]
    cuts: bool = False


class GeometricTransform(Transform):
    """Base of transforms that move pixels. A subclass defines `motion`, from which all else follows."""

    _geometric = True

    def motion(self, height: int, width: int, rng: Rng) -> Motion:
        """Draw a motion.

        Args:
            height, width: extents of the image in pixels.
            rng: source of the draws; those of `apply`, except that the interpolation "random" is drawn when the image
                is moved.
        """
        raise NotImplementedError(f"{type(self).__name__} defines no motion()")

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__)
        return self.motion(image.shape[0], image.shape[1], rng).move_image(image, out)


def no_motion(height: int, width: int) -> Motion:
    """Return the motion that leaves an image as it is."""
    return Motion((height, width), np.eye(3), lambda x, out: x, lambda mask: mask)


def scaling(scale_x: float, scale_y: float, x: float = 0.0, y: float = 0.0) -> Array:
    """Return the matrix (3, 3) of a scaling, and then a shift by (x, y) pixels of the result."""
    return np.array([[scale_x, 0.0, x], [0.0, scale_y, y], [0.0, 0.0, 1.0]])
