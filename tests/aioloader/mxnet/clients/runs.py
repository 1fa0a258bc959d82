"""Runs of the data layers of libraries and scripts that import MXNet; each run returns what they return.

Runs under the tests with `aioloader.mxnet`, and under Python 3.8 with MXNet 1.9.1 to compare::

    python runs.py RUN KIND CLIENTS DATA OUT.npz

RUN is a function below, KIND "aioloader" or "mxnet", CLIENTS the folder of the clients' code, DATA that of the sets
that made_data.py makes. OUT receives the arrays; a list of names is printed.
"""

import argparse
import contextlib
import importlib
import io
import os
import random
import subprocess
import sys

import numpy as np


class Seen(dict):
    """Arrays that a run returned, by name."""

    def add(self, name, value):
        """Note a value: an array, a number, text, or a tuple or list of them."""
        if isinstance(value, (list, tuple)):
            for place, each in enumerate(value):
                self.add("%s.%d" % (name, place), each)  # noqa: UP031
            return
        if hasattr(value, "asnumpy"):
            value = value.asnumpy()
        self[name] = np.asarray(value)

    def add_all(self, name, values, most=12):
        """Note the first of many values, and their number."""
        found = [value for _, value in zip(range(most), values)]  # noqa: B905 - Python 3.8
        self.add(name, found)
        self.add(name + ".count", len(found))


def enter(clients, *folders):
    """Make a client's modules importable."""
    for folder in folders:
        sys.path.insert(0, os.path.join(clients, folder))


def boxed(width=300, height=200):
    """Return boxes with a class, float32 (n, 5)."""
    return np.array([[10, 20, 100, 150, 0], [50, 5, width - 20, height - 30, 2]], "float32")


def image(mx, data, name="voc/VOC2007/JPEGImages/000001.jpg"):
    """Return a photograph as NDArray."""
    return mx.image.imread(os.path.join(data, name))


# --- GluonCV ---


def gluoncv_datasets(seen, mx, clients, data, version):
    enter(clients, version)
    import gluoncv.data as cv

    folder = cv.ImageNet(os.path.join(data, "imagenet"), train=False)
    seen.add_all("ImageNet", (folder[i] for i in range(len(folder))))
    assert len(cv.ImageNet(os.path.join(data, "imagenet"), train=True)) == 9
    transforms = mx.gluon.data.vision.transforms
    evaluation = transforms.Compose(
        [
            transforms.Resize(64, keep_ratio=True),
            transforms.CenterCrop(56),
            transforms.ToTensor(),
            transforms.Normalize([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]),
        ]
    )
    for workers in (0, 2):
        loader = mx.gluon.data.DataLoader(
            folder.transform_first(evaluation), 4, last_batch="keep", num_workers=workers
        )
        seen.add_all("ImageNet.loader%d" % workers, (list(batch) for batch in loader))  # noqa: UP031

    class Small(cv.VOCDetection):
        CLASSES = ("dog", "cat", "person")

    voc = Small(os.path.join(data, "voc"), splits=((2007, "trainval"),))
    seen.add_all("VOCDetection", (voc[i] for i in range(len(voc))))

    class SmallCOCO(cv.COCODetection):
        CLASSES = ["dog", "cat", "person"]  # noqa: RUF012

    with contextlib.redirect_stdout(io.StringIO()):
        coco = SmallCOCO(os.path.join(data, "coco"), splits=("instances_val2017",))
    seen.add_all("COCODetection", (coco[i] for i in range(len(coco))))
    records = cv.RecordFileDetection(os.path.join(data, "records", "det.rec"))
    seen.add_all("RecordFileDetection", (records[i] for i in range(len(records))))
    listed = cv.LstDetection(os.path.join(data, "records", "det.lst"), root=os.path.join(data, "voc"))
    seen.add_all("LstDetection", (listed[i] for i in range(len(listed))))
    masks = cv.VOCSegmentation
    original = masks.BASE_DIR
    masks.BASE_DIR = "VOC2007"
    from mxnet.gluon.data.vision import transforms as vision

    tensor = vision.Compose([vision.ToTensor(), vision.Normalize([0.5, 0.5, 0.5], [0.2, 0.2, 0.2])])
    for mode in ("val", "testval", "train"):
        random.seed(3)
        np.random.seed(3)
        segmentation = masks(
            os.path.join(data, "voc"), split="val", mode=mode, transform=tensor, base_size=60, crop_size=48
        )
        seen.add_all("VOCSegmentation." + mode, (segmentation[i] for i in range(4)))
    masks.BASE_DIR = original


