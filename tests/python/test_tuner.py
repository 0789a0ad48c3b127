"""num_workers="auto": what it chooses, on a model of a loader instead of a clock."""

import math
import os
import weakref
from typing import Any

import pytest

from penstock.workers import Job, Workers, facade
from penstock.workers.tuner import Said, Tuner
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
        nbytes: int = 0,
    ) -> None:
        self.cores = cores
        self.nbytes = nbytes
        self.queued = queued  # seconds that others have the cores, of each batch's busy ones
        self.busy, self.asleep, self.handing, self.step = busy, asleep, handing, step

    def period(self, n_workers: int) -> float:
        """Seconds from batch to batch."""
        making = (self.busy + self.asleep) / n_workers
        computing = (self.busy + self.handing + self.step) / self.cores
        return max(making, computing, self.step + self.handing)

    def run(self, tuner: Tuner, n_batches: int = 2000) -> Tuner:
        tuner.begin(0.01)
        return self.go_on(tuner, n_batches)

    def go_on(self, tuner: Tuner, n_batches: int) -> Tuner:
        """In the same epoch."""
        for _ in range(n_batches):
            if tuner.is_inline:
                break
            period = self.period(tuner.n_workers)
            spent = period - self.step
            parts = (self.busy + self.asleep, self.busy, self.queued)
            cost = (round(parts[0] * 1e9), round(parts[1] * 1e9), round(parts[2] * 1e9))
            tuner.observe(period, spent, spent - self.handing, cost, self.nbytes)
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


class Locked(Model):
    """Batches that wait for one another: more workers help nobody."""

    def period(self, n_workers: int) -> float:
        return 0.02


def test_a_trial_that_does_not_pay_is_taken_back() -> None:
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


@pytest.mark.parametrize(
    ("before", "after", "n_workers"),
    [
        (Model(16, busy=0.02, step=0.03), Model(16, busy=0.3, step=0.03), (2, 4)),  # dearer items
        (Model(16, busy=0.02, step=0.03), Model(16, busy=0.02), (2, 4)),  # a quicker loop
        (Model(16, busy=0.05), Model(16, busy=0.05, step=0.2), (16, 2)),  # a slower one
        (Model(16, busy=0.05, step=0.006), Model(16, busy=0.002, step=0.006), (8, 2)),
    ],
)
def test_a_change_that_stays_is_answered_within_twenty_batches(
    before: Model, after: Model, n_workers: tuple[int, int]
) -> None:
    """Long before what is settled is looked at again anyway."""
    tuner = before.run(Tuner(16), 300)
    assert tuner.n_workers == n_workers[0]
    after.go_on(tuner, 20)
    assert tuner.n_workers == n_workers[1]


def test_what_changes_by_less_than_a_quarter_is_no_change() -> None:
    tuner = Locked(2, busy=0.001, asleep=0.02).run(Tuner(2), 100)
    for makes in (0.025, 0.018):
        assert not any(taken(tuner, makes) for _ in range(400))


def test_batches_that_are_late_now_and_then_are_no_change() -> None:
    tuner = Locked(2, busy=0.001, asleep=0.02).run(Tuner(2), 100)
    assert not any(taken(tuner, 0.2 if n % 3 == 0 else 0.021) for n in range(600))


def test_the_first_batches_of_an_epochs_workers_are_no_change() -> None:
    tuner = Locked(2, busy=0.001, asleep=0.02).run(Tuner(2), 100)
    for _ in range(20):
        tuner.begin(0.01)
        assert not any(taken(tuner, 0.2 if n < 4 else 0.021) for n in range(20))
        tuner.end()


def test_items_that_are_slow_and_quick_by_turns_are_tried_rarely() -> None:
    """Each turn is long enough to be believed once."""
    tuner = Locked(2, busy=0.001, asleep=0.02).run(Tuner(2), 100)
    n_trials = sum(taken(tuner, 0.04 if n % 60 < 30 else 0.02) for n in range(1200)) / 2
    assert 1 <= n_trials <= 4


def taken(tuner: Tuner, makes: float) -> bool:
    """One batch of a loop that waits 20 ms for each, whatever it takes to make; was that news?"""
    return tuner.observe(0.02, 0.02, 0.0199, (round(makes * 1e9), 1_000_000, 0))


class Copies(Model):
    """Batches that are made as fast as memory allows, however many make them."""

    def period(self, n_workers: int) -> float:
        return max(0.7 * self.busy, self.step + self.handing)


def test_large_batches_that_cost_only_memory_are_made_inline() -> None:
    assert Copies(2, busy=0.01, nbytes=24 << 20).run(Tuner(2)).is_inline


@pytest.mark.parametrize(
    "batch",
    [
        {"busy": 0.01, "nbytes": 1 << 20},  # they cost more than that
        {"busy": 0.01, "nbytes": 24 << 20, "step": 0.01},  # the loop computes beside
    ],
)
def test_large_batches_are_left_to_workers_where_those_help(batch: dict[str, Any]) -> None:
    assert not Copies(2, **batch).run(Tuner(2)).is_inline


