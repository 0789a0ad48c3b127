"""Lightning with Penstock's loader: the import is all that changes.

    python examples/lightning_fit.py [--data FOLDER] [--epochs 2]

Draws pictures first if none are given.  Lightning may make loaders like the ones it is given,
with another sampler in them (for several ranks, or overfit_batches); they are Penstock's, too.
On several ranks either let it, or say Trainer(use_distributed_sampler=False): a loader without a
sampler takes its rank from torch.distributed by itself.
"""

import argparse
import tempfile
from pathlib import Path

import lightning
import torch
from torch import nn

import pictures
from penstock import transforms as T
from penstock.torch import DataLoader


class Classifier(lightning.LightningModule):
    """Three convolutions and their training."""

    def __init__(self, n_classes: int):
        super().__init__()
        self.network = nn.Sequential(
            nn.Conv2d(3, 16, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3, stride=2),
            nn.ReLU(),
            nn.Conv2d(32, 64, 3, stride=2),
            nn.AdaptiveMaxPool2d(1),
            nn.Flatten(),
            nn.Linear(64, n_classes),
        )
        self.losses: list[float] = []

    def training_step(self, batch, index):
        images, labels = batch
        loss = nn.functional.cross_entropy(self.network(images), labels)
        self.losses.append(loss.item())
        return loss

    def validation_step(self, batch, index):
        images, labels = batch
        right = (self.network(images).argmax(1) == labels).float().mean()
        self.log("accuracy", right, prog_bar=True, batch_size=len(labels))

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=3e-3)


def loaders(folder: Path, size: int = 48) -> tuple[DataLoader, DataLoader]:
    to_tensor = [T.ToTensor(), T.Normalize(0.5, 0.25)]
    augment = [T.RandomResizedCrop(size, scale=(0.6, 1.0)), T.RandomHorizontalFlip(), *to_tensor]
    whole = [T.Resize((size, size)), *to_tensor]
    train = DataLoader(folder / "train", batch_size=32, shuffle=True, transform=augment)
    val = DataLoader(folder / "val", batch_size=32, transform=whole)
    return train, val


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with train/ and val/")
    parser.add_argument("--pictures", type=int, default=600, help="how many to draw")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.data
        if folder is None:
            folder = Path(scratch) / "pictures"
            pictures.make(folder, options.pictures, options.pictures // 5)
        lightning.seed_everything(0)
        train, val = loaders(folder)
        model = Classifier(len(train.dataset.classes))
        trainer = lightning.Trainer(
            max_epochs=options.epochs,
            accelerator="cpu",
            devices=1,
            logger=False,
            enable_checkpointing=False,
            enable_model_summary=False,
            enable_progress_bar=False,
        )
        trainer.fit(model, train, val)
    accuracy = trainer.callback_metrics["accuracy"].item()
    print(f"loss {model.losses[0]:.3f} to {model.losses[-1]:.3f}, accuracy {accuracy:.1%}")


if __name__ == "__main__":
    main()
