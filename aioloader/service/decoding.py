"""Decoder of the images of a service: an encoded image of any format becomes a sample of one element."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.stage import Stage
from aioloader.transforms.decode import checked_header
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.abc import DecodingProcessor
    from aioloader.foundation.types import ItemLocation


@dataclass(frozen=True)
class ReferenceDecoder(ImageDecoder):
    """Decoder of encoded images without anything around them.

    Attributes:
        own: decodes images that it decodes otherwise than `decode_image`, or None.
    """

    own: DecodingProcessor | None = None

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        if self.own is not None:
            checked_header(data, self.max_pixels)
            pixels = self.own.decode(data)
            if pixels is not None:
                return encode_raw(pixels), None
        return data, None


def processor_stages(processor: Callable[..., Any] | None) -> tuple[Stage, ...]:
    """Return the stages of a processor: none, or one that takes the image.

    Raises:
        TypeError: it is not callable, or is an async function.
    """
    if processor is None:
        return ()
    if not callable(processor):
        raise TypeError(
            f"processor must be a transform or a function of an image, got a {type(processor).__name__}"
        )
    stage = Stage(processor, first=True)
    if stage.is_async:
        raise TypeError(
            f"the processor {stage.name} is async, but it runs in a worker: await it with the image that get() returns"
        )
    return (stage,)
