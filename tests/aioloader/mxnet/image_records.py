"""Small record files for the tests of the record iterators."""

from pathlib import Path

import numpy as np

import aioloader.mxnet as mx
from aioloader.transforms import encode_raw
from recordio import MXIndexedRecordIO, MXRecordIO, pack, unpack

GOLDEN = Path(__file__).parents[2] / "data" / "mxnet"
# Four images of different sizes, labels 0 to 3.
AUG = str(GOLDEN / "aug.rec")


def coordinates(height, width, step=1):
    """Return an image whose red encodes the column and whose green encodes the row."""
    rows, columns = np.mgrid[:height, :width]
    planes = columns * step, rows * step, np.full((height, width), 50)
    return np.stack(planes, axis=2).astype(np.uint8)


def write(path, images, labels=None, first_id=0, index=False):
    """Write a .rec file of raw images; ids count from `first_id`, labels are the ids unless given."""
    images = list(images)
    if index:
        writer = MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
    else:
        writer = MXRecordIO(str(path), "w")
    for number, image in enumerate(images):
        label = float(first_id + number) if labels is None else labels[number]
        body = image if isinstance(image, bytes) else encode_raw(image)
        record = pack((0, label, first_id + number, 0), body)
        if index:
            writer.write_idx(first_id + number, record)
        else:
            writer.write(record)
    writer.close()
    return str(path)


def numbered(count, height=4, width=4):
    """Return images of one colour each, which encodes their number."""
    return [np.full((height, width, 3), number, np.uint8) for number in range(count)]


def make(path, **arguments):
    """Make an `ImageRecordIter` without workers, by default for 4 x 4 images in batches of 4."""
    values = {"data_shape": (3, 4, 4), "batch_size": 4, "executor": "inline", **arguments}
    return mx.io.ImageRecordIter(path_imgrec=path, **values)


def make_det(path, **arguments):
    """Make an `ImageDetRecordIter` without workers, by default for 24 x 24 images in batches of 4."""
    values = {"data_shape": (3, 24, 24), "batch_size": 4, "executor": "inline", **arguments}
    return mx.io.ImageDetRecordIter(path_imgrec=path, **values)


def golden_images():
    """Return the encoded images of `AUG`."""
    reader = MXIndexedRecordIO(str(GOLDEN / "aug.idx"), AUG, "r")
    return [unpack(reader.read_idx(key))[1] for key in reader.keys]


def one_pass(iterator):
    """Return the ids of the rows of every batch, and the pads."""
    batches = list(iterator)
    return [batch.index.tolist() for batch in batches], [batch.pad for batch in batches]
