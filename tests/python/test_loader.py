"""Iterating: epochs, lengths, orders, tails, and what a loader leaves behind."""

import copy
import gc
import os
import pickle
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

import penstock
from penstock import transforms as T

N = 23


def ids_of(batches):
    return [id for batch in batches for id in batch.ids]


def test_one_epoch_has_every_sample_once(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 5, shuffle=True)
    batches = list(loader)
    assert [len(batch) for batch in batches] == [5, 5, 5, 5, 3]
    assert sorted(ids_of(batches)) == list(range(N))
    assert len(loader) == 5


def test_without_shuffle_samples_come_in_order_of_id(folder, plain_ops):
    assert ids_of(penstock.Loader(folder, plain_ops, 4)) == list(range(N))


def test_each_iteration_is_the_next_epoch(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 8, shuffle=True)
    epochs = [list(loader) for _ in range(3)]
    assert [{batch.epoch for batch in epoch} for epoch in epochs] == [{0}, {1}, {2}]
    assert [[batch.index for batch in epoch] for epoch in epochs] == [[0, 1, 2]] * 3
    assert ids_of(epochs[0]) != ids_of(epochs[1]) != ids_of(epochs[2])


def test_after_a_break_the_next_iteration_is_the_next_epoch_from_its_beginning(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 4, shuffle=True)
    for batch in loader:
        if batch.index == 2:
            break
    assert loader.epoch == 0
    following = list(loader)
    assert [(batch.epoch, batch.index) for batch in following] == [(1, i) for i in range(6)]
    whole = penstock.Loader(folder, plain_ops, 4, shuffle=True)
    list(whole)
    assert ids_of(following) == ids_of(whole)


def test_a_break_at_the_last_batch_is_a_break(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 8)
    for batch in loader:
        if batch.index == len(loader) - 1:
            break
    assert [batch.epoch for batch in loader] == [1, 1, 1]


def test_asking_for_an_iterator_and_not_using_it_costs_no_epoch(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 8)
    iter(loader)
    assert [batch.epoch for batch in loader] == [0, 0, 0]


def test_set_epoch_lets_the_next_iteration_be_that_epoch(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 8, shuffle=True)
    first = [ids_of(loader) for _ in range(4)]
    loader.set_epoch(2)
    assert loader.epoch == 2
    assert ids_of(loader) == first[2]
    assert loader.epoch == 3
    loader.set_epoch(3)  # is there already
    assert ids_of(loader) == first[3]


def test_an_older_iterator_says_that_the_loader_has_moved(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 8)
    old = iter(loader)
    next(old)
    next(iter(loader))
    with pytest.raises(RuntimeError, match="has moved"):
        next(old)


def test_a_finished_iterator_stays_finished(folder, plain_ops):
    iterator = iter(penstock.Loader(folder, plain_ops, 8))
    assert len(list(iterator)) == 3
    assert list(iterator) == []


def test_two_loaders_may_be_nested(folder, plain_ops):
    outer = penstock.Loader(folder, plain_ops, 8, num_workers=2)
    inner = penstock.Loader(folder, plain_ops, 6, shuffle=True, num_workers=2)
    seen = [(len(a), sorted(ids_of(inner)) == list(range(N))) for a in outer]
    assert seen == [(8, True), (8, True), (7, True)]


def test_holding_every_batch_of_several_epochs_does_not_deadlock(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 2, prefetch=2, num_workers=2)
    held = [batch for _ in range(10) for batch in loader]
    assert len(held) == 120
    assert held[0]["image"].tolist() == held[12]["image"].tolist()


@pytest.mark.parametrize(
    ("tail", "lengths", "masked"),
    [("short", [6, 6, 6, 5], 0), ("drop", [6, 6, 6], 0), ("pad", [6] * 4, 1), ("wrap", [6] * 4, 0)],
)
def test_the_tail_is_what_was_asked_for(folder, plain_ops, tail, lengths, masked):
    loader = penstock.Loader(folder, plain_ops, 6, shuffle=True, tail=tail)
    batches = list(loader)
    assert [len(batch) for batch in batches] == lengths
    assert len(loader) == len(lengths)
    assert sum(batch["mask"].tolist().count(False) for batch in batches) == masked
    if tail == "wrap":
        assert batches[-1].ids[-1] == batches[0].ids[0]


def test_drop_last_is_the_tail_drop(folder, plain_ops):
    assert len(penstock.Loader(folder, plain_ops, 6, drop_last=True)) == 3
    with pytest.raises(ValueError, match="drop_last"):
        penstock.Loader(folder, plain_ops, 6, drop_last=True, tail="pad")


def test_a_dataset_can_be_shared_by_loaders(folder, plain_ops):
    dataset = penstock.Dataset(folder)
    loaders = [penstock.Loader(dataset, plain_ops, 8, num_workers=n) for n in (0, 1)]
    assert ids_of(loaders[0]) == ids_of(loaders[1])
    assert loaders[0].dataset is dataset


def test_order_says_which_samples_come(folder, plain_ops):
    for order in ("sequential", "shuffle", "block"):
        loader = penstock.Loader(folder, plain_ops, 6, order=order, block_size=3, window=2, seed=5)
        for epoch in range(2):
            assert ids_of(loader) == [loader.order(epoch, k) for k in range(N)]


@settings(max_examples=50, deadline=None)
@given(
    kind=st.integers(0, 2),
    block=st.integers(1, 40),
    window=st.integers(1, 9),
    seed=st.integers(0, 2**64 - 1),
    count=st.integers(1, 300),
    epoch=st.integers(0, 2**31),
)
def test_every_order_is_a_permutation(kind, block, window, seed, count, epoch):
    order = [
        penstock._core.order_at(kind, block, window, seed, count, epoch, k) for k in range(count)
    ]
    assert sorted(order) == list(range(count))


