"""Whether a thread does as much beside others as alone: `python -m bench.scaling DATASET...`.

Runs `penstock bench` with each number of threads in turns, a first epoch apart, and compares images a second
a thread, and processor time an image.  Medians over the rounds; what the machine does at other times (another
frequency, neighbours) meets all numbers of threads alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
from pathlib import Path
from typing import Any

from bench.common import ROOT

COMMAND = ROOT / ".venv" / "bin" / "penstock"


def measure(dataset: str, n_threads: int, n_epochs: int) -> dict[str, float]:
    """One program: images a second a thread, and milliseconds of processor time an image."""
    call = [str(COMMAND), "bench", dataset, "--threads", str(n_threads), "--epochs", str(n_epochs)]
    found = json.loads(subprocess.run(call, check=True, stdout=subprocess.PIPE).stdout)
    later = found["images_per_s"][1:]
    return {
        "images_per_second_a_thread": statistics.median(later) / n_threads,
        "cpu_ms_an_image": found["cpu_s"] * 1e3 / (found["samples"] * n_epochs),
        "samples": found["samples"],
    }


def epochs_for(dataset: str, seconds: float) -> int:
    """How many epochs one thread takes some seconds for.  Also makes the index, if there is none."""
    trial = measure(dataset, 1, 3)
    return max(3, round(seconds * trial["images_per_second_a_thread"] / trial["samples"]))


def compare(dataset: str, threads: list[int], rounds: int, seconds: float) -> list[dict[str, Any]]:
    n_epochs = epochs_for(dataset, seconds)
    runs: dict[int, list[dict[str, float]]] = {n: [] for n in threads}
    for turn in range(rounds):
        order = threads if turn % 2 == 0 else threads[::-1]
        for n_threads in order:
            print(f"\r\033[K{dataset}: round {turn + 1} of {rounds}, {n_threads} threads", end="", file=sys.stderr, flush=True)  # fmt: skip
            runs[n_threads].append(measure(dataset, n_threads, n_epochs))
    print("\r\033[K", end="", file=sys.stderr)

    def median(n_threads: int, what: str) -> float:
        return statistics.median(run[what] for run in runs[n_threads])

    def row(n_threads: int) -> dict[str, Any]:
        rate = median(n_threads, "images_per_second_a_thread")
        cpu = median(n_threads, "cpu_ms_an_image")
        return {
            "dataset": dataset,
            "threads": n_threads,
            "images_per_second_a_thread": rate,
            "rate_ratio": rate / median(threads[0], "images_per_second_a_thread"),
            "cpu_ms_an_image": cpu,
            "cpu_ratio": cpu / median(threads[0], "cpu_ms_an_image"),
            "runs": runs[n_threads],
        }

    return [row(n_threads) for n_threads in threads]


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument(
        "datasets", nargs="+", metavar="DATASET", help="what `penstock bench` takes"
    )
    parser.add_argument("--threads", type=int, nargs="+", help="to compare with the first of them")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=5.0, help="of a run with one thread")
    parser.add_argument("--json", type=Path, help="write all figures here")
    options = parser.parse_args()
    if not COMMAND.exists():
        parser.error("there is no .venv/bin/penstock: run `make build` first")
    threads = options.threads or list(range(1, len(os.sched_getaffinity(0)) + 1))
    print(f"{'dataset':12} {'threads':>7} {'images/s a thread':>17} {'ratio':>6} {'CPU ms':>7} {'ratio':>6}")  # fmt: skip
    rows = []
    for dataset in options.datasets:
        for row in compare(dataset, threads, options.rounds, options.seconds):
            rows.append(row)
            print(
                f"{Path(dataset).name:12} {row['threads']:7} {row['images_per_second_a_thread']:17.0f} "
                f"{row['rate_ratio']:6.3f} {row['cpu_ms_an_image']:7.3f} {row['cpu_ratio']:6.3f}",
                flush=True,
            )
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
