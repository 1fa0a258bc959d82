"""Arguments of `ImageDetRecordIter`: the one table that reading and documentation are based on."""

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

__all__ = ("DETECTION_PARAMETERS", "RANGES", "idle_in_detection")


def _probability(what: str) -> Parameter:
    return Parameter("float", 0.0, low=0, high=1, about=f"Probability that {what}.")


def _range(least: float, greatest: float, what: str) -> dict[str, Parameter]:
    """Return the two ends of a range of the crop samplers, by "min" and "max"."""
    return {
        side: Parameter(
            "floats", (default,), low=0, about=f"{word} {what}; one value, or one for each sampler."
        )
        for side, default, word in (("min", least, "Least"), ("max", greatest, "Greatest"))
    }


_RANGES = {
    "crop_scales": _range(0.0, 1.0, "scale of a crop, a share of the image's extents"),
    "crop_aspect_ratios": _range(1.0, 1.0, "width/height of a crop"),
    "crop_overlaps": _range(0.0, 1.0, "intersection over union of a crop with an object's box"),
    "crop_sample_coverages": _range(0.0, 1.0, "share of a crop that an object's box takes"),
    "crop_object_coverages": _range(0.0, 1.0, "share of an object's box that lies in a crop"),
}
RANGES = tuple(_RANGES)
"""Names of the ranges of the crop samplers, without "min_" and "max_" in front."""

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
    "label_width": Parameter(
        "int", -1, about="Numbers of every record's label; -1: they differ from record to record."
    ),
    "label_pad_width": Parameter(
        "int",
        0,
        about="Labels are filled up to so many numbers; at most 0: to those of the widest one. A wider label is an "
        "error.",
    ),
    "label_pad_value": Parameter("float", -1.0, about="What labels are filled up with."),
    "aug_seq": Parameter(
        "string",
        "det_aug_default",
        choices=("det_aug_default",),
        about="Name of the augmentation: there is one.",
    ),
    **RESIZE,
    "rand_crop_prob": _probability("an image is cropped"),
    "num_crop_sampler": Parameter(
        "int", 1, low=0, about="Crop samplers, tried in a random order until one finds a crop."
    ),
    **{f"{side}_{name}": _RANGES[name][side] for name in _RANGES for side in ("min", "max")},
    "max_crop_trials": Parameter(
        "ints", (25,), low=0, about="Tries of a sampler; one value, or one for each."
    ),
    "crop_emit_mode": Parameter(
        "string",
        "center",
        choices=("center", "overlap"),
        about="Objects that stay in a crop: those with the centre in it, or those of which it shows enough.",
    ),
    "emit_overlap_thresh": Parameter(
        "float", 0.3, low=0, high=1, about='Share of an object\'s box that is enough for "overlap".'
    ),
    "rand_pad_prob": _probability("an image is put on a larger canvas"),
    "max_pad_scale": Parameter(
        "float", 1.0, low=1, about="Greatest extents of that canvas, times the image's."
    ),
    "fill_value": Parameter("int", 127, low=0, high=255, about="Value of the canvas."),
    "max_random_hue": Parameter(
        "int", 0, low=0, about="Greatest random shift of the hue, in steps of 2 degrees."
    ),
    "random_hue_prob": _probability("the hue is shifted"),
    "max_random_saturation": Parameter(
        "int", 0, low=0, about="Greatest random shift of the saturation, of 255."
    ),
    "random_saturation_prob": _probability("the saturation is shifted"),
    "max_random_illumination": Parameter(
        "int", 0, low=0, about="Greatest random shift of the lightness, of 255."
    ),
    "random_illumination_prob": _probability("the lightness is shifted"),
    "max_random_contrast": Parameter(
        "float", 0.0, low=0, about="Multiply by a random factor within [1 - v, 1 + v]."
    ),
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
    "scale": Parameter("float", 1.0, about="Factor of all pixels, after the mean was taken off."),
    **OWN,
}

# A probability, which is 0 by default, and the arguments that have an effect only with it.
_DEPENDENT = {
    "rand_crop_prob": (
        *("num_crop_sampler", "max_crop_trials", "crop_emit_mode", "emit_overlap_thresh"),
        *(f"{side}_{name}" for name in _RANGES for side in ("min", "max")),
    ),
    "rand_pad_prob": ("max_pad_scale", "fill_value"),
    "random_hue_prob": ("max_random_hue",),
    "random_saturation_prob": ("max_random_saturation",),
    "random_illumination_prob": ("max_random_illumination",),
    "random_contrast_prob": ("max_random_contrast",),
}


def idle_in_detection(values: Mapping[str, Any], given: Container[str]) -> dict[str, str]:
    """Return the arguments of `DETECTION_PARAMETERS` without effect next to the others, and why."""
    idle = idle_channels(values)
    if values["mean_img"] and os.path.exists(values["mean_img"]):
        idle |= dict.fromkeys((f"mean_{c}" for c in CHANNELS), "mean_img is given")
    for switch, names in _DEPENDENT.items():
        if switch not in given:
            idle |= dict.fromkeys(names, f"{switch} is not given, and 0 by default")
    return idle
