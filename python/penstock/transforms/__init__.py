"""The operations, by torchvision's names, arguments and defaults.

Each is a frozen value: it says what is to be done and checks itself when it is made.  The
work is done by the C library, with the results of torchvision's PIL path.  Decode stands
first in every pipeline; where it is left out, it is added.
"""

from collections.abc import Iterable

from penstock.transforms.augment import (
    AugMix,
    AutoAugment,
    GaussianBlur,
    Pad,
    RandAugment,
    RandomAdjustSharpness,
    RandomAffine,
    RandomAutocontrast,
    RandomEqualize,
    RandomGrayscale,
    RandomInvert,
    RandomPerspective,
    RandomPosterize,
    RandomRotation,
    RandomSolarize,
    TrivialAugmentWide,
)
from penstock.transforms.basic import (
    CenterCrop,
    ColorJitter,
    Decode,
    Grayscale,
    Normalize,
    RandomCrop,
    RandomErasing,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToDtype,
    ToTensor,
)
from penstock.transforms.checks import (
    MAX_CHANNELS,
    Spec,
    Transform,
    channel_values,
    check_integer,
)
from penstock.transforms.groups import (
    Compose,
    RandomApply,
    RandomChoice,
    RandomOrder,
    flattened,
)

__all__ = [
    "AugMix",
    "AutoAugment",
    "CenterCrop",
    "ColorJitter",
    "Compose",
    "Decode",
    "GaussianBlur",
    "Grayscale",
    "Normalize",
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
    "Spec",
    "ToDtype",
    "ToTensor",
    "Transform",
    "TrivialAugmentWide",
    "check_integer",
    "specs",
]


def specs(ops: Transform | Iterable[Transform]) -> list[Spec]:
    """The operations as the extension reads them."""
    line = list(flattened([ops] if isinstance(ops, Transform) else ops))
    channels = MAX_CHANNELS
    for op in line:
        if not isinstance(op, Transform):
            raise TypeError(f"ops must be penstock.transforms, not {op!r}")
        if isinstance(op, Decode):
            channels = op.channels
        elif isinstance(op, Grayscale):
            channels = op.num_output_channels
        elif isinstance(op, Normalize) and channels < len(channel_values("mean", op.mean)):
            raise ValueError(f"mean and std must have one value for {channels} channel: {op!r}")
    return [spec for op in line for spec in op._specs()]
