"""Loaders that are told what each batch is: samplers of any kind, exactly."""

import itertools
import random

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils.data import BatchSampler, RandomSampler, WeightedRandomSampler

import penstock
from penstock import FedLoader

N = 23
UNEVEN = [[22, 0, 7, 7], [3], [7, 0, 9], [11, 11, 11, 11], [5, 6]]


def test_batches_are_what_was_fed(folder, ops):
    with FedLoader(folder, ops, 4) as loader:
        batches = list(loader.run(5, UNEVEN))
    assert [batch.ids for batch in batches] == UNEVEN
    assert [(batch.epoch, batch.index) for batch in batches] == [(5, i) for i in range(5)]


@pytest.mark.parametrize("workers", [0, 1, 3])
@pytest.mark.parametrize("prefetch", [1, 5])
def test_no_number_of_workers_changes_a_byte(folder, ops, digests, workers, prefetch):
    want = digests(FedLoader(folder, ops, 4, seed=3, num_workers=0).run(1, UNEVEN))
    loader = FedLoader(folder, ops, 4, seed=3, num_workers=workers, prefetch=prefetch)
    assert digests(loader.run(1, UNEVEN)) == want
    assert digests(loader.run(1, UNEVEN)) == want, "an epoch can be fed again"


def test_a_repeat_is_its_sample_with_the_next_occurrence(folder, ops):
    loader = FedLoader(folder, ops, 4, seed=9)
    images = [np.asarray(batch["image"]) for batch in loader.run(2, [[7, 7], [1, 7]])]
    data = loader.dataset.read(7)
    for occurrence, image in enumerate([images[0][0], images[0][1], images[1][1]]):
        want = penstock.apply(data, ops, seed=9, epoch=2, sample=7, occurrence=occurrence)
        assert np.array_equal(image, np.asarray(want))


def test_the_same_order_as_the_loader_gives_the_same_stream(folder, ops, digests):
    loader = penstock.Loader(folder, ops, 5, shuffle=True, seed=4)
    want = list(loader)
    fed = FedLoader(folder, ops, 5, seed=4)
    assert digests(fed.run(0, [batch.ids for batch in want])) == digests(want)


@pytest.mark.parametrize("start", range(len(UNEVEN) + 1))
def test_an_epoch_goes_on_exactly_at_any_batch(folder, ops, digests, start):
    whole = digests(FedLoader(folder, ops, 4).run(6, UNEVEN))
    loader = FedLoader(folder, ops, 4)
    for _ in itertools.islice(loader.run(6, UNEVEN), start):
        pass
    state = loader.state_dict() if start else {**loader.state_dict(), "epoch": 6}
    resumed = FedLoader(folder, ops, 4)
    epoch, batch = resumed.load_state_dict(state)
    assert (epoch, batch) == (6, start)
    assert digests(resumed.run(epoch, UNEVEN, start=batch)) == whole[start:]


@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_any_lists_are_delivered_as_they_are(folder, plain_ops, data):
    batch = st.lists(st.integers(0, N - 1), min_size=1, max_size=6)
    lists = data.draw(st.lists(batch, max_size=8))
    loader = FedLoader(folder, plain_ops, 6, num_workers=2, prefetch=data.draw(st.integers(1, 4)))
    assert [batch.ids for batch in loader.run(0, lists)] == lists


def test_torch_samplers_feed_it(folder, plain_ops):
    dataset = penstock.Dataset(folder)
    for sampler in (
        RandomSampler(range(N), generator=torch.Generator().manual_seed(1)),
        WeightedRandomSampler(torch.arange(N) + 1.0, 40, generator=torch.Generator()),
    ):
        order = list(BatchSampler(sampler, 6, drop_last=False))
        batches = list(FedLoader(dataset, plain_ops, 6).run(0, order))
        assert [batch.ids for batch in batches] == order


def test_an_endless_sampler_is_read_no_further_than_needed(folder, plain_ops):
    pulled = []

    def endless():
        for number in itertools.count():
            pulled.append(number)
            yield [number % N, random.Random(number).randrange(N)]

    loader = FedLoader(folder, plain_ops, 2, prefetch=3)
    batches = list(itertools.islice(loader.run(0, endless()), 50))
    assert len(batches) == 50
    assert len(pulled) <= 50 + 3


@pytest.mark.parametrize(
    "ids",
    [[1, 2], (1, 2), range(1, 3), np.array([1, 2]), np.array([1, 9, 2, 9])[::2],
     np.array([1, 2], np.int32), torch.tensor([1, 2]), [np.int64(1), torch.tensor(2)]],
    ids=["list", "tuple", "range", "int64", "strided", "int32", "tensor", "items"],
)  # fmt: skip
def test_ids_come_as_any_sequence(folder, plain_ops, ids):
    loader = FedLoader(folder, plain_ops, 4)
    loader.feed(ids)
    assert loader.next().ids == [1, 2]


