"""What is decided about worker processes, why, and where that is written down."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import data

from penstock.torch import DataLoader
from penstock.workers.meter import Change, Meter
from penstock.workers.tuner import Said, Tuner


class Squares(data.Dataset):
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index * index)


@pytest.fixture
def loader() -> Iterator[DataLoader]:
    with DataLoader(Squares(), batch_size=4) as loader:
        yield loader


# --- reasons ---


def sayings(period_of: Any, cost: tuple[int, int, int], n_batches: int = 400) -> list[Said]:
    """Of a tuner on two cores, beside a loop that does nothing but wait."""
    said: list[Said] = []
    tuner = Tuner(2, say=said.append)
    tuner.begin(0.01)
    for _ in range(n_batches):
        period = period_of(tuner.n_workers)
        if not tuner.is_inline:
            tuner.observe(period, period, 0.9 * period, cost, 100)
    return said


def test_a_tuner_says_what_it_tries_and_what_came_of_it() -> None:
    said = sayings(lambda n: 0.08 / min(n, 4), (80_000_000, 800_000, 0))
    tried, grown, back = said[:3]
    assert tried.reason == (
        "try 4 workers: the loop waits 90 % of the time, workers sleep 99 % of a batch's making"
    )
    assert grown.reason.startswith("4 workers stay: 25 to 50 batches/s, waiting 90 to 90 %; try 8")
    assert back.reason.startswith("8 workers go back to 4: 50 to 50 batches/s")
    assert [one.n_workers for one in said[:3]] == [4, 8, 4]
    assert len(said) == 3, "what is settled is not said again and again"
    assert tried.seen["made_s"] == pytest.approx(0.08)
    assert tried.seen["elapsed_s"] == pytest.approx(0.04)
    assert tried.seen["bytes"] == 100


def test_a_tuner_says_why_nothing_is_tried() -> None:
    (said,) = sayings(lambda n: 0.05 / n, (50_000_000, 50_000_000, 0))
    assert said.reason == "2 workers stay: the loop waits 90 % of the time, workers compute"
    assert said.n_workers == 2


def test_a_tuner_says_why_there_are_no_workers() -> None:
    (said,) = sayings(lambda n: 0.0004, (200_000, 200_000, 0))
    assert said.reason == "no workers: next() takes 0.4 ms with them, making a batch 0.2 ms"
    assert said.n_workers == 0


def test_a_tuner_says_that_something_has_changed() -> None:
    said: list[Said] = []
    tuner = Tuner(2, say=said.append)
    for makes in (50_000_000, 100_000_000):
        for _ in range(100):
            tuner.observe(makes * 0.5e-9, makes * 0.5e-9, makes * 0.4e-9, (makes, makes, 0))
    assert [one.reason.split(":")[0] for one in said] == [
        "2 workers stay",
        "what a batch or the step takes has changed; 2 workers stay",
    ]


def test_a_change_carries_its_reason() -> None:
    meter = Meter()

    def batch(n_workers: int) -> None:
        meter.begin()
        if n_workers:
            meter.made((1, 1, 0), 100, n_workers)
        meter.end()

    batch(2)
    meter.say(Said(2, "enough", {}))
    batch(2)
    meter.say(Said(0, "cheap", {}))
    batch(2)  # one that was under way
    batch(0)
    meter.say(Said(9, "never came", {}))
    batch(4)
    meter.say(Said(4, "four", {}))
    batch(4)
    assert [one[1:] for one in meter.changes] == [
        (2, 2, "enough"),
        (2, 0, "cheap"),
        (0, 4, ""),
        (4, 4, "never came"),
        (4, 4, "four"),
    ]
    assert isinstance(meter.changes[0], Change)


def test_a_loader_tells_the_tuners_reason(loader: DataLoader) -> None:
    batches = iter(loader)
    next(batches)
    assert loader.reason == loader.status()["reason"] == ""
    meter = loader._engine._workers.meter  # type: ignore[union-attr]
    meter.say(Said(loader.knobs.workers, "two do", {}))
    next(batches)
    status = loader.status()
    assert loader.reason == status["reason"] == "two do"
    (decision,) = status["decisions"]
    assert (decision["policy"], decision["reason"], decision["changed"]) == ("model", "two do", {})
    assert "two do" in loader._repr_html_()
    loader.policy = "fixed"
    assert loader.reason == "", "it rests"
