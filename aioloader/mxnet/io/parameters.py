"""Arguments of the iterators that MXNet writes in C++: passed by keyword, read through `str`.

So ``batch_size="4"`` and ``data_shape="(3, 8, 8)"`` equal ``4`` and ``(3, 8, 8)``. One table defines an
iterator's arguments; its documentation is generated from that table.

Those of `ImageRecordIter` and its variants, and of `ImageDetRecordIter`, are at the end.
"""

from __future__ import annotations

import ast
import inspect
import os
import textwrap
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import closest_name
from aioloader.mxnet.base import MXNetError
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

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


def _flag(about: str) -> Parameter:
    """Return a switch that is off by default."""
    return Parameter("boolean", False, about=about)


def _amount(about: str) -> Parameter:
    """Return a number of 0 or more, 0 by default: without effect."""
    return Parameter("float", 0.0, low=0, about=about)


def _factor(about: str) -> Parameter:
    """Return a number that is 1 by default: without effect."""
    return Parameter("float", 1.0, about=about)


def _whole(default: int, about: str, low: float | None = None, high: float | None = None) -> Parameter:
    """Return a whole number."""
    return Parameter("int", default, about=about, low=low, high=high)


def _shift(about: str) -> Parameter:
    """Return a whole number of 0 or more, 0 by default: without effect."""
    return _whole(0, about, low=0)


def _choice(choices: tuple[str, ...], about: str) -> Parameter:
    """Return one of several texts, the first of which is the default."""
    return Parameter("string", choices[0], choices=choices, about=about)


CHANNELS = {"r": "red (or grey)", "g": "green", "b": "blue", "a": "alpha"}

FILES: dict[str, Parameter] = {
    "path_imgrec": Parameter(
        "string",
        about='Record file; several separated by ";", a folder with such files, or a folder and a regular expression. '
        "A list of paths is accepted too.",
    ),
    "path_imgidx": Parameter(
        "string",
        "",
        optional=True,
        about='Index of the record file; of several files one each, separated by ";". Without it the .idx next to the '
        "file is used, or the records are found by a scan.",
    ),
    "path_imglist": Parameter(
        "string",
        "",
        optional=True,
        about="A .lst file whose labels replace those of the records, by id. It neither selects nor orders them.",
    ),
}
LOADING: dict[str, Parameter] = {
    "data_shape": Parameter(
        "shape", axes=3, about="(channels, height, width) of an image: 3 RGB, 1 grey, 4 RGBA as stored."
    ),
    "batch_size": Parameter("int", low=1, about="Rows of a batch."),
    "shuffle": _flag("Every pass has a new order of all records of the part, with an index or without."),
    "seed": _whole(
        0,
        "Of the order and of the augmentation. The same seed produces the same batches for any number of "
        "workers.",
    ),
    "num_parts": _whole(
        1, "The records are divided among this many parts; all have the same number of batches.", low=1
    ),
    "part_index": _shift("Which part this is, from 0."),
    "round_batch": Parameter(
        "boolean",
        True,
        about="Fill the last batch with the first rows of the next pass, which begins behind them. False: pad it with "
        "zeros. `pad` is the number of these rows.",
    ),
    "preprocess_threads": _whole(4, "Most workers that decode; no more than there are cores.", low=1),
    "prefetch_buffer": _whole(4, "Batches in flight at a time, at least 1.", low=0),
    "data_name": Parameter("string", "data", about="Name of the images in the network."),
    "label_name": Parameter("string", "softmax_label", about="Name of the labels in the network."),
    "verbose": Parameter("boolean", True, idle="nothing is printed"),
    "ctx": Parameter(
        "string",
        "gpu",
        choices=("cpu", "gpu"),
        idle="batches are in the memory of this host, and are loaded ahead in any case",
    ),
    "shuffle_chunk_size": Parameter(
        "int", 0, low=0, idle="records are read one by one and not by chunks, and the shuffle is complete"
    ),
    "shuffle_chunk_seed": Parameter("int", 0, idle="there are no chunks; seed decides the order"),
}
RESIZE: dict[str, Parameter] = {
    "resize": _whole(-1, "First resize the shorter side to this many pixels; -1: do not."),
}
INTERPOLATION: dict[str, Parameter] = {
    "inter_method": _whole(
        1,
        "How images are resized: 0 nearest, 1 bilinear, 2 bicubic, 3 area, 4 Lanczos, 9 by the sizes (bicubic to "
        "enlarge, area to shrink, else bilinear), 10 one of 0 to 4 for each image.",
    ),
}
MEAN: dict[str, Parameter] = {
    "mean_img": Parameter(
        "string",
        "",
        optional=True,
        about="File of a mean image, which is taken off every image. If there is no such file it is made: the mean of "
        "one pass without anything random, normalised as images are.",
    ),
    **{
        f"mean_{c}": Parameter(
            "float", 0.0, about=f"Mean of the {name} channel, taken off; not if mean_img is."
        )
        for c, name in CHANNELS.items()
    },
}
# Not part of MXNet.
OWN: dict[str, Parameter] = {
    "strict": _flag("Refuse unknown arguments instead of a warning. Not in MXNet."),
    "exif": _choice(
        ("apply", "ignore"), "Turn images upright by their Exif data, or leave them as stored. Not in MXNet."
    ),
    "max_pixels": Parameter(
        "int",
        DEFAULT_MAX_PIXELS,
        low=1,
        optional=True,
        about="Larger images are refused before they are decoded; None: there is no limit. Not in MXNet.",
    ),
    "on_error": _choice(
        ("raise", "skip", "replace"),
        'A record that cannot be read or decoded is an error that names it. "skip": it is left out, and zeros '
        'pad its batch, which `pad` counts. "replace": the next valid record of the batch replaces it. '
        "Both add it to the iterator's `errors`. Not in MXNet.",
    ),
    "max_errors": Parameter(
        "limit",
        None,
        low=0,
        optional=True,
        about="Number of records that may fail before an error is raised all the same; less than 1: the share of a "
        "pass, checked after 1,000 records and at its end; None: any number. Not in MXNet.",
    ),
    "executor": _choice(
        ("process", "fork", "thread", "inline"), 'Kind of the workers; "inline" has none. Not in MXNet.'
    ),
}


