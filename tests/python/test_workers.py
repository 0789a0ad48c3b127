"""Python datasets in worker processes: what comes back, in which order, whatever happens."""

import contextlib
import faulthandler
import gc
import multiprocessing
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate, get_worker_info

from penstock.errors import ForkError
from penstock.workers import Batch, ItemSeeding, Job, NoSeeding, Pool, TorchSeeding, Workers
from penstock.workers.wire import UnreachableError


class Items:
    """A dataset that is a function."""

    def __init__(self, make: Callable[[int], Any]) -> None:
        self.make = make

    def __getitem__(self, index: int) -> Any:
        return self.make(index)


def plan(n_batches: int, size: int = 4) -> Iterator[Batch]:
    return (Batch(list(range(k * size, (k + 1) * size)), k) for k in range(n_batches))


def run(job: Job, num_workers: Any, n_batches: int = 12, **options: Any) -> list[Any]:
    workers = Workers(job, num_workers, **options)
    try:
        return list(workers.epoch(plan(n_batches)))
    finally:
        workers.close()


def same(a: Any, b: Any) -> bool:
    """Equal in type, structure, dtype and bytes."""
    if type(a) is not type(b):
        return False
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tolist() == b.tolist()
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


def wait_until_gone(pid: int) -> bool:
    """Or a zombie, which its parent has not looked at."""
    for _ in range(1000):
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            return True
        if state == "Z":
            return True
        time.sleep(0.01)
    return False


def rich_item(index: int) -> dict[str, Any]:
    return {
        "image": torch.full((3, 40, 30), float(index)),
        "array": np.arange(5, dtype=np.int16) + index,
        "number": index,
        "ratio": index / 7,
        "text": f"item {index}",
        "pair": (torch.tensor(index), [index, -index]),
    }


# Values


@pytest.mark.parametrize("num_workers", [1, 3, "auto"])
@pytest.mark.parametrize("collate", [None, default_collate])
def test_batches_equal_those_made_inline(num_workers: Any, collate: Any) -> None:
    job = Job(Items(rich_item), collate)
    assert same(run(job, num_workers), run(job, 0))


@pytest.mark.parametrize("context", ["fork", "spawn", "forkserver"])
def test_every_start_method_gives_the_same(context: str) -> None:
    job = Job([torch.full((100, 100), float(i)) for i in range(16)], default_collate)
    assert same(run(job, 2, 4, context=context), run(job, 0, 4))


ODD = {
    "empty": lambda: torch.empty(0, 3),
    "scalar": lambda: torch.tensor(3.5),
    "bool": lambda: torch.tensor([True, False] * 50),
    "bfloat16": lambda: torch.arange(50_000).to(torch.bfloat16),
    "complex": lambda: torch.randn(10, 10, dtype=torch.complex64),
    "conjugated": lambda: torch.randn(10, 10, dtype=torch.complex64).conj(),
    "expanded": lambda: torch.arange(30.0).view(1, 30).expand(40, 30),
    "sliced": lambda: torch.arange(90_000.0).view(300, 300)[::2, ::3],
    "parameter": lambda: torch.nn.Parameter(torch.ones(3)),
    "array in columns": lambda: np.asfortranarray(np.arange(30_000.0).reshape(100, 300)),
    "array of objects": lambda: np.array([{"a": 1}, None, "x"], dtype=object),
    "array with fields": lambda: np.zeros(9, dtype=[("x", "f4"), ("y", "i8")]),
    "array backwards": lambda: np.arange(100_000)[::-2],
    "empty array": lambda: np.empty((0, 4), dtype=np.uint8),
    "long bytes": lambda: bytes(range(256)) * 4000,
    "many arrays": lambda: [np.full(3, i) for i in range(3000)],
    "nested": lambda: {"a": [1, (2, {"b": np.ones(100_000)})], "c": None},
}


@pytest.mark.parametrize("name", ODD)
def test_odd_values_arrive_as_they_are(name: str) -> None:
    torch.manual_seed(0)
    value = ODD[name]()
    (arrived,) = Workers(Job([value], auto_collate=False), 1).epoch([Batch(0)])
    assert same(arrived, value)


