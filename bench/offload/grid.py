"""What is run: cells, each a data set, a link, a share of the storage's processor and a device, under every policy.

| experiment | what it shows |
| --- | --- |
| headline | a link that stays the bottleneck, all the storage CPU there is, a whole epoch of those that matter most |
| tenth | the same with a tenth of the storage CPU that `auto` used in `headline`, beside `sophon` with all there is |
| idle | a job that waits for its device: nothing should be offloaded, and nothing lost |
| client | a job that waits for its own processor: nothing should be offloaded, nothing lost |
| grid | every link with every quota and every device, some seconds of each |
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

BASELINE, OURS, PAPER = "none", "auto", "sophon"
POLICIES = ("none", "all", "resize", "fastflow", "sophon", "auto")
WHOLE = (BASELINE, PAPER, OURS)  # run whole epochs where a cell has them: a part tells of others
PLANNING = ("sophon", "auto")  # these find out while they run how much to offload
DATA = ("imagenet", "photos")
AMPLE = 0.0
_WEIGHED = 96  # samples: `fastflow` decides by 64, which are asked for before they come
SEEDS = 5
DISTURBED = 0.25  # cores that neither end used, the kernel's work for the network among them: others may have disturbed
BATCH, _GRID_BATCH = 64, 32  # on a slow link a batch of 64 files takes as long as a run should
HEADLINE_LINK = 60.0
_IDLE_LINK, _IDLE_RATE, _IDLE_S = 500.0, 75.0, 20.0
_TENTH_S, _TENTH_PAIRS = 45.0, 10
_CLIENT_CORES = 0.125  # the link brings twice the samples that this takes, and more
# What a sample takes of a processor with others on it varies by a tenth from minute to minute, and by some percent from
# process to process: pairs run at once, short and many.
_CLIENT_S, _CLIENT_PAIRS = 8.0, 24
# So slow that all policies at once leave both ends' processors idle most of the time, and each is what its link or its
# quota lets it be: a cell takes a sixth of the time, and whatever slows the machine slows all of them.
_ROOM_FOR_ALL = 60.0


@dataclass(frozen=True)
class Axes:
    """The grid: Mbit/s, cores, samples a second of the device (0: never waited for); seconds and runs of each."""

    links: tuple[float, ...]
    quotas: tuple[float, ...]
    rates: tuple[float, ...]
    seconds: float
    seeds: int


# Not all policies have the usual grid's second run (Forecast.seeds).
USUAL = Axes((25, 60, 150, 500), (0.1, 0.3, 1), (0, 60, 150), 7, 2)
FULL = Axes((25, 60, 150, 250, 500), (0.1, 0.3, 0.5, 1), (0, 60, 150, 300), 15, SEEDS)
QUICK = Axes((60, 500), (0.1, 1), (0,), 1, 1)


@dataclass(frozen=True)
class Cell:
    """Conditions, and how long a run is."""

    kind: str
    data: str
    link: float
    quota: float | None  # None: a tenth of what `headline` took
    rate: float
    seconds: float  # that count; 0: a whole epoch, but for policies of which a part tells enough
    batch_size: int = BATCH
    policies: tuple[str, ...] = POLICIES
    seeds: int = SEEDS
    client: float = AMPLE  # cores of the training loop's side
    is_beside: bool = False  # its policies run at once, each with machines of its own

    @property
    def is_paired(self) -> bool:
        """Whether a figure is of both policies of a pair: of half a pair nothing can be told."""
        return self.kind in ("client", "tenth")

    def quota_of(self, policy: str, quota: float) -> float:
        """In `tenth` a rival has all there is."""
        return quota if self.kind != "tenth" or policy == OURS else AMPLE

    @property
    def key(self) -> str:
        """Its name in files and in --only."""
        if self.kind != "grid":
            return f"{self.kind}/{self.data}"
        return f"grid/{self.data}/{self.link:g}/{self.quota:g}/{self.rate:g}"

    def __str__(self) -> str:
        cores = {None: "a tenth of the CPU", AMPLE: "ample CPU"}.get(
            self.quota, f"{self.quota or 0:g} cores"
        )
        device = f"device {self.rate:g}/s" if self.rate else "no device"
        client = f", client {self.client:g} cores" if self.client else ""
        beside = ", policies at once" if self.is_beside else ""
        return f"{self.link:g} Mbit/s, {cores}, {device}{client}{beside}"

    def stored(self) -> dict[str, Any]:
        """As JSON gives it back."""
        return {**asdict(self), "policies": list(self.policies)}


def warm_least(batch_size: int) -> int:
    """Batches that warm up at least: `fastflow` has made up its mind by then."""
    return math.ceil(_WEIGHED / batch_size)


@dataclass(frozen=True)
class Length:
    """Batches of a run: those that warm up, unless that would take too long, and those that count."""

    warm: int
    counted: int


def cell_of(stored: dict[str, Any]) -> Cell:
    return Cell(**{**stored, "policies": tuple(stored["policies"])})


def is_alike(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether runs of both may stand beside each other."""
    free = {"policies": (), "seeds": 0}
    return replace(cell_of(one), **free) == replace(cell_of(other), **free)


def cells(data: str, *, is_quick: bool = False, is_full: bool = False) -> Iterator[Cell]:
    """All of a data set, in the order they are run: `tenth` needs `headline`."""
    axes = QUICK if is_quick else FULL if is_full else USUAL
    seconds, seeds = (axes.seconds, 1) if is_quick else (0.0, SEEDS)
    more: dict[str, Any] = {"seeds": seeds}
    yield Cell("headline", data, HEADLINE_LINK, AMPLE, 0.0, seconds, **more)
    tenth = (HEADLINE_LINK, None, 0.0, seconds or _TENTH_S)
    both = {"policies": (PAPER, OURS), "is_beside": True}
    yield Cell("tenth", data, *tenth, **both, seeds=1 if is_quick else _TENTH_PAIRS)
    idle = (_IDLE_LINK, AMPLE, _IDLE_RATE, seconds or _IDLE_S)
    yield Cell("idle", data, *idle, policies=(BASELINE, OURS), **more)
    busy = (_IDLE_LINK, AMPLE, 0.0, seconds or _CLIENT_S)
    pairs = {"client": _CLIENT_CORES, "is_beside": True, "seeds": 1 if is_quick else _CLIENT_PAIRS}
    yield Cell("client", data, *busy, policies=(BASELINE, OURS), **pairs)
    for link, quota, rate in product(axes.links, axes.quotas, axes.rates):
        grid = ("grid", data, link, quota, rate, axes.seconds, _GRID_BATCH)
        yield Cell(*grid, seeds=axes.seeds, is_beside=link <= _ROOM_FOR_ALL and axes is USUAL)


def all_runs(report: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Of all cells, policies and seeds."""
    for stored in report["cells"].values():
        for of in stored["runs"].values():
            yield from of.values()


def chosen(cell: Cell, patterns: list[str]) -> bool:
    """Whether --only wants it: a name, the beginning of one, or a pattern."""
    if not patterns:
        return True
    return any(
        fnmatchcase(cell.key, pattern) or cell.key.startswith(pattern.rstrip("/") + "/")
        for pattern in patterns
    )
