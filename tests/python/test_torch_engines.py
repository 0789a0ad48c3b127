"""Who makes the batches: native threads, worker processes with a native part, or Python."""

import gc
import warnings

import numpy as np
import pytest

import penstock

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
torchvision = pytest.importorskip("torchvision")
from torchvision import datasets  # noqa: E402
from torchvision import transforms as V  # noqa: E402

from penstock.torch.engines import PythonEngine  # noqa: E402
from penstock.torch.native import NativeEngine  # noqa: E402

data = torch.utils.data

PLAIN = V.Compose([V.Resize((24, 20)), V.ToTensor(), V.Normalize((0.5, 0.4, 0.3), (0.2, 0.3, 0.4))])
RANDOM = V.Compose([V.RandomResizedCrop(24), V.RandomHorizontalFlip(), V.ToTensor()])


def invert(image):
    return 1 - image


def add_noise(image):
    return image + torch.rand(())


def images(folder, transform=PLAIN, **options):
    return datasets.ImageFolder(str(folder), transform, **options)


def assert_same(ours, theirs):
    ours, theirs = list(ours), list(theirs)
    assert len(ours) == len(theirs)
    for our, their in zip(ours, theirs, strict=True):
        assert type(our) is type(their)
        for one, other in zip(our, their, strict=True):
            assert one.dtype == other.dtype
            assert one.shape == other.shape
            assert torch.equal(one, other)


