"""Knobs, policies, counters and the verdict of loaders whose batches worker processes make."""

import hashlib
import os
import random
import threading
import time
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
import torch
from torch.utils import data

from penstock.torch import DataLoader
from penstock.workers import decisions
from penstock.workers.meter import Control, Meter, Recent, Sums, variation
from penstock.workers.settings import Settings
from penstock.workers.tuner import Tuner


class Drawn(data.Dataset):
    """Items that draw from every generator, so that whoever makes them in another way shows."""

    def __init__(self, count: int = 300) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> Any:
        return torch.rand(7) + random.random(), index


class Sleepy(Drawn):
    def __getitem__(self, index: int) -> Any:
        time.sleep(0.002)
        return super().__getitem__(index)


class Streamed(data.IterableDataset):
    def __iter__(self) -> Iterator[Any]:
        worker = data.get_worker_info()
        for number in range(200):
            yield worker.id if worker else 0, number, torch.rand(3)


def digest(batches: Iterable[Any]) -> str:
    found = hashlib.sha256()
    for batch in batches:
        for part in batch:
            found.update(part.numpy().tobytes())
    return found.hexdigest()


def make(dataset: Any = None, **options: Any) -> DataLoader:
    settings = {"batch_size": 2, "shuffle": True, "seed": 3} | options
    return DataLoader(dataset or Drawn(), **settings)


@pytest.fixture
def loader() -> Iterator[DataLoader]:
    with make(num_workers=2) as loader:
        yield loader


def test_there_are_none_before_the_first_iteration(loader: DataLoader) -> None:
    with pytest.raises(RuntimeError, match="before the first iteration"):
        _ = loader.knobs


def test_knobs_are_attributes_and_a_mapping(loader: DataLoader) -> None:
    batches = iter(loader)
    next(batches)
    knobs = loader.knobs
    assert knobs.keys() == ["workers", "ready_batches"]
    assert dict(knobs)["workers"] == knobs["workers"] == knobs.workers == 2
    knobs.ready_batches = 3
    assert knobs.ready_batches == 3 and "ready_batches=3 (pinned)" in repr(knobs)
    for wrong in (0, 257, 1.5):
        with pytest.raises(ValueError, match="workers must be 1 to 256 here"):
            knobs.workers = wrong
    with pytest.raises(ValueError, match="ready_batches must be 1 to"):
        knobs.set(workers=1, ready_batches=0)
    assert knobs.workers == 2, "all or none"
    with pytest.raises(AttributeError, match="no knob 'shares'"):
        knobs.shares = (1, 0, 0, 0)
    assert knobs.shares is None


def test_what_is_asked_for_is_pinned_and_auto_releases(loader: DataLoader) -> None:
    next(iter(loader))
    table = loader.knobs.table()
    assert table["workers"].is_pinned and not table["ready_batches"].is_pinned
    assert (table["workers"].unit, table["workers"].max) == ("processes", 256)
    loader.knobs.set(workers="auto", ready_batches=5)
    table = loader.knobs.table()
    assert not table["workers"].is_pinned and table["ready_batches"].is_pinned
    loader.knobs.ready_batches = "auto"
    assert not loader.knobs.table()["ready_batches"].is_pinned
    with make(num_workers=2, prefetch_factor=3) as other:
        next(iter(other))
        assert other.knobs.table()["ready_batches"].is_pinned


def test_the_next_batch_finds_other_workers(loader: DataLoader) -> None:
    batches = iter(loader)
    next(batches)
    assert loader._engine is not None
    loader.knobs.workers = 5
    next(batches)
    assert loader._engine._workers._pool.n_workers == 5  # type: ignore[attr-defined]
    assert [one["changed"] for one in loader.status()["decisions"]] == [{"workers": [2, 5]}]
    del batches
    next(iter(loader))
    assert loader.knobs.workers == 5, "it stays, in later epochs too"


class Transformed(Drawn):
    def __init__(self, count: int) -> None:
        super().__init__(count)
        self.transform = float

    def __getitem__(self, index: int) -> Any:
        return torch.full((1 << 12,), self.transform(index))


