"""penstock.torch.DataLoader takes what torch's takes, refuses what it refuses, and looks alike."""

import copy
import inspect
import pickle
import warnings

import pytest

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
data = torch.utils.data

ATTRIBUTES = (
    "batch_size",
    "num_workers",
    "prefetch_factor",
    "pin_memory",
    "pin_memory_device",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "in_order",
    "drop_last",
    "generator",
    "collate_fn",
    "persistent_workers",
)


class Squares(data.Dataset):
    def __len__(self):
        return 10

    def __getitem__(self, index):
        return index * index


class Stream(data.IterableDataset):
    def __iter__(self):
        return iter(range(10))


def both(*arguments, **options):
    """What torch's loader and ours say to the same arguments."""
    answers = []
    for kind in (data.DataLoader, ptorch.DataLoader):
        with pytest.raises((ValueError, TypeError)) as caught:
            kind(*arguments, **options)
        answers.append((caught.type, str(caught.value)))
    return answers


def test_torchs_signature_comes_first():
    theirs = list(inspect.signature(data.DataLoader).parameters.values())
    ours = list(inspect.signature(ptorch.DataLoader).parameters.values())
    for their, our in zip(theirs, ours, strict=False):
        assert (our.name, our.kind) == (their.name, their.kind)
        if our.name != "num_workers":
            assert our.default == their.default
    added = ours[len(theirs) :]
    assert {one.kind for one in added} == {inspect.Parameter.KEYWORD_ONLY}
    wanted = {"transform", "seed", "memory_budget", "rank", "world_size"}
    wanted |= {"tail", "on_error", "max_bad", "policy", "order", "batch_ops"}
    assert wanted <= {one.name for one in added}
    assert inspect.signature(ptorch.DataLoader).parameters["num_workers"].default == "auto"


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": -1},
        {"timeout": -1, "num_workers": 0},
        {"num_workers": 0, "prefetch_factor": 2},
        {"num_workers": 2, "prefetch_factor": -1},
        {"num_workers": 0, "persistent_workers": True},
        {"sampler": range(10), "shuffle": True, "num_workers": 0},
        {"batch_sampler": [[0]], "batch_size": 2, "num_workers": 0},
        {"batch_sampler": [[0]], "shuffle": True, "num_workers": 0},
        {"batch_sampler": [[0]], "sampler": range(3), "num_workers": 0},
        {"batch_sampler": [[0]], "drop_last": True, "num_workers": 0},
        {"batch_size": None, "drop_last": True, "num_workers": 0},
        {"batch_size": 0, "num_workers": 0},
        {"batch_size": -3, "num_workers": 0},
        {"batch_size": 2.5, "num_workers": 0},
        {"batch_size": True, "num_workers": 0},
        {"drop_last": 3, "num_workers": 0},
        {"multiprocessing_context": "fork", "num_workers": 0},
        {"multiprocessing_context": "spoon", "num_workers": 1},
        {"multiprocessing_context": 3, "num_workers": 1},
        {"no_such_option": 1, "num_workers": 0},
    ],
    ids=str,
)
def test_bad_arguments_are_refused_in_torchs_words(options):
    theirs, ours = both(Squares(), **options)
    if "no_such_option" not in options:  # Python's words, which name the class
        assert ours == theirs
    assert ours[0] is theirs[0]


@pytest.mark.parametrize(
    "options",
    [{"shuffle": True}, {"sampler": range(3)}, {"batch_sampler": [[0]]}],
    ids=str,
)
def test_an_iterable_dataset_takes_no_sampler(options):
    theirs, ours = both(Stream(), num_workers=0, **options)
    assert ours == theirs


def test_an_empty_dataset_cannot_be_shuffled():
    theirs, ours = both([], shuffle=True, num_workers=0)
    assert ours == theirs


