"""Labels of detection records: objects with boxes, which change together with their image. Pure.

Layout, flat float32: header width A >= 2 (A and B count), object width B >= 5, more header values, then the objects:
class, left, top, right, bottom, more values; edges are shares of the image's extents. Objects whose box has no area, or
infinite edges, are left out. A rectangle here is (x, y, width, height) in the same shares.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.mxnet.base import MXNetError

if TYPE_CHECKING:
    import numpy.typing as npt

    Floats = npt.NDArray[np.float32]

# Wider objects are refused; a label without any object can claim any width.
_WIDTHS = 1 << 31


class DetectionLabelError(MXNetError, ValueError):
    """Error raised when a record's label is not a detection label. A ValueError too.

    Args:
        reason: the defect, in words.
        width: number of values of the label.

    Attributes:
        reason, width: as given.
    """

    def __init__(self, reason: str, width: int) -> None:
        super().__init__(
            f"{reason} (the label has {width} numbers; a detection label is: header width, object width, more header "
            "values, then for each object class, left, top, right, bottom and more values)"
        )
        self.reason = reason
        self.width = width


class LabelPadError(MXNetError, ValueError):
    """Error raised when a label is wider than `label_pad_width`. A ValueError too.

    Args:
        width: the given width.
        needed: number of values of the widest label.

    Attributes:
        width, needed: as given.
    """

    def __init__(self, width: int, needed: int) -> None:
        super().__init__(
            f"label_pad_width: {width} smaller than estimated width: {needed}; give {needed} or more, or 0 for what is "
            "needed"
        )
        self.width = width
        self.needed = needed


class Rect(NamedTuple):
    """Rectangle, in shares of the image's extents."""

    x: float
    y: float
    width: float
    height: float


class CropLimits(NamedTuple):
    """Conditions that a crop must satisfy for at least one object, each (least, greatest).

    Attributes:
        overlap: intersection over union with the object's box.
        sample_coverage: share of the crop that the box covers.
        object_coverage: share of the box that is inside the crop.
    """

    overlap: tuple[float, float]
    sample_coverage: tuple[float, float]
    object_coverage: tuple[float, float]


class ObjectLabel:
    """Label of one image.

    Args:
        values: float32 (n,), in the layout above.

    Attributes:
        header: float32 (A,).
        objects: float32 (count, B), those with an area.

    Raises:
        DetectionLabelError: it does not have that layout.
    """

    def __init__(self, values: Floats) -> None:
        size = len(values)
        if size < 2:
            raise DetectionLabelError("Not enough label packed in img_list or rec file", size)
        header, width = float(values[0]), float(values[1])
        if not (header.is_integer() and 2 <= header <= size):
            raise DetectionLabelError(
                f"the header width must be a number from 2 to {size}, not {header:g}", size
            )
        if not (width.is_integer() and 5 <= width < _WIDTHS):
            raise DetectionLabelError(f"the object width must be a number from 5 on, not {width:g}", size)
        start, step = int(header), int(width)
        if (size - start) % step:
            raise DetectionLabelError(
                f"{size - start} numbers behind the header are not a multiple of the object width {step}",
                size,
            )
        self.header = values[:start].copy()
        objects = values[start:].reshape(-1, step)
        self.objects = objects[_has_area(objects)]

    def values(self) -> Floats:
        """Return the current label, flat."""
        return np.concatenate((self.header, self.objects.ravel()))

    def mirror(self) -> None:
        """Exchange left and right."""
        left = self.objects[:, 1].copy()
        self.objects[:, 1] = 1 - self.objects[:, 3]
        self.objects[:, 3] = 1 - left

    def frame(self, rect: Rect) -> None:
        """Replace the image by the rectangle `rect` of it, which may reach beyond it; boxes end at its edges."""
        self.objects = _framed(self.objects, rect)

    def crop(
        self, rect: Rect, limits: CropLimits, emit: str, emit_overlap: float, cut: Rect | None = None
    ) -> bool:
        """Crop, if the rectangle satisfies the limits and keeps an object; else change nothing and return False.

        Args:
            rect: inside the image.
            limits: see `CropLimits`. An image without objects satisfies any.
            emit: objects that stay: "center": those whose centre is in the rectangle; "overlap": those of which it
                shows more than a share.
            emit_overlap: that share.
            cut: the part that is cut from the image, `rect` in whole pixels; None for `rect` itself.
        """
        if not len(self.objects):
            return True
        area = rect.width * rect.height
        # Values may be NaN, and mirroring can round an area to 0: no share of it satisfies a limit.
        with np.errstate(invalid="ignore"):
            objects = self.objects.astype(np.float64)  # in which no area is so small that it becomes 0
            shared, areas = _intersection(objects, rect), _areas(objects)
            share = shared / areas
        measured = (
            (limits.overlap, shared / (areas + area - shared)),
            (limits.sample_coverage, shared / area),
            (limits.object_coverage, share),
        )
        fits = np.ones(len(self.objects), bool)
        for (least, greatest), found in measured:
            if least > 0.0 or greatest < 1.0:
                fits &= (found >= least) & (found <= greatest)
        if not fits.any():
            return False
        if emit == "center":
            x, y = (objects[:, 1] + objects[:, 3]) / 2, (objects[:, 2] + objects[:, 4]) / 2
            stays = (rect.x <= x) & (x < rect.x + rect.width) & (rect.y <= y) & (y < rect.y + rect.height)
        else:
            stays = share > emit_overlap
        left = _framed(self.objects[stays], rect if cut is None else cut)
        left = left[_has_area(left)]
        if not len(left):
            return False
        self.objects = left
        return True


def _framed(objects: Floats, rect: Rect) -> Floats:
    origin, extent = np.array([rect.x, rect.y], np.float32), np.array([rect.width, rect.height], np.float32)
    framed = objects.copy()
    with np.errstate(over="ignore"):  # an edge far outside may become infinite
        framed[:, 1:3] = np.maximum(0, (objects[:, 1:3] - origin) / extent)
        framed[:, 3:5] = np.minimum(1, (objects[:, 3:5] - origin) / extent)
    return framed


def _has_area(objects: Floats) -> Any:
    """Return a mask of the boxes with an area; a box with infinite edges has none."""
    finite = np.isfinite(objects[:, 1:5]).all(axis=1)
    return finite & (objects[:, 3] > objects[:, 1]) & (objects[:, 4] > objects[:, 2])


def _areas(objects: Any) -> Any:
    return (objects[:, 3] - objects[:, 1]) * (objects[:, 4] - objects[:, 2])


def _intersection(objects: Any, rect: Rect) -> Any:
    width = np.minimum(objects[:, 3], rect.x + rect.width) - np.maximum(objects[:, 1], rect.x)
    height = np.minimum(objects[:, 4], rect.y + rect.height) - np.maximum(objects[:, 2], rect.y)
    return np.maximum(width, 0) * np.maximum(height, 0)