@pytest.mark.parametrize("persistent", [False, True])
def test_a_dataset_that_changes_leaves_pins_and_counters(persistent: bool) -> None:
    dataset = Transformed(8)
    with make(dataset, num_workers=2, shuffle=False, persistent_workers=persistent) as loader:
        assert sum(float(batch.sum()) for batch in loader) == 28 << 12
        loader.knobs.set(workers=3, ready_batches=5)
        dataset.transform = lambda index: -float(index)  # type: ignore[assignment]
        assert sum(float(batch.sum()) for batch in loader) == -28 << 12
        assert loader.stats()["batches"] == 8 and loader.knobs.workers == 3
        table = loader.knobs.table()
        assert table["workers"].is_pinned and table["ready_batches"].is_pinned
        assert loader.knobs.ready_batches == 5
        loader.num_workers, dataset.transform = 1, float
        assert len(list(loader)) == 4
        assert loader.knobs.workers == 1, "what is asked for anew holds"


@pytest.mark.parametrize(("asked", "persistent"), [("auto", True), (2, False)])
def test_turned_at_random_the_stream_stays(asked: Any, persistent: bool) -> None:
    with make(num_workers=0) as plain:
        want = [digest(plain) for _ in range(2)]
    draws, n_turns = random.Random(5), [0]
    with make(num_workers=asked, persistent_workers=persistent) as loader:
        for epoch in range(2):
            assert digest(_turned(loader, draws, n_turns)) == want[epoch]
    assert n_turns[0] >= 1000


def _turned(loader: DataLoader, draws: random.Random, n_turns: list[int]) -> Iterator[Any]:
    """The pool sees the last turn between two batches; the knobs see all of them."""
    for batch in loader:
        knobs = loader.knobs
        for _ in range(4):
            knobs.workers = draws.choice([1, 2, 3, 4, "auto"])
            knobs.ready_batches = draws.choice([1, 2, 3, 9, 40, "auto"])
            loader.policy = draws.choice(["fixed", "rules", "hillclimb", "model"])
            n_turns[0] += 1
        yield batch


def test_another_thread_turns_them_while_the_loop_waits() -> None:
    with make(num_workers=0) as plain:
        want = digest(plain)
    with make(Sleepy(), num_workers=2) as loader:
        batches = iter(loader)
        first = next(batches)
        is_over = threading.Event()
        turns = threading.Thread(target=_turn, args=(loader, is_over))
        turns.start()
        try:
            assert digest([first, *batches]) == want
        finally:
            is_over.set()
            turns.join()


def _turn(loader: DataLoader, is_over: threading.Event) -> None:
    draws = random.Random(6)
    while not is_over.wait(0.001):
        loader.knobs.set(workers=draws.randint(1, 5), ready_batches=draws.randint(1, 12))
        loader.status()


def test_where_their_number_is_part_of_the_stream_it_cannot_be_turned() -> None:
    options = {"num_workers": 2, "shuffle": None, "seed": None}
    torch.manual_seed(1)
    want = digest(make(Streamed(), **options))
    torch.manual_seed(1)
    with make(Streamed(), **options) as loader:
        draws, seen = random.Random(7), []
        for batch in loader:
            seen.append(batch)
            loader.knobs.ready_batches = draws.choice([1, 2, 5, 8, "auto"])
            with pytest.raises(ValueError, match="workers must be 2 to 2 here"):
                loader.knobs.workers = 3
        assert digest(seen) == want
        assert loader.knobs.table()["workers"].is_pinned


def test_a_sampler_of_torch_is_asked_no_further_ahead_than_torch_would() -> None:
    with make(order="torch", seed=None, num_workers=2, prefetch_factor=3) as loader:
        next(iter(loader))
        assert loader.knobs.table()["ready_batches"].max == 6


def test_in_the_callers_process_there_is_nothing_to_turn() -> None:
    with make(num_workers=0) as loader:
        for _ in loader:
            pass
        assert dict(loader.knobs) == {"workers": 0, "ready_batches": 0}
        with pytest.raises(ValueError, match="workers must be 0 to 0 here"):
            loader.knobs.workers = 1
        stats = loader.stats()
        assert stats["batches"] == stats["batches_inline"] == len(loader)
        assert stats["make_ns"] == stats["wait_ns"]
        assert "made in this process" in loader.verdict()
        assert "num_workers='auto'" in loader.verdict()


