"""Which form each sample takes under a policy, and how long an epoch then takes.

A job has four stages that run at once: the device (T_G), the host's processors (T_CC), the storage's (T_CS) and the
network (T_Net). An epoch takes as long as the slowest, and before that the time in which the first batch passes
through the others.

Policies that choose sample by sample climb a ladder: each step gives one sample a smaller form. Steps are taken in descending
order of bytes saved per second of storage CPU until the network is no longer the slowest. The order does
not depend on link or processors, so a plan is a place on the ladder, and sums up to every place are computed once.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from bench.offload.forms import CODED, CUT, FEWEST, PIXELS, RAW, Form, Sample

# `auto` within narrower bounds than its own: the live knobs of these names at their least.
HELD_BACK = {
    "codec 0": (RAW, CUT, FEWEST, PIXELS),
    "cut_wire 0": (RAW, CUT),
}
LADDERS = {
    "none": (RAW,),
    "sophon": (RAW, PIXELS),  # whole operations: a crop is there when it is resized
    "auto": (RAW, CUT, CODED, FEWEST, PIXELS),
    **HELD_BACK,
}
FIXED = {
    "resize": PIXELS,
    "all": PIXELS,
}  # floating-point numbers are made by the host under all of them
_FREE_S = 1e-9  # a step that costs nothing is the first


@dataclass(frozen=True)
class Site:
    """What a job has: bytes a second, cores at both ends, samples a second of the device (0: none)."""

    link: float
    storage_cores: float
    host_cores: float
    device_rate: float = 0.0
    batch: int = 64


@dataclass(frozen=True)
class Times:
    """Seconds that each stage needs for an epoch."""

    device: float
    host: float
    storage: float
    network: float
    startup: float

    @property
    def epoch(self) -> float:
        return max(self.device, self.host, self.storage, self.network) + self.startup

    @property
    def slowest(self) -> str:
        names = ("network", "storage", "host", "device")
        return max(names, key=lambda name: getattr(self, name))


@dataclass(frozen=True)
class Step:
    """One sample takes a smaller form."""

    saved: float
    storage_s: float
    host_s: float

    @property
    def gain(self) -> float:
        """Bytes saved per second of storage CPU."""
        return self.saved / max(self.storage_s, _FREE_S)


def steps_of(sample: Sample, names: Iterable[str]) -> list[Step]:
    """A sample's way down to its smallest form, steps of falling gain: forms that are never worth it are passed over."""
    at, steps = sample[RAW], []
    while True:
        smaller = [sample[n] for n in names if n in sample and sample[n].size < at.size]
        if not smaller:
            return steps

        def gain(form: Form, start: Form = at) -> float:
            return (start.size - form.size) / max(form.storage_s - start.storage_s, _FREE_S)

        to = max(smaller, key=gain)
        steps.append(Step(at.size - to.size, to.storage_s - at.storage_s, to.host_s - at.host_s))
        at = to


class Ladder:
    """Sums over all samples after every number of steps; `gains[k]` is that of the step from k to k + 1."""

    def __init__(self, n: int, start: tuple[float, float, float], steps: list[Step]) -> None:
        self.n = n
        ordered = sorted(steps, key=lambda step: -step.gain)  # stable: a sample's own stay in order
        self.gains = np.array([step.gain for step in ordered])

        def sums(first: float, changes: list[float]) -> Any:
            return first + np.concatenate([[0.0], np.cumsum(changes)])

        self.size = sums(start[0], [-step.saved for step in ordered])
        self.storage_s = sums(start[1], [step.storage_s for step in ordered])
        self.host_s = sums(start[2], [step.host_s for step in ordered])

    def stages(self, site: Site) -> tuple[Any, Any, Any, Any]:
        """Seconds of device, host, storage and network at every place."""
        device = self.n / site.device_rate if site.device_rate else 0.0
        return (
            np.full_like(self.size, device),
            self.host_s / site.host_cores,
            self.storage_s / site.storage_cores,
            self.size / site.link,
        )

    def place(self, site: Site) -> int:
        """Up until the network is not the slowest; the last step only if it makes the epoch no longer."""
        *others, network = self.stages(site)
        rest = np.maximum.reduce(others)
        is_enough = network <= rest
        k = int(np.argmax(is_enough)) if is_enough.any() else len(network) - 1
        slowest = np.maximum(rest, network)
        return k - 1 if k and slowest[k] > slowest[k - 1] else k

    def times(self, site: Site, k: int) -> Times:
        device, host, storage, network = (float(stage[k]) for stage in self.stages(site))
        stages = (device, host, storage, network)
        startup = (sum(stages) - max(stages)) * min(1.0, site.batch / self.n)
        return Times(device, host, storage, network, startup)


def ladder(samples: list[Sample], policy: str, count: int | None = None) -> Ladder:
    """A policy's; one that treats all samples alike has no steps. With a count it is for so many samples like these."""
    count = count or len(samples)
    scale = count / len(samples)
    if policy in FIXED:
        forms = [sample.get(FIXED[policy], sample[RAW]) for sample in samples]
        steps = []
    else:
        forms = [sample[RAW] for sample in samples]
        steps = [
            Step(scale * step.saved, scale * step.storage_s, scale * step.host_s)
            for sample in samples
            for step in steps_of(sample, LADDERS[policy])
        ]
    start = (
        scale * sum(form.size for form in forms),
        scale * sum(form.storage_s for form in forms),
        scale * sum(form.host_s for form in forms),
    )
    return Ladder(count, start, steps)


@dataclass(frozen=True)
class Outcome:
    """An epoch of a job."""

    times: Times
    size: float
    storage_s: float
    host_s: float


def outcome(of: Ladder, site: Site, k: int | None = None) -> Outcome:
    k = of.place(site) if k is None else k
    return Outcome(
        of.times(site, k), float(of.size[k]), float(of.storage_s[k]), float(of.host_s[k])
    )


class Job:
    """A data set's profile under every policy, ladders made once."""

    def __init__(self, samples: list[Sample], count: int | None = None) -> None:
        self._samples = samples
        self.count = count or len(samples)
        self._ladders: dict[str, Ladder] = {}

    def ladder(self, policy: str, site: Site) -> Ladder:
        """`fastflow` takes the whole line or nothing, whichever its coarse profile says is less to send."""
        if policy == "fastflow":
            policy = min(("none", "all"), key=lambda name: self.epoch(name, site).size)
        if policy not in self._ladders:
            self._ladders[policy] = ladder(self._samples, policy, self.count)
        return self._ladders[policy]

    def epoch(self, policy: str, site: Site) -> Outcome:
        return outcome(self.ladder(policy, site), site)
