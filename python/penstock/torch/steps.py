"""What is said about an operation: where it runs and why.  `explain` prints these."""

from dataclasses import dataclass
from typing import Literal

Where = Literal["native", "python", "nowhere"]
Kind = Literal["pil", "tensor", "image"]  # "image": torchvision's tv_tensors.Image


@dataclass(frozen=True)
class Step:
    """One operation, where it runs, and why there."""

    name: str
    where: Where
    why: str = ""
