"""What is run: cells, each a data set, a link, a share of the storage's processor and a device, under every policy.

| experiment | what it shows |
| --- | --- |
| headline | a link that stays the bottleneck, all the storage CPU there is, a whole epoch |
| tenth | the same with a tenth of the storage CPU that `auto` used in `headline` |
| idle | a job that waits for its device: nothing should be offloaded, and nothing lost |
| grid | every link with every quota and every device |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

BASELINE, OURS, PAPER = "none", "auto", "sophon"
POLICIES = ("none", "all", "resize", "fastflow", "sophon", "auto")
DATA = ("imagenet", "photos")
LINKS = (25.0, 60.0, 125.0, 250.0, 500.0)  # Mbit/s
QUOTAS = (0.1, 0.25, 0.5, 1.0)  # cores
RATES = (150.0, 600.0, 0.0)  # samples a second of the device; 0: it is never what is waited for
AMPLE = 0.0
BATCH_SIZE = 64
_HEADLINE_LINK = 60.0
_IDLE_LINK, _IDLE_RATE = 500.0, 75.0
_WARM = 6  # batches
_PART_S, _PART_MIN = 15.0, 8  # what `none` takes for a part of an epoch; batches


@dataclass(frozen=True)
class Cell:
    """Conditions, and how many batches count in a run."""

    kind: str
    data: str
    link: float
    quota: float | None  # None: a tenth of what `headline` took
    rate: float
    batches: int
    warm: int
    policies: tuple[str, ...] = POLICIES

    @property
    def key(self) -> str:
        """Its name in files and in --only."""
        if self.kind != "grid":
            return f"{self.kind}/{self.data}"
        return f"grid/{self.data}/{self.link:g}/{self.quota:g}/{self.rate:g}"

    @property
    def samples(self) -> int:
        return self.batches * BATCH_SIZE

    def __str__(self) -> str:
        cores = {None: "a tenth of the CPU", AMPLE: "ample CPU"}.get(
            self.quota, f"{self.quota or 0:g} cores"
        )
        device = f"device {self.rate:g}/s" if self.rate else "no device"
        return f"{self.link:g} Mbit/s, {cores}, {device}"

    def stored(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return {**asdict(self), "policies": list(self.policies)}


@dataclass(frozen=True)
class Extent:
    """How much of a data set there is."""

    images: int
    mean_bytes: float

    @property
    def batches(self) -> int:
        return self.images // BATCH_SIZE

    def part(self, link: float, seconds: float = _PART_S) -> int:
        """Batches that `none` needs so many seconds for; never more than an epoch."""
        wanted = int(link * 1e6 / 8 * seconds / self.mean_bytes / BATCH_SIZE)
        return min(max(wanted, _PART_MIN), self.batches)


def cells(data: str, extent: Extent, *, is_quick: bool = False) -> Iterator[Cell]:
    """All of a data set, in the order they are run: `tenth` needs `headline`."""
    warm = 2 if is_quick else _WARM
    whole = 4 if is_quick else extent.batches
    yield Cell("headline", data, _HEADLINE_LINK, AMPLE, 0.0, whole, warm)
    yield Cell("tenth", data, _HEADLINE_LINK, None, 0.0, whole, warm, (OURS,))
    idle = 3 if is_quick else extent.part(_IDLE_LINK)
    yield Cell("idle", data, _IDLE_LINK, AMPLE, _IDLE_RATE, idle, warm, (BASELINE, OURS))
    links, quotas, rates = (
        ((60.0, 500.0), (0.1, 1.0), (0.0,)) if is_quick else (LINKS, QUOTAS, RATES)
    )
    for link, quota, rate in product(links, quotas, rates):
        part = 3 if is_quick else extent.part(link)
        yield Cell("grid", data, link, quota, rate, part, warm)


def chosen(cell: Cell, patterns: list[str]) -> bool:
    """Whether --only wants it: a name, the beginning of one, or a pattern."""
    if not patterns:
        return True
    return any(
        fnmatchcase(cell.key, pattern) or cell.key.startswith(pattern.rstrip("/") + "/")
        for pattern in patterns
    )