def test_sparse_tensors_arrive() -> None:
    value = torch.eye(4).to_sparse()
    (arrived,) = Workers(Job([value], auto_collate=False), 1).epoch([Batch(0)])
    assert arrived.is_sparse
    assert torch.equal(arrived.to_dense(), value.to_dense())


def test_layout_is_kept() -> None:
    value = torch.randn(2, 3, 64, 64).to(memory_format=torch.channels_last)
    (arrived,) = Workers(Job([value], auto_collate=False), 1).epoch([Batch(0)])
    assert arrived.stride() == value.stride()
    assert torch.equal(arrived, value)


def test_tensors_that_need_grad_are_refused() -> None:
    value = torch.ones(3, requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="requires grad"):
        list(Workers(Job([value], auto_collate=False), 1).epoch([Batch(0)]))


def test_mixed_dtypes_are_promoted_as_inline() -> None:
    job = Job([torch.ones(3, dtype=torch.int64), torch.full((3,), 0.5)], default_collate)
    batch = [Batch([0, 1])]
    (inline,), (arrived,) = Workers(job, 0).epoch(batch), Workers(job, 1).epoch(batch)
    assert same(arrived, inline)


def test_tensors_can_be_written_to() -> None:
    for batch in run(Job(Items(rich_item), default_collate), 1, 3):
        batch["image"] += 1
        batch["number"] += 1


def test_whole_batches_are_fetched_where_the_dataset_can() -> None:
    class Whole(Items):
        def __getitems__(self, indices: list[int]) -> list[Any]:
            return [("whole", index) for index in indices]

    assert run(Job(Whole(int)), 2, 2) == [
        [("whole", i) for i in range(4)],
        [("whole", i) for i in range(4, 8)],
    ]


@pytest.mark.parametrize("num_workers", [0, 2])
def test_rows_of_tensors_equal_torchs(num_workers: int) -> None:
    dataset = torch.utils.data.TensorDataset(
        torch.randn(48, 3, 2), torch.arange(48), torch.randn(48, 2, dtype=torch.complex64)
    )
    theirs = list(torch.utils.data.DataLoader(dataset, 4))
    assert same(run(Job(dataset, default_collate), num_workers), theirs)
    with pytest.raises(IndexError):
        list(Workers(Job(dataset, default_collate), num_workers).epoch([Batch([1, 48])]))


def test_dev_shm_is_not_touched() -> None:
    before = set(os.listdir("/dev/shm"))
    workers = Workers(Job(Items(rich_item), default_collate), 2)
    for _ in workers.epoch(plan(10)):
        assert set(os.listdir("/dev/shm")) <= before
    workers.close()


# Memory


def big_item(index: int) -> torch.Tensor:
    return torch.full((100_000,), float(index))


def test_a_late_reader_sees_its_own_batch() -> None:
    workers = Workers(Job(Items(big_item), default_collate), 2)
    kept = []
    for number, batch in enumerate(workers.epoch(plan(60, 2))):
        if number % 7 == 0:
            kept.append((number, batch[1]))  # a view keeps the whole batch
    for number, row in kept:
        assert bool((row == 2 * number + 1).all())


def test_memory_is_used_again() -> None:
    workers = Workers(Job(Items(big_item), default_collate), 2)
    stream = workers.epoch(plan(100, 2))
    places = {batch.data_ptr() for batch in stream}
    assert len(places) < 20


def test_a_batch_the_dataset_keeps_is_not_overwritten() -> None:
    class Keeping:
        kept: Any = None

        def __call__(self, items: list[Any]) -> Any:
            old, self.kept = self.kept, default_collate(items)
            return self.kept, old

    job = Job(Items(big_item), Keeping())
    for number, (_, old) in enumerate(Workers(job, 1).epoch(plan(30, 2))):
        if number:
            assert bool((old[0] == 2 * (number - 1)).all())


def test_batches_outlive_their_workers() -> None:
    batches = run(Job(Items(big_item), default_collate), 2, 20)
    gc.collect()
    assert all(float(batch[0, -1]) == 4 * k for k, batch in enumerate(batches))


