"""tf.data: TFRecord shards, `decode_and_crop_jpeg`, a bilinear resize.

The input pipeline of TensorFlow's own ImageNet training, with the advice of its performance guide: interleaved reads
of shards and a shuffle buffer, parallel maps, single-threaded ops in a private thread pool, a prefetch at the end. The
dataset repeats, so that no epoch waits for the end of the one before; elements stay in order, so that epochs do not
mix. Decoding is exact (`INTEGER_ACCURATE`), as in all other contenders. "Resize 256, centre crop 224" is, as usual with
TensorFlow, one crop of 224/256 of the shorter side and one resize.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import numpy as np
import tensorflow as tf

from benchmarks.cases import MEAN, STD
from benchmarks.contenders.batches import Epochs
from benchmarks.contenders.contract import RecFile, Source

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("", "cache")
PACKAGES = ("tensorflow-cpu", "numpy")

_SHARDS = 16


def supports(case: Case, variant: str) -> str | None:
    """Return None for all cases except the area resize, which TensorFlow computes in another way."""
    if variant == "cache" and not case.kept:
        return "measured with the case of the epochs"
    return None if case.interpolation == "linear" else "its area resize returns other pixels"


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of parallel calls and threads: AUTOTUNE (0) or fixed. Arrays: by sample, and with one gather."""
    if case.store == "arrays":
        return [{"gather": gather, "calls": 0, "threads": cores} for gather in (False, True)]
    if case.store == "bytes":
        return [{"calls": 0, "threads": threads} for threads in sorted({1, cores})]
    pairs = ((0, 0), (0, cores), (cores, cores), (2 * cores, cores), (4, 4))
    return [{"calls": calls, "threads": threads} for calls, threads in pairs]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write TFRecord shards of contiguous samples."""
    if case.store == "arrays":
        return source.folder
    records = RecFile(source.rec, source.samples)
    for shard, numbers in enumerate(np.array_split(np.arange(source.samples), _SHARDS)):
        with tf.io.TFRecordWriter(str(folder / f"{shard:05d}.tfrecord")) as writer:
            for number in numbers.tolist():
                if case.store == "bytes":
                    writer.write(records.payload(number))
                else:
                    writer.write(_example(case, *records.image(number)))
    return folder


def _example(case: Case, jpeg: bytes, label: int) -> bytes:
    def of(value: Any) -> Any:
        if isinstance(value, bytes):
            return tf.train.Feature(bytes_list=tf.train.BytesList(value=[value]))
        return tf.train.Feature(int64_list=tf.train.Int64List(value=value))

    feature = {"label": of([label]), "image": of(jpeg)}
    if case.store == "raw":
        pixels = tf.io.decode_jpeg(jpeg, channels=3, dct_method="INTEGER_ACCURATE").numpy()
        feature = {**feature, "image": of(pixels.tobytes()), "shape": of(pixels.shape)}
    return tf.train.Example(features=tf.train.Features(feature=feature)).SerializeToString()


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open one dataset that repeats, with one iterator."""
    calls = setting["calls"] or tf.data.AUTOTUNE
    dataset = (
        _arrays(case, data, setting["gather"])
        if case.store == "arrays"
        else _records(case, data, calls, cached=variant == "cache")
    )
    options = tf.data.Options()
    options.threading.max_intra_op_parallelism = 1
    if setting["threads"]:
        options.threading.private_threadpool_size = setting["threads"]
    batches = dataset.prefetch(tf.data.AUTOTUNE).with_options(options).as_numpy_iterator()
    if case.store == "bytes":
        batches = (records.tolist() for records in batches)
    yield Epochs(batches, case.samples // case.batch_size)


def _records(case: Case, data: Path, calls: int, *, cached: bool) -> Any:
    paths = sorted(str(path) for path in data.glob("*.tfrecord"))
    if case.shuffle:
        dataset = tf.data.Dataset.from_tensor_slices(paths).shuffle(len(paths))
        dataset = dataset.interleave(
            tf.data.TFRecordDataset, cycle_length=4, num_parallel_calls=tf.data.AUTOTUNE
        )
        dataset = dataset.take(case.samples)
        if cached:
            dataset = dataset.map(_decoded, num_parallel_calls=calls).cache()
        dataset = dataset.shuffle(case.buffered)
    else:
        dataset = tf.data.TFRecordDataset(paths).take(case.samples)
    dataset = dataset.repeat()
    if case.store == "bytes":
        return dataset.batch(case.batch_size, drop_remainder=True)
    if cached:
        dataset = dataset.map(lambda image, label: (_cropped(case, image), label), num_parallel_calls=calls)
        return dataset.batch(case.batch_size, drop_remainder=True)
    dataset = dataset.map(lambda record: _sample(case, record), num_parallel_calls=calls)
    return dataset.batch(case.batch_size, drop_remainder=True)


def _decoded(record: Any) -> tuple[Any, Any]:
    """Return the whole image of a serialised example, and its label."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    example = tf.io.parse_single_example(record, features)
    return tf.io.decode_jpeg(example["image"], channels=3, dct_method="INTEGER_ACCURATE"), example["label"]


def _cropped(case: Case, image: Any) -> Any:
    """Return a random crop of a decoded image, resized, and flipped at random."""
    y, x, height, width = _random_box(case, tf.shape(image))
    image = tf.image.resize(
        image[y : y + height, x : x + width], (224, 224), method="bilinear", antialias=case.antialias
    )
    return tf.image.random_flip_left_right(tf.cast(tf.round(image), tf.uint8))


def _arrays(case: Case, data: Path, gather: bool) -> Any:
    source = Source.load(data)
    images, labels = source.images, source.labels
    if not gather:
        dataset = tf.data.Dataset.from_tensor_slices((images, labels)).shuffle(case.samples)
        return dataset.repeat().batch(case.batch_size, drop_remainder=True)
    images, labels = tf.constant(images), tf.constant(labels)
    dataset = tf.data.Dataset.range(case.samples).shuffle(case.samples).repeat()
    dataset = dataset.batch(case.batch_size, drop_remainder=True)
    return dataset.map(lambda numbers: (tf.gather(images, numbers), tf.gather(labels, numbers)))


def _sample(case: Case, record: Any) -> Any:
    """Convert a serialised example to the image that the case requires, and its label."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}
    if case.store == "raw":
        features["shape"] = tf.io.FixedLenFeature([3], tf.int64)
    example = tf.io.parse_single_example(record, features)
    content = example["image"]
    if case.store == "raw":
        shape = tf.cast(example["shape"], tf.int32)
    elif case.crop != "none":
        shape = tf.io.extract_jpeg_shape(content)
    if case.crop == "none":
        image = tf.io.decode_jpeg(content, channels=3, dct_method="INTEGER_ACCURATE")
        image = tf.ensure_shape(image, case.shape)
    else:
        boxes = {"random": _random_box, "window": _window_box, "centre": _centre_box}
        y, x, height, width = boxes[case.crop](case, shape)
        if case.store == "raw":
            image = tf.reshape(tf.io.decode_raw(content, tf.uint8), shape)[y : y + height, x : x + width]
        else:
            window = tf.stack([y, x, height, width])
            image = tf.io.decode_and_crop_jpeg(content, window, channels=3, dct_method="INTEGER_ACCURATE")
        if case.crop == "window":
            image = tf.ensure_shape(image, case.shape)
        else:
            image = tf.image.resize(image, (224, 224), method="bilinear", antialias=case.antialias)
    if image.dtype != tf.uint8 and not case.normalised:
        image = tf.cast(tf.round(image), tf.uint8)
    if case.flip:
        image = tf.image.random_flip_left_right(image)
    if case.normalised:
        # Plane by plane: a third of the time of arithmetic with three channels and a transposition.
        planes = zip(tf.unstack(image, axis=-1), MEAN, STD, strict=True)
        image = tf.stack([(plane - mean * 255) * (1 / (std * 255)) for plane, mean, std in planes])
    return image, example["label"]


def _random_box(case: Case, shape: Any) -> Any:
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        shape,
        bounding_boxes=tf.zeros([1, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        min_object_covered=0.0,
        max_attempts=10,
        use_image_if_no_bounding_boxes=True,
    )
    return begin[0], begin[1], size[0], size[1]


def _window_box(case: Case, shape: Any) -> Any:
    height, width = case.shape[:2]
    y = tf.random.uniform([], 0, shape[0] - height + 1, tf.int32)
    x = tf.random.uniform([], 0, shape[1] - width + 1, tf.int32)
    return y, x, height, width


def _centre_box(case: Case, shape: Any) -> Any:
    side = tf.cast(tf.round(tf.cast(tf.minimum(shape[0], shape[1]), tf.float32) * (224 / 256)), tf.int32)
    return (shape[0] - side) // 2, (shape[1] - side) // 2, side, side
