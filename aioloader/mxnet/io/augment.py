"""Augmentation of `ImageRecordIter` as transforms of `aioloader.transforms`.

Order (MXNet's): resize, affine, pad, crop, colour jitter, hue/lightness/saturation, principal colours, mirror,
normalisation. Steps that the arguments do not request are omitted, so that the loader can fuse the remaining ones with
decoding.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError
from aioloader.transforms.base import Compose
from aioloader.transforms.color import FreeColorJitter, RandomHLS, RandomLighting
from aioloader.transforms.geometry import RandomHorizontalFlip
from aioloader.transforms.gluon_geometry import Resize
from aioloader.transforms.interpolation import RANDOM
from aioloader.transforms.planes import ToPlanes
from aioloader.transforms.record_geometry import AreaCrop, Border, RandomAffine, SquareCrop, WindowCrop

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.transforms.base import Transform

_NO_LIMIT = 1e10
# A ratio of 0 would flatten the image to nothing.
_LEAST_RATIO = 0.01
_INTERPOLATIONS = (0, 1, 2, 3, 4, 9, RANDOM)


def check_augmentation(values: Mapping[str, Any]) -> None:
    """Refuse arguments that contradict each other, before anything is read.

    Raises:
        MXNetError: names the arguments and the remedy.
    """
    channels, height, width = values["data_shape"]
    if channels not in (1, 3, 4) or not height or not width:
        raise MXNetError(
            f"Invalid output shape [{channels},{height},{width}]: data_shape is (channels, height, width) with 1, 3 or "
            "4 channels"
        )
    check_interpolation(values["inter_method"])
    colours = ("brightness", "contrast", "saturation", "random_h", "random_s", "random_l", "pca_noise")
    coloured = [name for name in colours if values.get(name)]
    if coloured and channels != 3:
        raise MXNetError(
            f"{', '.join(coloured)}: only images of 3 channels can be changed so, not of {channels}"
        )
    if values["min_aspect_ratio"] is not None and not values["max_aspect_ratio"]:
        raise MXNetError(
            f"min_aspect_ratio={values['min_aspect_ratio']:g} is given without max_aspect_ratio: give both, the least "
            "and the greatest factor"
        )
    sizes = values["max_crop_size"], values["min_crop_size"]
    if sizes != (-1, -1) and not 1 <= sizes[1] <= sizes[0]:
        raise MXNetError(
            f"max_crop_size={sizes[0]} and min_crop_size={sizes[1]}: give both, with "
            "1 <= min_crop_size <= max_crop_size"
        )
    if values["random_resized_crop"]:
        if _scale(values) != (1.0, 1.0) or sizes != (-1, -1) or values["rand_crop"]:
            raise MXNetError(
                "Setting random_resized_crop to true conflicts with min_random_scale, max_random_scale, "
                "min_crop_size, max_crop_size, and rand_crop: leave these at their defaults"
            )
        if min(values["min_random_area"], values["max_random_area"]) <= 0:
            raise MXNetError("min_random_area and max_random_area must be more than 0")
    for name in ("std_r", "std_g", "std_b", "std_a"):
        if values[name] == 0:
            raise MXNetError(f"{name} must not be 0: pixels are divided by it")
    if _scale(values)[0] <= 0:
        raise MXNetError("min_random_scale and max_random_scale must be more than 0")


def check_interpolation(method: int) -> None:
    """Refuse an unknown `inter_method`.

    Raises:
        MXNetError: it is unknown.
    """
    if method not in _INTERPOLATIONS:
        raise MXNetError(
            f"invalid inter_method {method}: valid values are {', '.join(map(str, _INTERPOLATIONS))}"
        )


def without_randomness(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments with everything random turned off: no jitter, no random mirror, crops in the middle."""
    off: dict[str, Any] = dict.fromkeys(
        (
            *("rand_crop", "random_resized_crop", "rand_mirror", "max_rotate_angle", "max_shear_ratio"),
            *("max_aspect_ratio", "brightness", "contrast", "saturation", "pca_noise"),
            *("random_h", "random_s", "random_l", "max_random_contrast", "max_random_illumination"),
        ),
        0,
    )
    # A range with only one value is not random.
    scale, ratio, angles = _scale(values), _ratio(values), values["rotate_list"]
    if scale[0] != scale[1]:
        off |= {"min_random_scale": 1.0, "max_random_scale": 1.0}
    if ratio[0] == ratio[1]:
        off["max_aspect_ratio"] = values["max_aspect_ratio"]
    else:
        off["min_aspect_ratio"] = None
    if angles is not None and len(angles) > 1:
        off["rotate_list"] = None
    if values["inter_method"] == RANDOM:
        off["inter_method"] = 1
    return {**values, **off, "min_crop_size": values["max_crop_size"]}


