"""Image processor of Qwen2-VL: decoded pixels in, normalised patches out, in one pass over the resized image.

Pillow resizes, because the published results are those of its bicubic filter; OpenCV's does not antialias.

The size to which Qwen2-VL resizes an image before it is cut into patches. Pure.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import AspectRatioError
from aioloader.foundation.patches import patch_grid, write_patches
from aioloader.foundation.validation import one_of
from aioloader.jpeg.frame import count_components
from aioloader.transforms.base import Transform, result_array
from aioloader.transforms.decode import decode_image
from aioloader.transforms.formats import read_header
from aioloader.transforms.pillow import (
    decode_by_pillow,
    is_pillow_image,
    pixels_of_pillow,
    resize_bicubic,
    resize_bicubic_floats,
)

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


MAX_ASPECT_RATIO = 200
"""Largest ratio of an image's sides that Qwen2-VL's rule accepts."""


def smart_resize(
    height: int, width: int, *, factor: int = 28, min_pixels: int = 3136, max_pixels: int = 1003520
) -> tuple[int, int]:
    """Return the (height, width) in pixels that an image is resized to.

    Both are multiples of `factor`, and the aspect ratio is kept approximately. The number of pixels is within the
    limits as far as such multiples allow: images whose shorter side is a single `factor`, and images that are enlarged
    to limits close together, may have more.

    Args:
        height, width: extents of the image in pixels.
        factor: side of a token in pixels: side of a patch times the patches that are merged in each direction.
        min_pixels, max_pixels: limits of height * width.

    Raises:
        ValueError: an extent is below 1.
        AspectRatioError: one side is more than 200 times as long as the other; it is a ValueError.
    """
    if height < 1 or width < 1:
        raise ValueError(f"an image has at least one pixel, got {height} x {width} (height x width)")
    if max(height, width) / min(height, width) > MAX_ASPECT_RATIO:
        raise AspectRatioError(height, width, MAX_ASPECT_RATIO)
    # `round` takes halves to the even neighbour; Qwen2-VL's rule was published in Python and depends on it.
    tall, wide = round(height / factor) * factor, round(width / factor) * factor
    if tall * wide > max_pixels:
        shrink = math.sqrt((height * width) / max_pixels)
        tall = max(factor, math.floor(height / shrink / factor) * factor)
        wide = max(factor, math.floor(width / shrink / factor) * factor)
    elif tall * wide < min_pixels:
        grow = math.sqrt(min_pixels / (height * width))
        tall = math.ceil(height * grow / factor) * factor
        wide = math.ceil(width * grow / factor) * factor
    return tall, wide


CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
"""Mean of the pixels that CLIP was trained with, red, green, blue, on the scale 0 to 1."""

CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
"""Standard deviation of the pixels that CLIP was trained with; see `CLIP_MEAN`."""

_UINT8 = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)
_WHITE = 255
_RESIZERS = {"pil": resize_bicubic, "torchvision": resize_bicubic_floats}


@dataclass(frozen=True, slots=True)
class PatchSpec:
    """Sizes of the result of a processor for an image; they follow from the image's extents alone.

    Attributes:
        size: (height, width) in pixels that the image is resized to.
        grid_thw: number of patches in time, from top to bottom, from left to right.
        shape: of ``pixel_values``: (patches, values of a patch).
        num_tokens: tokens that the image takes in the language model: patches after merging.
        nbytes: bytes of ``pixel_values``.
        dtype: of ``pixel_values``.
    """

    size: tuple[int, int]
    grid_thw: tuple[int, int, int]
    shape: tuple[int, int]
    num_tokens: int
    nbytes: int
    dtype: np.dtype[Any] = _FLOAT32


class Qwen2VLImageProcessor(Transform):
    """Image processor of Qwen2-VL, and of the models that use the same one. No draws.

    The result is that of Hugging Face's ``Qwen2VLImageProcessorPil`` (transformers 5.21 and later) with the same
    Pillow, bit for bit: the image is resized to the size of Qwen2-VL's rule by Pillow's bicubic filter, rescaled,
    normalised by the mean and standard deviation of CLIP's training pixels, and cut into patches. Rescaling and
    normalising take one look-up in a table of 256 values for each channel, and the values go straight to their places.

    It needs Pillow, which is imported when the first image is processed: ``pip install "aioloader[service]"``.

    In a loader the dataset decodes: pass ``exif="ignore"`` to the dataset for the pixels that the published processor
    is given by ``PIL.Image.open``. The dataset's decoder drops alpha; `decode` composes it as the published one does.

    Args:
        min_pixels, max_pixels: limits of the number of pixels of the resized image.
        patch_size: side of a patch in pixels.
        merge_size: side of a token in patches.
        temporal_patch_size: how often a still image is repeated in time.
        resample: "pil": Pillow's bicubic filter, in integers. "torchvision": the antialiased bicubic filter in floating
            point, clamped to 0 to 255 and rounded once, and normalised as Hugging Face's torchvision backend does. Its
            values equal those of ``torch.nn.functional.interpolate`` of float32 with ``mode="bicubic",
            antialias=True``, except for less than 0.5 % of them that are nearly halfway between two levels: they may
            differ by one level. On CPUs with AVX2 torchvision filters uint8 in integers instead; its values are then
            nearer to those of "pil".
        exif: what `decode`, and a call with a Pillow image, do with an EXIF orientation: "ignore" it, as the published
            processor does, or "apply" it. Arrays have none.
        alpha: "white": transparent pixels are composed with white, as the published processor does; "drop": alpha is
            ignored, as by the published processor before transformers 5.21.

    Raises:
        ValueError: a number is below 1, `max_pixels` is less than `min_pixels` or than one token, or a word is unknown.
        TypeError: a number is not a whole one.
    """

    def __init__(
        self,
        min_pixels: int = 56 * 56,
        max_pixels: int = 28 * 28 * 1280,
        patch_size: int = 14,
        merge_size: int = 2,
        temporal_patch_size: int = 2,
        resample: str = "pil",
        exif: str = "ignore",
        alpha: str = "white",
    ) -> None:
        self.patch_size = _whole("patch_size", patch_size)
        self.merge_size = _whole("merge_size", merge_size)
        self.temporal_patch_size = _whole("temporal_patch_size", temporal_patch_size)
        self.min_pixels = _whole("min_pixels", min_pixels)
        self._factor = self.patch_size * self.merge_size
        self.max_pixels = _whole("max_pixels", max_pixels, max(self.min_pixels, self._factor**2))
        one_of("resample", resample, ("pil", "torchvision"))
        one_of("exif", exif, ("ignore", "apply"))
        one_of("alpha", alpha, ("white", "drop"))
        self.resample = resample
        self.exif = exif
        self.alpha = alpha

    def spec(self, height: int, width: int) -> PatchSpec:
        """Return the sizes of the result for an image, without making it.

        Args:
            height, width: extents in pixels of the image that is processed: upright with ``exif="apply"``, as stored
                otherwise.

        Raises:
            AspectRatioError: one side is more than 200 times as long as the other.
            ValueError: an extent is below 1.
        """
        size = smart_resize(
            height, width, factor=self._factor, min_pixels=self.min_pixels, max_pixels=self.max_pixels
        )
        rows, columns = patch_grid(*size, self.patch_size, self.merge_size)
        patches = rows * columns
        values = 3 * self.temporal_patch_size * self.patch_size**2
        return PatchSpec(
            size=size,
            grid_thw=(1, rows, columns),
            shape=(patches, values),
            num_tokens=patches // self.merge_size**2,
            nbytes=patches * values * _FLOAT32.itemsize,
        )

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> dict[str, Array]:
        """Return the patches of an image.

        Args:
            x: uint8 (height, width, channels), RGB, RGBA or grey (one channel), or (height, width), grey; or a Pillow
                image of any mode that Pillow converts to RGB.
            rng: not used.
            out: array for ``pixel_values``; used if it has exactly its shape and dtype.

        Returns:
            ``pixel_values``: float32 (patches, values of a patch), the patches of a token one after the other;
            ``image_grid_thw``: int64 (1, 3), the number of patches in time, from top to bottom, from left to right.

        Raises:
            TypeError: `x` is neither an array of uint8 nor a Pillow image.
            ValueError: `x` does not have the axes or channels of an image.
            AspectRatioError: one side is more than 200 times as long as the other.
            MissingPackageError: Pillow is not installed.
        """
        pixels = self._rgb(x)
        spec = self.spec(*pixels.shape[:2])
        resized = _RESIZERS[self.resample](pixels, spec.size)
        values = result_array(pixels, spec.shape, _FLOAT32, out)
        write_patches(
            np.broadcast_to(resized, (*spec.size, 3)),
            values,
            self.patch_size,
            self.merge_size,
            self.temporal_patch_size,
            convert=partial(_look_up, _normalised(self.resample)),
        )
        return {"pixel_values": values, "image_grid_thw": np.array([spec.grid_thw], np.int64)}

    def decode(self, data: Any) -> Array | None:
        """Decode an image as Pillow and the published processor do, where `decode_image` makes other pixels of it.

        Those are images with transparency, a palette, 16 bits or CMYK; Pillow decodes all formats other than JPEG. It
        turns a TIFF upright with ``exif="ignore"`` too.

        Args:
            data: the encoded image, bytes-like. Compare the pixels of its header (`image_size`) with a limit first:
                this method decodes as many as the header announces.

        Returns:
            uint8 (height, width, 3); None where ``decode_image(data, exif=self.exif)`` returns the same pixels: for
            JPEGs of one or three components, and raw images.

        Raises:
            DecodeError: the data is not an image, or is damaged, truncated, or of a kind that Pillow cannot read.
            MissingPackageError: Pillow is not installed.
        """
        view = memoryview(data).cast("B")
        header = read_header(view)
        if header.format == "raw" or (header.format == "jpeg" and count_components(view) in (1, 3)):
            return None
        if header.format == "jpeg":
            # Pillow accepts some damage; this decoder does not.
            decode_image(view, exif="ignore", max_pixels=None)
        return decode_by_pillow(view, header, exif=self.exif, alpha=self.alpha)

    def _rgb(self, x: Any) -> Array:
        """Return the pixels of an image, uint8 (height, width, 3), or (height, width, 1) if it is grey."""
        if is_pillow_image(x):
            return pixels_of_pillow(x, exif=self.exif, alpha=self.alpha)
        if not isinstance(x, np.ndarray) or x.dtype != _UINT8:
            got = f"an array of {x.dtype}" if isinstance(x, np.ndarray) else type(x).__name__
            raise TypeError(
                f"Qwen2VLImageProcessor takes an array of uint8 or a Pillow image, got {got}: decode the image, and "
                "leave rescaling and normalising to the processor"
            )
        pixels = x[:, :, None] if x.ndim == 2 else x
        if pixels.ndim != 3 or pixels.shape[2] not in (1, 3, 4):
            raise ValueError(
                "Qwen2VLImageProcessor takes an image (height, width, channels) of 1, 3 or 4 channels, "
                f"or (height, width), got shape {x.shape}"
            )
        if pixels.shape[2] < 4:
            return pixels
        if self.alpha == "drop":
            return pixels[:, :, :3]
        # The operations of the published processor for arrays, which round otherwise than Pillow's composition.
        alpha = pixels[:, :, 3:] / _WHITE
        return np.round(alpha * pixels[:, :, :3] + (1 - alpha) * _WHITE).astype(np.uint8)


def _whole(name: str, value: Any, least: int = 1) -> int:
    """Return a whole number of at least `least`; raise TypeError or ValueError otherwise."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise TypeError(f"Qwen2VLImageProcessor: {name} must be a whole number, got {value!r}")
    if value < least:
        raise ValueError(f"Qwen2VLImageProcessor: {name} must be at least {least}, got {value}")
    return int(value)


def _look_up(table: Array, rows: Array, planes: Array) -> None:
    """Write the values of a table, (channels, 256), for some rows of an image to its planes; see `write_patches`."""
    import cv2

    for channel, plane in enumerate(planes):
        # NumPy would first convert the levels to indices of 8 bytes.
        cv2.LUT(np.ascontiguousarray(rows[:, :, channel]), table[channel], dst=plane)


@lru_cache
def _normalised(resample: str) -> Array:
    """Return the normalised value of each level of each channel, float32 (3, 256).

    The operations, and their order and precision, are those of the published processor's backend.
    """
    levels = np.arange(256)
    mean, std = (np.array(values, np.float32)[:, None] for values in (CLIP_MEAN, CLIP_STD))
    table: Array
    if resample == "torchvision":
        table = (levels.astype(np.float32) - mean * np.float32(255)) / (std * np.float32(255))
    else:
        table = ((levels * (1 / 255)).astype(np.float32) - mean) / std
    table.flags.writeable = False
    return table