def test_a_batch_held_by_a_forked_child_is_not_overwritten() -> None:
    workers = Workers(Job(Items(big_item), default_collate), 1)
    stream = workers.epoch(plan(40, 2))
    next(stream)
    batch = next(stream)
    go_reader, go_writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.read(go_reader, 1)
        os._exit(0 if (batch.numpy()[0] == 2).all() else 1)  # torch's threads are not here
    del batch
    for _ in stream:
        pass
    os.write(go_writer, b"x")
    assert os.waitpid(pid, 0)[1] == 0
    os.close(go_reader)
    os.close(go_writer)


def test_all_batches_may_be_kept() -> None:
    job = Job(Items(lambda i: torch.full((20_000,), float(i))), default_collate)
    batches = list(Workers(job, 2).epoch(plan(700, 1)))
    assert [int(batch[0, 0]) for batch in batches] == list(range(700))


def test_the_budget_bounds_what_is_under_way() -> None:
    job = Job(Items(big_item), default_collate)  # 800 kB a batch of 2
    drawn = 0

    def batches() -> Iterator[Batch]:
        nonlocal drawn
        for batch in plan(30, 2):
            drawn += 1
            yield batch

    workers = Workers(job, 4, prefetch_factor=8, memory_budget=2_500_000)
    for number, _ in enumerate(workers.epoch(batches())):
        assert drawn <= number + 1 + 4  # as many as workers at first, then three batches


@pytest.mark.parametrize("fault", ["EMFILE in the worker", "ENOMEM in the worker"])
def test_results_arrive_without_arenas(fault: str) -> None:
    def spoil(worker: int) -> None:
        def refuse(*_: Any) -> int:
            raise OSError(24 if "EMFILE" in fault else 12, fault)

        if "EMFILE" in fault:
            os.memfd_create = refuse
        else:
            os.posix_fallocate = refuse

    job = Job(Items(big_item), default_collate, worker_init=spoil)
    for number, batch in enumerate(Workers(job, 2).epoch(plan(10, 2))):
        assert bool((batch[1] == 2 * number + 1).all())


def test_results_arrive_when_descriptors_run_out_here() -> None:
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    workers = Workers(Job(Items(big_item), default_collate), 2)
    stream = workers.epoch(plan(20, 2))
    taken = []
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 20, hard))
        with contextlib.suppress(OSError):
            while True:
                taken.append(os.dup(0))
        for number, batch in enumerate(stream):
            assert bool((batch[1] == 2 * number + 1).all())
            assert workers._pool._board.is_plain
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        for fd in taken:
            os.close(fd)


@pytest.mark.parametrize("is_known", [True, False])
def test_an_iterables_result_may_get_lost(is_known: bool, monkeypatch: Any) -> None:
    """No descriptor can be received, also before the word that its worker was started."""
    workers = Workers(Job(Counting(6), None, iterable=True), 1)
    stream = workers.epoch()
    pool = workers._pool
    receive, notices = pool._results.receive, pool._crew.notices
    kept: list[Any] = []

    def late_notices() -> list[Any]:
        kept.extend(notices())
        is_lost = not is_known and not pool._board.is_plain
        ready = [] if is_lost else kept.copy()
        if is_lost:
            pool._crew.pids.clear()
        else:
            kept.clear()
        return ready

    def lose_first() -> Any:
        result = receive()
        if result is not None and not pool._board.is_plain:
            raise UnreachableError(result.task, result.pid)
        return result

    monkeypatch.setattr(pool._crew, "notices", late_notices)
    monkeypatch.setattr(pool._results, "receive", lose_first)
    assert list(stream) == list(range(6))


def test_nothing_is_left_open() -> None:
    def once() -> None:
        run(Job(Items(big_item), default_collate), 2, 6)
        run(Job(Items(big_item), default_collate), 2, 6, persistent=True)
        stream = Workers(Job(Items(big_item), default_collate), 2).epoch(plan(9))
        next(stream)

    once()
    gc.collect()
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        once()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) <= before


# Failures


