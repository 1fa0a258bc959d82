"""Tests of image datasets: MXNet's items, alone and in loaders, transformed or not."""

import pickle
import tarfile

import numpy as np
import pytest

import aioloader
from aioloader import transforms as native
from aioloader.mxnet import gluon, nd, recordio
from aioloader.mxnet.gluon.data.vision import datasets, transforms
from tests.aioloader.mxnet.gluon.conftest import clothes, write_idx_files
from tests.cases import with_cases


def test_records(label_rec):
    dataset = gluon.data.vision.ImageRecordDataset(label_rec)
    assert len(dataset) == 20
    image, label = dataset[3]
    assert isinstance(image, nd.NDArray)
    assert (image.shape, image.dtype) == ((33, 40, 3), np.uint8)
    assert image.asnumpy().max() == image.asnumpy().min() == 3
    assert isinstance(label, float)
    assert label == 3.0
    assert gluon.data.vision.ImageRecordDataset(label_rec, flag=0)[3][0].shape == (33, 40, 1)
    assert pickle.loads(pickle.dumps(dataset))[4][1] == 4


@with_cases("workers", [0, 2])
def test_batches_are_those_of_the_engine(label_rec, workers):
    steps = native.Compose([native.Resize((7, 9), antialias=False), native.ToTensor()])
    plain = aioloader.ImageRecordDataset(label_rec).transform_first(steps)
    chain = transforms.Compose([transforms.Resize((9, 7)), transforms.ToTensor()])
    dataset = gluon.data.vision.ImageRecordDataset(label_rec).transform_first(chain)
    with aioloader.DataLoader(plain, 6, num_workers=workers) as one:
        with gluon.data.DataLoader(dataset, 6, num_workers=workers) as other:
            for (images, labels), (x, y) in zip(one, other, strict=True):
                assert np.array_equal(images, x)
                assert np.array_equal(labels, y)


def test_labels_of_records_have_mxnets_types(tmp_path):
    rec = str(tmp_path / "a.rec")
    writer = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), rec, "w")
    image = np.zeros((4, 4, 3), np.uint8)
    for key, label in enumerate([2.5, 7, [1, 2, 3]]):
        writer.write_idx(key, recordio.pack_img(recordio.IRHeader(0, label, key, 0), image, img_fmt=".png"))
    writer.close()
    labels = [label for _, label in gluon.data.vision.ImageRecordDataset(rec)]
    assert labels[:2] == [2.5, 7.0]
    assert labels[2].dtype == np.float32
    assert type(labels[2]) is np.ndarray
    assert labels[2].tolist() == [1, 2, 3]


class Negative(gluon.Block):
    """Custom transform."""

    def forward(self, image):
        assert isinstance(image, nd.NDArray)
        return 255 - image


def halve(image):
    assert isinstance(image, nd.NDArray)
    return (image / 2).astype("uint8")


def with_label(image, label):
    assert isinstance(image, nd.NDArray)
    return image.astype("float32") / 255, label + 1


CHAINS = {
    "nothing": lambda data: data,
    "native": lambda data: data.transform_first(
        transforms.Compose(
            [transforms.Resize((8, 6)), transforms.ToTensor(), transforms.Normalize(0.5, 0.25)]
        )
    ),
    "native-on-all": lambda data: data.transform(transforms.CenterCrop(6)),
    "callers": lambda data: data.transform_first(transforms.Resize(6)).transform(with_label),
    "mixed": lambda data: data.transform_first(
        transforms.Compose([transforms.Resize(6), Negative(), halve, transforms.ToTensor()])
    ),
    "callers-first": lambda data: (
        data.transform_first(halve).transform_first(transforms.CenterCrop(4)).take(5)
    ),
}


@with_cases(("place", "kind"), enumerate(["record", "folder", "cifar"]))
@with_cases(("number", "name"), enumerate(CHAINS))
def test_a_loader_gives_what_indexing_gives(place, kind, number, name, label_rec, photo_folder, mxnet_home):
    """Give every chain all sources, one of them with workers."""
    if kind == "record":
        source = gluon.data.vision.ImageRecordDataset(label_rec).take(7)
    elif kind == "folder":
        source = gluon.data.vision.ImageFolderDataset(photo_folder).take(6)
    else:
        source = gluon.data.vision.CIFAR10(mxnet_home / "datasets" / "cifar10").take(9)
    dataset = CHAINS[name](source)
    with gluon.data.DataLoader(dataset, 1, num_workers=2 * (number % 3 == place)) as loader:
        batches = list(loader)
    assert len(batches) == len(dataset)
    for place, (images, labels) in enumerate(batches):
        image, label = dataset[place]
        assert kind != "record" or labels.dtype == np.float64
        assert isinstance(image, nd.NDArray)
        assert images.dtype == image.dtype
        assert np.array_equal(images[0].asnumpy(), image.asnumpy())
        assert labels[0].asscalar() == label


