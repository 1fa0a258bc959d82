"""Facts in the header of an image: its size, its format, and the size of a processor's result. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.abc import DecodingProcessor, SizedProcessor
from aioloader.errors import DecodeError, ImageError, ImageTooLargeError
from aioloader.foundation.protocols import implements
from aioloader.transforms.formats import ENDS_EARLY, orientation_may_follow, read_header

if TYPE_CHECKING:
    from collections.abc import Hashable


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


class HeaderReader:
    """Reader of what the header of an image says about it and its result.

    Args:
        processor: the processor, or None. One that decodes TIFFs itself uses Pillow, which always turns them upright.
        exif: "apply" or "ignore".
        max_pixels: most pixels, or None.

    Attributes:
        processor: as given.
        sized: the processor, if it announces the sizes of its results; else None.
    """

    def __init__(self, processor: Any, exif: str, max_pixels: int | None) -> None:
        self.processor = processor
        # Found out once: it takes longer than the header.
        self.sized = processor if implements(processor, SizedProcessor) else None
        self._upright = exif == "apply"
        self._upright_tiffs = self._upright or decoding(processor) is not None
        self._max_pixels = max_pixels

    def info(
        self,
        payload: Any,
        *,
        name: str,
        key: Hashable | None = None,
        kind: str | None = None,
        complete: bool = True,
        quick: bool = False,
    ) -> ImageInfo:
        """Return what is known of an image from its first bytes.

        Args:
            payload: the encoded image, or its beginning.
            name: names it in errors.
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
        pixels, most = header.height * header.width, self._max_pixels
        if most is not None and pixels > most:
            raise ImageTooLargeError(name, "pixels", most, pixels, kind=kind)
        if self._upright and not complete and orientation_may_follow(view, header):
            raise DecodeError(ENDS_EARLY, format=header.format, nbytes=len(view))
        height, width = header.height, header.width
        if (self._upright_tiffs if header.format == "tiff" else self._upright) and (
            header.orientation or 1
        ) >= 5:
            height, width = width, height
        if self.sized is not None:
            try:
                found = self.sized.spec(height, width)
            except Exception as error:
                raise ImageError(name, "transform", f"{type(error).__name__}: {error}") from error
            spec: tuple[Any, Any, Any, Any] = found.shape, found.grid_thw, found.num_tokens, found.nbytes
        elif self.processor is None:
            spec = (height, width, 3), None, None, height * width * 3
        else:
            spec = None, None, None, None
        return ImageInfo(header.format, (height, width), *spec, key)


def decoding(processor: Any) -> DecodingProcessor | None:
    """Return a processor if it decodes some images itself; else None."""
    return processor if implements(processor, DecodingProcessor) else None
