"""penstock.torch: a DataLoader's face over the same stream."""

import hashlib
import json

import numpy as np
import pytest

import penstock
from penstock import transforms as T

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")


def make(folder, ops, **options):
    settings = {"batch_size": 4, "shuffle": True, "seed": 5, "num_workers": 2} | options
    return ptorch.DataLoader(folder, transform=ops, **settings)


def test_it_yields_images_and_labels_as_tensors(folder, ops):
    loader = make(folder, ops)
    pairs = list(loader)
    assert len(pairs) == len(loader) == 6
    images, labels = pairs[0]
    assert images.shape == (4, 3, 32, 32)
    assert images.dtype == torch.float32
    assert images.is_contiguous()
    assert labels.dtype == torch.int64
    assert labels.shape == (4,)


def test_the_stream_is_the_loaders_own(folder, ops):
    plain = penstock.Loader(folder, ops, 4, shuffle=True, seed=5)
    for (images, labels), batch in zip(make(folder, ops), plain, strict=True):
        assert np.array_equal(images.numpy(), np.asarray(batch["image"]))
        assert labels.tolist() == batch["label"].tolist()


def test_tensors_are_the_batchs_memory(folder, ops):
    batch = next(iter(penstock.Loader(folder, ops, 4)))
    images, labels = ptorch.tensors(batch)
    assert images.data_ptr() == np.asarray(batch["image"]).__array_interface__["data"][0]
    images.zero_()
    labels.fill_(7)
    assert not np.asarray(batch["image"]).any()
    assert batch["label"].tolist() == [7] * 4


def test_tensors_outlive_the_loader(folder, ops):
    loader = make(folder, ops)
    pairs = list(loader)
    wanted = [hashlib.sha256(images.numpy()).digest() for images, _ in pairs]
    loader.close()
    del loader
    assert [hashlib.sha256(images.numpy()).digest() for images, _ in pairs] == wanted


def test_tensors_may_be_freed_by_the_autograd_engine(folder, ops):
    """Its threads hold no Python lock when they let go of saved tensors."""
    weight = torch.ones(3 * 32 * 32, requires_grad=True)
    for images, _ in make(folder, ops):
        (images.flatten(1) @ weight).sum().backward()
        del images
    assert torch.isfinite(weight.grad).all()


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16", "uint8"])
def test_every_type_has_its_tensor(folder, ops, plain_ops, dtype):
    line = plain_ops if dtype == "uint8" else ops
    images, _ = next(iter(make(folder, line, dtype=dtype)))
    assert images.dtype == getattr(torch, dtype)
    if dtype != "uint8":
        exact, _ = next(iter(make(folder, line)))
        assert torch.equal(images, exact.to(images.dtype))


def test_masks_are_boolean_tensors(folder, plain_ops):
    batch = penstock.Loader(folder, plain_ops, 8, tail="pad").replay(0, 2)
    mask = torch.from_dlpack(batch["mask"])
    assert mask.dtype == torch.bool
    assert mask.tolist() == [True] * 7 + [False]


def test_a_legacy_capsule_is_understood(folder, ops):
    batch = next(iter(penstock.Loader(folder, ops, 4)))
    tensor = torch.utils.dlpack.from_dlpack(batch["image"].__dlpack__())
    assert np.array_equal(tensor.numpy(), np.asarray(batch["image"]))


def test_state_and_epochs_are_the_loaders(folder, ops):
    loader = make(folder, ops)
    iterator = iter(loader)
    next(iterator)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [labels.tolist() for _, labels in iterator]
    other = make(folder, ops, num_workers=0)
    other.load_state_dict(state)
    assert [labels.tolist() for _, labels in other] == rest
    other.set_epoch(0)
    assert len(list(other)) == 6
    assert other.stats()["batches"] >= 11
    assert len(other.dataset) == 23


def test_it_is_a_context_manager(folder, ops):
    with make(folder, ops) as loader:
        next(iter(loader))
    with pytest.raises(penstock.Error, match="closed"):
        next(iter(loader))


def test_rank_and_world_size_come_from_torch_distributed(folder, plain_ops, tmp_path):
    distributed = torch.distributed
    if not distributed.is_available():
        pytest.skip("torch is built without distributed")
    store = distributed.FileStore(str(tmp_path / "store"), 1)
    distributed.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        loader = make(folder, plain_ops)
        assert len(loader) == 6
        given = make(folder, plain_ops, rank=1, world_size=2)
        assert len(given) == 3
    finally:
        distributed.destroy_process_group()


def test_ranks_given_by_hand_share_the_samples(folder, plain_ops):
    seen = [
        [labels.shape[0] for _, labels in make(folder, plain_ops, rank=rank, world_size=2)]
        for rank in range(2)
    ]
    assert seen == [[4, 4, 4]] * 2
    with pytest.raises(ValueError, match="world_size"):
        make(folder, plain_ops, rank=1)


def test_it_trains_a_small_network(folder):
    torch.manual_seed(0)
    ops = [T.Resize((16, 16)), T.ToTensor(), T.Normalize(0.5, 0.5)]
    model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 16 * 16, 3))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    losses = []
    loader = make(folder, ops, batch_size=23)
    for _ in range(20):
        for images, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    assert losses[-1] < losses[0]


def test_knobs_and_policy_reach_the_native_loader(folder, ops):
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "transform": ops}
    plain = ptorch.DataLoader(folder, policy="fixed", num_workers=0, **options)
    want = [images.clone() for images, _ in plain]
    with ptorch.DataLoader(folder, **options) as loader:
        with pytest.raises(RuntimeError, match="before the first iteration"):
            loader.verdict()
        assert loader.policy == "model"
        got = []
        for images, _ in loader:
            got.append(images)
            loader.policy = "rules"
            loader.knobs.set(workers=1, read_ahead=6)
        assert all(torch.equal(one, other) for one, other in zip(got, want, strict=True))
        assert loader.knobs.workers == 1
        assert loader.telemetry()["stages"]["wait"]["count"] == len(want)
        assert loader.verdict().startswith("training waits")
        with pytest.raises(ValueError, match="policy must be one of"):
            loader.policy = "clever"
        assert loader.policy == "rules"
    with pytest.raises(RuntimeError, match="natively compiled"):
        _ = ptorch.DataLoader([1, 2, 3], num_workers=0).address
