"""Public patterns of scripts that derive from MXNet's classes, assign their attributes, or use their private names.

Each case returns what it sees. MXNet 1.9.1 (PyPI wheel, CPU, Python 3.8, numpy 1.23.5, opencv-python-headless 4.8.1.78)
writes the expected results, which are never written with this package::

    python tests/aioloader/mxnet/hook_cases.py > tests/aioloader/mxnet/hook_expected.json
"""

import contextlib
import functools
import gzip
import io
import json
import os
import random
import struct
import tempfile
import zlib

import numpy as np

CASES = {}


def case(function):
    CASES[function.__name__] = function
    return function


# --- data, and the form of results ---


def made(folder, mx):
    """Write the data of all cases below a folder: images without loss, so that pixels are equal everywhere."""
    import cv2

    rng = np.random.RandomState(0)

    def idx(name, array):
        os.makedirs(os.path.dirname(name), exist_ok=True)
        with gzip.GzipFile(name, "wb", mtime=0) as file:
            file.write(struct.pack(">I", 0x800 + array.ndim) + struct.pack(">%dI" % array.ndim, *array.shape))  # noqa: UP031
            file.write(array.tobytes())

    for part, count in (("train", 12), ("t10k", 6)):
        images = rng.randint(0, 256, (count, 28, 28)).astype("uint8")
        idx(os.path.join(folder, "mnist", part + "-images-idx3-ubyte.gz"), images)
        idx(
            os.path.join(folder, "mnist", part + "-labels-idx1-ubyte.gz"),
            np.arange(count, dtype="uint8") % 10,
        )
    idx(os.path.join(folder, "mnist", "mine-images.gz"), images)
    idx(os.path.join(folder, "mnist", "mine-labels.gz"), np.arange(6, dtype="uint8") + 3)
    for name, labels, files in (
        ("cifar10", 1, ["data_batch_%d.bin" % n for n in range(1, 6)] + ["test_batch.bin"]),  # noqa: UP031
        ("cifar100", 2, ["train.bin", "test.bin"]),
    ):
        os.makedirs(os.path.join(folder, name))
        for file in files:
            rows = rng.randint(0, 256, (4, labels + 3072)).astype("uint8")
            rows[:, :labels] %= 10
            rows.tofile(os.path.join(folder, name, file))
    writer = mx.recordio.MXIndexedRecordIO(
        os.path.join(folder, "data.idx"), os.path.join(folder, "data.rec"), "w"
    )
    for number in range(7):
        image = rng.randint(0, 256, (8 + number, 10, 3)).astype("uint8")
        place = os.path.join(folder, "folder", "ab"[number % 2], "%d.png" % number)  # noqa: UP031
        os.makedirs(os.path.dirname(place), exist_ok=True)
        cv2.imwrite(place, image)
        cv2.imwrite(place[:-3] + "bmp", image)
        if number < 3:
            os.makedirs(os.path.join(folder, "single", "x"), exist_ok=True)
            cv2.imwrite(os.path.join(folder, "single", "x", "%d.png" % number), image[:8])  # noqa: UP031
        header = mx.recordio.IRHeader(0, float(number), number, 0)
        writer.write_idx(number, mx.recordio.pack_img(header, image, 9, ".png"))
    writer.close()
    return folder