@pytest.mark.parametrize("kind", [0, 1, 2])
def test_a_slice_of_an_order_goes_round(kind):
    whole = [penstock._core.order_at(kind, 3, 2, 7, 10, 1, k) for k in range(10)]
    assert penstock._core.order_slice(kind, 3, 2, 7, 10, 1, 8, 15) == (whole * 3)[8:23]
    assert penstock._core.order_slice(kind, 3, 2, 7, 10, 1, 4, 0) == []
    for begin, n in [(-1, 2), (0, -1), (2**63 - 1, -5), (2**63 - 1, 5)]:
        with pytest.raises(ValueError, match="order"):
            penstock._core.order_slice(kind, 3, 2, 7, 10, 1, begin, n)


def test_a_position_outside_the_epoch_is_an_error(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops)
    for position in (-1, N):
        with pytest.raises(ValueError, match="position"):
            loader.order(0, position)


def test_stats_count_what_was_done(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 5, num_workers=2)
    list(loader)
    stats = loader.stats()
    assert stats["batches"] >= 5
    assert stats["samples"] >= N
    assert stats["bytes_read"] >= loader.dataset.nbytes
    assert stats["workers"] == 2
    assert stats["bad_samples"] == 0
    assert 0 < stats["budget_peak"] <= stats["budget_bytes"]


def test_a_large_sample_among_small_ones_arrives_in_its_place(tmp_path):
    for number in range(12):
        side = 1500 if number == 3 else 30
        colour = (number * 20, 0, 0)
        Image.new("RGB", (side, side), colour).save(tmp_path / f"{number:02}.png")
    loader = penstock.Loader(tmp_path, [T.Resize((8, 8))], 4, num_workers=4)
    values = [np.asarray(batch["image"])[:, 0, 0, 0].tolist() for batch in loader]
    assert values == [[0, 20, 40, 60], [80, 100, 120, 140], [160, 180, 200, 220]]


def threads():
    return len(os.listdir("/proc/self/task"))


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def settle(count, wanted):
    """A joined thread may stay in /proc for a moment."""
    deadline = time.monotonic() + 30
    while count() > wanted and time.monotonic() < deadline:
        time.sleep(0.01)
    return count()


def leave_by_close(loader):
    next(iter(loader))
    loader.close()


def leave_by_with(loader):
    with loader:
        next(iter(loader))


def leave_by_exception(loader):
    with pytest.raises(KeyError), loader:
        next(iter(loader))["nothing of that name"]


def leave_by_del(loader):
    next(iter(loader))


@pytest.mark.parametrize("leave", [leave_by_close, leave_by_with, leave_by_exception, leave_by_del])
def test_no_thread_and_no_descriptor_is_left(folder, shard, plain_ops, leave):
    leave(penstock.Loader(folder, plain_ops, 2, num_workers=3))  # whatever stays for good is there
    gc.collect()
    before = threads(), descriptors()
    for data in (folder, shard):
        leave(penstock.Loader(data, plain_ops, 2, num_workers=3))
        gc.collect()
        assert settle(threads, before[0]) == before[0]
        assert descriptors() == before[1]


def test_closing_twice_is_legal_and_a_closed_loader_says_so(folder, plain_ops):
    loader = penstock.Loader(folder, plain_ops, 4)
    batch = next(iter(loader))
    loader.close()
    loader.close()
    assert len(batch["image"]) == 4
    for use in (lambda: list(loader), lambda: len(loader), loader.state_dict, loader.stats):
        with pytest.raises(penstock.Error, match="closed"):
            use()


def test_no_thread_starts_before_the_first_batch(folder, plain_ops):
    before = threads()
    loader = penstock.Loader(folder, plain_ops, 4, num_workers=3)
    iter(loader)
    assert threads() <= before


def test_other_python_threads_run_while_one_is_in_the_library(tmp_path):
    """With Python's lock held, the other thread could tick at most once a call."""
    picture = tmp_path / "big.jpg"
    Image.effect_noise((2000, 2000), 90).convert("RGB").save(picture)
    ops = [T.Resize((8, 8))]
    loader = penstock.Loader(tmp_path, ops, 1, num_workers=0)
    data = picture.read_bytes()
    calls = [lambda: penstock.decode(data), lambda: penstock.apply(data, ops), lambda: list(loader)]
    calls.append(lambda: loader.replay(0, 0))
    ticks = []
    stop = threading.Event()

    def tick():
        while not stop.wait(0.0005):
            ticks.append(None)

    ticker = threading.Thread(target=tick)
    ticker.start()
    for call in calls:
        before = len(ticks)
        call()
        assert len(ticks) - before > 2
    stop.set()
    ticker.join()


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_loader_says_how_to_have_another_one(folder, plain_ops, duplicate):
    for loader in (penstock.Loader(folder, plain_ops), penstock.FedLoader(folder, plain_ops)):
        with pytest.raises(TypeError, match="make another one"):
            duplicate(loader)


@pytest.mark.parametrize(
    ("option", "limit"), [("batch_size", 2**20), ("prefetch", 1024), ("world_size", 2**20)]
)
def test_a_limit_is_the_same_wherever_it_is_checked(folder, plain_ops, option, limit):
    with pytest.raises(ValueError, match=rf"{option} must be .*{limit}"):
        penstock.Loader(folder, plain_ops, **{option: limit + 1})