def _idle_normalisation(values: Mapping[str, Any]) -> dict[str, str]:
    """Return the means and divisors without effect next to the other arguments, and why."""
    count = values["data_shape"][0]
    names = list(CHANNELS)[count:]
    idle = dict.fromkeys(
        [f"{what}_{c}" for c in names for what in ("mean", "std")],
        f"images have {count} channel{'s' if count != 1 else ''}",
    )
    if values["mean_img"] and os.path.exists(values["mean_img"]):
        idle |= dict.fromkeys(_MEANS, "mean_img is given")
    return idle


IMAGE_PARAMETERS: dict[str, Parameter] = {
    **FILES,
    **LOADING,
    "label_width": _whole(1, "Labels of every image; labels of shape (batch_size,) if 1.", low=1),
    "dtype": Parameter(
        "string",
        None,
        optional=True,
        choices=("float32", "uint8", "int8"),
        about="Of the images; None: float32. uint8: as they are. int8: minus the mean, saturated.",
    ),
    "seed": replace(
        LOADING["seed"],
        about="Of the order, and of the augmentation too unless seed_aug is given. The same seed produces the same "
        "batches for any number of workers.",
    ),
    "seed_aug": Parameter(
        "int",
        None,
        optional=True,
        about="Of the augmentation alone; each pass and record has its own draws.",
    ),
    "device_id": Parameter("int", 0, idle="no memory is pinned; your framework does that"),
    "aug_seq": _choice(("aug_default",), "Name of the augmentation: there is one."),
    # geometry
    **RESIZE,
    "rand_crop": _flag("Crop at a random place instead of the middle."),
    "random_resized_crop": _flag(
        "Crop a rectangle of random area and ratio at a random place and resize it to data_shape."
    ),
    "min_random_area": _factor("Least share of the area for random_resized_crop."),
    "max_random_area": _factor("Greatest share of the area for random_resized_crop."),
    "max_aspect_ratio": _amount(
        "The ratio of width to height changes by a factor within [1 - v, 1 + v], or up to v if min_aspect_ratio "
        "is given."
    ),
    "min_aspect_ratio": Parameter(
        "float", None, low=0, optional=True, about="Least such factor; max_aspect_ratio is the greatest then."
    ),
    "max_crop_size": _whole(
        -1, "Greatest side of a square that is cropped and resized to data_shape; -1: none is."
    ),
    "min_crop_size": _whole(-1, "Least side of that square; both or none are given."),
    "max_rotate_angle": _whole(
        0, "Turn by a random whole number of degrees within [-v, v]; at most 0: do not."
    ),
    "rotate": _whole(
        -1, "Turn by this many degrees, counter-clockwise, instead of a random angle; at most 0: do not."
    ),
    "rotate_list": Parameter(
        "ints", None, optional=True, about="Turn by one of these angles in degrees, drawn for each image."
    ),
    "max_shear_ratio": Parameter(
        "float", 0.0, about="Shear by a random number within [-v, v]; at most 0: do not."
    ),
    "max_random_scale": _factor("Greatest random scale."),
    "min_random_scale": _factor("Least random scale."),
    "max_img_size": Parameter("float", 1e10, low=0, about="Most pixels of a side after turning and scaling."),
    "min_img_size": _amount("Fewest pixels of a side after turning and scaling."),
    "pad": _whole(0, "Pixels added on all four sides, after turning and before cropping."),
    "fill_value": _whole(255, "Value of pixels that come from outside of the image.", low=0, high=255),
    **INTERPOLATION,
    # colours
    "brightness": _amount("Multiply by a random factor within [1 - v, 1 + v]."),
    "contrast": _amount("Stretch round the mean luma by such a factor."),
    "saturation": _amount("Stretch round each pixel's luma by such a factor."),
    "pca_noise": _amount(
        "Standard deviation of the weights with which the principal colours of ImageNet are added."
    ),
    "random_h": _shift("Greatest random shift of the hue, in steps of 2 degrees."),
    "random_s": _shift("Greatest random shift of the saturation, of 255."),
    "random_l": _shift("Greatest random shift of the lightness, of 255."),
    # normalisation
    "mirror": _flag("Exchange left and right in every image."),
    "rand_mirror": _flag("Exchange left and right in half of the images, at random."),
    **MEAN,
    **{f"std_{c}": _factor(f"Divisor of the {name} channel.") for c, name in CHANNELS.items()},
    "scale": _factor("Factor of all pixels, after the mean was taken off."),
    "max_random_contrast": _amount(
        "Multiply every image by a random factor within [1 - v, 1 + v], times scale."
    ),
    "max_random_illumination": _amount("Add a random number within [-v, v], times scale, to every image."),
    # not part of MXNet
    **OWN,
    "dct_scaling": _flag(
        "Where the first crop or resize shrinks a JPEG to a half or less, decode it at 1/2, 1/4 or 1/8 of its "
        "size: faster, and pixels change slightly. Not in MXNet."
    ),
}


