"""Python datasets: penstock.torch against torch's DataLoader at its best number of workers.

    python -m bench.python_grid                      # every case, three rounds
    python -m bench.python_grid --case sleepy --seconds 1 --json out.json

Each run is a program of its own: it warms up (penstock "auto" chooses its number of workers
then), delivers whole epochs for some seconds, and says how many items a second that were.  It
goes on for half as long, and says what memory its process tree takes: anonymous pages, those of
forked processes shared as they are, and shared memory, each page once.  Libraries' pages, the
same for all, are left out.
Contestants alternate; figures are medians.  torch runs with persistent workers, which is its
best, and every number of workers it is given here; its best is chosen for each case
afterwards.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, TensorDataset

import penstock.torch
from bench.items import Heavy, Sleepy
from bench.process_tree import cpu_seconds, private_kib

TORCH_WORKERS = (0, 1, 2, 4, 8)


class Ints(Dataset):
    """Items that cost nothing: an integer and a label."""

    def __len__(self) -> int:
        return 51200

    def __getitem__(self, index: int) -> tuple[int, int]:
        return index, index % 10


class Large(Dataset):
    """Tensors of 3 MiB, computed with one pass over memory."""

    def __init__(self) -> None:
        self._base = torch.arange(3 * 512 * 512, dtype=torch.float32).view(3, 512, 512)

    def __len__(self) -> int:
        return 160

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self._base + index, index


def _rows() -> Dataset:
    return TensorDataset(torch.arange(12800 * 16.0).view(-1, 16), torch.arange(12800))


CASES: dict[str, tuple[Callable[[], Any], int]] = {  # dataset, batch size
    "tiny rows": (_rows, 64),
    "tiny ints": (Ints, 256),
    "large": (Large, 8),
    "sleepy": (Sleepy, 16),
    "heavy": (Heavy, 16),
}


class TorchLoader:
    kind: type[DataLoader] = DataLoader

    def __init__(self, dataset: Any, batch_size: int, num_workers: int | str) -> None:
        self._loader = self.kind(
            dataset, batch_size, num_workers=num_workers, persistent_workers=num_workers != 0
        )

    def epoch(self) -> Iterable[Any]:
        return self._loader

    @property
    def num_workers(self) -> int:
        return self._loader.num_workers


class Penstock(TorchLoader):
    kind = penstock.torch.DataLoader

    @property
    def num_workers(self) -> int:
        """Those that "auto" has at work; the loader's attribute says what it began with."""
        return self._loader._engine._workers.num_workers


def measure(kind: str, num_workers: Any, case: str, seconds: float) -> dict[str, Any]:
    """In a program of its own: items a second, and memory."""
    make, batch_size = CASES[case]
    dataset = make()
    loader = (TorchLoader if kind == "torch" else Penstock)(dataset, batch_size, num_workers)
    run_for(loader, 2.0)  # long enough for "auto" to choose
    cpu = cpu_seconds(os.getpid())
    items, elapsed = run_for(loader, seconds)
    cpu = cpu_seconds(os.getpid()) - cpu
    memory: list[int] = []
    run_for(loader, seconds / 2, lambda: memory.append(private_kib(os.getpid())))
    return {
        "items_per_second": items / elapsed,
        "cpu_us_per_item": cpu / items * 1e6,
        "memory_kib": max(memory),
        "workers": loader.num_workers,
    }


def run_for(
    loader: Any, seconds: float, look: Callable[[], None] = lambda: None
) -> tuple[int, float]:
    """Items taken in some seconds, and the seconds.  `look` is called ten times in between; it
    takes long, and workers go on meanwhile, so such a run says nothing about speed."""
    begin, n_batches, batch_size, n_looks = time.perf_counter(), 0, 0, 0
    while True:
        for batch in loader.epoch():
            first = batch[0] if isinstance(batch, (list, tuple)) else batch
            batch_size = max(batch_size, len(first))
            n_batches += 1
            elapsed = time.perf_counter() - begin
            if elapsed * 10 > seconds * (n_looks + 0.5):
                look()
                n_looks += 1
            if elapsed > seconds:
                return n_batches * batch_size, elapsed


