"""Exceptions and deaths in worker processes: who is told, and what is made again."""

import faulthandler
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from penstock.workers import Batch, Job, Pool, Workers
from worker_checks import Items, plan, run

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


def test_what_cannot_be_pickled_is_an_error_that_says_what_to_do() -> None:
    for num_workers in (1, "auto"):
        with pytest.raises(Exception, match=r"pickle|local object") as caught:
            run(Job(Items(lambda i: lambda: i)), num_workers)
        assert "use num_workers=0" in str(caught.value)
    with pytest.raises(TypeError) as raised:  # of the dataset's own
        run(Job(failing(TypeError, 1)), 1)
    assert "num_workers=0" not in str(raised.value)


@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit])
def test_what_would_end_a_process_is_told_as_an_error(kind: type[BaseException]) -> None:
    """A RuntimeError, as with torch, whose workers are then gone; ours go on."""
    stream = Workers(Job(failing(kind, 5)), 1).epoch(plan(4))
    assert next(stream) == [0, 1, 2, 3]
    with pytest.raises(RuntimeError, match=f"Caught {kind.__name__} in DataLoader worker"):
        next(stream)
    assert next(stream) == [8, 9, 10, 11]


def test_too_many_workers_are_refused_before_anything_is_started() -> None:
    with pytest.raises(ValueError, match="at most 256"):
        Workers(Job(Items(int)), 257)


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


def test_closing_while_another_thread_waits_is_told_there() -> None:
    workers = Workers(Job(Items(lambda index: time.sleep(3600))), 1)
    stream, told = workers.epoch(plan(3)), []

    def wait() -> None:
        try:
            next(stream)
        except BaseException as error:
            told.append(error)

    waiting = threading.Thread(target=wait)
    waiting.start()
    workers.close()
    waiting.join(60)
    assert [type(error) for error in told] == [RuntimeError]
    assert "closed" in str(told[0])
