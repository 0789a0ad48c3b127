"""Grain with its reader threads, libjpeg-turbo and OpenCV (both release the interpreter lock)."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import version

from bench.common import IN_PLACE, Batch, Job, Loader, Spec
from bench.contestants.turbo_opencv import TurboTransform

VARIANTS = {
    "grain": Spec("Grain, threads, turbo + OpenCV", IN_PLACE, "folder", "main"),
}

BUFFER = 256  # samples read ahead: four batches


def load(job: Job) -> Loader:
    import grain
    import numpy as np
    import turbojpeg  # noqa: F401  (imported here so that a missing library shows as missing)

    local = threading.local()  # libjpeg-turbo's handle belongs to one thread

    def decode(path: object, rng: np.random.Generator) -> np.ndarray:
        if not hasattr(local, "transform"):
            local.transform = TurboTransform()
        return local.transform(path, random.Random(int(rng.integers(1 << 63))))

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        files = job.files()
        options = grain.ReadOptions(num_threads=job.threads, prefetch_buffer_size=BUFFER)

        def epoch(number: int) -> Iterator[Batch]:
            samples = (
                grain.MapDataset.source(files).seed(job.seed + number).shuffle().random_map(decode)
            )
            return iter(samples.to_iter_dataset(options).batch(job.batch_size))

        return epoch

    settings = {
        "num_threads": job.threads,
        "prefetch_buffer_size": BUFFER,
        "PyTurboJPEG": version("PyTurboJPEG"),
        "opencv": version("opencv-python-headless"),
    }
    return Loader(version("grain"), settings, open_loader, to_numpy=np.asarray)
