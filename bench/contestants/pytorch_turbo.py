"""PyTorch's DataLoader with libjpeg-turbo (PyTurboJPEG) and OpenCV."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from importlib.metadata import version

from bench.common import IN_PLACE, Batch, Job, Loader, Spec
from bench.contestants.turbo_opencv import TurboTransform

VARIANTS = {
    "torch-turbo": Spec("PyTorch DataLoader, turbo + OpenCV", IN_PLACE, "folder", "main"),
}


def load(job: Job) -> Loader:
    import torch
    import turbojpeg  # noqa: F401  (imported here so that a missing library shows as missing)
    from torch.utils.data import DataLoader, Dataset

    class Files(Dataset):
        def __init__(self) -> None:
            self.files = job.files()
            self.transform = TurboTransform()

        def __len__(self) -> int:
            return len(self.files)

        def __getitem__(self, index: int) -> torch.Tensor:
            # The workers seed Python's own generator, differently in every epoch.
            rng = random.Random(random.getrandbits(64))
            return torch.from_numpy(self.transform(self.files[index], rng))

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        loader = DataLoader(
            Files(),
            batch_size=job.batch_size,
            shuffle=True,
            num_workers=job.threads,
            persistent_workers=True,
            prefetch_factor=4,
        )
        return lambda _epoch: iter(loader)

    settings = {
        "num_workers": job.threads,
        "persistent_workers": True,
        "prefetch_factor": 4,
        "PyTurboJPEG": version("PyTurboJPEG"),
        "opencv": version("opencv-python-headless"),
        "resize": "INTER_AREA (shrinking), INTER_LINEAR",
    }
    return Loader(torch.__version__, settings, open_loader, to_numpy=lambda batch: batch.numpy())
