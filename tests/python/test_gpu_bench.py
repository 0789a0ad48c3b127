"""bench/gpu.sh runs with the CPU as the device, and says so."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def gpu(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ROOT / "bench" / "gpu.sh", *map(str, arguments)],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        timeout=300,
    )


def test_both_loaders_feed_a_few_steps_on_the_cpu(folder: Path, tmp_path: Path) -> None:
    out = tmp_path / "out.json"
    done = gpu(
        *(folder, "--device", "cpu", "--model", "small", "--steps", 3, "--warmup", 1),
        *("--batch-size", 4, "--size", 32, "--workers", 1, "--json", out),
    )
    assert done.returncode == 0, done.stderr
    assert "device: the CPU" in done.stdout
    assert "GPU busy" in done.stdout and "data-wait share" in done.stdout
    runs = json.loads(out.read_text())["runs"]
    assert set(runs) == {"penstock", "torch"}
    for (run,) in runs.values():
        assert run["steps"] == 3 and run["seconds"] > 0
        assert 0 <= run["wait_share"] <= 1
        assert run["batch_wait_p50_ms"] <= run["batch_wait_p95_ms"] <= run["batch_wait_p99_ms"]
        assert run["memory_peak_bytes"] >= run["memory_mean_bytes"]
        assert run["samples_per_s"] == pytest.approx(12 / run["seconds"])


def test_pictures_are_found_however_they_are_spelt(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    sys.path.insert(0, str(ROOT))
    from bench.gpu_loop import PillowFolder

    (tmp_path / "ant").mkdir()
    (tmp_path / "bee" / "deeper").mkdir(parents=True)
    for name in ("ant/1.JPEG", "ant/2.jpg", "ant/note.txt", "ant/3.jp2g", "bee/deeper/4.Jpg"):
        (tmp_path / name).touch()
    assert [(path.name, label) for path, label in PillowFolder(str(tmp_path), 8)._files] == [
        ("1.JPEG", 0),
        ("2.jpg", 0),
        ("4.Jpg", 1),
    ]


def test_it_explains_itself_and_refuses_what_is_no_data_set(tmp_path: Path) -> None:
    told = gpu("--help")
    assert told.returncode == 0 and "--batch-size" in told.stdout
    refused = gpu(tmp_path)
    assert refused.returncode == 2 and "no folder of classes" in refused.stderr
