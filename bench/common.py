"""What the orchestrator, the worker process and every contestant share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent

# The workload. Every contestant does exactly this to every image.
SIZE = 224
SCALE = (0.08, 1.0)
RATIO = (3 / 4, 4 / 3)
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)

# Where a contestant's pixels come from decides what it may be compared with.
IN_PLACE = "in place"  # the user's own JPEG bytes, as files or put in a tar
RE_ENCODED = "re-encoded"  # other JPEG bytes, written beforehand by the peer's converter
PRE_DECODED = "pre-decoded"  # pixels decoded and shrunk beforehand: no JPEG work is left

# Above this many cores of foreign load on the contestant's own cores, a run says more about the neighbours.
DISTURBED = 0.15


class Unavailable(Exception):
    """This machine cannot do that; the message says why."""


Batch = Any  # each peer has its own array type


@dataclass(frozen=True)
class Spec:
    """What can be known of a contestant without importing its peer."""

    title: str
    kind: str
    reads: str  # path of its input below a view's directory
    env: str  # which virtual environment runs it


@dataclass(frozen=True)
class Job:
    """One run's parameters, as handed to a contestant."""

    variant: str
    view: Path  # directory holding folder/, all.tar, shards/ and what prepare() wrote
    batch_size: int
    threads: int
    seed: int
    is_slow: bool = False  # what is read comes over a slow wire, of which the kernel keeps nothing

    def files(self) -> list[Path]:
        """The view's JPEG files in a fixed order."""
        return sorted((self.view / "folder").glob("*/*"))


@dataclass(frozen=True)
class Loader:
    """A contestant with its peer imported, not yet constructed."""

    version: str
    settings: dict[str, Any]
    # Constructs the loader; the result gives epoch n as an iterator of image batches.
    open: Callable[[], Callable[[int], Iterator[Batch]]]
    to_numpy: Callable[[Batch], Any]
    rows: Callable[[Batch], int] = field(default=len)
    layout: str = "NCHW"


@dataclass(frozen=True)
class Check:
    """One thing to show: True, False, or None where it cannot be told."""

    what: str
    holds: bool | None
    told: str

    def __str__(self) -> str:
        mark = {True: "yes", False: "**no**", None: "not told"}[self.holds]
        return f"{self.what}: {mark} ({self.told})"


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> list[str]:
    """Lines of Markdown; the first column is text, all others are figures."""
    align = ("---", *["---:"] * (len(head) - 1))
    return ["| " + " | ".join(cells) + " |" for cells in (head, align, *rows)]
