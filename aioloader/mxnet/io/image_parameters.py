"""Arguments of `ImageRecordIter` and its variants: the one table that reading and documentation are based on."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.io.parameters import Parameter
from aioloader.mxnet.io.record_parameters import (
    CHANNELS,
    FILES,
    INTERPOLATION,
    LOADING,
    MEAN,
    OWN,
    RESIZE,
    idle_channels,
)

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

__all__ = ("IMAGE_PARAMETERS", "INT8_PARAMETERS", "UINT8_PARAMETERS", "idle_here")

_GEOMETRY: dict[str, Parameter] = {
    **RESIZE,
    "rand_crop": Parameter("boolean", False, about="Crop at a random place instead of the middle."),
    "random_resized_crop": Parameter(
        "boolean",
        False,
        about="Crop a rectangle of random area and ratio at a random place and resize it to data_shape.",
    ),
    "min_random_area": Parameter("float", 1.0, about="Least share of the area for random_resized_crop."),
    "max_random_area": Parameter("float", 1.0, about="Greatest share of the area for random_resized_crop."),
    "max_aspect_ratio": Parameter(
        "float",
        0.0,
        low=0,
        about="The ratio of width to height changes by a factor within [1 - v, 1 + v], or up to v if min_aspect_ratio "
        "is given.",
    ),
    "min_aspect_ratio": Parameter(
        "float", None, low=0, optional=True, about="Least such factor; max_aspect_ratio is the greatest then."
    ),
    "max_crop_size": Parameter(
        "int", -1, about="Greatest side of a square that is cropped and resized to data_shape; -1: none is."
    ),
    "min_crop_size": Parameter("int", -1, about="Least side of that square; both or none are given."),
    "max_rotate_angle": Parameter(
        "int", 0, about="Turn by a random whole number of degrees within [-v, v]; at most 0: do not."
    ),
    "rotate": Parameter(
        "int",
        -1,
        about="Turn by so many degrees, counter-clockwise, instead of a random angle; at most 0: do not.",
    ),
    "rotate_list": Parameter(
        "ints", None, optional=True, about="Turn by one of these angles in degrees, drawn for each image."
    ),
    "max_shear_ratio": Parameter(
        "float", 0.0, about="Shear by a random number within [-v, v]; at most 0: do not."
    ),
    "max_random_scale": Parameter("float", 1.0, about="Greatest random scale."),
    "min_random_scale": Parameter("float", 1.0, about="Least random scale."),
    "max_img_size": Parameter("float", 1e10, low=0, about="Most pixels of a side after turning and scaling."),
    "min_img_size": Parameter(
        "float", 0.0, low=0, about="Fewest pixels of a side after turning and scaling."
    ),
    "pad": Parameter("int", 0, about="Pixels added on all four sides, after turning and before cropping."),
    "fill_value": Parameter(
        "int", 255, low=0, high=255, about="Value of pixels that come from outside of the image."
    ),
    **INTERPOLATION,
}
_COLOURS: dict[str, Parameter] = {
    "brightness": Parameter("float", 0.0, low=0, about="Multiply by a random factor within [1 - v, 1 + v]."),
    "contrast": Parameter("float", 0.0, low=0, about="Stretch round the mean luma by such a factor."),
    "saturation": Parameter("float", 0.0, low=0, about="Stretch round each pixel's luma by such a factor."),
    "pca_noise": Parameter(
        "float",
        0.0,
        low=0,
        about="Standard deviation of the weights with which the principal colours of ImageNet are added.",
    ),
    "random_h": Parameter("int", 0, low=0, about="Greatest random shift of the hue, in steps of 2 degrees."),
    "random_s": Parameter("int", 0, low=0, about="Greatest random shift of the saturation, of 255."),
    "random_l": Parameter("int", 0, low=0, about="Greatest random shift of the lightness, of 255."),
}
_NORMALISATION: dict[str, Parameter] = {
    "mirror": Parameter("boolean", False, about="Exchange left and right in every image."),
    "rand_mirror": Parameter(
        "boolean", False, about="Exchange left and right in half of the images, at random."
    ),
    **MEAN,
    **{
        f"std_{c}": Parameter("float", 1.0, about=f"Divisor of the {name} channel.")
        for c, name in CHANNELS.items()
    },
    "scale": Parameter("float", 1.0, about="Factor of all pixels, after the mean was taken off."),
    "max_random_contrast": Parameter(
        "float",
        0.0,
        low=0,
        about="Multiply every image by a random factor within [1 - v, 1 + v], times scale.",
    ),
    "max_random_illumination": Parameter(
        "float", 0.0, low=0, about="Add a random number within [-v, v], times scale, to every image."
    ),
}

IMAGE_PARAMETERS: dict[str, Parameter] = {
    **FILES,
    **LOADING,
    "label_width": Parameter(
        "int", 1, low=1, about="Labels of every image; labels of shape (batch_size,) if 1."
    ),
    "dtype": Parameter(
        "string",
        None,
        optional=True,
        choices=("float32", "uint8", "int8"),
        about="Of the images; None: float32. uint8: as they are. int8: minus the mean, saturated.",
    ),
    "seed": replace(
        LOADING["seed"],
        about="Of the order, and of the augmentation too unless seed_aug is given. The same seed gives the same "
        "batches, whatever the number of workers.",
    ),
    "seed_aug": Parameter(
        "int",
        None,
        optional=True,
        about="Of the augmentation alone; each pass and record has draws of its own.",
    ),
    "device_id": Parameter("int", 0, idle="no memory is pinned; your framework does that"),
    "aug_seq": Parameter(
        "string", "aug_default", choices=("aug_default",), about="Name of the augmentation: there is one."
    ),
    **_GEOMETRY,
    **_COLOURS,
    **_NORMALISATION,
    **OWN,
    "dct_scaling": Parameter(
        "boolean",
        False,
        about="Where the first crop or resize shrinks a JPEG to a half or less, decode it at 1/2, 1/4 or 1/8 of its "
        "size: faster, and pixels change slightly. Not in MXNet.",
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
    idle = idle_channels(values)
    if values["mean_img"] and os.path.exists(values["mean_img"]):
        idle |= dict.fromkeys(_MEANS, "mean_img is given")
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