def augmentation(values: Mapping[str, Any], mean: Array | None = None, dtype: str = "float32") -> Compose:
    """Return the transform of an image, uint8 (height, width, channels), to a row of a batch.

    Args:
        values: arguments by name, checked.
        mean: mean image, float32 (channels, height, width), subtracted before mirroring; or None.
        dtype: of the row: "float32", "uint8" or "int8".
    """
    interpolation = values["inter_method"]
    parts: list[Transform] = []
    if values["resize"] > 0:
        parts.append(Resize(values["resize"], True, interpolation))
    if _warps(values):
        parts.append(_affine(values))
    if values["pad"] > 0:
        parts.append(Border(values["pad"], values["fill_value"]))
    parts.append(_crop(values))
    jitter = [values[name] for name in ("brightness", "contrast", "saturation")]
    if any(jitter):
        parts.append(FreeColorJitter(*jitter))
    if values["random_h"] or values["random_s"] or values["random_l"]:
        parts.append(RandomHLS(values["random_h"], values["random_s"], values["random_l"]))
    if values["pca_noise"]:
        parts.append(RandomLighting(values["pca_noise"]))
    mirror = 1.0 if values["mirror"] else 0.5 if values["rand_mirror"] else 0.0
    amounts = {
        "std": [values[f"std_{c}"] for c in "rgba"],
        "scale": values["scale"],
        "contrast": values["max_random_contrast"],
        "illumination": values["max_random_illumination"],
    }
    if mean is not None and dtype != "uint8":
        parts.append(ToPlanes(mean, mirror=mirror, dtype=dtype, **amounts))
        return Compose(parts)
    if mirror:
        parts.append(RandomHorizontalFlip(mirror))
    plain = dtype != "float32"
    means = [values[f"mean_{c}"] for c in "rgba"]
    parts.append(ToPlanes(means, dtype=dtype) if plain else ToPlanes(means, **amounts))
    return Compose(parts)


def _scale(values: Mapping[str, Any]) -> tuple[float, float]:
    ends = values["min_random_scale"], values["max_random_scale"]
    return min(ends), max(ends)


def _ratio(values: Mapping[str, Any]) -> tuple[float, float]:
    if values["min_aspect_ratio"] is None:
        ends = 1 - values["max_aspect_ratio"], 1 + values["max_aspect_ratio"]
    else:
        ends = values["min_aspect_ratio"], values["max_aspect_ratio"]
    return max(_LEAST_RATIO, min(ends)), max(_LEAST_RATIO, *ends)


def _warps(values: Mapping[str, Any]) -> bool:
    return bool(
        values["max_rotate_angle"] > 0
        or values["max_shear_ratio"] > 0
        or values["rotate"] > 0
        or values["rotate_list"]
        or _scale(values) != (1.0, 1.0)
        or (_ratio(values) != (1.0, 1.0) and not values["random_resized_crop"])
        or values["max_img_size"] != _NO_LIMIT
        or values["min_img_size"] != 0
    )


def _affine(values: Mapping[str, Any]) -> RandomAffine:
    angles = values["rotate_list"] or ((values["rotate"],) if values["rotate"] > 0 else ())
    area_crop = values["random_resized_crop"]
    return RandomAffine(
        shear=max(0.0, values["max_shear_ratio"]),
        max_angle=max(0, values["max_rotate_angle"]),
        angles=angles,
        scale=(1.0, 1.0) if area_crop else _scale(values),
        ratio=(1.0, 1.0) if area_crop else _ratio(values),
        extents=(values["min_img_size"], values["max_img_size"]),
        fill=values["fill_value"],
        interpolation=values["inter_method"],
    )


def _crop(values: Mapping[str, Any]) -> WindowCrop:
    _, height, width = values["data_shape"]
    size, interpolation = (width, height), values["inter_method"]
    if values["random_resized_crop"]:
        area = values["min_random_area"], values["max_random_area"]
        area, ratio = (min(area), max(area)), _ratio(values)
        if area != (1.0, 1.0) or ratio != (1.0, 1.0):
            return AreaCrop(size, area, ratio, interpolation)
    if values["max_crop_size"] != -1:
        sides = values["min_crop_size"], values["max_crop_size"]
        return SquareCrop(size, sides, values["rand_crop"], interpolation)
    return WindowCrop(size, values["rand_crop"], interpolation)