def _of_one_dtype(dtype: str, idle: Mapping[str, str]) -> dict[str, Parameter]:
    """Return the table of an iterator with a fixed dtype, for which some arguments have no effect."""
    table = dict(IMAGE_PARAMETERS)
    table["dtype"] = replace(table["dtype"], choices=(dtype,), about=f"Of the images: {dtype} only.")
    return table | {name: replace(table[name], about="", idle=why) for name, why in idle.items()}


_AMOUNTS = ("scale", "max_random_contrast", "max_random_illumination", *(f"std_{c}" for c in CHANNELS))
_MEANS = tuple(f"mean_{c}" for c in CHANNELS)
_AS_UINT8 = "uint8 images are delivered as they are, without normalisation"
_AS_INT8 = "of int8 images only the mean is taken off"
UINT8_PARAMETERS = _of_one_dtype("uint8", dict.fromkeys((*_MEANS, *_AMOUNTS, "mean_img"), _AS_UINT8))
INT8_PARAMETERS = _of_one_dtype("int8", dict.fromkeys(_AMOUNTS, _AS_INT8))


def idle_here(values: Mapping[str, Any], given: Container[str]) -> dict[str, str]:
    """Return the arguments of `IMAGE_PARAMETERS` without effect next to the others, and why; see `read_parameters`."""
    idle = _idle_normalisation(values)
    if values["dtype"] == "int8":
        idle |= dict.fromkeys(_AMOUNTS, _AS_INT8)
    if values["dtype"] == "uint8":
        idle |= dict.fromkeys((*_MEANS, *_AMOUNTS, "mean_img"), _AS_UINT8)
    if "random_resized_crop" not in given:
        idle |= dict.fromkeys(
            ("min_random_area", "max_random_area"),
            "only random_resized_crop crops by area, and it is not given",
        )
    if values["rotate_list"]:
        idle |= dict.fromkeys(("rotate", "max_rotate_angle"), "the angles are those of rotate_list")
    elif values["rotate"] > 0:
        idle["max_rotate_angle"] = "the angle is that of rotate"
    if values["mirror"]:
        idle["rand_mirror"] = "mirror exchanges left and right in every image"
    return idle


def _probability(what: str) -> Parameter:
    return Parameter("float", 0.0, low=0, high=1, about=f"Probability that {what}.")


# Ranges of the crop samplers, without "min_" and "max_" in front: their defaults, and what they limit.
RANGES = {
    "crop_scales": (0.0, 1.0, "scale of a crop, a share of the image's extents"),
    "crop_aspect_ratios": (1.0, 1.0, "width/height of a crop"),
    "crop_overlaps": (0.0, 1.0, "intersection over union of a crop with an object's box"),
    "crop_sample_coverages": (0.0, 1.0, "share of a crop that an object's box takes"),
    "crop_object_coverages": (0.0, 1.0, "share of an object's box that is inside a crop"),
}
_ENDS: dict[str, Parameter] = {
    f"{side}_{name}": Parameter(
        "floats", (default,), low=0, about=f"{word} {limited}; one value, or one for each sampler."
    )
    for name, (least, greatest, limited) in RANGES.items()
    for side, word, default in (("min", "Least", least), ("max", "Greatest", greatest))
}