def gluoncv_transforms(seen, mx, clients, data, version):
    enter(clients, version)
    from gluoncv.data import transforms as t
    from gluoncv.data.transforms import presets
    from gluoncv.data.transforms.experimental import bbox as experimental_bbox
    from gluoncv.data.transforms.experimental import image as experimental_image

    source = image(mx, data)
    height, width = source.shape[:2]
    box = boxed(width, height)
    seen.add("bbox.crop", t.bbox.crop(box, (20, 30, 60, 60)))
    seen.add("bbox.crop.center", t.bbox.crop(box, (20, 30, 60, 60), allow_outside_center=False))
    seen.add("bbox.flip", t.bbox.flip(box, (width, height), flip_x=True, flip_y=True))
    seen.add("bbox.resize", t.bbox.resize(box, (width, height), (64, 48)))
    seen.add("bbox.translate", t.bbox.translate(box, 5, -3))
    for interp in (0, 1, 2, 3, 4, 9):
        seen.add("image.imresize%d" % interp, t.image.imresize(source, 70, 50, interp=interp))  # noqa: UP031
    seen.add("image.resize_long", t.image.resize_long(source, 60))
    seen.add("image.resize_short_within", t.image.resize_short_within(source, 50, 90))
    seen.add("image.resize_contain", t.image.resize_contain(source, (70, 90), fill=100))
    seen.add("image.ten_crop", t.image.ten_crop(source, (40, 30)))
    seen.add("image.random_flip", t.image.random_flip(source, px=1, py=1, copy=True))
    np.random.seed(4)
    random.seed(4)
    seen.add("image.random_expand", t.image.random_expand(source, max_ratio=2, fill=[1, 2, 3]))
    seen.add("image.random_pca_lighting", t.image.random_pca_lighting(source.astype("float32"), 0.1))
    distorted = experimental_image.random_color_distort(source.astype("float32"))
    seen.add("random_color_distort", distorted)
    seen.add(
        "random_crop_with_constraints",
        experimental_bbox.random_crop_with_constraints(box, (width, height), max_trial=20),
    )
    polygon = [np.array([[5, 5], [40, 6], [41, 50], [4, 45]], "float32")]
    seen.add("mask.flip", t.mask.flip(polygon, (width, height), flip_x=True))
    seen.add("mask.resize", t.mask.resize(polygon, (width, height), (64, 64)))
    seen.add("mask.to_mask", t.mask.to_mask(polygon, (width, height)))
    seen.add("ssd.val", presets.ssd.SSDDefaultValTransform(64, 48)(source, box))
    seen.add("yolo.val", presets.yolo.YOLO3DefaultValTransform(64, 48)(source, box))
    rcnn = presets.rcnn
    seen.add("rcnn.val", rcnn.FasterRCNNDefaultValTransform(60, 100)(source, box))
    seen.add("mask_rcnn.val", rcnn.MaskRCNNDefaultValTransform(60, 100)(source, box, polygon))
    seen.add("imagenet.eval", presets.imagenet.transform_eval([source], resize_short=60, crop_size=48))
    paths = [os.path.join(data, "voc/VOC2007/JPEGImages/00000%d.jpg" % n) for n in (0, 1)]  # noqa: UP031
    seen.add("ssd.load_test", presets.ssd.load_test(paths, short=64))
    seen.add("yolo.load_test", presets.yolo.load_test(paths, short=64, stride=32))
    seen.add("rcnn.load_test", presets.rcnn.load_test(paths, short=64, max_size=90))
    for name, transform in (
        ("ssd.train", presets.ssd.SSDDefaultTrainTransform(64, 48)),
        ("yolo.train", presets.yolo.YOLO3DefaultTrainTransform(64, 48)),
        ("rcnn.train", rcnn.FasterRCNNDefaultTrainTransform(60, 100)),
    ):
        for seed in range(3):
            np.random.seed(seed)
            random.seed(seed)
            seen.add("%s.%d" % (name, seed), transform(source, box))  # noqa: UP031