def seen(value):
    """Return a value as JSON: arrays by shape, dtype and the values of a few, or else their sum and CRC-32."""
    if isinstance(value, dict):
        return {str(key): seen(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [seen(each) for each in value]
    if hasattr(value, "asnumpy"):
        return ["nd", *seen(value.asnumpy())[1:]]
    if isinstance(value, np.ndarray):
        array = np.ascontiguousarray(value)
        if array.dtype.kind == "f":
            array = np.round(array, 3) + 0  # no -0
        values = (
            array.tolist()
            if array.size <= 12
            else [round(float(array.astype("f8").sum()), 3), zlib.crc32(array)]
        )
        return ["np", list(array.shape), array.dtype.name, values]
    if isinstance(value, (np.float64, np.int64)):
        return value.item()  # some are Python's numbers there
    if isinstance(value, np.generic):
        return [type(value).__name__, value.item()]
    if isinstance(value, bytes):
        return ["bytes", len(value), zlib.crc32(value)]
    return value if value is None or isinstance(value, (bool, int, float, str)) else type(value).__name__


def batches(iterator, most=9):
    """Return what the batches of a pass hold."""
    found = []
    for _ in range(most):
        try:
            batch = iterator.next()
        except StopIteration:
            break
        found.append([batch.data, batch.label, batch.pad])
    return found


def passes(iterator, count=2):
    """Return the batches of several passes."""
    found = []
    for _ in range(count):
        found.append(batches(iterator))
        iterator.reset()
    return found


def loaded(mx, dataset, size=3, **arguments):
    """Return the batches of a loader, of 0 workers and of 2."""
    return [
        list(mx.gluon.data.DataLoader(dataset, size, num_workers=workers, **arguments)) for workers in (0, 2)
    ]


def observe(mx, name, folder):
    random.seed(1)
    np.random.seed(1)
    mx.random.seed(1)
    return seen(CASES[name](mx, folder))


# --- published data sets ---


@case
def mnist_get_data_is_extended(mx, folder):
    class Half(mx.gluon.data.vision.MNIST):
        def _get_data(self):
            super()._get_data()
            self._data, self._label = self._data[:5], self._label[:5]

    half = Half(os.path.join(folder, "mnist"))
    return len(half), half[1], half[4], half._data, half._label, loaded(mx, half)


@case
def mnist_get_data_is_replaced(mx, folder):
    class Own(mx.gluon.data.vision.FashionMNIST):
        def _get_data(self):
            self._data = mx.nd.array(np.arange(24).reshape(4, 2, 3, 1), dtype="uint8")
            self._label = np.array([3, 1, 2, 0], "int32")

    own = Own(os.path.join(folder, "nothing"), train=False)
    return len(own), own[0], own._train, loaded(mx, own), os.path.isdir(os.path.join(folder, "nothing"))


@case
def downloaded_dataset_is_derived_from(mx, folder):
    from_module = mx.gluon.data.dataset

    class Own(from_module._DownloadedDataset):
        def __init__(self, root, train=True, transform=None):
            self._train = train
            super().__init__(root, transform)

        def _get_data(self):
            self._data = mx.nd.array(np.arange(12).reshape(4, 3) * (1 if self._train else -1))
            self._label = [3, 1, 2, 0]

    plain = Own(folder)
    turned = Own(folder, False, lambda data, label: (data * 2, label + 1))
    return len(plain), plain[1], turned[1], plain._root == folder, loaded(mx, plain), loaded(mx, turned)


@case
def downloaded_dataset_get_data_is_required(mx, folder):
    class Own(mx.gluon.data.dataset._DownloadedDataset):
        pass

    try:
        Own(folder, None)
    except NotImplementedError:
        return "NotImplementedError"


@case
def mnist_with_other_files(mx, folder):
    class Mine(mx.gluon.data.vision.MNIST):
        def __init__(self, root, train=True, transform=None):
            self._train = train
            self._train_data = ("mine-images.gz", "0")
            self._train_label = ("mine-labels.gz", "0")
            self._test_data, self._test_label = self._train_data, self._train_label
            self._namespace = "mine"
            super(mx.gluon.data.vision.MNIST, self).__init__(root, transform)

    mine = Mine(os.path.join(folder, "mnist"), transform=lambda data, label: (data[:2], label))
    return len(mine), mine[3], mine._label


@case
def mnist_attributes(mx, folder):
    digits = mx.gluon.data.vision.MNIST(os.path.join(folder, "mnist"), train=False)
    before = digits[1], digits._transform, digits._train, digits._namespace, digits._test_data[0]
    digits._label = digits._label % 2
    digits._data = digits._data[:, :14]
    digits._transform = lambda data, label: (data.astype("float32") / 255, label)
    return before, digits[3], loaded(mx, digits)


@case
def mnist_items_of_a_derived_class(mx, folder):
    class Pair(mx.gluon.data.vision.MNIST):
        def __getitem__(self, idx):
            data, label = super().__getitem__(idx)
            return data, int(label), int(self._label[(idx + 1) % len(self)])

        def __len__(self):
            return 5

    pair = Pair(os.path.join(folder, "mnist"))
    return len(pair), pair[4], loaded(mx, pair)


@case
def mnist_slices(mx, folder):
    digits = mx.gluon.data.vision.MNIST(os.path.join(folder, "mnist"))
    return digits[2:4]


@case
def cifar_read_batch_is_extended(mx, folder):
    found = []
    for name, base in (
        ("cifar10", mx.gluon.data.vision.CIFAR10),
        ("cifar100", mx.gluon.data.vision.CIFAR100),
    ):

        class Changed(base):
            def _read_batch(self, filename):
                data, label = super()._read_batch(filename)
                return data[:, ::2], label + 100 * (len(os.path.basename(filename)))

        for train in (True, False):
            changed = Changed(os.path.join(folder, name), train=train)
            found.append([len(changed), changed[2], changed._label, changed._data, loaded(mx, changed)])
    return found


@case
def cifar_read_batch_is_replaced(mx, folder):
    class Own(mx.gluon.data.vision.CIFAR10):
        def _read_batch(self, filename):
            with open(filename, "rb") as fin:
                data = np.frombuffer(fin.read(), dtype=np.uint8).reshape(-1, 3072 + 1)
            return data[:2, 1:].reshape(-1, 3, 32, 32), data[:2, 0].astype(np.int64)

    own = Own(os.path.join(folder, "cifar10"))
    return len(own), own[0], own._label


@case
def cifar_with_other_files(mx, folder):
    class One(mx.gluon.data.vision.CIFAR10):
        def __init__(self, root, train=True, transform=None):
            self._train = train
            self._archive_file = ("none.tar.gz", "0")
            self._train_data = [("data_batch_2.bin", "0")]
            self._test_data = [("data_batch_3.bin", "0")]
            self._namespace = "one"
            super(mx.gluon.data.vision.CIFAR10, self).__init__(root, transform)

    one = One(os.path.join(folder, "cifar10"))
    fine = mx.gluon.data.vision.CIFAR100(os.path.join(folder, "cifar100"), fine_label=True)
    fine._transform = lambda data, label: label
    return len(one), one[1], one._namespace, fine._fine_label, fine[2], fine._train_data[0][0]


# --- folders and records ---


@case
def folder_attributes(mx, folder):
    images = mx.gluon.data.vision.ImageFolderDataset(os.path.join(folder, "folder"))
    before = images[0], images._flag, images._transform, images._exts, images._root == images.items[0][0][:-8]
    images._flag = 0
    grey = images[3]
    images._transform = lambda data, label: (data[:8].astype("float32"), label + 1)
    images.items = images.items[2:6]
    return before, grey, len(images), images[0], loaded(mx, images)


@case
def folder_list_images_is_replaced(mx, folder):
    class Flat(mx.gluon.data.vision.ImageFolderDataset):
        def _list_images(self, root):
            self.synsets = ["all"]
            self.items = [(os.path.join(root, "a", name), 7) for name in ("0.png", "2.bmp", "4.png")]

    flat = Flat(os.path.join(folder, "folder"), transform=lambda data, label: (data[:8], label))
    return len(flat), flat[1], flat.synsets, loaded(mx, flat)


@case
def folder_list_images_is_extended(mx, folder):
    class Fewer(mx.gluon.data.vision.ImageFolderDataset):
        def _list_images(self, root):
            self._exts = [".bmp"]
            super()._list_images(root)
            self.items = self.items[1:]

    fewer = Fewer(os.path.join(folder, "folder"), flag=0)
    return (
        len(fewer),
        [(os.path.basename(path), label) for path, label in fewer.items],
        fewer.synsets,
        fewer[0],
    )


@case
def folder_constructor_is_replaced(mx, folder):
    class Own(mx.gluon.data.vision.ImageFolderDataset):
        def __init__(self, root):
            self._root = os.path.expanduser(root)
            self._flag = 1
            self._transform = None
            self._exts = [".png", ".bmp"]
            self._list_images(self._root)

    own = Own(os.path.join(folder, "folder"))
    cut = own.transform_first(lambda data: data[:8])
    return len(own), own[1], own.synsets, loaded(mx, cut)


@case
def record_attributes(mx, folder):
    records = mx.gluon.data.RecordFileDataset(os.path.join(folder, "data.rec"))
    names = os.path.basename(records.filename), os.path.basename(records.idx_file)
    key = records._record.keys[2]
    found = records[1], records._record.read_idx(key), len(records._record.keys)
    records._record.keys = records._record.keys[1:4]
    # MXNet's workers read the keys again.
    loader = mx.gluon.data.DataLoader(records, 3, batchify_fn=first_lengths)
    return names, found, len(records), records[0], list(loader)


@case
def record_image_attributes(mx, folder):
    images = mx.gluon.data.vision.ImageRecordDataset(os.path.join(folder, "data.rec"))
    before = images[2], images._flag, images._transform
    images._flag = 0
    grey = images[2]
    images._transform = lambda data, label: (data[:8], label + 1)
    images._record.keys = [5, 1, 3]
    return before, grey, len(images), images[0], list(mx.gluon.data.DataLoader(images, 3))


@case
def record_raw_items_in_a_derived_class(mx, folder):
    vision = mx.gluon.data.vision

    class WithId(vision.ImageRecordDataset):
        def __getitem__(self, idx):
            record = super(vision.ImageRecordDataset, self).__getitem__(idx)
            header, body = mx.recordio.unpack(record)
            return mx.image.imdecode(body, self._flag)[:8], header.label, header.id

    images = WithId(os.path.join(folder, "data.rec"))
    return images[4], loaded(mx, images)


@case
def record_of_a_derived_class(mx, folder):
    class Own(mx.gluon.data.RecordFileDataset):
        def __init__(self, filename):
            self.filename = filename
            self.idx_file = os.path.splitext(filename)[0] + ".idx"
            self._record = mx.recordio.MXIndexedRecordIO(self.idx_file, self.filename, "r")

        def __getitem__(self, idx):
            return len(super().__getitem__(idx))

    own = Own(os.path.join(folder, "data.rec"))
    return len(own), own[3], loaded(mx, own)


def first_lengths(data):
    return [len(each) for each in data]


# --- other datasets ---


@case
def lazy_transform_dataset(mx, folder):
    module = mx.gluon.data.dataset

    class Noted(module._LazyTransformDataset):
        def __getitem__(self, idx):
            return idx, super().__getitem__(idx)

    source = mx.gluon.data.ArrayDataset(np.arange(6), np.arange(6) * 10)
    add = lambda a, b: a + b  # noqa: E731
    lazy = module._LazyTransformDataset(source, add)
    first = source.transform_first(negated)
    noted = Noted(source, add)
    before = lazy[3], len(lazy), lazy._data is source, lazy._fn is add, noted[2], first._fn._fn is negated
    kinds = [isinstance(each, module._LazyTransformDataset) for each in (lazy, first, source)]
    lazy._fn = lambda a, b: a - b
    after = lazy[3], loaded(mx, lazy)
    lazy._data = mx.gluon.data.ArrayDataset(np.arange(4), np.arange(4))
    return before, kinds, after, len(lazy), lazy[3], loaded(mx, noted), module.recordio is mx.recordio


def negated(value):
    return -value


@case
def views_and_arrays(mx, folder):
    module = mx.gluon.data.dataset
    pairs = mx.gluon.data.ArrayDataset(np.arange(6), mx.nd.arange(6) * 10)
    simple = mx.gluon.data.SimpleDataset([1, 2, 3])
    before = pairs._length, len(pairs._data), pairs._data[1], simple._data
    pairs._data[0] = np.arange(6) + 100
    simple._data = [4, 5]
    taken = pairs.take(4)
    sampled = module._SampledDataset(pairs, mx.gluon.data.SequentialSampler(2, 1))
    filtered = module._FilteredDataset(pairs, lambda sample: sample[0] % 2)
    return (
        before,
        pairs[2],
        loaded(mx, pairs),
        len(simple),
        simple[1],
        [taken._indices[1], taken._dataset is pairs, list(taken._sampler)],
        [sampled[0], len(filtered), filtered[1]],
    )


# --- samplers and loaders ---


@case
def sampler_attributes(mx, folder):
    data = mx.gluon.data
    order = data.SequentialSampler(10)
    rolling = data.BatchSampler(order, 4, "rollover")
    found = [list(rolling), rolling._prev, len(rolling), rolling._batch_size, rolling._last_batch]
    rolling._batch_size = 5
    found.append([list(rolling), rolling._prev])
    rolling._last_batch, rolling._prev = "keep", []
    order._start, order._length = 3, 7
    found.append([list(rolling), rolling._sampler is order, len(rolling)])
    rolling._sampler = data.SequentialSampler(4)
    shuffled = data.RandomSampler(9)
    shuffled._length = 5
    kept = data.FilterSampler(lambda value: value % 2, list(range(8)))
    found.append([list(rolling), list(map(int, shuffled)), list(kept), list(kept._indices)])
    kept._indices = [2, 0]
    return found, list(kept), len(kept)


@case
def batch_sampler_in_a_loader(mx, folder):
    found = []
    for workers in (0, 2):
        loader = mx.gluon.data.DataLoader(np.arange(10), 4, num_workers=workers)
        first = list(loader)
        loader._batch_sampler._batch_size = 5
        second, count = list(loader), len(loader)
        loader._batch_sampler = [[0, 1], [9]]
        found.append([first, second, count, list(loader), len(loader)])
    return found


@case
def batchify_of_a_loader(mx, folder):
    found = []
    for workers in (0, 2):
        loader = mx.gluon.data.DataLoader(np.arange(6), 4, num_workers=workers)
        first = list(loader)
        loader._batchify_fn = summed
        second = list(loader)
        loader._batchify_fn = mx.gluon.data.dataloader.default_batchify_fn
        found.append([first, second, list(loader)])
    return found


def summed(data):
    return float(sum(data))


@case
def dataset_of_a_loader(mx, folder):
    loader = mx.gluon.data.DataLoader(np.arange(6), 4)
    first = list(loader)
    loader._dataset = np.arange(6) * 10
    return first, list(loader), loader._dataset[1]


@case
def loader_methods(mx, folder):
    class Own(mx.gluon.data.DataLoader):
        begun = 0

        def _prefetch_iter(self):
            self.begun += 1
            return super()._prefetch_iter()

    loader = Own(np.arange(4), 2, auto_reload=True)
    begun = loader.begun
    first, second = list(loader), list(loader)
    found = [begun, first, second, loader.begun, loader._iter is None]
    loader.auto_reload = False
    loader.clean()
    found += [loader._iter is None, list(loader), loader.begun, loader._iter is None]
    loader.refresh()
    return [*found, loader._iter is None, loader.begun, list(loader), loader.begun]


@case
def loader_iteration_is_replaced(mx, folder):
    class Own(mx.gluon.data.DataLoader):
        def __iter__(self):
            for batch in self._batch_sampler:
                yield self._batchify_fn([self._dataset[idx] for idx in batch])

    return list(Own(np.arange(5, dtype="float32"), 2))


@case
def loader_first_version(mx, folder):
    loader = mx.gluon.data.dataloader.DataLoaderV1(np.arange(6), 4)
    loader._batchify_fn = summed
    return list(loader), loader._num_workers, loader._pin_memory


# --- transforms ---


@case
def transform_attributes(mx, folder):
    t = mx.gluon.data.vision.transforms
    image = mx.nd.array(np.arange(6 * 8 * 3).reshape(6, 8, 3), dtype="uint8")
    found = []

    def changed(transform, x, **attributes):
        first = transform(x)
        for name, value in attributes.items():
            assert hasattr(transform, name), (type(transform), name)
            setattr(transform, name, value)
        found.append([type(transform).__name__, first, transform(x)])

    changed(t.Resize(4, interpolation=0), image, _size=(2, 3), _keep=False)
    changed(t.Resize(4, interpolation=1), image, _interpolation=0)
    changed(t.CenterCrop(4), image, _args=((2, 3), 1))
    changed(t.CropResize(0, 0, 4, 4), image, _x=2, _width=3, _size=(3, 2), _interpolation=0)
    changed(t.Cast("float32"), image, _dtype="int32")
    tensor = t.ToTensor()(image)
    changed(t.Normalize(0.5, 0.5), tensor, _mean=(0.1, 0.2, 0.3), _std=(1, 2, 4))
    changed(t.RandomBrightness(0), image.astype("float32"), _args=(2, 2))
    changed(t.RandomContrast(0), image.astype("float32"), _args=(1, 1))
    changed(t.RandomLighting(0), image.astype("float32"), _alpha=0)
    changed(t.RandomApply(t.CenterCrop(4), 0), image, p=1)
    changed(t.RandomApply(t.CenterCrop(4), 1), image, transforms=t.CenterCrop(2))
    changed(t.RandomRotation((-1, 1), rotate_with_proba=0), tensor, _rotate_with_proba=0)
    changed(t.Rotate(90), tensor, _args=(180, False, False))
    return found


@case
def transform_attributes_in_datasets(mx, folder):
    t = mx.gluon.data.vision.transforms
    crop = t.CenterCrop(4)
    chain = t.Compose([crop, t.ToTensor()])
    images = mx.gluon.data.vision.ImageRecordDataset(os.path.join(folder, "data.rec"))
    data = images.transform_first(chain)
    loader = mx.gluon.data.DataLoader(data, 3)
    first = data[1], list(loader)
    crop._args = ((6, 2), 1)
    return first, data[1], list(loader), loaded(mx, data)


@case
def transform_hooks_are_replaced(mx, folder):
    t = mx.gluon.data.vision.transforms

    class Brighter(t.Resize):
        def hybrid_forward(self, F, x):
            return super().hybrid_forward(F, x) + 1

    class Darker(t.CenterCrop):
        def forward(self, x):
            return super().forward(x) - 1

    class Shifted(t.Compose):
        def forward(self, x):
            return super().forward(x) * 2

    image = mx.nd.array(np.arange(6 * 8 * 3).reshape(6, 8, 3), dtype="uint8")
    resize = t.Resize(4, interpolation=0)
    made = [Brighter(4, interpolation=0), Darker(4), Shifted([Brighter(4, interpolation=0), Darker(2)])]
    chain = t.Compose([Brighter(4, interpolation=0), t.ToTensor()])
    images = mx.gluon.data.vision.ImageRecordDataset(os.path.join(folder, "data.rec"))
    found = [transform(image) for transform in [*made, chain]]
    resize.forward = lambda x: x * 0
    found.append(resize(image))
    return found, [loaded(mx, images.transform_first(each)) for each in [*made, chain]]


@case
def compose_children(mx, folder):
    t = mx.gluon.data.vision.transforms
    chain = t.Compose([t.CenterCrop(4)])
    chain.add(t.RandomFlipLeftRight(), t.Cast("float32"))
    return len(chain), next(type(each).__name__ for each in chain._children.values()), type(chain[0]).__name__


# --- ImageIter ---


def image_iter(mx, folder, base=None, **arguments):
    entries = [[float(n), os.path.join("ab"[n % 2], "%d.png" % n)] for n in range(7)]  # noqa: UP031
    given = {"imglist": entries, "path_root": os.path.join(folder, "folder")}
    if "path_imgrec" in arguments:
        given = {}
    arguments.setdefault("aug_list", [mx.image.CenterCropAug((6, 4))])
    return (base or mx.image.ImageIter)(3, (3, 4, 6), **{**given, **arguments})


HANDLES = ("pad", "discard", "roll_over")


@case
def image_iter_batchify_is_extended(mx, folder):
    class Shifted(mx.image.ImageIter):
        def _batchify(self, batch_data, batch_label, start=0):
            stop = super()._batchify(batch_data, batch_label, start)
            batch_label[start:stop] += 100
            return stop

    return [
        [passes(image_iter(mx, folder, Shifted, last_batch_handle=handle)) for handle in HANDLES],
        passes(image_iter(mx, folder, Shifted, shuffle=True)),
        passes(image_iter(mx, folder, Shifted, path_imgrec=os.path.join(folder, "data.rec"))),
    ]


@case
def image_iter_batchify_is_replaced(mx, folder):
    class Twice(mx.image.ImageIter):
        def _batchify(self, batch_data, batch_label, start=0):
            i = start
            try:
                while i < self.batch_size:
                    label, s = self.next_sample()
                    data = self.augmentation_transform(self.imdecode(s))
                    for turn in (data, data[:, ::-1]):
                        if i < self.batch_size:
                            batch_data[i] = self.postprocess_data(turn)
                            batch_label[i] = label
                            i += 1
            except StopIteration:
                if not i:
                    raise StopIteration from None
            return i

    return [passes(image_iter(mx, folder, Twice, last_batch_handle=handle)) for handle in HANDLES]


@case
def image_iter_next_is_replaced(mx, folder):
    class Own(mx.image.ImageIter):
        def next(self):
            if self._cache_data is not None:
                batch_data, batch_label, i = self._cache_data, self._cache_label, self._cache_idx
            else:
                batch_data = mx.nd.zeros((self.batch_size, *self.data_shape))
                batch_label = mx.nd.empty(self.provide_label[0][1])
                i = self._batchify(batch_data, batch_label)
            pad = self.batch_size - i
            if pad != 0:
                if self.last_batch_handle == "discard":
                    raise StopIteration
                if self.last_batch_handle == "roll_over" and self._cache_data is None:
                    self._cache_data, self._cache_label, self._cache_idx = batch_data, batch_label, i
                    raise StopIteration
                _ = self._batchify(batch_data, batch_label, i)
                if self.last_batch_handle == "pad":
                    self._allow_read = False
                else:
                    self._cache_data = self._cache_label = self._cache_idx = None
            return mx.io.DataBatch([batch_data], [batch_label + 50], pad=pad)

    return [passes(image_iter(mx, folder, Own, last_batch_handle=handle), 3) for handle in HANDLES]


@case
def image_iter_attributes(mx, folder):
    it = image_iter(mx, folder)
    found = [it._cache_data, it._cache_label, it._cache_idx, it._allow_read, it.num_image, it.cur]
    found.append(passes(it, 1))
    it.auglist = [mx.image.CenterCropAug((6, 4)), mx.image.CastAug("float32")]
    it.seq = it.seq[::-1]
    found.append(passes(it, 1))
    it.num_image = 4
    found.append(passes(it, 1))
    it.cur = 2
    found.append(passes(it, 1))
    it.last_batch_handle = "discard"
    found.append(passes(it, 1))
    it.imglist = {key: (label + 10, name) for key, (label, name) in it.imglist.items()}
    found.append(passes(it, 1))
    return found


@case
def image_iter_hooks_on_an_instance(mx, folder):
    found = []
    for name, hook in (
        ("read_image", lambda it: lambda fname: type(it).read_image(it, fname.replace("4", "2"))),
        ("imdecode", lambda it: lambda s: type(it).imdecode(it, s)[::-1]),
        ("augmentation_transform", lambda it: lambda data: type(it).augmentation_transform(it, data)[::-1]),
        ("postprocess_data", lambda it: lambda data: type(it).postprocess_data(it, data) + 1),
        ("next_sample", lambda it: sevens(it)),
    ):
        it = image_iter(mx, folder)
        setattr(it, name, hook(it))
        found.append(passes(it, 1))
    return found


def sevens(it):
    def next_sample():
        label, image = type(it).next_sample(it)
        return label * 7, image

    return next_sample


@case
def image_iter_reads_its_records_itself(mx, folder):
    class Own(mx.image.ImageIter):
        def next_sample(self):
            record = self.imgrec.read()
            if record is None:
                raise StopIteration
            header, image = mx.recordio.unpack(record)
            return header.label + 1, image

    it = image_iter(
        mx, folder, Own, path_imgrec=os.path.join(folder, "data.rec"), last_batch_handle="discard"
    )
    return passes(it, 3)


@case
def image_iter_next_sample(mx, folder):
    it = image_iter(mx, folder, last_batch_handle="discard")
    labels = []
    while True:
        try:
            labels.append(it.next_sample()[0])
        except StopIteration:
            break
    it.reset()
    return labels, it.next_sample()[0], it.cur


def det_iter(mx, folder, base=None, **arguments):
    entries = [
        [
            [2, 5, *sum(([float(k), 0.1, 0.2, 0.5, 0.5 + n / 20] for k in range(1 + n % 3)), [])],
            os.path.join("ab"[n % 2], "%d.png" % n),  # noqa: UP031
        ]
        for n in range(7)
    ]
    arguments.setdefault("aug_list", [mx.image.DetBorrowAug(mx.image.ForceResizeAug((6, 4), 0))])
    root = os.path.join(folder, "folder")
    return (base or mx.image.ImageDetIter)(3, (3, 4, 6), imglist=entries, path_root=root, **arguments)


@case
def det_iter_hooks(mx, folder):
    base = mx.image.ImageDetIter

    class Batches(base):
        def _batchify(self, batch_data, batch_label, start=0):
            stop = super()._batchify(batch_data, batch_label, start)
            batch_label[start:stop, 0, 0] = 9
            return stop

    class Labels(base):
        def _parse_label(self, label):
            return super()._parse_label(label)[:1]

    class Shape(base):
        def _estimate_label_shape(self):
            count, width = super()._estimate_label_shape()
            return (count + 2, width)

    class Checks(base):
        def _check_valid_label(self, label):
            if len(label) > 2:
                raise RuntimeError("too many")

    return [
        [passes(det_iter(mx, folder, Batches, last_batch_handle=handle)) for handle in HANDLES],
        *(passes(det_iter(mx, folder, each)) for each in (Labels, Shape, Checks)),
    ]


@case
def augmenter_attributes(mx, folder):
    image = mx.nd.array(np.arange(6 * 8 * 3).reshape(6, 8, 3), dtype="uint8")
    found = []

    def changed(augmenter, **attributes):
        first = augmenter(image.copy())
        for name, value in attributes.items():
            assert hasattr(augmenter, name), (type(augmenter), name)
            setattr(augmenter, name, value)
        found.append([type(augmenter).__name__, first, augmenter(image.copy())])

    i = mx.image
    changed(i.ResizeAug(3, 0), size=4, interp=0)
    changed(i.ForceResizeAug((3, 2), 0), size=(2, 3))
    changed(i.CenterCropAug((4, 4)), size=(2, 3))
    changed(i.CastAug("float32"), typ="int32")
    changed(i.HorizontalFlipAug(0), p=1)
    changed(i.SequentialAug([i.CenterCropAug((4, 4))]), ts=[i.CenterCropAug((2, 2))])
    image = image.astype("float32")
    changed(i.BrightnessJitterAug(0), brightness=0)
    changed(i.RandomGrayAug(0), p=0)
    changed(i.ColorNormalizeAug(None, None), mean=mx.nd.array([1, 2, 3]))
    changed(i.ContrastJitterAug(0), coef=mx.nd.array([[[0, 0, 1]]]))
    random.seed(2)
    grey = i.SaturationJitterAug(1)
    grey.coef = mx.nd.array([[[0, 0, 1]]])
    return found, grey(image.copy())


# --- mx.io ---


def sources(mx):
    data = np.arange(14, dtype="float32").reshape(7, 2)
    return {"data": data}, np.arange(7, dtype="float32")


@case
def ndarray_iter_getdata_is_extended(mx, folder):
    class Doubled(mx.io.NDArrayIter):
        def _getdata(self, data_source, start=None, end=None):
            return [each * 2 for each in super()._getdata(data_source, start, end)]

    found = []
    for shuffle in (False, True):
        for handle in HANDLES:
            found.append(passes(Doubled(*sources(mx), 3, shuffle, handle), 3))
    return found, passes(Doubled(*sources(mx), 20))


@case
def ndarray_iter_getdata_is_replaced(mx, folder):
    class Own(mx.io.NDArrayIter):
        def _getdata(self, data_source, start=None, end=None):
            start = 0 if start is None else start
            end = data_source[0][1].shape[0] if end is None else end
            return [array[start:end] + 1 for _, array in data_source]

    return [passes(Own(*sources(mx), 3, True, handle), 3) for handle in HANDLES]


@case
def ndarray_iter_shuffle_is_replaced(mx, folder):
    class Pairs(mx.io.NDArrayIter):
        def _shuffle_data(self):
            self.idx = np.concatenate([np.arange(0, self.num_data, 2), np.arange(1, self.num_data, 2)])
            self.data = [(name, mx.nd.array(array.asnumpy()[self.idx])) for name, array in self.data]
            self.label = [(name, mx.nd.array(array.asnumpy()[self.idx])) for name, array in self.label]

    class Never(mx.io.NDArrayIter):
        def _shuffle_data(self):
            pass

    return [[passes(base(*sources(mx), 3, True, handle), 3) for handle in HANDLES] for base in (Pairs, Never)]


@case
def ndarray_iter_batchify_and_concat(mx, folder):
    class Sums(mx.io.NDArrayIter):
        def _batchify(self, data_source):
            return [each + 1 for each in super()._batchify(data_source)]

    class Ends(mx.io.NDArrayIter):
        def _concat(self, first_data, second_data):
            return [mx.nd.concat(a, -b, dim=0) for a, b in zip(first_data, second_data)]  # noqa: B905

    class Tiles(mx.io.NDArrayIter):
        def _tile(self, data, repeats):
            return [each * 0 for each in super()._tile(data, repeats)]

    return [
        [passes(base(*sources(mx), 3, False, handle), 3) for handle in HANDLES] for base in (Sums, Ends)
    ], passes(Tiles(*sources(mx), 20))


@case
def ndarray_iter_public_hooks(mx, folder):
    class Own(mx.io.NDArrayIter):
        def getdata(self):
            return [each + self.cursor for each in super().getdata()]

        def getpad(self):
            return 17

    it = mx.io.NDArrayIter(*sources(mx), 3)
    it.data = [("data", mx.nd.zeros((7, 1)))]
    it.batch_size = 2
    it.reset()
    return passes(Own(*sources(mx), 3)), batches(it), [it.provide_data, it.layout, it.num_source]


@case
def ndarray_iter_shuffles_when_called(mx, folder):
    it = mx.io.NDArrayIter(*sources(mx), 3)
    it._shuffle_data()
    return passes(it)


@case
def io_private_names(mx, folder):
    named = mx.io.io._init_data(np.zeros((2, 2)), allow_empty=False, default_name="x")
    several = mx.io.utils._init_data([np.zeros(2), mx.nd.ones(2)], False, "y")
    empty = mx.io.utils._init_data(None, allow_empty=True, default_name="x")
    has = mx.io.io._has_instance
    refused = []
    for data, allowed in ((None, False), ("text", True), ([], False)):
        try:
            mx.io.io._init_data(data, allowed, "x")
        except (AssertionError, TypeError) as error:
            refused.append("AssertionError" if isinstance(error, AssertionError) else "TypeError")
    return named, several, empty, has(named, mx.nd.NDArray), has(named, int), refused


@case
def data_loader_iter(mx, folder):
    loader = mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(np.zeros((5, 2)), np.arange(5)), 2)
    it = mx.contrib.io.DataLoaderIter(loader, dtype="float16")
    other = mx.contrib.io.DataLoaderIter(loader)
    described = it.provide_data[0].dtype, it.provide_label[0].dtype, other.provide_data[0].dtype
    return (
        described,
        it.batch_size,
        it._loader is loader,
        [b.label[0][:1] for b in it][:2],
        str(other.provide_data),
    )


@case
def mx_data_iter_before_the_first_batch(mx, folder):
    it = mx.io.ImageRecordIter(
        path_imgrec=os.path.join(folder, "data.rec"), data_shape=(3, 4, 6), batch_size=3, preprocess_threads=1
    )
    return it.getpad(), it.getindex()


@case
def base_names(mx, folder):
    import ctypes

    base = mx.base
    strings = base.c_str_array(["ab", "c"])
    numbers = base.c_array(ctypes.c_int, [3, 4])
    return [
        base.mx_real_t is np.float32,
        base.mx_uint is ctypes.c_uint,
        type(base._Null).__name__,
        str(base._Null),
        [strings[0], strings[1]],
        [numbers[0], numbers[1], len(numbers)],
        mx.util.get_gpu_count(),
        mx.recordio.check_call(0),
        mx.rnn.io.BucketSentenceIter is mx.rnn.BucketSentenceIter,
        mx.ndarray.utils.load is mx.nd.load,
        mx.image.image.ImageIter is mx.image.ImageIter,
        mx.io.io.NDArrayIter is mx.io.NDArrayIter,
        mx.base.data_dir() == os.path.join(os.path.expanduser("~"), ".mxnet"),
    ]


@case
def test_utils_names(mx, folder):
    t = mx.test_utils
    made = t.rand_ndarray((3, 2))
    it = t.DummyIter(mx.io.NDArrayIter(*sources(mx), 3))
    both = [it.next().data[0], it.next().data[0]]
    before = os.environ.get("AIOLOADER_X")
    with t.environment("AIOLOADER_X", "1"):
        one = os.environ.get("AIOLOADER_X")
        with t.environment({"AIOLOADER_X": None, "AIOLOADER_Y": "2"}):
            two = os.environ.get("AIOLOADER_X"), os.environ.get("AIOLOADER_Y")
    after = os.environ.get("AIOLOADER_X"), os.environ.get("AIOLOADER_Y")
    return list(made.shape), str(np.dtype(made.dtype)), both, it.batch_size, [before, one, two, after]


@case
def random_names(mx, folder):
    r = mx.nd.random
    picked = r.multinomial(mx.nd.array([[0, 1], [1, 0]]), shape=2)
    one, prob = r.multinomial(mx.nd.array([0, 0, 1]), get_prob=True)
    shapes = [
        [list(x.shape), str(np.dtype(x.dtype)), bool((x.asnumpy() >= 0).all())]
        for x in (
            r.exponential(2.0, shape=(2, 3)),
            r.gamma(2.0, 3.0, shape=(4,)),
            r.exponential(),
            r.gamma(mx.nd.array([1, 9]), mx.nd.array([1, 2]), shape=2),
            r.exponential(mx.nd.array([1, 9])),
            r.uniform(mx.nd.array([1, 9]), mx.nd.array([2, 10]), shape=3),
        )
    ]
    return picked, one, prob, shapes


@case
def nd_imdecode(mx, folder):
    import cv2

    encoded = cv2.imencode(".png", np.arange(24, dtype="uint8").reshape(2, 4, 3))[1].tobytes()
    try:
        return mx.nd.imdecode(encoded)
    except mx.MXNetError as error:  # it decodes nothing under Python 3
        return isinstance(error, RuntimeError)


# --- the names of classes ---

MODULES = (
    *("io", "image", "image.detection", "gluon.data", "gluon.data.dataset", "gluon.data.sampler"),
    *("gluon.data.dataloader", "gluon.data.vision", "gluon.data.vision.datasets"),
    *("gluon.data.vision.transforms", "gluon.contrib.data", "contrib.io", "recordio", "rnn"),
)
PROTOCOLS = "__call__", "__getitem__", "__iter__", "__len__", "__next__"


def named(mx, path):
    """Return the class with a path below ``mx``."""
    for name in path.split("."):
        mx = getattr(mx, name)
    return mx


def classes(mx):
    """Return the public classes of MXNet's modules for data by their paths; each once."""
    found = {}
    outside = "gluon.parameter", "symbol", "rnn_cell", "ndarray", "gluon.nn", "gluon.block", "base"
    for where in MODULES:
        for name, value in vars(named(mx, where)).items():
            public = isinstance(value, type) and name[0] != "_" and value.__module__.startswith("mxnet.")
            if public and not any(part in value.__module__ for part in outside):
                found.setdefault(value, where + "." + name)
    return {path: value for value, path in found.items()}


def names_of(of_class):
    """Return the names of the methods of a class, and of the attributes that its methods assign."""
    names = {name for name in dir(of_class) if name[:2] != "__" or name in PROTOCOLS} - set(dir(object))
    return names.union(*map(assigned, of_class.__mro__))


@functools.lru_cache(maxsize=None)  # noqa: UP033 - Python 3.8; the sources of a class take long to find
def assigned(of_class):
    """Return the names of the attributes that the methods of a class of MXNet assign."""
    import ast
    import inspect
    import textwrap

    package, _, module = of_class.__module__.partition(".")
    blocks = module.startswith(("gluon.block", "gluon.nn"))
    if package not in ("mxnet", "aioloader", "recordio") or blocks or "_fields" in vars(of_class):
        return frozenset()
    return frozenset(
        node.attr
        for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(of_class))))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)
        if isinstance(node.value, ast.Name) and node.value.id == "self"
    )


