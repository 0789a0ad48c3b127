"""The tutorial runs from top to bottom, and what it claims in its asserts is so."""

import runpy
from pathlib import Path

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