def gluoncv_batches(seen, mx, clients, data, version):
    enter(clients, version)
    from gluoncv.data import batchify
    from gluoncv.data.dataloader import DetectionDataLoader, RandomTransformDataLoader
    from gluoncv.data.transforms.presets.ssd import SSDDefaultTrainTransform, SSDDefaultValTransform

    arrays = [mx.nd.array(np.arange(n * 2).reshape(n, 2)) for n in (3, 1, 2)]
    seen.add("Pad", batchify.Pad(pad_val=-1)(arrays))
    seen.add("Pad.length", batchify.Pad(ret_length=True)([[1, 2, 3], [4]]))
    seen.add("Stack", batchify.Stack()([arrays[0], arrays[0] * 2]))
    seen.add("Append", batchify.Append()(arrays))
    seen.add("Tuple", batchify.Tuple(batchify.Stack(), batchify.Pad())([(1, [1]), (2, [2, 3])]))

    class Small(importlib.import_module("gluoncv.data").VOCDetection):
        CLASSES = ("dog", "cat", "person")

    voc = Small(os.path.join(data, "voc"), splits=((2007, "trainval"),))
    val = batchify.Tuple(batchify.Stack(), batchify.Pad(pad_val=-1))
    for workers in (0, 2):
        loader = mx.gluon.data.DataLoader(
            voc.transform(SSDDefaultValTransform(64, 48)),
            2,
            False,
            batchify_fn=val,
            last_batch="keep",
            num_workers=workers,
        )
        seen.add_all("loader%d" % workers, (list(batch) for batch in loader))  # noqa: UP031
    detection = DetectionDataLoader(
        voc.transform(SSDDefaultValTransform(64, 48)), 4, last_batch="keep", batchify_fn=val
    )
    seen.add_all("DetectionDataLoader", (list(batch) for batch in detection))
    sizes = [SSDDefaultTrainTransform(64, 48), SSDDefaultTrainTransform(96, 48)]
    np.random.seed(5)
    random.seed(5)
    mixed = RandomTransformDataLoader(sizes, voc, 1, 2, batchify_fn=val, num_workers=0)
    seen.add_all("RandomTransformDataLoader", (list(batch) for batch in mixed))
    several = RandomTransformDataLoader(
        [SSDDefaultValTransform(64, 48)], voc, 1, 2, batchify_fn=val, num_workers=2, last_batch="keep"
    )
    seen.add_all("RandomTransformDataLoader2", (list(batch) for batch in several))


# --- InsightFace ---


def insightface(seen, mx, clients, data, version):
    folder = {
        "insightface": "insightface/recognition/arcface_mxnet",
        "insightface-2019": "insightface-2019/src",
    }[version]
    enter(clients, folder, os.path.join(folder, "common"))
    quiet = contextlib.redirect_stdout(io.StringIO())
    record = os.path.join(data, "records", "faces", "train.rec")
    with quiet:
        module = importlib.import_module("image_iter")
        for shuffle in (False, True):
            for mirror, mean in ((False, None), (True, [127.5, 127.5, 127.5])):
                random.seed(6)
                np.random.seed(6)
                faces = module.FaceImageIter(
                    4, (3, 112, 112), record, shuffle=True, rand_mirror=mirror, mean=mean, cutoff=0
                )
                name = "FaceImageIter.%s.%s" % (shuffle, mirror)  # noqa: UP031
                batches = []
                for _ in range(2):
                    try:
                        batch = faces.next()
                    except StopIteration:
                        faces.reset()
                        continue
                    batches.append([batch.data[0], batch.label[0], batch.pad])
                seen.add(name, batches)
        random.seed(7)
        np.random.seed(7)
        coloured = module.FaceImageIter(4, (3, 112, 112), record, shuffle=True, cutoff=16, color_jittering=1)
        batch = coloured.next()
        # Of the first image only: MXNet shuffles the list of its augmenters itself, so that later orders differ.
        seen.add("FaceImageIter.coloured", [batch.data[0][0], batch.label[0]])
        verification = importlib.import_module(
            "verification" if version == "insightface" else "eval.verification"
        )
        pairs, same = verification.load_bin(os.path.join(data, "records", "faces", "pairs.bin"), (112, 112))
        seen.add("load_bin", [*pairs, same])
        if version == "insightface":
            unpack = importlib.import_module("rec2image")
            out = os.path.join(os.environ["RUN_FOLDER"], "images")
            unpack.main(argparse.Namespace(include=os.path.dirname(record), output=out))
            for place in sorted(os.listdir(out)):
                for name in sorted(os.listdir(os.path.join(out, place))):
                    seen.add("rec2image/%s/%s" % (place, name), file_bytes(os.path.join(out, place, name)))  # noqa: UP031


