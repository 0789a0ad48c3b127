"""What is decided about worker processes, why, and where that is written down."""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import data

import penstock
from penstock import transforms as T
from penstock.torch import DataLoader
from penstock.workers import decisions
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


# --- the log ---


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A line a batch."""
    monkeypatch.setattr(decisions, "PERIOD_SECONDS", 0)
    return tmp_path / "decisions.jsonl"


def lines_of(log: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in log.read_text().splitlines()]


KEYS = "v loader period time_ns engine policy tuner fresh state seen knobs limits pinned wanted decision reason outcome"  # fmt: skip


@pytest.mark.parametrize(
    ("n_workers", "policy", "limits"),
    [(2, "model", [1, 256]), (2, "fixed", [1, 256]), (0, "rules", [0, 0])],
)
def test_every_period_is_a_line(n_workers: int, policy: Any, limits: list[int], log: Path) -> None:
    options = {"num_workers": n_workers, "policy": policy, "decision_log": log}
    with DataLoader(Squares(), batch_size=4, **options) as loader:
        for _ in range(2):
            assert [int(value) for batch in loader for value in batch] == [i * i for i in range(64)]
    lines = lines_of(log)
    assert [line["period"] for line in lines] == list(range(1, 33))
    assert [line["fresh"] for line in lines] == [True] + 31 * [False]
    for line in lines:
        assert " ".join(line) == KEYS
        assert (line["v"], line["engine"], line["policy"]) == (1, "processes", policy)
        assert line["tuner"] == ("processes" if n_workers else None)
        state = line["state"]
        assert (state["batches"], state["samples"], state["batch_samples"]) == (1, 4, 4)
        assert state["batch_s"] >= 0 and state["cores"] >= 1
        assert line["knobs"]["workers"] == line["decision"]["workers"] == n_workers
        assert line["limits"]["workers"] == limits and "workers" in line["pinned"]
        assert line["outcome"]["threads"] == n_workers
        assert (line["reason"], line["seen"]) == ("", None)
    times = [line["time_ns"] for line in lines]
    assert times == sorted(times)


def test_the_cores_in_the_log_are_those_that_the_tuner_goes_by(log: Path) -> None:
    with DataLoader(Squares(), batch_size=4, num_workers=2, decision_log=log) as loader:
        batches = iter(loader)
        next(batches)
        loader._engine._workers._tuner.n_cores = 77  # type: ignore[union-attr]
        next(batches)
    assert lines_of(log)[-1]["state"]["cores"] == 77


def test_a_period_is_a_tenth_of_a_second_of_the_loops_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with DataLoader(Squares(), batch_size=4, num_workers=2, decision_log=log) as loader:
        batches = iter(loader)
        next(batches)
        written = decisions.DecisionLog(log)
        workers = loader._engine._workers  # type: ignore[union-attr]
        meter = workers.meter = Meter()
        written.begin(workers)
        for n in range(1, 11):  # 30 ms each
            meter._sums[:3] = n, n * 20_000_000, n * 10_000_000
            meter._sums[-2] = n
            written.batch_came(workers, "model")
    assert [(one["state"]["batches"], one["state"]["step_s"]) for one in lines_of(log)] == [
        (4, pytest.approx(0.01)),
        (4, pytest.approx(0.01)),
    ]
    assert lines_of(log)[1]["state"]["period_s"] == pytest.approx(0.12)
    assert lines_of(log)[1]["outcome"]["wait_share"] == pytest.approx(2 / 3)


def test_what_the_tuner_says_ends_a_period(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with DataLoader(Squares(), batch_size=4, decision_log=log) as loader:
        batches = iter(loader)
        next(batches)
        had = loader.knobs.workers
        workers = loader._engine._workers  # type: ignore[union-attr]
        n_before = len(lines_of(log))
        workers.meter.say(Said(had + 1, "one more", {"batches": 7}))
        workers._pool.resize(had + 1)
        next(batches)
        line = lines_of(log)[n_before]
    assert line["reason"] == "one more" and line["seen"] == {"batches": 7}
    assert line["knobs"]["workers"] == had
    assert line["wanted"]["workers"] == line["decision"]["workers"] == had + 1
    assert "workers" not in line["pinned"]


def test_a_dataset_that_changes_goes_on_with_the_same_log(log: Path) -> None:
    class Transformed(Squares):
        transform: Any = None

    dataset = Transformed()
    dataset.transform = abs
    with DataLoader(dataset, batch_size=16, num_workers=1, decision_log=log) as loader:
        for _ in loader:
            pass
        dataset.transform = float
        for _ in loader:
            pass
    assert [line["period"] for line in lines_of(log)] == list(range(1, 9))
    assert [line["fresh"] for line in lines_of(log)] == 2 * [True, False, False, False]


def pictures(folder: Path) -> dict[str, Any]:
    return {"dataset": folder, "transform": [T.Resize((24, 20))]}


def test_a_native_dataset_writes_its_own(folder: Path, tmp_path: Path) -> None:
    log = tmp_path / "decisions.jsonl"
    with DataLoader(**pictures(folder), batch_size=4, decision_log=log) as loader:
        while not log.read_text():
            for _ in loader:
                pass
        assert isinstance(loader.reason, str)
    line = lines_of(log)[0]
    assert line["period"] == 1 and "decode_s" in line["state"] and "engine" not in line


@pytest.mark.parametrize("is_native", [True, False])
def test_a_path_that_cannot_be_opened_is_an_error_at_once(
    is_native: bool, folder: Path, tmp_path: Path
) -> None:
    what = pictures(folder) if is_native else {"dataset": Squares()}
    os.mkfifo(tmp_path / "pipe")
    for name in ("missing/log", ".", "pipe"):
        with pytest.raises(penstock.InputOutputError, match="decision log: ") as caught:
            DataLoader(**what, decision_log=tmp_path / name)
        assert caught.value.code == "PEN_EIO"


def test_datapipes_have_no_decisions(tmp_path: Path) -> None:
    from torch.utils.data.datapipes.iter import IterableWrapper

    with pytest.raises(ValueError, match="decision_log"):
        DataLoader(IterableWrapper(range(3)), num_workers=0, decision_log=tmp_path / "log")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no device that is always full")
@pytest.mark.usefixtures("log")
def test_a_log_that_cannot_be_written_is_given_up_and_that_is_said() -> None:
    with DataLoader(Squares(), batch_size=4, num_workers=2, decision_log="/dev/full") as loader:
        assert len(list(loader)) == 16
        fault = "the decision log cannot be written: No space left on device"
        assert loader.reason == loader.status()["reason"] == fault
        loader.knobs.workers = "auto"
        loader._engine._workers.meter.say(Said(2, "two do", {}))  # type: ignore[union-attr]
        assert loader.reason == f"{fault}; two do"
