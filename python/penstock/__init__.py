"""Penstock feeds neural-network training: exact image batches, fast.

    import penstock
    from penstock import transforms as T

    loader = penstock.Loader(
        "train/",
        [T.RandomResizedCrop(224), T.RandomHorizontalFlip(), T.ToTensor()],
        batch_size=64,
        shuffle=True,
    )
    for batch in loader:
        images, labels = batch["image"], batch["label"]

The stream of batches is a pure function of the dataset, the operations, the seed, the epoch
and the global batch size.  Nothing else changes a byte of it: not the number of workers or
ranks, not a restart, not the processor.

For PyTorch see `penstock.torch`, which is imported only when it is asked for.
"""

from penstock import transforms
from penstock._core import Array, Batch, Dataset, cpu_level, version
from penstock.errors import (
    DataError,
    Error,
    ForkError,
    InputOutputError,
    InvalidError,
    NotFoundError,
    StateError,
)
from penstock.loader import Loader
from penstock.sample import apply, decode, draw, probe

__version__ = version

__all__ = [
    "Array",
    "Batch",
    "DataError",
    "Dataset",
    "Error",
    "ForkError",
    "InputOutputError",
    "InvalidError",
    "Loader",
    "NotFoundError",
    "StateError",
    "apply",
    "cpu_level",
    "decode",
    "draw",
    "probe",
    "transforms",
    "version",
]
