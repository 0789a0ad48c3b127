"""An epoch's first batches, made by all workers together: that they are, and that nobody can tell."""

import contextlib
import itertools
import multiprocessing
import os
import random
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate
from torch.utils.data._utils.collate import default_collate_fn_map

from penstock.workers import Batch, ItemSeeding, Job, Stream, Workers
from penstock.workers.alike import UnlikeError
from penstock.workers.job import Part
from penstock.workers.meter import Meter
from penstock.workers.opening import Opening
from penstock.workers.settings import Settings
from worker_checks import Items, plan, same

N_WORKERS, SIZE = 4, 16
FORK = multiprocessing.get_context("fork")
MS = 1_000_000


def known(making_ns: int = 80 * MS, nbytes: int = 1000, n_workers: int = N_WORKERS) -> Meter:
    """A meter that has seen batches."""
    meter = Meter()
    meter.made((making_ns, making_ns, 0), nbytes, n_workers)
    return meter


def settled(nbytes: int = 1000, budget: int = 1 << 30) -> Settings:
    settings = Settings(None, budget)
    settings.saw(nbytes)
    return settings


def slow(make: Any) -> Items:
    """Items that are worth parting."""

    def sleepy(index: int) -> Any:
        time.sleep(0.002)
        return make(index)

    return Items(sleepy)


def two_epochs(job: Job, **options: Any) -> tuple[list[Any], list[Any]]:
    """The first, which knows nothing of batches yet, and one after it."""
    workers = Workers(job, N_WORKERS, persistent=True, **options)
    try:
        return tuple(list(workers.epoch(plan(6, SIZE), epoch=e)) for e in range(2))  # type: ignore[return-value]
    finally:
        workers.close()


# Who makes what


def test_each_batch_has_a_part_fewer() -> None:
    opening = Opening(Job([]), known(making_ns=20 * MS), settled(), N_WORKERS)
    asked = [opening.tasks(batch, 0) for batch in plan(6, SIZE)]
    assert [len(tasks) for tasks in asked] == [4, 3, 2, 1, 1, 1]
    for tasks, batch in zip(asked, plan(6, SIZE), strict=True):
        made = list(itertools.chain.from_iterable(task.indices for task in tasks))
        assert made == batch.indices
    assert [len(part.indices) for part in asked[1]] == [6, 5, 5]
    assert all(isinstance(task, Batch) for tasks in asked[3:] for task in tasks)


def test_a_loop_that_waits_stays_with_parts_until_enough_lie_ready() -> None:
    opening = Opening(Job([]), known(), settled(), N_WORKERS)
    n_ready = [0, 0, 1, 0, 1, 2, 0, 0]
    asked = [opening.tasks(batch, n) for batch, n in zip(plan(8, SIZE), n_ready, strict=True)]
    assert [len(tasks) for tasks in asked] == [4, 3, 2, 2, 2, 2, 1, 1]


def test_occurrences_go_with_their_items() -> None:
    opening = Opening(Job([]), known(), settled(), 2)
    parts = opening.tasks(Batch([7, 7, 8, 7], 0, [0, 1, 0, 2]), 0)
    assert parts == [Part([7, 7], 0, [0, 1]), Part([8, 7], 0, [0, 2])]


@pytest.mark.parametrize(
    ("meter", "settings"),
    [
        (Meter(), settled()),  # nothing is known
        (known(making_ns=MS), settled()),  # handing over costs more
        (known(), settled(nbytes=50 << 20)),  # too large
        (known(), settled(budget=80_000)),  # no room
        (known(), Settings(None, 1 << 30)),
    ],
)
def test_what_does_not_pay_is_made_whole(meter: Meter, settings: Settings) -> None:
    opening = Opening(Job([]), meter, settings, N_WORKERS)
    assert [len(opening.tasks(batch, 0)) for batch in plan(3, SIZE)] == [1, 1, 1]


class Several(Items):
    def __getitems__(self, indices: list[int]) -> list[Any]:
        return [self.make(index) for index in indices]


@pytest.mark.parametrize(
    "job",
    [
        Job([], lambda items: items),  # somebody's own code, which belongs into workers
        Job([], auto_collate=False),
        Job(Several(int)),
    ],
)
def test_jobs_that_cannot_be_parted_are_not(job: Job) -> None:
    opening = Opening(job, known(), settled(), N_WORKERS)
    assert len(opening.tasks(Batch(list(range(SIZE)), 0), 0)) == 1


@pytest.mark.parametrize("indices", [[], [1], [1, 2, 3], range(16)])
def test_batches_too_small_or_strange_are_not_parted(indices: Any) -> None:
    opening = Opening(Job([]), known(), settled(), N_WORKERS)
    assert opening.tasks(Batch(indices, 0), 0) == (Batch(indices, 0),)


