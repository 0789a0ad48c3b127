"""The law: the stream is a function of dataset, operations, seed, epoch and global batch.

Everything else is varied here, and not one byte may change.
"""

import numpy as np
import pytest

import penstock
from penstock import transforms as T

WORKERS = (0, 1, 2, 3, 8)
EPOCHS = 2

# Prints one hash an image batch; argv: dataset.
PROGRAM = """
import hashlib, sys
import penstock
from penstock import transforms as T
ops = [T.RandomResizedCrop(37, scale=(0.2, 1.0), interpolation="bicubic"),
       T.RandomHorizontalFlip(), T.ColorJitter(0.4, 0.4, 0.4, 0.1), T.ToTensor(),
       T.Normalize((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)), T.RandomErasing(0.5)]
augment = [T.RandomApply([T.ColorJitter(0.4, 0.4, 0.4, 0.1)], 0.8), T.RandomRotation(30, "bicubic"),
       T.RandomAffine(20, (0.1, 0.1), (0.8, 1.2), 9, "bilinear", (9, 8, 7)), T.RandomPerspective(),
       T.RandomChoice([T.GaussianBlur(5), T.RandomAdjustSharpness(2.0, 1.0), T.RandomEqualize(1.0)]),
       T.RandomOrder([T.RandomInvert(0.2), T.RandomSolarize(99), T.RandomPosterize(4)]),
       T.RandomAutocontrast(), T.RandomGrayscale(), T.AutoAugment(), T.RandAugment(),
       T.TrivialAugmentWide(interpolation="bilinear"), T.AugMix(), T.Pad(3), T.RandomCrop(37)]
print(penstock.cpu_level())
for dtype in ("float32", "float16", "bfloat16"):
    for batch in penstock.Loader(sys.argv[1], ops, 5, shuffle=True, seed=9, dtype=dtype):
        print(hashlib.sha256(batch["image"]).hexdigest())
for batch in penstock.Loader(sys.argv[1], ops[:1] + augment, 5, shuffle=True, seed=9):
    print(hashlib.sha256(batch["image"]).hexdigest())
"""


@pytest.fixture(scope="module")
def reference(folder, ops, digests):
    """The stream as the caller's own thread makes it."""
    loader = penstock.Loader(folder, ops, 4, shuffle=True, seed=11, num_workers=0)
    return [digests(loader) for _ in range(EPOCHS)]


def stream(digests, *arguments, **options):
    loader = penstock.Loader(*arguments, shuffle=True, seed=11, **options)
    return [digests(loader) for _ in range(EPOCHS)]


@pytest.mark.parametrize("workers", WORKERS)
def test_the_number_of_workers_changes_nothing(folder, ops, digests, reference, workers):
    assert stream(digests, folder, ops, 4, num_workers=workers) == reference


AUGMENT = [
    T.Resize((40, 44)),
    T.RandomApply([T.RandomAffine(30, (0.1, 0.2), (0.7, 1.3), 20, fill=(1, 2, 3))], 0.7),
    T.RandomChoice([T.GaussianBlur(5), T.Compose([T.RandomPerspective(), T.RandomEqualize()])]),
    T.RandomOrder([T.RandomInvert(), T.RandomAdjustSharpness(2.0), T.RandomAutocontrast()]),
    T.AutoAugment("cifar10"),
    T.RandAugment(),
    T.TrivialAugmentWide(),
    T.AugMix(),
    T.RandomRotation(45, "bilinear", expand=True),
    T.RandomResizedCrop(32),
]


def test_augmentations_keep_the_law(folder, digests):
    streams = [stream(digests, folder, AUGMENT, 4, num_workers=n) for n in (0, 1, 3)]
    assert streams[0] == streams[1] == streams[2]
    assert streams[0] == stream(digests, folder, AUGMENT, 4, num_workers=2, memory_budget="16MiB")


@pytest.mark.parametrize("prefetch", [1, 2, 7])
def test_the_depth_of_prefetching_changes_nothing(folder, ops, digests, reference, prefetch):
    assert stream(digests, folder, ops, 4, num_workers=3, prefetch=prefetch) == reference


def test_a_budget_that_throttles_changes_nothing(folder, ops, digests, reference):
    loader = penstock.Loader(
        folder, ops, 4, shuffle=True, seed=11, num_workers=4, prefetch=8, memory_budget="16MiB"
    )
    assert [digests(loader) for _ in range(EPOCHS)] == reference
    stats = loader.stats()
    assert stats["budget_peak"] <= stats["budget_bytes"] == 2**24


def test_folder_and_tar_give_the_same_stream(shard, ops, digests, reference):
    assert stream(digests, shard, ops, 4, num_workers=2) == reference


