"""How long a run should take, before anything was measured: by typical samples and the model of planning.py.

From that follows how many batches a run has. All that are measured for a verdict on few percent run equally long
with the same samples; whoever is expected far behind gets fewer, as nothing depends on its third digit. Nothing
that was measured is replaced by any of this.
"""

from __future__ import annotations

import math

from bench.common import SIZE
from bench.offload.forms import CODED, CUT, PIXELS, RAW, Sample, repeated, sample_of
from bench.offload.grid import (
    AMPLE,
    BASELINE,
    BATCH,
    HEADLINE_LINK,
    OURS,
    SEEDS,
    WHOLE,
    Cell,
    Length,
    warm_least,
)
from bench.offload.planning import Job, Outcome, Site

MBIT = 1e6 / 8
_SAMPLES = 48  # of typical ones: a plan takes some of them
# Files differ in length, pixels do not: who sends the smaller of both gains by that.
_SPREAD = (0.4, 0.8, 1.0, 1.8)
_CROP_BYTES = SIZE * SIZE * 3
# Shares of the file's bytes (pixels are what they are), and milliseconds of processor time at the storage and at the
# host; of two cores of a server. "coded" is the smaller of cut and coded crop, which is what `auto` sends if it may.
_TYPICAL: dict[str, dict[str, tuple[float | None, float, float]]] = {
    "imagenet": {
        RAW: (1.0, 0.25, 0.6),
        CUT: (0.448, 0.6, 1.3),
        CODED: (0.37, 1.6, 1.3),
        PIXELS: (None, 1.4, 1.1),
    },
    "photos": {
        RAW: (1.0, 0.4, 1.4),
        CUT: (0.422, 1.3, 1.8),
        CODED: (0.149, 2.9, 1.2),
        PIXELS: (None, 2.1, 0.9),
    },
}
_OTHERS = "imagenet"  # files that are neither are taken for these
_START_S = 2.0  # two networks, a storage node, a training loop, the manifest; and their end
_WARM_S = 10.0  # before it counts, under all policies: each has workers, readers and a share to find, or some of these
_FEW = 5  # batches that warm up: on a link so slow this is known well enough
_LEAST = 3  # batches that count
_PART_S = 15.0  # of an epoch that is not run as a whole
_NEAR = 1.3  # times the fastest: its time may decide


def site_of(cell: Cell, quota: float, cores: tuple[float, float]) -> Site:
    """What a cell has, as the model sees it; cores of storage and compute that there are."""
    storage, compute = min(quota or cores[0], cores[0]), min(cell.client or cores[1], cores[1])
    return Site(cell.link * MBIT, storage, compute, cell.rate, cell.batch_size)


def _typical(data: str, file_bytes: float) -> Sample:
    """A sample whose file is so long."""
    typical = _TYPICAL.get(data, _TYPICAL[_OTHERS])
    line: dict[str, object] = {
        name: _CROP_BYTES if share is None else share * file_bytes
        for name, (share, _, _) in typical.items()
    }
    line["storage_ms"] = {name: storage for name, (_, storage, _) in typical.items()}
    line["host_ms"] = {name: host for name, (_, _, host) in typical.items()}
    return sample_of(line)


class Forecast:
    """Of one data set on this machine."""

    def __init__(
        self, data: str, images: int, mean_bytes: float, cores: tuple[float, float]
    ) -> None:
        self.images, self.mean_bytes, self._cores = images, mean_bytes, cores
        samples = [_typical(data, size * mean_bytes) for size in _SPREAD]
        self._job = Job(repeated(samples, _SAMPLES))
        self._known: dict[tuple[Cell, str], float] = {}

    def _outcome(self, cell: Cell, policy: str, quota: float) -> Outcome:
        return self._job.epoch(policy, site_of(cell, quota, self._cores))

    def quota(self, cell: Cell) -> float:
        """Cores; a tenth of what `auto` should take with all of them."""
        if cell.quota is not None:
            return cell.quota
        full = self._outcome(cell, OURS, 0.0)
        return full.storage_s / full.times.epoch / 10

    def sample_s(self, cell: Cell, policy: str) -> float:
        """Seconds a sample, all stages at work."""
        key = cell, policy
        if key not in self._known:
            times = self._outcome(cell, policy, self.quota(cell)).times
            self._known[key] = (times.epoch - times.startup) / _SAMPLES
        return self._known[key]

    def _best_s(self, cell: Cell) -> float:
        """Seconds a sample of the fastest policy."""
        return min(self.sample_s(cell, policy) for policy in cell.policies)

    def seeds(self, cell: Cell, policy: str) -> int:
        """Runs of a policy. Where there is no time for five, one is enough but of those that matter most, if they may
        be the fastest."""
        is_near = self.sample_s(cell, policy) <= _NEAR * self._best_s(cell)
        return cell.seeds if cell.seeds >= SEEDS or (policy in WHOLE and is_near) else 1

    def _whole(self, cell: Cell) -> int:
        return math.ceil(self.images / cell.batch_size)

    def warm_s(self, cell: Cell) -> float:
        """How long a run warms up, whatever its policy."""
        return min(_WARM_S, cell.seconds or _WARM_S)

    def _warm(self, cell: Cell, own_s: float) -> int:
        """Batches that warm up at most: the clock ends it, and it may be faster than expected."""
        expected = math.ceil(self.warm_s(cell) / own_s / cell.batch_size)
        most = max(expected + max(0, expected - _FEW), warm_least(cell.batch_size))
        return min(most, self._whole(cell))

    def length(self, cell: Cell, policy: str) -> Length:
        own = self.sample_s(cell, policy)

        def batches(seconds: float, sample_s: float, fewest: int) -> int:
            wanted = math.ceil(seconds / sample_s / cell.batch_size)
            return min(max(wanted, fewest), self._whole(cell))

        warm = self._warm(cell, own)
        if not cell.seconds:
            is_whole = policy in WHOLE
            return Length(warm, self._whole(cell) if is_whole else batches(_PART_S, own, _LEAST))
        best = self._best_s(cell)
        if own <= _NEAR * best:
            return Length(warm, batches(cell.seconds, best, _LEAST))
        return Length(warm, batches(cell.seconds / 2, own, _LEAST))

    def run_s(self, cell: Cell, policy: str) -> float:
        """A run from its first process to its last."""
        counted = OURS if cell.is_paired else policy  # of a pair both have as many
        length, batch_s = self.length(cell, counted), cell.batch_size * self.sample_s(cell, counted)
        warm_s = max(self.warm_s(cell), warm_least(cell.batch_size) * batch_s)
        return _START_S + warm_s + length.counted * batch_s

    def local_s(self, length: Length, batch_size: int) -> float:
        """A run on this machine, no link in between."""
        endless = Cell("", "", 1e6, AMPLE, 0.0, 0.0)
        samples = (length.warm + length.counted) * batch_size
        return _START_S + samples * self.sample_s(endless, BASELINE)

    def preparing_s(self, policy: str) -> float:
        """The epoch of a policy that goes before everything."""
        first = Cell("", "", HEADLINE_LINK, AMPLE, 0.0, 0.0)
        return _START_S + (self.images + BATCH) * self.sample_s(first, policy)

    def needed(self, cells: list[Cell], batch_size: int) -> Length:
        """The longest of all runs with such batches, of each part."""
        lengths = [
            self.length(cell, policy)
            for cell in cells
            if cell.batch_size == batch_size
            for policy in cell.policies
        ]
        return Length(max(of.warm for of in lengths), max(of.counted for of in lengths))
