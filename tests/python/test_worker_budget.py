"""The memory budget of worker processes: what it holds, also where batches grow."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from penstock.workers import Job, Workers
from penstock.workers.settings import AHEAD_BYTES, Settings
from worker_checks import Items, plan


def test_the_window_follows_what_was_asked_for_and_the_budget() -> None:
    free = Settings(None, budget=1 << 30)
    assert free.window(4, in_turn=False) == 4, "nobody knows how large a batch is"
    free.saw(1000)
    assert free.window(4, in_turn=False) == 8
    free.saw(AHEAD_BYTES)
    assert free.window(4, in_turn=False) == 5
    free.n_ready = 20
    assert free.window(4, in_turn=False) == 20
    free.saw(1 << 28)
    assert free.window(4, in_turn=False) == 4, "memory is a hard limit"
    asked = Settings(3, budget=1 << 30)
    asked.saw(1000)
    assert asked.window(4, in_turn=False) == asked.window(4, in_turn=True) == 12


def grown(index: int) -> torch.Tensor:
    """Items of 100 kB, and after some of 5 MB."""
    return torch.zeros((25 << 10) if index < 16 else (5 << 18))


def all_made(pool: Any) -> int:
    """Wait until workers have made all they were asked for: bytes of what waits to be taken."""
    while True:
        pool._receive()
        tasks = pool._tasks.values()
        if all(task.is_done for task in tasks):
            return sum(task.result.held_bytes for task in tasks)
        time.sleep(0.001)


def test_a_budget_holds_where_batches_grow() -> None:
    """What has arrived counts at once: its turn may be 15 batches later."""
    budget = 11 << 20
    workers = Workers(Job(Items(grown)), 4, prefetch_factor=4, memory_budget=budget)
    stream, n_taken = workers.epoch(plan(40, 1)), 0
    for _ in stream:
        n_taken += 1
        assert all_made(workers._pool) <= budget
    assert n_taken == 40
    workers.close()


def test_a_batch_beyond_the_budget_is_made_alone() -> None:
    workers = Workers(Job(Items(grown)), 4, memory_budget=1 << 20)
    n_taken = 0
    for _ in workers.epoch(plan(40, 1)):
        n_taken += 1
        if 16 + 8 < n_taken < 40:  # eight at most were asked for before the first was known
            assert workers._pool.n_open == 1
    assert n_taken == 40
    workers.close()


class Wide(data.IterableDataset):
    """Each copy gives its own, 400 kB an item."""

    def __iter__(self) -> Iterator[Any]:
        worker = data.get_worker_info()
        for number in range(6 if worker.id else 9):  # type: ignore[union-attr]
            yield torch.full((100_000,), float(10 * number + worker.id))  # type: ignore[union-attr]


def test_a_budget_holds_for_copies_that_are_taken_in_turn() -> None:
    def first(batch: Any) -> float:
        return float(batch[0])

    job = Job(Wide(), None, iterable=True)
    want = [first(batch) for batch in Workers(job, 4).epoch()]
    workers = Workers(job, 4, memory_budget=1_000_000)  # two of them
    seen = []
    for batch in workers.epoch():
        seen.append(first(batch))
        pool = workers._pool
        if len(seen) > 2 and pool is not None:
            assert pool.n_open <= workers.window == 2
    assert seen == want and len(seen) == 27
    workers.close()