def test_fixed_holds_the_number() -> None:
    with make(Sleepy(), policy="fixed") as loader:  # the tuner would try more
        first = None
        for _ in loader:
            first = first or loader.knobs.workers
            assert loader.knobs.workers == first
        assert not loader.knobs.table()["workers"].is_pinned
        assert loader.status()["policy"] == "fixed"


def test_a_tuner_that_is_held_changes_nothing_and_begins_again_when_released() -> None:
    tuner, settings = Tuner(2), Settings(None, 1 << 30)
    tuner.begin(0.0)
    settings.is_held = True
    tuner.follow(settings, 2)
    sleeps = (100_000_000, 1_000_000, 0)
    assert not any(tuner.observe(0.05, 0.05, 0.05, sleeps) for _ in range(100))
    tuner.end()
    assert not tuner.is_inline
    settings.is_held, settings.n_workers = False, 3
    tuner.follow(settings, 3)
    assert not any(tuner.observe(0.05, 0.05, 0.05, sleeps) for _ in range(100))
    settings.n_workers = None
    tuner.follow(settings, 3)
    assert any(tuner.observe(0.05, 0.05, 0.05, sleeps) for _ in range(100))
    assert tuner.n_workers == 6


def test_what_is_told_is_what_happened() -> None:
    with make(Sleepy(40), num_workers=2, batch_size=4) as loader:
        for _ in loader:
            assert loader.stats()["open"] <= loader.knobs.ready_batches
        stats, told, status = loader.stats(), loader.telemetry(), loader.status()
    assert stats["batches"] == 10 and stats["workers"] == 2
    assert stats["make_ns"] >= 40 * 2_000_000
    parts = stats["compute_ns"] + stats["queue_ns"] + stats["sleep_ns"]
    assert stats["make_ns"] == parts
    # Not to the millisecond: what a running thread has computed is known as of its last tick.
    assert stats["compute_ns"] < stats["make_ns"] / 2
    assert stats["wait_ns"] >= stats["first_batch_ns"] >= 4 * 2_000_000
    assert stats["samples"] == told["samples"] == status["samples"] == 40
    assert told["bytes_out"] == stats["bytes_out"] > 0 and told["bytes_in"] is None
    for name in ("make", "wait", "step"):
        assert told["stages"][name]["variation"] >= 0
    assert told["stages"]["make"]["count"] == 10
    assert told["stages"]["make"]["p50_s"] >= 0.008
    assert told["stages"]["wait"]["count"] == 10 and told["stages"]["step"]["count"] == 9
    assert 0 <= told["wait_share"] <= 1
    assert status["knobs"]["workers"]["pinned"] and status["verdict"].startswith("training waits")
    assert "<table>" in loader._repr_html_()


@pytest.mark.parametrize(
    ("dataset", "options", "n_samples"),
    [
        (Drawn(9), {"num_workers": 0}, 9),
        (Drawn(9), {"num_workers": 2}, 9),
        (Drawn(9), {"num_workers": 2, "batch_size": None}, 9),
        (Streamed(), {"num_workers": 1, "shuffle": None, "seed": None, "batch_size": None}, 200),
        (Streamed(), {"num_workers": 1, "shuffle": None, "seed": None, "batch_size": 7}, None),
        (Streamed(), {"num_workers": 0, "shuffle": None, "seed": None, "batch_size": 7}, None),
    ],
)
def test_samples_are_counted_where_they_are_known(
    dataset: Any, options: dict[str, Any], n_samples: int | None
) -> None:
    """The last batch of an iterable dataset may be short, and its maker does not say."""
    with make(dataset, **options) as loader:
        for _ in loader:
            pass
        assert loader.telemetry()["samples"] == loader.stats().get("samples") == n_samples


def test_variation_is_deviation_over_mean() -> None:
    assert variation([]) is None
    assert variation([7, 7, 7]) == variation([0, 0]) == 0
    assert variation([10, 30]) == 0.5


