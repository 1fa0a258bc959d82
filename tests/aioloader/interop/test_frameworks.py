"""Tests with frameworks that require a torch loader, or any iterable."""

import os

import numpy as np
import pytest

from aioloader import DataLoader

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,  # they take seconds to be imported
    pytest.mark.filterwarnings("ignore"),  # their own
]


class Points:
    """Dataset whose item i is (a point, True if it is above the line)."""

    def __len__(self):
        return 64

    def __getitem__(self, index):
        point = np.random.default_rng(index).standard_normal(2).astype(np.float32)
        return point, np.float32(point.sum() > 0)


@pytest.fixture
def loaders():
    """Yield the adapter with workers, and a loader with tensors as its output."""
    pytest.importorskip("torch")
    from aioloader.interop.torch import DataLoader as TorchLike

    made = [
        TorchLike(Points(), batch_size=8, shuffle=True, num_workers=1),
        DataLoader(Points(), 8, shuffle=True, num_workers=1, output="torch"),
    ]
    yield made
    for loader in made:
        loader.close()


def test_lightning_trains_and_validates(loaders, tmp_path):
    lightning = pytest.importorskip("lightning", reason="needs lightning: pip install lightning")
    import torch

    from aioloader.interop.torch import DataLoader as TorchLike

    class Line(lightning.LightningModule):
        def __init__(self):
            super().__init__()
            self.layer = torch.nn.Linear(2, 1)
            self.seen = []
            self.checked = 0

        def training_step(self, batch, number):
            points, above = batch
            self.seen.append((number, len(points)))
            return torch.nn.functional.binary_cross_entropy_with_logits(self.layer(points)[:, 0], above)

        def validation_step(self, batch, number):
            self.checked += len(batch[0])

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), 0.5)

    class Data(lightning.LightningDataModule):
        """Owner of the loaders and of their collate function."""

        def collate(self, samples):
            points, above = map(np.stack, zip(*samples, strict=True))
            return torch.from_numpy(points), torch.from_numpy(above)

        def train_dataloader(self):
            return TorchLike(Points(), batch_size=8, num_workers=1, collate_fn=self.collate)

        val_dataloader = train_dataloader

    named = [{"train_dataloaders": loader, "val_dataloaders": loader} for loader in loaders]
    for given in [*named, {"datamodule": Data()}]:
        model = Line()
        trainer = lightning.Trainer(
            max_epochs=2,
            accelerator="cpu",
            logger=False,
            enable_progress_bar=False,
            enable_model_summary=False,
            enable_checkpointing=False,
            num_sanity_val_steps=0,
            default_root_dir=tmp_path,
        )
        trainer.fit(model, **given)
        assert model.seen == [(number, 8) for number in range(8)] * 2
        assert model.checked == 128


def test_keras_trains(loaders):
    os.environ.setdefault("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras", reason="needs Keras 3: pip install keras")
    if keras.backend.backend() != "torch":
        pytest.skip("Keras was imported with another backend")

    def forever(loader):
        while True:
            yield from loader

    torch_like, plain = loaders
    for data, steps in ((torch_like, None), (forever(plain), len(plain))):
        model = keras.Sequential([keras.layers.Input((2,)), keras.layers.Dense(1, activation="sigmoid")])
        model.compile("sgd", "binary_crossentropy")
        history = model.fit(data, epochs=3, steps_per_epoch=steps, verbose=0)
        losses = history.history["loss"]
        assert len(losses) == 3
        assert losses[-1] < losses[0]
        model.evaluate(torch_like, verbose=0)
