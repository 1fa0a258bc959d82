"""What `ImageIter` does to one image: the methods that a class derived from it may override.

They stand in a class of their own so that worker processes can be sent these alone, without the lists of the iterator.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.errors import LoaderError
from aioloader.mxnet.image.decode import imdecode

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array

__all__ = ("Hooks", "SkippedImage", "Through")


class SkippedImage(LoaderError, ValueError):
    """`check_valid_image` refused an image: it is left out, and the next one takes its place."""


class Hooks:
    """The steps from an encoded image to a row of a batch.

    Attributes:
        auglist: augmenters, applied in order.
        data_shape: (channels, height, width) of a row.
        label_row: shape of a row of labels.
        exif: "apply" or "ignore", see `imdecode`.
    """

    # What a worker needs to know of an iterator, unless a derived class does more.
    _fields: ClassVar[tuple[str, ...]] = ("auglist", "data_shape", "label_row", "exif")

    auglist: Sequence[Callable[..., Any]]
    data_shape: tuple[int, ...]
    label_row: tuple[int, ...]
    exif: str

    def imdecode(self, s: Any) -> Any:
        """Decode an image: an NDArray, uint8 (height, width, 3), RGB."""
        return imdecode(s, exif=self.exif)

    def check_valid_image(self, data: Any) -> None:
        """Refuse a decoded image.

        Raises:
            RuntimeError: it is to be left out.
        """
        if not len(data) or not len(data[0].shape):
            raise RuntimeError("Data shape is wrong")

    def augmentation_transform(self, data: Any) -> Any:
        """The image after all augmenters."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """The last step: channels first."""
        return np.transpose(datum, (2, 0, 1))

    def make(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        """A row of data and a row of labels, float32.

        Raises:
            SkippedImage: the image is to be left out.
            ValueError: the result does not fit a row.
        """
        image = self._checked(encoded)
        data = self.postprocess_data(self.augmentation_transform(image))
        return self._data_row(data), self._label_of(label)

    def _checked(self, encoded: Any) -> Any:
        image = self.imdecode(encoded)
        try:
            self.check_valid_image(image)
        except RuntimeError as error:
            raise SkippedImage(str(error)) from error
        return image

    def _data_row(self, data: Any) -> Array:
        row = np.asarray(data, np.float32)
        if row.shape != tuple(self.data_shape):
            raise ValueError(
                f"the augmenters make an image of shape {row.shape}, but data_shape is {tuple(self.data_shape)}: "
                "crop or resize to it"
            )
        return row

    def _label_of(self, label: Any) -> Array:
        values = np.asarray(label, np.float32)
        if values.size == 1:
            # One label stands for all of a row, as in MXNet.
            values = values.reshape(())
        elif values.shape != self.label_row:
            raise ValueError(f"there are {values.size} labels, but label_width is {(*self.label_row, 1)[0]}")
        return np.broadcast_to(values, self.label_row)


class Through:
    """Calls `make` of an iterator, which it does not keep alive; a worker process is sent its hooks.

    Args:
        iterator: has the methods of `Hooks`.
        hooks: the class of which they are, unless a derived class overrides some.
    """

    __name__ = "augment"

    def __init__(self, iterator: Hooks, hooks: type[Hooks]) -> None:
        self._iterator = weakref.ref(iterator)
        self._hooks = hooks

    def __call__(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        """See `Hooks.make`."""
        iterator = self._iterator()
        assert iterator is not None
        return iterator.make(encoded, label)

    def __reduce__(self) -> tuple[Any, ...]:
        iterator = self._iterator()
        assert iterator is not None
        return _Sent, (_light(iterator, self._hooks),)


def _light(iterator: Hooks, hooks: type[Hooks]) -> Hooks:
    """The hooks of an iterator without its lists; the iterator itself if its class overrides one of them."""
    if any(
        getattr(type(iterator), name) is not getattr(hooks, name) for name in dir(hooks) if name[:2] != "__"
    ):
        return iterator
    light = hooks()
    light.__dict__.update({name: getattr(iterator, name) for name in hooks._fields})
    return light


class _Sent:
    """`Through` in a worker process."""

    __name__ = "augment"

    def __init__(self, hooks: Hooks) -> None:
        self._hooks = hooks

    def __call__(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        return self._hooks.make(encoded, label)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Sent, (self._hooks,)
