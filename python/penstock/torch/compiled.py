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

import os
import warnings
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from penstock._core import Dataset, Pipeline
from penstock.sample import DType, pipeline
from penstock.torch.recognise import Files, NotRecognised, Part, joined, recognise
from penstock.torch.steps import Kind, Step
from penstock.torch.translate import Line, flat, short_name, translate
from penstock.transforms import Transform


@dataclass(frozen=True)
class Compiled:
    """A dataset whose files are read, decoded and (at least begun to be) transformed natively.

    files             paths and labels; file i is item i of the dataset
    ops               the native part, in order; its output has one size
    dtype             of the native part's output: "uint8", or a float after ToTensor
    kind              what the native part's result is to whoever comes next: a "pil" image, a
                      "tensor" (C, H, W), or an "image", which is a tv_tensors.Image
    python_rest       what is called afterwards on each sample, in order; [] if nothing is left
    target_transform  called on each label, or None
    reason            why there is a Python rest, in one sentence, or ""
    steps             every operation, where it runs and why
    """

    dataset: Any = field(repr=False)
    files: Files = field(repr=False)
    ops: list[Transform]
    dtype: DType
    kind: Kind
    python_rest: list[Callable[[Any], Any]]
    target_transform: Callable[[Any], Any] | None
    reason: str
    steps: list[Step] = field(repr=False)

    @property
    def is_native(self) -> bool:
        """Can a `Loader` make the batches that default_collate would make of the samples?"""
        return not self.python_rest and self.kind != "pil"

    def native(self) -> Dataset:
        """The files as a dataset of our own; sample i of it is item i of the original."""
        files = self.files
        beginning = os.path.join(files.root, "") if files.root else ""
        keys = [path.removeprefix(beginning) for path in files.paths]
        return Dataset.from_list(keys, files.labels, files.classes or None, files.root or None)

    def pipeline(self) -> Pipeline:
        """The native part for one sample at a time: rows of pixels where a PIL image is wanted."""
        return pipeline(self.ops, self.dtype, "NHWC" if self.kind == "pil" else "NCHW")


@dataclass(frozen=True)
class NotCompiled:
    """A dataset that runs in Python as it is.

    reason    why, in one sentence
    is_known  True if it is of a kind that is compiled otherwise: then a warning is in place
    steps     every operation that was looked at, and why it stays in Python
    """

    dataset: Any = field(repr=False)
    reason: str
    is_known: bool
    steps: list[Step] = field(repr=False)


def compile_dataset(
    dataset: Any, transform: Any = None, *, exact: bool = False
) -> Compiled | NotCompiled:
    """Find out what of a dataset and its transforms can run natively.

    transform  is applied to the images after the dataset's own: torchvision transforms, a
               Compose or list of them, or any callable; penstock.transforms go with a dataset
               that has none of its own
    exact      refuse operations whose pixels are Pillow's where torchvision, given a tensor,
               would round differently (by one level at most; `explain` names them)
    """
    try:
        part, line = _one_line(recognise(dataset), transform, exact)
    except NotRecognised as unknown:
        steps = [Step(_name(dataset), "python", str(unknown))]
        return NotCompiled(dataset, str(unknown), unknown.is_known, steps)
    steps = list(line.steps)
    if part.target_transform is not None:
        why = "called on each label, beside the images"
        steps.append(Step("target_transform", "python", why))
    if not line.ops:
        reason = line.reason if line.steps else "it has no transform"
        steps.insert(0, Step(_name(dataset), "python", "no native operation comes first"))
        return NotCompiled(dataset, reason, bool(line.steps), steps)
    steps.insert(0, Step(_name(dataset), "native", f"{len(part.files.paths)} image files"))
    return Compiled(
        dataset,
        part.files,
        line.ops,
        line.dtype,
        line.kind,
        line.rest,
        part.target_transform,
        line.reason,
        steps,
    )


def _one_line(parts: list[Part], transform: Any, exact: bool) -> tuple[Part, Line]:
    """All parts as one, and the line of operations that they share."""
    lines = [_line(part.transform, transform, exact) for part in parts]
    for part, line in zip(parts, lines, strict=True):
        if part.target_transform is not parts[0].target_transform:
            raise NotRecognised("the parts of the ConcatDataset have different target_transforms")
        if line != lines[0]:
            raise NotRecognised("the parts of the ConcatDataset have different transforms")
    return joined(parts), lines[0]


def _line(own: Any, transform: Any, exact: bool) -> Line:
    calls: list[Any] = [*flat(own), *flat(transform)]
    ops = [call for call in calls if isinstance(call, Transform)]
    if not ops:
        return translate(calls, exact)
    if len(ops) < len(calls):
        raise TypeError("penstock.transforms and other transforms do not mix")
    pipe = pipeline(ops)
    dtype: DType = "float32" if '"dtype":"float32"' in pipe.description else "uint8"
    return Line(ops, "tensor", dtype, [], "", [Step(repr(one), "native") for one in ops])


def _name(dataset: Any) -> str:
    return type(dataset).__qualname__


# One warning a dataset.

_warned: dict[int, weakref.ref[Any]] = {}


def warn_of_python(result: Compiled | NotCompiled, stacklevel: int = 2) -> None:
    """Say once for a dataset, in one warning, what of it stays in Python and why."""
    if isinstance(result, NotCompiled) and not result.is_known:
        return  # somebody's own dataset: Python is where it belongs
    seen = _warned.get(id(result.dataset))
    if not result.reason or (seen is not None and seen() is result.dataset):
        return
    _remember(result.dataset)
    if isinstance(result, NotCompiled):
        what = f"{_name(result.dataset)} and all its transforms run"
    else:
        names = ", ".join(short_name(call) for call in result.python_rest)
        what = f"of {_name(result.dataset)}'s transforms, {names} run"
    warnings.warn(
        f"{what} in Python, in worker processes ({result.reason}); "
        "penstock.torch.explain(dataset) tells more",
        stacklevel=stacklevel + 1,
    )


def _remember(dataset: Any) -> None:
    key = id(dataset)
    _warned[key] = weakref.ref(dataset, lambda _: _warned.pop(key, None))
