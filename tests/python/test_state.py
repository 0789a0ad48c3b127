"""Saving and resuming: a state is a position and the name of its stream."""

import json

import pytest

import penstock
from penstock import transforms as T


def make(folder, ops, **options):
    settings = {"batch_size": 4, "shuffle": True, "seed": 7} | options
    return penstock.Loader(folder, ops, **settings)


def take(loader, count):
    """Receive `count` batches, across epochs, leaving the last iteration open."""
    batches = []
    while len(batches) < count:
        for batch in loader:
            batches.append(batch)
            if len(batches) == count:
                break
    return batches


def test_a_state_says_what_comes_next(folder, plain_ops):
    loader = make(folder, plain_ops)
    assert position(loader) == (0, 0)
    for batch in loader:
        if batch.index < len(loader) - 1:
            assert position(loader) == (0, batch.index + 1)
    assert position(loader) == (1, 0)


def position(loader):
    """(epoch, batch) of what comes next, as a fresh loader understands the state."""
    other = make(loader.dataset, [T.Resize((24, 20))])
    other.load_state_dict(loader.state_dict())
    batch = next(iter(other))
    return batch.epoch, batch.index


def test_a_state_is_small_and_plain_json(folder, ops):
    loader = make(folder, ops, seed=2**64 - 1)
    take(loader, 3)
    state = loader.state_dict()
    assert len(json.dumps(state)) < 1024
    assert json.loads(json.dumps(state)) == state


def test_three_resumes_cut_anywhere_give_the_same_stream(folder, ops, digests):
    """Cut two epochs at every batch, three times in a row, with other workers each time."""
    whole = make(folder, ops)
    wanted = digests(whole) + digests(whole)
    per_epoch = len(whole)
    for cut in range(per_epoch + 1):
        got, state = [], None
        for step, workers in enumerate((0, 2, 1)):
            loader = make(folder, ops, num_workers=workers)
            if state is not None:
                loader.load_state_dict(state)
            count = cut if step < 2 else len(wanted) - len(got)
            got += digests(take(loader, min(count, len(wanted) - len(got))))
            state = json.loads(json.dumps(loader.state_dict()))
            loader.close()
        assert got == wanted, f"cut after {cut}"


def test_a_resumed_iteration_is_the_rest_of_the_epoch(folder, plain_ops):
    loader = make(folder, plain_ops)
    take(loader, 2)
    other = make(folder, plain_ops)
    other.load_state_dict(loader.state_dict())
    assert other.epoch == 0
    assert [batch.index for batch in other] == [2, 3, 4, 5]
    assert [(batch.epoch, batch.index) for batch in other] == [(1, index) for index in range(6)]


def test_a_state_can_be_loaded_back_into_the_same_loader(folder, ops, digests):
    loader = make(folder, ops, num_workers=2)
    iterator = iter(loader)
    next(iterator)
    state = loader.state_dict()
    rest = digests(iterator) + digests(loader)
    loader.load_state_dict(state)
    assert digests(loader) + digests(loader) == rest


def test_set_epoch_of_the_resumed_epoch_keeps_the_place(folder, plain_ops):
    loader = make(folder, plain_ops)
    take(loader, 2)
    other = make(folder, plain_ops)
    other.load_state_dict(loader.state_dict())
    other.set_epoch(0)
    assert [batch.index for batch in other] == [2, 3, 4, 5]
    other.set_epoch(0)
    assert [batch.index for batch in other] == list(range(6))


def test_set_epoch_of_another_epoch_leaves_the_resumed_place(folder, plain_ops):
    loader = make(folder, plain_ops)
    take(loader, 2)
    other = make(folder, plain_ops)
    other.load_state_dict(loader.state_dict())
    other.set_epoch(1)
    assert [(batch.epoch, batch.index) for batch in other] == [(1, i) for i in range(6)]


def test_skip_and_replace_are_different_streams(folder, plain_ops):
    state = make(folder, plain_ops, on_error="skip").state_dict()
    with pytest.raises(penstock.StateError, match="on_error"):
        make(folder, plain_ops, on_error="replace").load_state_dict(state)
    make(folder, plain_ops, on_error="raise").load_state_dict(state)


def test_a_state_fits_another_number_of_ranks(folder, ops):
    alone = make(folder, ops, batch_size=8, tail="wrap")
    take(alone, 1)
    state = alone.state_dict()
    pairs = [
        make(folder, ops, batch_size=4, tail="wrap", rank=rank, world_size=2) for rank in range(2)
    ]
    for loader in pairs:
        loader.load_state_dict(state)
    alone.load_state_dict(state)
    rest = [batch.ids for batch in alone]
    together = [a.ids + b.ids for a, b in zip(*pairs, strict=True)]
    assert together == rest
    assert len(rest) == 2


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"seed": 8}, "seed"),
        ({"batch_size": 5}, "batch"),
        ({"shuffle": False}, "order"),
        ({"order": "block", "shuffle": False}, "order"),
        ({"tail": "pad"}, "tail"),
    ],
)
def test_a_state_of_another_stream_is_refused(folder, ops, options, what):
    state = make(folder, ops).state_dict()
    with pytest.raises(penstock.StateError, match=what) as caught:
        make(folder, ops, **options).load_state_dict(state)
    assert isinstance(caught.value, ValueError)
    assert caught.value.code == "PEN_ESTATE"


def test_a_state_of_other_operations_or_data_is_refused(folder, ops, plain_ops, spoiled):
    state = make(folder, ops).state_dict()
    with pytest.raises(penstock.StateError, match=r"pipeline|operations"):
        make(folder, plain_ops).load_state_dict(state)
    with pytest.raises(penstock.StateError, match="dataset"):
        make(spoiled, ops).load_state_dict(state)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"epoch": None}, "'epoch' is missing"),
        ({"epoch": "later"}, "'epoch' is missing or no integer"),
        ({"batch": -1}, "'batch' is negative"),
        ({"seed": "one"}, "'seed' is no number"),
        ({"seed": 1}, "'seed' is missing or no text"),
        ({"order": "random"}, "'order' is unknown"),
        ({"tail_auto": 1}, "'tail_auto'"),
        ({"dataset": "x" * 40}, "'dataset' is no hash"),
        ({"mix": 3}, "'mix' is no text"),
        ({"penstock": 2}, "'penstock' is another version"),
        ({"note": "x" * 1100}, "too long"),
    ],
)
def test_what_is_no_state_is_refused_by_name_and_changes_nothing(folder, plain_ops, wrong, words):
    loader = make(folder, plain_ops)
    take(loader, 2)
    before = loader.state_dict()
    state = {name: value for name, value in (before | wrong).items() if value is not None}
    with pytest.raises(penstock.InvalidError, match=words):
        loader.load_state_dict(state)
    assert loader.state_dict() == before


def test_loading_a_state_stops_a_running_iteration(folder, plain_ops):
    loader = make(folder, plain_ops)
    iterator = iter(loader)
    next(iterator)
    loader.load_state_dict(loader.state_dict())
    with pytest.raises(RuntimeError, match="has moved"):
        next(iterator)
    assert next(iter(loader)).index == 1


def test_workers_budget_and_place_are_not_part_of_a_state(folder, shard, ops, digests):
    loader = make(folder, ops, num_workers=0)
    take(loader, 2)
    state = loader.state_dict()
    loader.load_state_dict(state)
    other = make(shard, ops, num_workers=3, prefetch=5, memory_budget="64MiB")
    other.load_state_dict(state)
    assert digests(other) == digests(loader)