def quiet(*arguments, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ptorch.DataLoader(*arguments, **options)


@pytest.mark.parametrize("n_workers", [0, 2, "auto"])
@pytest.mark.parametrize("drop_last", [False, True])
@pytest.mark.parametrize("has_generator", [False, True])
def test_a_compiled_folder_gives_torchs_batches(folder, n_workers, drop_last, has_generator):
    def run(kind, **options):
        torch.manual_seed(1)
        generator = torch.Generator().manual_seed(4) if has_generator else None
        loader = kind(images(folder), 4, True, drop_last=drop_last, generator=generator, **options)
        batches = [batch for _ in range(2) for batch in loader]
        return loader, batches, torch.rand(3), loader.sampler.generator

    _, theirs, their_draws, their_generator = run(data.DataLoader)
    loader, ours, our_draws, our_generator = run(
        ptorch.DataLoader, num_workers=n_workers, order="torch"
    )
    assert isinstance(loader._engine, NativeEngine)
    assert_same(ours, theirs)
    assert torch.equal(our_draws, their_draws)
    if has_generator:
        assert torch.equal(our_generator.get_state(), their_generator.get_state())


@pytest.mark.parametrize(
    "sampler",
    [[3, 1, 2, 1], [-1, 0, 22], torch.tensor([4, 5]), np.array([7, 7])],
    ids=str,
)
def test_a_compiled_folder_obeys_any_sampler(folder, sampler):
    dataset = images(folder)
    assert_same(
        ptorch.DataLoader(dataset, 2, sampler=sampler), data.DataLoader(dataset, 2, sampler=sampler)
    )


@pytest.mark.parametrize("n_workers", [0, 2, "auto"])
@pytest.mark.parametrize("index", [23, -24])
def test_an_index_that_is_out_of_range_is_torchs_error_at_its_batch(folder, n_workers, index):
    sampler = [0, 1, 2, index, 3]
    batches = iter(ptorch.DataLoader(images(folder), 2, sampler=sampler, num_workers=n_workers))
    assert len(next(batches)[0]) == 2
    with pytest.raises(IndexError, match="out of range"):
        next(batches)


def test_batches_of_a_batch_sampler_may_have_any_size(folder):
    """Its sizes are not known beforehand: they grow, shrink, and repeat samples."""
    dataset = images(folder)
    batches = [[1], [2, 3, 2], [4], list(range(20)), [0, 0], list(range(23))] * 2
    assert_same(
        ptorch.DataLoader(dataset, batch_sampler=batches),
        data.DataLoader(dataset, batch_sampler=batches),
    )


def test_target_transforms_are_applied(folder):
    dataset = images(folder, target_transform=lambda label: {"class": label, "odd": label % 2 == 1})
    ours, theirs = next(iter(quiet(dataset, 5))), next(iter(data.DataLoader(dataset, 5)))
    assert torch.equal(ours[0], theirs[0])
    assert ours[1].keys() == theirs[1].keys()
    assert all(torch.equal(ours[1][name], theirs[1][name]) for name in ours[1])


def test_a_subset_is_compiled_too(folder):
    dataset = data.Subset(images(folder), [5, 3, 8, 3])
    loader = ptorch.DataLoader(dataset, 2)
    assert isinstance(loader._engine, NativeEngine)
    assert_same(loader, data.DataLoader(dataset, 2))


@pytest.mark.parametrize("n_workers", [0, 2])
def test_what_cannot_be_compiled_follows_in_python(folder, n_workers):
    dataset = images(folder, V.Compose([*PLAIN.transforms, invert]))
    with pytest.warns(UserWarning, match="invert"):
        loader = ptorch.DataLoader(dataset, 4, num_workers=n_workers)
    assert isinstance(loader._engine, PythonEngine)
    assert_same(loader, data.DataLoader(dataset, 4))


def test_a_partly_compiled_stream_depends_on_nothing_but_its_key(folder):
    """Native draws and Python draws, over epochs, workers and persistence."""
    dataset = images(folder, V.Compose([*RANDOM.transforms, add_noise]))

    def run(**options):
        loader = quiet(dataset, 4, shuffle=True, seed=3, **options)
        return [one.clone() for _ in range(2) for one, _ in loader]

    wanted = run(num_workers=0)
    for options in ({"num_workers": 2}, {"num_workers": 1, "persistent_workers": True}):
        assert all(map(torch.equal, run(**options), wanted))
    assert not torch.equal(wanted[0], wanted[6])


def test_a_sample_that_comes_again_is_drawn_anew(folder):
    for transform in (RANDOM, V.Compose([*RANDOM.transforms, invert])):
        loader = quiet(images(folder, transform), 2, sampler=[6, 6], num_workers=0, seed=1)
        first, second = next(iter(loader))[0]
        assert not torch.equal(first, second)


def test_a_collate_function_gets_items_decoded_natively(folder):
    def collate(items):
        return [label for _, label in items], torch.stack([image for image, _ in items])

    dataset = images(folder)
    ours = list(ptorch.DataLoader(dataset, 4, collate_fn=collate, num_workers=0))
    theirs = list(data.DataLoader(dataset, 4, collate_fn=collate))
    assert [labels for labels, _ in ours] == [labels for labels, _ in theirs]
    assert all(torch.equal(a[1], b[1]) for a, b in zip(ours, theirs, strict=True))


def test_single_samples_are_torchs(folder):
    dataset = images(folder)
    ours = list(ptorch.DataLoader(dataset, batch_size=None, num_workers=0))
    theirs = list(data.DataLoader(dataset, batch_size=None))
    assert len(ours) == len(theirs) == 23
    for (image, label), (their_image, their_label) in zip(ours, theirs, strict=True):
        assert torch.equal(image, their_image)
        assert (label, type(label)) == (their_label, type(their_label))


def test_a_worker_init_fn_keeps_the_dataset_in_python(folder):
    with pytest.warns(UserWarning, match="worker_init_fn"):
        loader = ptorch.DataLoader(images(folder), 4, worker_init_fn=print, num_workers=0)
    assert_same(loader, data.DataLoader(images(folder), 4))


def test_compiling_can_be_refused(folder):
    loader = ptorch.DataLoader(images(folder), 4, compile=False, num_workers=0)
    assert isinstance(loader._engine, PythonEngine)
    assert_same(loader, data.DataLoader(images(folder), 4))


def test_a_path_takes_torchvisions_transforms_too(folder):
    loader = ptorch.DataLoader(folder, 4, transform=PLAIN)
    assert_same(loader, data.DataLoader(images(folder), 4))
    with pytest.raises(ValueError, match="invert"):
        ptorch.DataLoader(folder, 4, transform=[PLAIN, invert])


def test_a_transform_comes_after_the_datasets_own(folder):
    wanted = data.DataLoader(images(folder, V.Compose([*PLAIN.transforms, invert])), 4)
    assert_same(quiet(images(folder), 4, transform=invert, num_workers=0), wanted)
    ours = ptorch.DataLoader([(3, "a"), (5, "b")], 2, transform=lambda n: n * 2, num_workers=0)
    assert [(n.tolist(), text) for n, text in ours] == [([6, 10], ("a", "b"))]


def test_a_new_collate_function_is_seen_by_the_next_epoch(folder):
    loader = ptorch.DataLoader(images(folder), 23, num_workers=0)
    assert isinstance(next(iter(loader)), list)
    loader.collate_fn = len
    assert list(loader) == [23]


@pytest.mark.parametrize("change", ["transform", "parameter", "samples", "concatenated"])
def test_a_dataset_that_changes_is_seen_by_the_next_epoch(folder, change):
    dataset = images(folder, V.Compose([V.Resize((24, 20)), V.ToTensor()]))
    if change == "concatenated":
        loader = ptorch.DataLoader(data.ConcatDataset([dataset]), 4)
        list(loader)
        dataset.transform = PLAIN
        assert_same(loader, data.DataLoader(dataset, 4))
        return
    loader = ptorch.DataLoader(dataset, 4)
    assert_same(loader, data.DataLoader(dataset, 4))
    if change == "transform":
        dataset.transform = V.Compose([V.Resize((10, 12)), V.ToTensor()])
    elif change == "parameter":
        dataset.transform.transforms[0].size = (8, 8)
    else:
        del dataset.samples[5:]
    assert_same(loader, data.DataLoader(dataset, 4))


# Several iterators of one loader


@pytest.mark.parametrize("kind", ["native", "fed", "python"])
def test_two_iterators_at_once_go_their_own_ways(folder, kind):
    dataset = images(folder) if kind != "python" else list(range(23))
    options = {"sampler": list(range(23))} if kind == "fed" else {}
    loader = ptorch.DataLoader(dataset, 4, num_workers=2, **options)

    def plain(batch):
        return (batch[1] if isinstance(batch, list) else batch).tolist()

    alone = [plain(batch) for batch in loader]
    first, second = iter(loader), iter(loader)
    begun = [plain(next(first)), plain(next(first))]
    both = [(plain(a), plain(b)) for a, b in zip(first, second, strict=False)]
    assert begun + [a for a, _ in both] == alone
    assert [b for _, b in both] == alone[: len(both)]
    nested = [plain(inner) for _ in range(2) for inner in loader]
    assert nested == alone * 2


def test_native_loaders_are_used_again(folder):
    """No new threads an epoch, unless two iterations are alive."""
    loader = ptorch.DataLoader(images(folder), 4, num_workers=2)
    list(loader)
    made = loader._engine._loader
    list(loader)
    next(iter(loader))
    gc.collect()
    list(loader)
    assert loader._engine._loader is made


def test_a_bad_picture_raises_with_its_name(spoiled):
    loader = ptorch.DataLoader(images(spoiled), 4)
    with pytest.raises(Exception, match=r"ant|bee|cat"):
        list(loader)
    lenient = ptorch.DataLoader(images(spoiled), 4, on_error="replace", max_bad=2)
    assert sum(len(labels) for _, labels in lenient) == 23


def test_bad_pictures_are_counted_over_a_resume(spoiled):
    loader = ptorch.DataLoader(images(spoiled), 8, on_error="skip", max_bad=1, num_workers=0)
    next(iter(loader))
    state = loader.state_dict()
    assert state["bad"] == 1
    other = ptorch.DataLoader(images(spoiled), 8, on_error="skip", max_bad=1, num_workers=0)
    other.load_state_dict(state)
    with pytest.raises(Exception, match="more than 1"):
        list(other)


def test_batches_are_mixed_as_the_loader_mixes_them(folder, ops):
    mix = [penstock.MixUp(alpha=0.4), penstock.CutMix()]
    plain = penstock.Loader(folder, ops, 4, shuffle=True, seed=1, batch_ops=mix)
    mixed = ptorch.DataLoader(folder, 4, True, transform=ops, seed=1, batch_ops=mix)
    for batch, (blend, shares) in zip(plain, mixed, strict=True):
        assert np.array_equal(blend.numpy(), np.asarray(batch["image"]))
        assert np.array_equal(shares.numpy(), np.asarray(batch["label"]))


def test_a_samplers_batches_are_mixed_too(folder):
    dataset, order = images(folder), list(range(0, 23, 2))
    mixed = ptorch.DataLoader(dataset, 4, sampler=order, batch_ops=penstock.MixUp(), seed=1)
    plain = list(ptorch.DataLoader(dataset, 4, sampler=order, seed=1))
    batches = list(mixed)
    for (blend, shares), (one, labels) in zip(batches, plain, strict=True):
        assert blend.shape == one.shape
        assert shares.shape == (len(labels), 3)
        assert torch.allclose(shares.sum(1), torch.ones(len(labels)))
    assert not all(
        torch.equal(blend, one) for (blend, _), (one, _) in zip(batches, plain, strict=True)
    )


def test_mixing_is_for_native_datasets(folder):
    with pytest.raises(ValueError, match="batch_ops"):
        ptorch.DataLoader(list(range(9)), 3, batch_ops=penstock.CutMix())
    with pytest.raises(ValueError, match="target_transform"):
        ptorch.DataLoader(images(folder, target_transform=int), 3, batch_ops=penstock.MixUp())