@pytest.mark.parametrize(
    ("options", "word"),
    [
        ({"policy": "clever"}, "policy must be one of"),
        ({"num_workers": 257}, "num_workers must be at most 256"),
        ({"order": "backwards"}, "order must be one of"),
        ({"order": "sequential", "shuffle": True}, "contradict"),
        ({"order": "shuffle", "sampler": range(10)}, "contradict"),
        ({"order": "block", "batch_sampler": [[0]]}, "contradict"),
        ({"tail": "pad"}, "penstock.Loader"),
        ({"tail": "round"}, "tail must be"),
        ({"tail": "wrap", "drop_last": True}, "contradict"),
        ({"tail": "short", "rank": 0, "world_size": 2}, "unequal"),
        ({"rank": 0}, "together"),
        ({"rank": 2, "world_size": 2}, "rank"),
        ({"rank": 0, "world_size": 2, "sampler": range(10)}, "share out"),
        ({"num_workers": "many"}, "num_workers"),
        ({"seed": -1}, "seed"),
        ({"on_error": "shrug"}, "on_error"),
        ({"on_error": "skip"}, "natively"),
        ({"memory_budget": "lots"}, "memory_budget"),
        ({"order": "block", "block_size": 0}, "block_size"),
        ({"max_bad": -1}, "max_bad"),
    ],
    ids=str,
)
def test_our_own_arguments_are_checked_at_once(options, word):
    with pytest.raises(ValueError, match=word):
        ptorch.DataLoader(Squares(), **options)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 0},
        {"num_workers": 2, "batch_size": 4, "drop_last": True, "persistent_workers": True},
        {"num_workers": 1, "multiprocessing_context": "fork", "timeout": 3, "in_order": False},
        {"num_workers": 0, "batch_size": None},
        {"num_workers": 0, "batch_sampler": [[0, 1], [2]]},
    ],
    ids=str,
)
def test_attributes_read_as_torchs_do(options):
    dataset = Squares()
    theirs, ours = data.DataLoader(dataset, **options), ptorch.DataLoader(dataset, **options)
    assert isinstance(ours, data.DataLoader)
    assert ours.dataset is dataset
    for name in ATTRIBUTES:
        assert getattr(ours, name) == getattr(theirs, name), name
    assert type(ours.sampler) is type(theirs.sampler)
    assert type(ours.batch_sampler) is type(theirs.batch_sampler)
    assert len(ours) == len(theirs)


def test_attributes_are_guarded_as_torchs_are():
    loader = ptorch.DataLoader(Squares(), num_workers=1)
    with pytest.raises(ValueError, match="batch_size attribute should not be set after"):
        loader.batch_size = 3
    loader.multiprocessing_context = "spawn"
    assert loader.multiprocessing_context.get_start_method() == "spawn"
    with pytest.raises(ValueError, match="valid start method"):
        loader.multiprocessing_context = "spoon"


def test_auto_is_a_number_to_who_asks():
    assert ptorch.DataLoader(Squares()).num_workers > 0
    assert ptorch.DataLoader(Stream()).num_workers == 1
    assert ptorch.DataLoader(Squares(), order="torch").num_workers == 0


@pytest.mark.parametrize(
    "options", [{"pin_memory": True}, {"pin_memory": True, "pin_memory_device": "cuda"}]
)
def test_pinning_without_an_accelerator_warns_in_torchs_words(options):
    if torch.accelerator.is_available():
        pytest.skip("there is an accelerator")
    said = []
    for kind in (data.DataLoader, ptorch.DataLoader):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(kind(Squares(), num_workers=0, **options))) == 10
        said.append([str(one.message) for one in caught])
    assert said[0] == said[1] != []


@pytest.mark.parametrize("again", [copy.deepcopy, lambda one: pickle.loads(pickle.dumps(one))])
def test_a_loader_can_be_pickled_and_copied(again):
    loader = ptorch.DataLoader(Squares(), 3, shuffle=True, num_workers=0, seed=2)
    iterator = iter(loader)
    next(iterator)
    other = again(loader)
    assert isinstance(other, ptorch.DataLoader)
    fresh = ptorch.DataLoader(Squares(), 3, shuffle=True, num_workers=0, seed=2)
    fresh.set_epoch(1)
    assert [b.tolist() for b in other] == [b.tolist() for b in fresh]


def test_a_loader_of_a_path_can_be_pickled(folder, ops):
    loader = ptorch.DataLoader(folder, 5, transform=ops, seed=1)
    other = pickle.loads(pickle.dumps(loader))
    assert all(torch.equal(a, c) for (a, _), (c, _) in zip(loader, other, strict=True))


def test_what_torch_exports_is_here():
    assert ptorch.default_collate is data.default_collate
    assert ptorch.default_convert is data.default_convert
    assert ptorch.get_worker_info is data.get_worker_info
    assert ptorch.get_worker_info() is None