class CustomError(Exception):
    def __init__(self, a: int, b: int) -> None:
        super().__init__(a, b)


def failing(error: Callable[[], BaseException], at: int) -> Items:
    def make(index: int) -> int:
        if index == at:
            raise error()
        return index

    return Items(make)


def test_an_exception_is_raised_where_it_happened() -> None:
    stream = Workers(Job(failing(lambda: ValueError("bad item"), 9)), 2).epoch(plan(5))
    assert next(stream) == [0, 1, 2, 3]
    assert next(stream) == [4, 5, 6, 7]
    with pytest.raises(ValueError, match="bad item") as caught:
        next(stream)
    assert "Caught ValueError in DataLoader worker process" in str(caught.value)
    assert "Traceback" in str(caught.value)
    assert "in make" in str(caught.value)
    assert next(stream) == [12, 13, 14, 15]  # as with torch, one may go on


def test_a_key_error_is_readable() -> None:
    with pytest.raises(KeyError) as caught:
        run(Job(failing(lambda: KeyError("missing"), 2)), 1)
    assert "\nTraceback" in str(caught.value) or "\nOriginal Traceback" in str(caught.value)


def test_exceptions_that_cannot_be_made_again_are_runtime_errors() -> None:
    class Local(Exception):
        pass

    for error in (lambda: CustomError(1, 2), lambda: Local("here")):
        with pytest.raises(RuntimeError, match="Caught"):
            run(Job(failing(error, 2)), 1)


def test_exceptions_of_collate_and_init() -> None:
    def collate(items: list[int]) -> None:
        raise ZeroDivisionError("in collate")

    def init(worker: int) -> None:
        raise ZeroDivisionError("in init")

    for job in (Job(Items(int), collate), Job(Items(int), worker_init=init)):
        with pytest.raises(ZeroDivisionError, match=r"in collate|in init"):
            run(job, 2)


def test_a_sampler_may_fail_in_its_turn() -> None:
    def batches() -> Iterator[Batch]:
        yield Batch([1, 2])
        raise LookupError("no more")

    stream = Workers(Job(Items(int)), 2).epoch(batches())
    assert next(stream) == [1, 2]
    with pytest.raises(LookupError, match="no more"):
        next(stream)
    with pytest.raises(StopIteration):
        next(stream)


def test_stop_iteration_of_an_item_ends_the_loop_as_in_torch() -> None:
    assert len(run(Job(failing(StopIteration, 6)), 1)) == 1


def test_what_cannot_be_pickled_is_an_error() -> None:
    with pytest.raises(Exception, match=r"pickle|local object"):
        run(Job(Items(lambda i: lambda: i)), 1)


# Deaths


def dying(path: Path, times: int, how: Callable[[], None], at: int = 21) -> Items:
    """Kills its worker at one item, the first few times."""

    def make(index: int) -> int:
        if index == at and path.stat().st_size < times:
            with path.open("ab") as file:
                file.write(b"x")
            how()
        return index

    path.touch()
    return Items(make)


def shoot(number: int) -> Callable[[], None]:
    def die() -> None:
        faulthandler.disable()  # pytest's: it would print what is meant to happen
        os.kill(os.getpid(), number)

    return die