def test_folder_and_tar_are_the_same_dataset(folder, shard):
    one, other = penstock.Dataset(folder), penstock.Dataset(shard)
    assert (one.kind, other.kind) == ("folder", "tar")
    assert one.hash == other.hash
    assert one.keys() == other.keys()
    assert [one.label(i) for i in range(len(one))] == [other.label(i) for i in range(len(other))]
    assert [one.read(i) for i in range(len(one))] == [other.read(i) for i in range(len(other))]


def test_simd_changes_nothing(folder, run_python):
    fast = run_python(PROGRAM, folder)
    slow = run_python(PROGRAM, folder, PENSTOCK_CPU="scalar")
    assert fast.returncode == slow.returncode == 0, fast.stderr + slow.stderr
    assert slow.stdout.splitlines()[0] == "scalar"
    assert fast.stdout.splitlines()[1:] == slow.stdout.splitlines()[1:]
    assert len(set(fast.stdout.splitlines()[1:])) == 20


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("order", ["sequential", "shuffle", "block"])
def test_ranks_share_the_global_batch(folder, ops, order, tail):
    """Slices of 1, 2 and 4 ranks, put together, are the same steps."""
    options = {"order": order, "block_size": 4, "window": 2, "seed": 3, "tail": tail}

    def steps(world_size):
        ranks = [
            penstock.Loader(
                folder, ops, 8 // world_size, rank=rank, world_size=world_size, **options
            )
            for rank in range(world_size)
        ]
        assert len({len(loader) for loader in ranks}) == 1
        return [
            tuple(
                np.concatenate([np.asarray(batch[name]) for batch in parts]).tobytes()
                for name in ("image", "label", "mask", "id")
            )
            for _ in range(EPOCHS)
            for parts in zip(*ranks, strict=True)
        ]

    alone = steps(1)
    assert len(alone) == EPOCHS * (2 if tail == "drop" else 3)
    assert steps(2) == alone
    assert steps(4) == alone


def test_several_ranks_wrap_by_default_and_cannot_be_short(folder, plain_ops):
    ranks = [penstock.Loader(folder, plain_ops, 5, rank=r, world_size=2) for r in range(2)]
    assert [[len(batch) for batch in loader] for loader in ranks] == [[5, 5, 5]] * 2
    with pytest.raises(ValueError, match=r"tail|short"):
        penstock.Loader(folder, plain_ops, 5, world_size=2, tail="short")
    with pytest.raises(ValueError, match=r"on_error|skip"):
        penstock.Loader(folder, plain_ops, 5, world_size=2, on_error="skip")


def test_any_batch_can_be_built_again(folder, ops, digests, reference):
    loader = penstock.Loader(folder, ops, 4, shuffle=True, seed=11, num_workers=2)
    next(iter(loader))
    for epoch in reversed(range(EPOCHS)):
        again = [loader.replay(epoch, index) for index in range(len(loader))]
        assert digests(again) == reference[epoch]
    assert loader.state_dict() == state_after_one_batch(folder, ops)


def state_after_one_batch(folder, ops):
    loader = penstock.Loader(folder, ops, 4, shuffle=True, seed=11, num_workers=0)
    next(iter(loader))
    return loader.state_dict()


def test_a_sample_alone_is_the_sample_in_its_batch(folder, ops):
    loader = penstock.Loader(folder, ops, 6, shuffle=True, seed=2**64 - 1)
    list(loader)
    for batch in loader:
        images = np.asarray(batch["image"])
        for row, id in enumerate(batch.ids):
            key = {"seed": 2**64 - 1, "epoch": 1, "sample": id}
            data = loader.dataset.read(id)
            alone = penstock.apply(data, ops, **key)
            assert np.array_equal(np.asarray(alone), images[row])
            assert loader.draw(1, id) == penstock.draw(data, ops, **key)


def test_a_wrapped_sample_is_drawn_anew(folder, ops):
    loader = penstock.Loader(folder, ops, 8, tail="wrap")
    batches = list(loader)
    assert batches[-1].ids[-1] == batches[0].ids[0] == 0
    again = penstock.apply(loader.dataset.read(0), ops, occurrence=1)
    assert np.array_equal(np.asarray(batches[-1]["image"])[-1], np.asarray(again))
    assert not np.array_equal(np.asarray(batches[0]["image"])[0], np.asarray(again))


def test_seed_epoch_and_operations_do_change_the_stream(folder, ops, digests, reference):
    assert reference[0] != reference[1]
    other_seed = penstock.Loader(folder, ops, 4, shuffle=True, seed=12)
    assert set(digests(other_seed)).isdisjoint(reference[0])
    other_ops = [T.RandomResizedCrop(32, scale=(0.3, 0.9)), *ops[1:]]
    assert set(digests(penstock.Loader(folder, other_ops, 4, shuffle=True, seed=11))).isdisjoint(
        reference[0]
    )
