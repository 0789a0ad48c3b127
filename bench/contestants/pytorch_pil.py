"""PyTorch's DataLoader as its tutorials use it: torchvision's ImageFolder and transforms on Pillow images."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from bench.common import IN_PLACE, MEAN, RATIO, SCALE, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "torch-pil": Spec("PyTorch DataLoader, PIL + torchvision", IN_PLACE, "folder", "main"),
}


def load(job: Job) -> Loader:
    import PIL
    import torch
    from torch.utils.data import DataLoader

    from bench import torchvision_shim  # noqa: F401  (torchvision does not import without it)
    import torchvision  # isort: skip
    from torchvision import datasets, transforms  # isort: skip

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        transform = transforms.Compose(
            [
                transforms.RandomResizedCrop(SIZE, scale=SCALE, ratio=RATIO),
                transforms.RandomHorizontalFlip(),
                transforms.ToTensor(),
                transforms.Normalize(MEAN, STD, inplace=True),
            ]
        )
        loader = DataLoader(
            datasets.ImageFolder(job.view / "folder", transform),
            batch_size=job.batch_size,
            shuffle=True,
            num_workers=job.threads,
            persistent_workers=True,
            prefetch_factor=4,
        )
        return lambda _epoch: (images for images, _labels in loader)

    settings = {
        "num_workers": job.threads,
        "persistent_workers": True,
        "prefetch_factor": 4,
        "torchvision": torchvision.__version__,
        "Pillow": PIL.__version__,
        "resize": "bilinear, antialiased",
    }
    return Loader(torch.__version__, settings, open_loader, to_numpy=lambda batch: batch.numpy())
