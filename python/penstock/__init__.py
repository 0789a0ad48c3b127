"""Penstock feeds neural-network training: exact image batches, fast.

    import penstock

    loader = penstock.Loader(
        "train/",
        [penstock.RandomResizedCrop(224), penstock.RandomHorizontalFlip(), penstock.ToTensor()],
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
from penstock.fed import FedLoader
from penstock.loader import Loader
from penstock.mix import CutMix, MixUp
from penstock.packing import pack
from penstock.sample import apply, decode, draw, probe
from penstock.transforms import (
    AugMix,
    AutoAugment,
    CenterCrop,
    ColorJitter,
    Compose,
    Decode,
    GaussianBlur,
    Grayscale,
    Normalize,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomApply,
    RandomAutocontrast,
    RandomChoice,
    RandomCrop,
    RandomEqualize,
    RandomErasing,
    RandomGrayscale,
    RandomHorizontalFlip,
    RandomInvert,
    RandomOrder,
    RandomPerspective,
    RandomPosterize,
    RandomResizedCrop,
    RandomRotation,
    RandomSolarize,
    RandomVerticalFlip,
    Resize,
    ToDtype,
    ToTensor,
    TrivialAugmentWide,
)

__version__ = version

__all__ = [
    "Array",
    "AugMix",
    "AutoAugment",
    "Batch",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "CutMix",
    "DataError",
    "Dataset",
    "Decode",
    "Error",
    "FedLoader",
    "ForkError",
    "GaussianBlur",
    "Grayscale",
    "InputOutputError",
    "InvalidError",
    "Loader",
    "MixUp",
    "Normalize",
    "NotFoundError",
    "Pad",
    "RandAugment",
    "RandomAdjustSharpness",
    "RandomAffine",
    "RandomApply",
    "RandomAutocontrast",
    "RandomChoice",
    "RandomCrop",
    "RandomEqualize",
    "RandomErasing",
    "RandomGrayscale",
    "RandomHorizontalFlip",
    "RandomInvert",
    "RandomOrder",
    "RandomPerspective",
    "RandomPosterize",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSolarize",
    "RandomVerticalFlip",
    "Resize",
    "StateError",
    "ToDtype",
    "ToTensor",
    "TrivialAugmentWide",
    "apply",
    "cpu_level",
    "decode",
    "draw",
    "pack",
    "probe",
    "transforms",
    "version",
]
