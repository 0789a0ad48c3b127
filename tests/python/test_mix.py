"""MixUp and CutMix over whole batches: torchvision's bytes, on any number of ranks."""

import numpy as np
import pytest
import torch

import penstock
from penstock import CutMix, FedLoader, Loader, MixUp
from penstock import transforms as T

v2 = pytest.importorskip("torchvision.transforms.v2")

CLASSES = 3
N = 23


def tensors(batch):
    return torch.from_dlpack(batch["image"]), torch.from_dlpack(batch["label"])


def mixed_by_torchvision(images, labels, params):
    """What torchvision's own transform makes of a batch, given the same parameters."""
    if params["op"] == "MixUp":
        transform, made = v2.MixUp(num_classes=CLASSES), {"lam": params["lam"]}
    else:
        transform = v2.CutMix(num_classes=CLASSES)
        made = {"box": params["box"], "lam_adjusted": params["lam"]}
    made |= {"labels": labels, "batch_size": len(labels)}
    return transform.transform(images, made), transform.transform(labels, made)


def assert_exact(mixed, plain, draw):
    """Each batch of `mixed` is torchvision's result on the same batch of `plain`."""
    n = 0
    for batch, reference in zip(mixed, plain, strict=True):
        images, labels = tensors(batch)
        want = mixed_by_torchvision(*tensors(reference), draw(batch.epoch, batch.index))
        assert images.dtype == labels.dtype == torch.float32
        assert torch.equal(images, want[0])
        assert torch.equal(labels, want[1])
        assert batch.ids == reference.ids
        n += 1
    return n


@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("op", [MixUp(alpha=0.2), CutMix(), MixUp(alpha=4)], ids=repr)
def test_batches_are_torchvisions_to_the_bit(folder, ops, op, layout):
    def loader(**more):
        return Loader(folder, ops, 5, shuffle=True, seed=7, layout=layout, **more)

    mixed = loader(batch_ops=op)
    plain = loader()
    if layout == "NHWC":  # torchvision's boxes are of the last two dimensions
        plain, mixed_batches = list(plain), list(mixed)
        for batch, reference in zip(mixed_batches, plain, strict=True):
            images, labels = tensors(reference)
            want = mixed_by_torchvision(
                images.permute(0, 3, 1, 2), labels, mixed.draw_batch(0, batch.index)
            )
            assert torch.equal(tensors(batch)[0], want[0].permute(0, 2, 3, 1))
            assert torch.equal(tensors(batch)[1], want[1])
        return
    for _ in range(3):
        assert assert_exact(mixed, plain, mixed.draw_batch) == 5  # the last one is short