def test_memory_is_what_batches_take() -> None:
    class Large(Drawn):
        def __getitem__(self, index: int) -> Any:
            return torch.zeros(1 << 16)

    with make(Large(40), num_workers=2) as loader:
        kept = [batch for batch, _ in zip(loader, range(10), strict=False)]
        del kept
        batches = iter(loader)
        held = next(batches)
        assert loader.stats()["budget_used"] >= held.nbytes
        assert loader.telemetry()["workers_pss_bytes"] is None or (
            loader.telemetry()["workers_pss_bytes"] > 0
        )


# Control


def burn(*_: Any) -> bool:
    """Two milliseconds of this thread's processor time."""
    begin = time.thread_time_ns()
    while time.thread_time_ns() - begin < 2_000_000:
        pass
    return False


@pytest.mark.parametrize("who", ["tuner", "log", "display"])
def test_what_control_computes_is_told(
    who: str, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decisions, "PERIOD_SECONDS", 0)
    if who == "log":
        monkeypatch.setattr(decisions.DecisionLog, "_write", burn)
    options = {"num_workers": 2, "decision_log": tmp_path / "log"}
    with make(Drawn(24), **options) as loader:
        for _ in loader:
            workers = loader._engine._workers  # type: ignore[union-attr]
            if who == "tuner":
                workers._tuner.observe = burn
            elif who == "display":
                workers.meter.each_while, workers.meter._while = burn, 1
        assert loader.stats()["control_ns"] >= 10 * 2_000_000


def test_control_is_what_lies_between_its_beginning_and_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, control = 7, Control()
    monkeypatch.setattr(time, "thread_time_ns", lambda: now)
    control.end()  # nothing was begun
    control.begin()
    now += 10
    control.begin()
    now += 10
    control.end()
    assert control.ns == 20
    control.begin()
    now += 10
    control.void()
    control.end()
    assert control.ns == 20


