"""A torchvision dataset and its transforms as native operations, as far as they can be.

    result = compile_dataset(dataset)
    if isinstance(result, Compiled) and result.is_native:
        Loader(result.native(), result.ops, dtype=result.dtype)      # no Python a sample
    elif isinstance(result, Compiled):
        PartlyCompiled(result)            # a map-style dataset for worker processes
    else:
        dataset                           # in worker processes, as it is

What is recognised is recognised by exact type, or by methods that nobody overrides; every
argument is read, and one that cannot be honoured keeps its operation in Python.  A line of
transforms is cut at most once: a native part first, the rest in Python.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from penstock._core import Dataset
from penstock.sample import DType
from penstock.transforms import Transform

Where = Literal["native", "python", "nowhere"]
Kind = Literal["pil", "tensor", "image"]  # "image": torchvision's tv_tensors.Image


@dataclass(frozen=True)
class Step:
    """One line of `explain`: an operation, where it runs, and why there."""

    name: str
    where: Where
    why: str = ""


@dataclass(frozen=True)
class Files:
    """The image files of a dataset, in its own order: file i is its item i."""

    paths: list[str]
    labels: list[int]
    classes: list[str]
    root: str


@dataclass(frozen=True)
class Compiled:
    """A dataset whose files are read, decoded and (at least begun to be) transformed natively.

    ops               the native part, in order; its output has one size
    dtype             of the native part's output: "uint8", or a float after ToTensor
    kind              what the native part's result is to whoever comes next: a PIL image, a
                      tensor (C, H, W) or a tv_tensors.Image
    python_rest       what is called afterwards on each sample, in order; [] if nothing is left
    target_transform  called on each label, or None
    steps             every operation, where it runs and why
    """

    dataset: Any
    files: Files
    ops: list[Transform]
    dtype: DType
    kind: Kind
    python_rest: list[Callable[[Any], Any]]
    target_transform: Callable[[Any], Any] | None
    steps: list[Step] = field(repr=False)

    @property
    def is_native(self) -> bool:
        """Can a `Loader` make the batches that default_collate would make of the samples?"""
        return not self.python_rest and self.kind != "pil"

    def native(self) -> Dataset:
        """The files as a dataset of our own; sample i of it is item i of the original."""
        raise NotImplementedError


@dataclass(frozen=True)
class NotCompiled:
    """A dataset that runs in Python as it is.

    is_known  True if it is of a kind that is compiled otherwise: then a warning is in place
    steps     every operation that was looked at, and why it stays in Python
    reason    the first of these reasons
    """

    dataset: Any
    is_known: bool
    reason: str
    steps: list[Step] = field(repr=False)


def compile_dataset(
    dataset: Any, transform: Any = None, *, exact: bool = False
) -> Compiled | NotCompiled:
    """Find out what of a dataset and its transforms can run natively.

    transform  is applied to the images after the dataset's own: torchvision transforms, a
               Compose or list of them, penstock.transforms, or any callable
    exact      refuse operations whose pixels are Pillow's where torchvision, given a tensor,
               would round differently (by one level at most; `explain` names them)
    """
    raise NotImplementedError


def warn_of_python(result: Compiled | NotCompiled, stacklevel: int = 2) -> None:
    """Say once for a dataset, in one warning, what of it stays in Python and why."""
    raise NotImplementedError
