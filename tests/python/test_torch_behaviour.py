"""What people rely on in torch's DataLoader, with the import changed."""

import collections
import gc
import itertools
import os
import threading
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
data = torch.utils.data

N_WORKERS = pytest.mark.parametrize("n_workers", [0, 2])
Point = collections.namedtuple("Point", ["x", "y"])


class Nested(data.Dataset):
    """Every structure that default_collate knows."""

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return {
            "number": index,
            "fraction": index / 2,
            "text": f"item {index}",
            "array": np.full((2, 3), index, np.float32),
            "tensor": torch.arange(4) + index,
            "half": torch.ones(2, dtype=torch.bfloat16) * index,
            "bool": index % 2 == 0,
            "point": Point(index, [index, (torch.tensor(index), "a")]),
        }


class ByBatch(data.Dataset):
    """Answers for whole batches."""

    def __len__(self):
        return 10

    def __getitem__(self, index):
        raise AssertionError("__getitems__ is there")

    def __getitems__(self, indices):
        return [index * 10 for index in indices]


class Worker(data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, index):
        info = ptorch.get_worker_info()
        if info is None:
            return -1, -1, os.getpid()
        assert type(info.dataset) is Worker
        return info.id, info.num_workers, os.getpid()


class Failing(data.Dataset):
    def __init__(self, error):
        self.error = error

    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index == 5:
            raise self.error
        return index


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[k], other[k]) for k in one)
    if isinstance(one, list | tuple):
        pairs = zip(one, other, strict=True)
        return type(one) is type(other) and all(same(a, b) for a, b in pairs)
    return one == other


@N_WORKERS
@pytest.mark.parametrize("batch_size", [3, None])
def test_nested_structures_are_collated_as_torchs(n_workers, batch_size):
    ours = list(ptorch.DataLoader(Nested(), batch_size, num_workers=n_workers))
    theirs = list(data.DataLoader(Nested(), batch_size))
    assert len(ours) == len(theirs)
    assert all(map(same, ours, theirs))


@N_WORKERS
def test_whole_batches_are_asked_for_where_that_is_offered(n_workers):
    loader = ptorch.DataLoader(ByBatch(), 4, num_workers=n_workers)
    assert [b.tolist() for b in loader] == [[0, 10, 20, 30], [40, 50, 60, 70], [80, 90]]


@N_WORKERS
def test_collate_functions_may_return_anything(n_workers):
    loader = ptorch.DataLoader(
        range(5), 2, collate_fn=lambda items: {"n": items}, num_workers=n_workers
    )
    assert list(loader) == [{"n": [0, 1]}, {"n": [2, 3]}, {"n": [4]}]


def test_workers_know_who_they_are():
    ids, counts, pids = zip(*ptorch.DataLoader(Worker(), None, num_workers=2), strict=True)
    assert set(ids) <= {0, 1}
    assert set(counts) == {2}
    assert os.getpid() not in pids
    here = next(iter(ptorch.DataLoader(Worker(), None, num_workers=0)))
    assert here == [-1, -1, os.getpid()]


def test_worker_init_fn_is_called_in_every_worker(tmp_path):
    def leave_a_note(worker):
        (tmp_path / str(worker)).write_text(str(ptorch.get_worker_info().seed))

    list(ptorch.DataLoader(range(8), 1, num_workers=2, worker_init_fn=leave_a_note))
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1"}


@pytest.mark.parametrize("n_workers", [0, 1])  # its number is in the text
@pytest.mark.parametrize("error", [ValueError("no such thing"), KeyError("missing")], ids=repr)
def test_errors_of_the_dataset_are_raised_and_the_rest_follows(n_workers, error):
    """Of the same type and with the same first line as torch's; the loop may go on."""

    def run(kind):
        iterator, seen = iter(kind(Failing(error), 2, num_workers=n_workers)), []
        while True:
            try:
                seen.append(next(iterator).tolist())
            except StopIteration:
                return seen
            except Exception as caught:
                seen.append((type(caught), str(caught).splitlines()[0]))

    assert run(ptorch.DataLoader) == run(data.DataLoader)


@N_WORKERS
@pytest.mark.parametrize("where", ["sampler", "collate", "init"])
def test_errors_of_the_users_other_code_are_raised(n_workers, where):
    def numbers():
        yield from range(3)
        raise LookupError("from the sampler")

    def fail(_):
        raise LookupError(f"from the {where}")

    options = {
        "sampler": {"sampler": type("S", (), {"__iter__": lambda self: numbers()})()},
        "collate": {"collate_fn": fail},
        "init": {"worker_init_fn": fail},
    }[where]
    loader = ptorch.DataLoader(range(8), 2, num_workers=n_workers, **options)
    if where == "init" and n_workers == 0:
        assert len(list(loader)) == 4  # there is no worker to init
        return
    with pytest.raises(LookupError, match=f"from the {where}"):
        list(loader)


class Slow(data.Dataset):
    def __len__(self):
        return 4

    def __getitem__(self, index):
        if index == 2:
            time.sleep(60)
        return index


