"""What datasets in worker processes draw, and iterable ones, whose copies share the work."""

import contextlib
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate, get_worker_info

from penstock.workers import Batch, ItemSeeding, Job, NoSeeding, TorchSeeding, Workers
from worker_checks import Counting, Items, drawing, plan, run, same, wait_until_gone

# Seeding


@pytest.mark.parametrize("num_workers", [1, 2, 5, "auto"])
def test_draws_do_not_depend_on_workers(num_workers: Any) -> None:
    job = Job(Items(drawing), default_collate, seeding=ItemSeeding(7))
    assert same(run(job, num_workers), run(job, 0))


def test_draws_do_not_depend_on_when_they_begin() -> None:
    """Items that begin to draw after thousands that did not."""
    job = Job(Items(lambda i: random.random() if i > 30 else 0.0), seeding=ItemSeeding(7))
    late = run(job, 1)
    (first,) = Workers(job, 0).epoch([Batch([44, 45, 46, 47], 11)])
    assert late[-1] == first


def test_draws_depend_on_seed_epoch_sample_and_occurrence() -> None:
    def draw(seed: int = 0, epoch: int = 0, index: int = 0, occurrence: int = 0) -> float:
        job = Job(Items(lambda i: random.random()), seeding=ItemSeeding(seed))
        (batch,) = Workers(job, 0).epoch([Batch([index], 0, [occurrence])], epoch=epoch)
        return batch[0]

    found = {draw(), draw(seed=1), draw(epoch=1), draw(index=1), draw(occurrence=1)}
    assert len(found) == 5
    assert draw() == draw()


def test_the_callers_generators_are_left_alone() -> None:
    job = Job(Items(drawing), default_collate, seeding=ItemSeeding(7))

    def numbers() -> tuple[float, float, float]:
        return random.random(), float(np.random.rand()), float(torch.rand(()))

    for seeded in (random.seed, np.random.seed, torch.manual_seed):
        seeded(5)
    expected = numbers()
    for num_workers in (0, 2):
        for seeded in (random.seed, np.random.seed, torch.manual_seed):
            seeded(5)
        run(job, num_workers)
        assert numbers() == expected


def test_a_gaussian_left_over_is_seen_and_kept() -> None:
    """NumPy draws two at a time: taking the second moves nothing but a flag."""
    job = Job(
        Items(lambda i: np.random.standard_normal() if i >= 8 else 0.0), seeding=ItemSeeding(3)
    )
    expected = run(job, 2, 4)
    np.random.seed(1)
    np.random.standard_normal()
    left_over = np.random.get_state()
    assert run(job, 0, 4) == expected
    assert repr(np.random.get_state()) == repr(left_over)


def test_a_generator_first_used_late_is_put_back() -> None:
    def make(index: int) -> Any:
        return drawing(index) if index >= 8 else (0.0, 0.0, 0.0)

    before = random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()
    run(Job(Items(make), seeding=ItemSeeding(3)), 0, 4)
    after = random.getstate(), repr(np.random.get_state()), torch.get_rng_state().tolist()
    assert after == before


LOADED_LATE = """
import sys, numpy
from penstock.workers import Batch, ItemSeeding, Job, Workers

class Items:
    def __getitem__(self, index):
        return float(numpy.random.rand()) if index > 5 else 0.0

class Stream:
    def __iter__(self):
        yield float(numpy.random.rand())

job = Job(Items(), seeding=ItemSeeding(3))
batches = [Batch([i, i + 1], i // 2) for i in range(0, 12, 2)]
assert "numpy.random" not in sys.modules, "or this shows nothing"
in_workers = list(Workers(job, 2).epoch(batches))
assert "numpy.random" not in sys.modules, "nobody here has asked for it"
assert list(Workers(Job(Stream(), iterable=True, seeding=ItemSeeding(3)), 1).epoch()) == \
    list(Workers(Job(Stream(), iterable=True, seeding=ItemSeeding(3)), 1).epoch())
here = list(Workers(job, 0).epoch(batches))
print(here == in_workers, numpy.random.rand(), here)
"""


def test_a_generator_loaded_only_by_an_item_is_seeded_as_well(run_python: Any) -> None:
    runs = [run_python(LOADED_LATE).stdout.split(maxsplit=2) for _ in range(2)]
    (is_same, own, drawn), (_, own_again, drawn_again) = runs
    assert is_same == "True"
    assert drawn == drawn_again
    assert own != own_again, "the caller's own generator was left seeded"


