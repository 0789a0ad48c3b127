"""Train a small network, and show that it never waits for its data.

    python examples/train_cnn.py                 on shapes that it draws first
    python examples/train_cnn.py --data FOLDER   on your pictures: a folder a class, or tar shards

If FOLDER has the sub-folders train/ and val/, it learns from one and is judged on the
other.  The loader's threads decode, crop and normalise while the network computes;
the summary at the end says what each of them spent its time on.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

import penstock
import pictures
from penstock import transforms as T
from penstock.torch import DataLoader

CACHE = Path(__file__).resolve().parent.parent / ".cache"
MEAN, STD = (0.5, 0.5, 0.5), (0.25, 0.25, 0.25)
STAGES = {
    "read": "bytes from disk",
    "decode": "JPEG to pixels",
    "augment": "crop, resize, flip",
    "tensor": "floats, normalised, in their place",
    "idle": "done early, waiting for the network",
}


class Display:
    """A line that redraws itself on a terminal, and a line now and then elsewhere."""

    def __init__(self, stream=sys.stdout):
        self.stream = stream
        self.is_live = stream.isatty()
        is_unicode = "utf" in (stream.encoding or "").lower()
        self.full, self.empty = ("█", "░") if is_unicode else ("#", ".")
        self.last_tenth = -1

    def bar(self, share: float, width: int = 24) -> str:
        n_full = round(max(0.0, min(1.0, share)) * width)
        return self.full * n_full + self.empty * (width - n_full)

    def progress(self, what: str, done: int, total: int, text: str = "") -> None:
        line = f"{what} {done:>5,}/{total:,}  {self.bar(done / total)}  {text}"
        if self.is_live:
            self.stream.write(f"\r{line}\x1b[K" + ("\n" if done == total else ""))
        elif (tenth := done * 10 // total) != self.last_tenth:
            self.last_tenth = tenth
            self.stream.write(line.rstrip() + "\n")
        if done == total:
            self.last_tenth = -1
        self.stream.flush()

    def say(self, text: str = "") -> None:
        print(text, file=self.stream, flush=True)


@dataclass
class Outcome:
    """What training came to, for the summary."""

    steps: int
    images: int
    seconds: float
    waited: float  # seconds in which the network had no batch
    loss: float
    accuracy: float  # of the last steps, on augmented training pictures


def network(n_classes: int) -> nn.Sequential:
    """Five convolutions: small enough to learn shapes in a minute on two cores."""

    def block(n_in: int, n_out: int, stride: int = 1) -> list[nn.Module]:
        conv = nn.Conv2d(n_in, n_out, 3, stride=stride, padding=1, bias=False)
        return [conv, nn.BatchNorm2d(n_out), nn.ReLU(inplace=True)]

    return nn.Sequential(
        *block(3, 16, stride=2),
        *block(16, 32),
        nn.MaxPool2d(2),
        *block(32, 64),
        nn.MaxPool2d(2),
        *block(64, 128),
        nn.MaxPool2d(2),
        *block(128, 128),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(128, n_classes),
    )


def share_cores() -> tuple[int, int]:
    """Half of the cores for the loader and half for torch: neither takes turns with the other."""
    n_cores = len(os.sched_getaffinity(0))
    n_workers = max(1, n_cores // 2)
    return n_workers, max(1, n_cores - n_workers)


def endless(loader):
    """Batches of one epoch after the other.  The loader prefetches across the border."""
    while True:
        yield from loader


def train(model: nn.Module, loader: DataLoader, n_steps: int, display: Display) -> Outcome:
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=6e-3, total_steps=n_steps)
    loss_of = nn.CrossEntropyLoss(label_smoothing=0.05)
    loss_now = accuracy_now = None
    waited, n_images = 0.0, 0
    batches = endless(loader)
    start = time.perf_counter()
    for step in range(1, n_steps + 1):
        asked = time.perf_counter()
        images, labels = next(batches)
        waited += time.perf_counter() - asked

        scores = model(images)
        loss = loss_of(scores, labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        schedule.step()

        n_images += len(labels)
        accuracy = (scores.argmax(1) == labels).float().mean().item()
        # A running mean over about twenty steps: single batches jump about.
        loss_now = loss.item() if loss_now is None else 0.95 * loss_now + 0.05 * loss.item()
        accuracy_now = accuracy if accuracy_now is None else 0.95 * accuracy_now + 0.05 * accuracy
        rate = n_images / (time.perf_counter() - start)
        text = f"loss {loss_now:5.3f}  accuracy {accuracy_now:4.0%}  {rate:6,.0f} images/s"
        display.progress("step", step, n_steps, text)
    seconds = time.perf_counter() - start
    return Outcome(n_steps, n_images, seconds, waited, loss_now, accuracy_now)


@torch.no_grad()
def judge(model: nn.Module, loader: DataLoader) -> tuple[int, int]:
    """How many of how many pictures it names."""
    model.eval()
    right = total = 0
    for images, labels in loader:
        right += (model(images).argmax(1) == labels).sum().item()
        total += len(labels)
    return right, total


def summarise(
    outcome: Outcome, stats: dict, judged: tuple[int, int] | None, display: Display
) -> None:
    """Close with what came of it and where the time went."""
    say, bar = display.say, display.bar
    waited = outcome.waited / outcome.seconds
    say()
    say(f"Trained on {outcome.images:,} pictures in {outcome.seconds:.1f} s")
    if judged:
        right, total = judged
        say(f"  unseen pictures named    {right / total:6.1%}   ({right:,} of {total:,})")
    else:
        say(f"  training pictures named  {outcome.accuracy:6.1%}   (there is no val/ to judge on)")
    say(f"  speed                    {outcome.images / outcome.seconds:6,.0f}   images/s")
    say(f"  first batch after        {stats['first_batch_ns'] / 1e6:6,.0f}   ms")
    say()
    say("The network's time")
    say(f"  {'computing':<10}{1 - waited:6.1%}  {bar(1 - waited)}")
    say(f"  {'waiting':<10}{waited:6.1%}  {bar(waited)}  for data")
    n_workers = stats["workers"]
    spent = {stage: stats[f"{stage}_ns"] for stage in STAGES}
    total_ns = sum(spent.values()) or 1
    say()
    say(f"The loader's time, over {n_workers} thread{'s' if n_workers != 1 else ''}")
    for stage, meaning in STAGES.items():
        share = spent[stage] / total_ns
        say(f"  {stage:<10}{share:6.1%}  {bar(share)}  {meaning}")


def find_data(given: str | None, display: Display) -> tuple[str, str | None]:
    """Where to learn from and where to be judged (None: nowhere)."""
    if given is None:
        folder = CACHE / f"pictures-{pictures.VERSION}"
        if not folder.is_dir():
            CACHE.mkdir(exist_ok=True)
            pictures.make(folder, 2000, 400, lambda *at: display.progress("drawing pictures", *at))
        return str(folder / "train"), str(folder / "val")
    if all((Path(given) / split).is_dir() for split in ("train", "val")):
        return str(Path(given) / "train"), str(Path(given) / "val")
    return given, None


def count_classes(dataset: penstock.Dataset) -> int:
    """Folders name their classes; tar shards only number them."""
    if dataset.classes:
        return len(dataset.classes)
    labels = {dataset.label(sample) for sample in range(len(dataset))}
    if min(labels) < 0:
        sys.exit("train_cnn: these pictures have no labels to learn")
    return max(labels) + 1


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", metavar="PATH", help="folder or tar of pictures")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=64, help="side of the crops in pixels")
    parser.add_argument("--workers", type=int, help="loader threads (default: half of the cores)")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main() -> int:
    options = parse_options()
    display = Display()
    n_workers, n_threads = share_cores()
    n_workers = n_workers if options.workers is None else options.workers
    torch.set_num_threads(n_threads)
    torch.manual_seed(options.seed)

    train_path, val_path = find_data(options.data, display)
    to_tensor = [T.ToTensor(), T.Normalize(MEAN, STD)]
    augment = [
        T.RandomResizedCrop(options.size, scale=(0.6, 1.0)),
        T.RandomHorizontalFlip(),
        *to_tensor,
    ]
    common = {"batch_size": options.batch_size, "num_workers": n_workers, "seed": options.seed}
    loader = DataLoader(train_path, transform=augment, shuffle=True, **common)
    n_classes = count_classes(loader.dataset)
    model = network(n_classes)
    n_pictures = len(loader.dataset)
    display.say(f"penstock {penstock.__version__}: {n_pictures:,} pictures in {n_classes} classes")
    display.say(f"threads: {n_workers} for the loader, {n_threads} for torch")
    outcome = train(model, loader, options.steps, display)
    stats = loader.stats()
    loader.close()

    judged = None
    if val_path:
        whole = [T.Resize((options.size, options.size)), *to_tensor]
        judged = judge(model, DataLoader(val_path, transform=whole, **common))
    summarise(outcome, stats, judged, display)
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except penstock.Error as error:
        sys.exit(f"train_cnn: {error}")
    except KeyboardInterrupt:
        sys.exit(130)