DETECTION_PARAMETERS: dict[str, Parameter] = {
    "path_imgrec": replace(FILES["path_imgrec"], default="./data/imgrec.rec"),
    "path_imgidx": replace(FILES["path_imgidx"], about=f"{FILES['path_imgidx'].about} Not in MXNet."),
    "path_imglist": FILES["path_imglist"],
    **LOADING,
    "data_shape": replace(
        LOADING["data_shape"], about="(channels, height, width) of an image: 3 RGB, 1 grey."
    ),
    "dtype": Parameter(
        "string", None, optional=True, choices=("float32",), about="Of the images: float32 only."
    ),
    "label_width": _whole(-1, "Numbers of every record's label; -1: they differ from record to record."),
    "label_pad_width": _whole(
        0, "Labels are padded to this many numbers; at most 0: to the widest one. A wider label is an error."
    ),
    "label_pad_value": Parameter("float", -1.0, about="Padding value of labels."),
    "aug_seq": _choice(("det_aug_default",), "Name of the augmentation: there is one."),
    **RESIZE,
    "rand_crop_prob": _probability("an image is cropped"),
    "num_crop_sampler": _whole(1, "Crop samplers, tried in a random order until one finds a crop.", low=0),
    **_ENDS,
    "max_crop_trials": Parameter(
        "ints", (25,), low=0, about="Tries of a sampler; one value, or one for each."
    ),
    "crop_emit_mode": _choice(
        ("center", "overlap"),
        "Objects that stay in a crop: those with the centre in it, or those of which it shows enough.",
    ),
    "emit_overlap_thresh": Parameter(
        "float", 0.3, low=0, high=1, about='Share of an object\'s box that is enough for "overlap".'
    ),
    "rand_pad_prob": _probability("an image is put on a larger canvas"),
    "max_pad_scale": Parameter(
        "float", 1.0, low=1, about="Greatest extents of that canvas, times the image's."
    ),
    "fill_value": _whole(127, "Value of the canvas.", low=0, high=255),
    "max_random_hue": _shift("Greatest random shift of the hue, in steps of 2 degrees."),
    "random_hue_prob": _probability("the hue is shifted"),
    "max_random_saturation": _shift("Greatest random shift of the saturation, of 255."),
    "random_saturation_prob": _probability("the saturation is shifted"),
    "max_random_illumination": _shift("Greatest random shift of the lightness, of 255."),
    "random_illumination_prob": _probability("the lightness is shifted"),
    "max_random_contrast": _amount("Multiply by a random factor within [1 - v, 1 + v]."),
    "random_contrast_prob": _probability("the contrast is changed"),
    "rand_mirror_prob": _probability("left and right are exchanged"),
    "resize_mode": Parameter(
        "string",
        "force",
        choices=("fit", "force", "shrink"),
        about='How an image comes to data_shape: "force": exactly; "shrink": made smaller if it is too large, its '
        'shape kept; "fit": made smaller or larger, its shape kept.',
    ),
    **INTERPOLATION,
    **MEAN,
    **{
        f"std_{c}": Parameter("float", 0.0, about=f"Divisor of the {name} channel; 0: none.")
        for c, name in CHANNELS.items()
    },
    "scale": _factor("Factor of all pixels, after the mean was taken off."),
    **OWN,
}

# A probability, which is 0 by default, and the arguments that have an effect only with it.
_DEPENDENT = {
    "rand_crop_prob": (
        *("num_crop_sampler", "max_crop_trials", "crop_emit_mode", "emit_overlap_thresh"),
        *_ENDS,
    ),
    "rand_pad_prob": ("max_pad_scale", "fill_value"),
    "random_hue_prob": ("max_random_hue",),
    "random_saturation_prob": ("max_random_saturation",),
    "random_illumination_prob": ("max_random_illumination",),
    "random_contrast_prob": ("max_random_contrast",),
}


def idle_in_detection(values: Mapping[str, Any], given: Container[str]) -> dict[str, str]:
    """Return the arguments of `DETECTION_PARAMETERS` without effect next to the others, and why."""
    idle = _idle_normalisation(values)
    for switch, names in _DEPENDENT.items():
        if switch not in given:
            idle |= dict.fromkeys(names, f"{switch} is not given, and 0 by default")
    return idle