ONLY_LOADED = """
import sys, numpy
from penstock.workers import Batch, ItemSeeding, Job, Workers

class Counts:
    n = 0
    def __getitem__(self, index):
        import numpy.random
        self.n += 1
        return self.n

assert "numpy.random" not in sys.modules, "or this shows nothing"
for n_workers in 1, 0:
    workers = Workers(Job(Counts(), seeding=ItemSeeding(3)), n_workers)
    print(list(workers.epoch([Batch([0, 1], 0), Batch([2, 3], 1)])))
    workers.close()
"""


def test_a_batch_that_only_loads_a_generator_is_made_once(run_python: Any) -> None:
    assert run_python(ONLY_LOADED).stdout.split("\n")[:2] == ["[[1, 2], [3, 4]]"] * 2


DRAWN_AT_START = """
import sys, numpy
from penstock.workers import Batch, ItemSeeding, Job, Workers

class Drawn:
    def __getitem__(self, index):
        return self.x

def init(worker):
    data.x = numpy.random.rand()

data = Drawn()
assert "numpy.random" not in sys.modules, "or this shows nothing"
print(list(Workers(Job(data, worker_init=init, seeding=ItemSeeding(3)), 1).epoch([Batch([0])])))
"""


def test_what_a_worker_draws_when_it_begins_is_the_same_each_time(run_python: Any) -> None:
    assert run_python(DRAWN_AT_START).stdout == run_python(DRAWN_AT_START).stdout


@pytest.mark.parametrize("n_workers", [1, 2])
def test_a_lost_worker_of_torchs_seeding_is_an_error_for_good(n_workers: int) -> None:
    """Also one that was killed between two batches: a new one would draw what was drawn."""
    workers = Workers(Job(Items(int), seeding=TorchSeeding(5)), n_workers, prefetch_factor=1)
    stream = workers.epoch(plan(40))
    next(stream)
    while len(workers.pids) < n_workers:
        workers._pool._receive()
    os.kill(workers.pids[0], signal.SIGKILL)
    assert wait_until_gone(workers.pids[0])
    with pytest.raises(RuntimeError, match="Killed"):
        list(stream)
    for _ in range(n_workers):  # the others go on, that one never does
        with contextlib.suppress(RuntimeError):
            next(stream)
    with pytest.raises(RuntimeError, match="Killed"):
        list(stream)


@pytest.mark.parametrize("n_workers", [1, 2, 3])
def test_torch_seeding_equals_torch(n_workers: int) -> None:
    class Drawing(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return 24

        def __getitem__(self, index: int) -> tuple[float, float, float]:
            return drawing(index)

    torch.manual_seed(3)
    theirs = list(torch.utils.data.DataLoader(Drawing(), 4, num_workers=n_workers))
    torch.manual_seed(3)
    base_seed = int(torch.empty((), dtype=torch.int64).random_())
    job = Job(Drawing(), default_collate, seeding=TorchSeeding(base_seed))
    assert same(run(job, n_workers, 6), theirs)


def test_worker_info_is_torchs() -> None:
    def look(index: int) -> tuple[int, int, bool, bool]:
        info = get_worker_info()
        return info.id, info.num_workers, isinstance(info.seed, int), info.dataset.make is look

    seen = {item for batch in run(Job(Items(look)), 2, 30) for item in batch}
    assert {entry[0] for entry in seen} <= {0, 1}
    assert {entry[1:] for entry in seen} == {(2, True, True)}
    assert get_worker_info() is None


# Iterable datasets


class Stateful(Counting):
    """Knows where it is."""

    def __init__(self, n_items: int) -> None:
        super().__init__(n_items)
        self.position = 0
        self.start = 0
        self.loads = 0

    def __iter__(self) -> Iterator[tuple[int, int]]:
        self.position, self.start = self.start, 0
        items = list(super().__iter__())
        while self.position < len(items):
            self.position += 1
            yield items[self.position - 1], self.loads

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}

    def load_state_dict(self, state: dict[str, int]) -> None:
        self.start = state["position"]
        self.loads += 1


@pytest.mark.parametrize("n_workers", [0, 1, 2, 3])
@pytest.mark.parametrize(("batch_size", "drop_last"), [(4, False), (4, True), (None, False)])
def test_iterables_come_in_torchs_order(
    n_workers: int, batch_size: int | None, drop_last: bool
) -> None:
    dataset = Counting(53)
    theirs = list(
        torch.utils.data.DataLoader(dataset, batch_size, num_workers=n_workers, drop_last=drop_last)
    )
    collate = default_collate if batch_size else torch.utils.data.default_convert
    job = Job(dataset, collate, iterable=True, batch_size=batch_size, drop_last=drop_last)
    assert same(list(Workers(job, n_workers).epoch()), theirs)