TRANSFORMS = """
Resize(4) CenterCrop(4) CropResize(0,0,4,4) Cast("int32") ToTensor() RandomResizedCrop(4) RandomFlipLeftRight()
RandomFlipTopBottom() RandomLighting(0) RandomBrightness(0) RandomContrast(0) RandomSaturation(0) RandomHue(0)
Normalize(0,1) Rotate(90) RandomRotation((-1,1)) RandomColorJitter(0.1) Compose([t.Cast("int32")])
RandomApply(t.CenterCrop(4),1)
"""
AUGMENTERS = """
ResizeAug(3) ForceResizeAug((3,3)) CenterCropAug((3,3)) RandomCropAug((3,3)) HorizontalFlipAug(1) CastAug()
BrightnessJitterAug(0) RandomGrayAug(0) SequentialAug([i.CastAug()]) RandomOrderAug([i.CastAug()])
"""


def exercises(mx, folder):
    """Return uses of classes by the path of the class: functions of a class derived from it."""
    data, image = mx.gluon.data, mx.nd.array(np.arange(6 * 8 * 3).reshape(6, 8, 3), dtype="float32")
    label = mx.nd.array([[0, 0.1, 0.2, 0.6, 0.7]]).asnumpy()
    rec = os.path.join(folder, "data.rec")
    t = mx.gluon.data.vision.transforms

    def items(dataset):
        return len(dataset), dataset[0], [list(map(type, data.DataLoader(dataset, 2, num_workers=0)))]

    def iterated(it):
        return [passes(it, 2), it.hard_reset() if hasattr(it, "hard_reset") else None]

    def written(cls):
        path = os.path.join(folder, "written")
        given = (path + ".idx", path + ".rec") if "Indexed" in cls.__mro__[1].__name__ else (path + ".rec",)
        writer = cls(*given, "w")
        writer.write_idx(1, b"a") if len(given) > 1 else writer.write(b"a")
        writer.close()
        reader = cls(*given, "r")
        found = reader.read_idx(1) if len(given) > 1 else reader.read()
        reader.reset()
        return found

    found = {
        "gluon.data.vision.datasets.MNIST": lambda c: items(c(os.path.join(folder, "mnist"))),
        "gluon.data.vision.datasets.FashionMNIST": lambda c: items(c(os.path.join(folder, "mnist"))),
        "gluon.data.vision.datasets.CIFAR10": lambda c: items(c(os.path.join(folder, "cifar10"))),
        "gluon.data.vision.datasets.CIFAR100": lambda c: items(c(os.path.join(folder, "cifar100"))),
        "gluon.data.vision.datasets.ImageFolderDataset": lambda c: items(c(os.path.join(folder, "single"))),
        "gluon.data.vision.datasets.ImageRecordDataset": lambda c: c(rec)[1],
        "gluon.data.dataset.RecordFileDataset": lambda c: c(rec)[1],
        "gluon.data.dataset.SimpleDataset": lambda c: [items(c([1, 2, 3]).transform(negated)), c([1])],
        "gluon.data.dataset.ArrayDataset": lambda c: items(
            c(np.arange(5), np.arange(5)).transform_first(negated)
        ),
        "gluon.data.dataloader.DataLoader": lambda c: list(c(np.arange(5), 2, auto_reload=True)),
        "gluon.data.dataloader.DataLoaderV1": lambda c: list(c(np.arange(5), 2)),
        "gluon.data.sampler.SequentialSampler": lambda c: list(
            data.DataLoader(np.arange(9), 2, sampler=c(5))
        ),
        "gluon.data.sampler.RandomSampler": lambda c: list(data.DataLoader(np.arange(9), 2, sampler=c(5))),
        "gluon.data.sampler.FilterSampler": lambda c: list(
            data.DataLoader(np.arange(9), 2, sampler=c(bool, list(range(5))))
        ),
        "gluon.data.sampler.BatchSampler": lambda c: list(
            data.DataLoader(np.arange(9), batch_sampler=c(data.SequentialSampler(5), 2))
        ),
        "contrib.io.DataLoaderIter": lambda c: batches(
            c(data.DataLoader(data.ArrayDataset(np.zeros((5, 2)), np.arange(5)), 2))
        ),
        "io.NDArrayIter": lambda c: (
            [iterated(c(*sources(mx), 3, True, handle)) for handle in HANDLES]
            + [iterated(c(*sources(mx), 20))]
        ),
        "io.ResizeIter": lambda c: batches(c(mx.io.NDArrayIter(*sources(mx), 3), 4)),
        "io.PrefetchingIter": lambda c: passes(c(mx.io.NDArrayIter(*sources(mx), 3)), 2),
        "image.ImageIter": lambda c: [
            iterated(image_iter(mx, folder, c, last_batch_handle=handle)) for handle in HANDLES
        ],
        "image.detection.ImageDetIter": lambda c: (
            [iterated(det_iter(mx, folder, c, last_batch_handle=handle)) for handle in HANDLES]
            + [det_iter(mx, folder, c).reshape((3, 5, 7), (4, 5))]
        ),
        "recordio.MXRecordIO": written,
        "recordio.MXIndexedRecordIO": written,
        "rnn.BucketSentenceIter": lambda c: passes(c([[1, 2], [3, 4], [1, 2, 3], [2, 2, 2]], 2, [2, 3])),
        "image.detection.DetHorizontalFlipAug": lambda c: c(1.0)(image, label.copy()),
        "image.detection.DetRandomCropAug": lambda c: [c()(image, label.copy()) for _ in range(9)],
        "image.detection.DetRandomPadAug": lambda c: [c()(image, label.copy()) for _ in range(9)],
    }

    def made_by(c, given):
        return eval("c(" + given, {"c": c, "t": t, "i": mx.image})

    for call in TRANSFORMS.split():
        name, _, given = call.partition("(")
        x = image.transpose((2, 0, 1)) if name in ("Normalize", "Rotate", "RandomRotation") else image
        found["gluon.data.vision.transforms." + name] = lambda c, x=x, given=given: [
            type(data.SimpleDataset([x]).transform(made_by(c, given))[0]),
            list(map(type, data.DataLoader(data.SimpleDataset([x]).transform(made_by(c, given)), 1))),
        ]
    for call in AUGMENTERS.split():
        name, _, given = call.partition("(")
        found["image." + name] = lambda c, given=given: (made_by(c, given)(image), made_by(c, given).dumps())
    return found


