"""Every fuzz target survives its seeds, and inputs that broke one once."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BUILD = os.environ.get("PENSTOCK_BUILD")
TARGETS = sorted(path.stem.removeprefix("fuzz_") for path in ROOT.glob("tests/fuzz/fuzz_*.c"))


@pytest.fixture(scope="module")
def seeds(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("seeds")
    script = ROOT / "scripts" / "make-fuzz-corpus"
    subprocess.run([sys.executable, script, folder], check=True, timeout=60)
    return folder


def inputs_of(target: str, seeds: Path) -> list[Path]:
    """The seeds of the kinds its name mentions, and what stands in tests/fuzz/regress."""
    folders = [folder for folder in seeds.iterdir() if folder.name in target]
    folders.append(ROOT / "tests" / "fuzz" / "regress" / target)
    return [path for folder in folders if folder.is_dir() for path in sorted(folder.iterdir())]


@pytest.mark.skipif(not BUILD, reason="no build folder: run by make test")
@pytest.mark.parametrize("target", TARGETS)
def test_target_survives_its_corpus(target: str, seeds: Path) -> None:
    inputs = inputs_of(target, seeds)
    assert inputs
    program = Path(BUILD) / "tests" / "fuzz" / f"replay_{target}"
    done = subprocess.run(
        [program, *inputs], capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == f"{len(inputs)} inputs\n"
