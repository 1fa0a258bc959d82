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

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.transforms.boxes.base import BoxTransform as BoxTransform
    from aioloader.transforms.boxes.base import Compose as Compose
    from aioloader.transforms.boxes.base import ImageOnly as ImageOnly
    from aioloader.transforms.boxes.base import Moved as Moved
    from aioloader.transforms.boxes.base import RandomApply as RandomApply
    from aioloader.transforms.boxes.base import as_boxes as as_boxes
    from aioloader.transforms.boxes.base import box_areas as box_areas
    from aioloader.transforms.boxes.base import box_coverages as box_coverages
    from aioloader.transforms.boxes.base import crop_boxes as crop_boxes
    from aioloader.transforms.boxes.base import flip_boxes as flip_boxes
    from aioloader.transforms.boxes.base import move_boxes as move_boxes
    from aioloader.transforms.boxes.base import move_points as move_points
    from aioloader.transforms.boxes.base import resize_boxes as resize_boxes
    from aioloader.transforms.boxes.base import shift_boxes as shift_boxes
    from aioloader.transforms.boxes.transforms import CenterCrop as CenterCrop
    from aioloader.transforms.boxes.transforms import Pad as Pad
    from aioloader.transforms.boxes.transforms import RandomCrop as RandomCrop
    from aioloader.transforms.boxes.transforms import RandomExpand as RandomExpand
    from aioloader.transforms.boxes.transforms import RandomHorizontalFlip as RandomHorizontalFlip
    from aioloader.transforms.boxes.transforms import RandomObjectCrop as RandomObjectCrop
    from aioloader.transforms.boxes.transforms import RandomResizedCrop as RandomResizedCrop
    from aioloader.transforms.boxes.transforms import RandomVerticalFlip as RandomVerticalFlip
    from aioloader.transforms.boxes.transforms import Resize as Resize

__getattr__, __dir__, __all__ = lazy_names(
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
