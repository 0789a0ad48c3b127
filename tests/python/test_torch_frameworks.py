"""Code around the loader: Lightning, Accelerate, torch.compile, subclasses."""

import importlib.util
import logging
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
ptorch = pytest.importorskip("penstock.torch")
data = torch.utils.data
nn = torch.nn

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


@pytest.fixture
def split_folder(folder, tmp_path):
    """The pictures as train/ and val/."""
    for split in ("train", "val"):
        (tmp_path / split).symlink_to(folder)
    return tmp_path


def load_example(name):
    """An example as a module; it finds the others beside it."""
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(EXAMPLES))
    try:
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(EXAMPLES))
    return module


# Lightning


@pytest.fixture
def lightning_example():
    """Imports Lightning, which says a lot."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pytest.importorskip("lightning")
        logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
        return load_example("lightning_fit")


def fit(example, train, val=None, **options):
    settings = {
        "max_epochs": 2,
        "accelerator": "cpu",
        "devices": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "enable_progress_bar": False,
    }
    model = example.Classifier(3)
    trainer = example.lightning.Trainer(**(settings | options))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer.fit(model, train, val)
    return trainer, model


def test_the_lightning_example_trains(lightning_example, split_folder):
    train, val = lightning_example.loaders(split_folder, size=24)
    trainer, model = fit(lightning_example, train, val)
    assert trainer.train_dataloader is train
    assert trainer.global_step == len(model.losses) == 2 * len(train)
    assert all(np.isfinite(model.losses))
    assert "accuracy" in trainer.callback_metrics


def test_lightnings_loaders_with_another_sampler_are_ours(lightning_example, folder, ops):
    """overfit_batches makes it replace the sampler, as several ranks do."""
    train = ptorch.DataLoader(
        folder, 4, shuffle=True, transform=ops, seed=5, on_error="replace", max_bad=7
    )
    trainer, model = fit(lightning_example, train, overfit_batches=3)
    used = trainer.train_dataloader
    assert used is not train
    assert type(used) is ptorch.DataLoader
    assert type(used.sampler) is data.SequentialSampler
    kept = ("batch_size", "transform", "seed", "on_error", "max_bad", "num_workers", "order")
    assert {name: getattr(used, name) for name in kept} == {
        name: getattr(train, name) for name in kept
    }
    assert len(model.losses) == 2 * 3


def test_lightning_saves_and_loads_the_loaders_state(lightning_example, folder, ops, tmp_path):
    def make():
        return ptorch.DataLoader(folder, 4, shuffle=True, transform=ops, seed=5)

    trainer, _ = fit(lightning_example, make(), max_steps=2)
    place = tmp_path / "state.ckpt"
    trainer.save_checkpoint(place)
    saved = torch.load(place, weights_only=False)
    states = saved["loops"]["fit_loop"]["state_dict"]["combined_loader"]
    assert (states[0]["epoch"], states[0]["batch"]) == (0, 2)


# Accelerate


def test_the_accelerate_example_trains(split_folder):
    pytest.importorskip("accelerate")
    losses = load_example("accelerate_loop").train(split_folder, 2, size=24)
    assert len(losses) == 2
    assert all(np.isfinite(losses))


def test_accelerate_does_not_replace_our_loader(folder, ops):
    accelerate = pytest.importorskip("accelerate")
    accelerator = accelerate.Accelerator(cpu=True)
    ours = ptorch.DataLoader(folder, 4, transform=ops)
    theirs = data.DataLoader([1, 2, 3])
    prepared, other = accelerator.prepare(ours, theirs)
    assert prepared is ours
    assert other is not theirs  # what it does to others


# torch.compile


def test_a_compiled_step_takes_our_batches(folder, ops):
    model = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, 3))
    loss_of = nn.CrossEntropyLoss()

    def step(images, labels):
        return loss_of(model(images), labels)

    compiled = torch.compile(step, backend="aot_eager")
    for images, labels in ptorch.DataLoader(folder, 5, transform=ops, seed=1):
        assert torch.allclose(compiled(images, labels), step(images, labels))


# Code that subclasses the loader


class Doubled(ptorch.DataLoader):
    """A subclass as people write them: more arguments, super() everywhere."""

    def __init__(self, *arguments, factor=2, **options):
        super().__init__(*arguments, **options)
        self.factor = factor

    def __iter__(self):
        for batch in super().__iter__():
            yield batch * self.factor

    def describe(self):
        return f"{len(self.dataset)} of {self.batch_size}, {type(self.sampler).__name__}"


@pytest.mark.parametrize("n_workers", [0, 1])
def test_subclasses_work_as_they_do_with_torch(n_workers):
    loader = Doubled(list(range(7)), 3, factor=3, shuffle=True, num_workers=n_workers, seed=1)
    assert loader.describe() == "7 of 3, RandomSampler"
    numbers = [number for batch in loader for number in batch.tolist()]
    assert sorted(numbers) == [0, 3, 6, 9, 12, 15, 18]


def test_a_loader_in_a_loaders_place(folder, ops):
    """Code that only asks isinstance and reads attributes."""

    def summary(loader):
        assert isinstance(loader, data.DataLoader)
        n_samples = len(loader.sampler)
        is_shuffled = isinstance(loader.sampler, data.RandomSampler)
        return n_samples, is_shuffled, loader.batch_sampler.batch_size, loader.drop_last

    loader = ptorch.DataLoader(folder, 4, shuffle=True, transform=ops, drop_last=True)
    assert summary(loader) == (23, True, 4, True)
