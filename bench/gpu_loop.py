"""The training loop that bench.gpu measures, in a process of its own: one loader, one model, one device.

    python -m bench.gpu_loop '{"loader": "penstock", ...}'

Prints "measuring" when the steps that count begin, then one line of JSON.  Every step ends with a wait for
the device, so what the loop spends in next() is time in which the device has nothing to do.
"""

from __future__ import annotations

import importlib
import itertools
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import nn

from bench.common import MEAN, SIZE, STD
from bench.process_tree import bytes_read, cpu_seconds

RATE = 0.01


def torchvision() -> Any:
    """The package, or None; next to a PyTorch for the CPU alone it needs a hand."""
    try:
        return importlib.import_module("torchvision")
    except ImportError:
        return None
    except RuntimeError:
        importlib.import_module("bench.torchvision_shim")
        return importlib.import_module("torchvision")


class SmallNetwork(nn.Sequential):
    """For where there is no torchvision: five convolutions."""

    def __init__(self, n_classes: int) -> None:
        widths = (3, 32, 64, 128, 256, 256)
        parts: list[nn.Module] = []
        for before, after in itertools.pairwise(widths):
            parts += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
        super().__init__(
            *parts, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(widths[-1], n_classes)
        )


def make_model(name: str, n_classes: int) -> nn.Module:
    if name == "small":
        return SmallNetwork(n_classes)
    package = torchvision()
    if package is None:
        raise SystemExit(f"{name} is torchvision's, which is not installed: --model small")
    from torchvision import models

    model: nn.Module = getattr(models, name)(num_classes=n_classes)
    return model


def _pictures(folder: Path) -> list[Path]:
    """ImageNet's are called .JPEG."""
    return sorted(p for p in folder.rglob("*") if p.suffix.lower() in (".jpg", ".jpeg"))


class PillowFolder(torch.utils.data.Dataset[Any]):
    """What ImageFolder and its transforms do, for where there is no torchvision."""

    def __init__(self, folder: str, size: int) -> None:
        classes = sorted(p for p in Path(folder).iterdir() if p.is_dir())
        self._files = [(f, n) for n, one in enumerate(classes) for f in _pictures(one)]
        self._size = size

    def __len__(self) -> int:
        return len(self._files)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        import numpy as np
        from PIL import Image

        path, label = self._files[index]
        with Image.open(path) as file:
            image = file.convert("RGB")
        share, along, across, flips = torch.rand(4).tolist()
        side = max(1, round(min(image.size) * (0.08 + 0.92 * share) ** 0.5))
        x, y = int(along * (image.width - side)), int(across * (image.height - side))
        out = (self._size, self._size)
        image = image.resize(out, Image.Resampling.BILINEAR, (x, y, x + side, y + side))
        if flips < 0.5:
            image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT)
        pixels = torch.from_numpy(np.array(image)).permute(2, 0, 1).float() / 255
        return (pixels - torch.tensor(MEAN)[:, None, None]) / torch.tensor(STD)[
            :, None, None
        ], label


def pillow_dataset(job: dict[str, Any]) -> torch.utils.data.Dataset[Any]:
    if torchvision() is None:
        return PillowFolder(job["folder"], job["size"])
    from torchvision import datasets, transforms

    line = [transforms.RandomResizedCrop(job["size"]), transforms.RandomHorizontalFlip()]
    line += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    found: torch.utils.data.Dataset[Any] = datasets.ImageFolder(
        job["folder"], transforms.Compose(line)
    )
    return found


def make_loader(job: dict[str, Any], pin: bool) -> Any:
    common: dict[str, Any] = {"batch_size": job["batch_size"], "shuffle": True, "drop_last": True}
    common["pin_memory"] = pin
    if job["loader"] == "torch":
        n = job["workers"]
        return torch.utils.data.DataLoader(
            pillow_dataset(job), num_workers=n, persistent_workers=n > 0, **common
        )
    from penstock import transforms
    from penstock.torch import DataLoader

    line = [transforms.RandomResizedCrop(job["size"]), transforms.RandomHorizontalFlip()]
    line += [transforms.ToTensor(), transforms.Normalize(MEAN, STD)]
    return DataLoader(job["folder"], transform=line, **common)


def endless(loader: Any) -> Iterator[Any]:
    while True:
        is_any = False
        for batch in loader:
            is_any = True
            yield batch
        if not is_any:
            raise SystemExit("the data set has fewer pictures than a batch: --batch-size")


def iowait() -> tuple[int, int]:
    """Ticks that all cores waited for disks, and all ticks."""
    ticks = list(map(int, Path("/proc/stat").read_text().split()[1:9]))
    return ticks[4], sum(ticks)


def run(job: dict[str, Any]) -> dict[str, Any]:
    device = torch.device(job["device"])
    is_cuda = device.type == "cuda"
    loader = make_loader(job, pin=is_cuda)
    model = make_model(job["model"], job["n_classes"]).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=0.9)
    criterion = nn.CrossEntropyLoss()

    def step(batch: Any) -> None:
        images, labels = (part.to(device, non_blocking=True) for part in batch)
        with torch.autocast(device.type, torch.bfloat16, enabled=job["amp"]):
            loss = criterion(model(images), labels)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if is_cuda:
            torch.cuda.synchronize(device)

    batches = endless(loader)
    begin = time.perf_counter()
    batch = next(batches)
    first = time.perf_counter() - begin
    for _ in range(job["warmup"]):
        step(batch)
        batch = next(batches)
    return _measure(job, step, batches, batch) | {"first_batch_ms": first * 1e3}


def _measure(job: dict[str, Any], step: Any, batches: Iterator[Any], batch: Any) -> dict[str, Any]:
    print("measuring", flush=True)
    pid, waits = os.getpid(), []
    cpu, read, (io_before, all_before) = cpu_seconds(pid), bytes_read(pid), iowait()
    begin = time.perf_counter()
    for _ in range(job["steps"]):
        step(batch)
        asked = time.perf_counter()
        batch = next(batches)
        waits.append(time.perf_counter() - asked)
    seconds = time.perf_counter() - begin
    io_after, all_after = iowait()
    waits.sort()
    return {
        "loader": job["loader"],
        "steps": job["steps"],
        "seconds": seconds,
        "samples_per_s": job["steps"] * job["batch_size"] / seconds,
        "wait_share": sum(waits) / seconds,
        **{
            f"batch_wait_p{q}_ms": waits[min(len(waits) * q // 100, len(waits) - 1)] * 1e3
            for q in (50, 95, 99)
        },
        "step_ms": (seconds - sum(waits)) / job["steps"] * 1e3,
        "cpu_s": cpu_seconds(pid) - cpu,
        "iowait": (io_after - io_before) / max(all_after - all_before, 1),
        "bytes_read": bytes_read(pid) - read,
    }


def main() -> None:
    job = {"size": SIZE, "amp": False} | json.loads(sys.argv[1])
    print(json.dumps(run(job)), flush=True)


if __name__ == "__main__":
    main()