def test_a_timeout_is_an_error_in_torchs_words():
    loader = ptorch.DataLoader(Slow(), 1, num_workers=1, timeout=0.5)
    with pytest.raises(RuntimeError, match=r"DataLoader timed out after 0\.5 seconds"):
        list(loader)


def is_running(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


@pytest.mark.parametrize("persistent", [False, True])
def test_a_loader_that_is_dropped_leaves_no_process(persistent):
    loader = ptorch.DataLoader(Worker(), None, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    pids = {next(iterator)[2], next(iterator)[2]}
    del iterator, loader
    gc.collect()
    for _ in range(200):  # they are told to end; the kernel takes its time
        if not any(map(is_running, pids)):
            return
        time.sleep(0.05)
    raise AssertionError(f"still there: {pids}")


def test_an_iterator_that_is_dropped_ends_its_workers_not_the_loader():
    loader = ptorch.DataLoader(range(9), 2, num_workers=2)
    wanted = [batch.tolist() for batch in loader]
    for _ in range(3):
        next(iter(loader))
    assert [batch.tolist() for batch in loader] == wanted


def test_persistent_workers_stay():
    loader = ptorch.DataLoader(Worker(), None, num_workers=1, persistent_workers=True)
    assert {pid for _ in range(3) for _, _, pid in loader} != set()
    assert len({pid for _ in range(3) for _, _, pid in loader}) == 1


def test_persistent_workers_serve_one_iteration_at_a_time():
    """torch begins the same iterator again; here the older one says that it has ended."""
    loader = ptorch.DataLoader(range(9), 2, num_workers=1, persistent_workers=True)
    first = iter(loader)
    next(first)
    second = iter(loader)
    begun = next(second).tolist()
    with pytest.raises(RuntimeError, match="another iteration"):
        next(first)
    del first
    gc.collect()
    assert [begun, *(batch.tolist() for batch in second)] == [[0, 1], [2, 3], [4, 5], [6, 7], [8]]


@N_WORKERS
def test_what_changes_between_epochs_is_seen_by_the_next(n_workers):
    numbers = [1, 2, 3]
    loader = ptorch.DataLoader(numbers, 3, num_workers=n_workers)
    assert next(iter(loader)).tolist() == [1, 2, 3]
    numbers[:] = [4, 5, 6, 7]
    assert [batch.tolist() for batch in loader] == [[4, 5, 6], [7]]
    assert len(loader) == 2


def test_order_is_kept_even_if_nobody_asks_for_it():
    loader = ptorch.DataLoader(range(20), 1, num_workers=2, in_order=False)
    assert [batch.item() for batch in loader] == list(range(20))


@pytest.mark.parametrize("n_workers", [0, 2, "auto"])
def test_threads_may_share_an_iteration(n_workers):
    """Each batch goes to one of them, in order to each."""
    batches = iter(ptorch.DataLoader(range(400), 2, num_workers=n_workers))
    found = [[] for _ in range(4)]

    def take(mine):
        mine.extend(batch.tolist() for batch in batches)

    threads = [threading.Thread(target=take, args=(mine,)) for mine in found]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(mine == sorted(mine) for mine in found)
    assert sorted(itertools.chain(*found)) == [[i, i + 1] for i in range(0, 400, 2)]


def test_a_spawned_worker_gets_its_dataset():
    loader = ptorch.DataLoader(list(range(5)), 2, num_workers=1, multiprocessing_context="spawn")
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4]]


@N_WORKERS
def test_batches_may_be_changed_and_kept(n_workers):
    """They are the caller's own, not a window on something."""
    batches = list(ptorch.DataLoader(np.ones((6, 4)), 2, num_workers=n_workers))
    batches[0].zero_()
    assert [batch.sum().item() for batch in batches] == [0, 8, 8]


def test_data_pipes_are_left_to_torch():
    pipes = pytest.importorskip("torch.utils.data.datapipes.iter")
    loader = ptorch.DataLoader(pipes.IterableWrapper(range(6)), 2, num_workers=0)
    assert [batch.tolist() for batch in loader] == [[0, 1], [2, 3], [4, 5]]
    assert len(loader) == 3
    with pytest.raises(ValueError, match="DataPipes"):
        loader.state_dict()


class Numbers(data.Dataset):
    def __len__(self):
        return 40

    def __getitem__(self, index):
        return index


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(40))


@pytest.mark.parametrize(
    ("dataset", "order"), [(Numbers(), "sequential"), (Numbers(), "torch"), (Stream(), None)]
)
@pytest.mark.parametrize("num_workers", [0, 1])
def test_epochs_leave_nothing_to_the_collector(dataset, order, num_workers):
    """Cycles wait for it with all that they hold, and short epochs make many."""
    loader = ptorch.DataLoader(
        dataset,
        batch_size=8,
        order=order,
        num_workers=num_workers,
        persistent_workers=bool(num_workers),
    )
    list(loader)
    gc.collect()
    gc.disable()
    try:
        for _ in range(5):
            list(loader)
        assert gc.collect() == 0
    finally:
        gc.enable()
