"""num_workers="auto": what it chooses, on a model of a loader instead of a clock."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch

from penstock.workers import Job, Workers
from penstock.workers.limits import usable_cores
from penstock.workers.tuner import Tuner
from worker_checks import Items, plan


class Model:
    """A loop that takes batches as fast as they come, unless it computes something itself."""

    def __init__(
        self,
        cores: int,
        busy: float,
        asleep: float = 0,
        handing: float = 0.0001,
        step: float = 0,
        queued: float = 0,
        inline: float = 0,
    ) -> None:
        self.cores = cores
        self.inline = inline  # seconds that a batch takes without workers, if that differs
        self.queued = queued  # seconds that others have the cores, of each batch's busy ones
        self.busy, self.asleep, self.handing, self.step = busy, asleep, handing, step

    def period(self, n_workers: int) -> float:
        """Seconds from batch to batch."""
        making = (self.busy + self.asleep) / n_workers
        computing = (self.busy + self.handing + self.step) / self.cores
        return max(making, computing, self.step + self.handing)

    def run(self, tuner: Tuner, n_batches: int = 2000) -> Tuner:
        tuner.begin(0.01)
        for _ in range(n_batches):
            if tuner.is_for_good:
                break
            if tuner.is_inline:
                making = self.inline if self.inline else self.busy + self.asleep
                tuner.observe(making + self.step, making, making, (round(making * 1e9),) * 2 + (0,))
                continue
            period = self.period(tuner.n_workers)
            spent = period - self.step
            parts = (self.busy + self.asleep, self.busy, self.queued)
            cost = (round(parts[0] * 1e9), round(parts[1] * 1e9), round(parts[2] * 1e9))
            tuner.observe(period, spent, spent - self.handing, cost)
        return tuner


@pytest.mark.parametrize("cores", [1, 2, 8])
def test_cheap_batches_stay_inline(cores: int) -> None:
    assert Model(cores, busy=0.0001).run(Tuner(cores)).is_inline


@pytest.mark.parametrize("cores", [2, 4, 16])
def test_heavy_batches_get_a_worker_a_core(cores: int) -> None:
    tuner = Model(cores, busy=0.05).run(Tuner(cores))
    assert not tuner.is_inline
    assert tuner.n_workers == cores


def test_it_begins_with_a_worker_a_core_and_tries_no_more_where_they_compute() -> None:
    tuner = Tuner(2)
    seen = set()

    class Watched(Model):
        def period(self, n_workers: int) -> float:
            seen.add(n_workers)
            return super().period(n_workers)

    Watched(2, busy=0.05).run(tuner)
    assert seen == {2}


def test_more_are_tried_and_kept_where_others_want_the_cores_too() -> None:
    class Shared(Model):
        """Another program has as many processes as there are cores."""

        def period(self, n_workers: int) -> float:
            return self.busy / (self.cores * n_workers / (n_workers + self.cores))

    assert Shared(2, busy=0.05, queued=0.025).run(Tuner(2)).n_workers == 4
    assert Model(2, busy=0.05, queued=0.025).run(Tuner(2)).n_workers == 2


def test_sleepy_batches_get_more_workers_than_cores() -> None:
    assert Model(2, busy=0.0005, asleep=0.08).run(Tuner(2)).n_workers >= 16


def test_no_more_workers_than_the_loop_needs() -> None:
    """The loop takes 30 ms of its own; two workers make 20 ms batches in time."""
    assert Model(16, busy=0.02, step=0.03).run(Tuner(16)).n_workers == 2


def test_a_trial_that_does_not_pay_is_taken_back() -> None:
    """Batches that wait for one another: more workers help nobody."""

    class Locked(Model):
        def period(self, n_workers: int) -> float:
            return 0.02

    assert Locked(8, busy=0.001, asleep=0.02).run(Tuner(8)).n_workers == 2


def test_short_epochs_are_not_worth_processes() -> None:
    tuner = Tuner(2)
    model = Model(2, busy=0.0005)
    tuner.begin(0.04)
    for _ in range(3):
        tuner.observe(0.001, 0.001, 0.0009, (round(model.busy * 1e9), round(model.busy * 1e9), 0))
    tuner.end()
    assert tuner.is_inline


def test_a_trial_at_most_doubles_the_workers() -> None:
    seen = []

    class Watched(Model):
        def period(self, n_workers: int) -> float:
            seen.append(n_workers)
            return super().period(n_workers)

    Watched(64, busy=0.05).run(Tuner(64))
    assert sorted(set(seen)) == [8, 16, 32, 64]
    seen.clear()
    Watched(2, busy=0.0005, asleep=0.08).run(Tuner(2))
    assert sorted(set(seen)) == [2, 4, 8, 16]


@pytest.mark.parametrize("n_epochs", [1, 50])
def test_what_is_settled_is_looked_at_again_however_short_the_epochs(n_epochs: int) -> None:
    """The loop needed two workers, and 40 s later it needs more."""
    tuner = Model(16, busy=0.02, step=0.03).run(Tuner(16))
    assert tuner.n_workers == 2
    quick = Model(16, busy=0.02)
    for _ in range(n_epochs):
        quick.run(tuner, 10000 // n_epochs)
    assert tuner.n_workers == 16


def test_a_loop_that_only_takes_tries_without_workers_and_stays_if_that_is_no_slower() -> None:
    """A library that uses both cores for one batch: then processes bring nothing."""
    tuner = Model(2, busy=0.012, inline=0.006).run(Tuner(2, can_return=True))
    assert tuner.is_inline
    assert not tuner.is_for_good


def test_workers_return_from_a_trial_without_them_that_is_slower() -> None:
    tuner = Model(2, busy=0.012).run(Tuner(2, can_return=True))
    assert not tuner.is_inline
    assert tuner.n_workers == 2


def test_workers_return_when_the_loop_begins_to_compute() -> None:
    tuner = Model(2, busy=0.012, inline=0.006).run(Tuner(2, can_return=True))
    assert tuner.is_inline
    Model(2, busy=0.012, inline=0.006, step=0.02).run(tuner)
    assert not tuner.is_inline


@pytest.mark.parametrize("other", [{"step": 0.02}, {"asleep": 0.02}, {"handing": 0.0}])
def test_nothing_is_tried_without_workers_that_cannot_pay_or_be_undone(
    other: dict[str, float],
) -> None:
    """The loop computes; batches sleep; workers cannot be called back."""

    class Never(Model):
        @property
        def inline(self) -> float:
            raise AssertionError("made without workers")

        @inline.setter
        def inline(self, seconds: float) -> None:
            pass

    Never(2, busy=0.012, **other).run(Tuner(2, can_return="handing" not in other))


# --- cores ---


@pytest.fixture
def sixteen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: set(range(16)))


def write(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


V1 = "sys/fs/cgroup/cpu/cpu.cfs_"


@pytest.mark.usefixtures("sixteen")
@pytest.mark.parametrize(
    ("files", "n_cores"),
    [
        ({}, 16),
        ({"sys/fs/cgroup/cpu.max": "max 100000\n"}, 16),
        ({"sys/fs/cgroup/cpu.max": "200000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "150000 100000\n"}, 2),
        ({"sys/fs/cgroup/cpu.max": "1000 100000\n"}, 1),
        ({"sys/fs/cgroup/cpu.max": "9900000 100000\n"}, 16),
        ({"sys/fs/cgroup/a/b/cpu.max": "max 100000\n", "sys/fs/cgroup/a/cpu.max": "300000 100000\n"}, 3),
        ({"sys/fs/cgroup/unified/a/cpu.max": "400000 100000"}, 4),
        ({f"{V1}quota_us": "-1\n", f"{V1}period_us": "100000\n"}, 16),
        ({f"{V1}quota_us": "500000\n", f"{V1}period_us": "100000\n"}, 5),
        ({"sys/fs/cgroup/cpu/c/cpu.cfs_quota_us": "600000", "sys/fs/cgroup/cpu/c/cpu.cfs_period_us": "100000"}, 6),
        ({f"{V1}quota_us": "500000\n"}, 16),
        ({f"{V1}quota_us": "500000\n", f"{V1}period_us": "0\n"}, 16),
        ({"sys/fs/cgroup/cpu.max": ""}, 16),
        ({"sys/fs/cgroup/cpu.max": "-5 x \0"}, 16),
        ({"sys/fs/cgroup/cpu.max": "9" * 9000}, 16),
        ({"sys/fs/cgroup/cpu.max": "9" * 4000 + " 1"}, 16),
        ({"proc/self/cgroup": "a\n0\n::\n0::/\0\n", "sys/fs/cgroup/cpu.max": "200000 100000"}, 2),
    ],
)  # fmt: skip
def test_cores_are_those_of_the_quota(files: dict[str, str], n_cores: int, tmp_path: Path) -> None:
    groups = {"proc/self/cgroup": "4:cpu,cpuacct:/c\n3:memory:/m\n0::/a/b\n"}
    assert usable_cores(write(tmp_path, groups | files)) == n_cores


def test_cores_are_found_on_this_machine() -> None:
    assert 1 <= usable_cores() <= len(os.sched_getaffinity(0))


# --- real workers ---


class Restless(Tuner):
    """Sends workers away and calls them back after every few batches."""

    def __init__(self) -> None:
        super().__init__(2, can_return=True)
        self.n_seen = 0
        self.turns: list[bool] = []

    def observe(self, *_: Any) -> bool:
        self.n_seen += 1
        if self.n_seen % 5:
            return False
        self.is_inline = not self.is_inline
        self.turns.append(self.is_inline)
        return True


def test_workers_that_leave_and_return_change_nothing_and_inherit_nothing() -> None:
    """Over several epochs, some of which begin without workers."""
    here = os.getpid()
    makers: list[int] = []

    def make(index: int) -> tuple[torch.Tensor, int, int]:
        makers.append(os.getpid())
        return torch.full((64, 64), float(index)), os.getpid(), makers.count(here)

    workers = Workers(Job(Items(make)), "auto", persistent=True)
    tuner = workers._tuner = Restless()
    by_whom = []
    try:
        for epoch in range(3):
            for number, batch in enumerate(workers.epoch(plan(23), epoch=epoch)):
                for place, (tensor, pid, inherited) in enumerate(batch):
                    assert torch.equal(tensor, torch.full((64, 64), float(number * 4 + place)))
                    assert pid == here or inherited == 0
                    by_whom.append(pid == here)
            if tuner.is_inline:
                assert workers.num_workers == 0
    finally:
        workers.close()
    assert len(by_whom) == 3 * 23 * 4
    assert 20 < sum(by_whom) < len(by_whom) - 20
    assert len(tuner.turns) > 6
