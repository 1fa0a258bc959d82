"""Transforms of an image and the boxes of the objects in it: crop, flip, resize, pad, and colours.

Boxes are float32 or float64 (n, 4 + k): xmin, ymin, xmax, ymax in pixels from the upper left corner of the image, the
maxima exclusive; k further columns (class numbers, ids, ...) are kept. So is the order; a crop leaves out boxes of
which too little remains.

A `BoxTransform` is called with (image, boxes) and returns (image, boxes); other fields of the sample are passed on. In
a dataset of such samples it is passed to ``dataset.transform``; ``batchify.Pad(val=-1)`` makes batches of boxes::

    train = dataset.transform(
        boxes.Compose([boxes.RandomObjectCrop(), boxes.RandomHorizontalFlip(), boxes.Resize((512, 512)), ToTensor()])
    )
    loader = aioloader.DataLoader(train, 32, batchify_fn=batchify.Group(batchify.Stack(), batchify.Pad(val=-1)))

- `base`: the base class, and transforms that consist of transforms
- `geometry`: coordinates of boxes after a crop, flip or resize (pure)
- `transforms`: flips, resize, pad and crops, and crops and borders that depend on the boxes
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.foundation.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.transforms.boxes.base import (
        BoxTransform,
        Compose,
        ImageOnly,
        Moved,
        RandomApply,
        as_boxes,
        box_areas,
        box_coverages,
        crop_boxes,
        flip_boxes,
        move_boxes,
        move_points,
        resize_boxes,
        shift_boxes,
    )
    from aioloader.transforms.boxes.transforms import (
        CenterCrop,
        Pad,
        RandomCrop,
        RandomExpand,
        RandomHorizontalFlip,
        RandomObjectCrop,
        RandomResizedCrop,
        RandomVerticalFlip,
        Resize,
    )

__all__ = (
    "BoxTransform",
    "CenterCrop",
    "Compose",
    "ImageOnly",
    "Moved",
    "Pad",
    "RandomApply",
    "RandomCrop",
    "RandomExpand",
    "RandomHorizontalFlip",
    "RandomObjectCrop",
    "RandomResizedCrop",
    "RandomVerticalFlip",
    "Resize",
    "as_boxes",
    "box_areas",
    "box_coverages",
    "crop_boxes",
    "flip_boxes",
    "move_boxes",
    "move_points",
    "resize_boxes",
    "shift_boxes",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aioloader.transforms.boxes.base": (
            "BoxTransform Compose ImageOnly Moved RandomApply as_boxes box_areas box_coverages crop_boxes "
            "flip_boxes move_boxes move_points resize_boxes shift_boxes"
        ),
        "aioloader.transforms.boxes.transforms": (
            "CenterCrop Pad RandomCrop RandomExpand RandomHorizontalFlip RandomObjectCrop "
            "RandomResizedCrop RandomVerticalFlip Resize"
        ),
    },
)
