"""Tests of the data statements in MXNet's tutorial on Gluon datasets and loaders, with another import line.

Files that it downloads are drawn here, in the same formats; its network is a softmax regression in numpy.
"""

import os
import tarfile
from multiprocessing import cpu_count

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import autograd, gluon, ndarray

CPU_COUNT = min(cpu_count(), 2)


def test_an_introduction_to_datasets_and_loaders(capsys, leftovers):
    mx.random.seed(42)  # Fix the seed for reproducibility
    X = mx.random.uniform(shape=(10, 3))
    y = mx.random.uniform(shape=(10, 1))
    dataset = mx.gluon.data.dataset.ArrayDataset(X, y)

    sample_idx = 4
    sample = dataset[sample_idx]
    assert len(sample) == 2
    assert sample[0].shape == (3,)
    assert sample[1].shape == (1,)
    print(sample)
    printed = capsys.readouterr().out
    assert "<NDArray 3 @cpu(0)>" in printed
    assert "<NDArray 1 @cpu(0)>" in printed

    data_loader = mx.gluon.data.DataLoader(dataset, batch_size=5, num_workers=CPU_COUNT)
    for X_batch, y_batch in data_loader:
        print(f"X_batch has shape {X_batch.shape}, and y_batch has shape {y_batch.shape}")
    assert capsys.readouterr().out == "X_batch has shape (5, 3), and y_batch has shape (5, 1)\n" * 2

    for last_batch, sizes in (("keep", [4, 4, 2]), ("discard", [4, 4]), ("rollover", [4, 4])):
        data_loader = mx.gluon.data.DataLoader(dataset, batch_size=4, last_batch=last_batch)
        assert [len(X_batch) for X_batch, _ in data_loader] == sizes
    assert [len(X_batch) for X_batch, _ in data_loader] == [4, 4, 4]


def transform(data, label):
    data = data.astype("float32") / 255
    return data, label


def softmax(scores):
    shares = np.exp(scores - scores.max(axis=1, keepdims=True))
    return shares / shares.sum(axis=1, keepdims=True)


def criterion(output, label):
    return mx.nd.array(-np.log(output[np.arange(len(label)), label] + 1e-9))


def test_learning_with_datasets_and_loaders(mxnet_home, monkeypatch, capsys, leftovers):
    monkeypatch.setenv("MXNET_HOME", str(mxnet_home))
    train_dataset = mx.gluon.data.vision.datasets.FashionMNIST(train=True)
    valid_dataset = mx.gluon.data.vision.datasets.FashionMNIST(train=False)

    sample_idx = 234
    sample = train_dataset[sample_idx]
    data = sample[0]
    label = sample[1]
    names = ["T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"]
    names += ["Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"]
    label_desc = dict(enumerate(names))
    assert data[:, :, 0].asnumpy().shape == (28, 28)
    assert data.dtype == np.uint8
    assert label_desc[label] in names
    assert data[2 * label + 1].asnumpy().min() >= 150  # where such clothes are bright

    batch_size = 32
    train_data_loader = mx.gluon.data.DataLoader(
        train_dataset, batch_size, shuffle=True, num_workers=CPU_COUNT
    )
    valid_data_loader = mx.gluon.data.DataLoader(valid_dataset, batch_size, num_workers=CPU_COUNT)
    assert (len(train_data_loader), len(valid_data_loader)) == (19, 7)

    ctx = mx.gpu() if mx.context.num_gpus() else mx.cpu()
    weights = np.zeros((784, 10), np.float32)

    epochs = 5
    losses = []
    for epoch in range(epochs):
        # training loop
        cumulative_train_loss = mx.nd.zeros(1, ctx=ctx)
        training_samples = 0
        for _batch_idx, (data, label) in enumerate(train_data_loader):
            data = data.as_in_context(ctx).reshape((-1, 784))  # 28*28=784
            label = label.as_in_context(ctx)
            pixels = data.astype("float32") / 255
            output = softmax(pixels.asnumpy() @ weights)
            loss = criterion(output, label.asnumpy())
            error = output - np.eye(10, dtype=np.float32)[label.asnumpy()]
            weights -= 0.1 * pixels.asnumpy().T @ error / data.shape[0]
            cumulative_train_loss += loss.sum()
            training_samples += data.shape[0]
        train_loss = cumulative_train_loss.asscalar() / training_samples

        # validation loop
        cumulative_valid_loss = mx.nd.zeros(1, ctx)
        valid_samples = right = 0
        for _batch_idx, (data, label) in enumerate(valid_data_loader):
            data = data.as_in_context(ctx).reshape((-1, 784))  # 28*28=784
            label = label.as_in_context(ctx)
            output = softmax(data.astype("float32").asnumpy() / 255 @ weights)
            loss = criterion(output, label.asnumpy())
            cumulative_valid_loss += loss.sum()
            valid_samples += data.shape[0]
            right += (output.argmax(axis=1) == label.asnumpy()).sum()
        valid_loss = cumulative_valid_loss.asscalar() / valid_samples
        losses.append((train_loss, valid_loss))
        print(f"Epoch {epoch}, training loss: {train_loss:.2f}, validation loss: {valid_loss:.2f}")

    assert len(capsys.readouterr().out.splitlines()) == epochs
    assert (training_samples, valid_samples) == (600, 200)
    assert losses[0][1] < np.log(10)
    assert losses[-1][0] < losses[0][0] / 2
    assert losses[-1][1] < losses[0][1] / 2
    assert right > 180