def test_by_hand(folder, plain_ops):
    loader = FedLoader(folder, plain_ops, 4)
    loader.begin(2)
    loader.feed([1])
    loader.feed([2, 3])
    assert loader.waiting == 2
    assert loader.next().ids == [1]
    assert loader.position == (2, 1)
    loader.end()
    assert loader.next().ids == [2, 3]
    assert loader.next() is None
    loader.feed([4])
    batch = loader.next()
    assert (batch.epoch, batch.index) == (3, 0)


@pytest.mark.parametrize(
    ("ids", "error", "words"),
    [
        ([], penstock.InvalidError, "0 samples"),
        ([1] * 5, penstock.InvalidError, "1 to 4"),
        ([N], penstock.InvalidError, "no sample 23"),
        ([0, -1], penstock.InvalidError, "place 1"),
        ([0.5], TypeError, "float"),
        (["a"], TypeError, "str"),
        ([2**70], OverflowError, None),
        (3, TypeError, None),
    ],
)
def test_what_is_no_batch_is_refused_and_leaves_no_trace(folder, plain_ops, ids, error, words):
    loader = FedLoader(folder, plain_ops, 4)
    with pytest.raises(error, match=words):
        loader.feed(ids)
    assert loader.waiting == 0
    loader.feed([1])
    assert loader.next().index == 0


def test_asking_with_nothing_fed_is_an_error_that_passes(folder, plain_ops):
    loader = FedLoader(folder, plain_ops, 4)
    with pytest.raises(penstock.InvalidError, match="nothing was fed"):
        loader.next()
    loader.feed([3])
    assert loader.next().ids == [3]


def test_bad_samples_are_raised_skipped_or_replaced(spoiled, plain_ops, digests):
    lists = [[3, 4], [4], [17, 0]]
    with pytest.raises(penstock.DataError):
        list(FedLoader(spoiled, plain_ops, 2).run(0, lists))
    skipped = FedLoader(spoiled, plain_ops, 2, on_error="skip").run(0, lists)
    assert [batch.ids for batch in skipped] == [[3], [0]]
    for workers in (0, 3):
        loader = FedLoader(spoiled, plain_ops, 2, on_error="replace", num_workers=workers)
        replaced = list(loader.run(0, lists))
        assert [len(batch) for batch in replaced] == [2, 1, 2]
        assert not {4, 17} & {id for batch in replaced for id in batch.ids}
        if workers == 0:
            want = digests(replaced)
        else:
            assert digests(replaced) == want


def test_a_state_of_another_stream_is_refused(folder, plain_ops):
    state = FedLoader(folder, plain_ops, 4, seed=1).state_dict()
    with pytest.raises(penstock.StateError, match="seed"):
        FedLoader(folder, plain_ops, 4, seed=2).load_state_dict(state)
    with pytest.raises(penstock.StateError, match="order"):
        penstock.Loader(folder, plain_ops, 4, seed=1).load_state_dict(state)


def test_a_run_ends_when_another_begins(folder, plain_ops):
    loader = FedLoader(folder, plain_ops, 4)
    older = loader.run(0, UNEVEN)
    next(older)
    newer = loader.run(1, UNEVEN)
    assert next(newer).epoch == 1
    with pytest.raises(RuntimeError, match="begun something else"):
        next(older)
    assert [batch.ids for batch in newer] == UNEVEN[1:]


def test_a_run_that_was_left_leaves_nothing_behind(folder, plain_ops):
    loader = FedLoader(folder, plain_ops, 4)
    next(loader.run(0, itertools.repeat([1, 2])))
    assert [batch.ids for batch in loader.run(0, UNEVEN)] == UNEVEN


@pytest.mark.parametrize(
    "call",
    [
        lambda loader, number: loader.feed([number]),
        lambda loader, number: loader.skip([number]),
        lambda loader, number: loader._core.seek(number, 0),
        lambda loader, number: loader._core.draw_mix(number, 0),
    ],
    ids=["feed", "skip", "seek", "draw_mix"],
)
def test_a_loader_closed_by_its_argument_is_closed(folder, plain_ops, call):
    loader = FedLoader(folder, plain_ops, 4)

    class Closing:
        def __index__(self):
            loader.close()
            return 0

    with pytest.raises(penstock.InvalidError, match="closed"):
        call(loader, Closing())