def test_quick_batches_made_here_are_counted_unseen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Looking at the clock would take as long as counting does."""
    now, looks = 0, []
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    monkeypatch.setattr(time, "thread_time_ns", lambda: looks.append(1) or 0)
    meter = Meter()
    for spent in 50 * [1000] + 3 * [1_000_000]:
        meter.begin()
        now += spent
        meter.end()
        meter.control.end()
    assert len(looks) == 2 * 3


# The parts


def test_the_meter_adds_up(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    monkeypatch.setattr(time, "process_time_ns", lambda: 2 * now)
    meter = Meter()
    second = 1_000_000_000
    for number in range(30):
        meter.begin()
        now += second  # waits a second
        if number % 2:
            meter.made((5 * second, 3 * second, second), 100, 4)
        meter.end()
        now += 3 * second
    sums = meter.sums()
    assert (sums.batches, sums.inline, sums.nbytes) == (30, 15, 1500)
    assert meter.first_ns == second and sums.wait == 29 * second and sums.step == 29 * 3 * second
    assert sums.make == 15 * 5 * second + 15 * second
    assert sums.queue == 15 * second and sums.compute == 15 * 2 * second + 15 * second
    assert sums.crew == 15 * 4 * 4 * second
    assert sums.wait_share == 0.25
    recent = meter.recent()
    assert 2 <= recent.batches <= 3 and recent.wait_share == 0.25
    assert meter.wait_shares() == [0.25] * 29
    meter.rest()
    meter.begin()
    meter.end()
    assert meter.sums().step == sums.step, "what lies between two epochs is no step"
    assert Sums().wait_share is None


def test_what_all_threads_compute_here_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    now, second = 0, 1_000_000_000
    monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
    monkeypatch.setattr(time, "process_time_ns", lambda: 2 * now)
    meter = Meter()
    for _ in range(3):
        meter.begin()
        now += second
        meter.end()
    sums = meter.sums()
    assert sums.make == 3 * second and sums.sleep == 0
    assert sums.compute == 5 * second, "the first one before anybody asked for it"


def test_what_ends_in_an_error_is_no_batch() -> None:
    meter = Meter()
    for number in range(4):
        meter.begin()
        if number == 1:
            meter.made((9, 9, 0), 100, 2)
        meter.end(is_error=number < 3)
    sums = meter.sums()
    assert (sums.batches, sums.inline, len(meter.makes)) == (1, 1, 2)
    assert len(meter.waits) == 3, "they were waited for"


def test_a_worker_that_dies_makes_no_batch_here() -> None:
    class Deadly(Drawn):
        def __getitem__(self, index: int) -> Any:
            if index == 4:
                os._exit(3)
            return super().__getitem__(index)

    with make(Deadly(8), num_workers=1, shuffle=False) as loader:
        batches, n_errors = iter(loader), 0
        for _ in range(4):
            try:
                next(batches)
            except RuntimeError:
                n_errors += 1
        stats = loader.stats()
        assert (n_errors, stats["batches"], stats["batches_inline"]) == (1, 3, 0)


def test_making_batches_here_shows_though_workers_come_back() -> None:
    meter = Meter()
    for n_workers in (2, 2, 0, 0, 2):
        meter.begin()
        if n_workers:
            meter.made((1, 1, 0), 100, n_workers)
        meter.end()
    assert [(one.before, one.after) for one in meter.changes] == [(2, 0), (0, 2)]


def idle_workers(loader: DataLoader) -> str:
    """What is advised where batches are late and workers idle all the same."""
    sums = Sums(batches=9, wait=10**9, step=10**9, make=10, busy=10, crew=10**9)
    return loader._figures()._advice(sums)  # type: ignore[union-attr]


def test_what_is_advised_can_be_done() -> None:
    with make(num_workers=2) as loader:
        next(iter(loader))
        assert "next step: ready_batches=6" in idle_workers(loader)
        loader.knobs.ready_batches = 1024
        assert "next step: a steadier step" in idle_workers(loader)
    with make(order="torch", seed=None, num_workers=2, prefetch_factor=3) as loader:
        next(iter(loader))
        assert "next step: prefetch_factor=4" in idle_workers(loader)
    with make(num_workers=2, memory_budget=200) as loader:
        next(iter(loader))
        assert "next step: a larger memory_budget" in idle_workers(loader)


def test_batches_that_became_dearer_since_workers_were_given_up_are_told() -> None:
    with make(num_workers="auto") as loader:
        next(iter(loader))
        tuner = loader._engine._workers._tuner  # type: ignore[union-attr]
        tuner.begin(0.0)
        while not tuner.is_inline:  # next() takes 1 ms, making one 0.5
            tuner.observe(0.001, 0.001, 0.001, (500_000, 500_000, 0))
        cheap = Sums(batches=9, wait=10**7, step=10**6, make=9 * 500_000, inline=9)
        account = loader._figures()
        assert "handing them over would take as long" in account._advice(cheap)  # type: ignore[union-attr]
        dear = cheap._replace(make=9 * 5_000_000)
        assert "next step: a new loader" in account._advice(dear)  # type: ignore[union-attr]


def test_the_verdict_tells_the_last_seconds_from_the_whole_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with make(num_workers=2) as loader:
        next(iter(loader))
        assert "too early" in loader.verdict()
        now = time.perf_counter_ns()
        meter = loader._engine._workers.meter  # type: ignore[union-attr]
        monkeypatch.setattr(time, "perf_counter_ns", lambda: now)
        second = 1_000_000_000
        for number in range(60):
            meter.begin()
            now += second * (9 if number < 30 else 1)
            meter.made((second, second, 0), 100, 2)
            meter.end()
            now += second
        assert loader.verdict().startswith("training waits 50 % of the time (8")


def test_batches_that_sleep_in_the_callers_process_do_not_compute() -> None:
    with make(Sleepy(40), num_workers=0) as loader:
        for _ in loader:
            pass
        stats = loader.stats()
    # All but the first, before which nobody knew; and the kernel counts time on a core in ticks.
    assert stats["sleep_ns"] >= 19 * 2_000_000


def test_the_last_times_are_kept_oldest_first():
    recent = Recent(4)
    assert list(recent) == [] and len(recent) == 0
    for value in range(10, 13):
        recent.append(value)
    assert list(recent) == [10, 11, 12] and len(recent) == 3
    for value in range(13, 20):
        recent.append(value)
    assert list(recent) == [16, 17, 18, 19] and len(recent) == 4
