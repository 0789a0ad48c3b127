"""Python datasets in worker processes: what comes back, in which order, and in whose memory."""

import contextlib
import gc
import os
import random
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import default_collate

from penstock.errors import ForkError
from penstock.workers import Batch, Job, Workers, crew
from penstock.workers.wire import UnreachableError
from worker_checks import Counting, Items, big_item, plan, run, same, wait_until_gone


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


def test_workers_do_not_look_for_garbage_in_what_they_inherited() -> None:
    def counts(_index: int) -> tuple[int, int]:
        return gc.get_freeze_count(), len(gc.get_objects())

    (batch,) = run(Job(Items(counts)), 1, n_batches=1)
    for n_frozen, n_tracked in batch:
        assert n_frozen > 10 * n_tracked


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


@pytest.mark.parametrize(
    ("prefetch", "ahead", "under_way"), [(None, 1, 3), (None, 1 << 30, 4), (3, 1, 6)]
)
def test_large_batches_lie_ready_in_small_numbers(
    monkeypatch: pytest.MonkeyPatch, prefetch: int | None, ahead: int, under_way: int
) -> None:
    """One beside those being made, unless the user said how many."""
    monkeypatch.setattr("penstock.workers.settings.AHEAD_BYTES", ahead)
    drawn = 0

    def batches() -> Iterator[Batch]:
        nonlocal drawn
        for batch in plan(30, 2):
            drawn += 1
            yield batch

    workers = Workers(Job(Items(big_item), default_collate), 2, prefetch_factor=prefetch)
    stream = workers.epoch(batches())
    for number in range(5):
        next(stream)
        assert drawn == number + 1 + under_way
    stream.close()


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

    def count() -> int:
        gc.collect()
        while crew._leaving:  # processes that take their time are watched until they are gone
            crew._see_off()
            time.sleep(0.01)
        return len(os.listdir("/proc/self/fd"))

    once()
    before = count()
    for _ in range(5):
        once()
    assert count() <= before


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
