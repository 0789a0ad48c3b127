"""A training loop of Accelerate with Penstock's loader.

    python examples/accelerate_loop.py [--data FOLDER] [--epochs 2]

accelerator.prepare() hands a Penstock loader back as it is (any other it would replace by one of
its own).  Two things are then the loader's and yours, not Accelerate's: ranks are shared out by
the loader itself, from torch.distributed; and batches go to the device by prefetch_to_device.
"""

import argparse
import tempfile
from pathlib import Path

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn

import pictures
from penstock import transforms as T
from penstock.torch import DataLoader, prefetch_to_device


def network(n_classes: int) -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(3, 16, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3, stride=2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 3, stride=2),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(64, n_classes),
    )


def train(folder: Path, n_epochs: int, size: int = 48) -> list[float]:
    accelerator = Accelerator(cpu=True)
    set_seed(0)
    augment = [
        T.RandomResizedCrop(size, scale=(0.6, 1.0)),
        T.RandomHorizontalFlip(),
        T.ToTensor(),
        T.Normalize(0.5, 0.25),
    ]
    loader = DataLoader(folder / "train", batch_size=32, shuffle=True, transform=augment)
    model = network(len(loader.dataset.classes))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    losses = []
    for _ in range(n_epochs):
        for images, labels in prefetch_to_device(loader, accelerator.device):
            loss = nn.functional.cross_entropy(model(images), labels)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            losses.append(loss.item())
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, help="a folder with train/ in it")
    parser.add_argument("--pictures", type=int, default=600, help="how many to draw")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.data
        if folder is None:
            folder = Path(scratch) / "pictures"
            pictures.make(folder, options.pictures, 8)
        losses = train(folder, options.epochs)
    print(f"loss {losses[0]:.3f} to {losses[-1]:.3f} in {len(losses)} steps")


if __name__ == "__main__":
    main()