def test_all_workers_are_at_the_first_batch_at_once() -> None:
    """Four of its items wait for each other, which they can only in four processes."""
    is_later, meeting = FORK.Value("b", 0), FORK.Barrier(N_WORKERS)

    def make(index: int) -> int:
        if is_later.value and index in (0, 4, 8, 12):
            meeting.wait(60)
        return index

    workers = Workers(Job(slow(make), default_collate), N_WORKERS, persistent=True, context="fork")
    assert len(list(workers.epoch(plan(6, SIZE)))) == 6
    is_later.value = 1
    first = next(workers.epoch(plan(6, SIZE), epoch=1))
    workers.close()
    assert first.tolist() == list(range(SIZE))


# That nobody can tell


def drawing(index: int) -> dict[str, Any]:
    return {
        "torch": torch.rand(3),
        "numpy": np.random.rand(),
        "python": random.random(),
        "image": torch.full((2, 5), float(index)),
        "text": f"item {index}",
    }


def same_layout(a: Any, b: Any) -> bool:
    """Of tensors wherever they are."""
    if isinstance(a, torch.Tensor):
        return a.stride() == b.stride() and a.is_contiguous() == b.is_contiguous()
    if isinstance(a, dict):
        return all(same_layout(a[key], b[key]) for key in a)
    return not isinstance(a, list | tuple) or all(map(same_layout, a, b))


