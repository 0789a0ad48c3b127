"""Loaders of worker processes in `penstock top`.

They speak between batches, about twice a second; here they are asked to at once.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

from penstock.torch import DataLoader  # noqa: E402

PENSTOCK = Path(sys.executable).with_name("penstock")


def top(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [PENSTOCK, "top", *arguments, str(os.getpid())]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


class Squares:
    def __len__(self) -> int:
        return 64

    def __getitem__(self, index: int) -> Any:
        return torch.tensor(index * index)


@pytest.fixture
def loader():
    loader = DataLoader(Squares(), batch_size=4, num_workers=1, persistent_workers=True)
    yield loader
    loader.close()


def speak(loader: DataLoader) -> None:
    loader._engine._shown()


def test_worker_processes_are_shown(loader):
    for _ in loader:
        pass
    speak(loader)
    done = top("--once")
    assert done.returncode == 0, done.stderr
    for word in ("workers' time", "compute", "sleep", "make", "ready_batches", "verdict"):
        assert word in done.stdout
    (shown,) = json.loads(top("--json").stdout)["loaders"]
    assert shown["batches"] == 16
    assert shown["knobs"]["workers"]["value"] == 1


def test_their_knobs_are_turned_by_the_command(loader):
    batches = iter(loader)
    seen = [next(batches)]
    speak(loader)
    assert top("--set", "workers=2", "--set", "ready_batches=6").returncode == 0
    speak(loader)
    assert (loader.knobs.workers, loader.knobs.ready_batches) == (2, 6)
    seen += batches
    assert [int(value) for batch in seen for value in batch] == [i * i for i in range(64)]
    assert top("--set", "ready_batches=auto").returncode == 0
    speak(loader)
    assert not loader.knobs.table()["ready_batches"].is_pinned
    for wish, why in (
        ("workers=9999", "workers must be 1 to"),
        ("read_ahead=3", "this loader has no knob 'read_ahead'"),
        ("speed=3", "there is no knob 'speed'"),
    ):
        done = top("--set", wish)
        assert done.returncode == 1 and why in done.stderr


def test_an_address_that_nobody_would_serve_is_refused():
    from torch.utils.data.datapipes.iter import IterableWrapper

    with pytest.raises(ValueError, match="metrics is for datasets that are loaded natively"):
        DataLoader(Squares(), batch_size=4, metrics="127.0.0.1:0")
    with pytest.raises(ValueError, match="metrics"):
        DataLoader(IterableWrapper(range(3)), num_workers=0, metrics="127.0.0.1:0")
    with DataLoader(Squares(), batch_size=4, num_workers=0, metrics="off") as loader:
        assert len(list(loader)) == 16
        with pytest.raises(RuntimeError, match="natively"):
            loader.trace("trace.json")


def test_a_range_that_changed_meanwhile_is_said_not_raised(loader):
    next(iter(loader))
    speak(loader)
    assert top("--set", "ready_batches=900").returncode == 0
    loader._engine._workers.settings.largest = loader._engine._workers.settings.budget
    speak(loader)
    (shown,) = json.loads(top("--json").stdout)["loaders"]
    assert "ready_batches must be 1 to 1 here" in shown["reason"]


def test_who_has_no_policy_or_no_workers_is_not_shown():
    for settings in ({"policy": "fixed", "num_workers": 1}, {"num_workers": 0}):
        loader = DataLoader(Squares(), batch_size=4, **settings)
        for _ in loader:
            pass
        speak(loader)
        assert top("--once").returncode == 1
        loader.close()


def test_nobody_answers_after_the_end(loader):
    for _ in loader:
        pass
    speak(loader)
    loader.close()
    assert top("--once").returncode == 1


def test_top_can_be_switched_off(loader, monkeypatch):
    monkeypatch.setenv("PENSTOCK_TOP", "off")
    for _ in loader:
        pass
    speak(loader)
    assert top("--once").returncode == 1


def test_loops_of_some_length_speak_by_themselves(loader):
    meter_calls = []
    for _ in loader:
        loader._engine._workers.meter._while = 1  # as if half a second had gone by
        loader._engine._workers.meter.each_while = lambda: meter_calls.append(1)
    assert len(meter_calls) == 15  # not after the first batch
