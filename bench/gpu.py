"""Train a real model and tell how long the device waited for data: bench/gpu.sh FOLDER.

Penstock and torch's DataLoader (Pillow, worker processes) feed the same loop, each in a process of its own,
in turn; the figures are those of `penstock bench --step-ms`, with a device that computes.  Without a CUDA
device the CPU is the device, which then shares its cores with the loader.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from bench.common import SIZE
from bench.process_tree import memory_kib

LOADERS = ("penstock", "torch")
READ_SECONDS = 0.25  # between two readings of memory
ROWS = (
    ("data-wait share", "wait_share", 100, "%"),
    ("batch wait p50", "batch_wait_p50_ms", 1, "ms"),
    ("batch wait p95", "batch_wait_p95_ms", 1, "ms"),
    ("batch wait p99", "batch_wait_p99_ms", 1, "ms"),
    ("step", "step_ms", 1, "ms"),
    ("throughput", "samples_per_s", 1, "images/s"),
    ("first batch", "first_batch_ms", 1, "ms"),
    ("CPU", "cpu_cores", 1, "cores"),
    ("I/O wait", "iowait", 100, "% of all cores"),
    ("memory, peak", "memory_peak_bytes", 1e-6, "MB"),
    ("memory, mean", "memory_mean_bytes", 1e-6, "MB"),
    ("bytes read", "bytes_read", 1e-6, "MB"),
    ("GPU busy", "gpu_busy", 100, "%"),
)


class Watch(threading.Thread):
    """Memory of a process and its workers, and how busy the GPU is, read from outside."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._is_over = threading.Event()
        self.is_counting = False
        self._memory: list[int] = []
        self._busy: list[float] = []

    def run(self) -> None:
        command = shutil.which("penstock", path=f"{Path(sys.executable).parent}:{os.defpath}")
        has_gpus = True
        while not self._is_over.is_set():
            begin = time.monotonic()
            if self.is_counting:
                self._memory.append(memory_kib(self._pid)[0] << 10)
                busy = read_gpus(command) if has_gpus else None
                has_gpus = busy is not None
                if busy is not None:
                    self._busy.append(busy)
            self._is_over.wait(max(0.0, READ_SECONDS - (time.monotonic() - begin)))

    def finish(self) -> dict[str, float | None]:
        self._is_over.set()
        self.join()
        memory, busy = self._memory or [0], self._busy
        return {
            "memory_peak_bytes": max(memory),
            "memory_mean_bytes": statistics.mean(memory),
            "gpu_busy": statistics.mean(busy) if busy else None,
        }


def read_gpus(command: str | None) -> float | None:
    """The busiest GPU, by NVML; None: there is none, or it does not tell."""
    if command is None:
        return None
    try:
        out = subprocess.run(
            [command, "machine", "--json", "--ms", "20"], capture_output=True, check=True
        )
        told = [one["busy"] for one in json.loads(out.stdout)["gpus"] if one["busy"] is not None]
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError):
        return None
    return max(told, default=None)


def run_one(loader: str, job: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "bench.gpu_loop", json.dumps(job | {"loader": loader})]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        watch, last = Watch(process.pid), ""
        watch.start()
        for line in process.stdout:
            watch.is_counting = line.strip() == "measuring"
            last = line
        seen = watch.finish()
    if process.returncode != 0:
        raise SystemExit(f"the loop with {loader} ended with {process.returncode}")
    outcome: dict[str, Any] = json.loads(last) | seen
    outcome["cpu_cores"] = outcome["cpu_s"] / outcome["seconds"]
    return outcome


def medians(runs: list[dict[str, Any]]) -> dict[str, Any]:
    found = {}
    for _, key, _, _ in ROWS:
        told = [run[key] for run in runs if run[key] is not None]
        found[key] = statistics.median(told) if told else None
    return found


def table(results: dict[str, dict[str, Any]]) -> str:
    lines = [f"{'':18}" + "".join(f"{name:>14}" for name in results)]
    for title, key, scale, unit in ROWS:
        values = (one[key] for one in results.values())
        cells = ("unavailable" if v is None else f"{v * scale:.1f}" for v in values)
        lines.append(f"{title:18}" + "".join(f"{cell:>14}" for cell in cells) + f"  {unit}")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="bench/gpu.sh",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="?", help="pictures, a folder a class; without: generated")
    parser.add_argument("--steps", type=int, help="that count (200; 20 on the CPU)")
    parser.add_argument("--warmup", type=int, default=5, help="steps before those")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--size", type=int, default=SIZE, help="of the pictures")
    parser.add_argument("--model", help="resnet50, resnet18 (any of torchvision's), or small")
    parser.add_argument("--device", help="cuda, cuda:1, cpu")
    parser.add_argument("--amp", action="store_true", help="compute in bfloat16 where it may be")
    parser.add_argument("--workers", type=int, help="of torch's DataLoader (one a core)")
    parser.add_argument("--rounds", type=int, default=1, help="of all loaders; medians are shown")
    parser.add_argument("--only", choices=LOADERS, help="one loader alone")
    parser.add_argument("--json", type=Path, help="write all figures there")
    options = parser.parse_args()
    for name in ("steps", "batch_size", "size", "rounds"):
        if getattr(options, name) is not None and getattr(options, name) < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1")
    if options.folder and not any(one.is_dir() for one in Path(options.folder).glob("*")):
        parser.error(f"{options.folder} is no folder of classes")
    return options


def generated() -> str:
    """Pictures of our own, in one class."""
    from bench.synthetic import generate

    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "penstock-bench" / "gpu"
    print(f"no folder given: generated pictures in {folder}", file=sys.stderr)
    generate(folder / "pictures")
    return str(folder)


def make_job(options: argparse.Namespace) -> dict[str, Any]:
    import torch

    from bench.gpu_loop import torchvision

    device = options.device or ("cuda" if torch.cuda.is_available() else "cpu")
    is_cuda = device.startswith("cuda")
    folder = options.folder or generated()
    model = options.model
    if model is None:
        model = "small" if torchvision() is None else "resnet50" if is_cuda else "resnet18"
    return {
        "folder": folder,
        "n_classes": max(2, sum(one.is_dir() for one in Path(folder).iterdir())),
        "steps": options.steps or (200 if is_cuda else 20),
        "warmup": max(0, options.warmup),
        "batch_size": options.batch_size,
        "size": options.size,
        "model": model,
        "device": device,
        "device_name": torch.cuda.get_device_name(device) if is_cuda else "the CPU",
        "amp": options.amp,
        "workers": len(os.sched_getaffinity(0)) if options.workers is None else options.workers,
    }


def main() -> int:
    options = parse()
    job = make_job(options)
    if job["device"] == "cpu":
        print("device: the CPU, no GPU: it shares its cores with the loader")
    else:
        print(f"device: {job['device_name']}")
    loaders = (options.only,) if options.only else LOADERS
    print(
        f"{job['model']}, batches of {job['batch_size']}, {job['steps']} steps, "
        f"torch with {job['workers']} workers",
        flush=True,
    )
    runs: dict[str, list[dict[str, Any]]] = {name: [] for name in loaders}
    for turn in range(options.rounds):
        for name in loaders[:: -1 if turn % 2 else 1]:
            runs[name].append(run_one(name, job))
    results = {name: medians(seen) for name, seen in runs.items()}
    print(table(results))
    if options.json:
        options.json.write_text(json.dumps({"job": job, "runs": runs}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