WAYS = {
    "kill": (shoot(signal.SIGKILL), "killed by signal: Killed"),
    "segfault": (shoot(signal.SIGSEGV), "killed by signal: Segmentation fault"),
    "exit": (lambda: os._exit(3), "exited unexpectedly"),
    "sys.exit": (lambda: (_ for _ in ()).throw(SystemExit(0)), "exited unexpectedly"),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_dead_worker_is_replaced_and_its_batch_made_again(way: str, tmp_path: Path) -> None:
    dataset = dying(tmp_path / "deaths", 1, WAYS[way][0])
    assert run(Job(dataset), 2, 10) == [list(batch.indices) for batch in plan(10)]


@pytest.mark.parametrize("way", WAYS)
def test_a_batch_that_kills_twice_is_an_error(way: str, tmp_path: Path) -> None:
    dataset = dying(tmp_path / "deaths", 99, WAYS[way][0])
    stream = Workers(Job(dataset), 2).epoch(plan(10))
    assert [next(stream) for _ in range(5)] == [list(batch.indices) for batch in plan(5)]
    with pytest.raises(RuntimeError, match=WAYS[way][1]) as caught:
        next(stream)
    assert "pid" in str(caught.value)


def test_workers_that_die_at_once_are_an_error() -> None:
    def init(worker: int) -> None:
        os._exit(5)

    with pytest.raises(RuntimeError, match="exited unexpectedly with code 5"):
        run(Job(Items(int), worker_init=init), 2)


def test_a_stuck_worker_is_replaced(tmp_path: Path) -> None:
    stuck = lambda: time.sleep(600)  # noqa: E731
    dataset = dying(tmp_path / "once", 1, stuck)
    assert run(Job(dataset), 2, 10, timeout=0.5) == [list(b.indices) for b in plan(10)]
    dataset = dying(tmp_path / "always", 99, stuck)
    with pytest.raises(RuntimeError, match=r"timed out after 0\.5 seconds"):
        run(Job(dataset), 2, 10, timeout=0.5)


def test_any_worker_may_be_killed_at_any_time() -> None:
    workers = Workers(Job(Items(lambda i: (time.sleep(0.0005), i)[1])), 3)
    killer = random.Random(0)
    got = []
    for number, batch in enumerate(workers.epoch(plan(400))):
        got.append(batch)
        if number % 20 == 10 and (pids := list(workers.pids.values())):
            os.kill(killer.choice(pids), signal.SIGKILL)
    assert got == [list(batch.indices) for batch in plan(400)]


def test_a_dead_zygote_is_an_error() -> None:
    pool = Pool(Job(Items(int)), 2)
    os.kill(pool.zygote_pid, signal.SIGKILL)
    number = pool.submit(0, Batch([1]))
    with pytest.raises(RuntimeError, match=f"pid {pool.zygote_pid}.*Killed"):
        pool.result(number)
    pool.close()


# Growing and shrinking


def test_workers_come_and_go_while_thousands_of_batches_run() -> None:
    workers = Workers(Job(Items(lambda i: i * i)), 1)
    sizes = random.Random(1)
    got = []
    for number, batch in enumerate(workers.epoch(plan(3000, 2))):
        got += batch
        if number % 50 == 25:
            workers.resize(sizes.randint(1, 6))
    assert got == [i * i for i in range(6000)]


def test_resize_changes_the_number_of_processes() -> None:
    workers = Workers(Job(Items(lambda i: (time.sleep(0.002), os.getpid())[1])), 1)
    stream = workers.epoch(plan(100000, 1))

    def wait_for(count: int) -> None:
        for _ in range(20000):
            next(stream)
            if len(workers.pids) == count:
                return
        raise AssertionError(f"{len(workers.pids)} workers, not {count}")

    wait_for(1)
    workers.resize(4)
    wait_for(4)
    workers.resize(2)
    wait_for(2)
    stream.close()


def test_a_slow_batch_holds_up_nobody() -> None:
    """While one worker is at batch 0, the other makes all that may be under way."""
    reader, writer = os.pipe()

    def make(index: int) -> int:
        if index == 0:
            os.read(reader, 3)
        else:
            os.write(writer, b"x")
        return index

    job = Job(Items(make))
    # Batch 0 waits for bytes that batches 1 to 3 write: it can end only if they overtake it.
    assert len(list(Workers(job, 2).epoch(plan(8, 1)))) == 8
    os.close(reader)
    os.close(writer)


# Seeding


def drawing(index: int) -> tuple[float, float, float]:
    if index % 5 == 4:
        return 0.0, 0.0, 0.0  # not every item draws
    return random.gauss(0, 1), float(np.random.randn()), float(torch.randn(()))


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


# Epochs


def test_each_epoch_sees_the_dataset_as_it_is() -> None:
    dataset = [1, 2]
    workers = Workers(Job(dataset), 1)
    assert list(workers.epoch([Batch([0, 1])])) == [[1, 2]]
    dataset[0] = 5
    assert list(workers.epoch([Batch([0, 1])])) == [[5, 2]]


def test_persistent_workers_stay() -> None:
    workers = Workers(Job(Items(lambda i: os.getpid())), 1, persistent=True)
    pids = {pid for _ in range(3) for batch in workers.epoch(plan(3)) for pid in batch}
    assert len(pids) == 1
    stream = workers.epoch(plan(50))
    next(stream)  # and leave it
    assert [len(batch) for batch in workers.epoch(plan(3))] == [4, 4, 4]
    with pytest.raises(RuntimeError, match="another epoch"):
        next(stream)
    workers.close()
    assert len(list(workers.epoch(plan(3)))) == 3
    workers.close()


def test_an_interrupted_iteration_does_not_end_silently() -> None:
    pid = os.getpid()
    reader, writer = os.pipe()

    def make(index: int) -> int:
        if index == 8:
            os.read(reader, 1)
            while " S " not in Path(f"/proc/{pid}/stat").read_text():
                time.sleep(0.001)  # until it waits for this batch
            os.kill(pid, signal.SIGINT)
            time.sleep(600)
        return index

    def go_on(stream: Iterator[Any]) -> Any:
        os.write(writer, b"x")
        return next(stream)

    stream = Workers(Job(Items(make)), 1).epoch(plan(9))
    assert [next(stream), next(stream)] == [[0, 1, 2, 3], [4, 5, 6, 7]]
    with pytest.raises(KeyboardInterrupt):
        go_on(stream)
    with pytest.raises(RuntimeError, match="interrupted"):
        next(stream)
    os.close(reader)
    os.close(writer)


def test_a_stream_that_is_over_does_not_touch_the_next_one() -> None:
    """Persistent workers are the newest stream's, whatever is done with older ones."""
    for job in (Job(Items(int)), Job(Counting(80), None, iterable=True, batch_size=4)):
        workers = Workers(job, 2, persistent=True)
        ended = workers.epoch(plan(4))
        list(ended)
        older = workers.epoch(plan(20))
        next(older)
        newer = workers.epoch(plan(20))
        first = next(newer)
        with pytest.raises(RuntimeError, match="another epoch"):
            next(older)
        for stream in (older, ended):
            assert next(stream, None) is None
            stream.close()
        assert [first, *newer] == list(workers.epoch(plan(20)))
        workers.close()


def test_a_loop_that_is_left_ends_its_processes() -> None:
    workers = Workers(Job(Items(int)), 2)
    stream = workers.epoch(plan(20))
    next(stream)
    zygote = workers._pool.zygote_pid
    del stream
    assert workers.pids == {}
    assert wait_until_gone(zygote)


def test_large_tasks_arrive() -> None:
    (batch,) = Workers(Job(Items(len)), 1).epoch([Batch(["x" * 500_000, "y"])])
    assert batch == [500_000, 1]


def test_an_inherited_pool_says_so() -> None:
    stream = Workers(Job(Items(int)), 2).epoch(plan(10))
    next(stream)
    pid = os.fork()
    if pid == 0:
        try:
            next(stream)
        except ForkError:
            os._exit(0)
        finally:
            os._exit(1)
    assert os.waitpid(pid, 0)[1] == 0
    assert len(list(stream)) == 9  # ours is untouched


def test_a_stream_may_be_taken_in_another_thread() -> None:
    """Also when the thread that began it is gone."""
    box: list[Any] = []
    starter = threading.Thread(
        target=lambda: box.append(Workers(Job(Items(int)), 2).epoch(plan(50)))
    )
    starter.start()
    starter.join()
    assert len(list(box[0])) == 50


# Iterable datasets


class Counting(torch.utils.data.IterableDataset):
    """Shares 0 to n-1 among workers, unevenly."""

    def __init__(self, n_items: int) -> None:
        self.n_items = n_items

    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        worker, n_workers = (info.id, info.num_workers) if info else (0, 1)
        for item in range(self.n_items):
            if item % (n_workers + 1) == worker or (
                worker == 0 and item % (n_workers + 1) == n_workers
            ):
                yield item


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
