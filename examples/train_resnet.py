"""Train ResNet-18 on a folder of pictures: an ordinary PyTorch script, and the same with the import changed.

    python examples/train_resnet.py FOLDER                      torch's DataLoader
    python examples/train_resnet.py FOLDER --loader penstock    Penstock's

    --augment none     Resize only: both loaders see the same pixels
    --augment random   RandomResizedCrop, flip and jitter, each loader drawing for itself
    --augment given    the same, but torch's side takes the parameters that Penstock would draw

With `none` and `given` the losses of the two are equal to the last bit; with `random` the
random numbers are others and the distributions the same.  `python -m bench.curves` runs all
of it and draws the curves.
"""

import argparse
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from PIL import Image
from torch import Tensor, nn
from torchvision.datasets import ImageFolder
from torchvision.transforms import functional as F
from torchvision.transforms import v2

import penstock
from penstock import transforms as T

SIZE = 64
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
AREA, JITTER = (0.25, 1.0), 0.3

# Not the same floats as those of v1's ToTensor: that divides by 255, this multiplies.
TO_TENSOR = v2.Compose(
    [v2.ToImage(), v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
)
PLAIN = v2.Compose([v2.Resize((SIZE, SIZE)), TO_TENSOR])
RANDOM = v2.Compose(
    [
        v2.RandomResizedCrop(SIZE, scale=AREA),
        v2.RandomHorizontalFlip(),
        v2.ColorJitter(JITTER, JITTER, JITTER),
        TO_TENSOR,
    ]
)
SOURCE = [
    T.RandomResizedCrop(SIZE, scale=AREA),
    T.RandomHorizontalFlip(),
    T.ColorJitter(JITTER, JITTER, JITTER),
    T.ToTensor(),
    T.Normalize(MEAN, STD),
]


class GivenFolder(ImageFolder):
    """torchvision's own operations, with parameters from the source that Penstock draws from."""

    def __init__(self, root: str, seed: int) -> None:
        super().__init__(root)
        self.seed, self.epoch = seed, 0

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        path, label = self.samples[index]
        drawn = penstock.draw(
            Path(path).read_bytes(), SOURCE, seed=self.seed, epoch=self.epoch, sample=index
        )
        return augment(self.loader(path), drawn), label


def augment(image: Image.Image, drawn: list[dict[str, Any]]) -> Tensor:
    """RandomResizedCrop, flip and ColorJitter by torchvision's functions, as drawn."""
    _, crop, flip, jitter, _, _ = drawn
    image = F.resized_crop(image, crop["y"], crop["x"], crop["h"], crop["w"], [SIZE, SIZE])
    if flip["applied"]:
        image = F.hflip(image)
    steps = (F.adjust_brightness, F.adjust_contrast, F.adjust_saturation)
    for component in jitter["order"]:
        if component < len(steps):
            image = steps[component](image, jitter["factor"][component])
    return TO_TENSOR(image)


class Block(nn.Module):
    def __init__(self, n_in: int, n_out: int, stride: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(n_in, n_out, 3, stride, 1, bias=False),
            nn.BatchNorm2d(n_out),
            nn.ReLU(inplace=True),
            nn.Conv2d(n_out, n_out, 3, 1, 1, bias=False),
            nn.BatchNorm2d(n_out),
        )
        keeps_shape = stride == 1 and n_in == n_out
        self.shortcut = (
            nn.Identity()
            if keeps_shape
            else nn.Sequential(nn.Conv2d(n_in, n_out, 1, stride, bias=False), nn.BatchNorm2d(n_out))
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.body(x) + self.shortcut(x))


def resnet18(n_classes: int) -> nn.Module:
    layers: list[nn.Module] = [
        nn.Conv2d(3, 64, 7, 2, 3, bias=False),
        nn.BatchNorm2d(64),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(3, 2, 1),
    ]
    n_in = 64
    for n_out, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(n_in, n_out, stride), Block(n_out, n_out, 1)]
        n_in = n_out
    return nn.Sequential(
        *layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.2), nn.Linear(n_in, n_classes)
    )


def make_loader(options: argparse.Namespace) -> Any:
    """The one place where the two scripts differ: which DataLoader it is."""
    is_ours = options.loader == "penstock"
    if options.augment == "given" and not is_ours:
        dataset = GivenFolder(options.folder, options.seed)
    else:
        dataset = ImageFolder(options.folder, PLAIN if options.augment == "none" else RANDOM)
    settings: dict[str, Any] = {
        "batch_size": options.batch_size,
        "shuffle": True,
        "drop_last": True,
        "num_workers": options.workers,
    }
    if not is_ours:
        from torch.utils.data import DataLoader

        return DataLoader(dataset, **settings)
    from penstock.torch import DataLoader

    return DataLoader(dataset, **settings, order="torch", seed=options.seed)


def epochs(loader: Any) -> Iterator[list[Tensor]]:
    epoch = 0
    while True:
        if isinstance(loader.dataset, GivenFolder):
            loader.dataset.epoch = epoch
        yield from loader
        epoch += 1


def train(options: argparse.Namespace) -> dict[str, Any]:
    torch.manual_seed(options.seed)
    torch.use_deterministic_algorithms(True)
    loader = make_loader(options)
    model = resnet18(len(loader.dataset.classes)).train()
    optimizer = torch.optim.SGD(model.parameters(), lr=options.lr, momentum=0.9, weight_decay=1e-4)
    loss_of = nn.CrossEntropyLoss()
    losses: list[float] = []
    seconds: list[float] = []
    waited, start = 0.0, time.perf_counter()
    batches = epochs(loader)
    for step in range(1, options.steps + 1):
        asked = time.perf_counter()
        images, labels = next(batches)
        waited += time.perf_counter() - asked
        loss = loss_of(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        seconds.append(time.perf_counter() - start)
        if step % 20 == 0 or step == options.steps:
            print(
                f"step {step:>4}/{options.steps}  loss {losses[-1]:.6f}  waited {waited / seconds[-1]:.1%}",
                flush=True,
            )
    return {
        "loader": options.loader,
        "augment": options.augment,
        "losses": losses,
        "seconds": seconds,
        "waited": waited,
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", help="pictures, a folder a class")
    parser.add_argument("--loader", choices=("torch", "penstock"), default="torch")
    parser.add_argument("--augment", choices=("none", "random", "given"), default="none")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.02)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", help="write losses and times to this file")
    return parser.parse_args()


def main() -> None:
    options = parse()
    outcome = train(options)
    if options.json:
        Path(options.json).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