@pytest.mark.parametrize("dataset", [Counting(50), Stateful(50)])
@pytest.mark.parametrize("n_workers", [0, 1, 3])
def test_iterables_resume_where_they_were_consumed(dataset: Any, n_workers: int) -> None:
    job = Job(dataset, iterable=True, batch_size=3)
    items = lambda batches: [  # noqa: E731
        item[0] if isinstance(item, tuple) else item for batch in batches for item in batch
    ]
    whole = items(Workers(job, n_workers).epoch())
    stream = Workers(job, n_workers).epoch()
    taken = items(next(stream) for _ in range(7))
    second = Workers(job, n_workers).epoch(state=stream.state())
    taken += items(next(second) for _ in range(4))
    rest = items(Workers(job, n_workers).epoch(state=second.state()))
    assert taken + rest == whole


def test_iterables_load_states_instead_of_replaying() -> None:
    job = Job(Stateful(40), iterable=True, batch_size=2)
    stream = Workers(job, 2).epoch()
    for _ in range(6):
        next(stream)
    resumed = [item for batch in Workers(job, 2).epoch(state=stream.state()) for item in batch]
    assert {loads for _, loads in resumed} == {1}


def test_an_iterables_state_needs_as_many_workers() -> None:
    job = Job(Counting(40), iterable=True, batch_size=2)
    state = Workers(job, 2).epoch().state()
    with pytest.raises(ValueError, match="of 2 workers, not 3"):
        Workers(job, 3).epoch(state=state)


def test_iterables_survive_the_death_of_a_worker() -> None:
    job = Job(Counting(200), iterable=True, batch_size=2, seeding=ItemSeeding(0))
    whole = list(Workers(job, 2).epoch())
    workers = Workers(job, 2)
    got = []
    for number, batch in enumerate(workers.epoch()):
        got.append(batch)
        if number in (10, 40) and workers.pids:
            os.kill(next(iter(workers.pids.values())), signal.SIGKILL)
    assert got == whole


def test_iterables_draw_the_same_after_a_resume() -> None:
    class Drawing(Counting):
        def __iter__(self) -> Iterator[float]:
            return (item + random.random() + float(np.random.rand()) for item in super().__iter__())

    job = Job(Drawing(60), iterable=True, batch_size=4, seeding=ItemSeeding(3))
    whole = list(Workers(job, 2).epoch(epoch=1))
    stream = Workers(job, 2).epoch(epoch=1)
    taken = [next(stream) for _ in range(5)]
    assert taken + list(Workers(job, 2).epoch(epoch=1, state=stream.state())) == whole
    assert list(Workers(job, 2).epoch(epoch=2)) != whole


def test_persistent_iterables_begin_again() -> None:
    workers = Workers(Job(Counting(30), iterable=True, batch_size=4), 2, persistent=True)
    first = list(workers.epoch())
    stream = workers.epoch()
    next(stream)
    assert list(workers.epoch()) == first
    workers.close()


def test_errors_of_iterables_arrive() -> None:
    class Failing(Counting):
        def __iter__(self) -> Iterator[int]:
            yield 1
            raise OSError("disk on fire")

    stream = Workers(Job(Failing(1), iterable=True, batch_size=1), 1).epoch()
    assert next(stream) == [1]
    with pytest.raises(OSError, match="disk on fire"):
        next(stream)


def test_no_seeding_leaves_workers_as_forked() -> None:
    np.random.seed(11)
    expected = np.random.rand()
    np.random.seed(11)
    job = Job(Items(lambda i: np.random.rand()), seeding=NoSeeding())
    (batch,) = Workers(job, 1).epoch([Batch([0])])
    assert batch == [expected]


def test_a_timeout_holds_for_workers_that_never_begin():
    job = Job(Items(int), worker_init=lambda worker: time.sleep(600))
    with pytest.raises(RuntimeError, match="timed out after"):
        run(job, 2, 4, timeout=0.5)


def _squares_in_a_daemon(results: Any) -> None:
    results.send(run(Job(Items(lambda index: index**2), default_collate), "auto", 3)[-1].tolist())


def test_auto_needs_no_processes_where_none_are_allowed():
    receiver, sender = multiprocessing.Pipe(duplex=False)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=_squares_in_a_daemon, args=(sender,), daemon=True)
    child.start()
    sender.close()
    assert receiver.recv() == [64, 81, 100, 121]
    child.join()
