"""One line changed: ImageFolder with torchvision's transforms, `python -m bench.image_folder FOLDER`.

torch's DataLoader at several numbers of workers against penstock.torch's DataLoader with everything else as it
is.  Each run is a process of its own; contestants alternate, figures are medians.  Pictures that do not stand in
a folder a class, as ImageFolder wants them, are linked into such folders first, 2,000 of them.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch

import bench.torchvision_shim  # noqa: F401  (before torchvision)
from bench.datasets import make_view
from bench.python_grid import in_process
from penstock.torch import DataLoader as OurLoader

TORCH_WORKERS = (1, 2, 3, 4)
MEAN, STD = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


def measure(kind: str, num_workers: Any, folder: str, seconds: float) -> dict[str, Any]:
    """Images a second over whole epochs, the first apart."""
    from torchvision.datasets import ImageFolder
    from torchvision.transforms import v2

    line = [v2.RandomResizedCrop(224), v2.RandomHorizontalFlip(), v2.ToImage()]
    line += [v2.ToDtype(torch.float32, scale=True), v2.Normalize(MEAN, STD)]
    dataset = ImageFolder(folder, v2.Compose(line))
    loader_class = OurLoader if kind == "penstock" else torch.utils.data.DataLoader
    is_lasting = kind == "torch"
    loader = loader_class(
        dataset, batch_size=64, shuffle=True, num_workers=num_workers, persistent_workers=is_lasting
    )
    rates: list[float] = []
    begin = time.perf_counter()
    while len(rates) < 2 or time.perf_counter() - begin < seconds:
        start, n = time.perf_counter(), 0
        for images, _ in loader:
            n += len(images)
        rates.append(n / (time.perf_counter() - start))
    return {"first": rates[0], "later": statistics.median(rates[1:])}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.image_folder", description=__doc__)
    parser.add_argument("folder", type=Path, help="pictures, a folder a class, or all in one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    contestants = [("penstock", "auto"), *(("torch", n) for n in TORCH_WORKERS)]
    runs: dict[tuple[str, Any], list[dict[str, Any]]] = {one: [] for one in contestants}
    folder = options.folder
    if not any(entry.is_dir() for entry in folder.iterdir()):
        folder = make_view(folder, 2000).directory / "folder"
    for turn in range(options.rounds):
        for one in contestants[turn % 2 :] + contestants[: turn % 2]:
            runs[one].append(in_process(measure, *one, str(folder), options.seconds))
    found = {
        f"{kind} {n}": {
            what: statistics.median(r[what] for r in seen) for what in ("first", "later")
        }
        for (kind, n), seen in runs.items()
    }
    best = max(v["later"] for k, v in found.items() if k.startswith("torch"))
    print(f"{'loader and workers':20} {'first epoch':>12} {'later':>8} images/s {'ratio':>6}")
    for name, rates in found.items():
        print(
            f"{name:20} {rates['first']:12.0f} {rates['later']:8.0f} {rates['later'] / best:15.2f}"
        )
    if options.json:
        options.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
