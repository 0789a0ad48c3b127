"""MixUp and CutMix: what a whole batch goes through after its samples.

Names and meaning are those of torchvision.transforms.v2: each sample is mixed with the one
before it in the global batch, the first one with the last, and batch["label"] becomes
float32 (batch, num_classes).  Parameters depend on the seed, the epoch and the global batch
alone; `Loader.draw_batch` tells them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from penstock import _core, transforms

MAX_OPS = 8
MAX_CLASSES = 2**24


@dataclass(frozen=True, kw_only=True)
class BatchOp:
    """alpha        lam is drawn from Beta(alpha, alpha)
    num_classes  columns of the labels; by default as many as the dataset has classes
    weight       how often it is picked, where a loader has several
    """

    alpha: float = 1.0
    num_classes: int | None = None
    weight: float = 1.0

    kind: ClassVar[int]

    def __post_init__(self) -> None:
        name = type(self).__name__
        if not 1e-6 <= self.alpha <= 1e6:
            raise ValueError(f"{name}: alpha must be within [1e-6, 1e6], not {self.alpha!r}")
        if not 0 <= self.weight <= 1e6:
            raise ValueError(f"{name}: weight must be within [0, 1e6], not {self.weight!r}")
        if self.num_classes is not None:
            transforms.check_integer(f"{name}: num_classes", self.num_classes, 1, MAX_CLASSES)


@dataclass(frozen=True, kw_only=True)
class MixUp(BatchOp):
    """A sample and the one before it, blended: before * (1 - lam) + sample * lam."""

    kind: ClassVar[int] = 0


@dataclass(frozen=True, kw_only=True)
class CutMix(BatchOp):
    """A box of the sample before it, pasted; the labels' shares are those of the areas."""

    kind: ClassVar[int] = 1


BatchOps = BatchOp | Sequence[BatchOp]
KINDS = {cls.kind: cls.__name__ for cls in (MixUp, CutMix)}


def mixes(ops: BatchOps, dataset: _core.Dataset) -> tuple[list[tuple[int, float, float]], int]:
    """What the C library takes: (kind, alpha, weight) of each, and the number of classes."""
    ops = [ops] if isinstance(ops, BatchOp) else list(ops)
    if not ops:
        return [], 0
    for op in ops:
        if not isinstance(op, BatchOp):
            raise TypeError(f"batch_ops are MixUp or CutMix, not {op!r}")
    if len(ops) > MAX_OPS or not any(op.weight > 0 for op in ops):
        raise ValueError(f"batch_ops must be at most {MAX_OPS}, one of them with a weight above 0")
    numbers = {op.num_classes for op in ops if op.num_classes is not None}
    if len(numbers) > 1:
        raise ValueError(f"batch_ops have different num_classes: {sorted(numbers)}")
    num_classes = numbers.pop() if numbers else len(dataset.classes)
    if num_classes == 0:
        raise ValueError("batch_ops need num_classes: the dataset does not name its classes")
    return [(op.kind, float(op.alpha), float(op.weight)) for op in ops], num_classes


def describe(params: tuple[int, float, tuple[int, int, int, int]]) -> dict[str, Any]:
    """Parameters as `Loader.draw_batch` gives them."""
    kind, lam, box = params
    name = KINDS[kind]
    return {"op": name, "lam": lam} | ({"box": box} if name == "CutMix" else {})
