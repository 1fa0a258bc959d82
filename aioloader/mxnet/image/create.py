"""`CreateAugmenter`: the usual list of augmenters from a few numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.caller import warn_caller
from aioloader.foundation.validation import require
from aioloader.mxnet.image.augmenter import (
    Augmenter,
    CastAug,
    CenterCropAug,
    ColorJitterAug,
    ColorNormalizeAug,
    HorizontalFlipAug,
    HueJitterAug,
    LightingAug,
    RandomCropAug,
    RandomGrayAug,
    RandomSizedCropAug,
    ResizeAug,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# ImageNet's pixels on the scale 0 to 255: mean, standard deviation, principal colours.
_MEAN = (123.68, 116.28, 103.53)
_STD = (58.395, 57.12, 57.375)
_EIGENVALUES = (55.46, 4.794, 1.148)
_EIGENVECTORS = ((-0.5675, 0.7192, 0.4009), (-0.5808, -0.0045, -0.8140), (-0.5836, -0.6948, 0.4203))


def colours(
    brightness: float, contrast: float, saturation: float, hue: float, pca_noise: float, rand_gray: float
) -> list[Augmenter]:
    """Return the augmenters that cast to float32 and change colours, in MXNet's order; see `CreateAugmenter`."""
    found: list[Augmenter] = [CastAug()]
    if brightness or contrast or saturation:
        found.append(ColorJitterAug(brightness, contrast, saturation))
    if hue:
        found.append(HueJitterAug(hue))
    if pca_noise > 0:
        found.append(LightingAug(pca_noise, np.array(_EIGENVALUES), np.array(_EIGENVECTORS)))
    if rand_gray > 0:
        found.append(RandomGrayAug(rand_gray))
    return found


def normalised(mean: Any, std: Any, dtype: Any = np.float32) -> list[Augmenter]:
    """Return the augmenter that normalises, or none.

    Args:
        mean, std: see `CreateAugmenter`.
        dtype: of ImageNet's mean and standard deviation, as `dumps` shows them.

    Raises:
        ValueError: a mean or standard deviation has another form (an AssertionError too).
    """
    means, deviations = _per_channel(mean, _MEAN, "mean", dtype), _per_channel(std, _STD, "std", dtype)
    return [] if means is None and deviations is None else [ColorNormalizeAug(means, deviations)]


def _per_channel(value: Any, default: Sequence[float], name: str, dtype: Any) -> Any:
    """Return a mean or standard deviation as an array of 1 or 3 numbers; None if it is omitted."""
    if value is None or value is False:
        return None
    array = np.array(default, dtype) if value is True else np.array(value)
    require(
        array.shape in ((1,), (3,)), f"{name} must be True, None or 1 or 3 numbers, got shape {array.shape}"
    )
    return array


def CreateAugmenter(
    data_shape: Sequence[int],
    resize: int = 0,
    rand_crop: bool = False,
    rand_resize: bool = False,
    rand_mirror: bool = False,
    mean: Any = None,
    std: Any = None,
    brightness: float = 0,
    contrast: float = 0,
    saturation: float = 0,
    hue: float = 0,
    pca_noise: float = 0,
    rand_gray: float = 0,
    inter_method: int = 2,
) -> list[Augmenter]:
    """Return a list of augmenters: resize, crop, mirror, cast to float32, colours, normalise.

    Args:
        data_shape: (channels, height, width) of the result.
        resize: pixels of the shorter side before cropping; 0: do not resize.
        rand_crop: crop at a random place instead of the middle.
        rand_resize: crop 0.08 to 1 of the area, width/height 3/4 to 4/3; needs `rand_crop`.
        rand_mirror: exchange left and right with probability 0.5.
        mean, std: True for ImageNet's, or 1 or 3 numbers; None: no normalisation.
        brightness, contrast, saturation, hue, pca_noise: amounts of the augmenters of these names; 0: without.
        rand_gray: probability of `RandomGrayAug`.
        inter_method: as for `imresize`.

    Raises:
        ValueError: `rand_resize` without `rand_crop`, or a malformed mean (an AssertionError too).
    """
    size = (int(data_shape[2]), int(data_shape[1]))
    found: list[Augmenter] = []
    if resize > 0:
        found.append(ResizeAug(resize, inter_method))
    if rand_resize:
        require(rand_crop, "rand_resize crops at a random place: give rand_crop=True too")
        found.append(RandomSizedCropAug(size, 0.08, (3.0 / 4.0, 4.0 / 3.0), inter_method))
    elif rand_crop:
        found.append(RandomCropAug(size, inter_method))
    else:
        found.append(CenterCropAug(size, inter_method))
    if rand_mirror:
        found.append(HorizontalFlipAug(0.5))
    found += colours(brightness, contrast, saturation, hue, pca_noise, rand_gray)
    return found + normalised(mean, std)


def augmenters(
    create: Callable[..., Sequence[Any]],
    data_shape: Sequence[int],
    aug_list: Sequence[Any] | None,
    options: dict[str, Any],
) -> Sequence[Any]:
    """Return the augmenters that an iterator was given, or else those that `create` makes from its options."""
    if aug_list is None:
        return create(data_shape, **options)
    if options:
        warn_caller(
            f"{', '.join(options)}: without effect, because aug_list says what is done to the images",
            UserWarning,
        )
    return aug_list