def file_bytes(path):
    with open(path, "rb") as file:
        return np.frombuffer(file.read(), np.uint8)


def face2rec(seen, mx, clients, data, version):
    """Run the program in a process of its own; both kinds must write the same bytes."""
    out = os.path.join(os.environ["RUN_FOLDER"], "faces")
    os.makedirs(out)
    for name in ("property", "list.lst"):
        with open(os.path.join(data, "records", "faces", name)) as source:
            text = source.read()
        with open(os.path.join(out, name), "w") as target:
            target.write(text)
    program = os.path.join(clients, "insightface-2019", "src", "data", "face2rec2.py")
    start = "import runpy, sys; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"
    if mx.__name__ == "mxnet":  # which takes no text, as this program passes
        start = (
            "import mxnet.recordio as r; p = r.pack; r.pack = lambda h, s: p(h, s.encode() if s == '' else s); "
            + start
        )
    else:
        start = "import sys, aioloader.mxnet; sys.modules['mxnet'] = aioloader.mxnet; " + start
    command = [sys.executable, "-c", start, program, os.path.join(out, "list")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    for name in ("list.rec", "list.idx"):
        seen.add(name, file_bytes(os.path.join(out, name)))


# --- MXNet's examples, and mxnet-ssd ---


def image_classification(seen, mx, clients, data, version):
    enter(clients, os.path.join(version, "example", "image-classification"))
    common = importlib.import_module("common.data")
    parser = argparse.ArgumentParser()
    common.add_data_args(parser)
    common.add_data_aug_args(parser)
    record = os.path.join(data, "records", "cls.rec")
    words = ["--data-train", record, "--data-val", record, "--image-shape", "3,32,32", "--num-classes", "4"]
    for extra in ([], ["--rgb-std", "58,57,57"]):
        options = parser.parse_args([*words, *extra, "--num-examples", "10"])
        options.batch_size = 4
        train, val = common.get_rec_iter(options)
        for epoch in range(2):
            batches = [[batch.data[0], batch.label[0]] for batch in val]
            seen.add("val%s.%d" % ("".join(extra), epoch), batches)  # noqa: UP031
            val.reset()
        labels = sorted(np.concatenate([batch.label[0].asnumpy() for batch in train]).tolist())
        seen.add("train.count", len(labels))
    np.random.seed(8)
    options.benchmark = 1
    train, none = common.get_rec_iter(options)
    assert none is None
    seen.add("synthetic", [[batch.data[0], batch.label[0]] for batch in train][:1])
    seen.add("descriptions", [str(train.provide_data[0].shape), str(train.provide_label[0].name)])


def ssd(seen, mx, clients, data, version):
    folder = "mxnet-ssd" if version == "mxnet-ssd" else os.path.join(version, "example", "ssd")
    enter(clients, folder)
    iterator = importlib.import_module("dataset.iterator")
    record = os.path.join(data, "records", "det.rec")
    for mode in ("force",):
        batches = []
        detection = iterator.DetRecordIter(
            record, 2, (3, 48, 64), label_pad_width=30, resize_mode=mode, path_imglist=""
        )
        for _ in range(3):
            batch = detection.next()
            batches.append([batch.data[0].copy(), batch.label[0].copy()])
        seen.add("DetRecordIter." + mode, batches)
        seen.add("DetRecordIter.label", list(detection.provide_label[0][1]))

    class Photographs:
        num_images = 6

        def image_path_from_index(self, index):
            return os.path.join(data, "voc", "VOC2007", "JPEGImages", "00000%d.jpg" % index)  # noqa: UP031

        def label_from_index(self, index):
            return np.array([[index % 3, 0.1, 0.2, 0.6, 0.7], [1, 0.3, 0.3, 0.9, 0.8]])

    sampler = importlib.import_module("tools.rand_sampler")
    for name, options in (
        ("plain", {"is_train": False}),
        ("train", {"rand_mirror": True, "shuffle": True}),
        (
            "crop",
            {
                "rand_mirror": True,
                "rand_samplers": [sampler.RandCropper(min_scale=0.3), sampler.RandPadder(max_scale=2.0)],
            },
        ),
    ):
        batches = []
        made = iterator.DetIter(Photographs(), 4, (48, 64), rand_seed=9, **options)
        for batch in made:
            batches.append([batch.data[0], *([batch.label[0]] if made.is_train else []), batch.pad])
        seen.add("DetIter." + name, batches)


def bucketing(seen, mx, clients, data, version):
    """The data of example/rnn/bucketing: sentences, encoded and put into buckets."""
    words = ["the", "quick", "brown", "fox", "jumps", "over", "a", "lazy", "dog"]
    sentences = [[words[(i * 5 + j) % 9] for j in range(3 + i % 7)] for i in range(60)]
    coded, vocabulary = mx.rnn.encode_sentences(sentences, start_label=1, invalid_label=0)
    random.seed(1)
    np.random.seed(1)
    with contextlib.redirect_stdout(io.StringIO()):
        batches = mx.rnn.BucketSentenceIter(coded, 4, buckets=[4, 6, 9], invalid_label=0)
    for epoch in range(2):
        seen.add("epoch%d" % epoch, [[b.data[0], b.label[0], b.bucket_key] for b in batches])  # noqa: UP031
        batches.reset()
    seen.add("vocabulary", [vocabulary[word] for word in words])


RUNS = {
    "gluoncv-0.5: datasets": (gluoncv_datasets, "gluoncv-0.5"),
    "gluoncv-0.5: transforms": (gluoncv_transforms, "gluoncv-0.5"),
    "gluoncv-0.5: batchify and loaders": (gluoncv_batches, "gluoncv-0.5"),
    "gluoncv-0.11: datasets": (gluoncv_datasets, "gluoncv-0.11"),
    "gluoncv-0.11: transforms": (gluoncv_transforms, "gluoncv-0.11"),
    "gluoncv-0.11: batchify and loaders": (gluoncv_batches, "gluoncv-0.11"),
    "insightface: image_iter, load_bin, rec2image": (insightface, "insightface"),
    "insightface-2019: image_iter, load_bin": (insightface, "insightface-2019"),
    "insightface-2019: face2rec2": (face2rec, "insightface-2019"),
    "mxnet-1.9.1: image-classification/common/data.py": (image_classification, "mxnet-1.9.1"),
    "mxnet-1.9.1: ssd/dataset/iterator.py": (ssd, "mxnet-1.9.1"),
    "mxnet-ssd: dataset/iterator.py": (ssd, "mxnet-ssd"),
    "mxnet-1.9.1: rnn/bucketing": (bucketing, "mxnet-1.9.1"),
}


def main():
    """Run one of them."""
    run, kind, clients, data, out = sys.argv[1:]
    os.environ["RUN_FOLDER"] = os.path.dirname(out)
    os.environ.setdefault("MXNET_SAFE_ACCUMULATION", "0")
    if kind == "aioloader":
        import multiprocessing.pool  # noqa: F401 - loaded by MXNet, which libraries rely on

        import aioloader.mxnet as mx

        sys.modules["mxnet"] = mx  # the one changed import
    else:
        import mxnet as mx
    work, version = RUNS[run]
    seen = Seen()
    work(seen, mx, clients, data, version)
    np.savez(out, **seen)


if __name__ == "__main__":
    main()