def test_scaling_pixels_with_a_transform(mxnet_home, monkeypatch, leftovers):
    monkeypatch.setenv("MXNET_HOME", str(mxnet_home))
    dataset = mx.gluon.data.vision.datasets.FashionMNIST(train=False).transform(transform)
    data, label = dataset[3]
    assert data.dtype == np.float32
    assert 0.5 < data.asnumpy().max() <= 1
    with mx.gluon.data.DataLoader(dataset, 50, num_workers=CPU_COUNT) as loader:
        for data, label in loader:
            assert (data.shape, data.dtype, label.dtype) == ((50, 28, 28, 1), np.float32, np.int32)


def test_the_network_is_outside():
    assert ndarray is mx.nd
    for use in (
        lambda: gluon.nn.HybridSequential(),
        lambda: mx.init.Xavier(),
        lambda: gluon.loss.SoftmaxCrossEntropyLoss(),
        lambda: gluon.Trainer({}, "sgd", {"learning_rate": 0.1}),
        lambda: autograd.record(),
    ):
        with pytest.raises(mx.MXNetError, match=r"outside aioloader; hand its arrays.*to your framework"):
            use()


@pytest.fixture
def archive(tmp_path):
    """Make a small 101_ObjectCategories.tar.gz: two folders of four classes each."""
    names = ["Faces", "Faces_easy", "accordion", "airplanes"]
    image = np.full((20, 30, 3), 90, np.uint8)
    source = tmp_path / "source"
    for part in ("101_ObjectCategories", "101_ObjectCategories_test"):
        for number, name in enumerate(names):
            (source / part / name).mkdir(parents=True)
            for place in range(3):
                image[:] = 60 * number + place
                cv2.imwrite(str(source / part / name / f"image_{place:04}.jpg"), image)
    path = tmp_path / "101_ObjectCategories.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for part in source.iterdir():
            tar.add(part, part.name)
    return path


def test_images_of_ones_own(archive, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    data_folder = "data"
    dataset_name = "101_ObjectCategories"
    archive_file = f"{dataset_name}.tar.gz"
    archive_path = os.path.join(data_folder, archive_file)
    data_url = archive.parent.as_uri() + "/"

    if not os.path.isfile(archive_path):
        mx.test_utils.download(f"{data_url}{archive_file}", dirname=data_folder)
        with tarfile.open(archive_path, "r:gz") as tar:
            tar.extractall(data_folder, filter="data")

    training_path = os.path.join(data_folder, dataset_name)
    testing_path = os.path.join(data_folder, f"{dataset_name}_test")
    train_dataset = mx.gluon.data.vision.datasets.ImageFolderDataset(training_path)
    test_dataset = mx.gluon.data.vision.datasets.ImageFolderDataset(testing_path)
    assert train_dataset.synsets == test_dataset.synsets

    sample_idx = 4
    sample = train_dataset[sample_idx]
    data = sample[0]
    label = sample[1]
    assert data.asnumpy().shape == (20, 30, 3)
    assert data.dtype == np.uint8
    assert train_dataset.synsets[label] == "Faces_easy"
    assert label == 1
    assert abs(int(data.asnumpy().mean()) - 61) <= 2


class Squares(mx.gluon.data.Dataset):
    """Custom dataset."""

    def __len__(self):
        return 12

    def __getitem__(self, idx):
        return mx.nd.array([idx, idx * idx]), mx.nd.array([idx % 2])


def test_a_dataset_of_ones_own(leftovers):
    with mx.gluon.data.DataLoader(Squares(), 5, num_workers=CPU_COUNT, last_batch="discard") as loader:
        batches = list(loader)
    assert [(data.shape, label.shape) for data, label in batches] == [((5, 2), (5, 1))] * 2
    assert batches[1][0].asnumpy()[:, 1].tolist() == [25, 36, 49, 64, 81]


def test_either_backend(mxnet_home, monkeypatch, leftovers):
    monkeypatch.setenv("MXNET_HOME", str(mxnet_home))
    loaders = [
        mx.gluon.data.DataLoader(
            mx.gluon.data.vision.CIFAR10(train=True, transform=None),
            batch_size=32,
            num_workers=2,
            try_nopython=nopython,
        )
        for nopython in (True, False)
    ]
    for loader in loaders:
        for _ in range(3):
            assert len(loader) == 4
            for data, label in loader:
                assert data.shape[1:] == (32, 32, 3)
                assert label.dtype == np.int32
    for one, other in zip(*loaders, strict=True):
        assert np.array_equal(one[0].asnumpy(), other[0].asnumpy())