def test_folders(photo_folder):
    dataset = gluon.data.vision.ImageFolderDataset(str(photo_folder))
    assert dataset.synsets == sorted(path.name for path in photo_folder.iterdir())
    assert len(dataset) == len(dataset.items)
    image, label = dataset[7]
    assert isinstance(image, nd.NDArray)
    assert (image.dtype, image.shape[2]) == (np.uint8, 3)
    assert type(label) is int
    assert label == 1
    assert dataset.synsets[label] in dataset.items[7][0]
    (_, labels) = next(iter(gluon.data.DataLoader(dataset.transform_first(transforms.Resize(8)), 9)))
    assert labels.dtype == np.int64


def test_lists(photo_folder):
    names = [path.relative_to(photo_folder) for path in sorted(photo_folder.glob("*/*.jpg"))[:5]]
    (lst := photo_folder.parent / "list.lst").write_text(
        "".join(f"{place}\t{place + 0.5}\t{photo_folder.name}/{name}\n" for place, name in enumerate(names))
    )
    for dataset in (
        gluon.data.vision.ImageListDataset(str(photo_folder.parent), lst.name),
        gluon.data.vision.ImageListDataset(
            photo_folder, [[place + 0.5, str(n)] for place, n in enumerate(names)]
        ),
    ):
        assert len(dataset) == 5
        image, label = dataset[2]
        assert isinstance(image, nd.NDArray)
        assert (label.dtype, label.tolist()) == (np.float32, [2.5])
        _, labels = next(iter(gluon.data.DataLoader(dataset.transform_first(transforms.Resize(8)), 5)))
        assert (labels.dtype, labels.shape) == (np.float32, (5, 1))
    with pytest.raises(ValueError, match="imglist must be filename or list of valid entries"):
        gluon.data.vision.ImageListDataset(photo_folder, 7)


def test_files_that_are_missing_or_not_the_published_ones(tmp_path):
    write_idx_files(tmp_path, "train", *clothes(30, 1))
    assert len(datasets.MNIST(root=str(tmp_path), train=True)) == 30
    with pytest.raises(FileNotFoundError, match=r"MNIST needs t10k-images.*nothing is downloaded"):
        datasets.MNIST(tmp_path, train=False)
    with pytest.raises(ValueError, match="is not the published file: its SHA-1 is"):
        datasets.FashionMNIST(tmp_path, check_sha1=True)


def test_the_default_root_is_mxnets(mxnet_home, monkeypatch):
    monkeypatch.setenv("MXNET_HOME", str(mxnet_home))
    assert len(gluon.data.vision.FashionMNIST()) == 600
    assert len(gluon.data.vision.datasets.FashionMNIST(train=False)) == 200
    assert len(gluon.data.vision.CIFAR10()) == 100
    with pytest.raises(FileNotFoundError, match=r"CIFAR100 needs .*datasets/cifar100"):
        gluon.data.vision.CIFAR100()


def test_cifar100_is_read_from_its_archive(tmp_path):
    rows = np.random.RandomState(0).randint(0, 20, (10, 2 + 3072)).astype(np.uint8)
    (tmp_path / "train.bin").write_bytes(rows.tobytes())
    with tarfile.open(tmp_path / "cifar-100-binary.tar.gz", "w:gz") as archive:
        archive.add(tmp_path / "train.bin", "cifar-100-binary/train.bin")
    (tmp_path / "train.bin").unlink()
    dataset = gluon.data.vision.CIFAR100(str(tmp_path), True)
    assert [label for _, label in dataset] == rows[:, 1].tolist()
    with pytest.raises(ValueError, match="is not the published file: its SHA-1 is"):
        gluon.data.vision.CIFAR100(tmp_path, check_sha1=True)


def test_the_deprecated_argument_transform(tmp_path, label_rec, photo_folder):
    write_idx_files(tmp_path, "train", *clothes(5, 1))
    for cls, source in (
        (gluon.data.vision.MNIST, tmp_path),
        (gluon.data.vision.ImageRecordDataset, label_rec),
        (gluon.data.vision.ImageFolderDataset, photo_folder),
    ):
        with pytest.warns(DeprecationWarning, match="use .transform"):
            dataset = cls(source, transform=with_label)
        image, label = dataset[0]
        assert isinstance(image, nd.NDArray)
        assert image.dtype == np.float32
        images, labels = next(iter(gluon.data.DataLoader(dataset, 1)))
        assert np.array_equal(images[0].asnumpy(), image.asnumpy())
        assert labels[0].asscalar() == label