def test_large_batches_are_left_to_workers_that_share_the_work() -> None:
    assert not Model(8, busy=0.01, nbytes=24 << 20).run(Tuner(8)).is_inline


@pytest.mark.parametrize(("busy", "nbytes"), [(0.0001, 0), (0.01, 24 << 20)])
def test_workers_that_must_be_there_stay(busy: float, nbytes: int) -> None:
    """They are initialised, or ended when they are late."""
    tuner = Copies(2, busy=busy, nbytes=nbytes).run(Tuner(2, can_leave=False))
    tuner.end()
    assert not tuner.is_inline


def test_no_more_are_tried_than_memory_holds() -> None:
    said: list[Said] = []
    tuner = Tuner(2, say=said.append, fits=lambda n_workers: min(n_workers, 5))
    assert Model(2, busy=0.0005, asleep=0.08).run(tuner).n_workers == 5
    assert [one.n_workers for one in said] == [4, 5, 5]
    assert said[1].reason.endswith(", memory holds 5 workers and not 8")


def test_workers_that_are_there_stay_where_memory_holds_fewer() -> None:
    said: list[Said] = []
    tuner = Tuner(4, say=said.append, fits=lambda n_workers: 1)
    assert Model(4, busy=0.0005, asleep=0.08).run(tuner).n_workers == 4
    (one,) = said
    assert one.reason.startswith("4 workers stay: the loop waits ")
    assert one.reason.endswith(", memory holds 4 workers and not 8")


# --- real workers ---


@pytest.mark.parametrize(
    ("held", "left", "n_workers"),
    [
        (200, 250, 3),  # two of 200 each, and one more
        (200, 1200, 8),
        (200, 1199, 7),
        (200, 0, 2),
        (200, math.inf, 8),
        (None, 0, 8),  # nobody tells how large they are
    ],
)
def test_workers_fit_if_each_is_as_large_as_one_there_is(
    held: int | None, left: float, n_workers: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = Workers(Job(Items(int)), 2)
    monkeypatch.setattr(Workers, "pids", {0: 11, 1: 12})
    for sizes in ("memory_of", "resident_of"):  # whoever has that number here is none of ours
        monkeypatch.setattr(facade, sizes, lambda pids: held if pids == [11] else 0)
    monkeypatch.setattr(facade, "memory_left", lambda: left)
    assert workers.fits(8) == n_workers
    assert workers._tuner is not None
    assert workers._tuner._fits(8) == n_workers, "the tuner asks"


def test_a_tuner_does_not_keep_its_workers_alive() -> None:
    workers = Workers(Job(Items(int)), "auto")
    assert workers._tuner is not None
    fits, there = workers._tuner._fits, weakref.ref(workers)
    del workers
    assert there() is None
    assert fits(7) == 7


def test_what_was_made_inline_is_never_left_to_workers_that_inherit_it() -> None:
    """Neither by pinning nor by an epoch that begins anew."""
    workers = Workers(Job(Items(lambda index: (index, os.getpid()))), "auto")
    try:
        next(workers.epoch(plan(5)))
        assert workers._tuner is not None
        workers._tuner._go_inline()
        assert workers.num_workers in (0, 2)  # until the next batch
        assert workers.worker_range == (0, 0)
        with pytest.raises(ValueError, match="0 to 0"):
            workers.resize(2)
        for batch in workers.epoch(plan(5), epoch=1):
            assert all(pid == os.getpid() for _, pid in batch)
        assert workers.num_workers == 0
    finally:
        workers.close()


@pytest.mark.parametrize(("init", "timeout"), [(print, 0), (None, 30)])
def test_items_that_need_workers_are_not_made_inline(init: Any, timeout: float) -> None:
    workers = Workers(Job(Items(float), worker_init=init), "auto", timeout=timeout)
    assert workers._tuner is not None
    workers._tuner.begin(1.0)
    workers._tuner.observe(0.001, 0.001, 0.001, (1000, 1000, 0))
    workers._tuner.end()
    assert workers.num_workers > 0


def test_an_interrupt_in_a_batch_made_inline_does_not_look_like_the_end() -> None:
    def make(index: int) -> int:
        if index == 14:
            raise KeyboardInterrupt
        return index

    workers = Workers(Job(Items(make)), "auto")
    stream = workers.epoch(plan(5))
    assert workers._tuner is not None
    workers._tuner._go_inline()
    try:
        with pytest.raises(KeyboardInterrupt):
            for _ in stream:
                pass
        with pytest.raises(RuntimeError, match="interrupted"):
            next(stream)
    finally:
        workers.close()


@pytest.mark.parametrize("n_batches", [12, 20, 30, 40, 100])
def test_a_trial_ends_also_where_epochs_are_short(n_batches: int) -> None:
    """Sleeping batches from a server that serves eight at once."""
    tuner = Tuner(4)
    for _ in range(60):
        tuner.begin(0.01)
        for _ in range(n_batches):
            period = 0.1 / min(tuner.n_workers, 8)
            slept = round(0.1e9 * max(1, tuner.n_workers / 8))
            tuner.observe(period, period, period, (slept, 10_000_000, 0), 1000)
        tuner.end()
    assert tuner.n_workers <= 8
