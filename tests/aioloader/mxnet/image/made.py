"""Iterators over the photographs of conftest.py, and their expected batches."""

import numpy as np

import aioloader.mxnet as mx
from aioloader.mxnet.image import ImageIter

__all__ = ("SHAPE", "centre_of", "labels_of", "make_iter")

SHAPE = (3, 24, 24)


def make_iter(photos, batch_size=3, source="imglist", **options):
    given = {
        "imglist": {"imglist": photos.imglist, "path_root": str(photos.folder)},
        "lst": {"path_imglist": photos.lst, "path_root": str(photos.folder)},
        "rec": {"path_imgrec": photos.rec},
        "rec+idx": {"path_imgrec": photos.rec, "path_imgidx": photos.idx},
    }[source]
    return ImageIter(batch_size, SHAPE, **{**given, **options})


def labels_of(batches):
    return [batch.label[0].asnumpy().tolist() for batch in batches]


def centre_of(photos, number):
    """Return image `number` after augmenters without randomness: the centre, float32, channels first."""
    crop, _ = mx.image.center_crop(photos.images[number], (24, 24))
    return np.asarray(crop, np.float32).transpose(2, 0, 1)
