"""States of penstock.torch.DataLoader: the position received, continued anywhere."""

import json
import random

import numpy as np
import pytest

import penstock

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
data = torch.utils.data

COUNT = 23
STOPS = (0, 1, 3, 5, 6)  # of the six batches of an epoch


class Draws(data.Dataset):
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index, torch.rand(()), random.random(), np.random.rand()


class Eager(data.Sampler):
    """Draws from everything there is, and repeats."""

    def __init__(self, source):
        self.source = source

    def __iter__(self):
        order = torch.randperm(COUNT).tolist()
        random.shuffle(order)
        return iter([(one + int(np.random.randint(3))) % COUNT for one in order])

    def __len__(self):
        return COUNT


class Stateful(data.Sampler):
    """Another order every time, which only its own state knows."""

    def __init__(self):
        self.times = 0

    def __iter__(self):
        self.times += 1
        yield from ((one * (self.times + 4)) % COUNT for one in range(COUNT))

    def __len__(self):
        return COUNT

    def state_dict(self):
        return {"times": self.times}

    def load_state_dict(self, state):
        self.times = state["times"]


def options(name):
    generator = torch.Generator().manual_seed(5)
    return {
        "ours": {"shuffle": True},
        "ours, seeded": {"shuffle": True, "seed": 4},
        "blocks": {"order": "block", "block_size": 3, "window": 2},
        "sequential": {},
        "torch": {"shuffle": True, "order": "torch"},
        "torch, generator": {"shuffle": True, "order": "torch", "generator": generator},
        "weighted": {"sampler": data.WeightedRandomSampler([1.0, 2, 3] * 7, COUNT)},
        "weighted, generator": {
            "sampler": data.WeightedRandomSampler([1.0, 2, 3] * 7, COUNT, generator=generator)
        },
        "distributed": {"sampler": data.DistributedSampler(Draws(), 1, 0, seed=3)},
        "eager": {"sampler": Eager(None)},
        "stateful": {"sampler": Stateful()},
        "batch sampler": {
            "batch_size": 1,
            "batch_sampler": data.BatchSampler(data.RandomSampler(Draws()), 4, False),
        },
    }[name]


KINDS = (
    "ours",
    "ours, seeded",
    "blocks",
    "sequential",
    "torch",
    "torch, generator",
    "weighted",
    "weighted, generator",
    "distributed",
    "eager",
    "stateful",
    "batch sampler",
)


def make(name, dataset, **more):
    return ptorch.DataLoader(
        dataset, **({"batch_size": 4, "num_workers": 0} | options(name) | more)
    )


def plain(batch):
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(one) for one in batch]


def flat(lists):
    return [one for part in lists for one in part]


