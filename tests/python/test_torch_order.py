"""Samplers are asked as torch asks them, and order="torch" is torch's order to the bit."""

import random

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
data = torch.utils.data

COUNT = 23
EPOCHS = 3


class Numbers(data.Dataset):
    """Items that say which they are and what was drawn for them."""

    def __init__(self, draws=False):
        self.draws = draws

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        if not self.draws:
            return index
        return index, torch.rand(()), np.random.rand(), random.random()


class EagerSampler(data.Sampler):
    """Draws in __iter__ itself: torch's loader with workers makes it draw twice."""

    def __iter__(self):
        return iter(torch.randperm(COUNT).tolist())

    def __len__(self):
        return COUNT


class PythonSampler(data.Sampler):
    """Draws from Python's and NumPy's generators, as it goes."""

    def __iter__(self):
        numbers = list(range(COUNT))
        random.shuffle(numbers)
        for number in numbers:
            yield (number + int(np.random.randint(COUNT))) % COUNT

    def __len__(self):
        return COUNT


def plain(batch):
    """A batch as lists, to compare."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    return [plain(one) for one in batch] if isinstance(batch, list | tuple) else batch


def flat(lists):
    return [one for part in lists for one in part]


def epochs(kind, make_options, epochs=EPOCHS, draws_between=True, dataset=None):
    """Several epochs, with what the script draws in between, and its generators afterwards."""
    torch.manual_seed(7)
    random.seed(7)
    np.random.seed(7)
    options = make_options()
    loader = kind(dataset if dataset is not None else Numbers(), **options)
    seen = []
    for epoch in range(epochs):
        if hasattr(loader.sampler, "set_epoch"):
            loader.sampler.set_epoch(epoch)
        for batch in loader:
            seen.append(plain(batch))
            if draws_between:
                seen.append(torch.rand(()).item())
    generators = [torch.get_rng_state().tolist(), random.getstate(), np.random.rand()]
    if options.get("generator") is not None:
        generators.append(options["generator"].get_state().tolist())
    return seen, generators


def compare(make_options, ours=None, **settings):
    theirs = epochs(data.DataLoader, make_options, **settings)
    again = epochs(
        ptorch.DataLoader, lambda: make_options() | (ours or {"order": "torch"}), **settings
    )
    assert again[0] == theirs[0]
    assert again[1] == theirs[1]


def seeded(number):
    return torch.Generator().manual_seed(number)


SAMPLERS = {
    "shuffle": lambda: {"shuffle": True},
    "in order": dict,
    "generator": lambda: {"shuffle": True, "generator": seeded(3)},
    "drop last": lambda: {"shuffle": True, "drop_last": True, "generator": seeded(3)},
    "replacement": lambda: {"sampler": data.RandomSampler(Numbers(), True, 40)},
    "lazy replacement": lambda: {
        "sampler": data.RandomSampler(Numbers(), True, 100, generator=seeded(4))
    },
    "weighted": lambda: {"sampler": data.WeightedRandomSampler([1.0, 2, 3, 4], 30)},
    "subset": lambda: {"sampler": data.SubsetRandomSampler([1, 5, 7, 9, 11])},
    "list": lambda: {"sampler": [3, 1, 2, 1]},
    "batch sampler": lambda: {
        "batch_size": 1,
        "batch_sampler": data.BatchSampler(data.RandomSampler(Numbers()), 5, False),
    },
    "own batches": lambda: {"batch_size": 1, "batch_sampler": [[1], [2, 3, 4], [0, 0]]},
    "eager": lambda: {"sampler": EagerSampler()},
    "python": lambda: {"sampler": PythonSampler()},
    "distributed": lambda: {"sampler": data.DistributedSampler(Numbers(), 3, 1, seed=5)},
    "single": lambda: {"batch_size": None, "shuffle": True},
}


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("name", SAMPLERS)
def test_order_torch_is_torchs(name, n_workers):
    compare(lambda: {"batch_size": 4, "num_workers": n_workers} | SAMPLERS[name]())


@pytest.mark.parametrize("n_workers", [0, 2])
@pytest.mark.parametrize("name", ["replacement", "weighted", "eager", "python", "own batches"])
def test_a_given_sampler_is_obeyed_without_asking_for_it(name, n_workers):
    def options():
        return {"batch_size": 4, "num_workers": n_workers} | SAMPLERS[name]()

    compare(options, ours={"order": None})


def test_persistent_workers_draw_their_seed_once():
    compare(
        lambda: {
            "batch_size": 4,
            "shuffle": True,
            "num_workers": 2,
            "persistent_workers": True,
        }
    )


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("n_workers", [1, 3])
def test_what_workers_draw_is_what_torchs_draw(n_workers, persistent):
    def options():
        return {
            "batch_size": 4,
            "shuffle": True,
            "num_workers": n_workers,
            "persistent_workers": persistent,
        }

    compare(options, dataset=Numbers(draws=True))


def test_what_the_script_itself_draws_for_items_is_the_same():
    compare(
        lambda: {"batch_size": 4, "shuffle": True, "num_workers": 0}, dataset=Numbers(draws=True)
    )


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("count", [23, 24, 3])
def test_ranks_take_what_distributed_samplers_give(shuffle, count):
    dataset = list(range(count))
    for rank in range(4):
        sampler = data.DistributedSampler(dataset, 4, rank, shuffle, seed=9)
        theirs, ours = [], []
        given = data.DataLoader(dataset, 2, sampler=sampler)
        loader = ptorch.DataLoader(
            dataset, 2, shuffle, order="torch", seed=9, rank=rank, world_size=4, num_workers=0
        )
        for epoch in range(EPOCHS):
            sampler.set_epoch(epoch)
            theirs += map(plain, given)
            ours += map(plain, loader)
        assert ours == theirs
        assert len(loader) == len(given)


# Our own order


def streams(loader, epochs=EPOCHS):
    return [[plain(batch) for batch in loader] for _ in range(epochs)]


def test_our_shuffle_takes_each_once_and_differs_by_epoch():
    first, second, third = streams(ptorch.DataLoader(Numbers(), 4, shuffle=True, num_workers=0))
    for stream in (first, second, third):
        assert sorted(flat(stream)) == list(range(COUNT))
    assert first != second != third


def test_torchs_seed_governs_our_shuffle():
    def run(seed):
        torch.manual_seed(seed)
        return streams(ptorch.DataLoader(Numbers(), 4, shuffle=True, num_workers=0))

    assert run(1) == run(1) != run(2)


def test_a_given_seed_is_independent_of_torchs():
    torch.manual_seed(1)
    first = streams(ptorch.DataLoader(Numbers(), 4, shuffle=True, seed=8, num_workers=0))
    torch.manual_seed(2)
    assert streams(ptorch.DataLoader(Numbers(), 4, shuffle=True, seed=8, num_workers=0)) == first


@pytest.mark.parametrize("shuffle", [False, True])
@pytest.mark.parametrize("n_workers", [0, 2])
def test_the_scripts_generator_stands_where_torch_leaves_it(shuffle, n_workers):
    def draws(kind):
        torch.manual_seed(3)
        loader = kind(Numbers(), 4, shuffle=shuffle, num_workers=n_workers)
        return [torch.rand(()).item() for _ in range(EPOCHS) for _ in loader]

    assert draws(ptorch.DataLoader) == draws(data.DataLoader)


@pytest.mark.parametrize("n_workers", [1, 3])
def test_our_augmentation_does_not_depend_on_workers(n_workers):
    def run(n):
        dataset = Numbers(draws=True)
        return streams(ptorch.DataLoader(dataset, 4, shuffle=True, seed=1, num_workers=n))

    assert run(n_workers) == run(0)


def test_our_augmentation_leaves_the_scripts_generators_alone():
    torch.manual_seed(5)
    np.random.seed(5)
    random.seed(5)
    loader = ptorch.DataLoader(Numbers(draws=True), 4, seed=1, num_workers=0)
    iterator = iter(loader)
    before = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    list(iterator)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert random.getstate() == before[1]
    assert np.random.get_state()[1].tolist() == before[2]


@pytest.mark.parametrize("tail", [None, "drop", "wrap"])
@pytest.mark.parametrize("world_size", [1, 2, 4])
def test_ranks_share_our_order_equally(world_size, tail):
    alone = ptorch.DataLoader(
        Numbers(), 8, shuffle=True, seed=3, num_workers=0, tail=tail or "wrap"
    )
    ranks = [
        ptorch.DataLoader(
            Numbers(),
            8 // world_size,
            shuffle=True,
            seed=3,
            num_workers=0,
            rank=rank,
            world_size=world_size,
            tail=tail or "wrap",
        )
        for rank in range(world_size)
    ]
    assert {len(loader) for loader in ranks} == {len(alone)}
    together = [flat(map(plain, parts)) for parts in zip(*ranks, strict=True)]
    assert together == [plain(batch) for batch in alone]


@pytest.mark.parametrize("n_workers", [0, 2])
def test_batches_of_indices_may_be_any_iterable(n_workers):
    for make in (set, dict.fromkeys, iter, tuple, lambda batch: map(int, batch)):
        batches = [make([1, 2]), make([3])]
        loader = ptorch.DataLoader(Numbers(), batch_sampler=batches, num_workers=n_workers)
        assert [batch.tolist() for batch in loader] == [[1, 2], [3]]


def test_numbers_of_any_kind_are_indices():
    sampler = [True, np.int64(1), torch.tensor(2), 1, -1]
    loader = ptorch.DataLoader(Numbers(), sampler=sampler, num_workers=0, collate_fn=plain)
    assert [int(index) for (index,) in loader] == [1, 1, 2, 1, -1]
