"""The examples run, and what they claim is so."""

import argparse
import runpy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_the_tutorial_runs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    runpy.run_path(str(EXAMPLES / "tutorial.py"))
    said = capsys.readouterr().out
    assert "All of it is native" in said
    assert "waited" in said
    assert "circle/broken" in said


@pytest.fixture
def train_resnet(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    pytest.importorskip("torchvision")
    import torch

    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield runpy.run_path(str(EXAMPLES / "train_resnet.py"))
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("augment", ["none", "given"])
def test_changing_the_import_changes_no_loss(
    augment: str, train_resnet: dict[str, Any], folder: Path
) -> None:
    outcomes = {}
    for loader in ("torch", "penstock"):
        options = argparse.Namespace(
            folder=str(folder), loader=loader, augment=augment, steps=4, batch_size=4, workers=1,
            lr=0.02, seed=0, json=None,
        )  # fmt: skip
        outcomes[loader] = train_resnet["train"](options)
    assert outcomes["penstock"]["losses"] == outcomes["torch"]["losses"]