def scramble(seed):
    """Another process's generators stand anywhere."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed)


def take(loader, n):
    """n batches of one iteration, which is then left."""
    iterator = iter(loader)
    return [plain(next(iterator)) for _ in range(n)]


@pytest.fixture
def dataset(request, folder, ops):
    """A dataset and what else its loader needs."""
    if request.param == "python":
        return Draws(), {}
    return penstock.Dataset(folder), {"transform": ops}


# Not torch's order with a dataset of Python: without workers, such items draw from the
# script's own generators, which a resume leaves alone.
CASES = [(name, "native") for name in KINDS]
CASES += [(name, "python") for name in KINDS if not name.startswith("torch")]
EVERY_CASE = pytest.mark.parametrize(("name", "dataset"), CASES, indirect=["dataset"])


@pytest.mark.parametrize("stop", STOPS)
@EVERY_CASE
def test_a_state_continues_where_it_was_taken(name, stop, dataset):
    source, more = dataset
    scramble(1)
    loader = make(name, source, **more)
    first = [plain(batch) for batch in loader]
    epoch = iter(loader)
    begun = [plain(next(epoch)) for _ in range(stop)]
    state = (
        loader.state_dict() if name == "stateful" else json.loads(json.dumps(loader.state_dict()))
    )
    rest = [plain(batch) for batch in epoch]
    after = [plain(batch) for batch in loader] if "generator" in name or "ours" in name else None
    assert len(begun + rest) == len(first)

    scramble(2)
    other = make(name, source, **more)
    if stop == 0:
        return  # nothing of the epoch was received: generators decide, as in a new process
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    other.load_state_dict(state)
    iterator = iter(other)
    if stop == len(first):
        assert after is None or [plain(batch) for batch in iterator] == after
        return
    now = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    assert torch.equal(now[0], before[0])
    assert now[1:] == before[1:]
    assert [plain(batch) for batch in iterator] == rest
    if after is not None:
        assert [plain(batch) for batch in other] == after


@EVERY_CASE
def test_a_second_and_a_third_resume_are_right(name, dataset):
    source, more = dataset
    scramble(1)
    loader = make(name, source, **more)
    whole = []
    iterator = iter(loader)
    whole.append(plain(next(iterator)))
    state = loader.state_dict()
    whole += [plain(batch) for batch in iterator]
    seen = whole[:1]
    for n_taken in (2, 1):
        scramble(n_taken)
        loader = make(name, source, **more)
        loader.load_state_dict(state)
        assert loader.state_dict() == state
        seen += take(loader, n_taken)
        state = loader.state_dict()
    loader = make(name, source, **more)
    loader.load_state_dict(state)
    assert seen + [plain(batch) for batch in loader] == whole


@pytest.mark.parametrize("n_workers", [0, 1, 2])
def test_a_state_continues_with_any_number_of_workers(n_workers):
    loader = ptorch.DataLoader(Draws(), 4, shuffle=True, seed=3, num_workers=2)
    iterator = iter(loader)
    next(iterator), next(iterator)
    state = loader.state_dict()
    rest = [plain(batch) for batch in iterator]
    other = ptorch.DataLoader(Draws(), 4, shuffle=True, seed=3, num_workers=n_workers)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == rest


def test_torchs_workers_continue_with_what_they_had_drawn():
    scramble(1)
    loader = ptorch.DataLoader(Draws(), 4, shuffle=True, order="torch", num_workers=2)
    iterator = iter(loader)
    next(iterator), next(iterator), next(iterator)
    state = loader.state_dict()
    rest = [plain(batch) for batch in iterator]
    scramble(2)
    other = ptorch.DataLoader(Draws(), 4, shuffle=True, order="torch", num_workers=2)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == rest


@pytest.mark.parametrize("order", [None, "torch"])
def test_a_state_continues_on_another_number_of_ranks(order):
    def loaders(world_size):
        return [
            ptorch.DataLoader(
                list(range(48)),
                8 // world_size,
                shuffle=True,
                seed=3,
                order=order,
                num_workers=0,
                rank=rank,
                world_size=world_size,
                tail="drop",
            )
            for rank in range(world_size)
        ]

    def step(iterators):
        return sorted(flat(plain(next(one)) for one in iterators))

    two = loaders(2)
    iterators = [iter(one) for one in two]
    steps = [step(iterators) for _ in range(2)]
    states = [one.state_dict() for one in two]
    steps += [step(iterators) for _ in range(4)]
    four = loaders(4)
    for one in four:
        one.load_state_dict(states[0])
    iterators = [iter(one) for one in four]
    assert [step(iterators) for _ in range(4)] == steps[2:]


def test_the_end_of_an_epoch_is_the_beginning_of_the_next():
    loader = make("ours, seeded", list(range(COUNT)))
    streams = [[plain(batch) for batch in loader] for _ in range(3)]
    loader = make("ours, seeded", list(range(COUNT)))
    iterator = iter(loader)
    for _ in range(6):
        next(iterator)
    states = [loader.state_dict()]  # the last batch is out, the loop has not asked for more
    assert next(iterator, None) is None
    states.append(loader.state_dict())
    assert (states[1]["epoch"], states[1]["batch"]) == (1, 0)
    for state in states:
        other = make("ours, seeded", list(range(COUNT)))
        other.load_state_dict(state)
        assert [plain(batch) for batch in other] == streams[1]
        assert [plain(batch) for batch in other] == streams[2]


def test_set_epoch_after_loading_goes_on_and_elsewhere_begins():
    loader = make("ours, seeded", list(range(COUNT)))
    streams = [[plain(batch) for batch in loader] for _ in range(3)]
    loader.set_epoch(1)
    take(loader, 2)
    state = loader.state_dict()
    other = make("ours, seeded", list(range(COUNT)))
    other.load_state_dict(state)
    other.set_epoch(1)
    assert [plain(batch) for batch in other] == streams[1][2:]
    other.load_state_dict(state)
    other.set_epoch(2)
    assert [plain(batch) for batch in other] == streams[2]


def test_set_epoch_reaches_the_sampler():
    sampler = data.DistributedSampler(range(COUNT), 2, 0, seed=3)
    loader = ptorch.DataLoader(range(COUNT), 4, sampler=sampler, num_workers=0)
    loader.set_epoch(5)
    assert sampler.epoch == 5


def test_leaving_an_epoch_early_begins_the_next():
    loader = make("ours, seeded", list(range(COUNT)))
    streams = [[plain(batch) for batch in loader] for _ in range(2)]
    loader = make("ours, seeded", list(range(COUNT)))
    for _ in loader:
        break
    assert loader.state_dict()["batch"] == 1
    assert [plain(batch) for batch in loader] == streams[1]


@pytest.mark.parametrize("dataset", ["python", "native"], indirect=True)
@pytest.mark.parametrize("name", ["ours", "ours, seeded", "blocks", "sequential"])
def test_states_of_our_orders_are_small(name, dataset):
    source, more = dataset
    loader = make(name, source, **more)
    next(iter(loader))
    assert len(json.dumps(loader.state_dict())) < 1024


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"seed": 5}, "seed"),
        ({"batch_size": 5}, "global batch"),
        ({"shuffle": False, "order": "block"}, "order"),
        ({"drop_last": True}, "tail"),
        ({"dataset": list(range(COUNT + 1))}, "count"),
    ],
    ids=str,
)
def test_the_state_of_another_stream_is_refused(change, word):
    usual = {"dataset": list(range(COUNT)), "batch_size": 4, "shuffle": True, "seed": 4}
    loader = ptorch.DataLoader(**usual, num_workers=0)
    state = loader.state_dict()
    other = ptorch.DataLoader(**(usual | change), num_workers=0)
    with pytest.raises(penstock.StateError, match=word):
        other.load_state_dict(state)
    with pytest.raises(penstock.StateError, match="not the state"):
        other.load_state_dict({"epoch": 3})


def test_the_state_of_other_samplers_is_refused():
    sampler = data.WeightedRandomSampler([1.0] * COUNT, COUNT, generator=torch.Generator())
    loader = ptorch.DataLoader(Draws(), 4, sampler=sampler, num_workers=0)
    next(iter(loader))
    other = ptorch.DataLoader(Draws(), 4, sampler=list(range(COUNT)), num_workers=0)
    other.load_state_dict(loader.state_dict())
    with pytest.raises(penstock.StateError, match="samplers or generators"):
        iter(other)


class Failing(Draws):
    def __getitem__(self, index):
        if index == 9:
            raise LookupError("no such thing")
        return super().__getitem__(index)


@pytest.mark.parametrize("n_workers", [0, 2])
def test_a_batch_that_failed_is_not_asked_for_again(n_workers):
    loader = ptorch.DataLoader(Failing(), 4, seed=1, num_workers=n_workers)
    iterator = iter(loader)
    next(iterator), next(iterator)
    with pytest.raises(LookupError):
        next(iterator)
    next(iterator)
    state = loader.state_dict()
    assert state["batch"] == 4
    rest = [plain(batch) for batch in iterator]
    other = ptorch.DataLoader(Failing(), 4, seed=1, num_workers=n_workers)
    other.load_state_dict(state)
    assert [plain(batch) for batch in other] == rest


# Iterable datasets


class Lines(data.IterableDataset):
    """Shares itself out among its workers; draws, so that a replay must draw the same."""

    def __len__(self):
        return COUNT

    def __iter__(self):
        info = data.get_worker_info()
        first, step = (info.id, info.num_workers) if info else (0, 1)
        for number in range(first, COUNT, step):
            yield number, torch.rand(())


class Remembering(data.IterableDataset):
    """Knows where it stands, and says so."""

    def __init__(self):
        self.at = 0
        self.n_made = 0

    def __iter__(self):
        while self.at < COUNT:
            self.at += 1
            self.n_made += 1
            yield self.at - 1, self.n_made
        self.at = 0

    def state_dict(self):
        return {"at": self.at}

    def load_state_dict(self, state):
        self.at = state["at"]


@pytest.mark.parametrize("n_workers", [1, 2])
@pytest.mark.parametrize("stop", [1, 3, 5])
def test_an_iterable_dataset_is_replayed(stop, n_workers):
    scramble(1)
    loader = ptorch.DataLoader(Lines(), 4, num_workers=n_workers)
    iterator = iter(loader)
    begun = [plain(next(iterator)) for _ in range(stop)]
    state = loader.state_dict()
    rest = [plain(batch) for batch in iterator]
    assert sorted(flat(numbers for numbers, _ in begun + rest)) == list(range(COUNT))
    for _ in range(2):
        scramble(2)
        other = ptorch.DataLoader(Lines(), 4, num_workers=n_workers)
        other.load_state_dict(state)
        assert [plain(batch) for batch in other] == rest


def test_an_iterable_datasets_own_state_is_used():
    loader = ptorch.DataLoader(Remembering(), 4, num_workers=1)
    for batch in loader:
        if 8 in batch[0].tolist():
            break  # the iterator is gone, the state is not
    state = loader.state_dict()
    other = ptorch.DataLoader(Remembering(), 4, num_workers=1)
    other.load_state_dict(state)
    numbers, made = next(iter(other))
    assert numbers.tolist() == [12, 13, 14, 15]
    assert made.tolist() == [1, 2, 3, 4]  # nothing before them was made again


def test_an_iterable_datasets_state_needs_the_same_workers():
    loader = ptorch.DataLoader(Lines(), 4, num_workers=2)
    next(iter(loader))
    other = ptorch.DataLoader(Lines(), 4, num_workers=1)
    with pytest.raises(penstock.StateError, match="num workers"):
        other.load_state_dict(loader.state_dict())


@pytest.mark.parametrize("n_workers", [0, 2])
def test_an_iterable_dataset_that_is_longer_than_it_says_is_named(n_workers):
    class Liar(Lines):
        def __len__(self):
            return 2

    said = []
    for kind in (data.DataLoader, ptorch.DataLoader):
        loader = kind(Liar(), 1, num_workers=n_workers)
        assert len(loader) == 2
        with pytest.warns(UserWarning, match="Length of IterableDataset") as caught:
            list(loader)
        text = str(caught[0].message)
        said.append(text[text.index("was reported") :])
    assert said[0] == said[1]


@pytest.mark.parametrize(
    "wrong",
    [
        {"batch": -1},
        {"batch": 10**9},
        {"batch": 1.5},
        {"batch": True},
        {"batch": None},
        {"epoch": "1"},
        {"epoch": -1},
        {"bad": None},
    ],
    ids=str,
)
def test_a_spoiled_position_is_refused(wrong):
    loader = ptorch.DataLoader(Draws(), 4, shuffle=True, seed=1, num_workers=0)
    with pytest.raises(penstock.StateError, match=next(iter(wrong))):
        loader.load_state_dict(loader.state_dict() | wrong)


def test_a_state_without_its_samplers_marks_is_refused():
    loader = ptorch.DataLoader(Draws(), 4, sampler=Eager(None), num_workers=0)
    state = loader.state_dict()
    del state["marks"]
    with pytest.raises(penstock.StateError, match="sampler"):
        loader.load_state_dict(state)


@pytest.mark.parametrize("damaged", ["", "no base85 \x00", "abc", None], ids=repr)
def test_a_damaged_generator_is_refused(damaged):
    generator = torch.Generator()
    loader = ptorch.DataLoader(
        Draws(), 4, shuffle=True, order="torch", generator=generator, num_workers=0
    )
    state = loader.state_dict()
    state["marks"]["generators"] = [damaged]
    with pytest.raises(penstock.StateError, match="damaged"):
        loader.load_state_dict(state)