def test_boxes_are_placed_as_torchvision_places_them(folder, ops, monkeypatch):
    """Given lam and the centre, torchvision's own make_params finds our box and share."""
    loader = Loader(folder, ops, 5, batch_ops=CutMix(alpha=0.7), seed=1)
    transform = v2.CutMix(num_classes=CLASSES)
    images = torch.zeros(1, 3, 32, 32)
    n_whole = 0
    for batch in range(200):
        box = loader.draw_batch(0, batch)["box"]
        x1, y1, x2, y2 = box
        shares = (1 - (x2 - x1) * (y2 - y1) / 1024, loader.draw_batch(0, batch)["lam"])
        assert shares[0] == shares[1]
        if 0 in (x1, y1) or 32 in (x2, y2) or (x2 - x1) % 2:
            continue  # cut at an edge: the centre is not known
        half, centre = (x2 - x1) / 2, iter([(x1 + x2) // 2, (y1 + y2) // 2])
        lam = 1 - ((half + 0.5) / 16) ** 2
        monkeypatch.setattr(transform._dist, "sample", lambda shape, lam=lam: torch.tensor(lam))
        monkeypatch.setattr(torch, "randint", lambda *_, c=centre, **__: torch.tensor([next(c)]))
        assert transform.make_params([images]) == {"box": box, "lam_adjusted": shares[0]}
        n_whole += 1
    assert n_whole > 20


@pytest.mark.parametrize("tail", ["drop", "pad", "wrap"])
@pytest.mark.parametrize("ranks", [2, 4])
def test_ranks_together_have_the_bytes_of_one(folder, ops, tail, ranks):
    def loader(batch_size, **more):
        both = [CutMix(num_classes=5), MixUp(num_classes=5)]
        options = {"shuffle": True, "seed": 3, "tail": tail, "batch_ops": both, **more}
        return Loader(folder, ops, batch_size, **options)

    whole = loader(8)
    parts = [loader(8 // ranks, rank=rank, world_size=ranks) for rank in range(ranks)]
    for batch, *slices in zip(whole, *parts, strict=True):
        images, labels = tensors(batch)
        assert labels.shape == (8, 5)
        got = [tensors(part) for part in slices]
        assert torch.equal(images, torch.cat([image for image, _ in got]))
        assert torch.equal(labels, torch.cat([label for _, label in got]))


def test_one_of_several_is_picked_by_weight(folder, ops):
    picked = Loader(folder, ops, 5, batch_ops=[MixUp(weight=1), CutMix(weight=3)])
    names = [picked.draw_batch(epoch, batch)["op"] for epoch in range(20) for batch in range(50)]
    assert 200 < names.count("MixUp") < 300
    never = Loader(folder, ops, 5, batch_ops=[MixUp(weight=0), CutMix()])
    assert {never.draw_batch(0, batch)["op"] for batch in range(100)} == {"CutMix"}


def test_parameters_differ_between_batches_epochs_and_seeds(folder, ops):
    loaders = [Loader(folder, ops, 5, batch_ops=MixUp(), seed=seed) for seed in (1, 2)]
    shares = {
        loader.draw_batch(epoch, batch)["lam"]
        for loader in loaders
        for epoch in range(5)
        for batch in range(5)
    }
    assert len(shares) == 50


def test_lam_has_the_distribution_of_beta(folder, ops):
    for alpha in (0.2, 1.0, 8.0):
        loader = Loader(folder, ops, 5, batch_ops=MixUp(alpha=alpha))
        lams = np.array([loader.draw_batch(0, batch)["lam"] for batch in range(4000)])
        reference = np.sort(np.random.default_rng(1).beta(alpha, alpha, 200000))
        ranks = np.searchsorted(reference, np.sort(lams)) / len(reference)
        assert np.abs(ranks - np.linspace(0, 1, len(lams))).max() < 0.035  # Kolmogorov


def test_fed_batches_are_mixed_with_themselves(folder, ops):
    lists = [[1, 2, 3], [4, 4], [22], [0, 5, 6, 7]]
    plain = FedLoader(folder, ops, 4, seed=2)
    mixed = FedLoader(folder, ops, 4, seed=2, batch_ops=[MixUp(), CutMix()])
    assert assert_exact(mixed.run(3, lists), plain.run(3, lists), mixed.draw_batch) == 4


def test_skipped_samples_leave_before_mixing(spoiled, ops):
    plain = Loader(spoiled, ops, 6, on_error="skip")
    mixed = Loader(spoiled, ops, 6, on_error="skip", batch_ops=MixUp())
    assert assert_exact(mixed, plain, mixed.draw_batch) == 4


def test_a_bad_neighbour_is_counted_once_over_the_ranks(spoiled, ops, tmp_path):
    ledgers = [tmp_path / f"{rank}.jsonl" for rank in range(2)]
    for rank, ledger in enumerate(ledgers):
        options = {"on_error": "replace", "ledger": ledger, "batch_ops": MixUp()}
        list(Loader(spoiled, ops, 1, rank=rank, world_size=2, **options))
    lines = [line for ledger in ledgers for line in ledger.read_text().splitlines()]
    assert len(lines) == 2


def test_replay_and_resume_are_exact(folder, ops, digests):
    def loader():
        return Loader(folder, ops, 4, shuffle=True, batch_ops=[MixUp(), CutMix()])

    first = loader()
    whole = digests(first)
    assert digests([first.replay(0, index) for index in range(6)]) == whole
    second = loader()
    taken = [batch for batch, _ in zip(second, range(2), strict=False)]
    assert len(taken) == 2
    third = loader()
    third.load_state_dict(second.state_dict() | {"batch": 2})
    assert digests(third) == whole[2:]


@pytest.mark.parametrize("other", [(), MixUp(alpha=0.5), CutMix(), [MixUp(), CutMix()]])
def test_a_state_of_another_mix_is_refused(folder, ops, other):
    state = Loader(folder, ops, 4, batch_ops=MixUp()).state_dict()
    with pytest.raises(penstock.StateError, match="mix"):
        Loader(folder, ops, 4, batch_ops=other).load_state_dict(state)


@pytest.mark.parametrize(
    ("batch_ops", "error", "words"),
    [
        ("MixUp", TypeError, "not 'M'"),
        (T.ToTensor(), TypeError, ""),
        ([MixUp(num_classes=4), CutMix(num_classes=5)], ValueError, "different num_classes"),
        ([MixUp(weight=0)], ValueError, "weight"),
        ([MixUp()] * 9, ValueError, "at most 8"),
        (MixUp(num_classes=2), penstock.InvalidError, "2 classes, and sample 'cat/0002'"),
    ],
)
def test_what_cannot_be_mixed_is_refused(folder, ops, batch_ops, error, words):
    with pytest.raises(error, match=words or None):
        Loader(folder, ops, 4, batch_ops=batch_ops)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_only_float32_is_mixed(folder, ops, plain_ops, dtype):
    with pytest.raises(penstock.InvalidError, match="ToTensor"):
        Loader(folder, plain_ops, 4, batch_ops=MixUp())
    with pytest.raises(penstock.InvalidError, match="float32"):
        Loader(folder, ops, 4, batch_ops=MixUp(), dtype=dtype)


@pytest.mark.parametrize(
    "settings",
    [{"alpha": 0}, {"alpha": -1.0}, {"alpha": float("nan")}, {"weight": -1}, {"num_classes": 0}],
)
def test_settings_are_checked_where_they_are_written(settings):
    for kind in (MixUp, CutMix):
        with pytest.raises(ValueError, match=kind.__name__):
            kind(**settings)


def test_a_dataset_without_classes_needs_their_number(folder, ops, tmp_path):
    flat = tmp_path / "flat"
    flat.mkdir()
    (flat / "a.png").write_bytes(next(folder.glob("*/*.png")).read_bytes())
    with pytest.raises(ValueError, match="num_classes"):
        Loader(flat, ops, 1, batch_ops=MixUp())
    _, labels = tensors(next(iter(Loader(flat, ops, 1, batch_ops=MixUp(num_classes=4)))))
    assert torch.equal(labels.sum(1), torch.ones(1))


def test_nothing_is_drawn_where_nothing_mixes(folder, ops):
    with pytest.raises(penstock.InvalidError, match="nothing mixes"):
        Loader(folder, ops, 4).draw_batch(0, 0)
