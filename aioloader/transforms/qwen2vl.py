"""Image processor of Qwen2-VL: resized, normalised and cut into patches, as the published one does it with Pillow."""

from __future__ import annotations

import io
import threading
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import DecodeError, MissingPackageError
from aioloader.foundation.patches import patch_grid, write_patches
from aioloader.foundation.validation import at_least, one_of
from aioloader.transforms.base import Transform
from aioloader.transforms.formats import read_header
from aioloader.transforms.smart_resize import smart_resize

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_local = threading.local()

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
"""Mean and standard deviation of the colours of CLIP's training data, as published."""


@dataclass(frozen=True, slots=True)
class PatchSpec:
    """What a processor makes of an image of some size; see `Qwen2VLImageProcessor.spec`.

    Attributes:
        size: (height, width) in pixels to which the image is resized.
        grid_thw: number of patches: in time, from top to bottom, from left to right.
        shape: of `pixel_values`: (patches, values of a patch).
        num_tokens: tokens of the language model: merged patches.
        nbytes: bytes of `pixel_values`.
    """

    size: tuple[int, int]
    grid_thw: tuple[int, int, int]
    shape: tuple[int, int]
    num_tokens: int
    nbytes: int


class Qwen2VLImageProcessor(Transform):
    """Image processor of Qwen2-VL (and of models with the same one).

    The result equals that of Hugging Face's processor, bit for bit with its Pillow backend: the image is resized to the
    size of `smart_resize` by Pillow's bicubic filter, and its values are normalised and cut into patches. It needs
    Pillow: ``pip install "aioloader[service]"``.

    Args:
        min_pixels, max_pixels: limits of the resized image's number of pixels.
        patch_size: side of a patch, in pixels.
        merge_size: patches that the model merges, in each direction.
        temporal_patch_size: how often an image is repeated in time.
        resample: "pil": Pillow's bicubic filter; "torchvision": the filter of torch, which torchvision calls for tensors
            of uint8; results of the two differ by one level of 255 here and there. It needs torch.
        exif: what an image service does with EXIF orientations: "ignore", as the published processor, or "apply". In a
            loader the dataset's option `exif` decides.
        alpha: "white": transparent pixels are blended with white, as the published processor does; "drop": the alpha
            channel is ignored. In a loader the decoder has dropped it already.

    Raises:
        ValueError: a number is too small, or a word is unknown.
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
        for name, value in (
            ("min_pixels", min_pixels),
            ("patch_size", patch_size),
            ("merge_size", merge_size),
            ("temporal_patch_size", temporal_patch_size),
        ):
            at_least(name, value, 1)
        at_least("max_pixels", max_pixels, max(min_pixels, (patch_size * merge_size) ** 2))
        one_of("resample", resample, ("pil", "torchvision"))
        one_of("exif", exif, ("ignore", "apply"))
        one_of("alpha", alpha, ("white", "drop"))
        self.min_pixels = min_pixels
        self.max_pixels = max_pixels
        self.patch_size = patch_size
        self.merge_size = merge_size
        self.temporal_patch_size = temporal_patch_size
        self.resample = resample
        self.exif = exif
        self.alpha = alpha

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in vars(self).items() if name != "_table"}

    def spec(self, height: int, width: int) -> PatchSpec:
        """Return what the processor makes of an image.

        Args:
            height, width: extents of the image in pixels, upright.

        Raises:
            ValueError: one side is more than 200 times as long as the other.
        """
        size = smart_resize(
            height,
            width,
            factor=self.patch_size * self.merge_size,
            min_pixels=self.min_pixels,
            max_pixels=self.max_pixels,
        )
        rows, columns = patch_grid(*size, self.patch_size, self.merge_size)
        values = 3 * self.temporal_patch_size * self.patch_size**2
        count = rows * columns
        return PatchSpec(
            size, (1, rows, columns), (count, values), count // self.merge_size**2, count * values * 4
        )

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> dict[str, Array]:
        """Return the patches of an image.

        Args:
            x: uint8 (height, width, channels) with 3 channels (RGB), 4 (RGBA) or 1 (grey), or (height, width); or a
                Pillow image of any mode.
            rng: without effect.
            out: array for `pixel_values`, used if it has that shape and dtype.

        Returns:
            "pixel_values": float32 (patches, values of a patch); "image_grid_thw": int64 (1, 3).

        Raises:
            ValueError: the sides differ too much; see `spec`.
            TypeError: it is no such image.
            MissingPackageError: Pillow, or torch, is not installed.
        """
        pixels = self._rgb(x)
        spec = self.spec(*pixels.shape[:2])
        resized = self._resized(pixels, spec.size)
        if out is None or out.shape != spec.shape or out.dtype != np.float32 or not out.flags.c_contiguous:
            out = np.empty(spec.shape, np.float32)
        write_patches(
            self._normalised(resized),
            out,
            patch=self.patch_size,
            merge=self.merge_size,
            temporal=self.temporal_patch_size,
        )
        return {"pixel_values": out, "image_grid_thw": np.array([spec.grid_thw], np.int64)}

    def decode(self, data: Any) -> Array | None:
        """Decode an image as the published processor does, where that is not what `decode_image` does.

        Args:
            data: the encoded image, bytes-like.

        Returns:
            uint8 (height, width, 3), as stored; None for JPEGs in grey or YCbCr and for raw images: both ways give the
            same pixels.

        Raises:
            DecodeError: Pillow cannot decode it.
        """
        header = read_header(memoryview(data))
        if header.format == "raw" or (header.format == "jpeg" and _components(data) in (1, 3)):
            return None
        pillow = _pillow()
        try:
            with pillow.open(io.BytesIO(data)) as image:
                if self.exif == "ignore":
                    return self._rgb(image)
                from PIL import ImageOps

                return self._rgb(ImageOps.exif_transpose(image))
        except Exception as error:
            raise DecodeError(
                f"{type(error).__name__}: {error}", format=header.format, nbytes=len(data)
            ) from error

    def _rgb(self, image: Any) -> Array:
        if isinstance(image, np.ndarray):
            if image.ndim == 2:
                image = image[:, :, None]
            if image.dtype != np.uint8 or image.ndim != 3 or image.shape[2] not in (1, 3, 4):
                raise TypeError(
                    "Qwen2VLImageProcessor takes uint8 images (height, width, 3), (height, width, 4), "
                    f"(height, width, 1) or (height, width), got {image.dtype} {image.shape}"
                )
            if image.shape[2] == 3:
                return image
            if image.shape[2] == 1:
                return np.repeat(image, 3, axis=2)
            return self._without_alpha(image)
        if not hasattr(type(image), "convert"):
            raise TypeError(
                f"Qwen2VLImageProcessor takes arrays and Pillow images, got {type(image).__name__}"
            )
        if self.alpha == "white" and ("A" in image.getbands() or image.info.get("transparency") is not None):
            pillow = _pillow()
            white = pillow.new("RGBA", image.size, (255, 255, 255, 255))
            image = pillow.alpha_composite(white, image.convert("RGBA"))
        return np.asarray(image.convert("RGB"))

    def _without_alpha(self, image: Array) -> Array:
        """Return the colours of an RGBA array. The published processor rounds arrays otherwise than Pillow does."""
        if self.alpha == "drop":
            return np.ascontiguousarray(image[:, :, :3])
        alpha = image[:, :, 3:] / 255
        return np.round(alpha * image[:, :, :3] + (1 - alpha) * 255).astype(np.uint8)

    def _resized(self, pixels: Array, size: tuple[int, int]) -> Array:
        height, width = size
        if self.resample == "torchvision":
            return _by_torch(pixels, height, width)
        pillow = _pillow()
        return np.asarray(pillow.fromarray(pixels).resize((width, height), pillow.Resampling.BICUBIC))

    def _normalised(self, pixels: Array) -> Array:
        """Return float32 planes (3, height, width), in memory of this thread that is used again."""
        import cv2

        count = 3 * pixels.shape[0] * pixels.shape[1]
        memory: Array | None = getattr(_local, "planes", None)
        if memory is None or len(memory) < count:
            memory = _local.planes = np.empty(count, np.float32)
        planes = memory[:count].reshape(3, *pixels.shape[:2])
        for channel, plane in enumerate(cv2.split(pixels)):
            cv2.LUT(plane, self._table[channel], dst=planes[channel])
        return planes

    @cached_property
    def _table(self) -> Array:
        """Return the normalised value of each level, float32 (3, 256): the published operations in their order."""
        levels = (np.arange(256) * (1 / 255)).astype(np.float32)
        mean, std = np.array(CLIP_MEAN, np.float32), np.array(CLIP_STD, np.float32)
        return ((levels[None, :] - mean[:, None]) / std[:, None]).astype(np.float32)


def _components(data: Any) -> int:
    """Return the number of colour components of a JPEG; 0 if its frame is not found."""
    view = memoryview(data)
    place = 2
    while place + 10 < len(view):
        if view[place] != 0xFF:
            return 0
        marker = view[place + 1]
        if marker == 0xFF:
            place += 1
            continue
        if 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return view[place + 9]
        place += 2 + int.from_bytes(view[place + 2 : place + 4], "big")
    return 0


def _pillow() -> Any:
    try:
        from PIL import Image
    except ModuleNotFoundError:
        raise MissingPackageError("pillow", extra="service") from None
    return Image


def _by_torch(pixels: Array, height: int, width: int) -> Array:
    try:
        import torch
    except ModuleNotFoundError:
        raise MissingPackageError("torch") from None
    tensor = torch.from_numpy(np.ascontiguousarray(pixels)).permute(2, 0, 1)[None]
    if tensor.shape[2:] == (height, width):
        return pixels
    made = torch.nn.functional.interpolate(tensor, (height, width), mode="bicubic", antialias=True)
    return np.ascontiguousarray(made[0].permute(1, 2, 0).numpy())
