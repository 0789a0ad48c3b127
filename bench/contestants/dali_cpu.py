"""DALI without a GPU: the decoder that knows the crop, or decoding first and cropping after."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bench.common import IN_PLACE, MEAN, RATIO, SCALE, SIZE, STD, Batch, Job, Loader, Spec

VARIANTS = {
    "dali-fused": Spec("DALI CPU, image_random_crop", IN_PLACE, "folder", "main"),
    "dali-split": Spec("DALI CPU, decode then crop", IN_PLACE, "folder", "main"),
}

PREFETCH = 2
BUFFER = 1024  # encoded samples among which it shuffles: its default


def _images(fn: Any, types: Any, encoded: Any, fused: bool) -> Any:
    area = {"random_area": SCALE, "random_aspect_ratio": RATIO, "num_attempts": 10}
    if not fused:
        decoded = fn.decoders.image(encoded, device="cpu", output_type=types.RGB)
        return fn.random_resized_crop(decoded, size=(SIZE, SIZE), **area)
    window = fn.decoders.image_random_crop(encoded, device="cpu", output_type=types.RGB, **area)
    return fn.resize(window, size=(SIZE, SIZE))


def load(job: Job) -> Loader:
    import numpy as np
    from nvidia import dali
    from nvidia.dali import fn, pipeline_def, types

    fused = job.variant == "dali-fused"

    @pipeline_def
    def pipeline() -> Any:
        encoded, _label = fn.readers.file(
            file_root=str(job.view / "folder"),
            random_shuffle=True,
            name="reader",
            seed=job.seed,
            # As good a shuffle as the others', if the wire brings so much before the first batch.
            initial_fill=BUFFER if job.is_slow else len(job.files()),
            # Mapped files would be read while it starts, and kept, whatever the wire is like by then.
            dont_use_mmap=job.is_slow,
        )
        return fn.crop_mirror_normalize(
            _images(fn, types, encoded, fused),
            dtype=types.FLOAT,
            output_layout="CHW",
            mean=[255 * m for m in MEAN],
            std=[255 * s for s in STD],
            mirror=fn.random.coin_flip(),
        )

    def open_loader() -> Callable[[int], Iterator[Batch]]:
        pipe = pipeline(
            batch_size=job.batch_size,
            num_threads=job.threads,
            device_id=None,
            prefetch_queue_depth=PREFETCH,
            seed=job.seed,
        )
        pipe.build()
        batches = pipe.epoch_size("reader") // job.batch_size

        def epoch(_number: int) -> Iterator[Batch]:
            # The pipeline's own buffer, not the copy its PyTorch iterator makes: the best case for DALI.
            # It runs on over the end of an epoch without a gap.
            for _ in range(batches):
                yield pipe.run()[0].as_tensor()

        return epoch

    settings = {
        "num_threads": job.threads,
        "prefetch_queue_depth": PREFETCH,
        "output": "its own buffer, without a copy",
        "resize": "linear, antialiased",
    }
    return Loader(
        dali.__version__, settings, open_loader, to_numpy=np.array, rows=lambda b: b.shape()[0]
    )