def in_program(kind: str, num_workers: Any, case: str, seconds: float) -> dict[str, Any]:
    """A fork would share its pages with this process, and look small by as much as it did not
    touch: that would favour who runs the least code, not who needs the least memory."""
    call = [sys.executable, "-m", "bench.python_grid", "--run", kind, str(num_workers)]
    call += ["--case", case, "--seconds", str(seconds)]
    return json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout)


def in_process(function: Callable[..., dict[str, Any]], *arguments: Any) -> dict[str, Any]:
    """What a function says, run in a process of its own."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reader)
            result = function(*arguments)
            os.write(writer, json.dumps(result).encode())
            code = 0
        finally:
            os._exit(code)
    os.close(writer)
    with os.fdopen(reader) as file:
        text = file.read()
    os.waitpid(pid, 0)
    if not text:
        raise RuntimeError(f"no result from {arguments}")
    return json.loads(text)


def run_case(case: str, rounds: int, seconds: float) -> dict[str, Any]:
    contestants = [("penstock", "auto"), *(("torch", n) for n in TORCH_WORKERS)]
    runs: dict[tuple[str, Any], list[dict[str, Any]]] = {c: [] for c in contestants}
    for turn in range(rounds):
        for contestant in contestants[turn:] + contestants[:turn]:
            print(f"\r\033[K{case}: {contestant}", end="", file=sys.stderr, flush=True)
            runs[contestant].append(in_program(*contestant, case, seconds))
    print("\r\033[K", end="", file=sys.stderr)

    def median(contestant: tuple[str, Any], what: str) -> float:
        return statistics.median(run[what] for run in runs[contestant])

    ours = contestants[0]
    best = max(contestants[1:], key=lambda c: median(c, "items_per_second"))
    return {
        "case": case,
        "items_per_second": median(ours, "items_per_second"),
        "workers": [run["workers"] for run in runs[ours]],
        "memory_mib": median(ours, "memory_kib") / 1024,
        "torch_best_workers": best[1],
        "torch_items_per_second": median(best, "items_per_second"),
        "torch_memory_mib": median(best, "memory_kib") / 1024,
        "ratio": median(ours, "items_per_second") / median(best, "items_per_second"),
        "memory_ratio": median(ours, "memory_kib") / median(best, "memory_kib"),
        "runs": {f"{kind} {n}": found for (kind, n), found in runs.items()},
    }


def main() -> None:
    warnings.filterwarnings("ignore", "This DataLoader will create")
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--case", choices=CASES, action="append", help="only this one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each run")
    parser.add_argument("--json", type=Path, help="write all figures here")
    parser.add_argument("--run", nargs=2, help=argparse.SUPPRESS)  # one contestant, here
    options = parser.parse_args()
    if options.run:
        kind, text = options.run
        num_workers = text if text == "auto" else int(text)
        print(json.dumps(measure(kind, num_workers, options.case[0], options.seconds)))
        return
    print(f"torch {torch.__version__}, {len(os.sched_getaffinity(0))} cores")
    print(f"{'case':10} {'items/s':>10} {'workers':>8} {'MiB':>6} | {'torch best':>10} {'items/s':>10} {'MiB':>6} | {'ratio':>6} {'memory':>6}")  # fmt: skip
    results = []
    for case in options.case or CASES:
        found = run_case(case, options.rounds, options.seconds)
        results.append(found)
        print(
            f"{case:10} {found['items_per_second']:10.0f} {found['workers'][-1]:8} "
            f"{found['memory_mib']:6.0f} | {found['torch_best_workers']:10} "
            f"{found['torch_items_per_second']:10.0f} {found['torch_memory_mib']:6.0f} | "
            f"{found['ratio']:6.2f} {found['memory_ratio']:6.2f}",
            flush=True,
        )
    if options.json:
        options.json.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
