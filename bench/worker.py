"""One run of one contestant, in a process of its own: `python -m bench.worker NAME --view DIR`.

Prints one JSON line. Whatever a peer prints goes to standard error, so that line is alone on standard output.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from bench.common import SIZE, Job, Loader
from bench.contestants import module_of
from bench.process_tree import bytes_read, cpu_seconds, machine_busy_seconds


def check(loader: Loader, batch: Any, batch_size: int) -> None:
    """Refuse to time a contestant that does not deliver the workload."""
    array = loader.to_numpy(batch)
    image = (3, SIZE, SIZE) if loader.layout == "NCHW" else (SIZE, SIZE, 3)
    if tuple(array.shape) != (batch_size, *image) or array.dtype.name != "float32":
        raise ValueError(
            f"first batch is {array.dtype} {array.shape}, not float32 {(batch_size, *image)}"
        )
    low, high = float(array.min()), float(array.max())
    # Normalised pixels lie between (0 - 0.485) / 0.229 and (1 - 0.406) / 0.225; some filters ring.
    if not (-3.5 < low < -0.5 and 0.5 < high < 4.0):
        raise ValueError(
            f"first batch has values from {low:.2f} to {high:.2f}: not normalised pixels"
        )
    if any(float(sample.std()) == 0.0 for sample in array):
        raise ValueError("first batch holds an image of one colour: a file was not decoded")


def measure(loader: Loader, job: Job, min_seconds: float) -> dict[str, Any]:
    """A warm-up epoch, then whole epochs until `min_seconds` have passed."""
    start = time.perf_counter()
    epoch = loader.open()
    batches = epoch(0)
    first = next(batches)
    first_batch_s = time.perf_counter() - start
    check(loader, first, job.batch_size)
    warm_images = loader.rows(first) + sum(loader.rows(batch) for batch in batches)
    del first, batches

    images = epochs = 0
    elapsed = 0.0
    me = os.getpid()
    read_before, cpu_before, busy_before = bytes_read(me), cpu_seconds(me), machine_busy_seconds()
    start = time.perf_counter()
    while elapsed < min_seconds:
        epochs += 1
        for batch in epoch(epochs):
            images += loader.rows(batch)
        elapsed = time.perf_counter() - start
    read, cpu, busy = bytes_read(me), cpu_seconds(me), machine_busy_seconds()
    return {
        "images_per_s": images / elapsed,
        "images": images,
        "epochs": epochs,
        "warm_images": warm_images,
        "seconds": elapsed,
        "first_batch_s": first_batch_s,
        "read_bytes_per_image": (read - read_before) / images,
        "cpu_s_per_image": (cpu - cpu_before) / images,
        # What the rest of the machine was doing meanwhile: the run's own health certificate.
        "other_cores": max(0.0, (busy - busy_before - (cpu - cpu_before)) / elapsed),
        "version": loader.version,
        "settings": loader.settings,
        "layout": loader.layout,
    }


def _pin(threads: int) -> None:
    """Stay on as many cores as there are threads.

    Some peers size their pools by the machine and offer no setting; the affinity mask is what all respect.
    """
    allowed = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, allowed[:threads])


def run(options: argparse.Namespace) -> dict[str, Any]:
    job = Job(options.name, options.view, options.batch_size, options.threads, options.seed)
    try:
        module = module_of(options.name)
        if options.prepare:
            module.prepare(job)
            return {"prepared": options.name}
        started = time.perf_counter()
        loader = module.load(job)
        import_s = time.perf_counter() - started
        return {**measure(loader, job, options.min_seconds), "import_s": import_s}
    except ImportError as error:
        return {"missing": str(error)}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.worker", description=__doc__)
    parser.add_argument("name", help="the contestant")
    parser.add_argument(
        "--view", type=Path, required=True, help="directory of the prepared data set"
    )
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--min-seconds", type=float, default=5.0)
    parser.add_argument(
        "--prepare", action="store_true", help="only write the contestant's own file format"
    )
    options = parser.parse_args()

    result_line = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    _pin(options.threads)
    try:
        result = run(options)
    except Exception as error:  # a peer may raise anything; the table shows it and goes on
        if os.environ.get("PENSTOCK_BENCH_TRACE"):
            raise
        result = {"failed": f"{type(error).__name__}: {error}"}
    print(json.dumps(result), file=result_line, flush=True)
    sys.stderr.flush()


if __name__ == "__main__":
    main()