def instance_of(use, of_class):
    """Return the instance that a use of a class makes."""
    made_here = []

    def __init__(self, *args, **kwargs):
        made_here.append(self)
        super(derived, self).__init__(*args, **kwargs)

    derived = type(of_class.__name__, (of_class,), {"__init__": __init__})
    with contextlib.redirect_stdout(io.StringIO()):
        use(derived)
    return made_here[0]


def calls(use, of_class, name):
    """Return whether a use of a class calls a method that a derived class overrides."""
    seen_calls = []

    def hook(self, *args, **kwargs):
        seen_calls.append(name)
        return getattr(super(derived, self), name)(*args, **kwargs)

    derived = type(of_class.__name__, (of_class,), {name: hook})
    random.seed(1)
    np.random.seed(1)
    with contextlib.redirect_stdout(io.StringIO()):  # some print what they discard
        use(derived)
    return bool(seen_calls)


def hooks(mx, folder):
    """Return the methods that each use of a class calls in its derived class."""
    found = {}
    for path, use in exercises(mx, folder).items():
        of_class = named(mx, path)
        methods = [
            name
            for name in sorted(names_of(of_class))
            if callable(getattr(of_class, name, None))
            and not isinstance(vars(of_class).get(name), staticmethod)
        ]
        found[path] = [name for name in methods if calls(use, of_class, name)]
    return found


def main():
    """Print the expected results; needs MXNet 1.9.1."""
    import mxnet as mx

    assert mx.__version__ == "1.9.1"
    # Files of other contents stand for the published ones.
    module = mx.gluon.data.vision.datasets
    module.download = lambda url, path, sha1_hash: os.path.join(path, os.path.basename(url))
    module.check_sha1 = lambda path, sha1: True
    with tempfile.TemporaryDirectory() as folder:
        made(folder, mx)
        parts = {
            "cases": {name: observe(mx, name, folder) for name in CASES},
            "hooks": hooks(mx, folder),
            "names": {path: sorted(names_of(value)) for path, value in sorted(classes(mx).items())},
        }
    texts = (
        '"%s": {\n%s\n}' % (what, ",\n".join(json.dumps(k) + ": " + json.dumps(v) for k, v in of.items()))  # noqa: UP031
        for what, of in parts.items()
    )
    print("{" + ",\n".join(texts) + "}")


if __name__ == "__main__":
    main()