@pytest.fixture
def n_joined(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of parts of batches that were put together."""
    found: list[int] = []
    join = Opening.join

    def counted(self: Opening, parts: list[Any]) -> Any:
        whole = join(self, parts)
        found.append(len(parts))
        return whole

    monkeypatch.setattr(Opening, "join", counted)
    return found


def check_the_stream(job: Job) -> None:
    """Two epochs of workers are those of one process."""
    alone = Workers(job, 0)
    expected = tuple(list(alone.epoch(plan(6, SIZE), epoch=e)) for e in range(2))
    made = two_epochs(job)
    assert same(made, expected)
    assert same_layout(made, expected)


ALIKE = {
    "of all kinds": drawing,
    "bytes": lambda i: bytes([i]),
    "text in a tuple": lambda i: (torch.ones(2) * i, i, f"path {i}", np.float32(i)),
    "nested": lambda i: {"a": ([i, float(i)], {"b": np.full((2, 2), i)}), "c": i % 2 == 0},
    "twice the same": lambda i: (x := torch.full((3,), i), x),
    "no dimension": lambda i: torch.tensor(i),
    "nothing": lambda i: torch.empty(0, 3),
    "turned": lambda i: torch.full((4, 6, 3), float(i)).permute(2, 0, 1),
}


@pytest.mark.parametrize("name", ALIKE)
@pytest.mark.parametrize("collate", [None, default_collate])
def test_a_stream_in_parts_is_the_one_made_in_one_process(
    name: str, collate: Any, n_joined: list[int]
) -> None:
    check_the_stream(Job(slow(ALIKE[name]), collate, seeding=ItemSeeding(3)))
    assert n_joined[:2] == [4, 3]


class Pair(NamedTuple):
    a: int
    b: str


buffer, row, CONSTANT = np.zeros(4), {"x": 0}, torch.ones(2)


def fill_buffer(index: int) -> Any:
    buffer[:] = index
    return {"values": buffer}


def fill_row(index: int) -> Any:
    row["x"] = index
    return row


UNLIKE = {
    "numbers of two kinds": lambda i: i if i < 4 else i / 2,
    "truth and numbers": lambda i: i % 2 == 0 or i,
    "text and lists": lambda i: {"caption": "a" if i % SIZE < 8 else ["c", "d"]},
    "arrays and tensors": lambda i: (np if i % SIZE < 8 else torch).ones(3),
    "named": lambda i: Pair(i, "x"),
    "one buffer": fill_buffer,
    "one dict": fill_row,
    "a constant": lambda i: (i, CONSTANT),
}


@pytest.mark.parametrize("name", UNLIKE)
def test_items_that_are_not_alike_are_made_whole(name: str, n_joined: list[int]) -> None:
    job = Job(slow(UNLIKE[name]), default_collate)
    workers = Workers(job, N_WORKERS, persistent=True)
    alone = Workers(job, 0)
    for epoch in range(2):
        stream, expected = (w.epoch(plan(6, SIZE), epoch=epoch) for w in (workers, alone))
        for _ in range(6):
            try:
                batch = next(expected)
            except TypeError:  # as torch's stack
                with pytest.raises(TypeError):
                    next(stream)
            else:
                assert same(next(stream), batch)
    assert not n_joined
    assert workers.settings.whole_because
    workers.close()


def test_parts_in_another_order_of_memory_are_not_put_together() -> None:
    opening = Opening(Job([], default_collate), known(), settled(), N_WORKERS)
    part = torch.ones(4, 3, 2)
    assert opening.join([(part, "a"), (part, "a")]).shape == (8, 3, 2)
    with pytest.raises(UnlikeError, match="not in order"):
        opening.join([(part, "a"), (part.transpose(1, 2).contiguous().transpose(1, 2), "a")])


def test_a_default_collate_that_was_taught_is_left_alone(
    monkeypatch: pytest.MonkeyPatch, n_joined: list[int]
) -> None:
    def sort(batch: list[str], *, collate_fn_map: Any = None) -> list[str]:
        return sorted(batch, reverse=True)

    monkeypatch.setitem(default_collate_fn_map, str, sort)
    check_the_stream(Job(slow(lambda i: f"{i:03}"), default_collate))
    assert not n_joined


def test_kinds_that_change_between_epochs_are_seen_in_parts(n_joined: list[int]) -> None:
    """In the first epoch all are alike; then the first part's are others than the second's."""
    is_later = FORK.Value("b", 0)
    job = Job(slow(lambda i: i / 2 if is_later.value and i >= 4 else i), default_collate)
    workers = Workers(job, N_WORKERS, persistent=True, context="fork")
    list(workers.epoch(plan(6, SIZE)))
    is_later.value = 1
    made = list(workers.epoch(plan(6, SIZE), epoch=1))
    workers.close()
    assert same(made, list(Workers(job, 0).epoch(plan(6, SIZE), epoch=1)))
    assert not n_joined
    assert workers.settings.whole_because


def test_with_a_timeout_batches_are_made_whole(n_joined: list[int]) -> None:
    two_epochs(Job(slow(int), default_collate), timeout=60)
    assert not n_joined


def test_a_collate_function_of_ones_own_runs_in_workers() -> None:
    job = Job(slow(int), lambda items: (os.getpid(), items))
    for epoch in two_epochs(job):
        assert os.getpid() not in {pid for pid, _ in epoch}


@contextlib.contextmanager
def second_epoch(fault: Any) -> Iterator[tuple[Workers, Stream]]:
    """An epoch that opens with parts, in which the fifth item is what `fault` makes of it; that is told
    of the flag that it is so."""
    is_later = FORK.Value("b", 0)

    def make(index: int) -> Any:
        return fault(is_later) if is_later.value and index == 5 else torch.zeros(3)

    workers = Workers(Job(slow(make), default_collate), N_WORKERS, persistent=True, context="fork")
    try:
        list(workers.epoch(plan(6, SIZE)))
        is_later.value = 1
        yield workers, workers.epoch(plan(6, SIZE), epoch=1)
    finally:
        workers.close()


def test_an_error_is_the_one_of_a_whole_batch_and_the_next_batch_follows() -> None:
    def fail(_: Any) -> None:
        raise ValueError("bad item")

    with second_epoch(fail) as (workers, stream):
        with pytest.raises(ValueError, match="bad item") as caught:
            next(stream)
        assert "Caught ValueError in DataLoader worker process" in str(caught.value)
        assert len(list(stream)) == 5
        assert "bad item" in workers.settings.whole_because


def test_items_that_cannot_be_stacked_raise_what_torch_raises() -> None:
    with second_epoch(lambda _: torch.zeros(4)) as (_, stream):
        with pytest.raises(RuntimeError, match="equal size") as caught:
            next(stream)
        assert "in DataLoader worker process" in str(caught.value)
        assert len(list(stream)) == 5


def test_a_part_whose_worker_dies_is_made_again() -> None:
    def die_once(is_later: Any) -> Any:
        is_later.value = 0
        os._exit(3)

    with second_epoch(die_once) as (workers, stream):
        assert [len(batch) for batch in stream] == [SIZE] * 6
        assert not workers.settings.whole_because


def test_a_part_that_kills_each_worker_is_an_error_and_the_rest_follows() -> None:
    with second_epoch(lambda _: os._exit(3)) as (workers, stream):
        with pytest.raises(RuntimeError, match="exited"):
            next(stream)
        assert workers.queue()[0] == 5
        assert len(list(stream)) == 5


def test_an_epoch_left_in_the_middle_of_parts_leaves_nothing_behind() -> None:
    job = Job(slow(lambda index: torch.full((2000,), float(index))), default_collate)
    workers = Workers(job, N_WORKERS, persistent=True)
    list(workers.epoch(plan(6, SIZE)))
    shared = []
    for epoch in range(1, 16):
        stream = workers.epoch(plan(6, SIZE), epoch=epoch)
        assert next(stream)[:, 0].tolist() == list(range(SIZE))
        assert workers.queue()[0] == 5
        stream.close()
        shared.append(workers.queue()[2])
    assert shared[-1] <= 2 * max(shared[:3])
    assert [len(batch) for batch in workers.epoch(plan(6, SIZE), epoch=9)] == [SIZE] * 6
    workers.close()


def test_a_batch_in_parts_is_counted_as_one() -> None:
    workers = Workers(Job(slow(int), default_collate), N_WORKERS, persistent=True)
    for epoch in range(2):
        for _ in workers.epoch(plan(6, SIZE), epoch=epoch):
            pass
    makes = list(workers.meter.makes)
    workers.close()
    assert len(makes) == 12
    assert min(makes) >= SIZE * 2 * MS
