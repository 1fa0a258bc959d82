"""Processing of one image in `ImageIter`: the methods that a derived class may override, and the errors of an image.

The methods are in a separate class so that worker processes can receive them alone, without the iterator's lists.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.errors import DecodeError, LoaderError, SampleError
from aioloader.foundation.types import ItemLocation
from aioloader.mxnet.base import MXNetError, methods_of, overrides
from aioloader.mxnet.image.decode import imdecode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.foundation.types import Array


class BrokenImageError(MXNetError):
    """Error raised when an image of an `ImageIter` cannot be decoded. The decoder's error is chained.

    Attributes:
        key: key of the image in the index or list; None if it is unknown, like the next two.
        path: the image file, or the record file.
        offset: byte at which the record begins; None for an image file.
        reason: the defect.
    """

    def __init__(self, text: str, key: object, path: str | None, offset: int | None, reason: str) -> None:
        super().__init__(text, key, path, offset, reason)
        self.key = key
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


def broken_image(cause: DecodeError, location: ItemLocation, *, is_file: bool) -> BrokenImageError:
    """Return the error of a bad image, in MXNet's words.

    Args:
        cause: the decoder's error.
        location: see `BrokenImageError`.
        is_file: a known image is a separate file.
    """
    key, path, offset = location
    place = "" if key is None else f" filename: {path}" if is_file else f" index: {key}"
    return BrokenImageError(f"Broken image{place}, {cause.reason}", key, path, offset, cause.reason)


def original(error: SampleError, *, is_file: bool) -> BaseException:
    """Return the cause of a failure: `BrokenImageError` for a bad image, else the error with a note of the image.

    Args:
        error: the loader's error.
        is_file: the image is a separate file.
    """
    cause = error.__cause__
    if cause is None:
        return error
    if isinstance(cause, DecodeError):
        return broken_image(cause, ItemLocation(error.key, error.path, error.offset), is_file=is_file)
    error.__cause__ = None  # it is raised from this one
    cause.add_note(f"image with the key {error.key!r}, path {error.path}, in {error.stage}")
    return cause


class SkippedImage(LoaderError, ValueError):
    """Error raised when `check_valid_image` refuses an image: it is left out, and the next one takes its place."""


@contextmanager
def skipping() -> Iterator[None]:
    """Raise `SkippedImage` for a RuntimeError in the block."""
    try:
        yield
    except RuntimeError as error:
        raise SkippedImage(str(error)) from error


class SampleSteps:
    """Steps from an encoded image to a row of a batch.

    Attributes:
        auglist: augmenters, applied in order.
        data_shape: (channels, height, width) of a row.
        label_row: shape of a row of labels.
        exif: "apply" or "ignore", see `imdecode`.
    """

    # Attributes of an iterator that a worker needs, unless a derived class does more.
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
            RuntimeError: the image should be left out.
        """
        if not len(data) or not len(data[0].shape):
            raise RuntimeError("Data shape is wrong")

    def augmentation_transform(self, data: Any) -> Any:
        """Apply all augmenters to the image."""
        for augmenter in self.auglist:
            data = augmenter(data)
        return data

    def postprocess_data(self, datum: Any) -> Any:
        """Move the channels to the front, as the last step."""
        return np.transpose(datum, (2, 0, 1))

    def make(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        """Return a row of data and a row of labels, float32.

        Raises:
            SkippedImage: the image should be left out.
            ValueError: the result does not fit a row.
        """
        image = self._checked(encoded)
        data = self.postprocess_data(self.augmentation_transform(image))
        return self._data_row(data), self._label_of(label)

    def _checked(self, encoded: Any) -> Any:
        image = self.imdecode(encoded)
        with skipping():
            self.check_valid_image(image)
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
            # One label is repeated for the whole row, as in MXNet.
            values = values.reshape(())
        elif values.shape != self.label_row:
            raise ValueError(f"there are {values.size} labels, but label_width is {(*self.label_row, 1)[0]}")
        return np.broadcast_to(values, self.label_row)


class IteratorTransform:
    """Transform that calls `make` of an iterator without keeping it alive; a worker process receives only the steps.

    Args:
        find: function that returns the iterator or its steps, such as a weak reference to the iterator.
        steps: the class that defines the methods of the steps, unless a derived class overrides some.
    """

    __name__ = "augment"

    def __init__(self, find: Callable[[], SampleSteps | None], steps: type[SampleSteps]) -> None:
        self._find = find
        self._steps = steps

    def _found(self) -> SampleSteps:
        found = self._find()
        assert found is not None
        return found

    def __call__(self, encoded: Any, label: Any) -> tuple[Array, Array]:
        return self._found().make(encoded, label)

    def __reduce__(self) -> tuple[Any, ...]:
        return _in_worker, (_light(self._found(), self._steps), self._steps)


def _in_worker(found: SampleSteps, steps: type[SampleSteps]) -> IteratorTransform:
    return IteratorTransform(lambda: found, steps)


def _light(iterator: SampleSteps, steps: type[SampleSteps]) -> SampleSteps:
    """Return the steps of an iterator without its lists; the iterator itself if its class overrides one of them."""
    names = (name for name in dir(steps) if name[:2] != "__" and callable(getattr(steps, name)))
    if overrides(iterator, methods_of(steps, *names)):
        return iterator
    light = steps()
    light.__dict__.update({name: getattr(iterator, name) for name in steps._fields})
    return light
