"""Tests of settings of a script that workers of the torch-like DataLoader have, too."""

import io
import warnings

import numpy as np
import pytest

import aioloader
from tests.aioloader.interop.torch_samples import MARKS

pytestmark = MARKS


@pytest.fixture(scope="module")
def ours(spawned):
    """Return our loader with workers that receive all they need; forks have it."""
    return spawned


def truncated():
    from PIL import Image

    file = io.BytesIO()
    Image.fromarray(np.random.default_rng(1).integers(0, 255, (64, 64, 3), np.uint8)).save(file, "JPEG")
    return file.getvalue()[:-2000]


class OwnWarning(UserWarning):
    """Warning of a script."""


class Settings:
    """Dataset that returns what depends on settings."""

    def __init__(self, blob):
        self.blob = blob

    def __len__(self):
        return 2

    def __getitem__(self, index):
        return observed(self.blob)


def observed(blob):
    import torch
    from PIL import Image, ImageFile

    found = {"dtype": str(torch.zeros(1).dtype), "truncated": ImageFile.LOAD_TRUNCATED_IMAGES}
    found["pixels"] = Image.MAX_IMAGE_PIXELS
    try:
        found["mean"] = float(np.asarray(Image.open(io.BytesIO(blob))).mean())
    except OSError:
        found["mean"] = -1.0
    found["errors"] = np.geterr()["over"]
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.warn("this one", OwnWarning, stacklevel=1)
            warnings.warn("that one", OwnWarning, stacklevel=1)
        found["warned"] = [str(each.message) for each in caught]
    except OwnWarning as error:
        found["warned"] = f"raised {error}"
    return found


@pytest.fixture
def script(torch, monkeypatch):
    """Function that sets what a script may set."""
    from PIL import Image, ImageFile

    before, errors = torch.get_default_dtype(), np.geterr()
    monkeypatch.setattr(ImageFile, "LOAD_TRUNCATED_IMAGES", False)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", Image.MAX_IMAGE_PIXELS)

    def set_all():
        torch.set_default_dtype(torch.float64)
        np.seterr(over="raise")
        ImageFile.LOAD_TRUNCATED_IMAGES = True
        Image.MAX_IMAGE_PIXELS = None

    with warnings.catch_warnings():
        warnings.filterwarnings("error", "that", OwnWarning)
        warnings.filterwarnings("ignore", "this", OwnWarning)
        yield set_all
    torch.set_default_dtype(before)
    np.seterr(**errors)


def identity(samples):
    return samples


def test_workers_have_the_settings_of_the_script(torch, ours, script):
    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        loader = make(Settings(truncated()), num_workers=1, collate_fn=identity)
        run = list(loader)
        script()
        runs.append(run + list(loader))
        torch.set_default_dtype(torch.float32)
        np.seterr(over="warn")
        from PIL import Image, ImageFile

        ImageFile.LOAD_TRUNCATED_IMAGES, Image.MAX_IMAGE_PIXELS = False, 89478485
    loader.close()
    assert runs[0] == runs[1]
    (first,), *_, (last,) = runs[1]
    assert (first["dtype"], first["mean"], first["warned"]) == ("torch.float32", -1.0, "raised that one")
    assert last["mean"] > 0
    assert (last["dtype"], last["errors"], last["pixels"]) == ("torch.float64", "raise", None)


def observe_image(image, label):
    return observed(truncated())


def test_transforms_of_a_dataset_of_this_project_have_them_too(torch, ours, script, photo_rec):
    script()
    dataset = aioloader.ImageRecordDataset(photo_rec).transform(observe_image)
    loader = ours(dataset, None, num_workers=1)
    first = next(iter(loader))
    loader.close()
    assert (first["dtype"], first["errors"], first["warned"]) == ("torch.float64", "raise", "raised that one")
    assert first["mean"] > 0
