"""Facts in the header of an image: its size, its format, and the size of a processor's result. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.abc import DecodingProcessor, SizedProcessor
from aioloader.errors import DecodeError, ImageError, ImageTooLargeError
from aioloader.transforms.formats import ENDS_EARLY, orientation_may_follow, read_header

if TYPE_CHECKING:
    from collections.abc import Hashable

    from aioloader.transforms.formats import ImageHeader


@dataclass(frozen=True, slots=True)
class ImageInfo:
    """Facts about an image, as `AsyncImageService.probe` returns them.

    Attributes:
        format: "jpeg", "png", ...; "raw" for arrays.
        size: (height, width) in pixels, upright if the service applies EXIF orientations.
        shape: shape of the array that `get` will return; None if the processor does not announce it.
        grid_thw: (time, height, width) of the patches; None without such a processor.
        num_tokens: tokens that the image takes in a language model; None without such a processor.
        nbytes: bytes of the arrays; None if they are not known.
        key: identifies the image in the cache; None: it is not kept.
    """

    format: str
    size: tuple[int, int]
    shape: tuple[int, ...] | None
    grid_thw: tuple[int, int, int] | None
    num_tokens: int | None
    nbytes: int | None
    key: Hashable | None


def image_info(
    payload: Any,
    *,
    name: str,
    processor: Any,
    sized: SizedProcessor | None,
    exif: str,
    max_pixels: int | None,
    key: Hashable | None = None,
    kind: str | None = None,
    complete: bool = True,
    quick: bool = False,
) -> ImageInfo:
    """Return what is known of an image from its first bytes.

    Args:
        payload: the encoded image, or its beginning.
        name: names it in errors.
        processor: the processor, or None.
        sized: the processor, if it announces sizes: asking it takes longer than the header. See `announcing`.
        exif: "apply" or "ignore".
        max_pixels: most pixels, or None.
        key: see `ImageInfo`.
        kind: kind of its reference, for errors.
        complete: `payload` is the whole image; else an orientation may be in the rest.
        quick: raise a `LongHeaderError` where that takes more than a few ms.

    Raises:
        DecodeError: it is not an image, or its header is damaged or does not end here.
        ImageTooLargeError: it has too many pixels.
        ImageError: the processor refuses its size.
    """
    view = memoryview(payload)
    header = read_header(view, quick=quick)
    pixels = header.height * header.width
    if max_pixels is not None and pixels > max_pixels:
        raise ImageTooLargeError(name, "pixels", max_pixels, pixels, kind=kind)
    if exif == "apply" and not complete and orientation_may_follow(view, header):
        raise DecodeError(ENDS_EARLY, format=header.format, nbytes=len(view))
    height, width = decoded_size(header, exif=exif, processor=processor)
    spec: tuple[tuple[int, ...] | None, tuple[int, int, int] | None, int | None, int | None] = (
        None,
        None,
        None,
        None,
    )
    if sized is not None:
        try:
            found = sized.spec(height, width)
        except Exception as error:
            raise ImageError(name, "transform", f"{type(error).__name__}: {error}") from error
        spec = found.shape, found.grid_thw, found.num_tokens, found.nbytes
    elif processor is None:
        spec = (height, width, 3), None, None, height * width * 3
    return ImageInfo(header.format, (height, width), *spec, key)


def announcing(processor: Any) -> SizedProcessor | None:
    """Return a processor if it announces the sizes of its results; else None."""
    return processor if isinstance(processor, SizedProcessor) else None


def decoding(processor: Any) -> DecodingProcessor | None:
    """Return a processor if it decodes some images itself; else None."""
    return processor if isinstance(processor, DecodingProcessor) else None


def decoded_size(header: ImageHeader, *, exif: str, processor: Any) -> tuple[int, int]:
    """Return the height and width of an image after decoding.

    Args:
        header: its header.
        exif: "apply" or "ignore".
        processor: the processor, or None. One that decodes TIFFs itself uses Pillow, which always turns them upright.
    """
    turns = exif == "apply" or (header.format == "tiff" and decoding(processor) is not None)
    if turns and (header.orientation or 1) >= 5:
        return header.width, header.height
    return header.height, header.width
